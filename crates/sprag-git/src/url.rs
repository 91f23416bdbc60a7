//! [`GitUrl`]: where a repository is, in the forms that git takes.

use std::path::PathBuf;

/// Where a repository is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GitUrl {
    Local(PathBuf),
    Ssh(SshUrl),
    Daemon {
        host: String,
        port: u16,
        path: String,
    },
    Http(HttpUrl),
    /// What only git understands, with a helper of its own.
    Other,
}

/// A repository that is reached by ssh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SshUrl {
    pub(crate) user: Option<String>,
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    pub(crate) path: String,
}

/// A repository that is reached by HTTP.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HttpUrl {
    pub(crate) secure: bool,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// As it is written, with its percent signs.
    pub(crate) path: String,
}

impl std::fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.authority(), self.path)
    }
}

impl HttpUrl {
    fn parse(secure: bool, rest: &str) -> Option<Self> {
        if rest.contains(is_unfit) {
            return None;
        }
        let (authority, path) = rest.split_once('/')?;
        let (login, host) = match authority.rsplit_once('@') {
            Some((login, host)) => (Some(login), host),
            None => (None, authority),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, "")))
        {
            None => (None, None),
            Some((user, "")) => (Some(decode(user)?), None),
            Some((user, password)) => (Some(decode(user)?), Some(decode(password)?)),
        };
        // Credential helpers are asked in lines: a line end would let a URL ask for another site.
        if [&user, &password].into_iter().flatten().any(|text| text.contains(char::is_control)) {
            return None;
        }
        let (host, port) = host_and_port(host)?;
        let port = port.unwrap_or(if secure { 443 } else { 80 });
        let path = format!("/{}", path.trim_end_matches('/'));
        Some(Self { secure, user, password, host, port, path })
    }

    /// The same repository at another place, where the server sends us.
    pub(crate) fn moved(&self, target: &str) -> Option<Self> {
        let moved = match target.split_once("://") {
            Some(("https", rest)) => Self::parse(true, rest)?,
            Some(("http", rest)) => Self::parse(false, rest)?,
            Some(_) => return None,
            None => {
                Self { path: target.strip_prefix('/').map(|_| target.to_owned())?, ..self.clone() }
            }
        };
        let user = self.user.clone().filter(|_| moved.is_on_site_of(self));
        Some(Self { user, password: None, ..moved }).filter(|moved| !moved.path.contains(is_unfit))
    }

    /// Whether a login for the other one is for this one as well.
    pub(crate) fn is_on_site_of(&self, other: &Self) -> bool {
        self.secure == other.secure
            && self.port == other.port
            && self.host.eq_ignore_ascii_case(&other.host)
    }

    /// Host and port, as they are named to the server.
    pub(crate) fn authority(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match (self.secure, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// Whose password it is, for credential helpers.
    pub(crate) fn site(&self) -> String {
        let protocol = if self.secure { "https" } else { "http" };
        let path = self.path.trim_start_matches('/');
        format!("protocol={protocol}\nhost={}\npath={path}\n", self.authority())
    }
}

impl GitUrl {
    /// Reads what git would take for a repository; `None` if it cannot be one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some((scheme, rest)) = text.split_once("://") {
            return match scheme {
                "file" => Some(Self::Local(decode(rest)?.into())),
                "http" => HttpUrl::parse(false, rest).map(Self::Http),
                "https" => HttpUrl::parse(true, rest).map(Self::Http),
                "ssh" | "git+ssh" | "ssh+git" => {
                    let (authority, path) = rest.split_once('/')?;
                    let path = decode(path)?;
                    let path = if path.starts_with('~') { path } else { format!("/{path}") };
                    ssh(authority, path)
                }
                "git" => {
                    let (authority, path) = rest.split_once('/')?;
                    let (host, port) = host_and_port(authority)?;
                    let path = format!("/{}", decode(path)?);
                    Some(Self::Daemon { host, port: port.unwrap_or(9418), path })
                }
                _ => Some(Self::Other),
            };
        }
        if text.contains("::") {
            return Some(Self::Other);
        }
        match text.split_once(':') {
            Some((authority, path)) if !authority.contains('/') => ssh(authority, path.to_owned()),
            _ if text.is_empty() => None,
            _ => Some(Self::Local(text.into())),
        }
    }
}

