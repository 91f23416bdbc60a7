//! [`Error`]: one opaque error for everything, told apart by `is_*` predicates.

use std::error::Error as StdError;
use std::fmt;

use crate::loss::Loss;
use crate::name::LockName;
use crate::policy::deadlock::Deadlock;

/// A result of sprag.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, for which operation, on which lock and store, and what to do about it.
///
/// Held, timed out, store unavailable and lost are different kinds: code that retries the one
/// must not swallow the other.
///
/// # Examples
///
/// ```
/// use sprag_core::{Error, Operation};
///
/// let error = Error::bad_input(Operation::Acquire, "ttl is 0");
/// assert!(error.is_bad_input() && !error.is_retryable());
/// assert_eq!(error.to_string(), "cannot acquire: ttl is 0");
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    operation: Operation,
    store: Option<&'static str>,
    lock: Option<LockName>,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What kind of thing went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody else holds the lock and the caller did not want to wait.
    Held,
    /// The caller's waiting time is used up; somebody else still holds the lock.
    Timeout,
    /// The store cannot be reached or does not answer in time.
    Unavailable,
    /// The store answers that it is too busy to decide now.
    Busy,
    /// The store allows no more requests for now; the message says until when.
    RateLimited,
    /// The store has no room for another record.
    StoreFull,
    /// Too many waiters for this lock.
    QueueFull,
    /// The lock was held and is not any more.
    Lost(Loss),
    /// The lease named is not, or no longer, the holder's.
    NotOwner,
    /// This store cannot do that; see its capability.
    Unsupported,
    /// Waiting on would never end: the parties wait for each other.
    Deadlock,
    /// The caller's own task already holds this lock.
    AlreadyHeldHere,
    /// A value given by the caller cannot be used.
    BadInput,
    /// What is stored cannot be understood, or was written by a newer version.
    Corrupt,
    /// The place where locks live may not be used: permissions, file system, configuration.
    Refused,
    /// The client was shut down.
    ShutDown,
}

/// Which operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Opening a store.
    Open,
    /// Reading a value from text.
    Parse,
    /// Acquiring or waiting for a lock.
    Acquire,
    /// Renewing or extending a lease.
    Renew,
    /// Upgrading or downgrading.
    Convert,
    /// Releasing a lock or leaving its queue.
    Release,
    /// Looking at one lock.
    Inspect,
    /// Listing locks.
    List,
    /// Breaking a lock.
    Evict,
    /// Using a guard.
    Hold,
    /// Reading or writing the audit trail.
    Audit,
}

impl Operation {
    /// The operation as a word, used in messages and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Parse => "read",
            Self::Acquire => "acquire",
            Self::Renew => "renew",
            Self::Convert => "convert",
            Self::Release => "release",
            Self::Inspect => "inspect",
            Self::List => "list",
            Self::Evict => "break",
            Self::Hold => "use",
            Self::Audit => "audit",
        }
    }
}

impl Error {
    /// Makes an error; context is added with [`Error::on`], [`Error::at`] and [`Error::caused_by`].
    pub fn new(kind: ErrorKind, operation: Operation, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            operation,
            store: None,
            lock: None,
            message: message.into(),
            source: None,
        }))
    }

    /// A value given by the caller cannot be used; the message names the value and the fix.
    pub fn bad_input(operation: Operation, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::BadInput, operation, message)
    }

    /// The lock was held and is not any more.
    pub fn lost(loss: Loss) -> Self {
        let message = loss.to_string();
        Self::new(ErrorKind::Lost(loss), Operation::Hold, message)
    }

    /// The store could not say whether it renewed the lease.
    pub(crate) fn unknown_renewal(lock: &LockName) -> Self {
        let message = "the store could not tell whether it did: try again, or see its log";
        Self::new(ErrorKind::Unavailable, Operation::Renew, message).on(lock)
    }

    /// Names the lock.
    #[must_use]
    pub fn on(mut self, lock: &LockName) -> Self {
        self.0.lock.get_or_insert_with(|| lock.clone());
        self
    }

    /// Names the store.
    #[must_use]
    pub fn at(mut self, store: &'static str) -> Self {
        self.0.store.get_or_insert(store);
        self
    }

    /// Names the operation, where a deeper layer could not know it.
    #[must_use]
    pub fn during(mut self, operation: Operation) -> Self {
        self.0.operation = operation;
        self
    }

    /// Keeps the underlying error.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// What happened, without operation, lock and store.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Which operation failed.
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// The store it happened on, such as `"sqlite"`, where known.
    pub fn store(&self) -> Option<&'static str> {
        self.0.store
    }

    /// The lock it happened to, where there is one.
    pub fn lock(&self) -> Option<&LockName> {
        self.0.lock.as_ref()
    }

    /// Why a held lock was lost, if that is what happened.
    pub fn loss(&self) -> Option<&Loss> {
        match &self.0.kind {
            ErrorKind::Lost(loss) => Some(loss),
            _ => None,
        }
    }

    /// Who waits for whom, if that would never end.
    pub fn deadlock(&self) -> Option<&Deadlock> {
        self.0.source.as_ref()?.downcast_ref()
    }

    /// Whether the same call may succeed later without anything being changed.
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::{Deadlock, Held, QueueFull, StoreFull, Timeout};
        self.is_unavailable()
            || matches!(self.0.kind, Held | Timeout | StoreFull | QueueFull | Deadlock)
    }

    /// Whether the outcome is in doubt: the store may or may not have done what was asked.
    pub fn is_indeterminate(&self) -> bool {
        self.is_unavailable()
    }
}

