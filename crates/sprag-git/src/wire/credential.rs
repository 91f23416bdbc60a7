//! What the user's credential helpers know.

use crate::error::{GitError, Trouble};
use crate::git::Git;

/// A user and what proves it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login(_)")
    }
}

impl Login {
    /// Asks the user's credential helpers, not the user.
    pub(crate) fn ask(git: &Git, site: &str, user: Option<&str>) -> Result<Self, GitError> {
        let user = user.map(|user| format!("username={user}\n")).unwrap_or_default();
        let found = git.ok_with(["credential", "fill"], format!("{site}{user}\n").as_bytes());
        let found = found.map_err(|error| {
            let message = format!("no user and password for the server are known: {error}");
            GitError::new(Trouble::AuthRefused, message)
        })?;
        let text = found.text();
        let value = |name: &str| {
            let of = |line: &str| line.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
            text.lines().find_map(of).unwrap_or_default()
        };
        Ok(Self { user: value("username"), password: value("password") })
    }

    /// Tells the helpers whether it was good.
    pub(crate) fn judge(&self, git: &Git, site: &str, is_good: bool) {
        let verdict = if is_good { "approve" } else { "reject" };
        let known = format!("{site}username={}\npassword={}\n\n", self.user, self.password);
        if let Err(error) = git.ok_with(["credential", verdict], known.as_bytes()) {
            tracing::debug!(%error, "a credential helper was not told");
        }
    }

    /// What is sent to the server.
    pub(crate) fn header(&self) -> String {
        let both = format!("{}:{}", self.user, self.password);
        format!("Authorization: Basic {}\r\n", base64(both.as_bytes()))
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = |group: &[u8]| {
        let at = |index| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        (0..4_u32)
            .map(|digit| match usize::try_from(bits >> (18 - 6 * digit) & 63) {
                Ok(value) if digit as usize <= group.len() => char::from(DIGITS[value]),
                _ => '=',
            })
            .collect::<String>()
    };
    bytes.chunks(3).map(digits).collect()
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_as_everybody_writes_it() {
        for (bytes, text) in
            [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj"), ("a:b>?~", "YTpiPj9+")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
