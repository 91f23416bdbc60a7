//! The hunt for seeded bugs: each must be found by a test.
//!
//! The tests are built once, with all bugs compiled in and none switched on. Then they are run for
//! each bug, the fastest first, until one fails. A test counts only after it has passed without
//! any bug.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock};

/// The test programs that can see a bug of the core, in the order in which they are tried: the
/// package, the target, and the part of it that is enough.
///
/// What a port is compared with is the core itself, so a bug of the machine is a difference from
/// the script of Redis.
const FINDERS: &[(&str, &str, Option<&str>)] = &[
    ("sprag-core", "sprag_core", None),
    ("sprag-testkit", "local", Some("memory::")),
    ("sprag-proof", "simulation", Some("a_day")),
    ("sprag-proof", "models", None),
    ("sprag-redis", "sprag_redis", Some("differential")),
];
/// How many tests of a program run at a time: most of them wait.
const TESTS_AT_A_TIME: &str = "--test-threads=6";
/// A test that runs for longer than this has found something, too.
const PATIENCE: Duration = Duration::from_secs(300);

/// One test binary.
#[derive(Debug)]
struct Finder {
    name: String,
    /// When it is tried.
    rank: usize,
    binary: PathBuf,
    directory: PathBuf,
    /// The tests in it that are run; all if there is none.
    filter: Option<&'static str>,
    /// Whether it passes where there is nothing to find.
    trusted: bool,
}

/// Hunts the bugs in `all` whose names are in `wanted`, or all of them if there are none, with the
/// test programs whose names contain `by`. Returns those that no test found.
///
/// # Errors
///
/// If the tests cannot be built, or fail without any bug.
pub fn hunt(
    all: &[&str],
    wanted: &[String],
    by: &str,
    say: impl Fn(String),
) -> Result<Vec<String>, String> {
    if let Some(unknown) = wanted.iter().find(|name| !all.contains(&name.as_str())) {
        return Err(format!("there is no mutant {unknown}; there are: {}", all.join(", ")));
    }
    let mut finders = build()?;
    finders.retain(|finder| finder.name.contains(by));
    finders.sort_by_key(|finder| finder.rank);
    let mut survivors = Vec::new();
    let is_wanted = |name: &&&str| wanted.is_empty() || wanted.iter().any(|other| other == **name);
    for mutant in all.iter().filter(is_wanted) {
        let start = BootClock.now();
        let found = find(&mut finders, mutant, &say)?;
        let seconds = BootClock.now().since(start).as_secs_f64();
        let by = found.as_deref().unwrap_or("NOT FOUND");
        say(format!("{mutant:<28} {seconds:>6.1} s {by}"));
        if found.is_none() {
            survivors.push((*mutant).to_owned());
        }
    }
    Ok(survivors)
}

fn find(
    finders: &mut [Finder],
    mutant: &str,
    say: &impl Fn(String),
) -> Result<Option<String>, String> {
    for finder in finders {
        finder.earn_trust(say)?;
        if let Some(test) = finder.fails_with(Some(mutant))? {
            return Ok(Some(format!("{}: {test}", finder.name)));
        }
    }
    Ok(None)
}

/// Builds the tests and finds their binaries in what cargo tells.
fn build() -> Result<Vec<Finder>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--no-run", "--message-format=json", "--lib"]);
    command.args(["--test", "local", "--test", "simulation", "--test", "models"]);
    for (package, ..) in FINDERS {
        command.args(["-p", package]);
    }
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err("the tests cannot be built".into());
    }
    let finders: Vec<Finder> =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(finder).collect();
    match FINDERS.len() - finders.len() {
        0 => Ok(finders),
        missing => Err(format!("{missing} of the test programs were not built")),
    }
}

fn finder(message: &str) -> Option<Finder> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let binary = PathBuf::from(message["executable"].as_str()?);
    let target = message["target"]["name"].as_str()?;
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = directory.file_name().and_then(OsStr::to_str)?;
    let is_test = message["profile"]["test"].as_bool()? && message["target"]["kind"][0] != "bin";
    let rank = FINDERS.iter().position(|finder| (finder.0, finder.1) == (package, target))?;
    let (name, filter) = (format!("{package}/{target}"), FINDERS[rank].2);
    is_test.then_some(Finder { name, rank, binary, directory, filter, trusted: false })
}

impl Finder {
    /// Runs it without any bug, the first time it is needed.
    fn earn_trust(&mut self, say: &impl Fn(String)) -> Result<(), String> {
        if self.trusted {
            return Ok(());
        }
        let start = BootClock.now();
        if let Some(test) = self.fails_with(None)? {
            return Err(format!("{} fails without any mutant: {test}", self.name));
        }
        let seconds = BootClock.now().since(start).as_secs_f64();
        say(format!("{:<28} {seconds:>6.1} s without a mutant", self.name));
        self.trusted = true;
        Ok(())
    }

    /// The first test that fails with the bug switched on.
    fn fails_with(&self, mutant: Option<&str>) -> Result<Option<String>, String> {
        let mut command = Command::new(&self.binary);
        command.current_dir(&self.directory).stdout(Stdio::piped()).stderr(Stdio::null());
        command.args(self.filter).env_remove("SPRAG_MUTANT");
        if let Some(mutant) = mutant {
            command.env("SPRAG_MUTANT", mutant);
        }
        command.arg(TESTS_AT_A_TIME);
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", self.name))?;
        let found = first_failure(&mut child);
        if found.is_some() {
            // What is left of it is of no interest.
            child.kill().map_err(|error| error.to_string())?;
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        Ok(found.or_else(|| (!status.success()).then(|| status.to_string())))
    }
}

/// The first test that the child says has failed; none if it ends before.
fn first_failure(child: &mut Child) -> Option<String> {
    let lines = BufReader::new(child.stdout.take()?).lines();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let failed = lines.map_while(Result::ok).find_map(|line| {
            Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned())
        });
        // Nobody listens any more if it took too long.
        drop(sender.send(failed));
    });
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| Some("it does not come to an end".into()))
}
