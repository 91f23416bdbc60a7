//! [`Telemetry`]: the client's metrics. No lock name and no holder is ever a label.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use crate::error::{Error, Operation};
use crate::loss::Loss;
use crate::mode::Mode;

#[derive(Clone, Copy, Debug)]
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

    pub(crate) fn adopted(&self, mode: Mode) {
        self.held(mode, 1.0);
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

    pub(crate) fn renewal_refused(&self) {
        counter!("sprag_renewals_total", "store" => self.store, "outcome" => "refused")
            .increment(1);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use futures::executor::block_on;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    use crate::client::lease::Lease;
    use crate::client::tenure::Tenure;
    use crate::store::Renewed;
    use crate::{Client, Holder, LeaseId, LockName, Loss, MemoryStore, Mode, PartyId};

    const TTL: Duration = Duration::from_secs(60);

    /// What changes while this thread acts, by name and the label that says what it is.
    fn counted(act: impl FnOnce()) -> BTreeMap<String, i64> {
        let recorder = DebuggingRecorder::new();
        metrics::with_local_recorder(&recorder, act);
        let counts = recorder.snapshotter().snapshot().into_vec().into_iter();
        let counts = counts.filter_map(|(key, _, _, value)| {
            let label =
                key.key().labels().find(|label| ["reason", "outcome"].contains(&label.key()));
            let of = label.map(|label| format!(" {}", label.value())).unwrap_or_default();
            let count = match value {
                DebugValue::Counter(count) => i64::try_from(count).ok()?,
                DebugValue::Gauge(change) if change.0 >= 0.0 => i64::from(change.0 > 0.5),
                DebugValue::Gauge(_) => -1,
                DebugValue::Histogram(_) => return None,
            };
            Some((format!("{}{of}", key.key().name()), count))
        });
        counts.collect()
    }

    fn is(expected: &[(&str, i64)]) -> BTreeMap<String, i64> {
        expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    fn refuse(client: &Client, lease: &Lease) {
        let (core, answer) = (&client.inner.core, Renewed::Lost(Loss::StateLost));
        core.note_renewal(lease, &answer, TTL, core.now(), core.now());
    }

    fn asking(client: &Client) -> Lease {
        let (id, party) = (LeaseId::from_u128(1), PartyId::from_u128(1));
        let name = LockName::new("report").unwrap();
        let (tenure, telemetry) = (Tenure::new(TTL, true, None), client.inner.core.telemetry);
        Lease::new(id, party, name, Mode::Exclusive, Holder::default(), tenure, telemetry)
    }

    #[test]
    fn a_refused_renewal_is_a_loss_only_of_what_is_held_and_once() {
        let client = Client::new(Arc::new(MemoryStore::new()));
        let guard = block_on(client.lock("report").acquire()).unwrap();
        let held = client.inner.core.registry.all().remove(0);
        let lost = is(&[("sprag_renewals_total refused", 1), ("sprag_lost_total state_lost", 1)]);
        assert_eq!(counted(|| refuse(&client, &held)), lost);
        assert_eq!(counted(|| refuse(&client, &held)), is(&[]), "told before");
        drop(guard);

        let waiter = asking(&client);
        let refused = is(&[("sprag_renewals_total refused", 1)]);
        assert_eq!(counted(|| refuse(&client, &waiter)), refused, "it has lost its place, no lock");
        waiter.with(|tenure| tenure.end());
        assert_eq!(counted(|| refuse(&client, &waiter)), is(&[]), "released meanwhile");
    }

    #[test]
    fn a_loss_that_the_guard_finds_itself_is_counted() {
        let store = MemoryStore::new();
        let [client, other] = [(); 2].map(|()| Client::new(Arc::new(store.connect())));
        let mut guard = block_on(client.lock("report").acquire()).unwrap();
        block_on(other.evict("report", guard.fence(), "why")).unwrap();
        let found = counted(|| {
            assert!(block_on(guard.downgrade(Mode::Shared)).unwrap_err().is_lost());
            assert!(guard.ensure_valid().is_err());
        });
        assert_eq!(found, is(&[("sprag_lost_total broken", 1)]));
    }

    #[test]
    fn what_is_adopted_counts_as_held_until_it_is_released() {
        let client = Client::new(Arc::new(MemoryStore::new()));
        let mut guard = None;
        let held = |change| is(&[("sprag_locks_held", change)]);
        let acquired = counted(|| guard = block_on(client.lock("report").acquire()).ok());
        assert_eq!(acquired, held(1));
        let mut ticket = None;
        let given = counted(|| ticket = block_on(guard.take().unwrap().into_ticket()).ok());
        assert_eq!(given["sprag_locks_held"], -1);
        let adopted = counted(|| guard = block_on(client.adopt(ticket.take().unwrap())).ok());
        assert_eq!(adopted, held(1));
        assert_eq!(counted(|| drop(block_on(guard.take().unwrap().release()))), held(-1));
    }
}
