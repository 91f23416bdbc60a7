//! [`ItemName`]: the name of an item's folder, which is also part of a branch's name.

use std::fmt;

use serde::{Deserialize, Serialize};
use sprag_core::LockName;
use sprag_ledger::RefName;

use crate::error::{Error, Result};

/// The name of an item: of its folder, and behind the state in the name of its branch.
///
/// # Examples
///
/// ```
/// use sprag_work::ItemName;
///
/// let name = ItemName::new("lostmypassword")?;
/// assert_eq!(name.stamped(0xa1b2_c3d4).as_str(), "lostmypassword-a1b2c3d4");
/// assert!(ItemName::new("lost my password").is_err());
/// # Ok::<(), sprag_work::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ItemName(String);

impl ItemName {
    /// The longest name in bytes, with which branches and paths stay within what systems take.
    pub const MAX_BYTES: usize = 160;

    /// Checks a name.
    ///
    /// # Errors
    ///
    /// Input if it cannot be part of a branch's name; with a name that can.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let branch = RefName::new(format!("refs/heads/state-{text}"));
        let fits = branch.is_some()
            && !text.is_empty()
            && !text.starts_with(['-', '.'])
            && !text.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control())
            && text.len() <= Self::MAX_BYTES;
        if fits {
            return Ok(Self(text));
        }
        let shown: String = text.chars().take(80).collect();
        let why = format!(
            "{shown:?} cannot be the name of an item: it becomes part of a branch's name, so it is \
             without spaces and / ~ ^ : ? * [ \\ and .., and at most {} bytes long",
            Self::MAX_BYTES
        );
        Err(Error::input(why).next("use another name", format!("sprag work new {}", fit(&text))))
    }

    /// The name with a stamp behind it, in 8 hexadecimal digits.
    #[must_use]
    pub fn stamped(&self, stamp: u32) -> Self {
        Self(format!("{}-{stamp:08x}", self.0))
    }

    /// The name without its stamp, and the stamp; `None` if it has none.
    pub fn split_stamp(&self) -> Option<(&str, &str)> {
        let (front, stamp) = self.0.rsplit_once('-')?;
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (stamp.len() == 8 && stamp.bytes().all(digit) && !front.is_empty())
            .then_some((front, stamp))
    }

    /// The lock that whoever works on the item holds. It is on the item, whatever its state.
    pub fn lock(&self) -> LockName {
        LockName::new(format!("{LOCKS}{}", self.0))
            .expect("a short name without control characters")
    }

    /// Which item a lock is for; `None` if it is for something else.
    pub fn of_lock(lock: &LockName) -> Option<Self> {
        Self::new(lock.as_str().strip_prefix(LOCKS)?).ok()
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What the names of all items' locks begin with.
pub(crate) const LOCKS: &str = "work/";

/// A name that can be used, as near as possible.
fn fit(text: &str) -> String {
    let fits = |c: char| c.is_alphanumeric() || "_+=@%,".contains(c);
    let words: Vec<_> = text.split(|c: char| !fits(c)).filter(|word| !word.is_empty()).collect();
    let name: String = words.join("-").chars().take(40).collect();
    if name.is_empty() || name == "@" { "item".to_owned() } else { name }
}

impl fmt::Display for ItemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ItemName {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::new(text)
    }
}

impl From<ItemName> for String {
    fn from(name: ItemName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_branch_cannot_carry_is_refused_with_a_name_that_can_be_used() {
        let long = "x".repeat(161);
        for bad in ["", "a b", "a/b", "a..b", "-a", ".a", "a~1", "a:b", "x.lock", "tab\t", &long] {
            let error = ItemName::new(bad).unwrap_err();
            let name = error.nexts()[0].command.rsplit(' ').next().unwrap().to_owned();
            assert!(ItemName::new(name.as_str()).is_ok(), "{bad:?} -> {name:?}");
        }
        for good in ["userauth-b5c6d7e8", "größe", "ログイン", "a.b", "x_1"] {
            assert!(ItemName::new(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn a_stamp_can_be_told_from_a_name() {
        let stamp = |text: &str| ItemName::new(text).unwrap().split_stamp().map(|s| s.1.to_owned());
        assert_eq!(stamp("userauth-b5c6d7e8").as_deref(), Some("b5c6d7e8"));
        for none in ["userauth", "userauth-b5c6d7e", "userauth-B5C6D7E8", "b5c6d7e8"] {
            assert_eq!(stamp(none), None, "{none}");
        }
        let name = ItemName::new("x").unwrap();
        assert_eq!(stamp(name.stamped(7).as_str()).as_deref(), Some("00000007"));
    }

    #[test]
    fn the_lock_of_an_item_names_it() {
        let name = ItemName::new("größe-00000001").unwrap();
        assert_eq!(ItemName::of_lock(&name.lock()), Some(name));
        assert_eq!(ItemName::of_lock(&LockName::new("deploy").unwrap()), None);
    }
}
