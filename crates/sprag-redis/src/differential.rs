//! The script against [`record::apply`](sprag_core::record::apply): the same random commands, at
//! the same times, must give the same answers, events and state.

use fastrand::Rng;
use redis::{Client, ConnectionAddr, IntoConnectionInfo, Pipeline};
use sprag_core::record::{Acquire, Applied, Command, Event, Record, Steal, Wait, apply};
use sprag_core::{Fence, Holder, LeaseId, Mode, PartyId, SessionId, TaskInfo};
use sprag_testkit::redis_server::RedisServer;

use crate::script::LOCK;
use crate::trail::Written;
use crate::wire::{self, Answer, Reply};

const SEQUENCES: usize = 100_000;
/// Sequences per round trip.
const BATCH: usize = 500;
const LONGEST: usize = 10;
const TTL: u64 = 1000;
const MAX_WAITERS: usize = 3;
/// Far ahead of the server's clock, so that no key ends by itself meanwhile.
const START_US: u64 = 4_000_000_000_000_000;

/// Runs a whole sequence in one call, at times that are given, and tells what is left.
const RUN: &str = "
local function step(KEYS, ARGV)
  @LOCK@
end
local replies = {}
for i = 1, #ARGV, 3 do
  replies[#replies + 1] = step(KEYS, { ARGV[i], 'name', 'channel', ARGV[i + 1], ARGV[i + 2] })
end
local waiters, events = {}, {}
for i, member in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  waiters[i] = redis.call('HGET', KEYS[3], string.sub(member, 18))
end
for i, entry in ipairs(redis.call('XRANGE', KEYS[7], '-', '+')) do
  events[i] = entry[2][6]
end
local plain, record = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])
local patient = redis.call('ZCARD', KEYS[5])
local listed = redis.call('ZSCORE', KEYS[6], 'name') and 1 or 0
redis.call('DEL', unpack(KEYS))
return { replies, plain or '', record or '', waiters, events, patient, listed }
";

type Left = (Vec<String>, String, String, Vec<String>, Vec<String>, usize, usize);

fn script() -> String {
    let clock = "local time = redis.call('TIME')";
    assert!(LOCK.contains(clock), "the script reads its clock in another way");
    RUN.replace("@LOCK@", &LOCK.replace(clock, "local time = { ARGV[4], ARGV[5] }"))
}

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

/// A sequence, and what the machine makes of it.
struct Sequence {
    arguments: Vec<String>,
    commands: Vec<Command>,
    applied: Vec<Applied>,
}

fn any_sequence(random: &mut Rng) -> Sequence {
    let theme = *random.choice(&[Theme::Anything, Theme::Readers, Theme::Permits]).unwrap();
    let mut record = Record::default();
    let mut now_us = START_US;
    let (mut arguments, mut commands, mut applied) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..random.usize(1..=LONGEST) {
        now_us += match random.u32(..8) {
            0 => random.u64(..30_000_000),
            1 | 2 => random.u64(..400_000),
            _ => random.u64(..2_000),
        };
        let command = any_command(random, theme, &record, now_us / 1000);
        let step = apply(record, &command, &wire::context(now_us, MAX_WAITERS));
        record = step.record.clone();
        let (seconds, micros) = (now_us / 1_000_000, now_us % 1_000_000);
        arguments.push(wire::write(&command, MAX_WAITERS));
        arguments.extend([seconds.to_string(), micros.to_string()]);
        commands.push(command);
        applied.push(step);
    }
    Sequence { arguments, commands, applied }
}

fn compare(sequence: &Sequence, left: Left) {
    let (replies, plain, record, waiters, events, patient, listed) = left;
    let told = || format!("{:#?}", sequence.commands);
    assert_eq!(replies.len(), sequence.applied.len());
    for (reply, step) in replies.iter().zip(&sequence.applied) {
        let reply: Reply = serde_json::from_str(reply).unwrap();
        let answer = Answer::from(reply);
        assert_eq!(answer.outcome, step.outcome, "{}", told());
    }
    let mut expected = sequence.applied.last().unwrap().record.clone();
    let mut found =
        if record.is_empty() { Record::default() } else { Record::from_json(&record).unwrap() };
    found.waiters = waiters.iter().map(|wait| Wait::from_json(wait).unwrap()).collect();
    assert_eq!(found, expected, "{}", told());
    assert_eq!((patient, listed == 1), (expected.waiters.len(), !expected.is_free()), "{}", told());
    let mirror = expected.holders.pop().map(|hold| match hold.mode {
        Mode::Exclusive => hold.lease.to_string(),
        _ => "sprag:shared".into(),
    });
    assert_eq!(plain, mirror.unwrap_or_default(), "{}", told());
    let read = |event: &String| Event::from(serde_json::from_str::<Written>(event).unwrap());
    let events: Vec<_> = events.iter().map(read).collect();
    let expected = sequence.applied.iter().flat_map(|step| step.events.clone());
    let expected: Vec<_> = expected.filter(|event| event.fence > Fence::ZERO).collect();
    assert_eq!(events, expected, "{}", told());
}

#[tokio::test]
async fn the_script_does_what_the_machine_does() {
    if RedisServer::skipped() {
        return;
    }
    let server = RedisServer::start(&[]).await;
    let address = ConnectionAddr::Unix(server.socket()).into_connection_info().unwrap();
    let mut connection = Client::open(address).unwrap().get_connection().unwrap();
    let load = redis::cmd("SCRIPT").arg("LOAD").arg(script()).to_owned();
    let digest: String = load.query(&mut connection).unwrap();
    let keys = ["k", "{k}:r", "{k}:w", "{k}:q", "{k}:x", "names", "trail", "counter"];
    let seed = fastrand::u64(..);
    let mut random = Rng::with_seed(seed);
    // Shown if it fails.
    println!("seed {seed}");
    for _ in 0..SEQUENCES / BATCH {
        let sequences: Vec<_> = (0..BATCH).map(|_| any_sequence(&mut random)).collect();
        let mut batch = Pipeline::new();
        for sequence in &sequences {
            let call = batch.cmd("EVALSHA").arg(&digest).arg(keys.len()).arg(&keys);
            call.arg(&sequence.arguments);
        }
        let answers: Vec<Left> = batch.query(&mut connection).unwrap();
        for (sequence, left) in sequences.iter().zip(answers) {
            compare(sequence, left);
        }
    }
}
