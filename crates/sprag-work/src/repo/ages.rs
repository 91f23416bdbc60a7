//! [`Ages`]: which item came first, by the history of the main branch.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use sprag_ledger::Oid;

use super::{Repo, repository};
use crate::error::Result;
use crate::flow::Flow;
use crate::name::ItemName;

/// The form of the file; another one is read as none.
const FORM: &str = "sprag ages 1";

/// Who came first, and when each came to where it is. Kept in a file, so that only what is new has
/// to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ages {
    items: HashMap<String, Age>,
    next: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Age {
    order: u64,
    since: u64,
    place: String,
}

impl Ages {
    /// The ages as of a commit of the main branch.
    pub(crate) fn read(repo: &Repo, flow: &Flow, root: &str, main: &Oid) -> Result<Self> {
        let file = repo.desk().file("ages")?;
        let header = |tip: &str| format!("{FORM} {root} {tip}");
        let (mut ages, tip) = Self::load(&file, &header("")).unwrap_or_default();
        let known = match Oid::new(tip) {
            Some(tip) if tip == *main => return Ok(ages),
            Some(tip) if repo.has(&tip)? && repo.is_ancestor(&tip, main)? => Some(tip),
            _ => None,
        };
        if known.is_none() {
            ages = Self::default();
        }
        let range = known.map_or_else(|| main.to_string(), |tip| format!("{tip}..{main}"));
        let args = [
            "-c",
            "core.quotePath=false",
            "-c",
            "log.showSignature=false",
            "log",
            "--first-parent",
            "-m",
            "--reverse",
            "--diff-filter=A",
            "--no-renames",
            "--name-only",
            "--format=%x01%ct",
            &range,
            "--",
            root,
        ];
        let said = repo.git.ok(args).map_err(|error| repository(&error))?;
        ages.learn(&String::from_utf8_lossy(&said.stdout), flow, root);
        // Nothing is lost with it: it is read again.
        ages.save(repo, &file, &header(main.as_str())).ok();
        Ok(ages)
    }

    /// Goes on with what `git log` says.
    fn learn(&mut self, log: &str, flow: &Flow, root: &str) {
        let mut time = 0;
        for line in log.lines() {
            if let Some(seconds) = line.strip_prefix('\u{1}') {
                time = seconds.parse().unwrap_or(0);
                continue;
            }
            let Some(below) = line.strip_prefix(root).and_then(|l| l.strip_prefix('/')) else {
                continue;
            };
            let parts: Vec<_> = below.split('/').collect();
            let Some((place, name, depth)) = flow.locate(&parts) else { continue };
            if parts.len() > depth {
                self.arrived(name, &place.to_string(), time);
            }
        }
    }

    fn arrived(&mut self, name: &str, place: &str, time: u64) {
        if let Some(age) = self.items.get_mut(name) {
            if age.place != place {
                age.since = time;
                place.clone_into(&mut age.place);
            }
            return;
        }
        // A stamp makes an item no younger.
        let before = ItemName::new(name).ok();
        let before = before.as_ref().and_then(|name| name.split_stamp()).map(|split| split.0);
        let order = before.and_then(|before| self.items.get(before)).map(|age| age.order);
        let order = order.unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        self.items.insert(name.to_owned(), Age { order, since: time, place: place.to_owned() });
    }

    /// The order of an item among all, and when it came to where it is.
    pub(crate) fn of(&self, name: &str) -> (u64, Option<u64>) {
        self.items.get(name).map_or((u64::MAX, None), |age| (age.order, Some(age.since)))
    }

    fn load(file: &Path, header: &str) -> Option<(Self, String)> {
        let text = std::fs::read_to_string(file).ok()?;
        let mut lines = text.lines();
        let tip = lines.next()?.strip_prefix(header)?.to_owned();
        let mut ages = Self::default();
        for line in lines {
            let mut parts = line.splitn(4, ' ');
            let (order, since) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            let (name, place) = (parts.next()?.to_owned(), parts.next()?.to_owned());
            ages.next = ages.next.max(order);
            ages.items.insert(name, Age { order, since, place });
        }
        Some((ages, tip))
    }

    fn save(&self, repo: &Repo, file: &Path, header: &str) -> Result<()> {
        let mut text = format!("{header}\n");
        for (name, age) in self.items.iter().filter(|(name, _)| !name.contains(char::is_whitespace))
        {
            writeln!(text, "{} {} {name} {}", age.order, age.since, age.place).ok();
        }
        repo.desk().write(file, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_first_stays_first_with_a_stamp_and_on_every_move() {
        let mut ages = Ages::default();
        let log = "\u{1}100\n\ndocs/work/new/a/README.md\n\u{1}200\n\ndocs/work/new/b/README.md\n\
                   docs/work/README.md\n\u{1}300\n\ndocs/work/stamped/a-00000001/README.md\n\
                   \u{1}400\n\ndocs/work/bugs/next/a-00000001/README.md\n";
        ages.learn(log, &Flow::standard(), "docs/work");
        assert_eq!(ages.of("a-00000001"), (1, Some(400)));
        assert_eq!(ages.of("b"), (2, Some(200)));
        assert_eq!(ages.of("README.md"), (u64::MAX, None));
    }
}
