//! [`Wire`]: the socket of a connection. It may be read from any thread, without a detour through
//! the runtime; only who waits for it needs that.
//!
//! While somebody looks for an answer on a thread of its own, the runtime does not watch the socket:
//! its thread would be woken by every answer, for nothing, and with it one more of few processors.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, connect_unspec, recv, send, shutdown, sockopt};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;

use crate::config::{Address, PostgresConfig};

/// A socket to the server.
#[derive(Debug)]
pub(crate) struct Wire {
    grip: Grip,
    /// While the runtime watches it.
    watch: Option<AsyncFd<Arc<OwnedFd>>>,
    runtime: Handle,
}

impl Wire {
    /// Connects; what is to be waited for is from now on watched by this runtime.
    pub(super) async fn dial(config: &PostgresConfig) -> io::Result<Self> {
        let socket: OwnedFd = match &config.address {
            Address::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                watch(&stream, config.timeout.max(Duration::from_secs(5)))?;
                stream.into_std()?.into()
            }
            Address::Unix(folder, port) => {
                let path = folder.join(format!(".s.PGSQL.{port}"));
                UnixStream::connect(path).await?.into_std()?.into()
            }
        };
        let (abandoned, looked_for) = Default::default();
        let grip = Grip { abandoned, looked_for, socket: Arc::new(socket) };
        Ok(Self { grip, watch: None, runtime: Handle::current() })
    }

    /// What others may do with it.
    pub(super) fn grip(&self) -> Grip {
        self.grip.clone()
    }

    /// Until the runtime says that the socket is ready; for ever while somebody looks, who comes back
    /// by itself.
    fn poll_ready(&mut self, context: &mut Context<'_>, write: bool) -> Poll<io::Result<()>> {
        if self.grip.looked_for.load(SeqCst) {
            // While it is registered, the runtime is woken by whatever comes.
            self.watch = None;
            return Poll::Pending;
        }
        let watch = match &mut self.watch {
            Some(watch) => watch,
            none => {
                let _entered = self.runtime.enter();
                #[expect(deprecated, reason = "the socket is open as long as it is watched")]
                none.insert(AsyncFd::new(Arc::clone(&self.grip.socket))?)
            }
        };
        let mut ready = ready!(if write {
            watch.poll_write_ready(context)
        } else {
            watch.poll_read_ready(context)
        })?;
        // Whoever was told tries again, and is told again if that was in vain.
        ready.clear_ready();
        Poll::Ready(Ok(()))
    }
}

/// What others may do with a [`Wire`].
#[derive(Clone, Debug)]
pub(super) struct Grip {
    /// Set, it makes the socket forget what it has not sent when the wire ends.
    pub(super) abandoned: Arc<AtomicBool>,
    /// Whether somebody looks at the socket without the runtime.
    pub(super) looked_for: Arc<AtomicBool>,
    /// To wait for it.
    pub(super) socket: Arc<OwnedFd>,
}

/// A server that is gone is noticed within seconds, not within hours.
fn watch(stream: &impl AsFd, patience: Duration) -> io::Result<()> {
    sockopt::set_tcp_nodelay(stream, true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(5))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(2))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    let patience = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(stream, patience)?)
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.grip.abandoned.load(SeqCst) {
            // At once, whoever else has this socket open; where that cannot be done, when the last
            // one closes it. A Unix socket has no such buffer and refuses both.
            connect_unspec(&self.grip.socket)
                .or_else(|_| sockopt::set_socket_linger(&self.grip.socket, Some(Duration::ZERO)))
                .unwrap_or_default();
        }
    }
}

/// Whether there was nothing to be had, or no room.
fn is_not_yet<T>(done: &rustix::io::Result<T>) -> bool {
    matches!(done, Err(Errno::WOULDBLOCK | Errno::INTR))
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            // The runtime may not know yet that there is something.
            let read = recv(&self.grip.socket, into.initialize_unfilled(), RecvFlags::DONTWAIT);
            if !is_not_yet(&read) {
                into.advance(read?.0);
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_ready(context, false))?;
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let written = send(&self.grip.socket, from, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            if !is_not_yet(&written) {
                return Poll::Ready(Ok(written?));
            }
            ready!(self.poll_ready(context, true))?;
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(shutdown(&self.grip.socket, Shutdown::Write)?))
    }
}
