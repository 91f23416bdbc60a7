//! [`Sequence`]: random commands and what the machine makes of them, for stores that have a port of
//! it. The same commands at the same times must give the same answers, events and record there.

use fastrand::Rng;
use sprag_core::record::wire::{self, Answer};
use sprag_core::record::{
    Acquire, Applied, Command, Event, EventKind, Outcome, Record, Steal, apply,
};
use sprag_core::{Fence, Holder, LeaseId, Loss, Mode, PartyId, SessionId, TaskInfo};

const LONGEST: usize = 10;
/// So many turns make the machine forget leases that were given back.
const MOST_TURNS: usize = 24;
const TTL: u64 = 1000;
/// How many waiters the machine is told to take.
pub const MAX_WAITERS: usize = 3;
/// Far ahead of the clock of any server, so that nothing ends by itself meanwhile.
const START_US: u64 = 4_000_000_000_000_000;

/// What a sequence is about, so that rare states are reached within a few commands.
#[derive(Clone, Copy)]
enum Theme {
    Anything,
    /// Exclusive, one after the other: what stores have short ways for.
    Turns,
    /// Exclusive, with a queue that is seldom empty: what stores make promises for.
    Crowd,
    Readers,
    Permits,
}

fn any_mode(random: &mut Rng, theme: Theme) -> Mode {
    let kinds = match theme {
        Theme::Anything => 0..6,
        Theme::Turns | Theme::Crowd => 0..2,
        Theme::Readers => 1..5,
        Theme::Permits => 5..6,
    };
    match random.u32(kinds) {
        0 | 1 => Mode::Exclusive,
        2 => Mode::Shared,
        3 | 4 => Mode::Upgradable,
        _ => Mode::Permits { count: random.u32(..3), of: random.u32(1..4) },
    }
}

fn any_ttl(random: &mut Rng) -> u64 {
    let longest = if random.bool() { TTL } else { 100 * TTL };
    random.u64(1..=longest)
}

fn any_acquire(
    random: &mut Rng,
    theme: Theme,
    lease: u128,
    record: &Record,
    now_ms: u64,
) -> Acquire {
    let task = TaskInfo { complexity: Some(random.u32(..9)), ..TaskInfo::default() };
    let mut holder = Holder::new(format!("w/{lease} \"ä\""), "n");
    holder.task_info = random.bool().then_some(task);
    Acquire {
        lease: LeaseId::from_u128(lease),
        session: random.bool().then(|| SessionId::from_u128(lease)),
        party: PartyId::from_u128(lease),
        mode: any_mode(random, theme),
        ttl_ms: any_ttl(random),
        queue: random.u8(..4) > 0,
        priority: random.i8(-8..=8),
        holder,
        fixed: random.bool(),
        steal: match random.u32(..12) {
            0 => Steal::Overdue { after_ms: random.u64(..TTL) },
            1 => Steal::Seen {
                version: record.version - u64::from(random.bool()).min(record.version),
            },
            2 => Steal::Force,
            _ => Steal::No,
        },
        resize: random.bool(),
        not_after_ms: random.bool().then(|| now_ms + random.u64(..3) - 1),
    }
}

/// A command of [`Theme::Turns`].
fn any_turn(random: &mut Rng, record: &Record, now_ms: u64) -> Command {
    let holder = record.holders.first().map(|hold| hold.lease);
    let number = u128::from(random.u32(1..60));
    match (holder, random.u32(..20)) {
        (_, ..4) | (None, _) => {
            let mut acquire = any_acquire(random, Theme::Turns, number, record, now_ms);
            if random.u8(..4) > 0 {
                (acquire.steal, acquire.not_after_ms) = (Steal::No, None);
            }
            Command::Acquire(Box::new(acquire))
        }
        (Some(lease), 4..7) => Command::Renew { lease, ttl_ms: any_ttl(random), rebind: None },
        (Some(_), 7) => any_command(random, Theme::Anything, record, now_ms),
        (Some(_), 8) => Command::Release { lease: LeaseId::from_u128(number) },
        (Some(lease), _) => Command::Release { lease },
    }
}

