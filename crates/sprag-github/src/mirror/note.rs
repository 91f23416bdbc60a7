//! [`Note`]: the comment that shows who holds a lock.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sprag_core::{Fence, Holder, TaskInfo};

use crate::time;

/// Marks our comments. It is looked for by people and never believed.
pub(super) const MARK: &str = "<!-- sprag-lock -->";
/// No text in a comment is longer.
const LONGEST: usize = 200;

/// What the comment of a lock says, in the form in which it is written.
///
/// # Examples
///
/// ```
/// use sprag_github::LockMetadata;
///
/// let text = r#"{"lock": {"worker_id": "worker-local-1", "node_id": "node-abc123",
///     "claimed_at": "2025-10-30T21:30:00Z", "heartbeat_last": "2025-10-30T21:35:00Z",
///     "task_info": {"complexity": 5, "estimated_duration": "45min"}}}"#;
/// let metadata: LockMetadata = serde_json::from_str(text)?;
/// assert_eq!(metadata.lock.worker_id, "worker-local-1");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockMetadata {
    /// The lock.
    pub lock: LockNote,
}

/// Who holds a lock, since when, and what for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockNote {
    /// The worker.
    pub worker_id: String,
    /// The machine that the worker runs on.
    pub node_id: String,
    /// When it got the lock.
    pub claimed_at: String,
    /// Its last sign of life.
    pub heartbeat_last: String,
    /// What it is going to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_info: Option<TaskInfo>,
    /// The fence of its grant: grows with every holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// From whom it took the lock over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_from: Option<String>,
    /// Whether it took the lock by force, from somebody who may have been alive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// When it gave the lock back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<String>,
    /// What came of its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Who took the lock away from it, and why; where comments decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken_by: Option<String>,
    /// Which attempt it belongs to, where comments decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// How long it is good without another sign of life, where comments decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
}

impl LockNote {
    /// A holder, as everybody may see it.
    pub(crate) fn new(holder: &Holder, fence: Fence, now_unix: u64, show_node: bool) -> Self {
        let now = time::format(now_unix);
        let shown = if show_node { holder.clone() } else { public_holder(holder) };
        let Holder { worker_id, node_id, task_info, .. } = shown;
        Self {
            worker_id: shorten(&worker_id),
            node_id: shorten(&node_id),
            claimed_at: now.clone(),
            heartbeat_last: now,
            task_info: task_info.map(shorten_task),
            fence: Some(fence),
            ..Self::default()
        }
    }

    /// The text of the comment.
    pub(crate) fn to_comment(&self) -> String {
        // Inside of a code span nobody is mentioned and nothing is a link.
        let span = |text: &str| format!("`{}`", text.replace('`', "'"));
        let worker = span(&self.worker_id);
        let fence = self.fence.map(|fence| format!(" (fence {fence})")).unwrap_or_default();
        let mut text = match &self.released_at {
            Some(at) if self.broken_by.is_some() => {
                format!("⚠️ {worker} lost this issue at {at}{fence}.")
            }
            Some(at) => format!("✅ {worker} released this issue at {at}{fence}."),
            None => format!("🔒 {worker} holds this issue{fence}."),
        };
        if let Some(from) = &self.stolen_from {
            let how = if self.forced { "by force" } else { "because it gave no sign of life" };
            text.push_str(&format!(" It took it over from {} {how}.", span(from)));
        }
        if let Some(result) = &self.result {
            text.push_str(&format!(" Result: {}.", span(result)));
        }
        if let Some(by) = &self.broken_by {
            text.push_str(&format!(" {}", span(by)));
        }
        let about = if self.claim.is_some() {
            "This comment is the lock (mode=assignment, L1: usually one holder). Do not change it."
        } else {
            "This comment and the assignee only show the lock. Changing them does not release it."
        };
        let metadata = LockMetadata { lock: self.clone() };
        let json = serde_json::to_string_pretty(&metadata).unwrap_or_default();
        format!("{text}\n\n```json\n{json}\n```\n\n{about}\n{MARK}\n")
    }
}

