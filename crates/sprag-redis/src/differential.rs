//! The script against [`record::apply`](sprag_core::record::apply): the same random commands, at
//! the same times, must give the same answers, events and state.

use fastrand::Rng;
use redis::{Client, ConnectionAddr, IntoConnectionInfo, Pipeline};
use sprag_core::Mode;
use sprag_core::record::{Record, Wait};
use sprag_testkit::redis_server::RedisServer;
use sprag_testkit::sequence::Sequence;

use crate::script::LOCK;

const SEQUENCES: usize = 100_000;
/// Sequences per round trip.
const BATCH: usize = 500;

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

/// The commands of a sequence, each with the time as the script reads it.
fn arguments(sequence: &Sequence) -> Vec<String> {
    let three = |(command, us): (String, u64)| {
        [command, (us / 1_000_000).to_string(), (us % 1_000_000).to_string()]
    };
    sequence.written().flat_map(three).collect()
}

fn compare(sequence: &Sequence, left: Left) {
    let (replies, plain, record, waiters, events, patient, listed) = left;
    let mut found =
        if record.is_empty() { Record::default() } else { Record::from_json(&record).unwrap() };
    found.waiters = waiters.iter().map(|wait| Wait::from_json(wait).unwrap()).collect();
    sequence.compare(&replies, &found, &events);
    let told = || format!("{:#?}", sequence.commands);
    assert_eq!((patient, listed == 1), (found.waiters.len(), !found.is_free()), "{}", told());
    let mirror = found.holders.last().map(|hold| match hold.mode {
        Mode::Exclusive => hold.lease.to_string(),
        _ => "sprag:shared".into(),
    });
    assert_eq!(plain, mirror.unwrap_or_default(), "{}", told());
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
        let sequences: Vec<_> = (0..BATCH).map(|_| Sequence::random(&mut random)).collect();
        let mut batch = Pipeline::new();
        for sequence in &sequences {
            let call = batch.cmd("EVALSHA").arg(&digest).arg(keys.len()).arg(&keys);
            call.arg(arguments(sequence));
        }
        let answers: Vec<Left> = batch.query(&mut connection).unwrap();
        for (sequence, left) in sequences.iter().zip(answers) {
            compare(sequence, left);
        }
    }
}
