//! [`Cli`]: a remote that only git itself can talk to, for the sake of proxies, certificates and
//! whatever else the user has told git.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use sprag_ledger::{Entry, Oid, RefName};
use tempfile::TempDir;

use crate::draft::Draft;
use crate::error::{GitError, Trouble};
use crate::git::Git;
use crate::native::{Outcomes, Wire};
use crate::object::{Commit, Format, write_pack};
use crate::push::{Pushed, RefChange};
use crate::redact::redact;

/// A remote that git talks to, with a repository of its own that goes when this does.
pub(crate) struct Cli {
    git: Git,
    url: String,
    /// The configuration of the repository whose remote it is, with what the user set there.
    config: Option<PathBuf>,
    desk: Mutex<Option<Desk>>,
}

impl std::fmt::Debug for Cli {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cli").field("url", &redact(&self.url)).finish_non_exhaustive()
    }
}

/// The repository that objects go through.
#[derive(Debug)]
struct Desk {
    git: Git,
    format: Format,
    known: HashSet<Oid>,
    _folder: TempDir,
}

impl Cli {
    pub(crate) const fn new(git: Git, url: String, config: Option<PathBuf>) -> Self {
        Self { git, url, config, desk: Mutex::new(None) }
    }

    fn with_desk<T>(
        &self,
        format: Option<Format>,
        work: impl FnOnce(&mut Desk) -> Result<T, GitError>,
    ) -> Result<T, GitError> {
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        if desk.is_none()
            || format.is_some_and(|format| desk.as_ref().is_some_and(|desk| desk.format != format))
        {
            *desk = Some(self.make_desk(format.unwrap_or_default())?);
        }
        match desk.as_mut() {
            Some(desk) => work(desk),
            None => Err(GitError::new(Trouble::Failed, "there is no repository to work with")),
        }
    }

    fn make_desk(&self, format: Format) -> Result<Desk, GitError> {
        let made = tempfile::Builder::new().prefix("sprag-git-").tempdir();
        let folder = made.map_err(|e| {
            GitError::said("git init", &format!("error: cannot make a temporary folder: {e}"))
        })?;
        let git = self.git.clone().repository(folder.path());
        let format_option = format!("--object-format={}", format.name());
        git.ok(["init", "--quiet", "--bare", "--template=", &format_option])?;
        if let Some(config) = &self.config {
            let config = config.to_string_lossy();
            git.ok(["config", "include.path", &config])?;
            // Behind it, so that it counts: the other repository is none of ours.
            git.ok(["config", "--unset", "core.bare"])?;
            git.ok(["config", "core.bare", "true"])?;
        }
        Ok(Desk { git, format, known: HashSet::new(), _folder: folder })
    }

    /// Whether a branch that is to go along is there already. Git would take it for done and push
    /// the rest alone.
    fn claimed(&self, desk: &Desk, changes: &[RefChange]) -> Result<Option<Outcomes>, GitError> {
        let along: Vec<_> = changes.iter().filter(|change| !change.unique).collect();
        if along.is_empty() {
            return Ok(None);
        }
        let names: Vec<_> = along.iter().map(|change| change.name.clone()).collect();
        let tips = desk.git.tips(&self.url, &names)?;
        let moved = along.iter().zip(tips).filter(|(change, tip)| change.old != *tip);
        let moved: HashSet<_> = moved.map(|(change, _)| change.name.clone()).collect();
        if moved.is_empty() {
            return Ok(None);
        }
        let answer = |change: &RefChange| match moved.contains(&change.name) {
            true => (Pushed::Refused, None),
            false => (Pushed::Aborted, None),
        };
        Ok(Some(changes.iter().map(answer).collect()))
    }

    /// Which hash the remote uses. One without references tells nobody.
    fn format(&self) -> Result<Format, GitError> {
        let output = self.with_desk(None, |desk| desk.git.ok(["ls-remote", "--", &self.url]))?;
        let text = output.text();
        let first = text.split('\t').next().and_then(Oid::new);
        Ok(first.map_or_else(Format::default, |oid| Format::of(&oid)))
    }
}

impl Desk {
    fn fetch(&mut self, url: &str, wanted: &[Oid], depth: usize) -> Result<(), GitError> {
        let depth = format!("--depth={depth}");
        let options = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", &depth];
        let more = ["--no-recurse-submodules", "--no-auto-maintenance", "--", url];
        let oids = wanted.iter().map(Oid::as_str);
        self.git.ok(options.into_iter().chain(more).chain(oids))?;
        self.known.extend(wanted.iter().cloned());
        Ok(())
    }

