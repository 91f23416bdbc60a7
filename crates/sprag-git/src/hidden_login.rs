//! [`HiddenLogin`]: the login of a URL, on another way than the command line of a process.

use crate::url::GitUrl;
use crate::wire::Login;

/// The variables by which git's credential helper of ours is told.
pub(crate) const USER: &str = "SPRAG_GIT_USER";
pub(crate) const PASSWORD: &str = "SPRAG_GIT_PASSWORD";

/// A credential helper that knows one login, and forgets what it is told.
const HELPER: &str = "!f() { test \"$1\" = get && printf 'username=%s\\npassword=%s\\n' \
                      \"$SPRAG_GIT_USER\" \"$SPRAG_GIT_PASSWORD\"; }; f";

/// A URL without its login, and the login.
#[derive(Debug)]
pub(crate) struct HiddenLogin {
    /// The URL, with nothing in it that could be a secret.
    pub(crate) url: String,
    /// Whose login it is: the URL without its path.
    site: String,
    user: Option<String>,
    pub(crate) login: Option<Login>,
}

impl HiddenLogin {
    /// Takes the login out of a URL; `None` if it has none. A user alone is one where tokens are
    /// users, which is with HTTP.
    pub(crate) fn of(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, host) = authority.rsplit_once('@')?;
        match scheme {
            "http" | "https" => {}
            // Ssh takes no password from a URL.
            "ssh" | "git+ssh" | "ssh+git" => {
                let (user, _) = login.split_once(':')?;
                let url = format!("{scheme}://{user}@{host}/{path}");
                return Some(Self { url, site: String::new(), user: None, login: None });
            }
            _ => return None,
        }
        let Some(GitUrl::Http(parsed)) = GitUrl::parse(url) else { return None };
        let site = format!("{scheme}://{host}");
        let url = format!("{site}/{path}");
        let login = parsed.user.clone().zip(parsed.password);
        let login = login.map(|(user, password)| Login { user, password });
        Some(Self { url, site, user: parsed.user, login })
    }

    /// What git has to be told.
    pub(crate) fn settings(&self) -> Vec<(String, String)> {
        let site = &self.site;
        let mut settings = Vec::new();
        if let Some(user) = &self.user {
            settings.push((format!("credential.{site}.username"), user.clone()));
        }
        if self.login.is_some() {
            let helper = format!("credential.{site}.helper");
            // First none: what the user's own helpers know is not what the URL says.
            settings.push((helper.clone(), String::new()));
            settings.push((helper, HELPER.to_owned()));
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_secret_is_left_in_a_url() {
        for (url, bare) in [
            ("https://me:hunter2@host:8443/x/y.git", "https://host:8443/x/y.git"),
            ("https://ghp_token@host/x", "https://host/x"),
            ("http://me:a%40b@[::1]:1/x", "http://[::1]:1/x"),
            ("ssh://me:hunter2@host:22/x", "ssh://me@host:22/x"),
        ] {
            let hidden = HiddenLogin::of(url).unwrap();
            assert_eq!(hidden.url, bare);
            let settings = format!("{:?}", hidden.settings());
            assert!(!settings.contains("hunter2"), "{settings}");
        }
        for plain in ["https://host/x@y", "ssh://git@host/x", "git@host:x", "/a@b", "file:///a@b"] {
            assert!(HiddenLogin::of(plain).is_none(), "{plain}");
        }
        let hidden = HiddenLogin::of("https://me:a%40b@host/x").unwrap();
        let login = hidden.login.unwrap();
        assert_eq!((&login.user[..], &login.password[..]), ("me", "a@b"));
    }
}
