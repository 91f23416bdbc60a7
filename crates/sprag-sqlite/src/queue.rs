//! The queue of a lock as rows, of which only the needed ones are read.
//!
//! A command is decided from the first waiters, the one that asks and the one to whom the lock is
//! promised. That is the same as deciding from the whole queue as long as
//!
//! * no waiter's time is over: [`Window::due_ms`] tells the earliest time at which one may be;
//! * the command looks at no other waiter: only a change of a semaphore's size does;
//! * one of the first waiters stays, or has the lock alone now, so that the machine stopped there
//!   and not at the end of what it was given;
//! * if somebody was let in, who is the first now is known, because it is promised the lock.
//!
//! Otherwise the whole queue is read and the command is decided again.

use rusqlite::types::ValueRef;
use rusqlite::{Row, params};
use sprag_core::record::{Acquire, Applied, Command, Hold, Record, Wait};
use sprag_core::{LeaseId, Mode, Result, SessionId};

use crate::database::Database;
use crate::error::corrupt;
use crate::rows::Transaction;

/// How many of the first waiters are read. A hand-over takes the first, and looks at the second or
/// promises the lock to it.
const HEAD: usize = 2;
/// How many predecessors of a waiter are told, to find a live one among them.
const PREDECESSORS: u8 = 16;
/// When a waiter's time is over where nobody waits.
pub(crate) const NEVER_DUE: u64 = i64::MAX as u64;

/// How much of a queue is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The first waiters, and this one.
    Near(Option<Asker>),
    /// All of it.
    All,
}

/// The lease that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    pub(crate) lease: LeaseId,
    /// Where it was put when it joined the queue, if that was in this process. A hint: if
    /// somebody else is there, the whole queue is searched.
    pub(crate) place: Option<Place>,
}

/// The place of a waiter, in the order in which they will be granted. It never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    place: i64,
    ticket: i64,
}

impl From<&Wait> for Place {
    fn from(wait: &Wait) -> Self {
        let (place, ticket) = wait.order();
        Self { place, ticket: i64::try_from(ticket).unwrap_or(i64::MAX) }
    }
}

/// What the row of a lock tells about its queue.
#[derive(Debug)]
pub(crate) struct LockRow<'a> {
    pub(crate) id: i64,
    pub(crate) name: &'a str,
    /// How many wait.
    pub(crate) queued: usize,
    /// No waiter's time is over before this.
    pub(crate) due_ms: u64,
    /// To whom the lock is promised.
    pub(crate) heir: Option<LeaseId>,
}

/// What was read of a queue.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The waiters that were read, in order.
    pub(crate) read: Vec<Wait>,
    /// How many of them are the first of the queue without a gap.
    head: usize,
    /// How many waiters were not read.
    pub(crate) unread: usize,
    /// No waiter's time is over before this.
    due_ms: u64,
}

/// Where a waiter stands.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// How many waiters are before it.
    pub(crate) ahead: usize,
    /// The sessions of the nearest ones, the nearest first.
    pub(crate) before: Vec<SessionId>,
}

impl Window {
    /// Whether a command may be decided from this.
    pub(crate) fn suffices(&self, command: &Command, record: &Record, now_ms: u64) -> bool {
        let resizes = matches!(command, Command::Acquire(acquire) if resizes(acquire, record));
        self.unread == 0 || (now_ms < self.due_ms && !resizes)
    }

    /// Whether what was decided from this would have been decided from the whole queue, too.
    pub(crate) fn sufficed(&self, limit: Option<u32>, applied: &Applied) -> bool {
        let decided = &applied.record;
        let stays = |wait: &Wait| {
            let alone = |hold: &Hold| hold.lease == wait.lease && hold.mode == Mode::Exclusive;
            decided.waiters.iter().any(|other| other.lease == wait.lease)
                || decided.holders.iter().any(alone)
        };
        // Somebody who was not read may still wait for a permit.
        let same_limit = limit.is_none() || decided.limit.is_some();
        // A promise is made to who is the first now.
        let first = decided.waiters.first().map(|wait| wait.lease);
        let is_first = |wait: &Wait| Some(wait.lease) == first;
        let head = &self.read[..self.head];
        self.unread == 0
            || (same_limit
                && head.iter().any(stays)
                && (applied.let_in.is_none() || head.iter().any(is_first)))
    }

    /// When the first waiter's time may be over, now that the queue is as in `decided`.
    pub(crate) fn next_due_ms(&self, decided: &Record) -> u64 {
        let known = decided.waiters.iter().map(Wait::expires_ms).min().unwrap_or(NEVER_DUE);
        let unknown = if self.unread == 0 { NEVER_DUE } else { self.due_ms };
        known.min(unknown).min(NEVER_DUE)
    }
}

