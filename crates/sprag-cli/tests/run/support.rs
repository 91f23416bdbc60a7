//! A place of its own for each test, and how to wait for what happens there.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sprag::clock::{BootClock, Clock, Moment};
use sprag::{LockView, Locks};

/// How long to wait for something that should happen at once; a machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What tells a command that it is in a CI job or a pod.
const SURROUNDINGS: &[&str] = &[
    "KUBERNETES_SERVICE_HOST",
    "CI",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "BUILDKITE",
    "CIRCLECI",
    "JENKINS_URL",
    "TEAMCITY_VERSION",
    "TF_BUILD",
];

/// A state directory, a runtime directory and a working directory that nobody else uses.
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["state", "run", "work"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    /// `sprag` with these words, in a session of its own without a terminal.
    pub(crate) fn sprag(&self, words: &[&str]) -> Command {
        let mut command = Command::new("setsid");
        command.arg(env!("CARGO_BIN_EXE_sprag")).args(words);
        self.set_up(&mut command);
        command
    }

    /// Lets a command live in this place.
    pub(crate) fn set_up(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("SPRAG_") || SURROUNDINGS.contains(&&*text) {
                command.env_remove(&name);
            }
        }
        command
            .env("XDG_STATE_HOME", self.dir.path().join("state"))
            .env("XDG_RUNTIME_DIR", self.dir.path().join("run"))
            .env("HOME", self.dir.path().join("work"))
            .env("SPRAG", env!("CARGO_BIN_EXE_sprag"))
            .env("NO_COLOR", "1")
            // Wherever the tests run, they are in no container.
            .env("container", "")
            .current_dir(self.dir.path().join("work"))
            .stdin(Stdio::null());
    }

    /// Starts `sprag` with its output in pipes.
    pub(crate) fn start(&self, words: &[&str]) -> Run {
        self.run(self.sprag(words))
    }

    pub(crate) fn run(&self, mut command: Command) -> Run {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Run { child: command.spawn().unwrap() }
    }

    /// Starts a `sprag run` that holds its lock until it is ended, and waits until it does.
    pub(crate) fn hold(&self, words: &[&str]) -> Run {
        let script = "echo up > up; exec sleep 100";
        let run = self.start(&[&["run"], words, &["--", "sh", "-c", script]].concat());
        self.wait_lines("up", 1);
        run
    }

    /// Runs `sprag` to its end.
    pub(crate) fn end(&self, words: &[&str]) -> Ended {
        self.start(words).end()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    /// The text of a file in the working directory; empty while there is none.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until a file has so many lines.
    pub(crate) fn wait_lines(&self, name: &str, lines: usize) -> String {
        wait_for(&format!("{lines} lines in {name}"), || self.read(name).lines().count() >= lines);
        self.read(name)
    }

    /// The file where the locks are.
    pub(crate) fn database(&self) -> PathBuf {
        self.dir.path().join("state/sprag/sprag.db")
    }

    /// The locks, seen from this process.
    pub(crate) fn locks(&self) -> Locks {
        Locks::open(&format!("sqlite://{}", self.database().display())).unwrap()
    }

    /// What a lock looks like.
    pub(crate) fn look(&self, name: &str) -> LockView {
        let locks = self.locks();
        let view = block_on(locks.inspect(name)).unwrap();
        // Our own session must be over before anybody looks for what others left behind.
        let store = std::sync::Arc::clone(locks.store());
        drop(locks);
        wait_for("our own session to end", || std::sync::Arc::strong_count(&store) == 1);
        view
    }

    /// What is left of sessions and sockets.
    pub(crate) fn left_behind(&self) -> Vec<String> {
        let folders = [
            self.dir.path().join("state/sprag/sprag.db.sessions"),
            self.dir.path().join("run/sprag"),
        ];
        let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// A process that was started.
pub(crate) struct Run {
    pub(crate) child: Child,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn send(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Waits for the end and takes what was written.
    pub(crate) fn end(mut self) -> Ended {
        drop(self.child.stdin.take());
        let (mut out, mut err) = (String::new(), String::new());
        let stderr = self.child.stderr.take();
        let reader = thread::spawn(move || {
            if let Some(mut stderr) = stderr {
                stderr.read_to_string(&mut err).unwrap();
            }
            err
        });
        if let Some(mut stdout) = self.child.stdout.take() {
            stdout.read_to_string(&mut out).unwrap();
        }
        let status = self.child.wait().unwrap();
        Ended { code: code(status), out, err: reader.join().unwrap() }
    }

    /// The exit code, if it has ended.
    pub(crate) fn code(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap().map(code)
    }

    /// Waits until it has ended, at most so long.
    pub(crate) fn wait(&mut self, limit: Duration) -> i32 {
        let mut found = None;
        wait_within(limit, "the end of sprag", || {
            found = self.code();
            found.is_some()
        });
        found.unwrap()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // A test that failed leaves nothing running.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 1000 + status.signal().unwrap())
}

pub(crate) fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Whether a process is there and no zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
}

/// The guardian of a run.
pub(crate) fn guardian(run: &Run) -> i32 {
    let mut found = None;
    wait_for("a guardian", || {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.pid()));
        found =
            children.unwrap_or_default().split_whitespace().next().map(|pid| pid.parse().unwrap());
        found.is_some()
    });
    found.unwrap()
}

pub(crate) fn now() -> Moment {
    BootClock.now()
}

/// Waits until a condition is true.
pub(crate) fn wait_for(what: &str, condition: impl FnMut() -> bool) {
    wait_within(PATIENCE, what, condition);
}

pub(crate) fn wait_within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let started = now();
    while !condition() {
        assert!(now().since(started) < limit, "not within {limit:?}: {what}");
        thread::park_timeout(Duration::from_millis(3));
    }
}

/// Lets time pass, where that is what is tested.
pub(crate) fn let_time_pass(span: Duration) {
    let end = now().plus(span);
    while now() < end {
        thread::park_timeout(end.since(now()));
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(future)
}
