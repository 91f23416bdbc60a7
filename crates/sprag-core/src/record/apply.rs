//! [`apply`]: reap, command, promote.

use super::command::{
    Acquire, Applied, Command, Context, Event, EventKind, Expiry, Outcome, Refusal, Steal,
};
use super::{Gone, Hold, MAX_GONE, Record, Wait, permits_of};
use crate::fence::Fence;
use crate::id::{LeaseId, PartyId, SessionId};
use crate::loss::Loss;
use crate::mode::Mode;
use crate::mutant::mutant;

/// Applies one command to a record.
///
/// If several callers do so at once, the store lets one of them write (compare-and-swap on
/// [`Record::version`]); the others apply their command to what was written.
///
/// # Examples
///
/// ```
/// use sprag_core::record::{Acquire, Command, Context, Expiry, Outcome, Record, Steal, apply};
/// use sprag_core::{Holder, LeaseId, Mode, PartyId};
///
/// let context = |now_ms| Context {
///     now_ms,
///     expiry: Expiry::Clock,
///     fence_floor: 0,
///     max_waiters: 4096,
///     is_dead: &|_| false,
///     is_silent: &|_| false,
/// };
/// let acquire = |lease| Command::Acquire(Box::new(Acquire {
///     lease: LeaseId::from_u128(lease),
///     session: None,
///     party: PartyId::from_u128(lease),
///     mode: Mode::Exclusive,
///     ttl_ms: 30_000,
///     queue: true,
///     priority: 0,
///     holder: Holder::default(),
///     fixed: false,
///     steal: Steal::No,
///     resize: false,
///     not_after_ms: None,
/// }));
///
/// let first = apply(Record::default(), &acquire(1), &context(0));
/// assert!(matches!(first.outcome, Outcome::Granted(_)));
/// let second = apply(first.record, &acquire(2), &context(1));
/// assert_eq!(second.outcome, Outcome::Queued { ahead: 0 });
/// let release = Command::Release { lease: LeaseId::from_u128(1) };
/// let third = apply(second.record, &release, &context(2));
/// // The release handed the lock over, with a larger fence.
/// assert_eq!(third.record.holders[0].lease, LeaseId::from_u128(2));
/// assert_eq!(third.record.fence.get(), 2);
/// ```
pub fn apply(record: Record, command: &Command, context: &Context<'_>) -> Applied {
    let mut step = Step {
        record,
        context,
        changed: false,
        events: Vec::new(),
        exhausted: false,
        thief: None,
        let_in: None,
    };
    if let Command::Acquire(acquire) = command
        && acquire.not_after_ms.is_some_and(|limit| context.now_ms > limit)
    {
        return step.finish(Outcome::Refused(Refusal::Late));
    }
    step.reap();
    let outcome = match command {
        Command::Acquire(acquire) => step.acquire(acquire),
        Command::Renew { lease, ttl_ms, rebind } => step.renew(*lease, *ttl_ms, *rebind),
        Command::Convert { lease, fence, to, queue } => step.convert(*lease, *fence, *to, *queue),
        Command::Release { lease } => step.release(*lease),
        Command::Withdraw { lease } => step.withdraw(*lease),
        Command::Evict { fence, by, reason } => step.evict(*fence, by, reason),
        Command::Reap => {
            step.promote();
            Outcome::Done
        }
    };
    step.finish(outcome)
}

/// One application of a command, half-way.
struct Step<'a> {
    record: Record,
    context: &'a Context<'a>,
    changed: bool,
    events: Vec<Event>,
    /// No fence was left for a grant that was due.
    exhausted: bool,
    /// Who pushed somebody aside.
    thief: Option<LeaseId>,
    /// The priority of the waiter that was let in last.
    let_in: Option<i8>,
}

