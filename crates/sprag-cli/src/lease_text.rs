//! [`LeaseText`]: a lease as people and scripts carry it around, with the store that it is from.

use std::fmt;
use std::str::FromStr;

use sprag::audit::AuditQuery;
use sprag::{LeaseId, LockName};

use crate::code::Code;
use crate::config::Settings;
use crate::failure::Failure;
use crate::output::plain::shell_word;
use crate::run::environment::store_url;
use crate::store::Opened;

/// What stands between the lease and its store.
const JOINT: char = '@';
const MALFORMED: &str = "a lease has 32 hexadecimal digits, and @ with its store may follow; see \
                         SPRAG_LEASE";

/// `LEASE@STORE`, or `LEASE` alone as older versions wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseText {
    pub(crate) id: LeaseId,
    /// The [mark](sprag::store_mark) of the store.
    store: Option<String>,
}

impl LeaseText {
    /// A lease from the store that `url` names.
    pub(crate) fn new(id: LeaseId, url: &str) -> Self {
        Self { id, store: Some(sprag::store_mark(&store_url(url))) }
    }

    /// Refuses a store that does not know the lease if it is from another one. `done` is what does not
    /// happen then, and `command` what to type.
    ///
    /// Two spellings of one store have two marks. So what the store remembers counts more: it is asked
    /// first, and its log is looked at here.
    pub(crate) async fn check_store(
        &self,
        name: &LockName,
        (done, command): (&str, &str),
        opened: &Opened,
        settings: &Settings,
    ) -> Result<(), Failure> {
        let Some(theirs) = self.store.as_deref() else { return Ok(()) };
        if self.is_from(&settings.store.value) {
            return Ok(());
        }
        let query = AuditQuery { name: Some(name.clone()), ..AuditQuery::default() };
        let trail = opened.audit(&query).await.unwrap_or_default();
        if trail.iter().any(|entry| entry.lease == self.id) {
            return Ok(());
        }
        let known = settings.stores.iter().map(|(name, url)| (name.as_str(), url.value.as_str()));
        let mut known = known.chain([("sqlite:", "sqlite:"), ("system:", "system:")]);
        let known = known.find(|(_, url)| self.is_from(url));
        let (shown, store) = match known {
            Some((name, url)) if name == url => (url.to_owned(), name),
            Some((name, url)) => (format!("{name}, {}", sprag::redact(url)), name),
            None => (format!("{theirs}, which no configuration file here names"), "URL"),
        };
        let message = format!("not {done}: your lease of {name:?} is from another store");
        let word = shell_word(name.as_str());
        let store = shell_word(store);
        Err(Failure::new(Code::OtherStore, message)
            .fact("asked", format!("{} (from {})", opened.shown, settings.store.origin))
            .fact("is from", shown)
            .hint("ask that one", format!("sprag {command} -S {store} {word} --lease {self}"))
            .detail("lock", name.as_str())
            .detail("store", theirs)
            .detail("changed", false))
    }

    /// Whether the lease may be from the store that `url` names.
    fn is_from(&self, url: &str) -> bool {
        let mark = sprag::store_mark(&store_url(url));
        let Some(store) = self.store.as_deref() else { return true };
        // A kind alone is all that is known of some.
        let kind = |mark: &str| mark.split('-').next().unwrap_or_default().to_owned();
        let vague = !store.contains('-') || !mark.contains('-');
        store == mark || (vague && kind(store) == kind(&mark))
    }
}

impl fmt::Display for LeaseText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.store {
            Some(store) => write!(f, "{}{JOINT}{store}", self.id),
            None => self.id.fmt(f),
        }
    }
}

impl FromStr for LeaseText {
    type Err = &'static str;

    /// The text is not repeated in the error: it may be most of a secret.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (id, store) = match text.split_once(JOINT) {
            Some((id, store)) => (id, Some(store)),
            None => (text, None),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if store.is_some_and(|store| store.is_empty() || !store.chars().all(plain)) {
            return Err(MALFORMED);
        }
        let id = id.parse().map_err(|_| MALFORMED)?;
        Ok(Self { id, store: store.map(str::to_owned) })
    }
}

#[cfg(test)]
mod tests {
    use super::LeaseText;

    #[test]
    fn a_lease_names_its_store_and_old_ones_name_none() {
        let id = "0123456789abcdef0123456789abcdef";
        let lease: LeaseText = id.parse().unwrap();
        assert_eq!((lease.to_string().as_str(), lease.is_from("redis://db")), (id, true));
        let lease = LeaseText::new(lease.id, "redis://:secret@db/1");
        assert_eq!(lease.to_string().parse(), Ok(lease.clone()));
        assert!(lease.is_from("redis://db:6379/1") && !lease.is_from("redis://db/2"));
        assert!(!lease.is_from("sqlite:"));
        for bad in ["", "x", "0123", &format!("{id}@"), &format!("{id}@a b"), &format!("{id}@a;b")]
        {
            assert!(bad.parse::<LeaseText>().is_err(), "{bad}");
        }
    }
}
