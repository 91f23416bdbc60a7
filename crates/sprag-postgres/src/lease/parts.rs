//! [`Parts`]: a batch of renewals, part by part.

use std::time::Duration;

use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_core::record::wire::Answer;
use sprag_core::store::{Renewal, Renewed, renewal_limit};
use sprag_core::{ErrorKind, Result};

use crate::error::{error, strange_answer};

/// The longest that one statement may work on its part.
const LONGEST: Duration = Duration::from_millis(500);

/// Leases that are to be renewed, and what is known about the first of them.
///
/// A statement answers for as many as it has time for. If one of them makes it fail, each is renewed
/// for itself from there on. What is left when the caller's time is nearly over stays unknown, and is
/// asked for again.
pub(crate) struct Parts<'a> {
    leases: &'a [Renewal],
    answers: Vec<Result<Renewed>>,
    each: bool,
    /// An answer did not come: no more are asked for.
    over: bool,
    began: Moment,
    limit: Duration,
}

/// How the next statement is to renew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct How {
    /// Each for itself, as one of them failed.
    pub(crate) each: bool,
    /// How long it may work, in microseconds.
    pub(crate) patience_us: i64,
}

impl<'a> Parts<'a> {
    pub(crate) fn new(leases: &'a [Renewal]) -> Self {
        let (answers, limit) = (Vec::with_capacity(leases.len()), renewal_limit(leases));
        Self { leases, answers, each: false, over: false, began: BootClock.now(), limit }
    }

    /// Who is to be renewed next, and how; nobody if all are or if there is no time.
    pub(crate) fn next(&self) -> Option<(&'a [Renewal], How)> {
        let rest = &self.leases[self.answers.len()..];
        let late = BootClock.now().since(self.began) > self.limit / 2;
        if rest.is_empty() || self.over || (late && !self.answers.is_empty()) {
            return None;
        }
        let patience = (self.limit / 4).min(LONGEST);
        let patience_us = i64::try_from(patience.as_micros()).unwrap_or(i64::MAX);
        Some((rest, How { each: self.each, patience_us }))
    }

    /// Takes in what was answered.
    ///
    /// # Errors
    ///
    /// If nothing is known about anybody.
    pub(crate) fn take(&mut self, answered: Result<Vec<Result<Renewed>>>) -> Result<()> {
        let left = self.leases.len() - self.answers.len();
        match answered {
            Ok(part) if part.is_empty() || part.len() > left => {
                return Err(strange_answer(format!("{} rows for {left}", part.len())));
            }
            Ok(part) => self.answers.extend(part),
            Err(error) if !self.each && left > 1 && (error.is_corrupt() || error.is_busy()) => {
                self.each = true;
            }
            Err(error) if self.answers.is_empty() => return Err(error),
            Err(error) => {
                tracing::warn!(target: "sprag::renew", %error, left, "not all were renewed");
                self.over = true;
            }
        }
        Ok(())
    }

    /// The answers for all.
    ///
    /// # Errors
    ///
    /// If nothing is known about anybody.
    pub(crate) fn finish(self) -> Result<Vec<Renewed>> {
        let mut answers = Renewed::of_each(self.answers)?;
        answers.resize(self.leases.len(), Renewed::Unknown);
        Ok(answers)
    }
}

/// What a statement says about one lease.
pub(crate) fn read(text: &str, lease: &Renewal) -> Result<Renewed> {
    #[derive(serde::Deserialize)]
    struct Failure {
        failed: String,
    }
    if let Ok(Failure { failed }) = serde_json::from_str(text) {
        let message = format!("its record cannot be renewed ({failed}): look at its row");
        return Err(error(ErrorKind::Corrupt, message).on(&lease.name));
    }
    let answer = Answer::read(text).map_err(|e| strange_answer(e).on(&lease.name))?;
    Ok(answer.outcome.into_renewed(&answer.record, lease))
}
