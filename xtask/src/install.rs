//! What the chores need from the machine, and how to get it on a fresh Debian.

#![expect(clippy::print_stdout, reason = "people want to know what is being installed")]

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Failure, Outcome};
use crate::peers;
use crate::shell::{self, Shell};

/// Something that has to be on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// `cc`, for the SQLite that is built in.
    CCompiler,
    /// `git`, to know which files belong to the project.
    Git,
    /// `cargo fmt`.
    Rustfmt,
    /// `cargo clippy`.
    Clippy,
    /// `redis-server`, for the tests of its store; not with `SPRAG_SKIP=redis`.
    Redis,
    /// `openssl`, which makes the certificates of those servers.
    Openssl,
    /// Other libraries for Redis and other GitHubs, and what runs them; each can be declined.
    Peers,
    /// `git` and an sshd, for the tests of locks on git remotes; not with `SPRAG_SKIP=git`.
    GitServers,
    /// `postgres` and `pgbouncer`, for the tests of its store; not with `SPRAG_SKIP=postgres`. And
    /// `ip`, to cut a link; not with `SPRAG_SKIP=netns`.
    Postgres,
}

/// Makes sure of all needs, installing what is missing.
pub(crate) fn ensure(shell: &Shell, needs: impl IntoIterator<Item = Need>) -> Outcome {
    let mut seen = Vec::new();
    for need in needs {
        if !seen.contains(&need) {
            seen.push(need);
            one(shell, need)?;
        }
    }
    Ok(())
}

fn one(shell: &Shell, need: Need) -> Outcome {
    match need {
        Need::CCompiler => program(shell, "cc", &["gcc", "libc6-dev"]),
        // Without a `.git` folder the files are found by walking, and git would be of no use.
        Need::Git if !shell.root().join(".git").exists() => Ok(()),
        Need::Git => program(shell, "git", &["git"]),
        Need::GitServers if skipped("git") => Ok(()),
        Need::GitServers => {
            program(shell, "git", &["git"])?;
            let both = "test -x /usr/sbin/sshd && command -v ssh-keygen";
            let packages = ["openssh-server", "openssh-client"];
            package(shell, "sshd", &["sh", "-c", both], &packages)
        }
        Need::Rustfmt => component(shell, "fmt", "rustfmt"),
        Need::Clippy => component(shell, "clippy", "clippy"),
        Need::Redis if skipped("redis") => Ok(()),
        Need::Openssl if skipped("redis") && skipped("postgres") => Ok(()),
        Need::Redis => program(shell, "redis-server", &["redis-server"]),
        Need::Openssl => program(shell, "openssl", &["openssl"]),
        Need::Peers => {
            let installers = peers::installers(shell, skipped);
            if installers.contains(&"python3") {
                let pip = ["python3", "-m", "pip", "--version"];
                package(shell, "pip", &pip, &["python3", "python3-pip"])?;
            }
            if installers.contains(&"npm") {
                program(shell, "npm", &["nodejs", "npm"])?;
            }
            peers::install(shell, skipped)
        }
        Need::Postgres if skipped("postgres") => Ok(()),
        Need::Postgres => {
            // Debian's has a folder for each version, and none in the path.
            let server = "ls /usr/lib/postgresql/*/bin/postgres";
            package(shell, "postgres", &["sh", "-c", server], &["postgresql"])?;
            program(shell, "pgbouncer", &["pgbouncer"])?;
            if skipped("netns") {
                return Ok(());
            }
            package(shell, "ip", &["ip", "-Version"], &["iproute2"])
        }
    }
}

/// Whether the tests with this server were declined.
fn skipped(server: &str) -> bool {
    std::env::var("SPRAG_SKIP").is_ok_and(|list| list.split(',').any(|name| name == server))
}

/// A program that comes in Debian packages.
fn program(shell: &Shell, name: &str, packages: &[&str]) -> Outcome {
    let question = if name == "openssl" { "version" } else { "--version" };
    package(shell, name, &[name, question], packages)
}

/// Something that is there if `probe` succeeds.
fn package(shell: &Shell, name: &str, probe: &[&str], packages: &[&str]) -> Outcome {
    let present = || shell::succeeds(shell.command(probe[0]).args(&probe[1..]));
    if present() {
        return Ok(());
    }
    println!("`{name}` is missing; installing {}", packages.join(" "));
    let hint = format!(
        "`{name}` is missing and could not be installed; please type:\n  \
         sudo apt-get update && sudo apt-get install -y {}{}",
        packages.join(" "),
        match name {
            "redis-server" => "\nor leave out its tests with SPRAG_SKIP=redis",
            "postgres" | "pgbouncer" => "\nor leave out its tests with SPRAG_SKIP=postgres",
            "sshd" => "\nor leave out its tests with SPRAG_SKIP=git",
            "pip" => "\nor leave out the tests that need it with SPRAG_SKIP=peers,gh",
            "npm" => {
                "\nor leave out the tests that need it with \
                 SPRAG_SKIP=peers,github-emulate,github-openapi"
            }
            "openssl" => "\nor leave out its tests with SPRAG_SKIP=redis,postgres",
            _ => "",
        }
    );
    let failed = |_| Failure::failed(hint.clone());
    // Once for all of them.
    static UPDATED: AtomicBool = AtomicBool::new(false);
    if !UPDATED.swap(true, Ordering::SeqCst) {
        shell::run(apt(shell).arg("update")).map_err(failed)?;
    }
    shell::run(apt(shell).args(["install", "-y", "--no-install-recommends"]).args(packages))
        .map_err(failed)?;
    if present() { Ok(()) } else { Err(Failure::failed(hint)) }
}

/// `apt-get`, through sudo unless this is root already.
fn apt(shell: &Shell) -> Command {
    let id = shell.command("id").arg("-u").output();
    let root = id.is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    let mut command = if root {
        shell.command("env")
    } else {
        let mut sudo = shell.command("sudo");
        // Somebody may sit there to type a password.
        sudo.stdin(std::process::Stdio::inherit()).arg("env");
        sudo
    };
    // Given on the command line, since sudo may drop the environment.
    // No server is to be started: the tests start their own.
    command.args(["DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get"]);
    command
}

/// A part of the Rust toolchain, in the form of a cargo subcommand.
fn component(shell: &Shell, subcommand: &str, name: &str) -> Outcome {
    let present = || shell::succeeds(&mut shell.cargo(&[subcommand, "--version"]));
    if present() {
        return Ok(());
    }
    println!("`cargo {subcommand}` is missing; adding the component {name}");
    let added = shell::run(shell.command("rustup").args(["component", "add", name]));
    if added.is_ok() && present() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "`cargo {subcommand}` is missing and could not be installed; please type:\n  \
         rustup component add {name}\n\
         or, where Rust came from a Debian package:\n  \
         sudo apt-get install -y {}",
        if name == "clippy" { "rust-clippy" } else { name }
    )))
}
