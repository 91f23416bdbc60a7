//! [`RefName`]: the name of a reference, in a form that every git server takes.

use std::fmt;

use serde::{Deserialize, Serialize};
use sprag_core::{LockName, SessionId};

/// Where the records of locks are.
const LOCKS: &str = "refs/sprag/locks/";
/// Where sessions give their signs of life.
const SESSIONS: &str = "refs/sprag/sessions/";
/// Lower case only: some servers keep references in file systems that fold it.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// How many digits a part of the path has at most: file systems take 255 bytes for a name.
const PART: usize = 200;

/// The full name of a reference, such as `refs/sprag/locks/orswy33pnq`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RefName(String);

impl RefName {
    /// A name that is already one, such as a branch's. `None` if git would not take it.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let forbidden = |c: char| c.is_ascii_control() || " ~^:?*[\\\u{7f}".contains(c);
        let bad_part = |part: &str| {
            part.is_empty()
                || part.starts_with('.')
                || part.ends_with(".lock")
                || part.ends_with('.')
        };
        let bad = text.contains("..")
            || text.contains("@{")
            || text.chars().any(forbidden)
            || text.split('/').any(bad_part);
        (text.starts_with("refs/") && text.len() > 5 && !bad).then_some(Self(text))
    }

    /// Where the record of a lock is. The name is encoded, so that `job` and `job/1` can be there
    /// at once, and names of any form can.
    pub fn lock(name: &LockName) -> Self {
        let mut encoded = encode(name.as_str().as_bytes());
        // `-` is no digit, so a long name never meets a short one.
        let mut end = PART;
        while end < encoded.len() {
            encoded.insert_str(end, "-/");
            end += PART + 2;
        }
        Self(format!("{LOCKS}{encoded}"))
    }

    /// Which lock's record is here; `None` if it is none.
    pub fn to_lock(&self) -> Option<LockName> {
        let digits = self.0.strip_prefix(LOCKS)?.replace("-/", "");
        let name = String::from_utf8(decode(&digits)?).ok()?;
        LockName::new(name).ok().filter(|name| Self::lock(name) == *self)
    }

    /// Where all records are.
    pub const fn locks() -> &'static str {
        LOCKS
    }

    /// Where a session gives its signs of life.
    pub fn session(session: SessionId) -> Self {
        Self(format!("{SESSIONS}{session}"))
    }

    /// Which session is here; `None` if it is none.
    pub fn to_session(&self) -> Option<SessionId> {
        self.0.strip_prefix(SESSIONS)?.parse().ok()
    }

    /// Where all sessions are.
    pub const fn sessions() -> &'static str {
        SESSIONS
    }

    /// The name as git takes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn encode(bytes: &[u8]) -> String {
    let digits = (bytes.len() * 8).div_ceil(5);
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1);
    let digit = |index: usize| (0..5).fold(0, |digit, next| digit << 1 | bit(index * 5 + next));
    (0..digits).map(|index| char::from(ALPHABET[usize::from(digit(index))])).collect()
}

fn decode(digits: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u16, 0_u32);
    for digit in digits.bytes() {
        let value = ALPHABET.iter().position(|other| *other == digit)?;
        bits = bits << 5 | u16::try_from(value).ok()?;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
        bits &= (1 << count) - 1;
    }
    (bits == 0 && count < 5).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lock_has_its_own_ref_and_no_ref_is_inside_of_another() {
        let long = "x".repeat(255);
        let half = "x".repeat(125);
        let names = ["job", "job/1", "JOB", "Größe", "a b", "..", ".lock", &long, &half, "@{-1}"];
        let refs: Vec<_> =
            names.iter().map(|name| RefName::lock(&LockName::new(*name).unwrap())).collect();
        for (name, reference) in names.iter().zip(&refs) {
            assert_eq!(reference.to_lock().unwrap().as_str(), *name);
            assert!(RefName::new(reference.as_str()).is_some(), "{reference}");
            assert!(reference.as_str().split('/').all(|part| part.len() < 255), "{reference}");
            let inside = |other: &&RefName| other.as_str().starts_with(&format!("{reference}/"));
            assert_eq!(refs.iter().find(inside), None);
        }
    }

    #[test]
    fn what_is_no_lock_is_not_read_as_one() {
        for other in
            ["refs/heads/main", "refs/sprag/locks/1", "refs/sprag/locks/b", "refs/sprag/locks/nz"]
        {
            assert_eq!(RefName(other.into()).to_lock(), None, "{other}");
        }
    }

    #[test]
    fn what_git_would_not_take_is_no_name() {
        let bad = [
            "main",
            "refs/",
            "refs/heads/a b",
            "refs/heads/a..b",
            "refs/heads/.a",
            "refs/heads/a.lock",
            "refs//a",
        ];
        for name in bad {
            assert_eq!(RefName::new(name), None, "{name}");
        }
        assert!(RefName::new("refs/heads/indevelopment-größe").is_some());
    }
}
