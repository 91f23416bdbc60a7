//! Commits that a worker made and left: undone by a reset, an amend or a rebase, or on a branch of
//! its own. In a clone the log of HEAD has them for months; that of a worktree goes with it.

use std::collections::BTreeSet;

use sprag_ledger::Oid;

use super::worktree::Checkout;
use super::{Repo, repository};
use crate::error::Result;
use crate::task::Leftover;

/// Where commits are kept that were undone. Only in this clone.
const UNDONE: &str = "refs/sprag/undone/";

impl Repo {
    /// Keeps the commits that a worktree was ever at and that nothing else keeps, and says which
    /// other branches have some.
    pub(super) fn keep_undone(&self, checkout: &Checkout, safe: &[&Oid]) -> Result<Vec<Leftover>> {
        let git = self.git.clone().repository(&checkout.admin);
        let said = git.run(["log", "-g", "--format=%H %gs", "HEAD", "--"]);
        let text = said.map_err(|error| repository(&error))?.text();
        let entries: Vec<_> = text.lines().filter_map(|line| line.split_once(' ')).collect();
        let mut left = Vec::new();
        if let Some(commit) = self.undone(checkout, &entries, safe)? {
            let name = format!("{UNDONE}{}/{}", checkout.item, checkout.id);
            let args = ["update-ref", &name, commit.as_str()];
            self.git.ok(args).map_err(|error| repository(&error))?;
            left.push(Leftover::kept("commits that were undone", name));
        }
        let moved =
            entries.iter().filter_map(|(_, why)| why.strip_prefix("checkout: moving from "));
        let visited: BTreeSet<_> = moved.filter_map(|why| why.split_once(" to ")).collect();
        let names: BTreeSet<_> = visited.into_iter().flat_map(|(from, to)| [from, to]).collect();
        for name in names.into_iter().filter(|name| *name != checkout.branch) {
            let Some(branch) = self.branch(name)? else { continue };
            let mut known = false;
            for other in safe {
                known = known || self.is_ancestor(&branch.tip, other)?;
            }
            if !known {
                left.push(Leftover::kept("commits of the worker", format!("branch {name}")));
            }
        }
        Ok(left)
    }

    /// One commit above all that the log names and no reference has.
    fn undone(
        &self,
        checkout: &Checkout,
        entries: &[(&str, &str)],
        safe: &[&Oid],
    ) -> Result<Option<Oid>> {
        let ever: BTreeSet<&str> = entries.iter().map(|(oid, _)| *oid).collect();
        let git = self.git.clone().repository(&checkout.admin);
        let input: String = ever.iter().map(|oid| format!("{oid}\n")).collect();
        let safe = safe.iter().map(|oid| oid.as_str());
        let args =
            ["rev-list", "--not", "--all"].into_iter().chain(safe).chain(["--not", "--stdin"]);
        let said = git.ok_with(args, input.as_bytes()).map_err(|error| repository(&error))?.text();
        let lost: Vec<_> = said.lines().filter(|oid| ever.contains(oid)).collect();
        let [first, ..] = lost[..] else { return Ok(None) };
        let tips = match lost.len() {
            1 => first.to_owned(),
            _ => {
                let args = ["merge-base", "--independent"].into_iter().chain(lost.iter().copied());
                self.git.ok(args).map_err(|error| repository(&error))?.text()
            }
        };
        let tips: Vec<_> = tips.lines().filter_map(Oid::new).collect();
        let Some(newest) = Oid::new(first) else { return Ok(None) };
        let message = format!("work: undone in {}", checkout.branch);
        let parents: Vec<_> = tips.iter().collect();
        self.commit(&self.tree_of(&newest)?, &parents, &message).map(Some)
    }
}
