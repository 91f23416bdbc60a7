//! [`Nodes`]: the way to all nodes at once.

use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock};
use sprag_core::pace::Pace;
use sprag_core::{Error, ErrorKind, LockName, Operation, Result};

use super::answer::Answer;
use super::{RedlockConfig, STORE};
use crate::error::error;
use crate::keys::Keys;
use crate::link::{Link, Vigil};
use crate::script::{Call, Script};
use crate::timers::Timers;

/// The way to all nodes at once.
#[derive(Debug)]
pub(super) struct Nodes {
    links: Vec<Link>,
    /// How soon enough of them answer.
    pace: Pace,
    pub(super) timers: Timers,
    keys: Keys,
    /// How long to wait for a majority where no lease sets the pace.
    pub(super) timeout: Duration,
}

/// A question to one node.
pub(super) type Ask = (usize, Call);

/// Why nodes did not answer.
#[derive(Debug, Default)]
pub(super) struct Failures(Vec<(usize, Error)>);

impl Nodes {
    /// Starts a thread for each; they connect when they are asked.
    pub(super) fn start(config: &RedlockConfig) -> Result<Self> {
        // Whether a node votes is decided on the node itself.
        let links = config.nodes.iter().map(|node| Link::in_company(node.clone(), STORE));
        let links = links.collect::<Result<Vec<_>>>()?;
        let first = &config.nodes[0];
        let (keys, timeout) = (Keys::new(first.prefix.clone(), false), first.timeout);
        Ok(Self { links, pace: Pace::new(), timers: Timers::start()?, keys, timeout })
    }

    pub(super) fn count(&self) -> usize {
        self.links.len()
    }

    pub(super) fn majority(&self) -> usize {
        self.count() / 2 + 1
    }

    pub(super) fn link(&self, node: usize) -> &Link {
        &self.links[node]
    }

    /// The keys of a lock on every node.
    pub(super) fn keys(&self, name: &LockName) -> Result<Vec<String>> {
        let plain = self.keys.of(name)?.swap_remove(0);
        let about = format!("{{{plain}}}:n");
        Ok(vec![plain, about, self.mark()])
    }

    /// Where a node keeps what it knows about itself.
    pub(super) fn mark(&self) -> String {
        format!("{{{}}}:node", self.keys.prefix())
    }

    /// The pattern of the keys that are kept for each lock.
    pub(super) fn pattern(&self) -> String {
        let mut pattern = String::from("{");
        for letter in self.keys.prefix().chars() {
            if "*?[]\\".contains(letter) {
                pattern.push('\\');
            }
            pattern.push(letter);
        }
        pattern + "*}:n"
    }

    /// The name of the lock that such a key is kept for.
    pub(super) fn name_in(&self, key: &str) -> Option<LockName> {
        let plain = key.strip_prefix('{')?.strip_suffix("}:n")?;
        LockName::new(plain.strip_prefix(self.keys.prefix())?).ok()
    }

    /// A script's call.
    pub(super) fn call(script: Script, keys: &[String], arguments: &[&str]) -> Call {
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        Call::Script { script, keys: keys.to_vec(), arguments }
    }

    /// The same call for all.
    pub(super) fn all(&self, call: &Call) -> Vec<Ask> {
        (0..self.count()).map(|node| (node, call.clone())).collect()
    }

    /// Asks nodes at the same time and hands over each answer, or that there is none, until there
    /// is enough, all have answered, or `patience` is over. Whatever is still under way then is done all the same.
    pub(super) async fn ask(
        &self,
        asks: Vec<Ask>,
        patience: Duration,
        mut enough: impl FnMut(usize, Option<Answer>) -> bool + Send,
    ) -> Failures {
        let (sent, mut awaited) = (BootClock.now(), asks.len());
        let asking = asks.into_iter().map(|(node, call)| {
            let link = self.link(node);
            (node, async move {
                let answer = link.ask::<Answer>(call).await?;
                if answer.now_us > 0 {
                    link.learn(answer.now_us / 1000, sent);
                }
                Ok(answer)
            })
        });
        self.gather(asking, patience, |node, answer| {
            awaited -= 1;
            enough(node, answer) || awaited == 0
        })
        .await
    }

