//! [`File`]: one configuration file, with the place of everything in it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sprag_work::Rules;
use toml::Spanned;

use super::demand::{Demand, of_folder, of_repository, of_url};
use super::origin::{Origin, Setting};
use super::trust::{Standing, TrustList, Unsafe, read_found};
use crate::code::Code;
use crate::failure::Failure;

/// The file of a project, looked for in the working directory and above.
const PROJECT: &str = "sprag.toml";
const SYSTEM: &str = "/etc/sprag/config.toml";

/// A file that settings are read from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Named by a flag or a variable: it has to be there.
    Named,
    /// Found in the working directory or above it.
    Found,
    /// The user's or the system's.
    Standard,
}

/// Where files are looked for, the nearest first.
pub(super) fn places(given: Option<PathBuf>, env: impl Fn(&str) -> Option<String>) -> Vec<Place> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut places = Vec::new();
    match given.or_else(|| set("SPRAG_CONFIG")) {
        Some(path) => places.push(Place { path, kind: Kind::Named }),
        None => {
            let found = std::env::current_dir().ok().as_deref().and_then(project);
            places.extend(found.map(|path| Place { path, kind: Kind::Found }));
        }
    }
    let home = || set("HOME").map(|home| home.join(".config"));
    let user = set("XDG_CONFIG_HOME").filter(|path| path.is_absolute()).or_else(home);
    let user = user.map(|folder| folder.join("sprag/config.toml"));
    let standard = user.into_iter().chain([PathBuf::from(SYSTEM)]);
    places.extend(standard.map(|path| Place { path, kind: Kind::Standard }));
    places
}

/// The project's file, in this folder or above it.
pub(super) fn project(from: &Path) -> Option<PathBuf> {
    let mut found = from.ancestors().map(|folder| folder.join(PROJECT));
    found.find(|path| path.is_file())
}

/// What one file says.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) standing: Standing,
    /// What of it, beside the URLs of stores, needs trust and has none.
    pub(super) demands: Vec<Demand>,
    pub(super) store: Option<Entry>,
    pub(super) holder: Option<Entry>,
    pub(super) wait: Option<Entry>,
    pub(super) ttl: Option<Entry>,
    pub(super) kill_after: Option<Entry>,
    pub(super) color: Option<Entry>,
    pub(super) reason: Option<Entry>,
    pub(super) stores: BTreeMap<String, Entry>,
    pub(super) work: Option<Rules>,
}

/// One value and its place.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    text: String,
    path: PathBuf,
    line: usize,
}

impl Entry {
    /// What in it, as the URL of a store, needs trust and has none.
    pub(super) fn demand(
        &self,
        key: &str,
        standing: Standing,
        env: &impl Fn(&str) -> Option<String>,
    ) -> Option<Demand> {
        let what = if standing.is_trusted() { None } else { of_url(&self.text, env) };
        what.map(|what| self.demanding(key, what))
    }

    pub(super) fn is_at(&self, path: &Path, line: usize) -> bool {
        self.path == path && self.line == line
    }

    fn demanding(&self, key: &str, what: String) -> Demand {
        Demand { key: key.to_owned(), path: self.path.clone(), line: self.line, what }
    }

    /// A value for a setting that needs trust and has none: no store has such a URL.
    pub(super) fn barred(&self) -> Setting<String> {
        let origin = Origin::File(self.path.clone(), self.line);
        Setting { value: "untrusted:".to_owned(), origin }
    }

