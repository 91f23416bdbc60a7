//! [`Settings`]: flags, then the environment, then `sprag.toml`, then the user's and the system's
//! file. The first that says something wins, setting by setting.

mod demand;
mod file;
mod origin;
mod project;
mod slips;
mod trust;

use std::collections::BTreeMap;
use std::time::Duration;

use sprag::Wait;
use sprag_work::Rules;

pub(crate) use self::origin::{Origin, Setting};
pub(crate) use self::project::{Change, Changed, change_trust};
pub(crate) use self::slips::slips;

use self::file::{Entry, File, FileRead};
use self::project::Project;
use self::trust::{TrustList, Unsafe};
use crate::args::Global;
use crate::code::Code;
use crate::failure::Failure;
use crate::output::style::Colour;
use crate::output::time;
use crate::run::outer::{self, OUTER};
use crate::store::anchored;

/// The store with nothing set up.
const DEFAULT_STORE: &str = "sqlite:";
const DEFAULT_KILL_AFTER: Duration = Duration::from_secs(5);

/// What the user wants, and who says so.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The store's URL; may contain secrets.
    pub(crate) store: Setting<String>,
    /// Who takes the locks; `None` for `user@host#pid`.
    pub(crate) holder: Setting<Option<String>>,
    /// How long to wait for a lock.
    pub(crate) wait: Setting<Wait>,
    /// How long a lease lasts without being renewed.
    pub(crate) ttl: Setting<Duration>,
    /// How long a command has to stop before it is killed.
    pub(crate) kill_after: Setting<Duration>,
    /// When to use colours.
    pub(crate) color: Setting<Colour>,
    /// What is shown as the reason of a lock where none is given.
    pub(crate) reason: Setting<UsualReason>,
    /// The stores that have a name.
    pub(crate) stores: BTreeMap<String, Setting<String>>,
    /// How work items flow.
    pub(crate) work: Rules,
    /// The file that was found in the project, and what in it does not count.
    pub(crate) project: Project,
}

/// What is shown as the reason of a lock where none is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsualReason {
    /// The name of the program: its arguments may have secrets.
    Program,
    /// The whole command.
    Command,
}

/// One setting, for people; without secrets.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) value: Option<String>,
    pub(crate) origin: Origin,
}

impl Settings {
    /// Reads the environment and the files of this process.
    pub(crate) fn load(global: &Global) -> Result<Self, Failure> {
        let (mut files, mut refused) = (Vec::new(), None);
        let trusted = TrustList::of_user(environment);
        for place in file::places(global.config.clone(), environment) {
            match File::read(place, trusted.as_ref())? {
                FileRead::Missing => {}
                FileRead::Read(file) => files.push(*file),
                FileRead::Unsafe(file) => refused = Some(file),
            }
        }
        Self::from_layers(global, environment, &files, refused)
    }

    /// Puts the layers together; `files` is in order, the nearest first.
    fn from_layers(
        global: &Global,
        env: impl Fn(&str) -> Option<String>,
        files: &[File],
        refused: Option<Unsafe>,
    ) -> Result<Self, Failure> {
        let layers = Layers { env: &env, files };
        let mut project = Project::new(files, refused, &env);
        let stores = named_stores(files, &env, &project)?;
        let flag = |value: &Option<String>, flag| {
            value.clone().map(|value| Setting { value, origin: Origin::Flag(flag) })
        };
        let text = |text: &str| Ok(text.to_owned());
        let store = match global.named_store() {
            Some((url, flag)) => Setting { value: url.to_owned(), origin: Origin::Flag(flag) },
            None => layers.store(&project)?,
        };
        let holder = match flag(&global.holder, "--holder") {
            Some(holder) => Some(holder),
            None => layers.find("SPRAG_HOLDER", |file| &file.holder, text)?,
        };
        let color = match global.color {
            Some(value) => Some(Setting { value, origin: Origin::Flag("--color") }),
            None => layers.find("SPRAG_COLOR", |file| &file.color, colour)?,
        };
        let wait = layers.find("SPRAG_WAIT", |file| &file.wait, wait)?;
        let ttl = layers.find("SPRAG_TTL", |file| &file.ttl, time::parse)?;
        let kill = layers.find("SPRAG_KILL_AFTER", |file| &file.kill_after, time::parse)?;
        let chosen_by = store;
        let store = resolve(chosen_by.clone(), &stores)?;
        project.choose(&store, &chosen_by);
        let store = of_outer_run(store);
        let reason = layers.find_in_files(|file| &file.reason, usual_reason)?;
        let usual_ttl = sprag::default_ttl(&store.value);
        Ok(Self {
            store,
            holder: match holder {
                Some(holder) => Setting { value: Some(holder.value), origin: holder.origin },
                None => Setting::standard(None),
            },
            wait: wait.unwrap_or_else(|| Setting::standard(Wait::Forever)),
            ttl: ttl.unwrap_or_else(|| Setting::standard(usual_ttl)),
            kill_after: kill.unwrap_or_else(|| Setting::standard(DEFAULT_KILL_AFTER)),
            color: color.unwrap_or_else(|| Setting::standard(Colour::Auto)),
            reason: reason.unwrap_or_else(|| Setting::standard(UsualReason::Program)),
            work: files.iter().find_map(|file| file.work.clone()).unwrap_or_default(),
            stores,
            project,
        })
    }

