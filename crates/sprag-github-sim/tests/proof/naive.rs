//! [`Naive`]: get, assign, verify, comment; stale after five minutes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sprag_github_sim::proof::{Claimer, Hold, Worker};
use sprag_github_sim::{Answer, Stamp, Talk};

/// After how long without a heartbeat a lock is taken for stale.
const STALE: Duration = Duration::from_secs(300);

/// A worker that takes the assignment of an issue for a lock.
pub(crate) struct Naive {
    worker: Worker,
    talk: Talk,
}

/// It believes so until it gives it back.
struct Believed {
    comment: u64,
}

impl Hold for Believed {
    fn fence(&self) -> u64 {
        self.comment
    }

    fn is_valid(&self) -> bool {
        true
    }
}

impl Naive {
    pub(crate) fn new(worker: Worker) -> Self {
        let talk = Talk::new(&worker.url, Some(&worker.token));
        Self { worker, talk }
    }

    fn ask(&mut self, method: &str, path: &str, body: Option<Value>) -> Option<Answer> {
        let path = format!("/repos/{}/issues/{path}", self.worker.repo);
        let answer = self.talk.ask(method, &path, &[], body.as_ref()).ok()?;
        (answer.status < 300).then_some(answer)
    }

    fn is_assigned(&mut self, issue: u64) -> Option<bool> {
        let body = self.ask("GET", &issue.to_string(), None)?.body;
        let is_me = |user: &Value| user["login"] == self.worker.login.as_str();
        Some(body["assignees"].as_array()?.iter().any(is_me))
    }

    /// Whether the last heartbeat was long ago; where there is none, the last change of the issue.
    fn is_stale(&mut self, issue: &Value) -> Option<bool> {
        let path = format!("{}/comments?per_page=100", issue["number"]);
        let comments = self.ask("GET", &path, None)?.body;
        let beats = comments.as_array()?.iter().rev().filter_map(|comment| {
            let metadata: Value = serde_json::from_str(comment["body"].as_str()?).ok()?;
            metadata["lock"]["heartbeat_last"].as_str().and_then(Stamp::parse)
        });
        let beat = beats.max().or_else(|| Stamp::parse(issue["updated_at"].as_str()?))?;
        Some(self.worker.clock.stamp().since(beat) > STALE)
    }
}

impl Claimer for Naive {
    fn claim(&mut self, issue: u64) -> Option<Arc<dyn Hold>> {
        let found = self.ask("GET", &issue.to_string(), None)?.body;
        let holders = found["assignees"].as_array()?.iter().map(|user| user["login"].clone());
        let holders: Vec<_> = holders.collect();
        if !holders.is_empty() {
            if !self.is_stale(&found)? {
                return None;
            }
            let them = json!({"assignees": holders});
            self.ask("DELETE", &format!("{issue}/assignees"), Some(them))?;
        }
        let me = json!({"assignees": [self.worker.login]});
        self.ask("POST", &format!("{issue}/assignees"), Some(me))?;
        if !self.is_assigned(issue)? {
            return None;
        }
        let metadata = json!({"lock": {
            "worker_id": format!("worker-{}", self.worker.number),
            "heartbeat_last": self.worker.clock.stamp().iso(),
        }});
        let body = json!({"body": metadata.to_string()});
        let comment = self.ask("POST", &format!("{issue}/comments"), Some(body))?.body;
        Some(Arc::new(Believed { comment: comment["id"].as_u64()? }))
    }

    fn release(&mut self, issue: u64) {
        let me = json!({"assignees": [self.worker.login]});
        self.ask("POST", &format!("{issue}/comments"), Some(json!({"body": "done"})));
        self.ask("DELETE", &format!("{issue}/assignees"), Some(me));
    }

    fn kill(self: Box<Self>) {}
}
