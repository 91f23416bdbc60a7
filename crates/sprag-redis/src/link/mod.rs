//! [`Link`]: the way to one server.
//!
//! ```text
//!   caller ── writes ──> the line ── reads its answer, if it comes at once
//!                          │
//!                        clerk: a thread that connects, reads what comes late, ends what hangs
//!                        ear:   a thread that hears wake-ups, once somebody waits
//! ```
//!
//! No runtime is needed: callers may be on any, and the connection must not end with the one that
//! happened to open it.

mod clerk;
mod dialer;
mod ear;
mod line;
mod reply;
mod server;
mod shared;
mod slot;
mod stream;
mod tls;
mod vigil;

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_core::{Error, ErrorKind, Loss, Result};

pub(crate) use dialer::Dialer;
pub(crate) use ear::{Ear, Heard};
pub(crate) use server::Server;
pub(crate) use vigil::Vigil;

use crate::config::{Place, Quarantine, RedisConfig};
use crate::error::{STORE, Trouble, strange_answer};
use crate::hello::{FSYNC, Info};
use crate::longest::Longest;
use crate::resp::{FromValue, Value};
use crate::script::{ALL, Call};
use clerk::{Clerk, no_thread};
use dialer::ask;
use line::Line;
use reply::Reply;
use shared::Shared;
use slot::Slot;

/// Behind Sentinel, a connection that was not used for so long, or is so old, is made anew: whoever asks
/// after a pause asks the master of now, and how many replicas it has is known.
const PAUSE: Duration = Duration::from_secs(1);
const OLD: Duration = Duration::from_secs(15);

/// The way to one server.
#[derive(Debug)]
pub(crate) struct Link {
    shared: Arc<Shared>,
    pub(crate) server: Arc<Server>,
    /// The scripts' digests, known after the first connection.
    digests: Arc<OnceLock<Vec<String>>>,
    address: String,
    host: String,
    timeout: Duration,
    /// Whether the server is one that sentinels name.
    follows: bool,
    /// Those who hear it when another one is.
    _ears: Vec<Ear>,
    /// Whether it is asked together with others, and one [`Vigil`] looks for all answers.
    in_company: bool,
    /// A forked child has a copy of this, but not the thread.
    process: u32,
}

impl Link {
    /// Starts the thread and connects; `opened` is told how that went.
    pub(crate) fn start(
        config: RedisConfig,
        longest: Arc<Longest>,
        opened: impl FnOnce(Result<Info>) + Send + 'static,
    ) -> Result<Self> {
        let server = Server::new(STORE, config.quarantine, longest);
        Self::new(config, server, Some(Box::new(opened)))
    }

    /// Starts the thread; it connects when something is asked.
    pub(crate) fn lazy(config: RedisConfig, longest: Arc<Longest>) -> Result<Self> {
        let server = Server::new(STORE, config.quarantine, longest);
        Self::new(config, server, None)
    }

    /// One of several of `store` that are asked together. It connects when something is asked.
    /// Whether one of them may have forgotten its locks is not decided here.
    pub(crate) fn in_company(config: RedisConfig, store: &'static str) -> Result<Self> {
        let longest = Longest::new(String::new(), String::new(), config.longest_ttl);
        let server = Server::new(store, Quarantine::Never, Arc::new(longest));
        let mut link = Self::new(config, server, None)?;
        link.in_company = true;
        Ok(link)
    }

    fn new(config: RedisConfig, server: Server, opened: Option<Opened>) -> Result<Self> {
        let shared = Arc::new(Shared::new().map_err(|e| no_thread(&e))?);
        let server = Arc::new(server);
        let (digests, timeout) = (Arc::default(), config.timeout);
        let follows = matches!(config.place, Place::Sentinel { .. });
        let dialer = Dialer::new(&config);
        let sentinels = dialer.sentinels();
        let (address, host) = (dialer.name(), config.place.host());
        let greeter =
            Greeter { dialer, config, server: Arc::clone(&server), digests: Arc::clone(&digests) };
        let (kept, name) = (Arc::clone(&shared), address.clone());
        let work = move || {
            let connect = || greeter.greet().map(|(line, _)| line);
            let clerk = Clerk { shared: kept, address: name, patience: timeout, connect };
            match opened {
                None => clerk.work(),
                Some(opened) => match greeter.greet() {
                    Err(trouble) => opened(Err(trouble.into())),
                    Ok((line, info)) => {
                        clerk.begin(line);
                        opened(Ok(info));
                        clerk.work();
                    }
                },
            }
        };
        let started = std::thread::Builder::new().name("sprag-redis".into()).spawn(work);
        started.map_err(|e| no_thread(&e))?;
        let process = std::process::id();
        let in_company = false;
        let ears = follow(&sentinels, &shared).map_err(|e| no_thread(&e))?;
        Ok(Self {
            shared,
            server,
            digests,
            address,
            host,
            timeout,
            follows,
            in_company,
            process,
            _ears: ears,
        })
    }

    /// What errors call the server.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The host that was dialed.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Whether this is the process that made it, and not a forked child.
    pub(crate) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Asks the server.
    pub(crate) async fn ask<T: FromValue>(&self, call: Call) -> Result<T> {
        let mut answers = self.ask_all(vec![call]).await?;
        let answer = answers.pop().ok_or_else(|| strange_answer("nothing"))?;
        if let Value::No(refused) = &answer {
            return Err(Trouble::refused(&self.address, refused).into());
        }
        T::from_value(answer).ok_or_else(|| strange_answer("it has another form"))
    }

