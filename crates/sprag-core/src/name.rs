//! [`LockName`]: what a lock is called.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Operation};

/// The name of a lock: 1 to 255 bytes of UTF-8 without control characters, compared as bytes.
///
/// Names are not normalised: `é` written in two ways is two names, on every store.
///
/// # Examples
///
/// ```
/// use sprag_core::LockName;
///
/// let name = LockName::new("deploy/production")?;
/// assert_eq!(name.as_str(), "deploy/production");
/// assert!(LockName::new("").unwrap_err().is_bad_input());
/// # Ok::<(), sprag_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LockName(Arc<str>);

impl LockName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Checks and wraps a name.
    ///
    /// # Errors
    ///
    /// A bad-input error that says what is wrong with the name.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        let bad = |what: String| Err(Error::bad_input(Operation::Acquire, what));
        if name.is_empty() {
            return bad("the lock name is empty; give it 1 to 255 bytes".into());
        }
        if name.len() > Self::MAX_BYTES {
            let start: String = name.chars().take(24).collect();
            return bad(format!(
                "the lock name {start:?}... has {} bytes; at most {} are allowed: shorten or hash it",
                name.len(),
                Self::MAX_BYTES
            ));
        }
        if let Some(control) = name.chars().find(|c| c.is_control()) {
            return bad(format!(
                "the lock name {name:?} contains the control character {control:?}; remove it"
            ));
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl TryFrom<String> for LockName {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        Self::new(name)
    }
}

impl From<LockName> for String {
    fn from(name: LockName) -> Self {
        name.as_str().to_owned()
    }
}

/// Anything that can name a lock: text, or a [`LockName`] that was checked before.
pub trait IntoLockName {
    /// Checks the name.
    ///
    /// # Errors
    ///
    /// As [`LockName::new`].
    fn into_lock_name(self) -> Result<LockName, Error>;
}

impl<T: AsRef<str>> IntoLockName for T {
    fn into_lock_name(self) -> Result<LockName, Error> {
        LockName::new(self)
    }
}

impl IntoLockName for LockName {
    fn into_lock_name(self) -> Result<LockName, Error> {
        Ok(self)
    }
}

impl IntoLockName for &LockName {
    fn into_lock_name(self) -> Result<LockName, Error> {
        Ok(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::LockName;

    #[test]
    fn odd_but_legal_names_are_kept_as_they_are() {
        for name in ["a", "job/1", "Ünïcode ✓", "..", "~", &"x".repeat(255)] {
            assert_eq!(LockName::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn a_refused_name_says_why() {
        let cases = [
            (String::new(), "empty"),
            ("x".repeat(256), "256 bytes"),
            ("x".repeat(10_240), "10240 bytes"),
            ("a\nb".into(), "'\\n'"),
            ("a\0b".into(), "'\\0'"),
        ];
        for (name, why) in cases {
            let error = LockName::new(&name).unwrap_err();
            assert!(error.is_bad_input(), "{error}");
            assert!(error.to_string().contains(why), "{error} does not say {why}");
        }
    }
}
