//! [`Answer`]: an answer of a server that speaks HTTP.

use std::io::{self, BufRead, Read};

use super::limit::{ANSWER, Limited, too_much};
use crate::error::GitError;

/// An answer of a server.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Whether the connection may be used again.
    pub(super) keep: bool,
}

impl Answer {
    /// Reads the next answer, with all that belongs to it up to [`ANSWER`].
    pub(super) fn read(stream: &mut impl BufRead) -> io::Result<Self> {
        let stream = &mut Limited::new(stream, ANSWER);
        let bad = |line: &str| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{line:?} is no answer in HTTP"))
        };
        loop {
            let first = text_line(stream)?;
            let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
            let status: u16 =
                status.and_then(|status| status.parse().ok()).ok_or_else(|| bad(&first))?;
            let mut headers = Vec::new();
            loop {
                let line = text_line(stream)?;
                if line.is_empty() {
                    break;
                }
                let (name, value) = line.split_once(':').ok_or_else(|| bad(&line))?;
                headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
                if headers.len() > 200 {
                    return Err(bad("too many headers"));
                }
            }
            // Such as 100, which only announces the answer.
            if status < 200 {
                continue;
            }
            let keep = first.starts_with("HTTP/1.1");
            let mut answer = Self { status, headers, body: Vec::new(), keep };
            answer.read_body(stream)?;
            return Ok(answer);
        }
    }

    fn read_body(&mut self, stream: &mut impl BufRead) -> io::Result<()> {
        let is = |name: &str, value: &str| {
            self.header(name).is_some_and(|found| found.eq_ignore_ascii_case(value))
        };
        let (closes, in_chunks) = (is("connection", "close"), is("transfer-encoding", "chunked"));
        self.keep &= !closes;
        if self.header("content-encoding").is_some_and(|encoding| encoding != "identity") {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the answer is compressed, which was not asked for",
            ));
        }
        if in_chunks {
            return self.read_chunks(stream);
        }
        let length = self.header("content-length").and_then(|length| length.parse::<u64>().ok());
        match length {
            Some(length) if length > ANSWER => return Err(too_much(ANSWER)),
            Some(length) => {
                stream.take(length).read_to_end(&mut self.body)?;
                if (self.body.len() as u64) < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            None if self.status == 204 || self.status == 304 => {}
            None => {
                self.keep = false;
                stream.read_to_end(&mut self.body)?;
            }
        }
        Ok(())
    }

    fn read_chunks(&mut self, stream: &mut impl BufRead) -> io::Result<()> {
        loop {
            let line = text_line(stream)?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(digits, 16)
                .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a bad chunk in HTTP"))?;
            if size == 0 {
                while !text_line(stream)?.is_empty() {}
                return Ok(());
            }
            let before = self.body.len() as u64;
            if before.saturating_add(size) > ANSWER {
                return Err(too_much(ANSWER));
            }
            stream.take(size).read_to_end(&mut self.body)?;
            if self.body.len() as u64 != before + size {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            text_line(stream)?;
        }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// What a status means that is no success.
    pub(super) fn error(&self, what: &str) -> GitError {
        let said = String::from_utf8_lossy(&self.body);
        let said = said.lines().next().filter(|_| self.body.len() < 500).unwrap_or_default();
        GitError::said(what, &format!("error: the server returned error: {} {said}", self.status))
    }
}

fn text_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    stream.take(16 << 10).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> io::Result<Answer> {
        Answer::read(&mut text.as_bytes())
    }

    #[test]
    fn answers_of_every_length_are_read() {
        let whole = read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef").unwrap();
        assert_eq!((&whole.body[..], whole.keep), (&b"abc"[..], true));
        let chunks =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x\r\nc\r\n0\r\n\r\n";
        assert_eq!(read(chunks).unwrap().body, b"abc");
        let rest = read("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nabc").unwrap();
        assert_eq!((&rest.body[..], rest.keep), (&b"abc"[..], false));
        assert!(
            !read("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                .unwrap()
                .keep
        );
    }

    #[test]
    fn what_is_cut_off_is_no_answer() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "SSH-2.0-OpenSSH\r\n\r\n",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_answer_without_end_is_cut_off() {
        let filler = "x".repeat(0x2000);
        for (head, rest) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 4000000000\r\n\r\n", filler.clone()),
            ("HTTP/1.1 200 OK\r\n\r\n", filler.clone()),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                format!("2000\r\n{filler}\r\n"),
            ),
            ("", format!("HTTP/1.1 100 Wait\r\nX: {filler}\r\n\r\n")),
        ] {
            let stream = head.as_bytes().chain(Endless { text: rest.into_bytes(), at: 0 });
            let error = Answer::read(&mut io::BufReader::new(stream)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{head}");
        }
    }

    /// The same text again and again.
    struct Endless {
        text: Vec<u8>,
        at: usize,
    }

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let rest = &self.text[self.at..];
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            self.at = (self.at + count) % self.text.len();
            Ok(count)
        }
    }
}
