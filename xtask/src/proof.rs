//! The long runs: models, mutants, simulation, torture, benchmarks.

use std::ffi::OsString;

use crate::failure::{Failure, Outcome};
use crate::install::{self, Need};
use crate::proof_page;
use crate::shell::{self, Shell};

/// The models of `sprag-proof`, in release; `--large` makes them bigger.
pub(crate) fn model(shell: &Shell, arguments: &[String]) -> Outcome {
    let mut large = false;
    for argument in arguments {
        match argument.as_str() {
            "--large" => large = true,
            other => {
                return Err(Failure::usage(format!(
                    "`model` takes no `{other}`; there is --large"
                )));
            }
        }
    }
    install::ensure(shell, [Need::CCompiler])?;
    // One model at a time: each uses all cores, and prints how much it has looked at.
    let arguments = [
        "test",
        "--release",
        "-p",
        "sprag-proof",
        "--test",
        "models",
        "--",
        "--nocapture",
        "--test-threads=1",
    ];
    let mut command = shell.cargo(&arguments);
    shell::run(command.env("SPRAG_MODEL", if large { "large" } else { "full" }))
}

/// Builds with the planted bugs compiled in, apart from the everyday builds, and hunts them.
pub(crate) fn mutants(shell: &Shell, arguments: &[String]) -> Outcome {
    install::ensure(shell, [Need::CCompiler, Need::Redis])?;
    let mut flags = std::env::var_os("RUSTFLAGS").unwrap_or_default();
    if !flags.is_empty() {
        flags.push(" ");
    }
    flags.push(OsString::from("--cfg sprag_mutants"));
    let mut command = shell.cargo(&["run", "-p", "sprag-proof", "--bin", "mutants", "--"]);
    command
        .args(arguments)
        .env("RUSTFLAGS", flags)
        .env("CARGO_TARGET_DIR", shell.target("mutants"));
    let found = shell::run_and_read(&mut command)?;
    // The result of all of them is kept.
    if arguments.is_empty() { proof_page::write(shell, "mutants", &found) } else { Ok(()) }
}

/// The seeded simulation; its own flags are passed on.
pub(crate) fn simulate(shell: &Shell, arguments: &[String]) -> Outcome {
    install::ensure(shell, [Need::CCompiler])?;
    let fixed = ["run", "--release", "-p", "sprag-proof", "--bin", "simulate", "--"];
    shell::run(shell.cargo(&fixed).args(arguments))
}

/// The cases for every store that have a full size.
const LONG_CASES: &[&str] = &[
    "a_late_renewal_never_revives",
    "a_healthy_lock_is_not_lost",
    "a_release_before_the_wait_is_not_missed",
    "a_long_waiter_keeps_its_place",
    "a_timeout_is_waited_out",
    "thousands_of_names_do_not_collide",
    "hundreds_of_timeouts_leave_nothing",
];

/// Tests in their full size.
///
/// Not by nextest: it would end after minutes what takes an hour. One at a time, as they fight for
/// the cores enough by themselves.
fn full(shell: &Shell, tests: &[&[&str]]) -> Outcome {
    tests.iter().try_for_each(|tests| {
        let mut command = shell.cargo(&["test", "--release"]);
        command.args(*tests).args(["--nocapture", "--test-threads=1"]);
        // The web servers of the tests have an authority of their own.
        shell::run(command.env("SPRAG_TORTURE", "full").env_remove("GIT_SSL_CAINFO"))
    })
}

/// Real processes under faults; its own flags are passed on. With `--full`, the tests that do a
/// thing a few times in the everyday run do it thousands of times; `work` does so with the fleet,
/// `postgres` with both kinds of locks on a PostgreSQL server, `github` with the proofs on a simulated
/// GitHub, and `git` with races on git servers.
pub(crate) fn torture(shell: &Shell, arguments: &[String]) -> Outcome {
    install::ensure(shell, [Need::CCompiler])?;
    let fleet = ["-p", "sprag-cli", "--test", "work", "--", "agents", "crashes"];
    if arguments == ["work"] {
        return full(shell, &[&fleet]);
    }
    let leases = ["-p", "sprag-testkit", "--test", "postgres", "--", "lease::processes"];
    let advisory = ["-p", "sprag-testkit", "--test", "postgres", "--", "advisory::processes"];
    let thousands = ["-p", "sprag-testkit", "--test", "postgres", "--", "rows::thousands"];
    let functions = ["-p", "sprag-postgres", "--lib", "--", "differential"];
    let postgres: [&[&str]; 4] = [&leases, &advisory, &thousands, &functions];
    if arguments == ["postgres"] {
        install::ensure(shell, [Need::Postgres])?;
        return full(shell, &postgres);
    }
    if arguments == ["git"] {
        return full(shell, &[&["-p", "sprag-testkit", "--test", "git", "--", "transports::"]]);
    }
    if arguments == ["github"] {
        install::ensure(shell, [Need::Peers])?;
        let proofs =
            ["-p", "sprag-github", "--", "forty_workers", "never_two", "a_hundred_waiters"];
        let workers = ["-p", "sprag-cli", "--test", "github", "--", "fleet"];
        return full(shell, &[&proofs, &workers]);
    }
    if arguments == ["--full"] {
        let process = ["-p", "sprag-testkit", "--test", "local", "--", "process::"];
        let kit = ["-p", "sprag-testkit", "--test", "local", "--"];
        let cases: Vec<_> = kit.iter().chain(LONG_CASES).copied().collect();
        let races = ["-p", "sprag-cli", "--test", "run", "--", "races"];
        install::ensure(shell, [Need::Postgres])?;
        full(shell, &[&process, &cases, &races, &fleet])?;
        return full(shell, &postgres);
    }
    let fixed = ["run", "--release", "-p", "sprag-testkit", "--bin", "sprag-torture", "--"];
    shell::run(shell.cargo(&fixed).args(arguments))
}

/// A benchmark by name; its own flags are passed on.
pub(crate) fn bench(shell: &Shell, arguments: &[String]) -> Outcome {
    match arguments.first().map(String::as_str) {
        Some(name @ ("local" | "cli")) => {
            install::ensure(shell, [Need::CCompiler])?;
            if name == "cli" {
                // It is measured as a program, from beside the benchmark.
                shell::run(&mut shell.cargo(&["build", "--profile", "dist", "-p", "sprag-cli"]))?;
            }
            let fixed = ["run", "--profile", "dist", "-p", "sprag-bench", "--"];
            shell::run(shell.cargo(&fixed).args(arguments))
        }
        Some("redis") => {
            install::ensure(shell, [Need::CCompiler, Need::Redis, Need::Peers])?;
            let fixed =
                ["run", "--profile", "dist", "-p", "sprag-bench", "--features", "peers", "--"];
            shell::run(shell.cargo(&fixed).args(arguments))
        }
        Some("postgres") => {
            install::ensure(shell, [Need::CCompiler, Need::Postgres])?;
            let fixed =
                ["run", "--profile", "dist", "-p", "sprag-bench", "--features", "peers", "--"];
            shell::run(shell.cargo(&fixed).args(arguments))
        }
        Some("git") => {
            install::ensure(shell, [Need::CCompiler, Need::GitServers])?;
            let fixed =
                ["run", "--profile", "dist", "-p", "sprag-bench", "--features", "git", "--"];
            shell::run(shell.cargo(&fixed).args(arguments))
        }
        name => Err(Failure::usage(format!(
            "there is no benchmark `{}`; there are: local, cli, redis, postgres, git",
            name.unwrap_or_default()
        ))),
    }
}
