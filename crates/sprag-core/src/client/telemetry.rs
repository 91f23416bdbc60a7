//! [`Telemetry`]: the client's metrics. No lock name and no holder is ever a label.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use crate::error::{Error, Operation};
use crate::loss::Loss;
use crate::mode::Mode;

#[derive(Debug)]
pub(crate) struct Telemetry {
    pub(crate) store: &'static str,
}

const fn kind(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "mutex",
        Mode::Shared | Mode::Upgradable => "rwlock",
        Mode::Permits { .. } => "semaphore",
    }
}

impl Telemetry {
    pub(crate) fn acquired(&self, mode: Mode, waited: Duration, outcome: &'static str) {
        histogram!(
            "sprag_acquire_duration_seconds",
            "store" => self.store, "kind" => kind(mode), "mode" => mode.as_str(), "outcome" => outcome
        )
        .record(waited);
        if outcome == "acquired" {
            self.held(mode, 1.0);
        }
    }

    pub(crate) fn contended(&self, mode: Mode) {
        counter!("sprag_contended_acquires_total", "store" => self.store, "kind" => kind(mode))
            .increment(1);
    }

    pub(crate) fn waiting(&self, mode: Mode, change: f64) {
        gauge!("sprag_waiters", "store" => self.store, "kind" => kind(mode)).increment(change);
    }

    pub(crate) fn ended(&self, mode: Mode, held: Duration, end: &'static str) {
        histogram!(
            "sprag_hold_duration_seconds",
            "store" => self.store, "kind" => kind(mode), "end" => end
        )
        .record(held);
        self.held(mode, -1.0);
    }

    fn held(&self, mode: Mode, change: f64) {
        gauge!(
            "sprag_locks_held",
            "store" => self.store, "kind" => kind(mode), "mode" => mode.as_str()
        )
        .increment(change);
    }

    /// `margin` is what was left of the lease when the renewal was confirmed: it shrinks before
    /// locks are lost.
    pub(crate) fn renewed(&self, margin: Duration) {
        counter!("sprag_renewals_total", "store" => self.store, "outcome" => "renewed")
            .increment(1);
        histogram!("sprag_renewal_margin_seconds", "store" => self.store).record(margin);
    }

    pub(crate) fn renewal_refused(&self, loss: &Loss) {
        counter!("sprag_renewals_total", "store" => self.store, "outcome" => "refused")
            .increment(1);
        self.lost(loss);
    }

    pub(crate) fn lost(&self, loss: &Loss) {
        counter!("sprag_lost_total", "store" => self.store, "reason" => loss.as_str()).increment(1);
    }

    pub(crate) fn took_over(&self, reason: &'static str) {
        counter!("sprag_takeovers_total", "store" => self.store, "reason" => reason).increment(1);
    }

    pub(crate) fn broke(&self) {
        counter!("sprag_breaks_total", "store" => self.store, "forced" => "true").increment(1);
    }

    pub(crate) fn deadlock(&self) {
        counter!("sprag_deadlocks_total", "store" => self.store).increment(1);
    }

    pub(crate) fn retried(&self, reason: &'static str) {
        counter!("sprag_store_retries_total", "store" => self.store, "reason" => reason)
            .increment(1);
    }

    pub(crate) fn request(&self, operation: Operation, error: Option<&Error>, took: Duration) {
        let outcome = match error {
            None => "answered",
            Some(error) if error.is_indeterminate() => "unknown",
            Some(_) => "error",
        };
        histogram!(
            "sprag_store_request_duration_seconds",
            "store" => self.store, "op" => operation.as_str(), "outcome" => outcome
        )
        .record(took);
    }
}
