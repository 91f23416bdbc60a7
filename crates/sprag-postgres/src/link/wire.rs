//! [`Wire`]: the socket of a connection. It may be read from any thread, without a detour through
//! the runtime; only who waits for it needs that.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::{RecvFlags, connect_unspec, recv, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::config::{Address, PostgresConfig};

/// A socket to the server.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: Socket,
    /// Nothing that was not sent yet is to be sent any more.
    abandoned: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Wire {
    /// Connects.
    pub(super) async fn dial(config: &PostgresConfig) -> io::Result<Self> {
        let socket = match &config.address {
            Address::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                watch(&stream, config.timeout.max(Duration::from_secs(5)))?;
                Socket::Tcp(stream)
            }
            Address::Unix(folder, port) => {
                Socket::Unix(UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await?)
            }
        };
        Ok(Self { socket, abandoned: Arc::default() })
    }

    /// What others may do with it.
    pub(super) fn grip(&self) -> Grip {
        let socket = match &self.socket {
            Socket::Tcp(stream) => rustix::io::dup(stream),
            Socket::Unix(stream) => rustix::io::dup(stream),
        };
        Grip { abandoned: Arc::clone(&self.abandoned), socket: socket.ok().map(Arc::new) }
    }
}

/// What others may do with a [`Wire`].
pub(super) struct Grip {
    /// Set, it makes the socket forget what it has not sent when the wire ends.
    pub(super) abandoned: Arc<AtomicBool>,
    /// To wait for it.
    pub(super) socket: Option<Arc<OwnedFd>>,
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
        if let (true, Socket::Tcp(stream)) = (self.abandoned.load(Ordering::Acquire), &self.socket)
        {
            // At once, whoever else has this socket open; where that cannot be done, when the last
            // one closes it.
            connect_unspec(stream)
                .or_else(|_| sockopt::set_socket_linger(stream, Some(Duration::ZERO)))
                .unwrap_or_default();
        }
    }
}

fn read(socket: impl AsFd, into: &mut ReadBuf<'_>) -> io::Result<()> {
    let (count, _) = recv(socket, into.initialize_unfilled(), RecvFlags::DONTWAIT)?;
    into.advance(count);
    Ok(())
}

impl Socket {
    fn read(&self, into: &mut ReadBuf<'_>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => read(stream, into),
            Self::Unix(stream) => read(stream, into),
        }
    }

    /// The same, where the runtime says that there is something, and learns if there is nothing.
    fn read_noted(&self, into: &mut ReadBuf<'_>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.try_io(Interest::READABLE, || read(stream, into)),
            Self::Unix(stream) => stream.try_io(Interest::READABLE, || read(stream, into)),
        }
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(context),
            Self::Unix(stream) => stream.poll_read_ready(context),
        }
    }
}

fn is_not_yet<T>(done: &io::Result<T>) -> bool {
    let kind = done.as_ref().err().map(io::Error::kind);
    matches!(kind, Some(io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted))
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The runtime may not know yet that there is something.
        let mut done = self.socket.read(into);
        while is_not_yet(&done) {
            ready!(self.socket.poll_ready(context))?;
            done = self.socket.read_noted(into);
        }
        Poll::Ready(done)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(context, from),
            Socket::Unix(stream) => Pin::new(stream).poll_write(context, from),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
