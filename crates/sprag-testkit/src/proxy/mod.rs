//! [`Proxy`]: a network between clients and a server that can be broken on purpose.
//!
//! It knows nothing of what is said, so any server that listens on a port can stand behind it. It
//! has a thread of its own: a test that blocks its runtime does not stop the network.
//!
//! ```text
//!   client ── Request ──>  Flow, cut after n bytes  ──> server
//!          <── Reply ────  Flow, cut after n bytes  <──
//! ```

mod flow;
mod line;
mod plan;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

pub use flow::{Direction, Fault, Flow};
use line::{Line, State};
use plan::Plan;

/// How long a replayed request waits for its reply.
const LIMIT: Duration = Duration::from_secs(10);

/// A request as it went by: what was read at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// The number of its connection, from 0.
    pub line: usize,
    /// What was sent.
    pub bytes: Vec<u8>,
}

impl Captured {
    /// Whether a text is in it. One that is split between two reads is not found.
    pub fn contains(&self, text: &str) -> bool {
        self.bytes.windows(text.len().max(1)).any(|window| window == text.as_bytes())
    }
}

/// A port that leads to a server, through a network that can be broken.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    target: String,
    lines: Mutex<Lines>,
    plan: Arc<Plan>,
}

/// The connections.
#[derive(Debug)]
struct Lines {
    open: Vec<Arc<Line>>,
    /// How many there were in all.
    count: usize,
    /// How new ones begin.
    state: State,
    refuse: bool,
}

impl Proxy {
    /// Starts one that leads to `target`, a host and a port.
    ///
    /// # Panics
    ///
    /// If the operating system has no port or thread left.
    pub fn start(target: impl Into<String>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("the operating system gives the proxy a runtime");
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.expect("there is a free port");
        listener.set_nonblocking(true).expect("a listener need not block");
        let port = listener.local_addr().expect("it listens").port();
        let state = State::new(Flow::Open, Flow::Open);
        let lines = Lines { open: Vec::new(), count: 0, state, refuse: false };
        let (lines, plan) = (Mutex::new(lines), Arc::default());
        let shared = Arc::new(Shared { target: target.into(), lines, plan });
        let (stop, stopped) = oneshot::channel();
        let work = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("it listens");
                tokio::select! {
                    // The sender is dropped with the proxy.
                    _ = stopped => {}
                    () = work.listen(listener) => {}
                }
            });
        });
        Self { port, shared, stop: Some(stop), thread: Some(thread) }
    }

    /// Where it listens.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// How bytes go in one direction, on all connections of now and later.
    pub fn set(&self, direction: Direction, flow: Flow) {
        let mut lines = self.shared.lines();
        lines.state.set(direction, flow);
        for line in &lines.open {
            line.state.send_modify(|state| state.set(direction, flow));
        }
    }

    /// How bytes go in one direction, on one connection.
    pub fn set_line(&self, number: usize, direction: Direction, flow: Flow) {
        if let Some(line) = self.shared.line(number) {
            line.state.send_modify(|state| state.set(direction, flow));
        }
    }

    /// Freezes both directions of all connections, of now and later.
    pub fn freeze(&self) {
        self.set(Direction::Request, Flow::Frozen);
        self.set(Direction::Reply, Flow::Frozen);
    }

    /// Loses everything in both directions, on all connections of now and later; nobody is told.
    pub fn lose_everything(&self) {
        self.set(Direction::Request, Flow::Hole);
        self.set(Direction::Reply, Flow::Hole);
    }

    /// Lets everything pass again, new connections too, and forgets what was planned.
    ///
    /// Connections from which bytes have disappeared are reset: what follows on them would not make
    /// sense.
    pub fn heal(&self) {
        self.shared.plan.clear();
        self.refuse(false);
        for line in &self.shared.lines().open {
            line.heal();
        }
        self.set(Direction::Request, Flow::Open);
        self.set(Direction::Reply, Flow::Open);
    }

    /// Does something to the connection of the next request with this text.
    pub fn once(&self, text: &str, fault: Fault) {
        self.times(1, text, fault);
    }

    /// Does something to the connections of the next requests with this text.
    pub fn times(&self, times: usize, text: &str, fault: Fault) {
        self.shared.plan.add(text, times, fault);
    }

    /// Resets one connection.
    pub fn reset(&self, number: usize) {
        if let Some(line) = self.shared.line(number) {
            line.reset();
        }
    }

    /// Resets all connections.
    pub fn reset_all(&self) {
        self.shared.lines().open.iter().for_each(|line| line.reset());
    }

    /// Resets new connections, or no longer does.
    pub fn refuse(&self, refuse: bool) {
        self.shared.lines().refuse = refuse;
    }

    /// The numbers of the open connections.
    pub fn lines(&self) -> Vec<usize> {
        self.shared.lines().open.iter().map(|line| line.number).collect()
    }

    /// How many connections there were in all, those refused too.
    pub fn count(&self) -> usize {
        self.shared.lines().count
    }

    /// The requests that came by, the oldest first.
    pub fn captured(&self) -> Vec<Captured> {
        self.shared.plan.captured()
    }

    /// How many requests with this text came by.
    pub fn saw(&self, text: &str) -> usize {
        self.captured().iter().filter(|request| request.contains(text)).count()
    }

    /// Sends a request once more, straight to the server on a connection of its own, and gives back
    /// the beginning of what it replies.
    ///
    /// # Panics
    ///
    /// If the server is not there.
    pub fn replay(&self, request: &Captured) -> Vec<u8> {
        let mut stream = TcpStream::connect(&self.shared.target).expect("the server is there");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit can be set");
        stream.write_all(&request.bytes).expect("the server listens");
        let mut reply = vec![0; 64 * 1024];
        let count = stream.read(&mut reply).expect("the server replies");
        reply.truncate(count);
        reply
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It can only have panicked, and said so.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, number: usize) -> Option<Arc<Line>> {
        self.lines().open.iter().find(|line| line.number == number).map(Arc::clone)
    }

    async fn listen(self: Arc<Self>, listener: TcpListener) {
        loop {
            // Fails when there are no descriptors left; the test will notice.
            let Ok((client, _)) = listener.accept().await else { continue };
            let line = {
                let mut lines = self.lines();
                let number = lines.count;
                lines.count += 1;
                let state = watch::Sender::new(lines.state.clone());
                let line = Arc::new(Line { number, state });
                if !lines.refuse {
                    lines.open.push(Arc::clone(&line));
                }
                (!lines.refuse).then_some(line)
            };
            let Some(line) = line else {
                drop(client.set_zero_linger());
                continue;
            };
            let shared = Arc::clone(&self);
            tokio::spawn(async move {
                line.carry(client, &shared.target, &shared.plan).await;
                shared.lines().open.retain(|open| open.number != line.number);
            });
        }
    }
}
