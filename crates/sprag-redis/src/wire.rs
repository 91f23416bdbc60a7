//! Commands as the scripts read them, and what the scripts answer.

use serde::{Deserialize, Serialize};
use sprag_core::record::wire::Answer;
use sprag_core::record::{Acquire, Command, Corrupt, Hold, Outcome, Record, Steal};
use sprag_core::store::Grant;
use sprag_core::{Fence, LeaseId, Loss, Mode};

/// What stands for no session.
const NO_SESSION: &str = "--------------------------------";
/// Later than any request.
const NEVER_LATE: u64 = (1 << 53) - 1;

/// The arguments of `scripts/lock.lua`; `scripts/head.lua` lists them. What a holder says about
/// itself goes there as JSON that the script does not look into.
pub(crate) fn write(
    command: &Command,
    name: &str,
    max_waiters: usize,
    channel: &str,
) -> Vec<String> {
    let (verb, lease) = match command {
        Command::Acquire(acquire) => {
            (if is_plain(acquire) { "take" } else { "acquire" }, acquire.lease)
        }
        Command::Renew { lease, rebind: None, .. } => ("keep", *lease),
        Command::Renew { lease, .. } => ("renew", *lease),
        Command::Convert { lease, .. } => ("convert", *lease),
        Command::Release { lease } => ("release", *lease),
        Command::Withdraw { lease } => ("withdraw", *lease),
        Command::Evict { .. } => ("evict", LeaseId::from_u128(0)),
        Command::Reap => ("reap", LeaseId::from_u128(0)),
    };
    let mut words = Vec::with_capacity(8);
    words.extend([verb.to_owned(), name.to_owned(), lease.to_string()]);
    match command {
        Command::Acquire(acquire) => {
            words.push(acquire.ttl_ms.to_string());
            words.push(acquire.not_after_ms.unwrap_or(NEVER_LATE).to_string());
            words.push(holder(acquire));
            words.push(wishes(acquire, max_waiters));
            if acquire.queue || takes_away(command) {
                words.push(channel.to_owned());
            }
        }
        Command::Renew { ttl_ms, rebind, .. } => {
            words.push(ttl_ms.to_string());
            words.extend(rebind.map(|to| to.map_or("-".into(), |session| session.to_string())));
        }
        Command::Convert { fence, to, queue, .. } => {
            words.extend([to.as_str(), flag(*queue), channel].map(ToOwned::to_owned));
            words.push(fence.to_string());
        }
        Command::Evict { fence, by, reason } => {
            let (by, reason, fence) = (by.clone(), reason.clone(), *fence);
            words.push(fence.to_string());
            words.push(json(&Loss::Broken { by, reason, fence }));
        }
        Command::Release { .. } => words.push(channel.to_owned()),
        Command::Withdraw { .. } | Command::Reap => {}
    }
    words
}

/// Whether it may take the lock from its holder. Those who listen for that are told, on a channel that is
/// the last argument.
pub(crate) fn takes_away(command: &Command) -> bool {
    match command {
        Command::Acquire(acquire) => acquire.steal != Steal::No,
        Command::Evict { .. } => true,
        _ => false,
    }
}

/// Whether it may go the short way: see `scripts/fast.lua`.
fn is_plain(acquire: &Acquire) -> bool {
    acquire.mode == Mode::Exclusive && acquire.steal == Steal::No
}

const fn flag(set: bool) -> &'static str {
    if set { "1" } else { "0" }
}

fn json(value: &impl Serialize) -> String {
    // Only maps with non-string keys and failing writers make this fail; there are none.
    serde_json::to_string(value).expect("it is always writable as JSON")
}

fn holder(acquire: &Acquire) -> String {
    let mut text = acquire.session.map_or(NO_SESSION.into(), |session| session.to_string());
    text.push_str(&acquire.party.to_string());
    text.push_str(flag(acquire.fixed));
    text.push_str(&json(&acquire.holder));
    text
}

fn wishes(acquire: &Acquire, max_waiters: usize) -> String {
    let (count, of) = match acquire.mode {
        Mode::Permits { count, of } => (count, of),
        _ => (0, 0),
    };
    let (steal, by) = match acquire.steal {
        // Nobody asks for the latter: with one step per call there is no version to compare.
        Steal::No | Steal::Seen { .. } => ("no".into(), String::new()),
        Steal::Overdue { after_ms } => (after_ms.to_string(), json(&acquire.holder.worker_id)),
        Steal::Force => ("force".into(), json(&acquire.holder.worker_id)),
    };
    let (mode, priority) = (acquire.mode.as_str(), acquire.priority);
    let (queue, resize) = (flag(acquire.queue), flag(acquire.resize));
    format!("{mode} {count} {of} {queue} {priority} {resize} {max_waiters} {steal} {by}")
}

/// The wake-up that is the answer to a release, if the lock went to a waiter of this process.
pub(crate) fn handed_over(text: &str) -> Option<&str> {
    let is_lease = |text: &str| text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    text.split_once(':').filter(|(lease, _)| is_lease(lease)).map(|_| text)
}

/// Reads the answer of `scripts/lock.lua` to `command`.
///
/// # Errors
///
/// If the script never answers so.
pub(crate) fn read(command: &Command, text: &str) -> Result<Answer, Corrupt> {
    let text = if handed_over(text).is_some() { "0" } else { text };
    let (fence, time) = text.split_once(' ').unwrap_or((text, ""));
    let Some(fence) = fence.parse().ok().and_then(Fence::new) else {
        return Answer::read(text);
    };
    // The short ways answer with a number: the fence, or zero if there is none to tell; a renewal
    // with the time as well.
    let grant = Grant { fence, mode: Mode::Exclusive, took_over: false };
    // A fence that was just given out in this way is the time.
    let given_out = if matches!(command, Command::Acquire(_)) { fence.get() } else { 0 };
    Ok(Answer {
        now_us: time.parse().unwrap_or(given_out),
        outcome: if fence == Fence::ZERO { Outcome::Done } else { Outcome::Granted(grant) },
        waiting: 0,
        record: Record::default(),
    })
}

/// The answer of `scripts/look.lua`.
#[derive(Debug, Deserialize)]
pub(crate) struct Looked {
    pub(crate) now_us: u64,
    record: Record,
    /// Who has the plain key and is none of us.
    foreign: Option<Hold>,
}

impl Looked {
    pub(crate) fn into_record(self) -> Record {
        let mut record = self.record;
        record.holders.extend(self.foreign);
        record
    }
}
