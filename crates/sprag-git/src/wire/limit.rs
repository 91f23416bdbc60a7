//! [`Limited`]: what a peer sends, up to a limit.

use std::io::{self, BufRead, Read};

/// No answer to one request is larger, advertisement and pack alike.
pub(crate) const ANSWER: u64 = 64 << 20;
/// No report about a push is larger, with all that hooks say.
pub(crate) const REPORT: u64 = 4 << 20;
/// So many references are kept of one list.
pub(crate) const REFERENCES: usize = 250_000;
/// So many abilities a server may name.
pub(crate) const ABILITIES: usize = 1_000;

/// A stream that fails once more than the limit was read from it.
#[derive(Debug)]
pub(crate) struct Limited<R> {
    inner: R,
    limit: u64,
    left: u64,
}

impl<R> Limited<R> {
    pub(crate) const fn new(inner: R, limit: u64) -> Self {
        Self { inner, limit, left: limit }
    }

    fn room(&self) -> io::Result<usize> {
        if self.left == 0 {
            return Err(too_much(self.limit));
        }
        Ok(usize::try_from(self.left).unwrap_or(usize::MAX))
    }
}

/// The error for more bytes than we take.
pub(crate) fn too_much(limit: u64) -> io::Error {
    too_large(format!("it is longer than {} MiB", limit >> 20))
}

/// The error for more of anything than we take.
pub(crate) fn too_large(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, why.into())
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let room = self.room()?.min(buffer.len());
        let count = self.inner.read(&mut buffer[..room])?;
        self.left -= count as u64;
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Limited<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let room = self.room()?;
        let filled = self.inner.fill_buf()?;
        Ok(&filled[..filled.len().min(room)])
    }

    fn consume(&mut self, count: usize) {
        self.left -= count as u64;
        self.inner.consume(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_read_up_to_its_limit_and_no_further() {
        let mut heard = Vec::new();
        Limited::new(&b"four"[..], 5).read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"four");
        let mut endless = Limited::new(io::repeat(b'x'), 1 << 20);
        let error = endless.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it is longer than 1 MiB");
        let mut lines = Limited::new(&b"aaaa\nbbbb\n"[..], 7);
        let mut line = Vec::new();
        lines.read_until(b'\n', &mut line).unwrap();
        assert!(lines.read_until(b'\n', &mut line).is_err());
    }
}
