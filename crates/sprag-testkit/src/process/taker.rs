//! [`Taker`]: a process that takes locks, as the case that drives it sees it.

use std::collections::HashMap;
use std::io::Write as _;
use std::process::{Child, ChildStdin, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sprag_core::{LockName, Loss};
use tokio::sync::mpsc;

use super::churn::Tally;
use super::protocol::{Answer, Ask, Command, Granted, Order, Reply, Trouble};

/// How long a case waits for an answer before it fails. Generous: the machine may be loaded, and
/// nobody waits that long for an answer that comes.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the end of a process is looked for.
const LOOK: Duration = Duration::from_millis(2);

/// A process that takes locks. Killed when dropped, whatever state it is in.
#[derive(Debug)]
pub struct Taker {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    replies: mpsc::UnboundedReceiver<Reply>,
    /// Answers to other questions than the one waited for.
    early: HashMap<u64, Answer>,
    sent: u64,
    ended: Option<ExitStatus>,
    own_id: u32,
}

/// A command whose answer is still to come.
#[derive(Debug)]
#[must_use = "the answer is to be waited for"]
pub struct Started(u64);

impl Taker {
    /// A process that was just started.
    pub(super) fn new(
        name: String,
        child: Child,
        input: Option<ChildStdin>,
        replies: mpsc::UnboundedReceiver<Reply>,
    ) -> Self {
        let (early, sent, ended) = (HashMap::new(), 0, None);
        Self { name, child, input, replies, early, sent, ended, own_id: 0 }
    }

    /// Waits until it has opened the store.
    ///
    /// # Panics
    ///
    /// If it does not say that it is ready.
    pub async fn ready(&mut self) {
        if self.own_id != 0 {
            return;
        }
        match self.finish(Started(0)).await {
            Answer::Ready(id) => self.own_id = id,
            other => panic!("{} is not ready: {other:?}", self.name),
        }
    }

    /// Whether it has opened the store.
    pub fn is_ready(&mut self) -> bool {
        self.own_id != 0 || self.has_answered(&Started(0))
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id as it sees it itself, which in a pid namespace is another than ours.
    pub const fn own_id(&self) -> u32 {
        self.own_id
    }

    /// Sends a command; the answer may be asked for later.
    ///
    /// # Panics
    ///
    /// If the process is gone.
    pub fn start(&mut self, command: Command) -> Started {
        self.sent += 1;
        let order = Order { id: self.sent, command };
        let mut line = serde_json::to_vec(&order).expect("an order is JSON");
        line.push(b'\n');
        let input = self.input.as_mut().expect("the process was told to end");
        input.write_all(&line).unwrap_or_else(|e| panic!("{} is gone: {e}", self.name));
        Started(self.sent)
    }

    /// Waits for an answer.
    ///
    /// # Panics
    ///
    /// If none comes within a minute.
    pub async fn finish(&mut self, started: Started) -> Answer {
        let answer = tokio::time::timeout(PATIENCE, self.receive(started.0)).await;
        answer.unwrap_or_else(|_| panic!("{} gave no answer within {PATIENCE:?}", self.name))
    }

    /// Waits for an answer that may take as long as it takes; the test runner has a limit.
    pub async fn finish_slowly(&mut self, started: Started) -> Answer {
        self.receive(started.0).await
    }

    /// What a churning process did in all, if it said so before its end.
    pub async fn last_words(&mut self) -> Option<Tally> {
        while let Some(reply) = self.replies.recv().await {
            if let Answer::Tally(tally) = reply.answer {
                return Some(tally);
            }
        }
        None
    }

    /// Whether the answer has come. It is not taken.
    pub fn has_answered(&mut self, started: &Started) -> bool {
        while let Ok(reply) = self.replies.try_recv() {
            self.early.insert(reply.id, reply.answer);
        }
        self.early.contains_key(&started.0)
    }

    async fn receive(&mut self, id: u64) -> Answer {
        loop {
            if let Some(answer) = self.early.remove(&id) {
                return answer;
            }
            let reply = self.replies.recv().await;
            let reply = reply.unwrap_or_else(|| panic!("{} ended without an answer", self.name));
            self.early.insert(reply.id, reply.answer);
        }
    }

    /// Sends a command and waits for its answer.
    pub async fn ask(&mut self, command: Command) -> Answer {
        let started = self.start(command);
        self.finish(started).await
    }

    /// Acquires a lock.
    ///
    /// # Panics
    ///
    /// If it is not granted.
    pub async fn acquire(&mut self, ask: Ask) -> Granted {
        match self.ask(Command::Acquire(ask)).await {
            Answer::Granted(granted) => granted,
            other => panic!("{} was not granted the lock: {other:?}", self.name),
        }
    }

    /// Waits for the grant of an acquire that was started.
    ///
    /// # Panics
    ///
    /// If it is not granted.
    pub async fn granted(&mut self, started: Started) -> Granted {
        match self.finish(started).await {
            Answer::Granted(granted) => granted,
            other => panic!("{} was not granted the lock: {other:?}", self.name),
        }
    }

    /// Waits for the failure of something that was started.
    ///
    /// # Panics
    ///
    /// If it does not fail.
    pub async fn failed(&mut self, started: Started) -> Trouble {
        match self.finish(started).await {
            Answer::Failed(trouble) => trouble,
            other => panic!("{} did not fail: {other:?}", self.name),
        }
    }

    /// Releases a lock; with a reason if it had been lost.
    ///
    /// # Panics
    ///
    /// If the store does not answer.
    pub async fn release(&mut self, lock: &LockName) -> Option<Loss> {
        match self.ask(Command::Release(lock.clone())).await {
            Answer::Released(loss) => loss,
            other => panic!("{} could not release: {other:?}", self.name),
        }
    }

    /// Ends it at once: SIGKILL. Waits until the operating system has cleaned up.
    pub async fn kill(&mut self) -> ExitStatus {
        self.signal(Signal::KILL);
        self.ended().await
    }

    /// Halts it: SIGSTOP. Waits until it has stopped.
    ///
    /// # Panics
    ///
    /// If it does not stop.
    pub async fn stop(&mut self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.child.id());
        let stopped = async {
            // The state follows the name, which is in parentheses.
            let is_stopped = |text: String| text.rsplit(") ").next()?.chars().next();
            while std::fs::read_to_string(&stat).ok().and_then(is_stopped) != Some('T') {
                tokio::time::sleep(LOOK).await;
            }
        };
        let stopped = tokio::time::timeout(PATIENCE, stopped).await;
        assert!(stopped.is_ok(), "{} did not stop", self.name);
    }

    /// Lets it go on: SIGCONT.
    pub fn go_on(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to end: SIGTERM. See [`Taker::ended`].
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    /// Ends its input, upon which it ends in order. See [`Taker::ended`].
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Sends any signal.
    ///
    /// # Panics
    ///
    /// If it has ended.
    pub fn signal(&mut self, signal: Signal) {
        assert!(self.ended.is_none(), "{} has ended", self.name);
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // Not waited for yet, so the number is still this process's.
        let sent = kill_process(pid.expect("a child has a process id"), signal);
        sent.unwrap_or_else(|e| panic!("cannot signal {}: {e}", self.name));
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    ///
    /// If it does not within a minute.
    pub async fn ended(&mut self) -> ExitStatus {
        let ended = async {
            loop {
                if let Some(status) = self.try_ended() {
                    return status;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let ended = tokio::time::timeout(PATIENCE, ended).await;
        ended.unwrap_or_else(|_| panic!("{} did not end within {PATIENCE:?}", self.name))
    }

    /// How it ended, if it has.
    pub fn try_ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        if self.try_ended().is_none() {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}
