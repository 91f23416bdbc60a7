//! One process of the crowd.

use std::fs::File;
use std::io::Write as _;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::crowd::{self, Side, Task};
use crate::now_nanos;
use crate::subject::Subject;
use crate::timed::Timings;
use crate::visits::{Account, Visit};

/// How long everybody stays inside.
pub(crate) const SECTION: Duration = Duration::from_millis(1);

/// The lock everybody wants.
const NAME: &str = "crowd";

/// Takes part in rounds until its input ends.
pub(crate) fn run(folder: &Path) -> Result<()> {
    // The kernel may prolong a sleep by 50 us, and 1 ms inside would not be 1 ms on any side.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    let gate = crowd::gate(folder)?;
    let flock = crowd::open(&folder.join("flock"))?;
    let timings = Arc::new(Timings::default());
    let subject = Subject::open_timed(folder, &timings)?;
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lines() {
        let task = Task::parse(&line?)?;
        writeln!(output, "ready")?;
        output.flush()?;
        gate.lock_shared()?;
        gate.unlock()?;
        let visits = match task.side {
            Side::Sprag => visits(task.length, || by_sprag(&subject))?,
            Side::Flock => visits(task.length, || by_flock(&flock))?,
        };
        let (acquire_micros, release_micros) = timings.take();
        let account = Account { visits, acquire_micros, release_micros };
        writeln!(output, "{}", serde_json::to_string(&account)?)?;
        output.flush()?;
    }
    Ok(())
}

/// Enters once, or again and again for `length`.
fn visits(length: Duration, mut visit: impl FnMut() -> Result<Visit>) -> Result<Vec<Visit>> {
    let end = now_nanos() + u64::try_from(length.as_nanos())?;
    let mut visits = vec![visit()?];
    while now_nanos() < end {
        visits.push(visit()?);
    }
    Ok(visits)
}

fn by_sprag(subject: &Subject) -> Result<Visit> {
    let wanted = now_nanos();
    let guard = subject.acquire(NAME)?;
    let (entered, done) = stay();
    subject.release(guard)?;
    Ok(Visit { entered, wanted, done, left: now_nanos() })
}

fn by_flock(file: &File) -> Result<Visit> {
    let wanted = now_nanos();
    file.lock()?;
    let (entered, done) = stay();
    file.unlock()?;
    Ok(Visit { entered, wanted, done, left: now_nanos() })
}

/// The section: some time of doing something else than computing. Returns when it began and ended.
#[expect(clippy::disallowed_methods, reason = "the passing of time is the work in the section")]
fn stay() -> (u64, u64) {
    let entered = now_nanos();
    std::thread::sleep(SECTION);
    (entered, now_nanos())
}
