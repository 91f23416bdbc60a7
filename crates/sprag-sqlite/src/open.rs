//! Opening a store: whose file is it, which boot is it from, who else is here.

use std::path::Path;
use std::sync::Arc;

use sprag_core::audit::{AuditEntry, AuditKind};
use sprag_core::clock::Clock;
use sprag_core::record::Hold;
use sprag_core::{ErrorKind, LockName, Result};

use crate::baton::ForceCount;
use crate::config::SqliteConfig;
use crate::database::{Database, Identity, SQLITE_PATIENCE};
use crate::desk::{Desk, Shared};
use crate::error::{busy, error, from_io};
use crate::gate::Gate;
use crate::maintenance::tidy_at_open;
use crate::place::Place;
use crate::rows::{Loaded, Transaction};
use crate::session::{Session, sweep};
use crate::trail::Trail;
use crate::wake::Wakeups;

/// The boot in which the records were written, in `meta`.
const BOOT_ID: &str = "boot_id";
/// When that boot began, by the time of day, in `meta`.
const STARTED: &str = "boot_started_ms";
/// Two readings of the clocks are never taken at the same moment; more than this is a clock that
/// was set.
const CLOCK_SET_MS: u64 = 1_000;
/// Where the kernel tells its boot id.
const KERNEL_BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Opens the files that `config` names and starts a session.
pub(crate) fn open(config: SqliteConfig) -> Result<(Arc<Shared>, Desk)> {
    let boot_id = match config.boot_id {
        Some(boot_id) => boot_id,
        None => kernel_boot_id()?,
    };
    let place = Place::prepare(&config.path, config.users.sharing(&config.path)?)?;
    let database = Database::connect(&place.database)?;
    // Others may be making the database right now, and be slow.
    database.wait_for_others(config.busy_timeout)?;
    // Before anything is made beside it: somebody else's file is left alone.
    database.identify()?;
    let gate = Gate::open(&place.gate, place.sharing);
    let gate = gate.map_err(|e| from_io("open", &place.gate, e))?;
    let trail = Trail::new(&place.trail, place.sharing);
    let force = ForceCount::open(&place.force, place.sharing);
    let force = force.map_err(|e| from_io("create", &place.force, e))?;
    let session = {
        // All inside the gate: two that open at once must agree on the schema, the boot and who
        // was here first.
        let entered = Gate::enter_within(&place, config.busy_timeout);
        let entered = entered.map_err(|e| from_io("lock", &place.gate, e))?;
        let _inside = entered.ok_or_else(|| busy(&place.database))?;
        match database.identify()? {
            Identity::Empty => database.initialize()?,
            Identity::Sprag => database.use_log()?,
        }
        place.make_sessions()?;
        let swept = sweep(&place.sessions);
        let alive = swept.map_err(|e| from_io("read", &place.sessions, e))?;
        let times = Times::of(&*config.clock);
        let ended = start_boot(&database, &place, &boot_id, alive, times)?;
        log_restart(&trail, &ended, config.clock.unix_micros());
        tidy_at_open(&place, &database, alive == 0)?;
        let session = Session::start(&place.sessions, place.sharing);
        Arc::new(session.map_err(|e| from_io("create a session in", &place.sessions, e))?)
    };
    database.wait_for_others(SQLITE_PATIENCE)?;
    let wakeups = Wakeups::new(Arc::clone(&session));
    let shared = Arc::new(Shared {
        wakeups: wakeups.map_err(|e| from_io("make sockets for", &place.sessions, e))?,
        trail,
        force,
        place,
        session,
        clock: config.clock,
        busy_timeout: config.busy_timeout,
        max_free_records: config.max_free_records,
        frames: 0.into(),
        gate_wanted: false.into(),
        tidying: false.into(),
        tidied: 0.into(),
    });
    Ok((shared, Desk { database, gate }))
}

fn kernel_boot_id() -> Result<String> {
    let path = Path::new(KERNEL_BOOT_ID);
    let text = std::fs::read_to_string(path).map_err(|e| from_io("read", path, e))?;
    Ok(text.trim().to_owned())
}

/// The time on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Since the machine was started.
    boot_ms: u64,
    /// Since 1970.
    unix_ms: u64,
}

