//! Libraries in other languages, each in a process of its own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::report::Goal;

const PYTHON: &str = "
import sys, time, redis
url, seconds, library = sys.argv[1], float(sys.argv[2]), sys.argv[3]
client = redis.Redis.from_url(url)
if library == 'pottery':
    from pottery import Redlock
    lock = Redlock(key='bench:pottery', masters={client}, auto_release_time=30)
else:
    lock = client.lock('bench:redis-py', timeout=30)
cycles, start = 0, time.monotonic()
while time.monotonic() - start < seconds:
    lock.acquire()
    lock.release()
    cycles += 1
print(cycles / (time.monotonic() - start))
";

const NODE: &str = "
const [url, seconds] = [process.argv[2], Number(process.argv[3])];
const Redis = require('ioredis');
const redlock = require('redlock');
const client = new Redis(url);
const locks = new (redlock.default || redlock)([client]);
(async () => {
  const start = process.hrtime.bigint();
  const passed = () => Number(process.hrtime.bigint() - start) / 1e9;
  let cycles = 0;
  while (passed() < seconds) {
    const lock = await locks.acquire(['bench:npm-redlock'], 30000);
    await (lock.release ? lock.release() : lock.unlock());
    cycles += 1;
  }
  console.log(cycles / passed());
  client.disconnect();
})();
";

/// A library.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Foreign {
    RedisPy,
    Pottery,
    NpmRedlock,
}

pub(crate) const ALL: [Foreign; 3] = [Foreign::RedisPy, Foreign::Pottery, Foreign::NpmRedlock];

impl Foreign {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RedisPy => "redis-py",
            Self::Pottery => "pottery",
            Self::NpmRedlock => "npm redlock",
        }
    }

    pub(crate) const fn goal(self) -> Option<Goal> {
        match self {
            Self::RedisPy | Self::Pottery => Some(Goal::AtLeast(1.0)),
            Self::NpmRedlock => None,
        }
    }

    /// One task, one lock that nobody else wants.
    pub(crate) async fn cycles_per_second(
        self,
        url: &str,
        folder: &Path,
        length: Duration,
    ) -> Result<f64> {
        let (program, file, text) = match self {
            Self::RedisPy | Self::Pottery => ("python3", "bench.py", PYTHON),
            Self::NpmRedlock => ("node", "bench.js", NODE),
        };
        let script = folder.join(file);
        std::fs::write(&script, text)?;
        let mut command = tokio::process::Command::new(program);
        command.arg(&script).arg(url).arg(length.as_secs_f64().to_string()).arg(self.name());
        command.env("NODE_PATH", installed("node/node_modules"));
        command.env("PYTHONPATH", installed("python"));
        let hint = "`cargo xtask bench redis` installs it";
        let output = command.output().await;
        let output = output.with_context(|| format!("no {program}; {hint}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} failed; {hint}: {said}", self.name());
        let text = String::from_utf8(output.stdout)?;
        text.trim().parse().with_context(|| format!("{} said {text}", self.name()))
    }
}

/// Where `cargo xtask` puts other libraries.
fn installed(what: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers").join(what)
}
