//! The written form of a record: versioned JSON.
//!
//! # Compatibility rule
//!
//! * The form is `{"format": N, "record": {..}}`. Any change of shape or meaning, also one more
//!   field, is a new `N`.
//! * A reader understands every `N` up to its own [`CURRENT_FORMAT`], and writes the smallest that has
//!   all that is to be said: 1, or 2 for a record with an heir.
//! * A larger `N`, an unknown field, broken JSON or a record that cannot be (two exclusive
//!   holders) fails closed: the caller gets [`Corrupt`] and nothing is written. A library that
//!   guessed could give out a lock that a newer one holds.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Record, Wait};
use crate::error::{Error, ErrorKind, Operation};

/// The latest format that this library writes.
pub const CURRENT_FORMAT: u32 = 2;

#[derive(Serialize)]
struct Written<'a> {
    format: u32,
    record: &'a Record,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    // Checked before the rest, whose shape depends on it.
    format: u32,
    record: Record,
}

impl Read {
    /// Whether its format has what it says.
    fn is_of_its_format(&self) -> bool {
        self.format <= CURRENT_FORMAT && (self.format >= 2 || self.record.heir.is_none())
    }
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// A written record that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corrupt(String);

impl Corrupt {
    pub(crate) const fn new(what: String) -> Self {
        Self(what)
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Corrupt {}

impl From<Corrupt> for Error {
    fn from(corrupt: Corrupt) -> Self {
        Self::new(ErrorKind::Corrupt, Operation::Inspect, corrupt.0)
    }
}

impl Record {
    /// Writes the record as JSON.
    pub fn to_json(&self) -> String {
        let format = if self.heir.is_some() { 2 } else { 1 };
        let written = Written { format, record: self };
        // Only maps with non-string keys and failing writers make this fail; there are none.
        serde_json::to_string(&written).expect("a record is always writable as JSON")
    }

    /// Reads a record back.
    ///
    /// # Errors
    ///
    /// [`Corrupt`] if the text is damaged or was written by a newer library.
    pub fn from_json(text: &str) -> Result<Self, Corrupt> {
        let record = match serde_json::from_str::<Read>(text) {
            Ok(read) if read.is_of_its_format() => read.record,
            // Say "newer" rather than "damaged" where that is the reason.
            outcome => {
                let format = serde_json::from_str::<Format>(text).map_or(0, |read| read.format);
                return Err(Corrupt(if format > CURRENT_FORMAT {
                    format!(
                        "the record has format {format} and this version of sprag reads up to \
                         {CURRENT_FORMAT}: upgrade sprag here"
                    )
                } else {
                    let detail = outcome.err().map(|e| e.to_string()).unwrap_or_default();
                    format!("the record is damaged: {detail}")
                }));
            }
        };
        match record.check() {
            Ok(()) => Ok(record),
            Err(broken) => Err(Corrupt(format!("the record cannot be right: {broken}"))),
        }
    }
}

/// Stores that keep the queue in rows of its own write each waiter by itself. Its format is the
/// one of the record that it belongs to.
impl Wait {
    /// Writes the waiter as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a waiter is always writable as JSON")
    }

    /// Reads a waiter back.
    ///
    /// # Errors
    ///
    /// [`Corrupt`] if the text is damaged.
    pub fn from_json(text: &str) -> Result<Self, Corrupt> {
        serde_json::from_str(text).map_err(|e| Corrupt(format!("a waiter is damaged: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::{Record, Wait};
    use crate::record::tests::{acquire, busy_record};

    #[test]
    fn a_record_survives_its_written_form() {
        let record = busy_record();
        assert_eq!(Record::from_json(&record.to_json()).unwrap(), record);
    }

    #[test]
    fn the_written_form_is_frozen() {
        // Changing this text breaks every store in use: make a new format instead.
        let record = acquire(Record::default(), 1, 0).record;
        assert_eq!(
            record.to_json(),
            r#"{"format":1,"record":{"version":1,"fence":1,"tickets":1,"holders":[{"lease":"00000000000000000000000000000001","session":"00000000000000000000000000000001","party":"00000000000000000000000000000001","mode":"exclusive","fence":1,"ttl_ms":1000,"renewed_ms":0,"holder":{"worker_id":"w1","node_id":"n"}}],"waiters":[],"gone":[]}}"#
        );
    }

    #[test]
    fn a_waiter_survives_its_written_form_and_no_other_is_read() {
        let record = busy_record();
        let wait = record.waiters.first().expect("a busy record has waiters");
        let text = wait.to_json();
        assert_eq!(Wait::from_json(&text).as_ref(), Ok(wait));
        for bad in ["", "{}", &text.replacen("\"ticket\"", "\"more\":1,\"ticket\"", 1)] {
            assert!(Wait::from_json(bad).is_err(), "accepted {bad}");
        }
    }

    #[test]
    fn a_newer_format_is_refused_with_the_fix() {
        let text = Record::default().to_json().replace("\"format\":1", "\"format\":3");
        let error = Record::from_json(&text).unwrap_err().to_string();
        assert!(error.contains("format 3") && error.contains("upgrade"), "{error}");
    }

    #[test]
    fn every_truncation_fails_closed() {
        let text = busy_record().to_json();
        for end in 0..text.len() {
            if text.is_char_boundary(end) {
                assert!(Record::from_json(&text[..end]).is_err(), "cut at {end} was accepted");
            }
        }
    }

    #[test]
    fn unknown_fields_and_impossible_records_fail_closed() {
        let good = busy_record().to_json();
        for bad in [
            good.replacen("\"tickets\"", "\"more\":1,\"tickets\"", 1),
            good.replacen("\"shared\"", "\"exclusive\"", 1),
            good.replacen("\"fence\":1", "\"fence\":0", 1),
            "null".into(),
            "{}".into(),
        ] {
            assert_ne!(bad, good);
            assert!(Record::from_json(&bad).is_err(), "accepted {bad}");
        }
    }
}
