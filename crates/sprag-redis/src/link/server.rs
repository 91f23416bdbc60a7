//! [`Server`]: what is known about the server on the other end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sprag_core::ErrorKind;
use sprag_core::clock::{BootClock, Clock, Moment};

use crate::config::Quarantine;
use crate::error::Trouble;
use crate::hello::Info;
use crate::longest::Longest;

/// Clocks that part by more than that have jumped.
const JUMP_MS: i64 = 500;

/// What is known about the server on the other end.
#[derive(Debug)]
pub(crate) struct Server {
    /// The name of the store in metrics.
    store: &'static str,
    quarantine: Quarantine,
    pub(crate) longest: Arc<Longest>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    run_id: Option<String>,
    /// How many replicas it had when it was met last.
    replicas: u32,
    /// When the last request was sent that was answered.
    heard: Option<Moment>,
    /// Between which two numbers the server's clock minus ours is, in milliseconds.
    skew: Option<(i64, i64)>,
    /// The last jump of its clock, in milliseconds.
    jump: Option<i64>,
    /// It started then, or earlier, and may have forgotten its locks. None is granted until the
    /// longest of them has ended; how long that is may be learnt meanwhile.
    forgot: Option<Moment>,
}

impl Server {
    pub(crate) fn new(store: &'static str, quarantine: Quarantine, longest: Arc<Longest>) -> Self {
        Self { store, quarantine, longest, known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Meets the server, maybe again. Fails once if it may have forgotten who holds what, so that
    /// nothing that was asked of its predecessor is asked of it.
    pub(crate) fn meet(&self, info: &Info) -> Result<(), Trouble> {
        let mut known = self.lock();
        let run_id = info.get("run_id").to_owned();
        known.replicas = info.get("connected_slaves").parse().unwrap_or(0);
        let first = known.run_id.is_none();
        if known.run_id.replace(run_id) == known.run_id || info.has_log() {
            return Ok(());
        }
        known.skew = None;
        self.longest.forgotten();
        match self.quarantine {
            Quarantine::Never => return Ok(()),
            Quarantine::Witnessed if first => return Ok(()),
            Quarantine::Witnessed | Quarantine::Always => {}
        }
        // The locks were forgotten when it started, or earlier. It counts the seconds that have
        // begun: one that says 1 may have started just now.
        let begun = info.get("uptime_in_seconds").parse::<u64>().unwrap_or(0);
        let since = Duration::from_secs(begun.saturating_sub(1));
        let left = self.longest.of_anybody().saturating_sub(since);
        let now = BootClock.now();
        // A replica that was up when its master still answered took over what it had.
        let took_over = known.heard.is_some_and(|heard| now.since(heard) < since);
        if left.is_zero() || took_over {
            return Ok(());
        }
        tracing::warn!(target: "sprag::redis", ?left, "the server was restarted: no locks for now");
        known.forgot = Some(now.minus(since));
        if first { Ok(()) } else { Err(self.closed(left)) }
    }

    fn closed(&self, left: Duration) -> Trouble {
        let (left, how) = (left.as_secs() + 1, self.longest.how_to_end());
        let message = format!(
            "the server was restarted and may have forgotten who holds what: no lock is granted for \
             another {left} s; set its appendonly to yes and appendfsync to always to avoid this. If \
             nobody holds a lock from before, end it now: {how}"
        );
        Trouble::new(ErrorKind::Busy, message)
    }

    /// Fails while the server may have forgotten who holds what.
    pub(crate) fn may_grant(&self) -> Result<(), Trouble> {
        self.closed_for().map_or(Ok(()), |left| Err(self.closed(left)))
    }

    /// How long no lock will be granted, if so.
    pub(crate) fn closed_for(&self) -> Option<Duration> {
        let mut known = self.lock();
        let began = known.forgot?;
        let until = began.plus(self.longest.of_anybody());
        let left = Some(until.since(BootClock.now()));
        let left = left.filter(|left| !left.is_zero() && !self.longest.is_ended(began));
        if left.is_none() {
            known.forgot = None;
        }
        left
    }

    /// Learns the server's time from an answer to a request that was sent at `sent`.
    pub(crate) fn learn_time(&self, server_ms: u64, sent: Moment) {
        let server = i64::try_from(server_ms).unwrap_or(i64::MAX);
        let least = server.saturating_sub(as_i64(BootClock.now()));
        let most = server.saturating_sub(as_i64(sent));
        let mut known = self.lock();
        known.heard = known.heard.max(Some(sent));
        let jump = match known.skew.replace((least, most)) {
            Some((_, before)) if least > before.saturating_add(JUMP_MS) => least - before,
            Some((before, _)) if most < before.saturating_sub(JUMP_MS) => most - before,
            _ => return,
        };
        known.jump = Some(jump);
        drop(known);
        metrics::counter!("sprag_store_clock_jumps_total", "store" => self.store).increment(1);
        tracing::warn!(
            target: "sprag::redis",
            jump_ms = jump,
            "the server's clock has jumped: leases may have ended early or last longer",
        );
    }

    /// How many replicas it had when it was met last.
    pub(crate) fn replicas(&self) -> u32 {
        self.lock().replicas
    }

    /// The last jump of the server's clock, in milliseconds.
    pub(crate) fn jump(&self) -> Option<i64> {
        self.lock().jump
    }

    /// The server's time in `patience` from now, in milliseconds; unknown before its first answer.
    pub(crate) fn time_after(&self, patience: Duration) -> Option<u64> {
        let (_, skew) = self.lock().skew?;
        let until = as_i64(BootClock.now().plus(patience)).saturating_add(skew);
        Some(u64::try_from(until).unwrap_or(0))
    }
}

fn as_i64(moment: Moment) -> i64 {
    i64::try_from(moment.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::longest::MOST;

    fn server(quarantine: Quarantine, longest: u64) -> Server {
        let configured = Duration::from_secs(longest);
        let longest = Longest::new("longest".into(), "open".into(), configured);
        Server::new("redis", quarantine, Arc::new(longest))
    }

    fn info(run: &str, uptime: u32, log: u32) -> Info {
        let text = format!("run_id:{run}\nuptime_in_seconds:{uptime}\naof_enabled:{log}\n");
        Info::read(&format!("{text}appendfsync:always\n"))
    }

    #[test]
    fn a_restart_is_survived_by_waiting_for_the_longest_ttl() {
        let server = self::server(Quarantine::Witnessed, 30);
        server.meet(&info("a", 0, 0)).unwrap();
        server.meet(&info("a", 1, 0)).unwrap();
        server.may_grant().unwrap();
        server.longest.uses(Duration::from_secs(60));
        assert!(server.meet(&info("b", 2, 0)).is_err());
        assert!(server.may_grant().is_err());
        let left = server.closed_for().unwrap();
        assert!(left > Duration::from_secs(58) && left <= Duration::from_secs(59), "{left:?}");
        // The same server again: still closed, but it may be asked.
        server.meet(&info("b", 3, 0)).unwrap();
        assert!(server.may_grant().is_err());
    }

    #[test]
    fn a_longer_ttl_that_is_learnt_meanwhile_counts() {
        let server = self::server(Quarantine::Witnessed, 30);
        server.meet(&info("a", 0, 0)).unwrap();
        assert!(server.meet(&info("b", 10, 0)).is_err());
        assert!(server.closed_for().unwrap() < Duration::from_secs(22));
        assert_eq!(server.longest.learn(Some("600000")), 600_000);
        assert!(server.closed_for().unwrap() > Duration::from_secs(590));
        assert_eq!(server.longest.learn(None), 0);
        assert!(server.may_grant().is_err());
    }

    #[test]
    fn a_ttl_of_months_closes_it_for_minutes() {
        let server = self::server(Quarantine::Witnessed, 30);
        server.meet(&info("a", 0, 0)).unwrap();
        server.longest.uses(Duration::from_secs(300 * 24 * 3600));
        server.longest.learn(Some("25920000000"));
        assert!(server.meet(&info("b", 0, 0)).is_err());
        assert!(server.closed_for().unwrap() <= MOST);
        // Unless more is asked for.
        let patient = self::server(Quarantine::Witnessed, 3600);
        patient.meet(&info("a", 0, 0)).unwrap();
        patient.longest.uses(Duration::from_secs(300 * 24 * 3600));
        assert!(patient.meet(&info("b", 0, 0)).is_err());
        let left = patient.closed_for().unwrap();
        assert!(left > MOST && left <= Duration::from_secs(3600), "{left:?}");
    }

    #[test]
    fn an_old_server_or_one_with_a_log_is_believed() {
        let server = self::server(Quarantine::Witnessed, 30);
        for (run, uptime, log) in [("a", 0, 0), ("b", 31, 0), ("c", 0, 1)] {
            server.meet(&info(run, uptime, log)).unwrap();
            server.may_grant().unwrap();
        }
    }

    #[test]
    fn a_replica_that_takes_over_has_forgotten_nothing() {
        let server = self::server(Quarantine::Witnessed, 30);
        server.meet(&info("a", 9, 0)).unwrap();
        server.learn_time(1_000_000, BootClock.now());
        server.meet(&info("b", 2, 0)).unwrap();
        server.may_grant().unwrap();
        assert!(server.meet(&info("c", 0, 0)).is_err());
    }

    #[test]
    fn a_first_meeting_counts_only_if_asked_for() {
        let cautious = server(Quarantine::Always, 30);
        cautious.meet(&info("a", 0, 0)).unwrap();
        assert!(cautious.may_grant().is_err());
        let careless = server(Quarantine::Never, 30);
        careless.meet(&info("a", 0, 0)).unwrap();
        careless.meet(&info("b", 0, 0)).unwrap();
        careless.may_grant().unwrap();
    }

    #[test]
    fn a_jump_of_the_clock_is_noticed_and_a_slow_answer_is_not_one() {
        let server = self::server(Quarantine::Never, 0);
        let now = BootClock.now();
        server.learn_time(1_000_000, now);
        server.learn_time(1_000_100, now.minus(Duration::from_secs(3)));
        assert_eq!(server.jump(), None);
        server.learn_time(1_120_000, BootClock.now());
        assert!(server.jump().unwrap() > 110_000);
        server.learn_time(1_000_000, BootClock.now());
        assert!(server.jump().unwrap() < -110_000);
    }
}