/// Whether the request changes the number of permits, which concerns all waiters.
fn resizes(acquire: &Acquire, record: &Record) -> bool {
    matches!(acquire.mode, Mode::Permits { of, .. } if record.limit != Some(of))
}

impl Database {
    /// Reads waiters of a lock that has `count` of them.
    pub(crate) fn read_queue(&self, of: &LockRow<'_>, reach: Reach) -> Result<Window> {
        let (count, lock) = (of.queued, of.id);
        if count == 0 {
            return Ok(Window::default());
        }
        let limit = if reach == Reach::All { count + 1 } else { HEAD };
        let mut read = self.read_waiters(
            of.name,
            "SELECT waiter FROM waiter WHERE lock = ?1 ORDER BY place, ticket LIMIT ?2",
            params![lock, i64::try_from(limit).unwrap_or(i64::MAX)],
        )?;
        let head = read.len();
        if let Reach::Near(asker) = reach {
            let heir = of.heir.map(|lease| Asker { lease, place: None });
            for wanted in asker.into_iter().chain(heir) {
                if read.len() < count && !read.iter().any(|wait| wait.lease == wanted.lease) {
                    read.extend(self.find_waiter(of, wanted)?);
                }
            }
            read.sort_by_key(Wait::order);
        }
        if read.len() > count || head < limit.min(count) {
            let what = format!("it has {count} waiters, and {} were found", read.len());
            return Err(corrupt(&self.path, of.name, &what));
        }
        Ok(Window { unread: count - read.len(), read, head, due_ms: of.due_ms })
    }

    fn find_waiter(&self, of: &LockRow<'_>, asker: Asker) -> Result<Option<Wait>> {
        let lease = blob(asker.lease.as_u128());
        if let Some(Place { place, ticket }) = asker.place {
            let found = self.read_waiters(
                of.name,
                "SELECT waiter FROM waiter \
                 WHERE lock = ?1 AND place = ?2 AND ticket = ?3 AND lease = ?4",
                params![of.id, place, ticket, lease],
            )?;
            if !found.is_empty() {
                return Ok(found.into_iter().next());
            }
        }
        let query = "SELECT waiter FROM waiter WHERE lock = ?1 AND lease = ?2";
        let found = self.read_waiters(of.name, query, params![of.id, lease])?;
        Ok(found.into_iter().next())
    }

    fn read_waiters(
        &self,
        name: &str,
        query: &str,
        values: impl rusqlite::Params,
    ) -> Result<Vec<Wait>> {
        let mut statement = self.prepared(query)?;
        let mut rows = statement.query(values).map_err(|e| self.error(e))?;
        let mut waiters = Vec::new();
        while let Some(row) = rows.next().map_err(|e| self.error(e))? {
            waiters.push(self.read_waiter(name, row)?);
        }
        Ok(waiters)
    }

    fn read_waiter(&self, name: &str, row: &Row<'_>) -> Result<Wait> {
        let damaged = |what: &str| corrupt(&self.path, name, what);
        let text = row.get_ref(0).and_then(|text| Ok(text.as_str()?));
        let text = text.map_err(|_| damaged("the waiter is not text"))?;
        Wait::from_json(text).map_err(|e| damaged(&e.to_string()))
    }

    /// Where one of `count` waiters stands, of which not all were read.
    pub(crate) fn standing(&self, lock: i64, at: Place, count: usize) -> Result<Standing> {
        let values = params![lock, at.place, at.ticket];
        let query = "SELECT EXISTS (SELECT 1 FROM waiter \
                     WHERE lock = ?1 AND (place, ticket) > (?2, ?3))";
        let followed = self.prepared(query)?.query_row(values, |row| row.get(0));
        let ahead = if followed.map_err(|e| self.error(e))? {
            let query = "SELECT count(*) FROM waiter \
                         WHERE lock = ?1 AND (place, ticket) < (?2, ?3)";
            let ahead = self.prepared(query)?.query_row(values, |row| row.get::<_, i64>(0));
            usize::try_from(ahead.map_err(|e| self.error(e))?).unwrap_or(0)
        } else {
            // Mostly the last one asks, and nobody has to be counted.
            count.saturating_sub(1)
        };
        let sessions = "SELECT session FROM waiter \
                        WHERE lock = ?1 AND (place, ticket) < (?2, ?3) \
                        ORDER BY place DESC, ticket DESC LIMIT ?4";
        let mut statement = self.prepared(sessions)?;
        let values = params![lock, at.place, at.ticket, PREDECESSORS];
        let mut rows = statement.query(values).map_err(|e| self.error(e))?;
        let mut before = Vec::new();
        while let Some(row) = rows.next().map_err(|e| self.error(e))? {
            before.extend(session(row.get_ref(0).map_err(|e| self.error(e))?));
        }
        Ok(Standing { ahead, before })
    }
}

