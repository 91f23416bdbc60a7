//! The audit trail: a stream that the scripts write, each entry with a place that grows. In a Cluster
//! each lock has one of its own, in its slot, and there is another one for what clients note.

use futures_util::future::try_join_all;
use sprag_core::audit::{AuditEntry, AuditQuery, TRAIL_LENGTH, audit_entry};
use sprag_core::record::{Event, EventKind};
use sprag_core::{Fence, Holder, LockName, Loss, Mode, Operation, Result};

use crate::error::strange_answer;
use crate::names;
use crate::script::{Call, Script};
use crate::store::RedisStore;

/// How many entries are fetched at once.
const CHUNK: usize = 1000;
/// How many trails are read at once.
const AT_ONCE: usize = 64;

/// One entry: its place, and names of fields followed by their values.
pub(crate) type Entry = (String, Vec<String>);

/// What an entry is about, as the scripts write it.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) name: LockName,
    pub(crate) event: Event,
    /// When, by the server's clock.
    at_ms: u64,
    sequence: u64,
}

type Strange = Box<dyn std::error::Error + Send + Sync>;

impl Told {
    /// Reads what a script wrote; what a client noted is none. A release that handed the lock over
    /// is one entry and two events.
    pub(crate) fn read(entry: &Entry) -> Result<Vec<Self>, Strange> {
        let (id, fields) = entry;
        let field = |name: &str| {
            let mut pairs = fields.chunks_exact(2);
            pairs.find(|pair| pair[0] == name).map(|pair| pair[1].as_str())
        };
        let (at_ms, sequence) = place(id)?;
        let Some((heir, fence)) = field(">").and_then(|heir| heir.split_once(':')) else {
            return Ok(vec![Self::of(field, at_ms, sequence)?]);
        };
        let given_back = |name: &str| match name {
            "k" => Some("\"released\""),
            "m" => Some("\"exclusive\""),
            "a" => None,
            other => field(other),
        };
        let passed_on = |name: &str| match name {
            "k" => Some("+"),
            "m" => Some("\"exclusive\""),
            "l" => Some(heir),
            "f" => Some(fence),
            "h" => field("i"),
            other => field(other),
        };
        let first = Self::of(given_back, at_ms, sequence)?;
        Ok(vec![first, Self::of(passed_on, at_ms, sequence + 1)?])
    }

    /// Reads one event from its fields.
    fn of<'a>(
        find: impl Fn(&str) -> Option<&'a str>,
        at_ms: u64,
        sequence: u64,
    ) -> Result<Self, Strange> {
        let field = |name: &str| find(name).ok_or("a field is missing");
        let holder = field("h")?;
        let (session, holder) = (holder.get(..32).ok_or("a holder is cut")?, holder.get(65..));
        let after_ms = match field("a") {
            Ok(after) => after.parse()?,
            // The short way of a release writes since when, and leaves the sum to us.
            Err(_) => at_ms.saturating_sub(field("s")?.parse()?),
        };
        let kind = match field("k")? {
            "+" => EventKind::Granted,
            loss => EventKind::Gone(serde_json::from_str::<Loss>(loss)?),
        };
        let event = Event {
            kind,
            lease: field("l")?.parse()?,
            session: session.parse().ok(),
            fence: Fence::new(field("f")?.parse()?).ok_or("a fence is too large")?,
            mode: serde_json::from_str::<Mode>(field("m")?)?,
            holder: serde_json::from_str::<Holder>(holder.ok_or("a holder is cut")?)?,
            after_ms,
        };
        Ok(Self { name: LockName::new(field("n")?)?, event, at_ms, sequence })
    }
}

/// When an entry was made, and the sequence of its first event; the next one is free for a second.
/// 2,048 entries fit into a millisecond.
fn place(id: &str) -> Result<(u64, u64), Strange> {
    let (millis, number) = id.split_once('-').ok_or("an entry without a place")?;
    let (millis, number) = (millis.parse::<u64>()?, number.parse::<u64>()?);
    Ok((millis, (millis << 12) + 2 * number))
}

/// The place of the entry with the event of this sequence.
fn id_of(sequence: u64) -> String {
    format!("{}-{}", sequence >> 12, (sequence & 0xfff) / 2)
}

fn entries_of(found: &Entry) -> Result<Vec<AuditEntry>, Strange> {
    if let [field, noted] = found.1.as_slice()
        && field == "e"
    {
        let mut noted = AuditEntry::from_json(noted)?;
        noted.sequence = place(&found.0)?.1;
        return Ok(vec![noted]);
    }
    let entry = |told: Told| {
        let mut entry = audit_entry(&told.name, &told.event, told.at_ms);
        entry.sequence = told.sequence;
        entry
    };
    Ok(Told::read(found)?.into_iter().map(entry).collect())
}

