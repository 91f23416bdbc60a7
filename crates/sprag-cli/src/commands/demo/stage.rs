//! [`Stage`]: the four scenes.

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{Scene, resource};
use crate::code::Code;
use crate::config::Settings;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::time;
use crate::store::Opened;

const PROCESSES: u64 = 8;
const ROUNDS: u64 = 10;
const PER_ROUND: u64 = 100;
const EXPECTED: u64 = PROCESSES * ROUNDS * PER_ROUND;
/// The lease of a holder that is killed: what others would wait for without its guardian.
const TTL: &str = "6s";
const KILL_AFTER: &str = "1s";
/// The lease of a holder that is frozen.
const SHORT: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);
/// Longer than any scene takes if all is well.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the scenes are played.
pub(super) struct Stage {
    opened: Opened,
    /// May contain secrets; handed to processes in their environment.
    url: String,
    folder: PathBuf,
    program: PathBuf,
}

impl Stage {
    pub(super) fn new(settings: &Settings, url: String, folder: PathBuf) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(failed)?;
        let opened = Opened::open(&settings.with_store(url.clone()))?;
        crate::run::overlap::refuse(&opened)?;
        Ok(Self { opened, url, folder, program })
    }

    pub(super) fn shown(&self) -> &str {
        &self.opened.shown
    }

    /// Scene 1: what happens without a lock.
    pub(super) fn without_lock(&self) -> Result<Scene, Failure> {
        let counter = self.file("without")?;
        let times = (ROUNDS * PER_ROUND).to_string();
        let children = (0..PROCESSES).map(|_| {
            self.sprag(&["__demo", "add"]).arg(&counter).arg(&times).spawn().map_err(failed)
        });
        for child in children.collect::<Result<Vec<_>, _>>()? {
            succeeded(&wait(child)?, "adding")?;
        }
        let sum = resource::number(&counter).map_err(failed)?;
        let lost = if sum < EXPECTED { "   (lost updates)" } else { "   (none lost this time)" };
        Ok(Scene {
            name: "8 processes add 1 to a file, 1000 times each, without a lock",
            text: format!("{sum} of {EXPECTED}{lost}"),
            kept: true,
        })
    }

    /// Scene 2: the same, with the lock.
    pub(super) fn with_lock(&self) -> Result<Scene, Failure> {
        let counter = self.file("with")?;
        let name = self.name("counter");
        let per_round = PER_ROUND.to_string();
        let round = || -> Result<(), Failure> {
            let mut run = self.sprag(&["run", "-q", &name, "--"]);
            run.arg(&self.program).args(["__demo", "add"]).arg(&counter).arg(&per_round);
            succeeded(&wait(run.spawn().map_err(failed)?)?, "sprag run")
        };
        let worker = || (0..ROUNDS).try_for_each(|_| round());
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..PROCESSES).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().try_for_each(|worker| {
                worker.join().unwrap_or_else(|_| Err(Failure::new(Code::Bug, "a thread panicked")))
            })
        })?;
        let sum = resource::number(&counter).map_err(failed)?;
        Ok(Scene {
            name: "the same under sprag run, 100 at a time",
            text: format!("{sum} of {EXPECTED}"),
            kept: sum == EXPECTED,
        })
    }

    /// Scene 3: the holder is killed, and its command is dead before the next one enters.
    pub(super) async fn killed(&self) -> Result<Scene, Failure> {
        let name = self.name("killed");
        let mut run =
            self.sprag(&["run", "-q", "--ttl", TTL, "--kill-after", KILL_AFTER, &name, "--"]);
        // The shell and its child: both have to be gone.
        run.args(["sh", "-c", "echo $$; sleep 60; true"]).stdout(Stdio::piped());
        let mut holder = Actor(run.spawn().map_err(failed)?);
        let mut first = String::new();
        let stdout =
            holder.0.stdout.take().ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
        BufReader::new(stdout).read_line(&mut first).map_err(failed)?;
        let Ok(command) = first.trim().parse::<i32>() else {
            let status = holder.0.wait().map_err(failed)?;
            return Err(Failure::new(Code::Claim, format!("the holder did not start: {status}")));
        };

        let mut next = self.sprag(&["run", "-q"]);
        // Where only signs of life are seen, the lock of the dead stays until it is taken over.
        let held = self.opened.inspect(&*name).await?;
        if held.holders.iter().any(|holder| holder.remaining.is_none()) {
            next.arg(format!("--takeover={TTL}"));
        }
        next.args([&name, "--"]).arg(&self.program);
        let mut next =
            Actor(next.args(["__demo", "look", &command.to_string()]).spawn().map_err(failed)?);
        self.until(async || Ok(!self.opened.inspect(&*name).await?.waiters.is_empty())).await?;
        let killed = time::now();
        drop(holder);
        self.until(async || Ok(next.0.try_wait().map_err(failed)?.is_some())).await?;
        let entered = time::span(time::ago(killed));
        let gone = next.0.wait().map_err(failed)?.success();
        let command = if gone { "already dead" } else { "STILL ALIVE" };
        Ok(Scene {
            name: "kill -9 the holder",
            text: format!(
                "the next one entered after {entered} (ttl {TTL}); the old command was {command}"
            ),
            kept: gone,
        })
    }

    /// Scene 4: a frozen holder wakes up too late, and its token is refused.
    pub(super) async fn frozen(&self) -> Result<Scene, Failure> {
        let (name, page) = (self.name("frozen"), self.file("page")?);
        let lease = self.opened.lock(&*name).ttl(SHORT).detached().no_renewal();
        let ticket = lease.acquire().await?.into_ticket().await?;
        let (old, frozen) = (ticket.fence(), time::now());
        let mut writer = self.sprag(&["__demo", "write"]);
        writer.arg(&page).arg(old.to_string()).stdin(Stdio::piped());
        let mut writer = Actor(writer.spawn().map_err(failed)?);
        signal(&writer.0, Signal::STOP)?;
        if let Some(mut stdin) = writer.0.stdin.take() {
            stdin.write_all(b"write\n").map_err(failed)?;
        }
        let next = self.opened.lock(&*name).wait(PATIENCE).acquire().await?;
        let new = next.fence();
        resource::write(&page, new.get()).map_err(failed)?;
        signal(&writer.0, Signal::CONT)?;
        let status = writer.0.wait().map_err(failed)?;
        let frozen = time::span(time::ago(frozen));
        next.release().await?;
        let refused = status.code() == Some(Exit::DENIED.number().into());
        let outcome = if refused { "was refused" } else { "WAS ACCEPTED" };
        Ok(Scene {
            name: "freeze a holder (SIGSTOP)",
            text: format!(
                "{frozen} later its write with token {old} {outcome}; the current token is {new}"
            ),
            kept: refused && old < new,
        })
    }

    /// A lock that no other demonstration uses.
    fn name(&self, scene: &str) -> String {
        format!("sprag/demo/{}/{scene}", std::process::id())
    }

    /// A file with the number 0 in it.
    fn file(&self, name: &str) -> Result<PathBuf, Failure> {
        let file = self.folder.join(name);
        std::fs::write(&file, format!("{:08}", 0)).map_err(failed)?;
        Ok(file)
    }

    /// This program again, on the same store.
    fn sprag(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        // Not as a flag: everybody can see the flags of a process.
        command.args(arguments).env("SPRAG_STORE", &self.url).stdin(Stdio::null());
        for inherited in ["SPRAG_LOCK", "SPRAG_LEASE", "SPRAG_HELD", "SPRAG_SOCKET", "SPRAG_TTL"] {
            command.env_remove(inherited);
        }
        command
    }

    /// Waits for something to become true.
    async fn until(
        &self,
        mut done: impl AsyncFnMut() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let begun = time::now();
        while !done().await? {
            if time::ago(begun) > PATIENCE {
                let what = format!("nothing happened for {}", time::span(PATIENCE));
                return Err(Failure::new(Code::Claim, what));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }
}

/// A process that does not outlive its scene, whatever happens in it.
struct Actor(Child);

impl Drop for Actor {
    fn drop(&mut self) {
        // It may be over, which is as good.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn wait(mut child: Child) -> Result<ExitStatus, Failure> {
    child.wait().map_err(failed)
}

fn succeeded(status: &ExitStatus, what: &str) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(Code::Claim, format!("{what} did not work: {status}")))
}

fn signal(child: &Child, signal: Signal) -> Result<(), Failure> {
    kill_process(Pid::from_child(child), signal).map_err(|errno| failed(errno.into()))
}

fn failed(error: io::Error) -> Failure {
    Failure::new(Code::Bug, format!("the demonstration cannot go on: {error}"))
}
