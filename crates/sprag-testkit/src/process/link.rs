//! What every taker needs: its options, its store, its input and output.

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock as _, Moment};
use sprag_core::{Client, Error, ErrorKind, Operation, Result, Store};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::protocol::{Answer, Order, Reply};
use super::recording::Recording;
use crate::history::Recorder;

/// How long a busy store is asked again to be opened.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a process is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// The store.
    pub url: String,
    /// What the process is called in a history.
    pub name: String,
    /// Where it records what it does; nowhere if none.
    pub history: Option<PathBuf>,
}

/// Opens a store by its URL, and records what is asked of it if a history is wanted.
///
/// # Errors
///
/// What the store says; refused if the history cannot be written.
pub fn open(options: &Options) -> Result<(Client, Option<Arc<Recorder>>)> {
    let store = open_patiently(&options.url)?;
    let Some(path) = &options.history else {
        return Ok((Client::builder(store).build()?, None));
    };
    let recorder = Arc::new(Recorder::append_to(path).map_err(|error| trouble(&error))?);
    let recording = Recording::new(store, Arc::clone(&recorder), options.name.clone());
    Ok((Client::builder(Arc::new(recording)).build()?, Some(recorder)))
}

/// A store may be busy while a process is stopped in the middle of a write, and says to try again.
fn open_patiently(url: &str) -> Result<Arc<dyn Store>> {
    let started = BootClock.now();
    loop {
        match sprag::open(url) {
            Err(error) if error.is_busy() && BootClock.now().since(started) < PATIENCE => {}
            opened => return opened,
        }
    }
}

pub(super) fn trouble(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Refused, Operation::Hold, error.to_string())
}

pub(super) fn read_orders() -> mpsc::UnboundedReceiver<Order> {
    let (send, receive) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            let order = serde_json::from_str(&line).expect("an order is one line of JSON");
            if send.send(order).is_err() {
                break;
            }
        }
    });
    receive
}

/// Writes one line to standard output.
///
/// # Panics
///
/// Never: every answer is JSON.
pub fn answer(id: u64, answer: Answer) {
    let mut line = serde_json::to_vec(&Reply { id, answer }).expect("an answer is JSON");
    line.push(b'\n');
    // Fails when nobody listens any more; then the input has ended as well.
    drop(std::io::stdout().lock().write_all(&line));
}

pub(super) fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.since_start().as_nanos()).unwrap_or(u64::MAX)
}

/// Being asked to end by SIGTERM.
pub(super) fn terminated() -> Result<Signal> {
    signal(SignalKind::terminate()).map_err(|error| trouble(&error))
}

/// Waits until the input ends or has a line, or SIGTERM comes. Listens from the call on.
///
/// # Panics
///
/// If the operating system does not let the process hear of signals.
pub fn told_to_stop() -> impl Future<Output = ()> + Send {
    let mut orders = read_orders();
    let mut terminated = terminated().expect("a process can ask to be told of signals");
    async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = orders.recv() => {}
        }
    }
}