/// A command of [`Theme::Crowd`].
fn any_of_crowd(random: &mut Rng, record: &Record, now_ms: u64) -> Command {
    let Some(hold) = record.holders.first() else { return any_comer(random, record, now_ms) };
    let (lease, fence) = (hold.lease, hold.fence);
    let waits = record.waiters.get(random.usize(..3)).map_or(lease, |wait| wait.lease);
    // Most of what is odd comes when there is an heir to whom it matters.
    let odd = if record.heir.is_some() { 26 } else { 17 };
    match random.u32(..odd) {
        ..9 => any_comer(random, record, now_ms),
        9..16 => Command::Release { lease },
        16 => Command::Renew { lease, ttl_ms: any_ttl(random), rebind: None },
        17 => Command::Renew { lease: waits, ttl_ms: any_ttl(random), rebind: None },
        18 => Command::Release { lease: waits },
        19 => Command::Withdraw { lease: waits },
        20 => {
            let (to, queue) = (any_mode(random, Theme::Readers), random.bool());
            Command::Convert { lease, fence, to, queue }
        }
        21 => Command::Evict { fence, by: "ops".into(), reason: "why".into() },
        22..25 => {
            let number = u128::from(random.u32(1..60));
            let mut acquire = any_acquire(random, Theme::Crowd, number, record, now_ms);
            (acquire.steal, acquire.not_after_ms) = (Steal::No, None);
            match random.u8(..3) {
                0 => acquire.steal = Steal::Force,
                1 => (acquire.queue, acquire.priority) = (true, 8),
                // Whoever waits asks now and then.
                _ => (acquire.queue, acquire.lease) = (true, waits),
            }
            Command::Acquire(Box::new(acquire))
        }
        _ => any_command(random, Theme::Anything, record, now_ms),
    }
}

/// Somebody who wants the lock for itself, and is mostly like the others.
fn any_comer(random: &mut Rng, record: &Record, now_ms: u64) -> Command {
    // Of one session, where there are three.
    let number = if random.u8(..8) > 0 { 3 * random.u32(1..30) } else { random.u32(1..90) };
    let mut acquire = any_acquire(random, Theme::Crowd, number.into(), record, now_ms);
    let mut mostly = || random.u8(..8) > 0;
    acquire.queue |= mostly();
    if mostly() {
        (acquire.steal, acquire.not_after_ms) = (Steal::No, None);
    }
    if mostly() {
        acquire.priority = 0;
    }
    if mostly() {
        acquire.session = Some(SessionId::from_u128(number.into()));
    }
    if mostly() {
        acquire.ttl_ms = 1_000 * TTL;
    }
    Command::Acquire(Box::new(acquire))
}

fn any_command(random: &mut Rng, theme: Theme, record: &Record, now_ms: u64) -> Command {
    match theme {
        Theme::Turns => return any_turn(random, record, now_ms),
        Theme::Crowd => return any_of_crowd(random, record, now_ms),
        Theme::Anything | Theme::Readers | Theme::Permits => {}
    }
    let leases = if matches!(theme, Theme::Readers) { 4 } else { 7 };
    let number = u128::from(random.u32(1..leases));
    let lease = LeaseId::from_u128(number);
    match random.u32(..15) {
        0..5 => Command::Acquire(Box::new(any_acquire(random, theme, number, record, now_ms))),
        5 | 6 => {
            let session = random.bool().then(|| SessionId::from_u128(9));
            let rebind = (random.u8(..4) == 0).then_some(session);
            Command::Renew { lease, ttl_ms: any_ttl(random), rebind }
        }
        7 | 8 => Command::Release { lease },
        9 => Command::Withdraw { lease },
        10 | 13 | 14 => {
            let hold = record.holders.iter().find(|hold| hold.lease == lease);
            let believed = hold.filter(|_| random.u8(..4) > 0).map_or(record.fence, |it| it.fence);
            let (to, queue) = (any_mode(random, theme), random.bool());
            Command::Convert { lease, fence: believed, to, queue }
        }
        11 => {
            let held = record.holders.first().map_or(record.fence, |hold| hold.fence);
            let fence = if random.bool() { held } else { Fence::ZERO };
            Command::Evict { fence, by: "ops".into(), reason: "why".into() }
        }
        _ => Command::Reap,
    }
}