    fn read(&self, wanted: &[Oid], depth: usize) -> Result<HashMap<Oid, Commit>, GitError> {
        let count = format!("--max-count={}", depth.saturating_mul(wanted.len()));
        let oids = wanted.iter().map(Oid::as_str);
        let list = self.git.ok(["rev-list", &count].into_iter().chain(oids))?;
        let all = self.git.ok_with(["cat-file", "--batch"], &[&list.stdout[..], b"\n"].concat())?;
        let mut commits = HashMap::new();
        let mut rest = &all.stdout[..];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let head = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = &rest[end + 1..];
            let mut parts = head.split(' ');
            let (Some(oid), Some("commit"), Some(Ok(size))) = (
                parts.next().and_then(Oid::new),
                parts.next(),
                parts.next().map(str::parse::<usize>),
            ) else {
                continue;
            };
            let Some((data, after)) = rest.split_at_checked(size) else { break };
            commits.insert(oid, Commit::decode(data));
            rest = after.strip_prefix(b"\n").unwrap_or(after);
        }
        Ok(commits)
    }
}

impl Wire for Cli {
    fn refs(&self, prefixes: &[&str]) -> Result<Vec<(RefName, Oid)>, GitError> {
        let patterns = prefixes.iter().map(|prefix| format!("{prefix}*"));
        let args = ["ls-remote", "--", &self.url].map(String::from).into_iter().chain(patterns);
        let output = self.with_desk(None, |desk| desk.git.ok(args))?;
        let wanted = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let found = output.text();
        let found = found.lines().filter_map(|line| line.split_once('\t'));
        let found = found.filter(|(_, name)| wanted(name));
        Ok(found.filter_map(|(oid, name)| Some((RefName::new(name)?, Oid::new(oid)?))).collect())
    }

    fn commits(&self, wanted: &[Oid], depth: usize) -> Result<HashMap<Oid, Commit>, GitError> {
        let Some(first) = wanted.first() else { return Ok(HashMap::new()) };
        self.with_desk(Some(Format::of(first)), |desk| {
            desk.fetch(&self.url, wanted, depth)?;
            desk.read(wanted, depth)
        })
    }

    fn push(&self, draft: &Draft<'_>, atomic: bool) -> Result<Outcomes, GitError> {
        match draft.format() {
            Some(format) => self.push_as(format, draft, atomic),
            None => self.guess(|format| self.push_as(format, draft, atomic)),
        }
    }

    fn knows_atomic(&self) -> Result<bool, GitError> {
        match self.guess(|format| self.push_nothing(format)) {
            Ok(()) => Ok(true),
            Err(error) if error.trouble() == Trouble::Unsupported => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Cli {
    /// Does something with the hash that the remote uses. One without references does not say which
    /// that is, until it is pushed to.
    fn guess<T>(&self, work: impl Fn(Format) -> Result<T, GitError>) -> Result<T, GitError> {
        let first = self.format()?;
        let is_other = |error: &GitError| {
            error.trouble() == Trouble::Unsupported && error.message().contains("hash")
        };
        match work(first) {
            Err(error) if first == Format::Sha1 && is_other(&error) => work(Format::Sha256),
            other => other,
        }
    }

    /// Goes as far as a push goes before anything is sent.
    fn push_nothing(&self, format: Format) -> Result<(), GitError> {
        self.with_desk(Some(format), |desk| {
            let entry = Entry { summary: "doctor".into(), body: String::new() };
            let object = Commit { parent: None, entry }.encode(format, 0, 0);
            let write = ["hash-object", "-w", "-t", "commit", "--stdin"];
            let oid = desk.git.ok_with(write, &object.data)?.text();
            let change = format!("{oid}:refs/sprag/doctor");
            let push = ["push", "--dry-run", "--atomic", "--no-verify", "--", &self.url, &change];
            desk.git.ok(push).map(drop)
        })
    }

    fn push_as(
        &self,
        format: Format,
        draft: &Draft<'_>,
        atomic: bool,
    ) -> Result<Outcomes, GitError> {
        let (changes, objects) = draft.finish(format)?;
        self.with_desk(Some(format), |desk| {
            let made = |change: &&RefChange| change.unique && change.new.is_some();
            let before = changes.iter().filter(made).filter_map(|change| change.old.clone());
            let there = changes.iter().filter(|change| !change.unique);
            let needed = before.chain(there.filter_map(|change| change.new.clone()));
            let missing: Vec<Oid> = needed.filter(|oid| !desk.known.contains(oid)).collect();
            if !missing.is_empty() {
                desk.fetch(&self.url, &missing, 1)?;
            }
            if let Some(pushed) = self.claimed(desk, &changes)? {
                return Ok(pushed);
            }
            let pack = write_pack(&objects, format)
                .map_err(|e| GitError::new(Trouble::Failed, e.to_string()))?;
            if !objects.is_empty() {
                desk.git.ok_with(["unpack-objects", "-q"], &pack)?;
            }
            let mut pushed = desk.git.push(&self.url, &changes, atomic)?;
            // In the moment since we looked, somebody put a branch where we wanted it. Git has done
            // the rest, which was not to be done without it.
            if atomic && pushed.contains(&Pushed::Done) && pushed.contains(&Pushed::UpToDate) {
                let message = "git push: somebody made the same branch at the same moment";
                let error = GitError::new(Trouble::Failed, message);
                pushed.fill(Pushed::Unknown(error));
            }
            desk.known.extend(changes.iter().filter_map(|change| change.new.clone()));
            Ok(pushed.into_iter().zip(changes.into_iter().map(|change| change.new)).collect())
        })
    }
}
