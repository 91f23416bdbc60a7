//! `git+ssh://`, `git+https://`, `git+file://`, `git:origin`.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sprag_core::home::state_folder;
use sprag_core::{Result, Store};
use sprag_git::{Abandoned, GitConfig};

use super::StoreKind;
use super::url::StoreUrl;

pub(super) const KIND: StoreKind = StoreKind {
    scheme: "git",
    also: &["git+ssh", "git+https", "git+http", "git+file", "git+git"],
    forms: &[
        ("git:origin", "a remote of the repository that one is in"),
        ("git+ssh://git@host/team/locks.git", "a repository, by ssh"),
        ("git+https://host/team/locks.git", "a repository, by https"),
        ("git+file:///srv/locks.git", "a repository on this machine"),
        ("git+https://host/locks.git?abandoned=freed", "locks of the dead are free for the next"),
    ],
    between: "all who may push to one git repository",
    broken_by: &[
        "somebody who deletes or rewinds refs/sprag/",
        "a server that loses pushes that it took",
        "clocks whose speeds differ by more than 5 %",
    ],
    sql: None,
    capability: sprag_git::ability,
    open: |url| {
        let config = config(url)?;
        let config = match observations() {
            Some(folder) => config.observed_in(folder),
            None => config,
        };
        Ok(Arc::new(sprag_git::open(config)?) as Arc<dyn Store>)
    },
};

const PARAMETERS: &[&str] =
    &["abandoned", "poll_ms", "timeout_ms", "by_git", "insecure", "directory"];
/// The longer nobody comes, the more seldom we look, up to so much.
const SLOWEST: u32 = 16;

/// Which remote a URL names, and with what it is used.
fn config(url: &StoreUrl<'_>) -> Result<GitConfig> {
    let insecure = flag(url, "insecure")?;
    let mut config = remote(url, insecure)?;
    for (name, value) in url.parameters() {
        config = match name {
            "insecure" => config,
            "directory" if !url.rest.starts_with("//") => config,
            "by_git" => config.git_talks(flag(url, "by_git")?),
            "timeout_ms" => config.timeout(millis(url, name, value)?),
            "poll_ms" => {
                let first = millis(url, name, value)?;
                config.poll(first..=first.saturating_mul(SLOWEST))
            }
            "abandoned" => config.abandoned(match value {
                "stays" => Abandoned::Stays,
                "freed" => Abandoned::Freed,
                _ => return Err(url.bad("has neither stays nor freed in abandoned")),
            }),
            _ => return Err(url.unknown_parameter(PARAMETERS)),
        };
    }
    Ok(config)
}

fn remote(url: &StoreUrl<'_>, insecure: bool) -> Result<GitConfig> {
    let scheme = url.scheme.to_ascii_lowercase();
    let protocol = scheme.strip_prefix("git+");
    let Some(protocol) = protocol.or_else(|| url.rest.starts_with("//").then_some("git")) else {
        let name = String::from_utf8(url.decoded()?);
        return match name {
            Ok(name)
                if !name.is_empty() && !name.starts_with('-') && !name.contains([':', '@']) =>
            {
                Ok(GitConfig::remote(name, directory(url)?))
            }
            _ => Err(url.bad("names no remote; write git:origin, or git+ssh:// and so on")),
        };
    };
    if !url.rest.starts_with("//") || url.rest.contains('#') {
        return Err(url.bad("is no URL of a repository; write git+ssh://HOST/PATH"));
    }
    if protocol == "http" && !insecure && !is_loopback(url.rest) {
        return Err(url.bad(
            "goes over the network for all to read and change; write git+https://, or add \
             ?insecure=true",
        ));
    }
    let config = GitConfig::url(format!("{protocol}:{}", url.rest));
    if !config.is_understood() {
        return Err(url.bad("is no URL of a repository; write git+https://HOST:PORT/PATH"));
    }
    Ok(config)
}

/// The folder of the repository whose remote it is: that of this process, if none is named.
fn directory(url: &StoreUrl<'_>) -> Result<PathBuf> {
    match url.parameters().find(|(name, _)| *name == "directory") {
        Some((_, folder)) => Ok(OsString::from_vec(url.decode(folder)?).into()),
        None => Ok(".".into()),
    }
}

fn is_loopback(rest: &str) -> bool {
    let authority = rest.trim_start_matches('/').split('/').next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|known| {
        host.strip_prefix(known).is_some_and(|port| port.is_empty() || port.starts_with(':'))
    })
}

fn flag(url: &StoreUrl<'_>, name: &str) -> Result<bool> {
    match url.parameters().find(|(known, _)| *known == name) {
        None | Some((_, "false")) => Ok(false),
        Some((_, "true")) => Ok(true),
        Some(_) => Err(url.bad(&format!("has neither true nor false in {name}"))),
    }
}

fn millis(url: &StoreUrl<'_>, name: &str, value: &str) -> Result<Duration> {
    match value.parse::<u32>() {
        Ok(millis) if millis > 0 => Ok(Duration::from_millis(millis.into())),
        _ => Err(url.bad(&format!("has no number from 1 to {} in {name}", u32::MAX))),
    }
}

/// Where what was seen of others is kept for the next command. Without it each begins anew.
fn observations() -> Option<PathBuf> {
    let folder = state_folder(|name| std::env::var_os(name))?.join("seen");
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    Some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<GitConfig> {
        config(&StoreUrl::parse(url)?)
    }

    #[test]
    fn each_form_means_one_remote() {
        for (url, remote) in [
            ("git:origin", "origin"),
            ("git:origin?directory=/a%26b", "origin"),
            ("git+ssh://git@host/a.git", "ssh://git@host/a.git"),
            ("git+https://me:pw@host/a.git", "https://***@host/a.git"),
            ("git+file:///srv/a%20b.git", "file:///srv/a%20b.git"),
            ("git+http://localhost:8080/a", "http://localhost:8080/a"),
            ("git+http://me@[::1]/a", "http://***@[::1]/a"),
            ("git+http://host/a?insecure=true", "http://host/a"),
            ("git://host/a.git", "git://host/a.git"),
            ("GIT+FILE:///a", "file:///a"),
        ] {
            let config = format!("{:?}", read(url).unwrap());
            assert_eq!(config, format!("GitConfig {{ remote: {remote:?}, .. }}"), "{url}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for url in [
            "git:",
            "git:-x",
            "git:a@b",
            "git+ssh:host",
            "git+https://host",
            "git+http://host/a",
            "git+http://localhost.evil/a",
            "git+http://h/a?insecure=1",
            "git:origin?ttl=1",
            "git://host/a.git?directory=/a",
            "git:origin?poll_ms=0",
            "git:origin?abandoned=maybe",
        ] {
            assert!(read(url).unwrap_err().is_bad_input(), "{url}");
        }
    }
}
