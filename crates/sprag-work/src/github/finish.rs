//! How a claim on an issue ends: the issue is closed or relabelled, its comment says what came of
//! it, and the lock is released.

use std::time::Duration;

use sprag_core::entropy::{Entropy, OsEntropy};

use super::claim::GitHubClaim;
use super::rules::After;
use super::{lock_name, now};
use crate::error::{Error, ErrorKind, Result};
use crate::flow::{Place, State};
use crate::task::{Finished, Outcome};

/// How long a release waits for the comment.
const TOLD_WITHIN: Duration = Duration::from_secs(20);
/// How often GitHub is asked again if it does not answer.
const TRIES: u32 = 5;

impl GitHubClaim {
    pub(super) fn conclude(mut self, outcome: Outcome) -> Result<Finished> {
        self.ensure_ours()?;
        let rules = &self.source.inner.rules;
        let (after, told) = match &outcome {
            Outcome::Done { .. } => (rules.success().clone(), "done".to_owned()),
            Outcome::Failed { why } => (rules.failure().clone(), format!("failed: {why}")),
            Outcome::Released => (After::Nothing, "released".to_owned()),
            Outcome::Pending { .. } | Outcome::Resumed { .. } => {
                self.give_back("released")?;
                return Err(Error::input("an issue cannot be made pending: give it a label"));
            }
        };
        let changed = self.change(&after);
        let told = match &changed {
            Ok(()) => told,
            Err(error) => {
                format!("{told}, but the issue could not be changed: {}", error.message())
            }
        };
        self.give_back(&told)?;
        changed?;
        let from = Place::plain(super::list::OPEN);
        let to = to(&after, &from);
        if from != to {
            self.source.known().finished.insert(self.number, now());
        }
        let item = self.task.item.name.clone();
        let leftovers = Vec::new();
        Ok(Finished { item, from, to, commits: 0, left_on: None, merged: None, leftovers })
    }

    /// Whoever has lost its claim changes nothing.
    fn ensure_ours(&mut self) -> Result<()> {
        let lost = match &self.guard {
            Some(guard) => guard.ensure_valid().err().map(|error| error.message().to_owned()),
            None => {
                let lock = lock_name(self.number)?;
                let view = self.source.wait(self.source.inner.client.inspect(lock.as_str()))?;
                let ours = view.holders.iter().any(|holder| holder.lease == self.note.lease);
                (!ours).then(|| "somebody else took it, or it ran out".to_owned())
            }
        };
        let Some(why) = lost else { return Ok(()) };
        // Whoever has it now shows itself.
        self.source.inner.store.forget(self.note.lease);
        self.slip.erase();
        Err(self.source.lost(&self.task.item.name, &why))
    }

    /// Closes or relabels the issue. Done twice it is as done once.
    fn change(&self, after: &After) -> Result<()> {
        let github = self.source.github();
        let mut attempt = 0;
        loop {
            let done = match after {
                After::Nothing => return Ok(()),
                After::Close => github.close_issue(self.number).map(drop),
                After::Relabel { remove, add } => github.relabel_issue(self.number, add, remove),
            };
            attempt += 1;
            match done {
                Err(error) if error.is_indeterminate() && attempt < TRIES => {
                    let pause = Duration::from_millis(500 << attempt);
                    let pause = pause.mul_f64(0.5 + OsEntropy.next_fraction());
                    self.source.wait(async { tokio::time::sleep(pause).await });
                    if let Some(guard) = &self.guard {
                        guard.ensure_valid()?;
                    }
                }
                done => return Ok(done?),
            }
        }
    }

    /// Says in the one comment of this claim what came of it, and releases the lock.
    fn give_back(&mut self, told: &str) -> Result<()> {
        let store = &self.source.inner.store;
        self.source.wait(store.conclude(self.note.lease, told, TOLD_WITHIN));
        let released = self.release();
        if !matches!(&released, Err(error) if error.kind() == ErrorKind::Unavailable) {
            self.slip.erase();
        }
        released.map(drop)
    }
}

/// Where an issue is afterwards, for people.
fn to(after: &After, from: &Place) -> Place {
    match after {
        After::Close => Place::plain("closed"),
        After::Nothing => from.clone(),
        After::Relabel { add, remove } => {
            let name = match (add.first(), remove.first()) {
                (Some(label), _) => label.clone(),
                (None, Some(label)) => format!("not-{label}"),
                (None, None) => return from.clone(),
            };
            let name: String =
                name.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
            let state = State::new(name.trim_matches('-')).unwrap_or_else(|_| from.state.clone());
            Place { category: None, state }
        }
    }
}
