//! [`Project`]: the file that was found in the working directory or above it, and its trust.

use std::path::{Path, PathBuf};

use super::demand::Demand;
use super::file::{self, Entry, File, unreadable};
use super::trust::{Standing, TrustList, Unsafe, read_found};
use super::{Origin, Row, Setting, environment};
use crate::code::Code;
use crate::failure::Failure;
use crate::output::plain::shell_word;

/// The file of a project, and what in it does not count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Project {
    /// Its path and how far it is believed, if there is one.
    pub(crate) file: Option<(PathBuf, Standing)>,
    /// The lines that need trust and have none.
    pub(crate) demands: Vec<Demand>,
    /// A file that must not be used at all.
    refused: Option<Unsafe>,
    /// Whether the store is the choice of a file that is not trusted.
    chose_the_store: bool,
    /// The line with the store that was chosen, if it needs trust and has none.
    store: Option<Demand>,
    /// Whether a flag or a variable names the store.
    is_overruled: bool,
}

impl Project {
    pub(super) fn new(
        files: &[File],
        refused: Option<Unsafe>,
        env: &impl Fn(&str) -> Option<String>,
    ) -> Self {
        let found = files.iter().find(|file| file.standing != Standing::Own);
        Self {
            file: found.map(|file| (file.path.clone(), file.standing)),
            demands: found.map(|file| file.all_demands(env)).unwrap_or_default(),
            refused,
            ..Self::default()
        }
    }

    /// Whether an entry does not count.
    pub(super) fn bars(&self, key: &str, entry: &Entry) -> bool {
        self.demands
            .iter()
            .any(|demand| demand.key == key && entry.is_at(&demand.path, demand.line))
    }

    /// Notes which store was chosen, and by whom.
    pub(super) fn choose(&mut self, store: &Setting<String>, chosen_by: &Setting<String>) {
        self.is_overruled = matches!(chosen_by.origin, Origin::Flag(_) | Origin::Environment(_));
        let Origin::File(path, line) = &store.origin else { return };
        let untrusted =
            |(file, standing): &(PathBuf, Standing)| file == path && !standing.is_trusted();
        self.chose_the_store = self.file.as_ref().is_some_and(untrusted);
        let mut demands = self.demands.iter();
        self.store = demands.find(|demand| demand.path == *path && demand.line == *line).cloned();
    }

    /// Refuses a command that looks at the store, if that is the choice of a file that may not
    /// choose it.
    pub(crate) fn check_store(&self) -> Result<(), Failure> {
        match (&self.store, &self.refused) {
            (Some(demand), _) => Err(demand.failure()),
            (None, Some(refused)) if !self.is_overruled => Err(failure(refused)),
            _ => Ok(()),
        }
    }

    /// Refuses a command on work items, if the rules are those of a file that may not say them.
    pub(crate) fn check_work(&self) -> Result<(), Failure> {
        match &self.refused {
            Some(refused) => Err(failure(refused)),
            None => self.check(|key| key.starts_with("work.")),
        }
    }

    /// Refuses a command whose words a file that is not trusted wants to be shown.
    pub(crate) fn check_reason(&self) -> Result<(), Failure> {
        self.check(|key| key == "reason")
    }

    fn check(&self, is_meant: impl Fn(&str) -> bool) -> Result<(), Failure> {
        let demand = self.demands.iter().find(|demand| is_meant(&demand.key));
        demand.map_or(Ok(()), |demand| Err(demand.failure()))
    }

    /// Whether the store may be contacted before the user has asked for anything.
    pub(crate) fn may_be_contacted(&self) -> bool {
        !self.chose_the_store && self.check_store().is_ok()
    }

    /// A file that is not used though it is there.
    pub(crate) fn unused(&self) -> Option<String> {
        let Unsafe { path, why, .. } = self.refused.as_ref()?;
        Some(format!("{} is not used: it {why}", path.display()))
    }

    /// The file as a setting, for people.
    pub(super) fn rows(&self) -> Vec<Row> {
        let row = |path: &Path, value: String| Row {
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            value: Some(value),
            origin: Origin::File(path.to_owned(), 1),
        };
        let mut rows = Vec::new();
        if let Some((path, standing)) = &self.file {
            rows.push(row(path, standing.as_str().to_owned()));
        }
        rows.extend(self.demands.iter().map(|demand| Row {
            name: format!("line {}", demand.line),
            value: Some(format!("does not count: {} {}", demand.key, demand.what)),
            origin: Origin::File(demand.path.clone(), demand.line),
        }));
        rows.extend(
            self.refused.iter().map(|file| row(&file.path, format!("not used: it {}", file.why))),
        );
        rows
    }
}

fn failure(refused: &Unsafe) -> Failure {
    let Unsafe { path, why, fix } = refused;
    let message = format!("{} is not used as settings of this project: it {why}", path.display());
    let file = shell_word(&path.display().to_string());
    let failure = Failure::new(Code::Untrusted, message);
    let failure = match fix {
        Some(fix) => failure.hint("after a look at it", fix),
        None => failure,
    };
    failure
        .hint("to use it all the same", format!("export SPRAG_CONFIG={file}"))
        .hint("to name the store yourself", "export SPRAG_STORE=URL")
        .detail("file", path.display().to_string())
}

/// What the user wants to say about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Trust,
    Untrust,
}

/// What changed for a file.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) path: PathBuf,
    pub(crate) changed: bool,
    /// The lines that count from now on, or not any more.
    pub(crate) demands: Vec<Demand>,
}

/// Trusts a file, or the one that is found from here, or takes that back.
pub(crate) fn change_trust(change: Change, given: Option<&Path>) -> Result<Changed, Failure> {
    let here = || std::env::current_dir().ok().as_deref().and_then(file::project);
    let path = match given {
        Some(path) => std::path::absolute(path).ok(),
        None => here(),
    };
    let path = path.ok_or_else(|| {
        Failure::new(Code::Config, "there is no sprag.toml in this directory or above it")
            .advice("a file that is named by --config or SPRAG_CONFIG needs no trust")
    })?;
    let list = TrustList::of_user(environment).ok_or_else(|| {
        let message = "no place to write down what you trust: set HOME or XDG_STATE_HOME";
        Failure::new(Code::Config, message)
    })?;
    let unwritten = |error: std::io::Error| {
        Failure::new(Code::System, format!("cannot write down what you trust: {error}"))
    };
    if change == Change::Untrust {
        let changed = list.remove(&path).map_err(unwritten)?;
        return Ok(Changed { path, changed, demands: Vec::new() });
    }
    let text = read_found(&path).map_err(|error| unreadable(&path, &error))?;
    let text = text.map_err(|refused| failure(&refused))?;
    let demands = File::parse(&text, &path, Standing::Untrusted)?.all_demands(&environment);
    let changed = !list.has(&path, &text);
    list.add(&path, &text).map_err(unwritten)?;
    Ok(Changed { path, changed, demands })
}
