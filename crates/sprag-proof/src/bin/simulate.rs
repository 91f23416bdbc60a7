//! Runs the seeded simulation: `simulate --seed N --hours N --runs N`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to people")]

use std::process::ExitCode;
use std::time::Instant;

use sprag_proof::simulation::{Plan, Report, simulate};

const USAGE: &str = "\
Usage: cargo xtask sim [--seed N] [--hours N] [--runs N]

  --seed N    the first seed; each run has the next one (default 1)
  --hours N   simulated hours of faults in each run (default 24)
  --runs N    how many runs (default 1)";

struct Options {
    plan: Plan,
    runs: u64,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options { plan: Plan { seed: 1, hours: 24 }, runs: 1 };
    while let Some(flag) = arguments.next() {
        let value = arguments.next()?;
        match flag.as_str() {
            "--seed" => options.plan.seed = value.parse().ok()?,
            "--hours" => options.plan.hours = value.parse().ok()?,
            "--runs" => options.runs = value.parse().ok()?,
            _ => return None,
        }
    }
    Some(options)
}

#[expect(clippy::disallowed_methods, reason = "a stopwatch for people; no decision hangs on it")]
fn main() -> ExitCode {
    let Some(Options { plan, runs }) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let start = Instant::now();
    let mut sum: Option<Report> = None;
    for run in 0..runs {
        let plan = Plan { seed: plan.seed.wrapping_add(run), ..plan };
        println!("seed {} for {} h: cargo xtask sim --seed {0} --hours {1}", plan.seed, plan.hours);
        match simulate(plan) {
            Ok(report) => match &mut sum {
                Some(sum) => sum.add(&report),
                None => sum = Some(report),
            },
            Err(failure) => {
                eprintln!("{failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    if let Some(report) = sum {
        let seconds = start.elapsed().as_secs_f64();
        print!("{report}");
        let (hours, events) = (f64::from(report.plan.hours), to_f64(report.events));
        let (hours_rate, events_rate) = (hours / seconds, events / seconds);
        println!(
            "{seconds:.1} s: {hours_rate:.1} simulated hours and {events_rate:.0} events per second"
        );
    }
    ExitCode::SUCCESS
}

#[expect(clippy::cast_precision_loss, reason = "shown to people with few digits")]
fn to_f64(number: u64) -> f64 {
    number as f64
}
