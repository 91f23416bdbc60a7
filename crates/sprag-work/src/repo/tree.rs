//! Reading and making trees and commits without a checkout.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use sprag_git::Git;
use sprag_ledger::Oid;

use super::{Repo, repository};
use crate::error::{Error, ErrorKind, Result};

/// A file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    /// Its mode, as git writes it.
    pub(crate) mode: String,
    /// What is in it.
    pub(crate) blob: Oid,
    /// Where it is.
    pub(crate) path: String,
}

/// A change to a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Another place for everything below a folder.
    Move { from: String, to: String },
    /// Another content for a file, which need not be there.
    Write { path: String, text: String },
    /// One file less.
    Remove { path: String },
}

/// What came of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Merged {
    /// The tree with both sides in it.
    Tree(Oid),
    /// Files that both sides changed.
    Conflict(Vec<String>),
}

impl Repo {
    /// The files below a folder of a commit or tree.
    pub(crate) fn files(&self, tree: &Oid, folder: &str) -> Result<Vec<File>> {
        let below = format!("{folder}/");
        let args = ["ls-tree", "-r", "-z", "--full-tree", tree.as_str(), "--", &below];
        let said = self.git.ok(args).map_err(|error| repository(&error))?;
        // A path that is no text belongs to no item.
        let text = String::from_utf8_lossy(&said.stdout);
        let file = |line: &str| {
            let (facts, path) = line.split_once('\t')?;
            let mut facts = facts.split(' ');
            let (mode, _, blob) = (facts.next()?, facts.next()?, facts.next()?);
            Some(File { mode: mode.to_owned(), blob: Oid::new(blob)?, path: path.to_owned() })
        };
        Ok(text.split('\0').filter_map(file).collect())
    }

    /// What is in some files, in order. Large ones and those that are no text are empty.
    pub(crate) fn texts(&self, blobs: &[&Oid]) -> Result<Vec<String>> {
        const LONGEST: usize = 1 << 16;
        if blobs.is_empty() {
            return Ok(Vec::new());
        }
        let input: String = blobs.iter().map(|blob| format!("{blob}\n")).collect();
        let said = self.git.ok_with(["cat-file", "--batch"], input.as_bytes());
        let said = said.map_err(|error| repository(&error))?.stdout;
        let mut rest = &said[..];
        let mut texts = Vec::new();
        for _ in blobs {
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { break };
            let head = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = &rest[end + 1..];
            let size: Option<usize> = head.rsplit(' ').next().and_then(|size| size.parse().ok());
            let Some(size) = size.filter(|size| *size < rest.len()) else {
                texts.push(String::new());
                continue;
            };
            let bytes = if size > LONGEST { &[][..] } else { &rest[..size] };
            texts.push(String::from_utf8(bytes.to_vec()).unwrap_or_default());
            rest = &rest[size + 1..];
        }
        texts.resize(blobs.len(), String::new());
        Ok(texts)
    }

    /// The tree of a commit with some changes.
    pub(crate) fn edit(&self, tree: &Oid, edits: &[Edit]) -> Result<Oid> {
        let index = TemporaryIndex::new(self)?;
        let run = |args: &[&str], input: &[u8]| {
            index.git.ok_with(args, input).map_err(|error| repository(&error))
        };
        run(&["read-tree", tree.as_str()], &[])?;
        let mut lines = String::new();
        let none = "0".repeat(tree.as_str().len());
        for edit in edits {
            match edit {
                Edit::Move { from, to } => {
                    for file in self.files(tree, from)? {
                        let File { mode, blob, path } = file;
                        let below = path.strip_prefix(from.as_str()).unwrap_or_default();
                        write!(lines, "0 {none}\t{path}\0{mode} {blob}\t{to}{below}\0").ok();
                    }
                }
                Edit::Write { path, text } => {
                    let said = run(&["hash-object", "-w", "--stdin"], text.as_bytes())?;
                    write!(lines, "100644 {}\t{path}\0", said.text()).ok();
                }
                Edit::Remove { path } => {
                    write!(lines, "0 {none}\t{path}\0").ok();
                }
            }
        }
        run(&["update-index", "-z", "--index-info"], lines.as_bytes())?;
        // Where objects are fetched when they are needed, none of them is needed for this.
        let made = run(&["write-tree", "--missing-ok"], &[])?.text();
        Oid::new(made.as_str()).ok_or_else(|| odd("write-tree", &made))
    }

    /// Makes a commit of a tree.
    pub(crate) fn commit(&self, tree: &Oid, parents: &[&Oid], message: &str) -> Result<Oid> {
        let mut args: Vec<&str> = self.identity.iter().map(String::as_str).collect();
        args.extend(["commit-tree", tree.as_str()]);
        for parent in parents {
            args.extend(["-p", parent.as_str()]);
        }
        args.extend(["-m", message]);
        let made = self.git.ok(args).map_err(|error| repository(&error))?.text();
        Oid::new(made.as_str()).ok_or_else(|| odd("commit-tree", &made))
    }

    /// Merges two commits, without a checkout.
    pub(crate) fn merge(&self, ours: &Oid, theirs: &Oid) -> Result<Merged> {
        let args = [
            "-c",
            // Whoever moves the last item out of a state has not renamed the state.
            "merge.directoryRenames=false",
            "merge-tree",
            "--write-tree",
            "--name-only",
            "-z",
            "--no-messages",
            ours.as_str(),
            theirs.as_str(),
        ];
        let said = self.git.run(args).map_err(|error| repository(&error))?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let mut parts = text.split('\0');
        let tree = parts.next().and_then(|first| Oid::new(first.trim()));
        match (said.code, tree) {
            (Some(0), Some(tree)) => Ok(Merged::Tree(tree)),
            (Some(1), Some(_)) => {
                let files = parts.filter(|part| !part.is_empty()).map(str::to_owned);
                Ok(Merged::Conflict(files.collect()))
            }
            _ => Err(odd("merge-tree", &said.stderr)),
        }
    }

    /// The tree of a commit.
    pub(crate) fn tree_of(&self, commit: &Oid) -> Result<Oid> {
        let said = self.git.ok(["rev-parse", "--verify", &format!("{commit}^{{tree}}")]);
        let said = said.map_err(|error| repository(&error))?.text();
        Oid::new(said.as_str()).ok_or_else(|| odd("rev-parse", &said))
    }
}

fn odd(command: &str, said: &str) -> Error {
    let said = said.lines().next().unwrap_or_default();
    Error::new(ErrorKind::Repository, format!("git {command} said {said:?}"))
}

/// An index of our own, that is gone when it is not needed any more.
pub(super) struct TemporaryIndex {
    pub(super) path: PathBuf,
    git: Git,
}

impl TemporaryIndex {
    pub(super) fn new(repo: &Repo) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = repo.desk().temporary()?;
        let path = folder.join(format!("index-{}-{number}", std::process::id()));
        let git = repo.git.clone().env("GIT_INDEX_FILE", &path);
        Ok(Self { path, git })
    }
}

impl Drop for TemporaryIndex {
    fn drop(&mut self) {
        // Whatever is left of it is removed by `recover`.
        std::fs::remove_file(&self.path).ok();
    }
}
