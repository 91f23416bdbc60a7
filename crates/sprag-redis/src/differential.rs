//! The script against [`record::apply`](sprag_core::record::apply): the same random commands, at
//! the same times, must give the same answers, events and state.

use fastrand::Rng;
use redis::{Client, ConnectionAddr, IntoConnectionInfo, Pipeline};
use sprag_core::record::{Applied, Command, Event, EventKind, Hold, Outcome, Record};
use sprag_core::{LeaseId, Loss, Mode};
use sprag_testkit::redis_server::RedisServer;
use sprag_testkit::sequence::{MAX_WAITERS, Sequence};
use sprag_testkit::support::sized;

use crate::script::{LOCK, LOOK};
use crate::trail::{Entry, Told};
use crate::wire::{self, Looked};

/// Sequences per round trip.
const BATCH: usize = 500;

/// Runs a whole sequence in one call, at times that are given, and tells what is left. Each command
/// is a time, how many words it has, and these.
const RUN: &str = "
local seconds, micros, millis
local function step(KEYS, ARGV)
  @LOCK@
end
local function look(KEYS, ARGV)
  @LOOK@
end
local function set_clock(us)
  seconds, micros, millis = math.floor(us / 1000000), us % 1000000, math.floor(us / 1000)
  -- What Redis does with a key whose time is over.
  local ends = redis.call('PEXPIRETIME', KEYS[1])
  if ends >= 0 and ends <= millis then
    redis.call('DEL', KEYS[1])
  end
