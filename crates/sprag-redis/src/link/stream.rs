//! [`Stream`]: a socket that never blocks.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt;
use sprag_core::clock::{BootClock, Clock, Moment};

use super::tls::Secured;
use crate::config::{Address, Tls};

/// A connection, plain or secured.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<Secured>),
}

impl Stream {
    /// Connects, and gives up at `until`.
    pub(crate) fn connect(address: &Address, tls: Option<&Tls>, until: Moment) -> io::Result<Self> {
        match address {
            Address::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_nonblocking(true)?;
                Ok(Self::Unix(socket))
            }
            Address::Tcp(host, port) => {
                let socket = dial(host, *port, until)?;
                match tls {
                    None => Ok(Self::Tcp(socket)),
                    Some(tls) => {
                        Secured::new(socket, host, tls, until).map(Box::new).map(Self::Tls)
                    }
                }
            }
        }
    }

    /// Whether something that was written is still here.
    pub(crate) fn holds_back(&self) -> bool {
        matches!(self, Self::Tls(secured) if secured.holds_back())
    }
}

fn dial(host: &str, port: u16, until: Moment) -> io::Result<TcpStream> {
    let mut refused = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = until.since(BootClock.now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => {
                socket.set_nonblocking(true)?;
                // Without it, small requests would wait for each other.
                socket.set_nodelay(true)?;
                sockopt::set_socket_keepalive(&socket, true)?;
                return Ok(socket);
            }
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
            Self::Tls(secured) => secured.socket.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(into),
            Self::Unix(socket) => socket.read(into),
            Self::Tls(secured) => secured.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(from),
            Self::Unix(socket) => socket.write(from),
            Self::Tls(secured) => secured.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.flush(),
            Self::Unix(socket) => socket.flush(),
            Self::Tls(secured) => secured.flush(),
        }
    }
}

/// Waits until one of them is ready, for `patience` at most, or for ever.
pub(crate) fn wait(on: &mut [PollFd<'_>], patience: Option<Duration>) -> io::Result<()> {
    // A duration too long for the kernel is as good as for ever.
    let patience = patience.and_then(|patience| patience.try_into().ok());
    match rustix::event::poll(on, patience.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits until `socket` can be read or written, or fails at `until`.
pub(super) fn wait_for(socket: &impl AsFd, what: PollFlags, until: Moment) -> io::Result<()> {
    let left = until.since(BootClock.now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    wait(&mut [PollFd::new(socket, what)], Some(left))
}