/// Adds what only the client knows.
pub(crate) async fn note(store: &RedisStore, entries: &[AuditEntry]) -> Result<()> {
    let keys = vec![store.keys.trail()];
    let arguments = entries.iter().map(AuditEntry::to_json).collect();
    let call = Call::Script { script: Script::Note, keys, arguments };
    store.way.ask::<u64>(Operation::Audit, &store.keys.trail(), call).await.map(drop)
}

/// What the query asks for, oldest first.
pub(crate) async fn read(store: &RedisStore, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
    let mut trails = vec![store.keys.trail()];
    match &query.name {
        _ if !store.way.is_cluster() => {}
        Some(name) => trails.extend(store.keys.trail_of(name)),
        None => {
            let names = names::search(store, Operation::Audit, "").await?;
            trails.extend(names.iter().filter_map(|name| store.keys.trail_of(name)));
        }
    }
    let mut found = Vec::new();
    for some in trails.chunks(AT_ONCE) {
        let reads = some.iter().map(|trail| read_one(store, query, trail));
        found.extend(try_join_all(reads).await?.into_iter().flatten());
    }
    found.sort_by_key(|entry| entry.sequence);
    Ok(cut(found, query))
}

/// At most a page. Two entries of different trails may have the same sequence; they are not parted,
/// because the next page begins after it.
fn cut(mut found: Vec<AuditEntry>, query: &AuditQuery) -> Vec<AuditEntry> {
    let page = query.page();
    if found.len() <= page {
        return found;
    }
    if query.after == 0 {
        return found.split_off(found.len() - page);
    }
    let next = found[page].sequence;
    let end = found.partition_point(|entry| entry.sequence < next);
    found.truncate(if end == 0 { page } else { end });
    found
}

/// What one trail has of it.
async fn read_one(store: &RedisStore, query: &AuditQuery, trail: &str) -> Result<Vec<AuditEntry>> {
    let newest_first = query.after == 0;
    let chunk = CHUNK.to_string();
    let mut found = Vec::new();
    let mut seen = 0;
    let mut edge = if newest_first { "+".to_owned() } else { id_of(query.after) };
    // One more than a page, to see where the next one begins.
    while found.len() <= query.page() && seen < TRAIL_LENGTH {
        let words = if newest_first {
            ["XREVRANGE", trail, &edge, "-", "COUNT", &chunk]
        } else {
            ["XRANGE", trail, &edge, "+", "COUNT", &chunk]
        };
        let entries: Vec<Entry> =
            store.way.ask(Operation::Audit, trail, Call::plain(&words)).await?;
        let Some((last, _)) = entries.last() else { break };
        edge = format!("({last}");
        let room = TRAIL_LENGTH - seen;
        seen += entries.len();
        for entry in entries.iter().take(room) {
            let told = entries_of(entry).map_err(|e| strange_answer(e).during(Operation::Audit))?;
            let wanted = |entry: &AuditEntry| {
                // The first event of an entry may be known already, and the second one not.
                entry.sequence > query.after
                    && query.name.as_ref().is_none_or(|name| *name == entry.name)
            };
            found.extend(told.into_iter().filter(wanted));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(fields: &[(&str, &str)]) -> Entry {
        let fields = fields.iter().flat_map(|(name, value)| [*name, *value].map(String::from));
        ("1790000000123-7".to_owned(), fields.collect())
    }

    fn text(worker: &str) -> String {
        format!("{:032x}{:032x}0{{\"worker_id\":\"{worker}\",\"node_id\":\"n\"}}", 1, 2)
    }

    #[test]
    fn a_release_that_hands_over_is_told_as_two_events() {
        let (from, to) = (text("a"), text("b"));
        let (lease, heir) = (format!("{:032x}", 8), format!("{:032x}", 9));
        let handed = format!("{heir}:42");
        let fields = [
            ("n", "job"),
            ("l", &*lease),
            ("f", "41"),
            ("s", "1790000000100"),
            ("h", &*from),
            (">", &*handed),
            ("a", "17"),
            ("i", &*to),
        ];
        let told = Told::read(&entry(&fields)).unwrap();
        let [released, granted] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!(released.event.kind, EventKind::Gone(Loss::Released));
        assert_eq!((released.event.lease.to_string(), released.event.fence.get()), (lease, 41));
        assert_eq!((released.event.after_ms, &*released.event.holder.worker_id), (23, "a"));
        assert_eq!(granted.event.kind, EventKind::Granted);
        assert_eq!((granted.event.lease.to_string(), granted.event.fence.get()), (heir, 42));
        assert_eq!((granted.event.after_ms, &*granted.event.holder.worker_id), (17, "b"));
        // Each has a sequence of its own, and both lead back to the entry.
        assert_eq!(granted.sequence, released.sequence + 1);
        for told in &told {
            assert_eq!(
                (told.at_ms, &*id_of(told.sequence)),
                (1_790_000_000_123, "1790000000123-7")
            );
        }
        let next = place("1790000000123-8").unwrap().1;
        assert_eq!(next, granted.sequence + 1);
    }
}
