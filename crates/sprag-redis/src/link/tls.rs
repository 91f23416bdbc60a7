//! [`Secured`]: TLS over a socket that never blocks.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustix::event::PollFlags;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection};
use sprag_core::clock::Moment;

use super::stream::wait_for;
use crate::config::Tls;

/// A socket and what TLS knows about it.
#[derive(Debug)]
pub(crate) struct Secured {
    pub(super) socket: TcpStream,
    session: Connection,
}

impl Secured {
    /// Shakes hands, and gives up at `until`.
    pub(super) fn new(socket: TcpStream, host: &str, tls: &Tls, until: Moment) -> io::Result<Self> {
        let bad = |e: &dyn std::fmt::Display| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("TLS: {e}"))
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|e| bad(&e))?;
        let session = ClientConnection::new(Arc::clone(&tls.0), name).map_err(|e| bad(&e))?;
        let mut secured = Self { socket, session: session.into() };
        while secured.session.is_handshaking() {
            let (reads, writes) = (secured.session.wants_read(), secured.session.wants_write());
            if writes {
                // What does not fit waits for the next turn.
                secured.send()?;
            }
            if reads && !secured.receive()? && secured.session.is_handshaking() {
                let out = if secured.holds_back() { PollFlags::OUT } else { PollFlags::empty() };
                wait_for(&secured.socket, PollFlags::IN | out, until).map_err(no_handshake)?;
            }
        }
        secured.send()?;
        Ok(secured)
    }

    pub(super) fn holds_back(&self) -> bool {
        self.session.wants_write()
    }

    fn send(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Whether anything came.
    fn receive(&mut self) -> io::Result<bool> {
        match self.session.read_tls(&mut self.socket) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {
                let understood = self.session.process_new_packets();
                // An alert tells the other side why.
                let sent = self.send();
                understood.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
                sent.map(|()| true)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// A plain server waits for the end of what it takes for a command.
fn no_handshake(e: io::Error) -> io::Error {
    match e.kind() {
        io::ErrorKind::TimedOut => {
            io::Error::new(e.kind(), "no TLS handshake: does it want redis://?")
        }
        _ => e,
    }
}

impl Read for Secured {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(into) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            if !self.receive()? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
    }
}

impl Write for Secured {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.send()?;
        if self.session.wants_write() {
            // The socket is full; TLS shall not gather without limit.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = self.session.writer().write(from)?;
        self.send()?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}
