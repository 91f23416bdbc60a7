//! The hunt for seeded bugs: each must be found by a test.
//!
//! The tests are built once, with all bugs compiled in and none switched on. Then they are run for
//! each bug, the fastest first, until one fails. A test counts only after it has passed without
//! any bug.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock};

/// The packages whose tests are to find the bugs.
const PACKAGES: &[&str] = &["sprag-core", "sprag-proof", "sprag-testkit"];
/// Tests that know nothing of the machine, or need what may not be there.
const LEFT_OUT: &[&str] = &["sqlite", "process"];
/// Which tests are tried first, and which part of them is enough; the others come after.
const FIRST: &[(&str, Option<&str>)] = &[
    ("sprag-core/sprag_core", None),
    ("sprag-proof/simulation", Some("a_day")),
    ("sprag-testkit/memory", None),
];
/// A test that runs for longer than this has found something, too.
const PATIENCE: Duration = Duration::from_secs(900);

/// One test binary.
#[derive(Debug)]
struct Finder {
    name: String,
    binary: PathBuf,
    directory: PathBuf,
    /// The tests in it that are run; all if there is none.
    filter: Option<&'static str>,
    /// Whether it passes where there is nothing to find.
    trusted: bool,
}

/// Hunts the bugs in `all` whose names are in `wanted`, or all of them if there are none.
/// Returns those that no test found.
///
/// # Errors
///
/// If the tests cannot be built, or fail without any bug.
pub fn hunt(all: &[&str], wanted: &[String], say: impl Fn(String)) -> Result<Vec<String>, String> {
    if let Some(unknown) = wanted.iter().find(|name| !all.contains(&name.as_str())) {
        return Err(format!("there is no mutant {unknown}; there are: {}", all.join(", ")));
    }
    let mut finders = build()?;
    finders.sort_by_key(Finder::rank);
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
    command.args(["test", "--no-run", "--message-format=json", "--lib", "--tests"]);
    for package in PACKAGES {
        command.args(["-p", package]);
    }
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err("the tests cannot be built".into());
    }
    let finders: Vec<Finder> =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(finder).collect();
    if finders.is_empty() { Err("there are no tests".into()) } else { Ok(finders) }
}

fn finder(message: &str) -> Option<Finder> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let binary = PathBuf::from(message["executable"].as_str()?);
    let target = message["target"]["name"].as_str()?;
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = directory.file_name().and_then(OsStr::to_str)?;
    let is_test = message["profile"]["test"].as_bool()?;
    let is_bin = message["target"]["kind"][0] == "bin";
    let name = format!("{package}/{target}");
    let filter = FIRST.iter().find(|(first, _)| *first == name).and_then(|(_, filter)| *filter);
    let finder = Finder { name, binary, directory, filter, trusted: false };
    (is_test && !is_bin && !LEFT_OUT.contains(&target)).then_some(finder)
}

impl Finder {
    fn rank(&self) -> usize {
        FIRST.iter().position(|(first, _)| *first == self.name).unwrap_or(FIRST.len())
    }

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
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", self.name))?;
        let Some(output) = read_all(&mut child) else {
            child.kill().map_err(|error| error.to_string())?;
            child.wait().map_err(|error| error.to_string())?;
            return Ok(Some("it does not come to an end".into()));
        };
        let status = child.wait().map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(None);
        }
        let mut lines = output.lines().filter_map(|line| line.strip_prefix("test "));
        let failed = lines.find_map(|line| line.strip_suffix(" ... FAILED"));
        Ok(Some(failed.map_or_else(|| status.to_string(), str::to_owned)))
    }
}

/// What the child prints until it ends; `None` if it does not end in time.
fn read_all(child: &mut Child) -> Option<String> {
    let mut stdout = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read until an error is as good as any.
        if stdout.read_to_end(&mut bytes).is_ok() || !bytes.is_empty() {
            // Nobody listens any more if it took too long.
            drop(sender.send(String::from_utf8_lossy(&bytes).into_owned()));
        }
    });
    let output = receiver.recv_timeout(PATIENCE).ok()?;
    reader.join().ok()?;
    Some(output)
}