macro_rules! predicates {
    ($($(#[$doc:meta])* $name:ident => $pattern:pat,)*) => {
        impl Error {
            $($(#[$doc])* pub fn $name(&self) -> bool { matches!(self.0.kind, $pattern) })*
        }
    };
}

predicates! {
    /// Whether somebody else holds the lock and the caller did not want to wait.
    is_held => ErrorKind::Held,
    /// Whether the caller's waiting time is used up.
    is_timeout => ErrorKind::Timeout,
    /// Whether the store could not be reached or did not answer in time.
    is_unavailable => ErrorKind::Unavailable | ErrorKind::Busy | ErrorKind::RateLimited,
    /// Whether the store is there but too busy to decide now.
    is_busy => ErrorKind::Busy,
    /// Whether the store allows no more requests for now.
    is_rate_limited => ErrorKind::RateLimited,
    /// Whether the store has no room left.
    is_store_full => ErrorKind::StoreFull,
    /// Whether too many wait for this lock already.
    is_queue_full => ErrorKind::QueueFull,
    /// Whether the lock was held and is not any more.
    is_lost => ErrorKind::Lost(_),
    /// Whether the lease named is not the holder's.
    is_not_owner => ErrorKind::NotOwner,
    /// Whether this store cannot do what was asked.
    is_unsupported => ErrorKind::Unsupported,
    /// Whether waiting on would never end.
    is_deadlock => ErrorKind::Deadlock | ErrorKind::AlreadyHeldHere,
    /// Whether the caller's own task already holds this lock.
    is_already_held_here => ErrorKind::AlreadyHeldHere,
    /// Whether a value given by the caller cannot be used.
    is_bad_input => ErrorKind::BadInput,
    /// Whether what is stored cannot be understood.
    is_corrupt => ErrorKind::Corrupt,
    /// Whether the place where locks live may not be used.
    is_refused => ErrorKind::Refused,
    /// Whether the client was shut down.
    is_shut_down => ErrorKind::ShutDown,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.0.operation.as_str())?;
        if let Some(lock) = &self.0.lock {
            write!(f, " {lock:?}")?;
        }
        if let Some(store) = self.0.store {
            write!(f, " on {store}")?;
        }
        write!(f, ": {}", self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} [{:?}]", self.0.kind)?;
        self.0.source.iter().try_for_each(|source| write!(f, ", caused by: {source}"))
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, ErrorKind, Operation};
    use crate::LockName;

    #[test]
    fn the_message_names_operation_lock_store_and_cause() {
        let error = Error::new(ErrorKind::Unavailable, Operation::Acquire, "no answer in 1 s")
            .on(&LockName::new("deploy").unwrap())
            .at("sqlite")
            .caused_by("disk on fire");
        assert_eq!(error.to_string(), r#"cannot acquire "deploy" on sqlite: no answer in 1 s"#);
        assert!(format!("{error:?}").ends_with("[Unavailable], caused by: disk on fire"));
        assert!(error.is_retryable() && error.is_unavailable() && !error.is_held());
    }

    #[test]
    fn an_error_is_as_small_as_a_pointer() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
