//! The client and the machine in a simulated world full of faults.
//!
//! `SPRAG_SIM_SEED` replaces the first seed; the seeds are fixed otherwise, so that a change that
//! passes once passes again. `cargo xtask sim` runs others.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sprag_proof::simulation::{Plan, Report, regressions, simulate};

fn first_seed() -> u64 {
    std::env::var("SPRAG_SIM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_000)
}

/// Runs all plans, as many at a time as there are processors: one run is one thread. After a
/// failure no more are begun.
fn run_all(plans: Vec<Plan>) -> Report {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut results = Vec::new();
        while let Some(plan) = plans.get(next.fetch_add(1, Ordering::SeqCst))
            && !failed.load(Ordering::SeqCst)
        {
            results.push(simulate(*plan));
            failed.fetch_or(results.last().is_some_and(Result::is_err), Ordering::SeqCst);
        }
        results
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a run panicked")).collect()
    });
    let reports = results.into_iter().map(|run| run.unwrap_or_else(|failure| panic!("{failure}")));
    let sum = |mut sum: Report, report| {
        sum.add(&report);
        sum
    };
    reports.reduce(sum).expect("there is a plan")
}

fn run(plan: Plan) -> Report {
    simulate(plan).unwrap_or_else(|failure| panic!("{failure}"))
}

fn plans(first: u64, runs: u64, hours: u32) -> Vec<Plan> {
    (first..first + runs).map(|seed| Plan { seed, hours }).collect()
}

#[test]
fn a_day_of_faults_breaks_nothing() {
    // Short runs: they begin with a crowd, so most of their time is spent in one.
    let report = run_all(plans(first_seed() + 100_000, 24, 1));
    println!("{report}");
}

/// Nine days; a month in the full run.
#[test]
fn weeks_of_faults_break_nothing() {
    let full = std::env::var("SPRAG_SIZE").is_ok_and(|size| size == "full");
    let runs = if full { 20 } else { 6 };
    let report = run_all(plans(first_seed(), runs, 36));
    println!("{report}");
    assert!(u64::from(report.plan.hours) >= 36 * runs);
    let missing: Vec<_> = report.faults().filter(|(_, count)| *count == 0).collect();
    assert!(missing.is_empty(), "faults that never happened: {missing:?}");
    for work in ["holds", "released", "upgraded", "adopted", "deadlock", "broken", "expired"] {
        assert!(report.count(work) > 0, "nobody ever saw: {work}");
    }
}

#[test]
fn one_seed_is_one_run() {
    for seed in 7..11 {
        let plan = Plan { seed, hours: 1 };
        let (first, second) = (run(plan), run(plan));
        assert_eq!(first.hash, second.hash, "two runs of seed {seed} differ");
        assert_eq!(first, second);
    }
    let other = |seed| run(Plan { seed, hours: 1 }).hash;
    assert_ne!(other(7), other(8));
}

#[test]
fn seeds_that_failed_once_do_not_fail_again() {
    for (plan, found) in regressions::SEEDS {
        if let Err(failure) = simulate(*plan) {
            panic!("once it found: {found}\n{failure}");
        }
    }
}
