//! [`Keeper`]: keeps a server running for a test, and ends it however the test ends.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::eventually;

/// Starts and kills the server as it is told. Its input ends however the test ends; then it ends
/// the server and removes its folder.
const SCRIPT: &str = r#"
while read -r order; do
  case $order in
    start) "$@" >>"$0/output" 2>&1 & server=$!; echo $server ;;
    kill) kill -9 $server; wait $server; echo gone ;;
  esac
done
kill -9 $server
wait $server
rm -rf "$0"
"#;

/// A server in a folder of its own, which is gone with it.
#[derive(Debug)]
pub struct Keeper {
    folder: PathBuf,
    shell: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    server: Option<Pid>,
}

impl Keeper {
    /// A server that is started by the words that `command` makes of its folder; not started yet.
    ///
    /// # Panics
    ///
    /// If there is no shell, or no room for temporary files.
    pub fn new(command: impl FnOnce(&Path) -> Vec<OsString>) -> Self {
        let folder = tempfile::tempdir().expect("there is room for temporary files").keep();
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(SCRIPT).arg(&folder).args(command(&folder));
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A group of its own: who kills the test with its group must leave the keeper alone.
        let mut shell = shell.process_group(0).spawn().expect("there is a shell");
        let orders = shell.stdin.take();
        let answers = BufReader::new(shell.stdout.take().expect("the output is piped"));
        Self { folder, shell, orders, answers, server: None }
    }

    /// Where the server has its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts the server; it may take a while until it answers.
    ///
    /// # Panics
    ///
    /// If it runs.
    pub fn start(&mut self) {
        assert!(self.server.is_none(), "the server runs");
        let number = self.order("start");
        self.server = number.parse().ok().and_then(Pid::from_raw);
        assert!(self.server.is_some(), "{number:?} is not the number of a process");
    }

    /// Kills the server, if it runs, as a crash would; its files stay.
    pub fn kill(&mut self) {
        if self.server.take().is_some() {
            self.order("kill");
        }
    }

    /// Halts the server: SIGSTOP. Waits until it has stopped.
    ///
    /// # Panics
    ///
    /// If it does not stop.
    pub async fn stop(&self) {
        self.signal(Signal::STOP);
        eventually("the server stops", || async { self.state() == Some('T') }).await;
    }

    /// Lets the server go on: SIGCONT.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Whether the server has ended by itself.
    pub fn has_ended(&self) -> bool {
        matches!(self.state(), None | Some('Z'))
    }

    /// What the server has said lately, for people.
    pub fn output(&self) -> String {
        let text = std::fs::read_to_string(self.folder.join("output")).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    fn signal(&self, signal: Signal) {
        let server = self.server.expect("the server was killed");
        // Not waited for yet, so the number is still this process's.
        kill_process(server, signal).unwrap_or_else(|e| panic!("cannot signal the server: {e}"));
    }

    /// The letter for what the server does.
    fn state(&self) -> Option<char> {
        let stat = format!("/proc/{}/stat", self.server?.as_raw_nonzero());
        // It follows the name, which is in parentheses.
        std::fs::read_to_string(stat).ok()?.rsplit(") ").next()?.chars().next()
    }

    fn order(&mut self, word: &str) -> String {
        let orders = self.orders.as_mut().expect("the keeper is not dropped");
        writeln!(orders, "{word}").expect("the keeper listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the keeper answers");
        answer.trim_end().to_owned()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.orders = None;
        // It can only fail if somebody else waited for it.
        drop(self.shell.wait());
    }
}
