//! The 128-bit random ids: [`LeaseId`], [`SessionId`] and [`PartyId`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::entropy::Entropy;
use crate::error::{Error, Operation};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(u128);

        impl $name {
            /// Draws a new id; no two draws are equal in practice.
            pub fn random(entropy: &dyn Entropy) -> Self {
                Self(entropy.next_u128())
            }

            /// Makes an id from a number, for stores and tests that bring their own.
            pub const fn from_u128(number: u128) -> Self {
                Self(number)
            }

            /// The id as a number.
            pub const fn as_u128(self) -> u128 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        // Only the first digits: enough to tell two apart in a log, not enough to act with.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:08x}..)", stringify!($name), self.0 >> 96)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                let digits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
                let number = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
                number.map(Self).ok_or_else(|| {
                    let what = concat!("a ", $what, " has 32 hexadecimal digits; this text does not");
                    Error::bad_input(Operation::Parse, what)
                })
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<Self, Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

id! {
    /// One acquire call, from its first request to its release. Whoever knows it may release.
    ///
    /// It is drawn once per acquire call and kept over retries, so that a request whose reply
    /// was lost is recognised when it is repeated.
    LeaseId, "lease id"
}

id! {
    /// One process's presence in a store. When the store knows the process to be gone, all
    /// that the session held or waited for is free.
    SessionId, "session id"
}

id! {
    /// Who waits for whom: one line of execution, by default one task.
    ///
    /// Deadlocks are cycles between parties, not between processes: two tasks of one process
    /// may well wait for each other's locks without any harm.
    PartyId, "party id"
}

#[cfg(test)]
mod tests {
    use super::LeaseId;

    #[test]
    fn an_id_survives_its_text_form_and_its_debug_form_hides_most_of_it() {
        let id = LeaseId::from_u128(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        assert_eq!(id.to_string().parse::<LeaseId>().unwrap(), id);
        assert_eq!(format!("{id:?}"), "LeaseId(01234567..)");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "12", "+1234567890123456789012345678901", &"g".repeat(32)] {
            assert!(text.parse::<LeaseId>().unwrap_err().is_bad_input());
        }
    }
}