impl Standing {
    /// Where a waiter of a queue stands that was read as a whole.
    pub(crate) fn within(record: &Record, ahead: usize) -> Self {
        let before = record.waiters[..ahead].iter().rev().take(PREDECESSORS.into());
        Self { ahead, before: before.filter_map(|wait| wait.session).collect() }
    }
}

impl Transaction<'_> {
    /// Writes what became of the waiters that were read.
    pub(crate) fn save_queue(&self, lock: i64, window: &Window, decided: &Record) -> Result<()> {
        // Both are in order, and a waiter never changes its place: one walk over both finds what
        // went, what came and what was renewed.
        let mut old = window.read.iter().peekable();
        for wait in &decided.waiters {
            while let Some(gone) = old.next_if(|other| other.order() < wait.order()) {
                self.delete_waiter(lock, gone)?;
            }
            match old.next_if(|other| other.order() == wait.order()) {
                Some(same) if same == wait => {}
                _ => self.write_waiter(lock, wait)?,
            }
        }
        old.try_for_each(|gone| self.delete_waiter(lock, gone))
    }

    fn write_waiter(&self, lock: i64, wait: &Wait) -> Result<()> {
        let Place { place, ticket } = wait.into();
        let session = wait.session.map(|session| blob(session.as_u128()));
        let query = "INSERT INTO waiter (lock, place, ticket, lease, session, waiter) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (lock, place, ticket) \
                     DO UPDATE SET session = excluded.session, waiter = excluded.waiter";
        let lease = blob(wait.lease.as_u128());
        self.execute(query, params![lock, place, ticket, lease, session, wait.to_json()]).map(drop)
    }

    fn delete_waiter(&self, lock: i64, wait: &Wait) -> Result<()> {
        let Place { place, ticket } = wait.into();
        let query = "DELETE FROM waiter WHERE lock = ?1 AND place = ?2 AND ticket = ?3";
        self.execute(query, params![lock, place, ticket]).map(drop)
    }
}

const fn blob(id: u128) -> [u8; 16] {
    id.to_be_bytes()
}

