//! [`Keys`]: the names of all keys, from the prefix and the lock's name.

use sprag_core::{Error, LockName, Operation, Result, SessionId};

use crate::error::STORE;

/// The names of keys under one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) const fn new(prefix: String) -> Self {
        Self { prefix }
    }

    /// The plain key of a lock.
    pub(crate) fn plain(&self, name: &LockName) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The keys of `scripts/head.lua`, in its order. Those of one lock share its hash slot.
    pub(crate) fn of(&self, name: &LockName) -> Result<Vec<String>> {
        let plain = self.plain(name);
        if plain.starts_with('{') {
            // It could be the companion of another lock.
            let message = "without a prefix, a name must not begin with a brace: set a prefix";
            return Err(Error::bad_input(Operation::Acquire, message).on(name).at(STORE));
        }
        let mut keys = Vec::with_capacity(7);
        keys.extend(["r", "w", "q", "x"].map(|end| format!("{{{plain}}}:{end}")));
        keys.insert(0, plain);
        keys.extend([self.trail(), self.names()]);
        Ok(keys)
    }

    /// The names of the locks that are in use, sorted.
    pub(crate) fn names(&self) -> String {
        format!("{{{}}}:names", self.prefix)
    }

    pub(crate) fn trail(&self) -> String {
        format!("{{{}}}:trail", self.prefix)
    }

    /// Where a process is woken.
    pub(crate) fn channel(&self, session: SessionId) -> String {
        format!("{{{}}}:wake:{session}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn companions_share_the_slot_of_the_plain_key() {
        let keys = Keys::new("sprag:".into()).of(&LockName::new("job").unwrap()).unwrap();
        assert_eq!(keys[..3], ["sprag:job", "{sprag:job}:r", "{sprag:job}:w"]);
    }

    #[test]
    fn no_lock_has_the_key_of_anothers_companion() {
        let bare = Keys::new(String::new());
        assert!(bare.of(&LockName::new("{job}:r").unwrap()).unwrap_err().is_bad_input());
        assert!(bare.of(&LockName::new("job").unwrap()).is_ok());
    }
}
