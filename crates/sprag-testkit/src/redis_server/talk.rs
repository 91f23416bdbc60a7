//! [`Talk`]: a conversation with a Redis server, as any other program would have it.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

/// A connection on which commands are sent, one at a time.
#[derive(Debug)]
pub struct Talk(BufReader<UnixStream>);

impl Talk {
    /// Connects to a server's socket.
    ///
    /// # Errors
    ///
    /// If nobody listens there.
    pub fn open(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends one command and gives back the answer as text: nothing for nil, a line for each
    /// element of an array.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub fn ask(&mut self, words: &[&str]) -> io::Result<String> {
        self.send(words)?;
        self.answer()
    }

    /// Sends one command and does not wait for the answer.
    ///
    /// # Errors
    ///
    /// If the server is gone.
    pub fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(request.as_bytes())
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    ///
    /// If none comes.
    pub fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let Some((kind, rest)) = line.trim_end().split_at_checked(1) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        match (kind, rest.parse::<usize>()) {
            ("$", Ok(length)) => {
                let mut text = vec![0; length + 2];
                self.0.read_exact(&mut text)?;
                text.truncate(length);
                String::from_utf8(text).map_err(io::Error::other)
            }
            ("*", Ok(length)) => {
                let elements: io::Result<Vec<_>> = (0..length).map(|_| self.answer()).collect();
                Ok(elements?.join("\n"))
            }
            ("$" | "*", Err(_)) => Ok(String::new()),
            _ => Ok(rest.to_owned()),
        }
    }
}
