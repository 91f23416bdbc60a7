//! The short way of most requests: an exclusive lock that nobody waits for.

use sprag_core::record::wire::Answer;
use sprag_core::store::{Attempt, Grant, Request};
use sprag_core::{Fence, Mode, Result};
use tokio_postgres::types::Type;

use crate::error::strange_answer;
use crate::link::Call;

/// The answer to a request that may go the short way.
#[derive(Debug)]
pub(crate) enum Plain {
    /// It did.
    Short { now_us: u64, fence: Fence, session: String },
    /// It did not.
    Long(Box<Answer>),
}

impl Plain {
    /// The time, the fence, and of an advisory lock the session; or the answer of the long way.
    pub(crate) fn read(text: &str) -> Result<Self> {
        if text.starts_with('{') {
            return Answer::read(text).map(|it| Self::Long(Box::new(it))).map_err(strange_answer);
        }
        let mut words = text.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (now_us, fence) = (number(), number().and_then(Fence::new));
        let session = words.next().unwrap_or_default().to_owned();
        match (now_us, fence) {
            (Some(now_us), Some(fence)) => Ok(Self::Short { now_us, fence, session }),
            _ => Err(strange_answer(text)),
        }
    }

    pub(crate) fn now_us(&self) -> u64 {
        match self {
            Self::Short { now_us, .. } => *now_us,
            Self::Long(answer) => answer.now_us,
        }
    }
}

/// Whether a request may go the short way.
pub(crate) fn may_be(request: &Request) -> bool {
    request.mode == Mode::Exclusive
}

/// What the short way reads of a request.
pub(crate) fn wish(call: Call, request: &Request, not_after_ms: u64) -> Call {
    let ttl = i64::try_from(request.ttl.as_millis()).unwrap_or(i64::MAX);
    let not_after = i64::try_from(not_after_ms).unwrap_or(i64::MAX);
    call.text(request.lease.to_string()).with(ttl, Type::INT8).with(not_after, Type::INT8)
}

/// Who is let in the short way pushed nobody aside.
pub(crate) fn granted(fence: Fence) -> Attempt {
    Attempt::Granted(Grant { fence, mode: Mode::Exclusive, took_over: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_are_understood() {
        let short = Plain::read("1794810118522885 1794810118522886 0123").unwrap();
        assert_eq!(short.now_us(), 1_794_810_118_522_885);
        assert!(matches!(short, Plain::Short { fence, session, .. }
            if fence.get() == 1_794_810_118_522_886 && session == "0123"));
        let long = Plain::read(r#"{"now_us":7,"outcome":"done","told":[]}"#).unwrap();
        assert!(matches!(long, Plain::Long(answer) if answer.now_us == 7));
        for text in ["", "x", "1", "1 x", "{"] {
            assert!(Plain::read(text).is_err(), "{text}");
        }
    }
}
