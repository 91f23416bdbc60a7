//! [`Oid`]: the hash that names an entry.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The hash that names an entry: 40 or 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Oid(String);

impl Oid {
    /// Reads an oid; `None` if the text is none, or the one of all zeros that names nothing.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let digits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let fits = matches!(text.len(), 40 | 64) && text.bytes().all(digits);
        (fits && text.bytes().any(|byte| byte != b'0')).then_some(Self(text))
    }

    /// A number that other oids hardly share.
    pub(crate) fn fingerprint(&self) -> u64 {
        u64::from_str_radix(&self.0[..16], 16).unwrap_or(u64::MAX)
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Oid {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::new(text.as_str()).ok_or_else(|| format!("{text:?} is no object id"))
    }
}

impl From<Oid> for String {
    fn from(oid: Oid) -> Self {
        oid.0
    }
}

#[cfg(test)]
mod tests {
    use super::Oid;

    #[test]
    fn only_hashes_are_oids() {
        assert!(Oid::new("4b825dc642cb6eb9a060e54bf8d69288fbee4904").is_some());
        assert!(Oid::new("a".repeat(64)).is_some());
        for bad in ["", "4b825d", &"0".repeat(40), &"A".repeat(40), &"g".repeat(40)] {
            assert_eq!(Oid::new(bad), None, "{bad:?}");
        }
    }
}