/// Lets a command come from its session. Of several, none ends what another has: that takes more than
/// one command there.
fn give_session(command: &mut Command, sessions: &[SessionId]) {
    let session = sessions[Sequence::session_of(command, sessions.len())];
    let several = sessions.len() > 1;
    match command {
        Command::Acquire(acquire) => {
            acquire.session = Some(session);
            if several {
                (acquire.steal, acquire.ttl_ms) = (Steal::No, 1_000_000 * TTL);
            }
        }
        Command::Renew { ttl_ms, rebind, .. } if several => {
            (*ttl_ms, *rebind) = (1_000_000 * TTL, None);
        }
        Command::Renew { rebind: Some(to), .. } => *to = Some(session),
        Command::Evict { .. } if several => *command = Command::Reap,
        _ => {}
    }
}

/// Commands for one lock, one after the other, and what the machine makes of them.
#[derive(Debug)]
pub struct Sequence {
    /// The commands.
    pub commands: Vec<Command>,
    /// When each is applied, in microseconds on the store's clock.
    pub times_us: Vec<u64>,
    /// What the machine makes of each.
    pub applied: Vec<Applied>,
}

impl Sequence {
    /// A random one, with what is rare made frequent.
    pub fn random(random: &mut Rng) -> Self {
        Self::any(random, true, None, None)
    }

    /// A random one for a port that keeps no versions, because nobody can come between its steps, and
    /// that lets the next in line of a process in before that is written: each
    /// release that hands the lock over also promises it, where the process of who was let in is also
    /// that of who comes next. `process_of` tells that of a lease.
    pub fn promising(random: &mut Rng, process_of: fn(LeaseId) -> u128) -> Self {
        Self::any(random, false, None, Some(process_of))
    }

    /// A random one for a port whose clients all have this session.
    pub fn of_session(random: &mut Rng, session: SessionId) -> Self {
        Self::any(random, true, Some(&[session]), None)
    }

    /// A random one for a port whose clients have one of these sessions each, as
    /// [`session_of`](Self::session_of) says, in which nobody is pushed aside and no time is over.
    pub fn of_sessions(random: &mut Rng, sessions: &[SessionId]) -> Self {
        Self::any(random, true, Some(sessions), None)
    }

    /// The place of the session among so many that a command comes from.
    pub fn session_of(command: &Command, count: usize) -> usize {
        let lease = match command {
            Command::Acquire(acquire) => acquire.lease,
            Command::Renew { lease, .. }
            | Command::Convert { lease, .. }
            | Command::Release { lease }
            | Command::Withdraw { lease } => *lease,
            _ => LeaseId::from_u128(0),
        };
        usize::try_from(lease.as_u128()).unwrap_or(0) % count
    }

    fn any(
        random: &mut Rng,
        versions: bool,
        sessions: Option<&[SessionId]>,
        process_of: Option<fn(LeaseId) -> u128>,
    ) -> Self {
        use Theme::{Anything, Crowd, Permits, Readers, Turns};
        let theme =
            *random.choice(&[Anything, Turns, Crowd, Readers, Permits]).unwrap_or(&Anything);
        let turns = matches!(theme, Turns | Crowd);
        let longest = if turns { MOST_TURNS } else { LONGEST };
        let mut record = Record::default();
        let mut now_us = START_US;
        let (mut commands, mut times_us, mut applied) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..random.usize(1..=longest) {
            now_us += match random.u32(..8) {
                0 => random.u64(..30_000_000),
                1 | 2 => random.u64(..400_000),
                _ => random.u64(..2_000),
            };
            let mut command = any_command(random, theme, &record, now_us / 1000);
            if let Command::Acquire(acquire) = &mut command
                && matches!(acquire.steal, Steal::Seen { .. })
                && !versions
            {
                acquire.steal = Steal::No;
            }
            if let Some(sessions) = sessions {
                give_session(&mut command, sessions);
            }
            let mut step = apply(record, &command, &wire::clock_only(now_us, MAX_WAITERS));
            if matches!(command, Command::Release { .. }) {
                match process_of {
                    Some(process_of) => promise_within(&mut step, now_us, process_of),
                    // Likely, so that the commands that follow make sense. What the port did is told
                    // later.
                    None if versions => {
                        promise(&mut step, now_us);
                    }
                    None => {}
                }
            }
            record = step.record.clone();
            commands.push(command);
            times_us.push(now_us);
            applied.push(step);
        }
        Self { commands, times_us, applied }
    }

