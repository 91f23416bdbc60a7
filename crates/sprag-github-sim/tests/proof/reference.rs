//! [`Reference`]: the least that is safe. A reference is compared and swapped; its commits count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sprag_core::clock::{Clock, Moment};
use sprag_github_sim::proof::{Claimer, Hold, Worker};
use sprag_github_sim::{SimClock, Talk};

/// How long a claim is good.
const TTL: Duration = Duration::from_secs(60);
const MARGIN: Duration = Duration::from_secs(1);
const TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// A worker whose claim is a commit that only it could have made.
pub(crate) struct Reference {
    worker: Worker,
    talk: Talk,
    nonce: u64,
    /// The claims it holds: epoch and commit.
    held: BTreeMap<u64, (u64, String)>,
    /// What was seen of others' claims, and since when.
    seen: BTreeMap<u64, (String, Moment)>,
}

struct Claim {
    epoch: u64,
    until: Moment,
    clock: Arc<SimClock>,
}

impl Hold for Claim {
    fn fence(&self) -> u64 {
        self.epoch
    }

    fn is_valid(&self) -> bool {
        self.clock.now() < self.until
    }
}

/// What a reference says.
struct Head {
    oid: String,
    epoch: u64,
    held: bool,
}

enum Swap {
    Done,
    Refused,
    Unknown,
}

impl Reference {
    pub(crate) fn new(worker: Worker) -> Self {
        let talk = Talk::new(&worker.url, Some(&worker.token));
        Self { worker, talk, nonce: 0, held: BTreeMap::new(), seen: BTreeMap::new() }
    }

    fn ask(&mut self, method: &str, path: &str, body: Option<Value>) -> Option<(u16, Value)> {
        let path = format!("/repos/{}/git/{path}", self.worker.repo);
        let answer = self.talk.ask(method, &path, &[], body.as_ref()).ok()?;
        (answer.status < 500).then_some((answer.status, answer.body))
    }

    /// `Some(None)` if there is no such reference, as far as the replica knows.
    fn head(&mut self, issue: u64) -> Option<Option<Head>> {
        let (status, body) = self.ask("GET", &format!("ref/claims/{issue}"), None)?;
        if status == 404 {
            return Some(None);
        }
        let oid = body["object"]["sha"].as_str()?.to_owned();
        let (_, commit) = self.ask("GET", &format!("commits/{oid}"), None)?;
        let record: Value = serde_json::from_str(commit["message"].as_str()?).ok()?;
        let (epoch, held) = (record["epoch"].as_u64()?, record["held"].as_bool()?);
        Some(Some(Head { oid, epoch, held }))
    }

    /// Writes a commit that nobody else could have written.
    fn write(&mut self, epoch: u64, held: bool, parent: Option<&str>) -> Option<String> {
        self.nonce += 1;
        let nonce = format!("{}-{}", self.worker.number, self.nonce);
        let message = json!({"epoch": epoch, "held": held, "nonce": nonce}).to_string();
        let parents: Vec<_> = parent.into_iter().collect();
        let body = json!({"message": message, "tree": TREE, "parents": parents});
        let (status, commit) = self.ask("POST", "commits", Some(body))?;
        (status == 201).then(|| commit["sha"].as_str().map(str::to_owned))?
    }

    fn swap(&mut self, issue: u64, old: Option<&str>, new: &str) -> Swap {
        let answer = match old {
            None => {
                let body = json!({"ref": format!("refs/claims/{issue}"), "sha": new});
                self.ask("POST", "refs", Some(body))
            }
            Some(_) => {
                let body = json!({"sha": new, "force": false});
                self.ask("PATCH", &format!("refs/claims/{issue}"), Some(body))
            }
        };
        match answer {
            Some((200 | 201, _)) => Swap::Done,
            Some((422, _)) => Swap::Refused,
            _ => Swap::Unknown,
        }
    }

    /// The same again until it is known: it is done at most once, since its parent is.
    fn swap_surely(&mut self, issue: u64, old: Option<&str>, new: &str) -> bool {
        let mut unknown = false;
        for _ in 0..10 {
            match self.swap(issue, old, new) {
                Swap::Done => return true,
                Swap::Refused if !unknown => return false,
                // It may be refused because it was done before.
                Swap::Refused => return self.settled(issue, new),
                Swap::Unknown => unknown = true,
            }
        }
        false
    }

    /// Whether the reference is at `new`, once replicas have caught up.
    fn settled(&mut self, issue: u64, new: &str) -> bool {
        self.worker.clock.wait(Duration::from_secs(11));
        let head = (0..10).find_map(|_| self.head(issue)).flatten();
        head.is_some_and(|head| head.oid == new)
    }

    fn is_stale(&mut self, issue: u64, head: &Head) -> bool {
        let now = self.worker.clock.now();
        let (oid, since) = self.seen.entry(issue).or_insert_with(|| (head.oid.clone(), now));
        if *oid != head.oid {
            (*oid, *since) = (head.oid.clone(), now);
        }
        now.since(*since) > TTL
    }
}

impl Claimer for Reference {
    fn claim(&mut self, issue: u64) -> Option<Arc<dyn Hold>> {
        let head = self.head(issue)?;
        if let Some(head) = &head
            && head.held
            && !self.is_stale(issue, head)
        {
            return None;
        }
        let epoch = head.as_ref().map_or(1, |head| head.epoch + 1);
        let old = head.map(|head| head.oid);
        let oid = self.write(epoch, true, old.as_deref())?;
        // It is good from the moment before it was asked for.
        let until = self.worker.clock.now().plus(TTL - MARGIN);
        let won = self.swap_surely(issue, old.as_deref(), &oid);
        if !won {
            return None;
        }
        self.held.insert(issue, (epoch, oid));
        Some(Arc::new(Claim { epoch, until, clock: Arc::clone(&self.worker.clock) }))
    }

    fn release(&mut self, issue: u64) {
        let Some((epoch, oid)) = self.held.remove(&issue) else { return };
        // If it does not work, it is stale after a while.
        if let Some(free) = self.write(epoch, false, Some(&oid)) {
            self.swap_surely(issue, Some(&oid), &free);
        }
    }

    fn kill(self: Box<Self>) {}
}
