//! Many processes that want the same lock: this program, started again and again.
//!
//! A process reads one line for each round, says `ready`, waits at the gate and answers with its
//! [`Account`] in one line. The gate is a file that the parent has locked, so all of them pass at
//! the same moment.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::now_nanos;
use crate::visits::{Account, Round};

/// Whose lock is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Sprag,
    Flock,
}

impl Side {
    fn word(self) -> &'static str {
        match self {
            Self::Sprag => "sprag",
            Self::Flock => "flock",
        }
    }
}

/// A line that starts a round: whose lock, and how long to go on; zero means to enter once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) side: Side,
    pub(crate) length: Duration,
}

impl Task {
    fn line(self) -> String {
        format!("{} {}\n", self.side.word(), self.length.as_millis())
    }

    pub(crate) fn parse(line: &str) -> Result<Self> {
        let (side, length) = line.trim().split_once(' ').context("a task has two words")?;
        let side = match side {
            "sprag" => Side::Sprag,
            "flock" => Side::Flock,
            other => bail!("no such side: {other}"),
        };
        Ok(Self { side, length: Duration::from_millis(length.parse()?) })
    }
}

/// The file that the parent locks to keep everybody waiting.
pub(crate) fn gate(folder: &Path) -> Result<File> {
    open(&folder.join("gate"))
}

/// Opens a file to be locked, and makes it if need be.
pub(crate) fn open(path: &Path) -> Result<File> {
    let file = File::options().create(true).truncate(false).write(true).read(true).open(path);
    file.with_context(|| format!("cannot open {}", path.display()))
}

/// The parent's view of the processes. They end when it is dropped.
#[derive(Debug)]
pub(crate) struct Crowd {
    gate: File,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    child: Child,
    /// `None` once it has been told to end.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Crowd {
    /// Starts `size` processes that work in `folder`.
    pub(crate) fn start(folder: &Path, size: usize) -> Result<Self> {
        let program = std::env::current_exe()?;
        let gate = gate(folder)?;
        let mut crowd = Self { gate, members: Vec::with_capacity(size) };
        for _ in 0..size {
            let mut child = Command::new(&program)
                .arg("crowd-member")
                .arg(folder)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let stdin = child.stdin.take();
            let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
            crowd.members.push(Member { child, stdin, stdout });
        }
        Ok(crowd)
    }

    /// Lets everybody do the same task at the same time.
    pub(crate) fn round(&mut self, task: Task) -> Result<Round> {
        self.gate.lock()?;
        for member in &mut self.members {
            let stdin = member.stdin.as_mut().context("the process was told to end")?;
            stdin.write_all(task.line().as_bytes())?;
        }
        for member in &mut self.members {
            let answer = member.line()?;
            ensure!(answer.trim() == "ready", "a process is not ready: {answer}");
        }
        let started = now_nanos();
        self.gate.unlock()?;
        let mut accounts: Vec<Account> = Vec::with_capacity(self.members.len());
        for member in &mut self.members {
            accounts.push(serde_json::from_str(&member.line()?)?);
        }
        let length = u64::try_from(task.length.as_nanos())?;
        Ok(Round { started, stopped: started + length, accounts })
    }
}

impl Member {
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let length = self.stdout.read_line(&mut line)?;
        ensure!(length > 0, "a process of the crowd ended too early; its error is above");
        Ok(line)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for member in &mut self.members {
            // The end of its input is the end of the process.
            member.stdin = None;
        }
        for member in &mut self.members {
            if let Err(error) = member.child.wait() {
                crate::report::progress(&format!("cannot wait for a process: {error}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Side, Task};
    use std::time::Duration;

    #[test]
    fn a_task_survives_the_pipe() {
        for side in [Side::Sprag, Side::Flock] {
            let task = Task { side, length: Duration::from_millis(3000) };
            assert_eq!(Task::parse(&task.line()).unwrap(), task);
        }
        assert!(Task::parse("nobody 5").is_err());
        assert!(Task::parse("").is_err());
    }
}
