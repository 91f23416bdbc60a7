//! [`Line`]: requests and answers on one connection.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::net::{connect_unspec, sockopt};
use sprag_core::clock::Moment;

use super::stream::{Stream, wait_for};
use crate::config::{Address, Tls};
use crate::resp::{self, Value};

/// A connection with what is still to be written and what is not yet understood.
#[derive(Debug)]
pub(crate) struct Line {
    stream: Stream,
    out: Vec<u8>,
    written: usize,
    heard: Vec<u8>,
    understood: usize,
    /// What is read goes through here; kept, so that it is not cleared each time.
    chunk: Box<[u8]>,
}

impl Line {
    pub(crate) fn connect(address: &Address, tls: Option<&Tls>, until: Moment) -> io::Result<Self> {
        let stream = Stream::connect(address, tls, until)?;
        let chunk = vec![0; 16 << 10].into_boxed_slice();
        let (out, heard) = (Vec::new(), Vec::new());
        Ok(Self { stream, out, written: 0, heard, understood: 0, chunk })
    }

    /// Says something, as far as the network takes it now.
    pub(crate) fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.out.is_empty() {
            self.out.extend_from_slice(bytes);
            return self.flush();
        }
        // Nothing waits: straight from the caller's buffer.
        let mut left = bytes;
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(written) => left = &left[written..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.out.extend_from_slice(left);
        Ok(())
    }

    /// Says something later, with what else there is to say by then; never yet said.
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> bool {
        self.out.extend_from_slice(bytes);
        false
    }

    /// Writes on what waits, as far as the network takes it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let waiting = std::mem::take(&mut self.out);
        let from = std::mem::take(&mut self.written);
        let mut at = from;
        let ended = loop {
            if at == waiting.len() {
                break would_block_is_fine(self.stream.flush());
            }
            match self.stream.write(&waiting[at..]) {
                Ok(written) => at += written,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => break Err(e),
            }
        };
        if at < waiting.len() {
            (self.out, self.written) = (waiting, at);
        }
        ended
    }

    /// Ends it at once, whoever else has it open: nothing of it is delivered any more.
    pub(crate) fn abandon(&self) {
        // Where that cannot be done, at least when it is closed. A Unix socket has no such buffer
        // and refuses both; then there is nothing to do.
        connect_unspec(self)
            .or_else(|_| sockopt::set_socket_linger(self, Some(Duration::ZERO)))
            .ok();
    }

    /// Whether something waits to be written.
    pub(crate) fn waits(&self) -> bool {
        !self.out.is_empty() || self.stream.holds_back()
    }

    /// Hears what is there; whether anything was.
    pub(crate) fn hear(&mut self) -> io::Result<bool> {
        let mut any = false;
        loop {
            match self.stream.read(&mut self.chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    any = true;
                    self.heard.extend_from_slice(&self.chunk[..length]);
                    if length < self.chunk.len() && !matches!(self.stream, Stream::Tls(_)) {
                        return Ok(any);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(any),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// The next answer, if it is here as a whole.
    pub(crate) fn next(&mut self) -> io::Result<Option<Value>> {
        match resp::read(&self.heard[self.understood..]) {
            Ok(Some((value, length))) => {
                self.understood += length;
                if self.understood == self.heard.len() {
                    self.heard.clear();
                    self.understood = 0;
                }
                Ok(Some(value))
            }
            Ok(None) => {
                self.heard.drain(..std::mem::take(&mut self.understood));
                Ok(None)
            }
            Err(resp::Strange) => {
                let what = "it does not speak the protocol of Redis";
                Err(io::Error::new(io::ErrorKind::InvalidData, what))
            }
        }
    }

    /// Sends requests and waits for all answers; for the thread that connects.
    pub(crate) fn exchange(
        &mut self,
        requests: &[Vec<&str>],
        until: Moment,
    ) -> io::Result<Vec<Value>> {
        let mut bytes = Vec::new();
        requests.iter().for_each(|words| resp::write(words, &mut bytes));
        self.say(&bytes)?;
        let mut answers = Vec::new();
        while answers.len() < requests.len() {
            if let Some(answer) = self.next()? {
                answers.push(answer);
                continue;
            }
            let out = if self.waits() { PollFlags::OUT } else { PollFlags::empty() };
            wait_for(self, PollFlags::IN | out, until)?;
            self.flush()?;
            self.hear()?;
        }
        Ok(answers)
    }
}

fn would_block_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
        done => done,
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sprag_core::clock::{BootClock, Clock};
    use std::net::TcpListener;

    /// A caller that sleeps on the connection has it open as well, and so has a forked child.
    #[test]
    fn an_abandoned_connection_is_over_although_somebody_else_has_it_open() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp("127.0.0.1".into(), listener.local_addr().unwrap().port());
        let until = BootClock.now().plus(Duration::from_secs(20));
        let line = Line::connect(&address, None, until).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _copy = rustix::io::dup(&line).unwrap();
        line.abandon();
        drop(line);
        let told = peer.read(&mut [0; 1]).unwrap_err().kind();
        assert_eq!(told, io::ErrorKind::ConnectionReset);
    }
}