/// Whether a URL of HTTP cannot have it.
fn is_unfit(c: char) -> bool {
    c.is_control() || c == ' '
}

fn ssh(authority: &str, path: String) -> Option<GitUrl> {
    let (user, host) = match authority.rsplit_once('@') {
        // Ssh takes no password from a URL, and would show it as part of the user's name.
        Some((user, host)) => (Some(decode(user.split(':').next()?)?), host),
        None => (None, authority),
    };
    let (host, port) = host_and_port(host)?;
    let first = user.as_ref().unwrap_or(&host);
    // They would be options of ssh.
    let fits = !first.starts_with('-') && !path.is_empty() && !path.starts_with('-');
    fits.then_some(GitUrl::Ssh(SshUrl { user, host, port, path }))
}

fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            (host, after.strip_prefix(':'))
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        None | Some("") => None,
        Some(port) => Some(port.parse().ok()?),
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// Decodes the percent signs.
fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next()?, bytes.next()?];
            decoded.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh_at(user: Option<&str>, host: &str, port: Option<u16>, path: &str) -> GitUrl {
        let user = user.map(str::to_owned);
        GitUrl::Ssh(SshUrl { user, host: host.into(), port, path: path.into() })
    }

    #[test]
    fn all_forms_of_git_are_understood() {
        for (text, url) in [
            ("file:///a/b%20c", GitUrl::Local("/a/b c".into())),
            ("/a/b.git", GitUrl::Local("/a/b.git".into())),
            ("../b", GitUrl::Local("../b".into())),
            ("./a:b", GitUrl::Local("./a:b".into())),
            ("ssh://git@host/a/b", ssh_at(Some("git"), "host", None, "/a/b")),
            ("ssh://host:22/~me/b", ssh_at(None, "host", Some(22), "~me/b")),
            ("git@host:a/b.git", ssh_at(Some("git"), "host", None, "a/b.git")),
            ("ssh://git:secret@host/a/b", ssh_at(Some("git"), "host", None, "/a/b")),
            ("ssh://[::1]:2222/b", ssh_at(None, "::1", Some(2222), "/b")),
            ("git://h/b", GitUrl::Daemon { host: "h".into(), port: 9418, path: "/b".into() }),
            ("codecommit::x://y", GitUrl::Other),
            ("s3://y", GitUrl::Other),
        ] {
            assert_eq!(GitUrl::parse(text), Some(url), "{text}");
        }
        for bad in
            ["", "ssh://-oProxyCommand=x/b", "-x:b", "ssh://host", "https://h", "http://h:x/y"]
        {
            assert_eq!(GitUrl::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_login_is_taken_out_of_an_http_url() {
        let Some(GitUrl::Http(url)) = GitUrl::parse("https://me:a%40b@host:8443/x/y.git/") else {
            panic!("it is one");
        };
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("me"), Some("a@b")));
        assert_eq!(format!("{url:?}"), "host:8443/x/y.git");
        let moved = url.moved("https://other/z").unwrap();
        assert_eq!((moved.authority().as_str(), moved.password), ("other", None));
        assert_eq!(url.moved("ftp://x/y"), None);
        assert_eq!(
            (moved.user.as_deref(), url.moved("/z").unwrap().user.as_deref()),
            (None, Some("me"))
        );
        assert!(url.moved("https://HOST:8443/z").unwrap().is_on_site_of(&url));
        for other in ["https://host/z", "http://host:8443/z", "https://host.evil:8443/z"] {
            assert!(!url.moved(other).unwrap().is_on_site_of(&url), "{other}");
        }
    }

    #[test]
    fn no_url_has_lines_for_a_credential_helper() {
        for bad in [
            "https://me%0ahost=github.com@evil/x",
            "https://me:a%0db@evil/x",
            "https://evil\nhost=github.com/x",
            "https://evil/x HTTP/1.1",
            "https://evil/x\ry",
        ] {
            assert_eq!(GitUrl::parse(bad), None, "{bad:?}");
        }
        let Some(GitUrl::Http(url)) = GitUrl::parse("https://host/x") else { panic!("it is one") };
        assert_eq!(url.moved("/x HTTP/1.1\r\nA: b"), None);
    }
}
