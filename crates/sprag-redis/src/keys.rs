//! [`Keys`]: the names of all keys, from the prefix and the lock's name.

use sprag_core::{Error, LockName, Operation, Result, SessionId};

use crate::error::STORE;

/// How letters are written in a Cluster. The one that begins the codes goes first.
const CODES: [(&str, &str); 3] = [("%", "%25"), ("{", "%7B"), ("}", "%7D")];

/// The names of keys under one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
    /// Whether all keys of a call have to be in one slot.
    in_cluster: bool,
}

impl Keys {
    pub(crate) const fn new(prefix: String, in_cluster: bool) -> Self {
        Self { prefix, in_cluster }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The plain key of a lock. In a Cluster braces decide about the slot, so there are none in it.
    pub(crate) fn plain(&self, name: &LockName) -> String {
        let mut plain = format!("{}{name}", self.prefix);
        if self.in_cluster {
            for (letter, code) in CODES {
                plain = plain.replace(letter, code);
            }
        }
        plain
    }

    /// The keys of `scripts/head.lua`, in its order. In a Cluster all of them are in the slot of the
    /// plain key.
    pub(crate) fn of(&self, name: &LockName) -> Result<Vec<String>> {
        let plain = self.plain(name);
        if plain.starts_with('{') {
            // It could be the companion of another lock.
            let message = "without a prefix, a name must not begin with a brace: set a prefix";
            return Err(Error::bad_input(Operation::Acquire, message).on(name).at(STORE));
        }
        let mut keys = Vec::with_capacity(7);
        keys.extend(["r", "w", "q", "x"].map(|end| format!("{{{plain}}}:{end}")));
        if self.in_cluster {
            keys.push(format!("{{{plain}}}:t"));
        } else {
            keys.extend([self.trail(), self.names()]);
        }
        keys.insert(0, plain);
        Ok(keys)
    }

    /// A pattern for the records of all locks whose names begin with `begin`.
    pub(crate) fn records(&self, begin: &str) -> String {
        let mut pattern = "{".to_owned();
        let begin = LockName::new(begin).map_or(self.prefix.clone(), |name| self.plain(&name));
        for letter in begin.chars() {
            if "*?[]^-\\".contains(letter) {
                pattern.push('\\');
            }
            pattern.push(letter);
        }
        pattern + "*}:r"
    }

    /// The name of the lock whose record has this key.
    pub(crate) fn name_of(&self, record: &str) -> Option<LockName> {
        let mut plain = record.strip_prefix('{')?.strip_suffix("}:r")?.to_owned();
        if self.in_cluster {
            for (letter, code) in CODES.iter().rev() {
                plain = plain.replace(code, letter);
            }
        }
        LockName::new(plain.strip_prefix(&self.prefix)?).ok()
    }

    /// The trail of one lock, if it has one of its own.
    pub(crate) fn trail_of(&self, name: &LockName) -> Option<String> {
        self.in_cluster.then(|| format!("{{{}}}:t", self.plain(name)))
    }

    /// The names of the locks that are in use, sorted.
    pub(crate) fn names(&self) -> String {
        format!("{{{}}}:names", self.prefix)
    }

    /// The trail of all locks; in a Cluster only of what clients note.
    pub(crate) fn trail(&self) -> String {
        format!("{{{}}}:trail", self.prefix)
    }

    /// The longest TTL that anybody uses.
    pub(crate) fn longest(&self) -> String {
        format!("{{{}}}:longest", self.prefix)
    }

    /// What an operator sets to end all quarantines.
    pub(crate) fn open(&self) -> String {
        format!("{{{}}}:open", self.prefix)
    }

    /// Where a process is woken.
    pub(crate) fn channel(&self, session: SessionId) -> String {
        format!("{{{}}}:wake:{session}", self.prefix)
    }

    /// Where all processes hear which leases were taken away. With the same beginning as the others, so
    /// that it needs no rights of its own.
    pub(crate) fn evictions(&self) -> String {
        format!("{{{}}}:wake:evicted", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::slot::slot_of;

    #[test]
    fn companions_share_the_slot_of_the_plain_key() {
        let keys = Keys::new("sprag:".into(), true);
        let of_job = keys.of(&LockName::new("job").unwrap()).unwrap();
        assert_eq!(of_job[..3], ["sprag:job", "{sprag:job}:r", "{sprag:job}:w"]);
        for name in ["job", "a{b}c", "x}y", "{z", "%7B{%"].map(|name| LockName::new(name).unwrap())
        {
            let slots =
                keys.of(&name).unwrap().iter().map(|key| slot_of(key)).collect::<HashSet<_>>();
            assert_eq!(slots.len(), 1, "{name}");
            assert_eq!(keys.name_of(&keys.of(&name).unwrap()[1]), Some(name));
        }
    }

    #[test]
    fn no_lock_has_the_key_of_anothers_companion() {
        let bare = Keys::new(String::new(), false);
        assert!(bare.of(&LockName::new("{job}:r").unwrap()).unwrap_err().is_bad_input());
        assert!(bare.of(&LockName::new("job").unwrap()).is_ok());
    }
}