    /// The same settings with another store.
    pub(crate) fn with_store(&self, url: String) -> Self {
        let origin = self.store.origin.clone();
        Self { store: Setting { value: url, origin }, ..self.clone() }
    }

    /// All settings, without secrets.
    pub(crate) fn rows(&self) -> Vec<Row> {
        fn row<T>(name: &str, setting: &Setting<T>, value: Option<String>) -> Row {
            Row { name: name.to_owned(), value, origin: setting.origin.clone() }
        }
        let mut rows = vec![
            row("store", &self.store, Some(sprag::redact(&self.store.value))),
            row("holder", &self.holder, self.holder.value.clone()),
            row("wait", &self.wait, Some(show_wait(self.wait.value))),
            row("ttl", &self.ttl, Some(time::span(self.ttl.value))),
            row("kill_after", &self.kill_after, Some(time::span(self.kill_after.value))),
            row("color", &self.color, Some(self.color.value.as_str().to_owned())),
        ];
        // The usual one says nothing: most people never meet it.
        if self.reason.value == UsualReason::Command {
            rows.push(row("reason", &self.reason, Some("command".to_owned())));
        }
        rows.extend(self.stores.iter().map(|(name, url)| {
            row(&format!("stores.{name}"), url, Some(sprag::redact(&url.value)))
        }));
        rows.extend(self.project.rows());
        rows
    }
}

/// The environment and the files.
struct Layers<'a, E> {
    env: E,
    files: &'a [File],
}

impl<E: Fn(&str) -> Option<String>> Layers<'_, E> {
    /// The first layer that has this setting, read with `parse`.
    fn find<T>(
        &self,
        variable: &'static str,
        entry: impl Fn(&File) -> &Option<Entry>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<Setting<T>>, Failure> {
        if let Some(text) = (self.env)(variable).filter(|text| !text.is_empty()) {
            let origin = Origin::Environment(variable);
            let bad = |what| Failure::new(Code::Config, format!("{variable}: {what}"));
            return parse(&text).map(|value| Some(Setting { value, origin })).map_err(bad);
        }
        self.find_in_files(entry, parse)
    }

    /// The first file that has this setting.
    fn find_in_files<T>(
        &self,
        entry: impl Fn(&File) -> &Option<Entry>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<Setting<T>>, Failure> {
        self.files.iter().find_map(|file| entry(file).as_ref()).map(|e| e.parse(parse)).transpose()
    }

    /// The store that no flag names.
    fn store(&self, project: &Project) -> Result<Setting<String>, Failure> {
        let is_set = |name| (self.env)(name).is_some_and(|text| !text.is_empty());
        let variable = is_set("SPRAG_STORE");
        if !variable && is_set("SPRAG_SOCKET") {
            // The script took the name of the store away, and not the run that it is in.
            let (value, origin) = (OUTER.to_owned(), Origin::Environment("SPRAG_SOCKET"));
            return Ok(Setting { value, origin });
        }
        let first = self.files.iter().find_map(|file| file.store.as_ref());
        match first {
            Some(entry) if !variable && project.bars("store", entry) => Ok(entry.barred()),
            _ => Ok(self
                .find("SPRAG_STORE", |file| &file.store, |text| expand(text, &self.env))?
                .map(beside_its_file)
                .unwrap_or_else(|| Setting::standard(DEFAULT_STORE.to_owned()))),
        }
    }
}

/// The stores that have a name; the nearest file that has it wins.
fn named_stores(
    files: &[File],
    env: &impl Fn(&str) -> Option<String>,
    project: &Project,
) -> Result<BTreeMap<String, Setting<String>>, Failure> {
    let mut stores = BTreeMap::new();
    for (name, entry) in files.iter().flat_map(|file| &file.stores) {
        if stores.contains_key(name) {
            continue;
        }
        let url = match project.bars(&format!("stores.{name}"), entry) {
            true => entry.barred(),
            false => beside_its_file(entry.parse(|text| expand(text, env))?),
        };
        stores.insert(name.clone(), url);
    }
    Ok(stores)
}

/// A variable of the environment, if it is set to text.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var_os(name)?.into_string().ok()
}