    /// Connects to a server that was not met before: so its clock is known, and whether it may grant.
    pub(crate) async fn meet(&self) -> Result<()> {
        if self.not_after_ms().is_none() {
            self.ask_all(vec![Call::plain(&["PING"])]).await?;
        }
        Ok(())
    }

    /// Whether sentinels say where the server is.
    pub(crate) fn follows(&self) -> bool {
        self.follows
    }

    /// It may not be the master any more: the sentinels are asked before anything else is.
    pub(crate) fn is_suspect(&self) {
        if self.follows {
            self.shared.leave();
        }
    }

    /// Asks the server several things at once, in this order. Each may be refused by itself.
    pub(crate) async fn ask_all(&self, calls: Vec<Call>) -> Result<Vec<Value>> {
        let answers = self.send(&calls, self.digests.get().map(Vec::as_slice)).await?;
        if self.follows && answers.iter().any(|answer| is_no(answer, "READONLY")) {
            // The sentinels have chosen another master.
            self.is_suspect();
            return Err(Trouble::no_answer(&self.address, "is not the master any more").into());
        }
        if answers.iter().any(|answer| is_no(answer, "NOSCRIPT")) {
            // The server has forgotten the scripts. What it refused is asked again in full; what it
            // did is done, and asked again it is recognised.
            return self.send(&calls, None).await;
        }
        Ok(answers)
    }

    async fn send(&self, calls: &[Call], digests: Option<&[String]>) -> Result<Vec<Value>> {
        if !self.is_own() {
            return Err(Error::lost(Loss::Forked));
        }
        if self.follows {
            self.shared.leave_if_old(PAUSE, OLD);
        }
        let mut bytes = Vec::with_capacity(512);
        calls.iter().for_each(|call| call.write(digests, &mut bytes));
        let slot = Arc::new(Slot::new(BootClock.now(), calls.len()));
        let crowded = self.shared.send(&slot, &bytes)?;
        let shared = Arc::clone(&self.shared);
        let reply = if self.in_company || crowded {
            Reply::left_to_others(shared, slot)
        } else {
            Reply::new(shared, slot)
        };
        Ok(reply.await?)
    }

    /// Until when, by the server's clock, a request that is sent now may be done.
    pub(crate) fn not_after_ms(&self) -> Option<u64> {
        self.server.time_after(self.timeout)
    }

    /// Learns the server's time from the answer to a request that was sent at `sent`.
    pub(crate) fn learn(&self, server_ms: u64, sent: Moment) {
        self.server.learn_time(server_ms, sent);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.is_own() {
            self.shared.lock().ended = true;
            self.shared.ring();
        }
    }
}

/// Listens to the sentinels, who tell when another server becomes the master. The one of before may go
/// on as if it still was, for ten seconds and more.
fn follow(sentinels: &[(String, Dialer)], shared: &Arc<Shared>) -> io::Result<Vec<Ear>> {
    let each = sentinels.iter().map(|(master, sentinel)| {
        let (ear, master, shared) = (Ear::new()?, master.clone(), Arc::clone(shared));
        ear.listen(sentinel, ["+switch-master"], move |heard| match heard {
            Heard::Message(text) if text.split(' ').next() == Some(&master) => shared.leave(),
            _ => {}
        });
        Ok(ear)
    });
    each.collect()
}

fn is_no(answer: &Value, code: &str) -> bool {
    matches!(answer, Value::No(no) if no.code == code)
}

type Opened = Box<dyn FnOnce(Result<Info>) + Send>;

/// Makes connections that may be used.
struct Greeter {
    dialer: Dialer,
    config: RedisConfig,
    server: Arc<Server>,
    digests: Arc<OnceLock<Vec<String>>>,
}

impl Greeter {
    /// Connects, checks that the server may be used and teaches it the scripts.
    fn greet(&self) -> Result<(Line, Info), Trouble> {
        let mut line = self.dialer.dial()?;
        let until = BootClock.now().plus(self.config.timeout);
        let address = self.dialer.name();
        let sent = BootClock.now();
        let mut answers =
            ask(&mut line, &address, &[vec!["INFO"], vec!["TIME"]], until)?.into_iter();
        let strange = || Trouble::new(ErrorKind::Corrupt, format!("{address} is not understood"));
        let info = answers.next().and_then(String::from_value).ok_or_else(strange)?;
        let (seconds, micros) =
            answers.next().and_then(<(u64, u64)>::from_value).ok_or_else(strange)?;
        let mut info = Info::read(&info);
        // A server that does not tell is not believed. In a Cluster another one has the second
        // answer, and is asked for it later.
        let asks = [FSYNC.to_vec(), self.server.longest.question().to_vec()];
        let asked = line.exchange(&asks, until).map_err(|e| Trouble::io(&address, &e))?;
        let mut answers = asked.into_iter();
        answers.next().into_iter().for_each(|answer| info.learn_fsync(answer));
        self.server.longest.learn(answers.next().and_then(String::from_value).as_deref());
        info.check(&self.config, &address)?;
        self.server.meet(&info)?;
        self.server.learn_time(seconds * 1000 + micros / 1000, sent);
        let load: Vec<_> = ALL.iter().map(|script| vec!["SCRIPT", "LOAD", script]).collect();
        let digests = ask(&mut line, &address, &load, until)?.into_iter();
        let digests = digests.map(|digest| String::from_value(digest).ok_or_else(strange));
        let digests = digests.collect::<Result<Vec<_>, _>>()?;
        self.digests.get_or_init(|| digests);
        Ok((line, info))
    }
}