    /// Sends requests whose answers nobody waits for.
    pub(super) async fn tell(&self, asks: Vec<Ask>) {
        let links =
            asks.into_iter().map(|(node, call)| (node, self.link(node).ask_all(vec![call])));
        // Sent once it is looked at for the first time.
        drop(self.gather(links, Duration::ZERO, |_, _| true).await);
    }

    /// Waits for all at once; `enough` is told of each answer, or that one failed.
    pub(super) async fn gather<T, F>(
        &self,
        asking: impl Iterator<Item = (usize, F)>,
        patience: Duration,
        mut enough: impl FnMut(usize, Option<T>) -> bool + Send,
    ) -> Failures
    where
        F: Future<Output = Result<T>> + Send,
    {
        let asking: Vec<_> = asking.collect();
        // Dropped behind what is asked: what is under way then is awaited by nobody.
        let mut vigil = Vigil::begin(asking.iter().map(|(node, _)| self.link(*node)), &self.pace);
        let mut asking: Vec<(usize, Option<Pin<Box<F>>>)> =
            asking.into_iter().map(|(node, asked)| (node, Some(Box::pin(asked)))).collect();
        let mut sleep = pin!(self.timers.sleep(patience));
        let mut failures = Failures::default();
        let late = std::future::poll_fn(|cx| {
            let mut looked = false;
            loop {
                let (mut done, mut any) = (false, false);
                // All of them, before the first answer counts: all are to be sent.
                for (node, asked) in &mut asking {
                    let Some(Poll::Ready(answer)) =
                        asked.as_mut().map(|asked| asked.as_mut().poll(cx))
                    else {
                        continue;
                    };
                    *asked = None;
                    any = true;
                    let answer = answer.map_err(|error| failures.0.push((*node, error))).ok();
                    done |= enough(*node, answer);
                }
                if done {
                    vigil.found();
                    return Poll::Ready(false);
                } else if patience.is_zero() {
                    vigil.leaves_the_rest();
                    return Poll::Ready(false);
                } else if looked && !any {
                    // It was for others, who may want this very thread.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                looked = vigil.look();
                if !looked {
                    return sleep.as_mut().poll(cx).map(|()| true);
                }
            }
        })
        .await;
        for (node, asked) in &asking {
            if asked.is_some() && late {
                let message =
                    format!("{} did not answer within {patience:?}", self.link(*node).address());
                failures.0.push((*node, error(ErrorKind::Unavailable, message)));
            }
        }
        failures
    }

    /// No majority has answered: which nodes failed, and why.
    pub(super) fn no_majority(
        &self,
        operation: Operation,
        name: Option<&LockName>,
        failures: &Failures,
    ) -> Error {
        let lasting = |error: &&Error| !error.is_retryable();
        let errors = || failures.0.iter().map(|(_, error)| error);
        let hopeless = errors().filter(lasting).count() > self.count() - self.majority();
        let kind = match errors().find(lasting) {
            Some(error) if hopeless => error.kind().clone(),
            _ => ErrorKind::Unavailable,
        };
        let reasons: Vec<_> = errors().map(Error::message).collect();
        let (needed, count) = (self.majority(), self.count());
        let failed = reasons.len();
        let message = format!(
            "{needed} of {count} nodes are needed and {failed} failed: {}",
            reasons.join("; ")
        );
        let error = Error::new(kind, operation, message).at(STORE);
        match name {
            Some(name) => error.on(name),
            None => error,
        }
    }
}

impl Failures {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of a later round; the last word of each node counts.
    pub(super) fn absorb(&mut self, later: Self) {
        self.0.retain(|(node, _)| later.0.iter().all(|(other, _)| other != node));
        self.0.extend(later.0);
    }

    /// Another one, of a node that answered but is of no use for now.
    pub(super) fn add(&mut self, node: usize, why: String) {
        self.0.push((node, error(ErrorKind::Unavailable, why)));
    }
}
