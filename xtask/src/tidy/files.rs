//! [`Files`]: the files that belong to the project, in memory.

use std::collections::BTreeMap;
use std::path::Path;

use crate::failure::{Failure, Outcome};
use crate::shell::Shell;

/// Every file of the project by its path from the root, with `/` between folders.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// `None` for a file that is not text.
    texts: BTreeMap<String, Option<String>>,
}

impl Files {
    /// The files git knows; in an unpacked archive without git, all but build products.
    pub(super) fn of(shell: &Shell) -> Outcome<Self> {
        let root = shell.root();
        let paths = if root.join(".git").exists() {
            tracked(shell)?
        } else {
            let mut paths = Vec::new();
            walk(root, root, &mut paths)
                .map_err(|error| Failure::failed(format!("cannot list the files: {error}")))?;
            paths
        };
        let mut files = Self::default();
        for path in paths {
            match std::fs::read(root.join(&path)) {
                Ok(bytes) => files.insert(path, bytes),
                // Removed but not committed yet, or a link to a folder: nothing to read.
                Err(_) => continue,
            }
        }
        Ok(files)
    }

    fn insert(&mut self, path: String, bytes: Vec<u8>) {
        let text = if bytes.contains(&0) { None } else { String::from_utf8(bytes).ok() };
        self.texts.insert(path, text);
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The files that are text.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// Whether there is a file of that path, or a folder with files in it.
    pub(super) fn has(&self, path: &str) -> bool {
        if path.is_empty() || self.texts.contains_key(path) {
            return true;
        }
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.texts.range(folder.clone()..).next().is_some_and(|(path, _)| path.starts_with(&folder))
    }
}

#[cfg(test)]
impl Files {
    /// Made up files for tests.
    pub(super) fn made_of(files: &[(&str, &str)]) -> Self {
        let mut all = Self::default();
        for (path, text) in files {
            all.insert((*path).to_owned(), text.as_bytes().to_vec());
        }
        all
    }
}

fn tracked(shell: &Shell) -> Outcome<Vec<String>> {
    let mut git = shell.command("git");
    // A container often sees the checkout as somebody else's; listing files is harmless.
    git.args(["-c", "safe.directory=*", "ls-files", "-z"]);
    let output =
        git.output().map_err(|error| Failure::failed(format!("cannot run git: {error}")))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Failure::failed(format!("`git ls-files` failed: {reason}")));
    }
    let list = String::from_utf8_lossy(&output.stdout);
    Ok(list.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

fn walk(root: &Path, folder: &Path, paths: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            if name != "target" && name != ".git" {
                walk(root, &path, paths)?;
            }
        } else if let Ok(relative) = path.strip_prefix(root) {
            paths.push(relative.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Files;

    #[test]
    fn a_folder_is_there_if_a_file_is_in_it() {
        let files = Files::made_of(&[("docs/a.md", ""), ("docs-old/b.md", "")]);
        for path in ["docs", "docs/", "docs/a.md", ""] {
            assert!(files.has(path), "{path}");
        }
        for path in ["doc", "docs/b.md", "docs/a"] {
            assert!(!files.has(path), "{path}");
        }
    }

    #[test]
    fn what_is_not_text_is_not_read() {
        let files = Files::made_of(&[("picture.png", "\0"), ("a.rs", "text")]);
        assert_eq!(files.texts().collect::<Vec<_>>(), [("a.rs", "text")]);
    }
}
