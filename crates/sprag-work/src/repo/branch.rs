//! The local branches of claims: none is in the way of the next claim, and none is lost.

use sprag_git::GitError;
use sprag_ledger::Oid;

use super::{Repo, branch_ref, repository};
use crate::error::{Error, ErrorKind, Result};
use crate::task::Leftover;

/// What a branch is called that nobody works on any more.
pub(crate) const UNFINISHED: &str = "unfinished/";

/// A local branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    pub(crate) name: String,
    pub(crate) tip: Oid,
    /// Where it is checked out, if it is.
    pub(crate) used_in: Option<String>,
    /// Whether it follows another one.
    pub(crate) has_upstream: bool,
}

impl Repo {
    /// The local branches.
    pub(crate) fn branches(&self) -> Result<Vec<Branch>> {
        self.branches_at("refs/heads/")
    }

    /// A local branch by its name.
    pub(crate) fn branch(&self, name: &str) -> Result<Option<Branch>> {
        let found = self.branches_at(&format!("refs/heads/{name}"))?;
        Ok(found.into_iter().find(|branch| branch.name == name))
    }

    fn branches_at(&self, pattern: &str) -> Result<Vec<Branch>> {
        let format = "--format=%(objectname)%00%(refname:lstrip=2)%00%(upstream)%00%(worktreepath)";
        let said = self.calm(|| self.git.ok(["for-each-ref", format, pattern]));
        let text = said.map_err(|error| repository(&error))?.text();
        let branch = |line: &str| {
            let mut parts = line.splitn(4, '\0');
            Some(Branch {
                tip: Oid::new(parts.next()?)?,
                name: parts.next()?.to_owned(),
                has_upstream: !parts.next()?.is_empty(),
                used_in: parts.next().filter(|path| !path.is_empty()).map(str::to_owned),
            })
        };
        Ok(text.lines().filter_map(branch).collect())
    }

    /// Takes a local branch out of the way. What is on it and in none of the `safe` commits is kept
    /// under another name.
    ///
    /// # Errors
    ///
    /// Held if it is checked out somewhere.
    pub(crate) fn free_branch(&self, name: &str, safe: &[&Oid]) -> Result<Option<Leftover>> {
        let Some(Branch { tip, used_in, .. }) = self.branch(name)? else { return Ok(None) };
        if let Some(path) = used_in {
            let message = format!("branch {name} is checked out in {path}, by no claim");
            return Err(Error::new(ErrorKind::Held, message)
                .next("give it another name", format!("git branch -m {name} {name}-mine")));
        }
        for other in safe {
            if self.is_ancestor(&tip, other)? {
                self.delete_branch(name, &tip)?;
                return Ok(None);
            }
        }
        let digits = tip.as_str().get(..12).unwrap_or_default();
        let aside = format!("{UNFINISHED}{name}.{digits}");
        self.rename(name, &aside, &tip).map_err(|error| repository(&error))?;
        let what = format!("the commits of the local branch {name}");
        Ok(Some(Leftover::kept(what, format!("branch {aside}"))))
    }

    /// In one step. Not by `git branch -m`, which refuses while a rebase of it is left anywhere.
    fn rename(&self, from: &str, to: &str, tip: &Oid) -> Result<(), GitError> {
        let (from, to) = (format!("refs/heads/{from}"), format!("refs/heads/{to}"));
        // The name is made of the commit, so it may be there from before.
        let steps = format!("update {to} {tip}\ndelete {from} {tip}\n");
        let args = ["-c", "core.hooksPath=/dev/null", "update-ref", "--stdin"];
        self.git.ok_with(args, steps.as_bytes()).map(drop)
    }

    /// Deletes a local branch that is at `tip`; whether it was.
    pub(crate) fn delete_branch(&self, branch: &str, tip: &Oid) -> Result<bool> {
        let Some(name) = branch_ref(branch) else { return Ok(false) };
        let args = ["-c", "core.hooksPath=/dev/null", "update-ref", "-d"];
        let said = self.git.run(args.into_iter().chain([name.as_str(), tip.as_str()]));
        said.map(|said| said.is_ok()).map_err(|error| repository(&error))
    }
}
