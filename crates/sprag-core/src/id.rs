//! The 128-bit random ids: [`LeaseId`], [`SessionId`] and [`PartyId`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::entropy::Entropy;
use crate::error::{Error, Operation};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
                digits::read(text).map(Self).ok_or_else(|| {
                    let what = concat!("a ", $what, " has 32 hexadecimal digits; this text does not");
                    Error::bad_input(Operation::Parse, what)
                })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                digits::write(self.0, |text| to.serialize_str(text))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_str(digits::Visitor).map(Self)
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

impl LeaseId {
    /// Its digits, without a text on the heap.
    pub(crate) fn with_digits<T>(self, with: impl FnOnce(&str) -> T) -> T {
        digits::write(self.0, with)
    }
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

/// Ids as 32 hexadecimal digits, without a text on the heap: a long queue has hundreds of them.
mod digits {
    use std::fmt;

    const DIGITS: &[u8; 16] = b"0123456789abcdef";

    pub(super) fn write<T>(number: u128, with: impl FnOnce(&str) -> T) -> T {
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(number.to_be_bytes()) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        with(std::str::from_utf8(&text).unwrap_or_default())
    }

    pub(super) fn read(text: &str) -> Option<u128> {
        if text.len() != 32 {
            return None;
        }
        text.bytes().try_fold(0, |number: u128, digit| {
            let digit = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                b'A'..=b'F' => digit - b'A' + 10,
                _ => return None,
            };
            Some(number << 4 | u128::from(digit))
        })
    }

    pub(super) struct Visitor;

    impl serde::de::Visitor<'_> for Visitor {
        type Value = u128;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("32 hexadecimal digits")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u128, E> {
            // Not repeated in the error: it may be most of a secret.
            read(text).ok_or_else(|| E::invalid_length(text.len(), &self))
        }
    }
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
