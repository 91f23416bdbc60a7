//! [`File`]: one configuration file, with the place of everything in it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sprag_work::Rules;
use toml::Spanned;

use super::origin::{Origin, Setting};
use crate::code::Code;
use crate::failure::Failure;

/// The file of a project, looked for in the working directory and above.
const PROJECT: &str = "sprag.toml";
const SYSTEM: &str = "/etc/sprag/config.toml";

/// A file that may be there, or has to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) required: bool,
}

/// Where files are looked for, the nearest first.
pub(super) fn places(given: Option<PathBuf>, env: impl Fn(&str) -> Option<String>) -> Vec<Place> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut places = Vec::new();
    match given.or_else(|| set("SPRAG_CONFIG")) {
        Some(path) => places.push(Place { path, required: true }),
        None => places.extend(std::env::current_dir().ok().as_deref().and_then(project)),
    }
    let home = || set("HOME").map(|home| home.join(".config"));
    let user = set("XDG_CONFIG_HOME").filter(|path| path.is_absolute()).or_else(home);
    let user = user.map(|folder| folder.join("sprag/config.toml"));
    let standard = user.into_iter().chain([PathBuf::from(SYSTEM)]);
    places.extend(standard.map(|path| Place { path, required: false }));
    places
}

/// The project's file, in this folder or above it.
fn project(from: &Path) -> Option<Place> {
    let mut found = from.ancestors().map(|folder| folder.join(PROJECT));
    found.find(|path| path.is_file()).map(|path| Place { path, required: true })
}

/// What one file says.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) store: Option<Entry>,
    pub(super) holder: Option<Entry>,
    pub(super) wait: Option<Entry>,
    pub(super) ttl: Option<Entry>,
    pub(super) kill_after: Option<Entry>,
    pub(super) color: Option<Entry>,
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
    #[serde(default)]
    stores: BTreeMap<String, RawStore>,
    work: Option<Rules>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStore {
    url: Spanned<Text>,
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
    /// Reads a file; `None` if it is not there and need not be.
    pub(super) fn read(place: Place) -> Result<Option<Self>, Failure> {
        let Place { path, required } = place;
        let bad = |what: String| Failure::new(Code::Config, format!("{}: {what}", path.display()));
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text, &path).map(Some),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory if !required => Ok(None),
                // The files of others are not our business.
                ErrorKind::PermissionDenied if !required => Ok(None),
                _ => Err(bad(format!("cannot read it: {error}"))),
            },
        }
    }

    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, Failure> {
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
        Ok(Self {
            store: raw.store.map(entry),
            holder: raw.holder.map(entry),
            wait: raw.wait.map(entry),
            ttl: raw.ttl.map(entry),
            kill_after: raw.kill_after.map(entry),
            color: raw.color.map(entry),
            work: raw.work,
            stores: raw.stores.into_iter().map(|(name, raw)| (name, entry(raw.url))).collect(),
        })
    }
}
