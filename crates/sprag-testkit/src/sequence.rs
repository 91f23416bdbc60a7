//! [`Sequence`]: random commands and what the machine makes of them, for stores that have a port of
//! it. The same commands at the same times must give the same answers, events and record there.

use fastrand::Rng;
use sprag_core::record::wire::{self, Answer};
use sprag_core::record::{Acquire, Applied, Command, Event, Record, Steal, apply};
use sprag_core::{Fence, Holder, LeaseId, Mode, PartyId, SessionId, TaskInfo};

const LONGEST: usize = 10;
const TTL: u64 = 1000;
const MAX_WAITERS: usize = 3;
/// Far ahead of the clock of any server, so that nothing ends by itself meanwhile.
const START_US: u64 = 4_000_000_000_000_000;

/// What a sequence is about, so that rare states are reached within a few commands.
#[derive(Clone, Copy)]
enum Theme {
    Anything,
    Readers,
    Permits,
}

fn any_mode(random: &mut Rng, theme: Theme) -> Mode {
    let kinds = match theme {
        Theme::Anything => 0..6,
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

fn any_command(random: &mut Rng, theme: Theme, record: &Record, now_ms: u64) -> Command {
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
            Command::Convert { lease, to: any_mode(random, theme), queue: random.bool() }
        }
        11 => {
            let held = record.holders.first().map_or(record.fence, |hold| hold.fence);
            let fence = if random.bool() { held } else { Fence::ZERO };
            Command::Evict { fence, by: "ops".into(), reason: "why".into() }
        }
        _ => Command::Reap,
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
        let theme = *random
            .choice(&[Theme::Anything, Theme::Readers, Theme::Permits])
            .unwrap_or(&Theme::Anything);
        let mut record = Record::default();
        let mut now_us = START_US;
        let (mut commands, mut times_us, mut applied) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..random.usize(1..=LONGEST) {
            now_us += match random.u32(..8) {
                0 => random.u64(..30_000_000),
                1 | 2 => random.u64(..400_000),
                _ => random.u64(..2_000),
            };
            let command = any_command(random, theme, &record, now_us / 1000);
            let step = apply(record, &command, &wire::clock_only(now_us, MAX_WAITERS));
            record = step.record.clone();
            commands.push(command);
            times_us.push(now_us);
            applied.push(step);
        }
        Self { commands, times_us, applied }
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
        let told = || format!("{:#?}", self.commands);
        assert_eq!(answers.len(), self.applied.len());
        for (answer, step) in answers.iter().zip(&self.applied) {
            let answer = Answer::read(answer).unwrap_or_else(|e| panic!("{e}: {answer}"));
            assert_eq!(answer.outcome, step.outcome, "{}", told());
        }
        assert_eq!(left, self.left(), "{}", told());
        let read = |event: &String| Event::read(event).unwrap_or_else(|e| panic!("{e}: {event}"));
        let events: Vec<_> = events.iter().map(read).collect();
        let expected = self.applied.iter().flat_map(|step| step.events.clone());
        let expected: Vec<_> = expected.filter(|event| event.fence > Fence::ZERO).collect();
        assert_eq!(events, expected, "{}", told());
    }

    /// The record that the machine left.
    pub fn left(&self) -> &Record {
        &self.applied[self.applied.len() - 1].record
    }
}
