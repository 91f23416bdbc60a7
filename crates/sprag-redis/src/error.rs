//! From what goes wrong with Redis to [`Error`], with the address and what to do.

use std::io;

use sprag_core::{Error, ErrorKind, Operation};

use crate::resp::Refused;

/// The name of this store in errors and metrics.
pub(crate) const STORE: &str = "redis";

/// An error that says what is wrong and what to do. The store's methods put in the operation.
pub(crate) fn error(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, Operation::Open, message).at(STORE)
}

/// What went wrong, for all who are concerned.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    kind: ErrorKind,
    message: String,
}

impl Trouble {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Whether it may be better in a moment, without anybody's help.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Busy)
    }

    /// No answer came in time; what was asked may be done or not.
    pub(crate) fn no_answer(address: &str, what: &str) -> Self {
        let message = format!("{address} {what}: check that the server is running and reachable");
        Self::new(ErrorKind::Unavailable, message)
    }

    /// The connection failed.
    pub(crate) fn io(address: &str, e: &io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::UnexpectedEof => Self::no_answer(address, "closed the connection"),
            io::ErrorKind::ConnectionReset => {
                Self::no_answer(address, "reset the connection (does it want rediss://, TLS?)")
            }
            io::ErrorKind::TimedOut => match e.get_ref() {
                Some(why) => Self::no_answer(address, &format!("did not answer in time ({why})")),
                None => Self::no_answer(address, "did not answer in time"),
            },
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => Self::new(
                ErrorKind::Refused,
                format!(
                    "{address} is not understood ({e}): check the port, and whether it wants \
                     rediss:// (TLS) or redis://"
                ),
            ),
            _ => Self::no_answer(address, &format!("cannot be reached ({e})")),
        }
    }

    /// The server said no.
    pub(crate) fn refused(address: &str, refused: &Refused) -> Self {
        let said = &refused.said;
        let (kind, message) = match refused.code.as_str() {
            // Of our own scripts.
            "SPRAGCORRUPT" => (ErrorKind::Corrupt, said.clone()),
            "NOAUTH" => (
                ErrorKind::Refused,
                format!(
                    "{address} answers, and wants a password, and there is none: set \
                     REDISCLI_AUTH, name a file with ?password_file=, or put it into the URL"
                ),
            ),
            "WRONGPASS" => (ErrorKind::Refused, wrong_password(address)),
            // Of servers before version 6.
            "ERR" if said.starts_with("invalid password") => {
                (ErrorKind::Refused, wrong_password(address))
            }
            "NOPERM" => (
                ErrorKind::Refused,
                format!("{address} does not permit that to this user ({said}): extend its ACL"),
            ),
            "READONLY" => (
                ErrorKind::Refused,
                format!("{address} is a replica, which takes no locks: use its master"),
            ),
            "LOADING" => (
                ErrorKind::Busy,
                format!("{address} is still loading its data: try again in a moment"),
            ),
            "BUSY" => (
                ErrorKind::Busy,
                format!("{address} is busy with somebody's script: wait, or type SCRIPT KILL"),
            ),
            "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" => (
                ErrorKind::Busy,
                format!("{address} is moving or has lost some of its data ({said}): try again"),
            ),
            "OOM" => (
                ErrorKind::StoreFull,
                format!("{address} has used all of its maxmemory: raise it, or make room"),
            ),
            "MISCONF" => (
                ErrorKind::StoreFull,
                format!("{address} cannot write to its disk and takes no locks: see its log"),
            ),
            "WRONGTYPE" => (
                ErrorKind::Corrupt,
                "a key of the lock holds another type of value: use another prefix, or delete it"
                    .into(),
            ),
            "MOVED" | "ASK" | "CROSSSLOT" => (
                ErrorKind::Refused,
                format!("{address} is a node of a Redis Cluster: write redis+cluster://"),
            ),
            "ERR" if said.starts_with("AUTH ") => (
                ErrorKind::Refused,
                format!(
                    "{address} wants no password of this user: unset REDISCLI_AUTH, or take it \
                     out of the URL"
                ),
            ),
            "ERR" if said.contains("DB index") => (
                ErrorKind::Refused,
                format!("{address} has no database of that number: correct the URL"),
            ),
            "ERR" => (ErrorKind::Corrupt, format!("{address} could not do it: {said}")),
            code => (ErrorKind::Unavailable, format!("{address} answered: {code} {said}")),
        };
        Self::new(kind, message)
    }
}

fn wrong_password(address: &str) -> String {
    format!(
        "{address} answers, and refused the user or password: correct them, in the URL, in its \
         password_file or in REDISCLI_AUTH"
    )
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        error(trouble.kind, trouble.message)
    }
}

/// An answer that no script of ours gives.
pub(crate) fn strange_answer(source: impl std::fmt::Display) -> Error {
    error(ErrorKind::Corrupt, format!("the server's answer is not understood: {source}"))
}

#[cfg(test)]
mod tests {
    use super::{ErrorKind, Refused, Trouble};

    #[test]
    fn what_is_wrong_in_the_url_is_not_taken_for_damage() {
        for said in [
            "AUTH <password> called without any password configured for the default user.",
            "DB index is out of range",
        ] {
            let refused = Refused { code: "ERR".into(), said: said.into() };
            let trouble = Trouble::refused("db:6379", &refused);
            assert_eq!(trouble.kind, ErrorKind::Refused, "{said}");
            assert!(trouble.message.ends_with("the URL"), "{}", trouble.message);
        }
    }
}
