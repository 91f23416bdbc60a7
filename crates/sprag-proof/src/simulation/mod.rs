//! The seeded simulation: the production client over a simulated network and store, with faults.
//!
//! ```text
//!   seed --> Dice --> Setting: how many processes, which faults, which workload
//!
//!   life (one per process)                    network                 world
//!     Client + Keeper + workers  -- requests, lost, late, twice -->  record::apply
//!     paused, crashed, cut off  <-- replies and hints, lost, late --  its own clock
//!            |                                                           |
//!            `------> oracle: who believes to hold what       machine_rules: each step
//! ```
//!
//! Everything runs on one thread on a paused clock, which jumps to the next timer when nothing
//! else can run. All choices come from the seed, so a seed is a run: a failure is repeated by its
//! seed, see [`Failure`].
//!
//! Where chance could come in, and what keeps it out: threads (none), time (tokio's paused
//! clock), random numbers ([`Client`](sprag_core::Client) takes its entropy from outside), the
//! order of `select!` (always biased), the order of hash maps (never walked).

mod clock;
mod dice;
mod journal;
mod life;
mod machine_rules;
mod network;
mod oracle;
pub mod regressions;
mod report;
mod sim;
mod weather;
mod work;
mod worker;
mod world;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

pub use report::{Failure, Report};
use sim::Sim;

/// How long everything may take to heal after the last fault.
const HEAL: Duration = Duration::from_secs(600);
/// The longest lease of the workload, and a little.
const LONGEST_LEASE: Duration = Duration::from_secs(40);

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// How long the faults go on, in simulated hours.
    pub hours: u32,
}

/// Runs the simulation.
///
/// # Errors
///
/// The first rule that was broken, with what happened before.
pub fn simulate(plan: Plan) -> Result<Report, Box<Failure>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without threads and sockets needs nothing from the system");
    runtime.block_on(run(plan))
}

async fn run(plan: Plan) -> Result<Report, Box<Failure>> {
    let sim = Sim::new(plan.seed);
    let faults = Duration::from_secs(u64::from(plan.hours) * 3600);
    let lives: Vec<_> = (1..=sim.setting.processes)
        .map(|process| tokio::spawn(life::live(Arc::clone(&sim), process)))
        .collect();
    tokio::spawn(change_weather(Arc::clone(&sim)));
    let all = async {
        sleep(faults).await;
        sim.calm_down();
        let healed = Instant::now();
        for life in lives {
            if timeout(HEAL.saturating_sub(healed.elapsed()), life).await.is_err() {
                sim.fail(format!("somebody is still busy {HEAL:?} after the last fault"));
            }
        }
        // Nothing but time frees what crashed processes and forgotten tickets hold.
        sleep(LONGEST_LEASE).await;
        let left = sim.world().traces(None);
        if !left.is_empty() {
            sim.fail(format!("left behind at the end: {}", left.join(", ")));
        }
    };
    tokio::select! {
        biased;
        () = sim.failed() => {}
        () = all => {}
    }
    sim.report(plan)
}

async fn change_weather(sim: Arc<Sim>) {
    while !sim.is_calm() {
        let pause = sim.weather().next_front();
        sleep(pause).await;
        if !sim.is_calm() {
            let (what, length) = sim.weather().front();
            sim.note(journal::Who::STORE, what, None, sim::millis(length));
        }
    }
}
