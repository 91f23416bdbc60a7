//! [`Request`]: what a client asks, read from its connection.

use std::io::{self, BufRead, Read};

use serde_json::Value;

/// Longer lines, more headers and bigger bodies are refused.
const LINE: u64 = 64 * 1024;
const HEADERS: usize = 100;
const BODY: usize = 4 * 1024 * 1024;

/// What a client sent along.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Nothing.
    None,
    /// JSON.
    Json(Value),
    /// Something that is no JSON.
    Broken,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The method, such as `GET`.
    pub method: String,
    /// The path, decoded, in its parts.
    pub path: Vec<String>,
    /// The query, decoded.
    pub query: Vec<(String, String)>,
    /// Headers with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Body,
}

impl Request {
    /// Reads the next request; `None` if the client has closed the connection.
    pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let first = line(from)?;
        if first.is_empty() {
            return Ok(None);
        }
        let mut words = first.split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(bad("a request line has three words"));
        };
        let mut headers = Vec::new();
        loop {
            let text = line(from)?;
            if text.is_empty() {
                break;
            }
            let (name, value) = text.split_once(':').ok_or_else(|| bad("a header has a colon"))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            if headers.len() > HEADERS {
                return Err(bad("too many headers"));
            }
        }
        let (path, query) = target_parts(target);
        let mut request =
            Self { method: method.to_owned(), path, query, headers, body: Body::None };
        request.body = parse(&request.read_body(from)?);
        Ok(Some(request))
    }

    fn read_body(&self, from: &mut impl BufRead) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if self.header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
            loop {
                let size = usize::from_str_radix(line(from)?.trim(), 16)
                    .map_err(|_| bad("a chunk has a size"))?;
                if body.len() + size > BODY {
                    return Err(bad("the body is too big"));
                }
                let at = body.len();
                body.resize(at + size, 0);
                from.read_exact(&mut body[at..])?;
                line(from)?;
                if size == 0 {
                    return Ok(body);
                }
            }
        }
        let length = self.header("content-length").map_or(Ok(0), str::parse);
        let length = length.map_err(|_| bad("content-length is a number"))?;
        if length > BODY {
            return Err(bad("the body is too big"));
        }
        body.resize(length, 0);
        from.read_exact(&mut body)?;
        Ok(body)
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of a key in the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A field of the body.
    pub fn field(&self, name: &str) -> Option<&Value> {
        match &self.body {
            Body::Json(value) => value.get(name),
            Body::None | Body::Broken => None,
        }
    }

    /// A field of the body that is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.field(name)?.as_str()
    }

    /// Whether the client wants the connection closed after the answer.
    pub(crate) fn is_last(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

fn parse(body: &[u8]) -> Body {
    if body.is_empty() {
        return Body::None;
    }
    serde_json::from_slice(body).map_or(Body::Broken, Body::Json)
}

/// The path and the query, also of the form that proxies get: `http://host/path`.
fn target_parts(target: &str) -> (Vec<String>, Vec<(String, String)>) {
    let local = match target.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    let (path, query) = local.split_once('?').unwrap_or((local, ""));
    let path = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(&name.replace('+', " ")), decode(&value.replace('+', " ")))
    };
    (path, query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect())
}

/// Undoes `%2F`.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One line without its end; empty at the end of everything.
fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut text = String::new();
    from.take(LINE).read_line(&mut text)?;
    if text.len() as u64 == LINE {
        return Err(bad("a line is too long"));
    }
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    Ok(text)
}

fn bad(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Request {
        Request::read(&mut text.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn a_request_is_read_with_its_path_query_and_body() {
        let request = read(
            "PATCH /repos/o/r/git/refs/heads%2Fx?a=b%20c+d HTTP/1.1\r\nHost: x\r\n\
             Content-Length: 11\r\n\r\n{\"sha\":\"1\"}",
        );
        assert_eq!(request.path, ["repos", "o", "r", "git", "refs", "heads/x"]);
        assert_eq!(request.query("a"), Some("b c d"));
        assert_eq!(request.text("sha"), Some("1"));
    }

    #[test]
    fn chunks_and_the_form_for_proxies_are_read() {
        let request = read(
            "POST http://api.github.localhost/graphql HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\
             \r\n2\r\n{}\r\n0\r\n\r\n",
        );
        assert_eq!(request.path, ["graphql"]);
        assert_eq!(request.body, Body::Json(serde_json::json!({})));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["x\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n"] {
            assert!(Request::read(&mut text.as_bytes()).is_err(), "{text:?}");
        }
        assert_eq!(Request::read(&mut "".as_bytes()).unwrap(), None);
        let broken = read("POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n{");
        assert_eq!(broken.body, Body::Broken);
    }
}