    pub(super) fn parse<T>(
        &self,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Setting<T>, Failure> {
        let origin = Origin::File(self.path.clone(), self.line);
        match parse(&self.text) {
            Ok(value) => Ok(Setting { value, origin }),
            Err(what) => Err(Failure::new(Code::Config, format!("{origin}: {what}"))),
        }
    }
}

/// The form of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    store: Option<Spanned<Text>>,
    holder: Option<Spanned<Text>>,
    wait: Option<Spanned<Text>>,
    ttl: Option<Spanned<Text>>,
    kill_after: Option<Spanned<Text>>,
    color: Option<Spanned<Text>>,
    reason: Option<Spanned<Text>>,
    #[serde(default)]
    stores: BTreeMap<String, RawStore>,
    work: Option<Rules>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStore {
    url: Spanned<Text>,
}

/// The lines of `[work]` that may need trust.
#[derive(Default, Deserialize)]
struct WorkLines {
    #[serde(default)]
    work: WorkPart,
}

#[derive(Default, Deserialize)]
struct WorkPart {
    worktrees: Option<Spanned<Text>>,
    #[serde(default)]
    github: GitHubPart,
}

#[derive(Default, Deserialize)]
struct GitHubPart {
    api: Option<Spanned<Text>>,
    repo: Option<Spanned<Text>>,
}

/// What came of reading a file.
#[derive(Debug)]
pub(super) enum FileRead {
    Missing,
    Read(Box<File>),
    /// It is there and must not be used.
    Unsafe(Unsafe),
}

/// Texts, and numbers where seconds are meant.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text or a number of seconds")]
enum Text {
    Words(String),
    Whole(u32),
    Part(f64),
}

impl File {
    /// Reads a file; a standard one need not be there.
    pub(super) fn read(place: Place, trusted: Option<&TrustList>) -> Result<FileRead, Failure> {
        let Place { path, kind } = place;
        let text = match kind {
            Kind::Found => read_found(&path),
            Kind::Named | Kind::Standard => std::fs::read_to_string(&path).map(Ok),
        };
        let text = match text {
            Ok(Ok(text)) => text,
            Ok(Err(refused)) => return Ok(FileRead::Unsafe(refused)),
            Err(error) => {
                return match error.kind() {
                    ErrorKind::NotFound | ErrorKind::NotADirectory if kind == Kind::Standard => {
                        Ok(FileRead::Missing)
                    }
                    // The files of others are not our business.
                    ErrorKind::PermissionDenied if kind == Kind::Standard => Ok(FileRead::Missing),
                    _ => Err(unreadable(&path, &error)),
                };
            }
        };
        let standing = match kind {
            Kind::Named | Kind::Standard => Standing::Own,
            Kind::Found if trusted.is_some_and(|list| list.has(&path, &text)) => Standing::Trusted,
            Kind::Found => Standing::Untrusted,
        };
        Ok(FileRead::Read(Box::new(Self::parse(&text, &path, standing)?)))
    }

    pub(super) fn parse(text: &str, path: &Path, standing: Standing) -> Result<Self, Failure> {
        let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let raw: Raw = toml::from_str(text).map_err(|error| {
            // The message without the line that it quotes: there may be a password in it.
            let line = error.span().map_or(1, |span| line(span.start));
            let what = error.message().lines().collect::<Vec<_>>().join(", ");
            Failure::new(Code::Config, format!("{}:{line}: {what}", path.display()))
        })?;
        let entry = |value: Spanned<Text>| Entry {
            line: line(value.span().start),
            path: path.to_owned(),
            text: match value.into_inner() {
                Text::Words(text) => text,
                Text::Whole(number) => number.to_string(),
                Text::Part(number) => number.to_string(),
            },
        };
        let lines: WorkLines = toml::from_str(text).unwrap_or_default();
        let reason = raw.reason.map(entry);
        let mut demands = Vec::new();
        if !standing.is_trusted() {
            let GitHubPart { api, repo } = lines.work.github;
            let moved = |_: &str| Some("names another server for the token".to_owned());
            let told = |text: &str| {
                (text != "program").then(|| "shows the words of commands to others".to_owned())
            };
            demands.extend([
                api.map(entry).and_then(|e| Some(e.demanding("work.github.api", moved(&e.text)?))),
                repo.map(entry)
                    .and_then(|e| Some(e.demanding("work.github.repo", of_repository(&e.text)?))),
                (lines.work.worktrees.map(entry))
                    .and_then(|e| Some(e.demanding("work.worktrees", of_folder(&e.text)?))),
                reason.as_ref().and_then(|e| Some(e.demanding("reason", told(&e.text)?))),
            ]);
        }
        Ok(Self {
            path: path.to_owned(),
            standing,
            demands: demands.into_iter().flatten().collect(),
            store: raw.store.map(entry),
            holder: raw.holder.map(entry),
            wait: raw.wait.map(entry),
            ttl: raw.ttl.map(entry),
            kill_after: raw.kill_after.map(entry),
            color: raw.color.map(entry),
            reason,
            work: raw.work,
            stores: raw.stores.into_iter().map(|(name, raw)| (name, entry(raw.url))).collect(),
        })
    }

    /// Everything in it that needs trust and has none.
    pub(super) fn all_demands(&self, env: &impl Fn(&str) -> Option<String>) -> Vec<Demand> {
        let store = self.store.as_ref().and_then(|url| url.demand("store", self.standing, env));
        let named = self.stores.iter();
        let named = named
            .filter_map(|(name, url)| url.demand(&format!("stores.{name}"), self.standing, env));
        let mut demands: Vec<_> = store.into_iter().chain(named).collect();
        demands.extend(self.demands.iter().cloned());
        demands.sort_by_key(|demand| demand.line);
        demands
    }
}

/// A file that is there and cannot be read.
pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Code::Config, format!("{}: cannot read it: {error}", path.display()))
}