impl Step<'_> {
    fn finish(mut self, outcome: Outcome) -> Applied {
        if self.changed {
            self.record.version += 1;
            let waits = |lease| self.record.waiters.iter().any(|wait| wait.lease == lease);
            self.record.heir = self.record.heir.filter(|heir| waits(heir.lease));
            let modes = self.record.holders.iter().map(|hold| hold.mode);
            let modes = modes.chain(self.record.waiters.iter().map(|wait| wait.mode));
            if modes.map(permits_of).max().unwrap_or(0) == 0 {
                // An unused semaphore may come back with another number of permits.
                self.record.limit = None;
            }
            if self.record.is_free() && mutant!("fence_forgotten_when_free") {
                self.record.fence = Fence::ZERO;
            }
        }
        let unanswered = matches!(outcome, Outcome::Queued { .. } | Outcome::Held);
        let outcome = if self.exhausted && unanswered {
            Outcome::Refused(Refusal::FenceExhausted)
        } else {
            outcome
        };
        let Self { record, changed, events, let_in, .. } = self;
        Applied { record, changed, outcome, events, let_in }
    }

    // ---- reap -------------------------------------------------------------------------------

    /// Takes out the holders that are dead, and the waiters whose time is over. Waiters of dead
    /// sessions are found when it is their turn: asking for each of them on every command would
    /// cost a thousand questions for one answer.
    fn reap(&mut self) {
        let now = self.context.now_ms + if mutant!("expires_early") { 50 } else { 0 };
        let clock = self.context.expiry == Expiry::Clock;
        let context = self.context;
        let dead = |session: Option<SessionId>| session.is_some_and(|id| (context.is_dead)(id));
        let over = |lease: LeaseId, expires_ms: u64| {
            if clock { expires_ms <= now } else { (context.is_silent)(lease) }
        };
        self.remove_holders(|hold| {
            if over(hold.lease, hold.expires_ms()) {
                Some(Loss::Expired)
            } else if dead(hold.session) {
                Some(Loss::SessionDied)
            } else {
                None
            }
        });
        // Who is promised the lock may be inside already, and lives by its session until its turn.
        let heir = self.record.heir.map(|heir| heir.lease);
        self.remove_waiters(|wait| {
            let over = Some(wait.lease) != heir && over(wait.lease, wait.expires_ms());
            over.then_some(Loss::Expired)
        });
    }

    fn remove_holders(&mut self, loss: impl Fn(&Hold) -> Option<Loss>) {
        let mut index = 0;
        while index < self.record.holders.len() {
            match loss(&self.record.holders[index]) {
                Some(loss) => {
                    let hold = self.record.holders.remove(index);
                    self.bury(hold, loss);
                }
                None => index += 1,
            }
        }
    }

    fn remove_waiters(&mut self, loss: impl Fn(&Wait) -> Option<Loss>) {
        let mut index = 0;
        while index < self.record.waiters.len() {
            match loss(&self.record.waiters[index]) {
                Some(loss) => {
                    let wait = self.record.waiters.remove(index);
                    self.bury(wait.into_hold(Fence::ZERO), loss);
                }
                None => index += 1,
            }
        }
    }

    /// Remembers why a lease is gone, so that its owner can be told. A waiter has no fence.
    fn bury(&mut self, hold: Hold, loss: Loss) {
        self.changed = true;
        if self.record.gone.len() == MAX_GONE {
            // Who released knows it; who was robbed does not. Forget the former first.
            let released = self.record.gone.iter().position(|gone| gone.loss == Loss::Released);
            self.record.gone.remove(released.unwrap_or(0));
        }
        self.record.gone.push(Gone { lease: hold.lease, loss: loss.clone() });
        let after_ms = self.context.now_ms.saturating_sub(hold.renewed_ms);
        self.events.push(hold.event(EventKind::Gone(loss), after_ms));
    }

    // ---- commands ---------------------------------------------------------------------------

    fn acquire(&mut self, acquire: &Acquire) -> Outcome {
        if self.record.holders.iter().any(|hold| hold.lease == acquire.lease) {
            // A repeated request, or a waiter that was granted meanwhile. Its end is not moved:
            // the caller counts from an earlier request. An upgrade that became possible just
            // now is part of the answer.
            self.promote();
            let mut outcome = self.outcome_of_waiting(acquire.lease);
            if let Outcome::Granted(grant) = &mut outcome
                && mutant!("repeat_takes_new_fence")
            {
                grant.fence = self.next_fence().unwrap_or(grant.fence);
            }
            return outcome;
        }
        let waits = self.record.waiters.iter().any(|wait| wait.lease == acquire.lease);
        if !waits {
            if let Some(loss) = self.record.gone_reason(acquire.lease)
                && !mutant!("gone_is_granted_again")
            {
                self.promote();
                return Outcome::Gone(loss);
            }
            if let Err(refusal) = self.admit(acquire) {
                self.promote();
                return Outcome::Refused(refusal);
            }
        }
        self.push_aside(acquire);
        if waits {
            self.promote();
            return self.outcome_of_waiting(acquire.lease);
        }
        let (changed, events) = (self.changed, self.events.len());
        self.enqueue(acquire);
        self.promote();
        let place = self.record.waiters.iter().position(|wait| wait.lease == acquire.lease);
        match place {
            Some(place) if !acquire.queue => {
                // It only tried, so it leaves no trace: nothing to write.
                self.record.waiters.remove(place);
                self.record.tickets -= 1;
                self.changed = changed || self.events.len() > events;
                Outcome::Held
            }
            _ => self.outcome_of_waiting(acquire.lease),
        }
    }

    /// Whether the request can be served at all, now or later.
    fn admit(&mut self, acquire: &Acquire) -> Result<(), Refusal> {
        if acquire.queue && self.record.waiters.len() >= self.context.max_waiters {
            return Err(Refusal::QueueFull);
        }
        let Mode::Permits { count, of } = acquire.mode else {
            return Ok(());
        };
        if count == 0 || count > of {
            return Err(Refusal::BadPermits);
        }
        match self.record.limit {
            Some(stored) if stored != of && !acquire.resize => {
                Err(Refusal::LimitMismatch { stored })
            }
            Some(stored) if stored == of => Ok(()),
            _ => {
                self.set_limit(of);
                Ok(())
            }
        }
    }

    /// Stores the number of permits. Holders above a lowered number drain; waiters that could
    /// never be granted would block the queue for ever and are told.
    fn set_limit(&mut self, of: u32) {
        self.record.limit = Some(of);
        self.changed = true;
        self.remove_waiters(|wait| {
            (permits_of(wait.mode) > u64::from(of)).then_some(Loss::LimitLowered)
        });
    }

    /// Takes stale or forced holders out of the way: all that are in the way, or none.
    fn push_aside(&mut self, acquire: &Acquire) {
        let now = self.context.now_ms;
        let version = self.record.version;
        let may_go = |hold: &Hold| match acquire.steal {
            Steal::No => false,
            Steal::Overdue { after_ms } => {
                now.saturating_sub(hold.renewed_ms) >= after_ms.max(hold.patience_ms())
            }
            Steal::Seen { version: seen } => seen == version || mutant!("steal_without_compare"),
            Steal::Force => true,
        };
        let in_the_way = |hold: &Hold| !coexist(hold.mode, acquire.mode) || hold.upgrading;
        let mut blockers = self.record.holders.iter().filter(|hold| in_the_way(hold));
        if acquire.steal == Steal::No || !blockers.all(may_go) {
            return;
        }
        let before = self.events.len();
        let forced = acquire.steal == Steal::Force;
        let stolen = || Loss::Stolen { by: acquire.holder.worker_id.clone(), forced };
        if forced
            && !mutant!("force_spares_heir")
            && let Some(heir) = self.record.heir.take()
        {
            // It may be inside: its predecessor lets it in before that is written here.
            self.remove_waiters(|wait| (wait.lease == heir.lease).then(stolen));
        }
        self.remove_holders(|hold| in_the_way(hold).then(stolen));
        // Permit holders leave one by one, oldest first, until there is room.
        while !self.has_room_for(acquire.mode)
            && let Some(oldest) =
                self.record.holders.iter().filter(|hold| may_go(hold)).map(|hold| hold.fence).min()
        {
            self.remove_holders(|hold| (hold.fence == oldest).then(stolen));
        }
        self.thief = (self.events.len() > before).then_some(acquire.lease);
    }

    fn enqueue(&mut self, acquire: &Acquire) {
        let forced = acquire.steal == Steal::Force;
        let wait = Wait {
            lease: acquire.lease,
            session: acquire.session,
            party: acquire.party,
            mode: acquire.mode,
            ttl_ms: acquire.ttl_ms,
            renewed_ms: self.context.now_ms,
            // Force goes past the queue: as if it had been there long before everybody.
            arrived_ms: if forced { 0 } else { self.context.now_ms },
            priority: match acquire.priority {
                _ if forced => i8::MAX,
                _ if mutant!("priority_ignored") => 0,
                priority => priority,
            },
            ticket: self.record.tickets,
            fixed: acquire.fixed,
            holder: acquire.holder.clone(),
        };
        self.record.tickets += 1;
        let place = self.record.waiters.partition_point(|other| other.order() < wait.order());
        self.record.waiters.insert(place, wait);
        self.changed = true;
    }

    /// What became of a lease that is, or just was, in the queue.
    fn outcome_of_waiting(&self, lease: LeaseId) -> Outcome {
        if let Some(hold) = self.record.holders.iter().find(|hold| hold.lease == lease) {
            return Outcome::Granted(hold.grant());
        }
        match self.record.waiters.iter().position(|wait| wait.lease == lease) {
            Some(ahead) => Outcome::Queued { ahead },
            None => Outcome::Gone(self.record.loss_of(lease)),
        }
    }

    fn renew(&mut self, lease: LeaseId, ttl_ms: u64, rebind: Option<Option<SessionId>>) -> Outcome {
        let now = self.context.now_ms;
        if mutant!("renew_revives")
            && let Some(place) = self.record.gone.iter().position(|gone| gone.lease == lease)
        {
            self.record.gone.remove(place);
            self.revive(lease, ttl_ms);
        }
        if let Some(hold) = self.record.holders.iter_mut().find(|hold| hold.lease == lease) {
            // A ticket may have been copied: it is good for the first who comes, who may ask again.
            if let (Some(Some(asker)), Some(owner)) = (rebind, hold.session)
                && asker != owner
                && !mutant!("ticket_adopted_twice")
            {
                self.promote();
                return Outcome::Gone(Loss::Adopted);
            }
            // One that was overtaken in the network asks for less than was granted since: the end
            // of a lease only moves forward, and who wants to end it releases it.
            let least = if mutant!("renewal_shortens") { 0 } else { hold.left_ms(self.context) };
            hold.ttl_ms = ttl_ms.max(least);
            hold.renewed_ms = now;
            if let Some(session) = rebind {
                hold.session = session;
                // Who takes it over renews it; until then nobody does.
                hold.fixed = session.is_none();
            }
            if rebind == Some(None) {
                // Given away: from now on it does not belong to the one who acquired it, who may
                // well wait for it.
                hold.party = PartyId::from_u128(lease.as_u128());
            }
            self.changed = true;
        } else if let Some(wait) = self.record.waiters.iter_mut().find(|wait| wait.lease == lease) {
            wait.renewed_ms = now;
            self.changed = true;
        }
        self.promote();
        self.outcome_of_waiting(lease)
    }

    /// Only reached by the mutant `renew_revives`.
    fn revive(&mut self, lease: LeaseId, ttl_ms: u64) {
        self.record.holders.push(Hold {
            lease,
            session: None,
            party: PartyId::from_u128(lease.as_u128()),
            mode: Mode::Exclusive,
            fence: self.record.fence,
            ttl_ms,
            renewed_ms: self.context.now_ms,
            upgrading: false,
            fixed: false,
            took_over: false,
            holder: crate::holder::Holder::default(),
        });
    }

    fn convert(&mut self, lease: LeaseId, fence: Fence, to: Mode, queue: bool) -> Outcome {
        let Some(index) = self.record.holders.iter().position(|hold| hold.lease == lease) else {
            self.promote();
            return Outcome::Gone(self.record.loss_of(lease));
        };
        let Hold { mode: from, fence: has, .. } = self.record.holders[index];
        let outcome = match (from, to) {
            // It comes from before another conversion: its sender is told what is held.
            _ if has != fence && !mutant!("convert_any_fence") => None,
            (from, to) if from == to && !matches!(to, Mode::Permits { .. }) => None,
            (Mode::Exclusive, Mode::Upgradable | Mode::Shared)
            | (Mode::Upgradable, Mode::Shared) => {
                self.record.holders[index].mode = to;
                self.record.holders[index].upgrading = false;
                self.changed = true;
                None
            }
            (Mode::Upgradable, Mode::Exclusive) if queue || self.record.holders.len() == 1 => {
                self.changed |= !self.record.holders[index].upgrading;
                self.record.holders[index].upgrading = true;
                None
            }
            // Two readers that both waited to be alone would wait for ever, so a plain reader
            // is upgraded at once or not at all.
            (Mode::Shared, Mode::Exclusive) if self.record.holders.len() == 1 => {
                self.record.holders[index].upgrading = true;
                self.changed = true;
                None
            }
            (Mode::Upgradable | Mode::Shared, Mode::Exclusive) => Some(Outcome::Held),
            _ => Some(Outcome::Refused(Refusal::BadConversion { from })),
        };
        self.promote();
        outcome.unwrap_or_else(|| self.outcome_of_converting(lease))
    }

    fn outcome_of_converting(&self, lease: LeaseId) -> Outcome {
        match self.record.holders.iter().find(|hold| hold.lease == lease) {
            Some(hold) if hold.upgrading => Outcome::Queued { ahead: 0 },
            Some(hold) => Outcome::Granted(hold.grant()),
            None => Outcome::Gone(self.record.loss_of(lease)),
        }
    }

    fn release(&mut self, lease: LeaseId) -> Outcome {
        let before = self.record.holders.len() + self.record.waiters.len();
        let mine = |other: LeaseId| other == lease || mutant!("blind_release");
        self.remove_holders(|hold| mine(hold.lease).then_some(Loss::Released));
        self.remove_waiters(|wait| (wait.lease == lease).then_some(Loss::Released));
        let freed = self.record.holders.len() + self.record.waiters.len() < before;
        if !(freed && mutant!("release_forgets_waiters")) {
            self.promote();
        }
        if freed { Outcome::Done } else { Outcome::Gone(self.record.loss_of(lease)) }
    }

    fn withdraw(&mut self, lease: LeaseId) -> Outcome {
        self.remove_waiters(|wait| (wait.lease == lease).then_some(Loss::Released));
        for hold in &mut self.record.holders {
            if hold.lease == lease && hold.upgrading {
                hold.upgrading = false;
                self.changed = true;
            }
        }
        self.promote();
        Outcome::Done
    }

    fn evict(&mut self, fence: Fence, by: &str, reason: &str) -> Outcome {
        let meant = |hold: &Hold| hold.fence == fence || mutant!("evict_any_fence");
        let broken: Vec<_> =
            self.record.holders.iter().filter(|h| meant(h)).map(|h| h.holder.clone()).collect();
        self.remove_holders(|hold| {
            let loss = || Loss::Broken { by: by.to_owned(), reason: reason.to_owned(), fence };
            meant(hold).then(loss)
        });
        self.promote();
        Outcome::Evicted(broken)
    }

    // ---- promote ----------------------------------------------------------------------------

    /// Grants the pending upgrade, else the waiters from the front, until one has to wait on.
    fn promote(&mut self) {
        loop {
            if let Some(index) = self.record.holders.iter().position(|hold| hold.upgrading) {
                // The upgrade keeps everybody else out until the readers have left.
                let alone = self.record.holders.len() == 1 || mutant!("upgrade_ignores_readers");
                if !alone || !self.grant_upgrade(index) {
                    return;
                }
                continue;
            }
            if self.record.holders.iter().any(|hold| hold.mode == Mode::Exclusive) {
                // Nobody can be granted, so nobody need be asked whether it is alive.
                return;
            }
            let Some(head) = self.next_in_line() else {
                return;
            };
            let (session, mode) =
                (self.record.waiters[head].session, self.record.waiters[head].mode);
            let dead = session.is_some_and(|id| (self.context.is_dead)(id));
            if dead && !mutant!("grant_to_dead_waiter") {
                let wait = self.record.waiters.remove(head);
                self.bury(wait.into_hold(Fence::ZERO), Loss::SessionDied);
                continue;
            }
            if !self.has_room_for(mode) || !self.grant(head) {
                return;
            }
        }
    }

    fn next_in_line(&self) -> Option<usize> {
        if mutant!("reader_barges") {
            let reader = |wait: &Wait| wait.mode == Mode::Shared && self.has_room_for(Mode::Shared);
            if let Some(reader) = self.record.waiters.iter().position(reader) {
                return Some(reader);
            }
        }
        let promised = |wait: &Wait| self.record.heir.is_some_and(|heir| heir.lease == wait.lease);
        let heir = self.record.waiters.iter().position(promised);
        heir.filter(|_| !mutant!("promise_ignored"))
            .or((!self.record.waiters.is_empty()).then_some(0))
    }

    fn has_room_for(&self, mode: Mode) -> bool {
        let others_fit = self.record.holders.iter().all(|hold| coexist(hold.mode, mode));
        let taken: u64 = self.record.holders.iter().map(|hold| permits_of(hold.mode)).sum();
        let slack = u64::from(mutant!("permits_overgrant"));
        let limit = u64::from(self.record.limit.unwrap_or(0)) + slack;
        let wanted = permits_of(mode);
        others_fit && (wanted == 0 || taken + wanted <= limit)
    }

    fn grant(&mut self, index: usize) -> bool {
        let lease = self.record.waiters[index].lease;
        // A promised fence is good as long as it is the last one: an upgrade may have had another.
        let promised = self.record.heir.filter(|heir| heir.lease == lease).map(|heir| heir.fence);
        let fence = if promised == Some(self.record.fence) {
            promised
        } else if self.record.waiters[index].mode.takes_new_fence()
            || self.record.fence == Fence::ZERO
        {
            self.next_fence()
        } else {
            Some(self.record.fence)
        };
        let Some(fence) = fence else { return false };
        let wait = self.record.waiters.remove(index);
        let now = self.context.now_ms;
        let forced = wait.priority == i8::MAX;
        self.let_in = Some(wait.priority);
        let waited_ms = if forced { 0 } else { now.saturating_sub(wait.arrived_ms) };
        let took_over = self.thief == Some(wait.lease);
        let hold = Hold { renewed_ms: now, took_over, ..wait.into_hold(fence) };
        self.events.push(hold.clone().event(EventKind::Granted, waited_ms));
        self.record.holders.push(hold);
        self.changed = true;
        true
    }

    fn grant_upgrade(&mut self, index: usize) -> bool {
        let Some(fence) = self.next_fence() else {
            return false;
        };
        let hold = &mut self.record.holders[index];
        hold.mode = Mode::Exclusive;
        hold.upgrading = false;
        hold.fence = fence;
        self.events.push(hold.clone().event(EventKind::Granted, 0));
        self.changed = true;
        true
    }

    fn next_fence(&mut self) -> Option<Fence> {
        if mutant!("fence_not_bumped") && self.record.fence > Fence::ZERO {
            return Some(self.record.fence);
        }
        match self.record.fence.after(self.context.fence_floor) {
            Some(fence) => {
                self.record.fence = fence;
                Some(fence)
            }
            None => {
                self.exhausted = true;
                None
            }
        }
    }
}

impl Wait {
    /// What the waiter would hold, with its last sign of life as it is.
    fn into_hold(self, fence: Fence) -> Hold {
        Hold {
            lease: self.lease,
            session: self.session,
            party: self.party,
            mode: self.mode,
            fence,
            ttl_ms: self.ttl_ms,
            renewed_ms: self.renewed_ms,
            upgrading: false,
            fixed: self.fixed,
            took_over: false,
            holder: self.holder,
        }
    }
}

impl Hold {
    fn event(self, kind: EventKind, after_ms: u64) -> Event {
        Event {
            kind,
            lease: self.lease,
            session: self.session,
            fence: self.fence,
            mode: self.mode,
            holder: self.holder,
            after_ms,
        }
    }
}

/// Whether two leases in these modes may be held at once, permits left aside.
const fn coexist(held: Mode, asked: Mode) -> bool {
    matches!(
        (held, asked),
        (Mode::Shared, Mode::Shared | Mode::Upgradable)
            | (Mode::Upgradable, Mode::Shared)
            | (Mode::Permits { .. }, Mode::Permits { .. })
    )
}
