//! [`Stream`]: a server at the other end of a pipe or a socket.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock, Moment};

use super::limit::{ANSWER, Limited, REPORT};
use super::{Advert, Failure, Reply, Service, broken};
use crate::error::GitError;
use crate::talk::Talk;

/// A server at the other end of a pipe or a socket: it speaks first, then answers once.
pub(crate) trait Stream: Read + Write {
    /// Says that nothing more will be written.
    fn end_input(&mut self) -> io::Result<()>;

    /// What the other end complained about on the side.
    fn complaints(&mut self) -> String {
        String::new()
    }
}

impl Stream for Talk {
    fn end_input(&mut self) -> io::Result<()> {
        Self::end_input(self);
        Ok(())
    }

    fn complaints(&mut self) -> String {
        // What it has to say may still be on its way. How it ended is of no interest.
        self.finish().ok();
        Self::complaints(self)
    }
}

/// A socket that is closed when its time is up.
#[derive(Debug)]
pub(crate) struct Socket {
    tcp: TcpStream,
    deadline: Moment,
}

impl Socket {
    pub(crate) fn connect(host: &str, port: u16, timeout: Duration) -> io::Result<Self> {
        let mut last =
            io::Error::new(io::ErrorKind::NotFound, format!("could not resolve host {host}"));
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(tcp) => {
                    tcp.set_nodelay(true)?;
                    return Ok(Self { tcp, deadline: BootClock.now().plus(timeout) });
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Gives it more time.
    pub(crate) fn renew(&mut self, timeout: Duration) {
        self.deadline = BootClock.now().plus(timeout);
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.since(BootClock.now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.tcp.set_read_timeout(self.left()?)?;
        self.tcp.read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.set_write_timeout(self.left()?)?;
        self.tcp.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

impl Stream for Socket {
    fn end_input(&mut self) -> io::Result<()> {
        self.tcp.shutdown(Shutdown::Write)
    }
}

/// Hears what the server says first, asks, and hears the answer to its end.
pub(crate) fn converse(
    stream: &mut dyn Stream,
    service: Service,
    what: &str,
    timeout: Duration,
    request: &mut dyn FnMut(&Advert) -> Result<Vec<u8>, GitError>,
) -> Result<Reply, Failure> {
    let advert = match Advert::read(&mut Limited::new(&mut *stream, ANSWER), service) {
        Ok(advert) => advert,
        Err(e) if e.kind() == io::ErrorKind::Other => {
            return Err(Failure::before(GitError::said(what, &e.to_string())));
        }
        Err(e) => {
            let said = if is_hopeless(&e) { String::new() } else { stream.complaints() };
            return Err(Failure::before(broken(what, &e, &said, timeout)));
        }
    };
    let request = request(&advert)?;
    let limit = match service {
        Service::UploadPack => ANSWER,
        Service::ReceivePack => REPORT,
    };
    let mut body = Vec::new();
    let mut exchange = || {
        stream.write_all(&request)?;
        stream.end_input()?;
        Limited::new(&mut *stream, limit).read_to_end(&mut body)
    };
    match exchange() {
        Ok(_) if body.is_empty() && request != b"0000" => {
            let said = stream.complaints();
            let e = io::ErrorKind::UnexpectedEof.into();
            Err(Failure::after(broken(what, &e, &said, timeout)))
        }
        Ok(_) => Ok(Reply { advert: Arc::new(advert), body }),
        Err(e) => {
            let said = if is_hopeless(&e) { String::new() } else { stream.complaints() };
            Err(Failure::after(broken(what, &e, &said, timeout)))
        }
    }
}

/// Whether there is no use in hearing the other end out.
fn is_hopeless(e: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, TimedOut, WouldBlock};
    matches!(e.kind(), TimedOut | WouldBlock | FileTooLarge)
}