end
local replies = {}
local at = 1
while ARGV[at] do
  set_clock(tonumber(ARGV[at]))
  local words = {}
  for i = 1, tonumber(ARGV[at + 1]) do
    words[i] = ARGV[at + 1 + i]
  end
  at = at + 2 + #words
  local reply = step(KEYS, words)
  if type(reply) == 'table' then
    return reply
  end
  replies[#replies + 1] = type(reply) == 'number' and string.format('%.0f', reply) or reply
end
local plain, ends = redis.call('GET', KEYS[1]) or '', redis.call('PEXPIRETIME', KEYS[1])
local left, events = look(KEYS, {}), redis.call('XRANGE', KEYS[6], '-', '+')
local patient = redis.call('ZRANGE', KEYS[5], 0, -1)
local listed = KEYS[7] and redis.call('ZSCORE', KEYS[7], 'name') and 1 or 0
redis.call('DEL', unpack(KEYS))
return { replies, { plain, ends }, left, events, { patient, listed } }
";

type Left = (Vec<String>, (String, i64), String, Vec<Entry>, (Vec<String>, usize));

/// The scripts with a clock that is set by hand.
fn script() -> String {
    let tame = |script: &str| {
        let mut script = script.to_owned();
        for (with, without) in [
            ("call('TIME')", "{ seconds, micros }"),
            ("'PX', ARGV[4])", "'PXAT', millis + ARGV[4])"),
            ("call('PEXPIRE', KEYS[1], ttl)", "call('PEXPIREAT', KEYS[1], millis + ttl)"),
            ("TRAIL, '*'", "TRAIL, string.format('%.0f-*', millis)"),
        ] {
            script = script.replace(with, without);
        }
        assert!(!["'TIME'", "'PX'", "'PEXPIRE'", "'*'"].iter().any(|word| script.contains(word)));
        script
    };
    RUN.replace("@LOCK@", &tame(LOCK)).replace("@LOOK@", &tame(LOOK))
}

/// Two processes have the leases.
fn process_of(lease: LeaseId) -> u128 {
    u128::from(lease.as_u128() % 4 == 3)
}

fn arguments(sequence: &Sequence) -> Vec<String> {
    let commands = sequence.commands.iter().zip(&sequence.times_us);
    let each = commands.flat_map(|(command, us)| {
        let process = asker(command).map_or(0, process_of);
        let words = wire::write(command, "name", MAX_WAITERS, &format!("channel{process}"));
        [us.to_string(), words.len().to_string()].into_iter().chain(words)
    });
    each.collect()
}

/// The lease that a command is about.
fn asker(command: &Command) -> Option<LeaseId> {
    match command {
        Command::Acquire(acquire) => Some(acquire.lease),
        Command::Renew { lease, .. }
        | Command::Convert { lease, .. }
        | Command::Release { lease }
        | Command::Withdraw { lease } => Some(*lease),
        Command::Evict { .. } | Command::Reap => None,
    }
}

/// What the promises of a sequence came to, and how long the last heir may believe in its lease.
#[derive(Debug, Default)]
struct Promises {
    made: usize,
    told: usize,
    kept_after_release: usize,
    kept_otherwise: usize,
    robbed: usize,
    put_off: usize,
    gone_past: usize,
    heir_ends_ms: u64,
}

impl Promises {
    fn count(&mut self, before: &Record, command: &Command, step: &Applied, now_ms: u64) {
        let after = &step.record;
        let waits = |heir: LeaseId| after.waiters.iter().find(|wait| wait.lease == heir);
        if let Some(heir) = after.heir.filter(|_| after.heir != before.heir) {
            self.made += 1;
            self.heir_ends_ms = now_ms + waits(heir.lease).unwrap().ttl_ms;
        } else if let Some(heir) = after.heir
            && asker(command) == Some(heir.lease)
            && matches!(command, Command::Acquire(_) | Command::Renew { .. })
            && !matches!(step.outcome, Outcome::Refused(_))
        {
            // It was told "not yet", and counts from there.
            self.put_off += 1;
            self.heir_ends_ms = now_ms + waits(heir.lease).unwrap().ttl_ms;
        }
        let Some(heir) = before.heir.filter(|_| after.heir != before.heir) else { return };
        let granted = step.events.iter().find(|event| event.lease == heir.lease);
        match granted.map(|event| &event.kind) {
            Some(EventKind::Granted) if matches!(command, Command::Release { .. }) => {
                self.kept_after_release += 1;
                self.gone_past += usize::from(before.waiters[0].lease != heir.lease);
            }
            Some(EventKind::Granted) => self.kept_otherwise += 1,
            Some(EventKind::Gone(Loss::Stolen { .. })) => self.robbed += 1,
            _ => {}
        }
    }
}

/// How many went a short way.
#[derive(Debug, Default)]
struct Short {
    acquired: usize,
    renewed: usize,
    released: usize,
    handed_over: usize,
    promises: Promises,
}

impl Short {
    fn count(&mut self, command: &Command, step: &Applied, reply: &str) {
        let handed = wire::handed_over(reply);
        let numbers = reply.split(' ').all(|word| word.parse::<u64>().is_ok());
        let short = usize::from(numbers || handed.is_some());
        let mut granted = step.events.iter().filter(|event| event.kind == EventKind::Granted);
        if let Some(message) = handed {
            let heir = step.record.heir.map(|heir| format!(":{}:{}", heir.lease, heir.fence));
            self.promises.told += usize::from(heir.is_some());
            let heir = heir.unwrap_or_default();
            let told = |event: &Event| format!("{}:{}{heir}", event.lease, event.fence);
            assert_eq!(granted.clone().map(told).collect::<Vec<_>>(), [message], "{command:?}");
        }
        let granted = granted.next().is_some();
        match command {
            Command::Acquire(_) => self.acquired += short,
            Command::Renew { .. } => self.renewed += short,
            Command::Release { .. } if granted => self.handed_over += short,
            Command::Release { .. } => self.released += short,
            _ => assert_eq!(short, 0, "{command:?}"),
        }
    }
}

fn compare(sequence: &Sequence, left: Left, has_names: bool, short: &mut Short) {
    let (replies, (plain, ends_ms), looked, entries, (patient, listed)) = left;
    let mut outcomes = Vec::new();
    let mut before = &Record::default();
    let steps = sequence.commands.iter().zip(&sequence.applied).zip(&sequence.times_us);
    for (((command, step), time), reply) in steps.zip(&replies) {
        short.count(command, step, reply);
        short.promises.count(before, command, step, time / 1000);
        before = &step.record;
        let answer = wire::read(command, reply).unwrap();
        if answer.now_us > 0 {
            assert_eq!(answer.now_us, *time, "{command:?}");
        } else {
            assert!(matches!(command, Command::Release { .. }), "no time: {command:?}");
        }
        outcomes.push(answer.outcome);
    }
    let looked: Looked = serde_json::from_str(&looked).unwrap();
    let mut found = looked.into_record();
    found.version = sequence.left().version;
    let events: Vec<_> = entries
        .iter()
        .flat_map(|entry| Told::read(entry).unwrap())
        .map(|told| told.event)
        .collect();
    sequence.compare_read(&outcomes, &found, &events);
    let told = || format!("{:#?}", sequence.commands);
    // Who was handed the lock may still be there.
    let holds =
        |lease: &&String| found.holders.iter().any(|hold| hold.lease.to_string() == **lease);
    let waiting = patient.iter().filter(|lease| !holds(lease)).count();
    assert_eq!(waiting, found.waiters.len(), "{}", told());
    assert!(listed == 1 || found.is_free() || !has_names, "in use and not listed: {}", told());
    let now_ms = sequence.times_us.last().unwrap() / 1000;
    // Another program must not get in as long as a holder or its heir may be inside.
    let holds = found.holders.iter().map(Hold::expires_ms);
    let ends = holds.chain(found.heir.map(|_| short.promises.heir_ends_ms)).max().unwrap_or(0);
    let mirror = found.holders.last().filter(|_| ends > now_ms).map(|hold| match hold.mode {
        Mode::Exclusive => hold.lease.to_string(),
        _ => "sprag:shared".into(),
    });
    let until = if mirror.is_some() { i64::try_from(ends).unwrap() } else { -2 };
    assert_eq!((plain, ends_ms), (mirror.unwrap_or_default(), until), "{}", told());
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
    let keys = ["k", "{k}:r", "{k}:w", "{k}:q", "{k}:x", "trail", "names"];
    let seed = fastrand::u64(..);
    let mut random = Rng::with_seed(seed);
    // Shown if it fails.
    println!("seed {seed}");
    let mut short = Short::default();
    let sequences = sized(6_000, 100_000);
    for round in 0..sequences / BATCH {
        // In a Cluster the list of names would be in another slot: there is none.
        let has_names = round % 2 == 0;
        let keys = if has_names { &keys[..] } else { &keys[..6] };
        let batch: Vec<_> =
            (0..BATCH).map(|_| Sequence::promising(&mut random, process_of)).collect();
        let mut pipeline = Pipeline::new();
        for sequence in &batch {
            let call = pipeline.cmd("EVALSHA").arg(&digest).arg(keys.len()).arg(keys);
            call.arg(arguments(sequence));
        }
        let answers: Vec<Left> = pipeline.query(&mut connection).unwrap();
        for (sequence, left) in batch.iter().zip(answers) {
            compare(sequence, left, has_names, &mut short);
        }
    }
    println!("{short:?}");
    let all = [short.acquired, short.renewed, short.released, short.handed_over];
    let least = all.into_iter().min().unwrap();
    assert!(least >= sequences / 10, "hardly anything went the short way: {short:?}");
    let it = &short.promises;
    let all =
        [it.told, it.kept_after_release, it.kept_otherwise, it.robbed, it.put_off, it.gone_past];
    let least = all.into_iter().min().unwrap();
    let both_ways = it.told.min(it.made - it.told);
    assert!(
        least >= sequences / 2_000 && both_ways >= sequences / 200,
        "hardly anything was promised: {short:?}"
    );
}
