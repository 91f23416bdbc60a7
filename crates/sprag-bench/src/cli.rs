//! What the `sprag` command costs beside other commands that hold a lock.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::machine::resident_kib;
use crate::now_nanos;
use crate::options::Options;
use crate::report::{Goal, Page, Row, progress};

/// How often a command is started for one figure.
const STARTS: u32 = 40;
/// The same for etcdctl, which takes longer.
const SLOW_STARTS: u32 = 15;

pub(crate) const PAGE: Page = Page {
    title: "Benchmark of the command",
    command: "cargo xtask bench cli",
    notes: "
What is measured:

- *run*: a whole process from its start to its end, which takes a free lock, runs `true` under it
  and lets it go. flock(1) asks the kernel. `sprag run` opens its store, writes the lock and its
  release, and starts a guardian beside the command. `etcdctl lock` asks an etcd on the same machine
  without a network in between.
- *start*: a process that does nothing else, with `--version`, beside `true`.
- *memory while holding*: the resident memory of `sprag run` and its guardian together, while the
  command sleeps. What both share is counted twice.
",
};

/// All rows of the report.
pub(crate) fn measure(folder: &Path, options: &Options) -> Result<Vec<Row>> {
    let sprag = std::env::current_exe()?.with_file_name("sprag");
    ensure!(sprag.is_file(), "{} is missing: cargo build --release -p sprag-cli", sprag.display());
    let store = format!("sqlite:{}", folder.join("locks.db").display());
    let run = || {
        let mut command = Command::new(&sprag);
        command.env("SPRAG_STORE", &store).args(["run", "bench", "--", "true"]);
        command
    };
    let flock = || {
        let mut command = Command::new("flock");
        command.arg(folder.join("flock")).arg("true");
        command
    };
    let version = || {
        let mut command = Command::new(&sprag);
        command.arg("--version").stdout(Stdio::null());
        command
    };
    let nothing = || Command::new("true");
    let mut rows = vec![
        pairs("run, ms", ("flock", STARTS), (&run, &flock), options, Some(Goal::AtMost(5.0)))?,
        pairs(
            "start, ms",
            ("true", STARTS),
            (&version, &nothing),
            options,
            Some(Goal::AtMost(3.0)),
        )?,
    ];
    if let Some(etcd) = Etcd::start(folder)? {
        let etcdctl = || etcd.lock();
        let goal = Some(Goal::AtMost(0.33));
        rows.push(pairs(
            "run beside an etcd, ms",
            ("etcdctl", SLOW_STARTS),
            (&run, &etcdctl),
            options,
            goal,
        )?);
    } else {
        progress("etcdctl: not installed, left out");
    }
    rows.push(memory(&sprag, &store)?);
    Ok(rows)
}

type Make<'a> = &'a dyn Fn() -> Command;

/// Ours and theirs, alternately; milliseconds for one start.
fn pairs(
    what: &str,
    (reference, starts): (&str, u32),
    (ours, theirs): (Make<'_>, Make<'_>),
    options: &Options,
    goal: Option<Goal>,
) -> Result<Row> {
    progress(&format!("{what}: sprag and {reference}"));
    // The first start of each makes files and fills caches.
    timed(ours, 1)?;
    timed(theirs, 1)?;
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for _ in 0..options.pairs {
        left.push(timed(ours, starts)?);
        right.push(timed(theirs, starts)?);
    }
    Ok(Row::pairs(what, &left, (reference, &right), goal))
}

fn timed(make: Make<'_>, starts: u32) -> Result<f64> {
    let begun = now_nanos();
    for _ in 0..starts {
        let mut command = make();
        let status = command.stdin(Stdio::null()).stderr(Stdio::null()).status();
        let status = status.with_context(|| format!("cannot start {command:?}"))?;
        ensure!(status.success(), "{command:?}: {status}");
    }
    Ok((now_nanos() - begun) as f64 / 1e6 / f64::from(starts))
}

/// What the wrapper and its guardian take while the command runs.
fn memory(sprag: &Path, store: &str) -> Result<Row> {
    progress("memory while holding");
    let mut wrapper = Command::new(sprag)
        .env("SPRAG_STORE", store)
        .args(["run", "bench", "--", "sh", "-c", "echo; exec sleep 60"])
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = wrapper.stdout.take().context("no pipe")?;
    // When the command says something, the lock is held.
    BufReader::new(stdout).read_line(&mut String::new())?;
    let own = resident_kib(wrapper.id())?;
    let guardian = guardian(wrapper.id())?.map_or(Ok(0), resident_kib)?;
    wrapper.kill()?;
    wrapper.wait()?;
    let total = (own + guardian) as f64 / 1024.0;
    let beside = format!("wrapper {own} KiB, guardian {guardian} KiB");
    Ok(Row::absolute("memory while holding, MiB", &[total], beside, Some(Goal::AtMost(16.0))))
}

/// The guardian that a wrapper started.
fn guardian(wrapper: u32) -> Result<Option<u32>> {
    let list = std::fs::read_to_string(format!("/proc/{wrapper}/task/{wrapper}/children"))?;
    let mut children = list.split_whitespace().filter_map(|pid| pid.parse().ok());
    Ok(children.find(|pid: &u32| {
        let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.contains("__guardian")
    }))
}

/// An etcd of our own; stopped when it is dropped.
struct Etcd {
    server: Child,
    endpoint: String,
}

impl Etcd {
    /// `None` where etcd is not installed.
    fn start(folder: &Path) -> Result<Option<Self>> {
        let (client, peer) = ("http://127.0.0.1:32389", "http://127.0.0.1:32390");
        let data: PathBuf = folder.join("etcd");
        let server = Command::new("etcd")
            .arg("--data-dir")
            .arg(data)
            .args(["--listen-client-urls", client, "--advertise-client-urls", client])
            .args(["--listen-peer-urls", peer])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(server) = server else { return Ok(None) };
        let etcd = Self { server, endpoint: client.to_owned() };
        for _ in 0..200 {
            let mut look = etcd.command();
            let look = look.args(["get", "ready"]).stdout(Stdio::null()).stderr(Stdio::null());
            match look.status() {
                Ok(status) if status.success() => return Ok(Some(etcd)),
                Ok(_) => pause(),
                Err(_) => return Ok(None),
            }
        }
        anyhow::bail!("etcd does not answer")
    }

    fn command(&self) -> Command {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", &self.endpoint);
        command
    }

    fn lock(&self) -> Command {
        let mut command = self.command();
        command.args(["lock", "bench", "--", "true"]).stdout(Stdio::null());
        command
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        drop(self.server.kill());
        drop(self.server.wait());
    }
}

#[expect(clippy::disallowed_methods, reason = "between two looks at a state")]
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}
