//! [`Talk`]: a client with nothing hidden, for tests of servers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use super::answer::Answer;

/// No answer takes longer than this in any test.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks one thing after the other on one connection. It repeats nothing and follows nothing.
#[derive(Debug)]
pub struct Talk {
    address: String,
    token: Option<String>,
    line: Option<BufReader<TcpStream>>,
}

impl Talk {
    /// Talks to the server at `http://host:port`, with a token or without.
    pub fn new(url: &str, token: Option<&str>) -> Self {
        let address = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Self { address, token: token.map(str::to_owned), line: None }
    }

    /// Sends a request without a body.
    ///
    /// # Errors
    ///
    /// If there was no answer.
    pub fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.ask("GET", path, &[], None)
    }

    /// Sends a request with a body.
    ///
    /// # Errors
    ///
    /// If there was no answer. Nobody knows then whether it was carried out.
    pub fn send(&mut self, method: &str, path: &str, body: &Value) -> io::Result<Answer> {
        self.ask(method, path, &[], Some(body))
    }

    /// Sends any request.
    ///
    /// # Errors
    ///
    /// If there was no answer. Nobody knows then whether it was carried out.
    pub fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> io::Result<Answer> {
        // A connection with an answer outstanding is not used again.
        let mut line = match self.line.take() {
            Some(line) => line,
            None => self.connect()?,
        };
        let text = body.map(Value::to_string).unwrap_or_default();
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\naccept: application/vnd.github+json\r\n",
            self.address
        );
        if let Some(token) = &self.token {
            head.push_str(&format!("authorization: Bearer {token}\r\n"));
        }
        if !headers.iter().any(|(name, _)| *name == "user-agent") {
            head.push_str("user-agent: sprag-test\r\n");
        }
        // An empty value takes a header away.
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if body.is_some() {
            let length = text.len();
            head.push_str(&format!(
                "content-type: application/json\r\ncontent-length: {length}\r\n"
            ));
        }
        line.get_mut().write_all(format!("{head}\r\n{text}").as_bytes())?;
        let answer = read(&mut line)?;
        if answer.header("connection") != Some("close") {
            self.line = Some(line);
        }
        Ok(answer)
    }

    fn connect(&self) -> io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(BufReader::new(stream))
    }
}

fn read(line: &mut BufReader<TcpStream>) -> io::Result<Answer> {
    let first = text_line(line)?;
    let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.ok_or_else(|| closed("no status came"))?;
    let mut headers = Vec::new();
    loop {
        let text = text_line(line)?;
        let Some((name, value)) = text.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut answer = Answer { status, headers, body: Value::Null };
    let mut body = Vec::new();
    if answer.header("transfer-encoding") == Some("chunked") {
        loop {
            let size = usize::from_str_radix(text_line(line)?.trim(), 16)
                .map_err(|_| closed("a chunk has no size"))?;
            let at = body.len();
            body.resize(at + size, 0);
            line.read_exact(&mut body[at..])?;
            text_line(line)?;
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = answer.header("content-length").and_then(|it| it.parse().ok()) {
        body.resize(length, 0);
        line.read_exact(&mut body)?;
    }
    answer.body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok(answer)
}

fn text_line(line: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut text = String::new();
    if line.read_line(&mut text)? == 0 {
        return Err(closed("the connection was closed"));
    }
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    Ok(text)
}

fn closed(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, message)
}
