//! [`Line`]: one connection through the proxy.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::Captured;
use super::flow::{Direction, Fault, Flow};
use super::plan::Plan;

/// How a connection is to be treated from now on.
#[derive(Clone, Debug)]
pub(super) struct State {
    request: Flow,
    reply: Flow,
    /// How many more bytes may pass before the connection is reset.
    request_left: Option<usize>,
    reply_left: Option<usize>,
    half_closed: bool,
    /// Bytes have disappeared: what follows would not make sense.
    holed: bool,
    reset: bool,
}

/// One connection from a client to the server.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) state: watch::Sender<State>,
}

impl State {
    pub(super) const fn new(request: Flow, reply: Flow) -> Self {
        let (request_left, reply_left) = (None, None);
        let (half_closed, holed, reset) = (false, false, false);
        Self { request, reply, request_left, reply_left, half_closed, holed, reset }
    }

    const fn flow(&self, direction: Direction) -> Flow {
        match direction {
            Direction::Request => self.request,
            Direction::Reply => self.reply,
        }
    }

    const fn left(&mut self, direction: Direction) -> &mut Option<usize> {
        match direction {
            Direction::Request => &mut self.request_left,
            Direction::Reply => &mut self.reply_left,
        }
    }

    pub(super) const fn set(&mut self, direction: Direction, flow: Flow) {
        match direction {
            Direction::Request => self.request = flow,
            Direction::Reply => self.reply = flow,
        }
    }
}

impl Line {
    /// Resets the connection, as a router that has lost its memory does.
    pub(super) fn reset(&self) {
        self.state.send_modify(|state| state.reset = true);
    }

    /// Forgets what was to be done to it; resets it if bytes have disappeared.
    pub(super) fn heal(&self) {
        self.state.send_modify(|state| {
            (state.request_left, state.reply_left) = (None, None);
            state.reset |= state.holed;
        });
    }

    fn strike(&self, fault: Fault) {
        self.state.send_modify(|state| match fault {
            Fault::CutRequest(after) => state.request_left = Some(after),
            Fault::CutReply(after) => state.reply_left = Some(after),
            Fault::FreezeReply => state.reply = Flow::Frozen,
            Fault::FreezeRequest => state.request = Flow::Frozen,
            Fault::LoseReply => state.reply = Flow::Hole,
            Fault::HalfClose => state.half_closed = true,
        });
    }

    /// Carries bytes both ways until both ends are closed, or the connection is reset.
    pub(super) async fn carry(&self, mut client: TcpStream, target: &str, plan: &Arc<Plan>) {
        let Ok(mut server) = TcpStream::connect(target).await else {
            // Nobody is there: the client is told so as directly as it can be.
            drop(client.set_zero_linger());
            return;
        };
        drop((client.set_nodelay(true), server.set_nodelay(true)));
        let mut state = self.state.subscribe();
        let closed = {
            let (from_client, to_client) = client.split();
            let (from_server, to_server) = server.split();
            let requests = self.pump(Direction::Request, from_client, to_server, plan);
            let replies = self.pump(Direction::Reply, from_server, to_client, plan);
            tokio::select! {
                _ = state.wait_for(|state| state.reset) => false,
                _ = futures_util::future::join(requests, replies) => true,
            }
        };
        if !closed {
            drop((client.set_zero_linger(), server.set_zero_linger()));
        }
    }

    /// Carries bytes one way until they end.
    async fn pump(
        &self,
        direction: Direction,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        plan: &Plan,
    ) {
        let mut state = self.state.subscribe();
        let mut buffer = vec![0; 64 * 1024];
        let mut closed = false;
        loop {
            let half_closed = async {
                let wanted = direction == Direction::Request && !closed;
                let seen = state.wait_for(|state| wanted && state.half_closed).await.is_ok();
                debug_assert!(seen, "the line has its own sender");
            };
            let count = tokio::select! {
                biased;
                read = from.read(&mut buffer) => read.unwrap_or(0),
                () = half_closed => {
                    closed = true;
                    drop(to.shutdown().await);
                    continue;
                }
            };
            let bytes = &buffer[..count];
            if direction == Direction::Request && count > 0 {
                let seen = Captured { line: self.number, bytes: bytes.to_vec() };
                plan.saw(seen).into_iter().for_each(|fault| self.strike(fault));
            }
            if self.wait(direction).await == Flow::Hole {
                self.state.send_modify(|state| state.holed = true);
                if count == 0 {
                    return std::future::pending().await;
                }
                continue;
            }
            if count == 0 {
                drop(to.shutdown().await);
                return;
            }
            let (pass, cut) = self.spend(direction, count);
            // An end that is gone will close the other direction, too.
            drop(to.write_all(&bytes[..pass]).await);
            if cut {
                self.reset();
                return std::future::pending().await;
            }
        }
    }

    /// Waits until bytes may pass, or disappear.
    async fn wait(&self, direction: Direction) -> Flow {
        let flow = self.state.borrow().flow(direction);
        if let Flow::Delayed(delay, jitter) = flow {
            tokio::time::sleep(delay + jitter.mul_f64(fastrand::f64())).await;
        }
        let mut state = self.state.subscribe();
        let moving = state.wait_for(|state| state.flow(direction) != Flow::Frozen).await;
        moving.map_or(Flow::Hole, |state| state.flow(direction))
    }

    /// How many of `count` bytes may pass, and whether the connection is reset then.
    fn spend(&self, direction: Direction, count: usize) -> (usize, bool) {
        let mut spent = (count, false);
        self.state.send_if_modified(|state| {
            if let Some(left) = state.left(direction) {
                spent = (count.min(*left), count >= *left);
                *left -= spent.0;
            }
            false
        });
        spent
    }
}