    /// Takes in after which commands the port promised the lock to who is next, which it need not
    /// whenever it could. Returns how many promises were kept, and how many taken back by force.
    ///
    /// # Panics
    ///
    /// If nothing could be promised then.
    pub fn promised(&mut self, after: &[bool]) -> (usize, usize) {
        let (mut kept, mut taken_back) = (0, 0);
        let mut record = Record::default();
        for (place, promised) in after.iter().enumerate() {
            let (command, now_us) = (&self.commands[place], self.times_us[place]);
            let heir = record.heir;
            let mut step = apply(record, command, &wire::clock_only(now_us, MAX_WAITERS));
            if let Some(heir) = heir {
                let was = |kind: &dyn Fn(&EventKind) -> bool| {
                    step.events.iter().any(|it| it.lease == heir.lease && kind(&it.kind))
                };
                kept += usize::from(was(&|kind| *kind == EventKind::Granted));
                let robbed = |kind: &EventKind| {
                    matches!(kind, EventKind::Gone(Loss::Stolen { forced: true, .. }))
                };
                taken_back += usize::from(was(&robbed));
            }
            if *promised {
                let done = promise(&mut step, now_us);
                assert!(done, "there was nothing to promise after {place} of {:#?}", self.commands);
            }
            record = step.record.clone();
            self.applied[place] = step;
        }
        (kept, taken_back)
    }

    /// The commands as a port reads them, with their times.
    pub fn written(&self) -> impl Iterator<Item = (String, u64)> {
        let commands = self.commands.iter().map(|command| wire::write(command, MAX_WAITERS));
        commands.zip(self.times_us.iter().copied())
    }

    /// Compares what a port answered, and the record that it left.
    ///
    /// # Panics
    ///
    /// If the port did anything else than the machine.
    pub fn compare(&self, answers: &[String], left: &Record, events: &[String]) {
        let read = |text: &String| Answer::read(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let outcomes: Vec<_> = answers.iter().map(|text| read(text).outcome).collect();
        let read = |event: &String| Event::read(event).unwrap_or_else(|e| panic!("{e}: {event}"));
        let events: Vec<_> = events.iter().map(read).collect();
        self.compare_read(&outcomes, left, &events);
    }

    /// The same, for a port with words of its own.
    ///
    /// # Panics
    ///
    /// If the port did anything else than the machine.
    pub fn compare_read(&self, outcomes: &[Outcome], left: &Record, events: &[Event]) {
        let told = || format!("{:#?}", self.commands);
        let expected: Vec<_> = self.applied.iter().map(|step| step.outcome.clone()).collect();
        assert_eq!(outcomes, expected, "{}", told());
        assert_eq!(sorted(left), sorted(self.left()), "{}", told());
        let expected = self.applied.iter().flat_map(|step| step.events.clone());
        let expected: Vec<_> = expected.filter(|event| event.fence > Fence::ZERO).collect();
        assert_eq!(events, expected, "{}", told());
    }

    /// The record that the machine left.
    pub fn left(&self) -> &Record {
        &self.applied[self.applied.len() - 1].record
    }
}

/// Promises the lock to the one who comes next, if somebody was let in.
fn promise(step: &mut Applied, now_us: u64) -> bool {
    step.let_in.is_some_and(|priority| step.record.promise(now_us, priority))
}

/// What a port does that lets the next in line of a process in before that is written.
fn promise_within(step: &mut Applied, now_us: u64, process_of: fn(LeaseId) -> u128) {
    let process = |lease: Option<LeaseId>| lease.map(process_of);
    let entered = process(step.record.holders.last().map(|hold| hold.lease));
    if entered == process(step.record.waiters.first().map(|wait| wait.lease)) {
        promise(step, now_us);
    }
}

/// Those that were given back first: they are forgotten before all others, so it does not matter
/// what stands between them.
fn sorted(record: &Record) -> Record {
    let mut record = record.clone();
    record.gone.sort_by_key(|gone| gone.loss != Loss::Released);
    record
}