fn session(value: ValueRef<'_>) -> Option<SessionId> {
    let bytes = value.as_blob_or_null().ok().flatten()?;
    Some(SessionId::from_u128(u128::from_be_bytes(bytes.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use sprag_core::record::{Acquire, Command, Context, Expiry, Outcome, Record, Steal, apply};
    use sprag_core::{Fence, Holder, LeaseId, LockName, Mode, PartyId, SessionId};

    use super::{Place, Reach};
    use crate::database::Database;
    use crate::desk::{decide, lease_of};

    /// A small generator: the same numbers in each run.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % sides
        }
    }

    fn random_command(dice: &mut Dice, record: &Record) -> Command {
        let lease = LeaseId::from_u128(u128::from(dice.roll(40)));
        match dice.roll(12) {
            0..5 => Command::Acquire(Box::new(Acquire {
                lease,
                session: (dice.roll(3) > 0).then(|| SessionId::from_u128(dice.roll(9).into())),
                party: PartyId::from_u128(lease.as_u128()),
                mode: match dice.roll(8) {
                    0..4 => Mode::Exclusive,
                    4..6 => Mode::Shared,
                    6 => Mode::Upgradable,
                    _ => Mode::Permits { count: 1, of: 2 + u32::from(dice.roll(9) == 0) },
                },
                ttl_ms: 20 + dice.roll(400),
                queue: dice.roll(8) > 0,
                priority: i8::try_from(dice.roll(3)).unwrap() - 1,
                holder: Holder::default(),
                fixed: false,
                steal: match dice.roll(30) {
                    0 => Steal::Force,
                    1 => Steal::Overdue { after_ms: 30 },
                    _ => Steal::No,
                },
                resize: dice.roll(9) == 0,
                not_after_ms: None,
            })),
            5..8 => Command::Release {
                // Mostly a holder, so that the queue moves.
                lease: record
                    .holders
                    .first()
                    .filter(|_| dice.roll(4) > 0)
                    .map_or(lease, |h| h.lease),
            },
            8 => Command::Renew { lease, ttl_ms: 20 + dice.roll(400), rebind: None },
            9 => Command::Withdraw { lease },
            10 => {
                let held = record.holders.iter().find(|hold| hold.lease == lease);
                let fence = held.map_or(record.fence, |hold| hold.fence);
                Command::Convert { lease, fence, to: Mode::Exclusive, queue: dice.roll(2) > 0 }
            }
            _ => Command::Evict {
                fence: Fence::new(record.fence.get().saturating_sub(dice.roll(2))).unwrap(),
                by: "test".into(),
                reason: "test".into(),
            },
        }
    }

    fn whole_places(record: &Record, command: &Command) -> Option<Place> {
        let wait = record.waiters.iter().find(|wait| lease_of(command) == Some(wait.lease));
        wait.map(Place::from)
    }

    fn exclusive(lease: u128) -> Command {
        Command::Acquire(Box::new(Acquire {
            lease: LeaseId::from_u128(lease),
            session: Some(SessionId::from_u128(lease)),
            party: PartyId::from_u128(lease),
            mode: Mode::Exclusive,
            ttl_ms: 1000,
            queue: true,
            priority: 0,
            holder: Holder::default(),
            fixed: false,
            steal: Steal::No,
            resize: false,
            not_after_ms: None,
        }))
    }

    #[test]
    fn a_hand_over_reads_nobody_behind_the_one_to_whom_the_lock_is_promised() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("locks.db");
        std::fs::File::create(&path).unwrap();
        let database = Database::connect(&path).unwrap();
        database.initialize().unwrap();
        let name = LockName::new("job").unwrap();
        let context = Context {
            now_ms: 5,
            expiry: Expiry::Clock,
            fence_floor: 1,
            max_waiters: 24,
            is_dead: &|_| false,
            is_silent: &|_| false,
        };
        let run = |command: &Command| {
            let transaction = database.begin().unwrap();
            let answer = decide(&transaction, &name, command, None, &context).unwrap();
            transaction.commit().unwrap();
            answer
        };
        (0..5).for_each(|lease| drop(run(&exclusive(lease))));
        let answer = run(&Command::Release { lease: LeaseId::from_u128(0) });
        assert_eq!(answer.applied.record.holders[0].lease, LeaseId::from_u128(1));
        assert_eq!(answer.unread, 2, "of four waiters, two have to be read");
        let heir = answer.applied.record.heir.map(|heir| heir.lease);
        assert_eq!(heir, Some(LeaseId::from_u128(2)));
    }

    #[test]
    fn deciding_from_a_part_of_the_queue_is_deciding_from_all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let name = LockName::new("job").unwrap();
        let (mut partial, mut long, mut promised) = (0, 0, 0);
        for seed in 0..28 {
            let path = dir.path().join(format!("{seed}.db"));
            std::fs::File::create(&path).unwrap();
            let database = Database::connect(&path).unwrap();
            database.initialize().unwrap();
            let (mut dice, mut whole) = (Dice(seed), Record::default());
            let mut now_ms = 0;
            for step in 0..400 {
                now_ms += dice.roll(8);
                let command = random_command(&mut dice, &whole);
                // Sessions die for good one after the other.
                let dead = step / 60;
                let context = Context {
                    now_ms,
                    expiry: Expiry::Clock,
                    fence_floor: 1,
                    max_waiters: 24,
                    is_dead: &|session| session.as_u128() < dead,
                    is_silent: &|_| false,
                };
                let before = whole.clone();
                let mut expected = apply(whole, &command, &context);
                if let Some(priority) = expected.let_in {
                    let floor = context.fence_floor;
                    promised += usize::from(expected.record.promise(floor, priority));
                }
                let transaction = database.begin().unwrap();
                // What a process remembers about its waiters may be missing, or be wrong.
                let place = match dice.roll(4) {
                    0 => None,
                    1 => Some(Place { place: 7, ticket: 7 }),
                    _ => whole_places(&before, &command),
                };
                let answer = decide(&transaction, &name, &command, place, &context).unwrap();
                transaction.commit().unwrap();
                let at = format!("seed {seed}, step {step}, {command:?}");
                // A renewal is not told its place.
                let told = |outcome: &Outcome| match (&command, outcome) {
                    (Command::Renew { .. }, Outcome::Queued { .. }) => Outcome::Queued { ahead: 0 },
                    _ => outcome.clone(),
                };
                let total = match &answer.applied.outcome {
                    Outcome::Held => answer.applied.record.waiters.len() + answer.unread,
                    _ => expected.record.waiters.len(),
                };
                assert_eq!(told(&answer.applied.outcome), told(&expected.outcome), "{at}");
                assert_eq!(answer.applied.events, expected.events, "{at}");
                assert_eq!(answer.applied.changed, expected.changed, "{at}");
                assert_eq!(total, expected.record.waiters.len(), "{at}");
                let stored = database.load(&name, Reach::All).unwrap();
                assert_eq!(stored.record, expected.record, "{at}");
                if let Outcome::Queued { ahead } = expected.outcome
                    && matches!(command, Command::Acquire(_))
                {
                    let before = expected.record.waiters[..ahead].iter().rev();
                    let before: Vec<_> = before.take(16).filter_map(|wait| wait.session).collect();
                    assert_eq!(answer.before, before, "{at}");
                }
                partial += usize::from(answer.unread > 0);
                long += usize::from(expected.record.waiters.len() > 8);
                whole = expected.record;
            }
        }
        assert!(partial > 500 && long > 120, "too easy: {partial} in part, {long} long queues");
        assert!(promised > 100, "too few promises: {promised}");
    }
}
