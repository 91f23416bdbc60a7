//! [`Holder`] and [`TaskInfo`]: who wants the lock and what for, shown to people.

use serde::{Deserialize, Serialize};

/// Who holds or waits for a lock. Shown to people and never used for a decision.
///
/// # Examples
///
/// ```
/// use sprag_core::{Holder, TaskInfo};
///
/// let holder = Holder::new("worker-1", "node-a").reason("nightly build").task_info(TaskInfo {
///     complexity: Some(5),
///     estimated_duration: Some("45min".into()),
///     task_type: Some("bug-fix".into()),
///     priority: Some("high".into()),
/// });
/// assert_eq!(holder.worker_id, "worker-1");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// The worker, unique among the workers of a fleet.
    pub worker_id: String,
    /// The machine the worker runs on.
    pub node_id: String,
    /// When the holder asked for the lock, in milliseconds since 1970 on its own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_unix_ms: Option<u64>,
    /// Why the lock is wanted, in the holder's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the holder is going to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_info: Option<TaskInfo>,
}

/// What a worker is going to do under the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskInfo {
    /// How hard the task is, in the fleet's own scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complexity: Option<u32>,
    /// How long it should take, for people: `"45min"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_duration: Option<String>,
    /// What kind of task it is: `"bug-fix"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
    /// How important it is, for people: `"high"`. The queue uses the request's priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
}

impl Holder {
    /// Names a worker and its machine.
    pub fn new(worker_id: impl Into<String>, node_id: impl Into<String>) -> Self {
        Self { worker_id: worker_id.into(), node_id: node_id.into(), ..Self::default() }
    }

    /// This process: the host's name and `host:pid`.
    pub fn this_process() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self::new(format!("{host}:{}", std::process::id()), host)
    }

    /// Says why the lock is wanted.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Says what the holder is going to do.
    #[must_use]
    pub fn task_info(mut self, task_info: TaskInfo) -> Self {
        self.task_info = Some(task_info);
        self
    }

    /// The size of the texts in it, in bytes; limited by the store's capability.
    pub fn size(&self) -> usize {
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let task = self.task_info.as_ref().map_or(0, |task| {
            of(&task.estimated_duration) + of(&task.task_type) + of(&task.priority)
        });
        self.worker_id.len() + self.node_id.len() + of(&self.reason) + task
    }
}