/// A relative path in a file means the same for everybody who reads that file, wherever they are:
/// otherwise each folder of a project would have locks of its own.
fn beside_its_file(url: Setting<String>) -> Setting<String> {
    let Origin::File(file, _) = &url.origin else { return url };
    let folder = std::path::absolute(file).ok().and_then(|file| Some(file.parent()?.to_owned()));
    let value = folder.map_or_else(|| url.value.clone(), |folder| anchored(&url.value, &folder));
    Setting { value, origin: url.origin }
}

/// Replaces the name of a store by its URL.
fn resolve(
    store: Setting<String>,
    stores: &BTreeMap<String, Setting<String>>,
) -> Result<Setting<String>, Failure> {
    if store.value.contains(':') {
        return Ok(store);
    }
    if let Some(named) = stores.get(&store.value) {
        return Ok(named.clone());
    }
    // What has no colon and is no name may still be a secret that went to the wrong place.
    let named = stores.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let known = if named.is_empty() { "none has a name".to_owned() } else { named };
    let message = format!(
        "{} names no store: a URL has a colon, such as sqlite:./locks.db, and the stores in \
         configuration files are: {known}",
        store.origin
    );
    Err(Failure::new(Code::UnknownStore, message).hint("see the settings", "sprag config"))
}

/// Asks the run around this one for its store, if that is meant. Where it cannot be asked, opening the
/// store says why.
fn of_outer_run(store: Setting<String>) -> Setting<String> {
    if store.value != OUTER {
        return store;
    }
    outer::store().map_or(store, |value| Setting { value, origin: Origin::OuterRun })
}

/// Puts variables in the place of `${NAME}`.
fn expand(text: &str, env: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut parts = text.split("${");
    let mut expanded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').ok_or("a ${ has no }")?;
        expanded += &env(name).ok_or_else(|| format!("the variable {name} is not set"))?;
        expanded += rest;
    }
    Ok(expanded)
}

fn usual_reason(text: &str) -> Result<UsualReason, String> {
    match text {
        "program" => Ok(UsualReason::Program),
        "command" => Ok(UsualReason::Command),
        _ => Err(format!("{text:?} is neither program nor command")),
    }
}

fn wait(text: &str) -> Result<Wait, String> {
    if text == "forever" {
        return Ok(Wait::Forever);
    }
    time::parse(text).map(wait_for)
}

/// A waiting time as flags give it: nothing means not at all.
pub(crate) const fn wait_for(span: Duration) -> Wait {
    if span.is_zero() { Wait::No } else { Wait::AtMost(span) }
}

fn show_wait(wait: Wait) -> String {
    match wait {
        Wait::No => "0s".to_owned(),
        Wait::AtMost(span) => time::span(span),
        Wait::Forever => "forever".to_owned(),
    }
}

fn colour(text: &str) -> Result<Colour, String> {
    let known = [Colour::Auto, Colour::Always, Colour::Never];
    known
        .into_iter()
        .find(|colour| colour.as_str() == text)
        .ok_or_else(|| format!("{text:?} is not auto, always or never"))
}

#[cfg(test)]
mod tests;