/// A holder as everybody may see it: without the name of its machine, and of its user where the
/// worker has no other name. Of the same ones it is the same.
///
/// # Examples
///
/// ```
/// use sprag_core::Holder;
/// use sprag_github::public_holder;
///
/// let shown = public_holder(&Holder::new("ada@laptop#4711", "laptop"));
/// assert!(shown.worker_id.starts_with("node-") && shown.worker_id.ends_with("#4711"));
/// let named = public_holder(&Holder::new("indexer-3", "laptop"));
/// assert_eq!(named.worker_id, "indexer-3");
/// assert_ne!(named.node_id, "laptop");
/// ```
pub fn public_holder(holder: &Holder) -> Holder {
    let worker_id = public_worker(&holder.worker_id, &holder.node_id);
    Holder { worker_id, node_id: alias(&holder.node_id), ..holder.clone() }
}

/// The same of a worker's name alone. Without a name of its own a worker is called after its user
/// and its machine, which stand in front.
pub(crate) fn public_worker(worker: &str, node: &str) -> String {
    let Some(at) = worker.find(node).filter(|_| !node.is_empty()) else {
        return worker.to_owned();
    };
    let (named, rest) = worker.split_at(at + node.len());
    format!("{}{}", alias(named), rest.replace(node, &alias(node)))
}

/// A name from which nobody finds the real one; an alias stays what it is.
fn alias(node: &str) -> String {
    let digits = node.strip_prefix("node-").unwrap_or_default();
    if digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return node.to_owned();
    }
    let hash = Sha256::new().chain_update("sprag:node:v1\0").chain_update(node).finalize();
    let digits: String = hash.iter().take(3).map(|byte| format!("{byte:02x}")).collect();
    format!("node-{digits}")
}

pub(super) fn shorten(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

fn shorten_task(task: TaskInfo) -> TaskInfo {
    let short = |text: Option<String>| text.map(|text| shorten(&text));
    TaskInfo {
        complexity: task.complexity,
        estimated_duration: short(task.estimated_duration),
        task_type: short(task.task_type),
        priority: short(task.priority),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder() -> Holder {
        Holder::new("build7.corp:4121", "build7.corp").task_info(TaskInfo {
            complexity: Some(5),
            estimated_duration: Some("45min".into()),
            task_type: Some("bug-fix".into()),
            priority: Some("high".into()),
        })
    }

    fn json(comment: &str) -> serde_json::Value {
        let json = comment.split("```json\n").nth(1).unwrap().split("\n```").next().unwrap();
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_comment_has_the_metadata_and_the_fence() {
        let holder = Holder {
            worker_id: "worker-local-1".into(),
            node_id: "node-abc123".into(),
            ..holder()
        };
        let note = LockNote::new(&holder, Fence::new(7).unwrap(), 1_761_859_800, true);
        let told = json(&note.to_comment());
        let expected = serde_json::json!({ "lock": {
            "worker_id": "worker-local-1",
            "node_id": "node-abc123",
            "claimed_at": "2025-10-30T21:30:00Z",
            "heartbeat_last": "2025-10-30T21:30:00Z",
            "task_info": {
                "complexity": 5,
                "estimated_duration": "45min",
                "task_type": "bug-fix",
                "priority": "high"
            },
            "fence": 7,
        } });
        assert_eq!(told, expected);
    }

    #[test]
    fn no_name_of_a_machine_is_told_unless_asked_for() {
        let note = |show| LockNote::new(&holder(), Fence::ZERO, 0, show).to_comment();
        assert!(!note(false).contains("build7"), "{}", note(false));
        assert!(note(false).contains(":4121"));
        assert!(note(true).contains("build7.corp:4121"));
    }

    #[test]
    fn a_hostile_name_stays_inside_of_its_code_span() {
        let name = "`\n```\n@everyone <script> ".repeat(1000);
        let note = LockNote::new(&Holder::new(name, ""), Fence::ZERO, 0, true);
        let comment = note.to_comment();
        assert!(comment.len() < 2000, "{}", comment.len());
        assert_eq!(json(&comment)["lock"]["worker_id"].as_str().unwrap().len(), 200);
        assert!(comment.lines().filter(|line| line.starts_with("```")).count() == 2);
    }

    #[test]
    fn a_completed_and_a_stolen_hold_say_so() {
        let mut note = LockNote::new(&holder(), Fence::ZERO, 0, true);
        note.stolen_from = Some("worker-9".into());
        assert!(note.to_comment().contains("took it over from `worker-9` because"));
        note.forced = true;
        note.released_at = Some(time::format(60));
        let comment = note.to_comment();
        assert!(comment.contains("by force") && comment.contains("released this issue at 1970"));
    }
}
