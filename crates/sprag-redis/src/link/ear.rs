//! [`Ear`]: the connection on which this process is woken.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use sprag_core::clock::{BootClock, Clock};

use super::dialer::{Dialer, ask};
use super::line::Line;
use super::stream::wait;
use crate::error::Trouble;
use crate::resp::{self, FromValue, Value};

/// After so much silence it is checked whether the server is still there.
const SILENCE: Duration = Duration::from_secs(5);
/// How long to wait before the first new attempt to connect; doubled up to [`MOST`].
const LEAST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(5);

/// Listens, once asked to, until it is dropped.
#[derive(Debug)]
pub(crate) struct Ear {
    listening: OnceLock<()>,
    /// Written to when it is time to go.
    stop: Arc<OwnedFd>,
}

/// What is heard.
#[derive(Debug)]
pub(crate) enum Heard {
    /// This.
    Message(String),
    /// Nothing for a while; something may have been missed.
    Gap,
}

impl Ear {
    pub(crate) fn new() -> io::Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { listening: OnceLock::new(), stop: Arc::new(stop) })
    }

    /// Starts to listen, unless it does already. A message that is lost costs time, never the lock:
    /// waiters have timers behind it. So does a thread that cannot be started. Whether it started now.
    pub(crate) fn listen(
        &self,
        dialer: &Dialer,
        channels: impl IntoIterator<Item = impl Into<String>>,
        tell: impl Fn(Heard) + Send + 'static,
    ) -> bool {
        let mut starts = false;
        self.listening.get_or_init(|| {
            starts = true;
            let stop = Arc::clone(&self.stop);
            let channels = channels.into_iter().map(Into::into).collect();
            let listener = Listener { dialer: dialer.clone(), channels, stop };
            let work = move || listener.work(&tell);
            let started = std::thread::Builder::new().name("sprag-redis-ear".into()).spawn(work);
            if let Err(e) = started {
                tracing::warn!(target: "sprag::redis", error = %e, "cannot listen for wake-ups");
            }
        });
        starts
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        // It only fails when it was written 2^64 times.
        rustix::io::write(&*self.stop, &1u64.to_ne_bytes()).ok();
    }
}

struct Listener {
    dialer: Dialer,
    channels: Vec<String>,
    stop: Arc<OwnedFd>,
}

impl Listener {
    fn work(&self, tell: &impl Fn(Heard)) {
        let mut pause = LEAST;
        loop {
            let heard = self.subscribe().and_then(|line| {
                pause = LEAST;
                // What was said before is lost: let everybody look.
                tell(Heard::Gap);
                self.hear(line, tell)
            });
            match heard {
                Ok(()) => return,
                Err(trouble) => tracing::debug!(target: "sprag::redis", ?trouble, "not listening"),
            }
            if self.wait(None, pause).is_none() {
                return;
            }
            pause = (pause * 2).min(MOST);
        }
    }

    fn subscribe(&self) -> Result<Line, Trouble> {
        let mut line = self.dialer.dial()?;
        let until = BootClock.now().plus(self.dialer.timeout);
        let words = ["SUBSCRIBE"].into_iter().chain(self.channels.iter().map(String::as_str));
        ask(&mut line, &self.dialer.name(), &[words.collect()], until)?;
        Ok(line)
    }

    /// Listens until it is time to go, or the connection ends.
    fn hear(&self, mut line: Line, tell: &impl Fn(Heard)) -> Result<(), Trouble> {
        let failed = |e: &io::Error| Trouble::io(&self.dialer.name(), e);
        // Whether an answer to a ping is due.
        let mut pinged = false;
        loop {
            let patience = if pinged { self.dialer.timeout } else { SILENCE };
            let Some(ready) = self.wait(Some(&line), patience) else { return Ok(()) };
            if !ready {
                if pinged {
                    return Err(Trouble::no_answer(&self.dialer.name(), "fell silent"));
                }
                let mut ping = Vec::new();
                resp::write(&["PING"], &mut ping);
                line.say(&ping).map_err(|e| failed(&e))?;
                pinged = true;
                continue;
            }
            pinged = false;
            line.hear().map_err(|e| failed(&e))?;
            while let Some(value) = line.next().map_err(|e| failed(&e))? {
                if let Some(message) = message(value) {
                    tell(Heard::Message(message));
                }
            }
        }
    }

    /// Waits for the line, if there is one: whether it can be read, or nothing when it is time to go.
    fn wait(&self, line: Option<&Line>, patience: Duration) -> Option<bool> {
        let mut on = vec![PollFd::new(&*self.stop, PollFlags::IN)];
        on.extend(line.map(|line| PollFd::new(line, PollFlags::IN)));
        wait(&mut on, Some(patience)).ok()?;
        let ready = on.get(1).is_some_and(|line| !line.revents().is_empty());
        on[0].revents().is_empty().then_some(ready)
    }
}

/// What a push of the server says, if it is a message.
fn message(value: Value) -> Option<String> {
    match <[Value; 3]>::try_from(Vec::from_value(value)?) {
        Ok([Value::Text(kind), _, text]) if kind == b"message" => String::from_value(text),
        _ => None,
    }
}
