//! [`Token`]: what we show to GitHub, and nobody else.

use std::ffi::OsString;
use std::fmt;
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};
use sprag_core::{ErrorKind, Result};

use crate::error::error;

/// A token for GitHub. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token that is known already.
    ///
    /// # Errors
    ///
    /// If it could not be sent: it is empty or has characters that no token has.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let text = text.trim();
        let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !fits {
            let message = "the token for GitHub is empty or has characters that no token has: \
                           look at GH_TOKEN, GITHUB_TOKEN or `gh auth status`";
            return Err(error(ErrorKind::BadInput, message));
        }
        Ok(Self(text.to_owned()))
    }

    /// Looks where people keep the token for `host`, as `gh` does: for github.com and the servers
    /// below ghe.com in `GH_TOKEN` and `GITHUB_TOKEN`, for any other server in `GH_ENTERPRISE_TOKEN`
    /// and `GITHUB_ENTERPRISE_TOKEN`, then `gh auth token`. A token for the one is never for the
    /// other.
    ///
    /// # Errors
    ///
    /// If it is nowhere.
    pub fn find(host: &str, env: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        const PUBLIC: [&str; 2] = ["GH_TOKEN", "GITHUB_TOKEN"];
        const ENTERPRISE: [&str; 2] = ["GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"];
        let is_public = host == "github.com" || host.ends_with(".ghe.com");
        let names = if is_public { PUBLIC } else { ENTERPRISE };
        let set = |name: &&str| env(name).filter(|value| !value.is_empty());
        if let Some(value) = names.iter().find_map(set).and_then(|value| value.into_string().ok()) {
            return Self::new(value);
        }
        if let Some(token) = from_gh(host) {
            return Self::new(token);
        }
        let other = !is_public && PUBLIC.iter().any(|name| set(name).is_some());
        let other = if other { "; GH_TOKEN and GITHUB_TOKEN are for github.com only" } else { "" };
        let message = format!(
            "no token for {host}: set {} or {}, or log in with `gh auth login --hostname \
             {host}`{other}",
            names[0], names[1]
        );
        Err(error(ErrorKind::Refused, message))
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Names what belongs to this token on this machine; the token cannot be found from it.
    pub(crate) fn fingerprint(&self, api: &str) -> String {
        let hash = Sha256::new()
            .chain_update("sprag:github:v1\0")
            .chain_update(api)
            .chain_update("\0")
            .chain_update(&self.0)
            .finalize();
        hash.iter().take(10).map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(_)")
    }
}

fn from_gh(host: &str) -> Option<String> {
    let mut gh = Command::new("gh");
    gh.args(["auth", "token", "--hostname", host]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = gh.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().filter(|token| !token.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::Token;

    #[test]
    fn the_environment_is_asked_in_order_and_the_token_is_not_shown() {
        let env = |name: &str| match name {
            "GITHUB_TOKEN" => Some("second".into()),
            "GH_TOKEN" => Some("first".into()),
            "GH_ENTERPRISE_TOKEN" => Some("corp".into()),
            _ => None,
        };
        assert_eq!(Token::find("github.com", env).unwrap().reveal(), "first");
        assert_eq!(Token::find("acme.ghe.com", env).unwrap().reveal(), "first");
        assert_eq!(Token::find("ghe.corp", env).unwrap().reveal(), "corp");
        let token = Token::find("github.com", env).unwrap();
        assert_eq!(format!("{token:?}"), "Token(_)");
        assert!(!token.fingerprint("https://api.github.com").contains("first"));
    }

    /// It would be sent to whoever runs the server.
    #[test]
    fn a_token_for_github_is_for_no_other_server() {
        let env = |name: &str| (name == "GH_TOKEN").then(|| "hunter2".into());
        for host in ["sprag.invalid", "127.0.0.1", "github.com.sprag.invalid", "ghe.com"] {
            let error = Token::find(host, env).unwrap_err().to_string();
            assert!(error.contains(&format!("no token for {host}: set GH_ENTERPRISE_TOKEN")));
            assert!(error.contains("for github.com only") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn what_no_header_could_carry_is_refused_without_repeating_it() {
        for bad in ["", " ", "a b", "tök", "a\nb"] {
            let error = Token::new(bad).unwrap_err();
            assert!(error.is_bad_input() && (bad.len() < 2 || !error.to_string().contains(bad)));
        }
    }
}