impl Times {
    pub(crate) fn of(clock: &dyn Clock) -> Self {
        Self { boot_ms: clock.now().as_millis(), unix_ms: clock.unix_micros() / 1000 }
    }

    /// When the machine was started, by the time of day.
    fn started_ms(self) -> i64 {
        let signed = |ms| i64::try_from(ms).unwrap_or(i64::MAX);
        signed(self.unix_ms) - signed(self.boot_ms)
    }
}

/// After a reboot no process can hold anything: forgets holders and waiters, keeps fences and
/// detached leases. Returns the leases that have ended, with their locks.
///
/// Times in the records count from the boot, so they must be rewritten before they are compared.
/// One transaction: after a crash in the middle the next process to open does it again.
fn start_boot(
    database: &Database,
    place: &Place,
    boot_id: &str,
    alive: usize,
    times: Times,
) -> Result<Vec<(LockName, Hold)>> {
    let transaction = database.begin()?;
    let stored: Option<String> = transaction.meta(BOOT_ID)?;
    let started: Option<i64> = transaction.meta(STARTED)?;
    if stored.as_deref() == Some(boot_id) {
        if note_start(&transaction, times)? {
            transaction.commit()?;
        }
        return Ok(Vec::new());
    }
    if stored.is_some() && alive > 0 {
        // No process survives a reboot. A container with a boot id of its own looks like this,
        // and its clock may differ too.
        let message = format!(
            "{} is in use by processes that see another boot id than this one: do not share it \
             with containers that have their own",
            place.database.display()
        );
        return Err(error(ErrorKind::Refused, message));
    }
    let mut used = Vec::new();
    transaction.scan("", None, false, |name, loaded| {
        match loaded {
            Ok(loaded) => used.push((LockName::new(name)?, loaded)),
            Err(error) => tracing::warn!(%error, "a damaged record stays as it is"),
        }
        Ok(true)
    })?;
    let mut ended = Vec::new();
    for (name, Loaded { row, mut record, window }) in used {
        let holders = std::mem::take(&mut record.holders);
        for hold in holders {
            match carried_over(&hold, started, times) {
                Some(kept) => record.holders.push(kept),
                None => ended.push((name.clone(), hold)),
            }
        }
        record.waiters.clear();
        record.heir = None;
        if record.holders.is_empty() {
            record.limit = None;
        }
        record.version += 1;
        transaction.save(&name, row, &window, &mut record)?;
    }
    transaction.set_meta(STARTED, times.started_ms())?;
    transaction.set_meta(BOOT_ID, boot_id)?;
    transaction.commit()?;
    Ok(ended)
}

/// Writes down when this boot began, if the time of day was set since: the next boot goes by the
/// latest. Returns whether it was.
pub(crate) fn note_start(transaction: &Transaction<'_>, times: Times) -> Result<bool> {
    let started: Option<i64> = transaction.meta(STARTED)?;
    let is_set = started.is_none_or(|it| it.abs_diff(times.started_ms()) >= CLOCK_SET_MS);
    if is_set {
        transaction.set_meta(STARTED, times.started_ms())?;
    }
    Ok(is_set)
}

/// A detached lease in the new boot: no process ends with it, and it was promised until a time of
/// day. It never gets longer than it was.
fn carried_over(hold: &Hold, started: Option<i64>, times: Times) -> Option<Hold> {
    if hold.session.is_some() {
        return None;
    }
    let end = i64::try_from(hold.expires_ms()).ok()?.saturating_add(started?);
    let left = u64::try_from(end).ok()?.checked_sub(times.unix_ms).filter(|left| *left > 0)?;
    let mut kept = hold.clone();
    kept.renewed_ms = times.boot_ms;
    kept.ttl_ms = left.min(hold.ttl_ms);
    Some(kept)
}

fn log_restart(trail: &Trail, ended: &[(LockName, Hold)], unix_micros: u64) {
    let entry = |(name, hold): &(LockName, Hold)| {
        let (kind, holder) = (AuditKind::Lost, hold.holder.clone());
        AuditEntry::new(unix_micros / 1000, name.clone(), kind, hold.fence, hold.lease, holder)
            .detail("the machine was restarted")
    };
    trail.append(&ended.iter().map(entry).collect::<Vec<_>>(), unix_micros);
}
