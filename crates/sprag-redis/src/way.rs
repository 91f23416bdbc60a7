//! [`Way`]: to the server that has a lock, or to all of them.

use std::sync::Arc;
use std::time::Duration;

use sprag_core::{Operation, Result};

use crate::cluster::Cluster;
use crate::config::{Place, RedisConfig};
use crate::error::{STORE, Trouble, strange_answer};
use crate::hello::Info;
use crate::link::Link;
use crate::longest::Longest;
use crate::resp::{FromValue, Value};
use crate::script::Call;
use crate::slot::slot_of;
use crate::timers::Timers;

/// The way to where the locks are.
#[derive(Debug)]
pub(crate) struct Way {
    servers: Servers,
    timers: Timers,
}

#[derive(Debug)]
enum Servers {
    /// All are on one server.
    One(Arc<Link>),
    /// Each is where its slot is.
    Many(Box<Cluster>),
}

impl Way {
    /// Connects; `opened` is told how that went.
    pub(crate) fn start(
        config: RedisConfig,
        longest: &Arc<Longest>,
        opened: impl FnOnce(Result<Info>) + Send + 'static,
    ) -> Result<Self> {
        let in_cluster = matches!(config.place, Place::Cluster(_)).then(|| config.clone());
        let link = Arc::new(Link::start(config, Arc::clone(longest), opened)?);
        let servers = match in_cluster {
            None => Servers::One(link),
            Some(config) => {
                Servers::Many(Box::new(Cluster::new(config, Arc::clone(longest), link)?))
            }
        };
        Ok(Self { servers, timers: Timers::start()? })
    }

    /// Does something as long as there is a way, without anybody who waits for it.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.timers.run(work);
    }

    /// Whether the locks are on several servers.
    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Many(_))
    }

    /// Ends when the other servers must not be made to wait any longer for one that does not answer.
    pub(crate) async fn enough_of(&self, patience: Duration) {
        match &self.servers {
            Servers::One(_) => std::future::pending().await,
            Servers::Many(_) => self.timers.sleep(patience).await,
        }
    }

    /// The server that has `key`, as far as it is known. It was met before: what is asked of it can
    /// be limited by its clock, and whether it may grant is known.
    pub(crate) async fn link_for(&self, key: &str) -> Result<Arc<Link>> {
        match &self.servers {
            Servers::One(link) => Ok(Arc::clone(link)),
            Servers::Many(cluster) => cluster.met_link_for(slot_of(key)).await,
        }
    }

    /// Asks the server that has `key` several things at once, in this order; `calls` says what, of
    /// each that is asked. Each may be refused. Also tells which server has answered: it may be another
    /// one than was asked first.
    pub(crate) async fn ask_all(
        &self,
        key: &str,
        calls: impl Fn(&Link) -> Vec<Call> + Send + Sync,
    ) -> Result<(Vec<Value>, Arc<Link>)> {
        match &self.servers {
            Servers::One(link) => Ok((link.ask_all(calls(link)).await?, Arc::clone(link))),
            Servers::Many(cluster) => cluster.ask_all(slot_of(key), calls).await,
        }
    }

    /// Asks the server that has `key`.
    pub(crate) async fn ask<T: FromValue>(
        &self,
        operation: Operation,
        key: &str,
        call: Call,
    ) -> Result<T> {
        let asked = self.ask_all(key, |_| vec![call.clone()]).await;
        let answer = asked.and_then(|(mut answers, _)| {
            let answer = answers.pop().ok_or_else(|| strange_answer("nothing"))?;
            self.understand(answer)
        });
        answer.map_err(|error| error.during(operation).at(STORE))
    }

    /// Every server that has locks.
    pub(crate) async fn links(&self, operation: Operation) -> Result<Vec<Arc<Link>>> {
        match &self.servers {
            Servers::One(link) => Ok(vec![Arc::clone(link)]),
            Servers::Many(cluster) => {
                cluster.masters().await.map_err(|error| error.during(operation).at(STORE))
            }
        }
    }

    /// What an answer means: a refusal is an error.
    pub(crate) fn understand<T: FromValue>(&self, answer: Value) -> Result<T> {
        if let Value::No(refused) = &answer {
            let address = match &self.servers {
                Servers::One(link) => link.address(),
                Servers::Many(_) => "the Cluster",
            };
            return Err(Trouble::refused(address, refused).into());
        }
        T::from_value(answer).ok_or_else(|| strange_answer("it has another form"))
    }
}
