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

use super::{Gone, Hold, Record, Wait};
use crate::error::{Error, ErrorKind, Operation};
use crate::fence::Fence;
use crate::loss::Loss;

/// The latest format that this library writes.
pub const CURRENT_FORMAT: u32 = 2;

/// Writes JSON of some hundred bytes, without moving it as it grows.
pub(crate) fn json_of(value: &impl Serialize) -> serde_json::Result<String> {
    let mut text = Vec::with_capacity(1024);
    serde_json::to_writer(&mut text, value)?;
    String::from_utf8(text).map_err(serde::ser::Error::custom)
}

/// The fields of a record before those that are [written by hand](Record::to_json).
#[derive(Serialize)]
struct Front<'a> {
    version: u64,
    fence: Fence,
    tickets: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    holders: &'a [Hold],
    waiters: &'a [Wait],
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
        self.try_to_json().expect("a record is always writable as JSON")
    }

    /// The leases that are gone are most of a record, and writing them by hand is most of what a
    /// lock costs before it is stored. A test compares this with what serde writes.
    fn try_to_json(&self) -> serde_json::Result<String> {
        let Self { version, fence, tickets, limit, holders, waiters, gone, heir } = self;
        let (version, fence, tickets, limit) = (*version, *fence, *tickets, *limit);
        let mut text = Vec::with_capacity(1024);
        text.extend_from_slice(b"{\"format\":");
        text.push(if heir.is_some() { b'2' } else { b'1' });
        text.extend_from_slice(b",\"record\":");
        serde_json::to_writer(
            &mut text,
            &Front { version, fence, tickets, limit, holders, waiters },
        )?;
        text.pop();
        text.extend_from_slice(b",\"gone\":[");
        for (index, Gone { lease, loss }) in gone.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            text.extend_from_slice(b"{\"lease\":\"");
            lease.with_digits(|digits| text.extend_from_slice(digits.as_bytes()));
            text.extend_from_slice(b"\",\"loss\":");
            match loss {
                Loss::Released => text.extend_from_slice(b"\"released\""),
                loss => serde_json::to_writer(&mut text, loss)?,
            }
            text.push(b'}');
        }
        text.push(b']');
        if let Some(heir) = heir {
            text.extend_from_slice(b",\"heir\":");
            serde_json::to_writer(&mut text, heir)?;
        }
        text.extend_from_slice(b"}}");
        String::from_utf8(text).map_err(serde::ser::Error::custom)
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
        json_of(self).expect("a waiter is always writable as JSON")
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
    use super::{Gone, Record, Wait};
    use crate::id::LeaseId;
    use crate::loss::Loss;
    use crate::record::Heir;
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
    fn what_is_written_by_hand_is_what_serde_writes() {
        let mut record = busy_record();
        let stolen = Loss::Stolen { by: "a \"b\"".into(), forced: true };
        for loss in [Loss::Released, Loss::Expired, stolen] {
            record.gone.push(Gone { lease: LeaseId::from_u128(u128::MAX / 3), loss });
        }
        let heir = Heir { lease: record.waiters[0].lease, fence: record.fence };
        for (format, heir) in [(1, None), (2, Some(heir))] {
            record.heir = heir;
            let inner = serde_json::to_string(&record).unwrap();
            assert_eq!(record.to_json(), format!("{{\"format\":{format},\"record\":{inner}}}"));
        }
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
