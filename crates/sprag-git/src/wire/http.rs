//! [`Http`]: a server behind HTTP, asked by requests that stand alone.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sprag_core::clock::{BootClock, Clock, Moment};

use super::credential::Login;
use super::stream::Socket;
use super::{Advert, Failure, Reply, Service, broken};
use crate::error::{GitError, Trouble};
use crate::git::Git;
use crate::url::HttpUrl;

/// A connection that was quiet for longer may be closed by the server just as we write to it, and
/// then nobody would know what became of the request.
const FRESH: Duration = Duration::from_secs(1);
/// No answer to us is larger.
const LARGEST: u64 = 256 << 20;
/// How often the server may send us elsewhere.
const REDIRECTS: usize = 3;

/// A server behind HTTP.
#[derive(Debug)]
pub(crate) struct Http {
    git: Git,
    tls: Option<Arc<ClientConfig>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    url: HttpUrl,
    login: Option<Login>,
    adverts: HashMap<Service, Arc<Advert>>,
    idle: Option<(Connection, Moment)>,
}

impl Http {
    pub(crate) fn new(git: Git, mut url: HttpUrl) -> Result<Self, GitError> {
        let tls = if url.secure { Some(trust()?) } else { None };
        let login = match (&url.user, url.password.take()) {
            (Some(user), Some(password)) => Some(Login { user: user.clone(), password }),
            _ => None,
        };
        let state = State { url, login, adverts: HashMap::new(), idle: None };
        Ok(Self { git, tls, state: Mutex::new(state) })
    }

    pub(crate) fn ask(
        &self,
        service: Service,
        what: &str,
        request: &mut dyn FnMut(&Advert) -> Result<Vec<u8>, GitError>,
    ) -> Result<Reply, Failure> {
        let advert = self.advert(service, what)?;
        let body = request(&advert)?;
        let path = format!("/{}", service.name());
        let kind = format!("Content-Type: application/x-{}-request\r\n", service.name());
        let post = || self.send(what, "POST", &path, &kind, &body, service);
        let answer = match post() {
            // Reading again harms nobody.
            Err(failure) if service == Service::UploadPack && failure.sent => post()?,
            other => other?,
        };
        if answer.status != 200 {
            let sent = answer.status >= 500;
            return Err(Failure { error: answer.error(what), sent });
        }
        Ok(Reply { advert, body: answer.body })
    }

    /// What the server can do. Learned once, but for references, which change.
    fn advert(&self, service: Service, what: &str) -> Result<Arc<Advert>, Failure> {
        if let Some(known) = self.lock().adverts.get(&service) {
            return Ok(Arc::clone(known));
        }
        let path = format!("/info/refs?service={}", service.name());
        let mut asked = None;
        let mut redirects = 0;
        let answer = loop {
            let get = || self.send(what, "GET", &path, "", &[], Service::UploadPack);
            let answer = get().or_else(|_| get())?;
            match answer.status {
                401 => {
                    let (site, user) = {
                        let state = self.lock();
                        (state.url.site(), state.url.user.clone())
                    };
                    let known = self.lock().login.take();
                    if let Some(login) = known {
                        if asked.is_some() {
                            login.judge(&self.git, &site, false);
                        }
                        return Err(answer.error(what).into());
                    }
                    asked = Some(Login::ask(&self.git, &site, user.as_deref())?);
                    self.lock().login.clone_from(&asked);
                }
                301 | 302 | 307 | 308 if redirects < REDIRECTS => {
                    redirects += 1;
                    self.follow(&answer, &path, what)?;
                }
                _ => break answer,
            }
        };
        if answer.status != 200 {
            return Err(answer.error(what).into());
        }
        let expected = format!("application/x-{}-advertisement", service.name());
        if answer.header("content-type") != Some(&expected) {
            let message = format!("{what}: the server speaks HTTP, but not git; check the URL");
            return Err(GitError::new(Trouble::NotFound, message).into());
        }
        let advert = Advert::read(&mut &answer.body[..])
            .map_err(|e| broken(what, &e, &e.to_string(), self.git.timeout))?;
        if let Some(login) = asked {
            login.judge(&self.git, &self.lock().url.site(), true);
        }
        let advert = Arc::new(advert);
        if advert.is_v2 || service == Service::ReceivePack {
            self.lock().adverts.insert(service, Arc::clone(&advert));
        }
        Ok(advert)
    }

    fn follow(&self, answer: &Answer, path: &str, what: &str) -> Result<(), GitError> {
        let state = &mut *self.lock();
        let target = answer.header("location").unwrap_or_default();
        let moved = target.strip_suffix(path).and_then(|base| state.url.moved(base));
        let Some(url) = moved else {
            let message = format!("{what}: the server sends us to {target:?}; use that URL");
            return Err(GitError::new(Trouble::NotFound, message));
        };
        if !(url.host == state.url.host && url.port == state.url.port) {
            // A password is for the host that it was given for.
            state.login = None;
        }
        if url.secure != state.url.secure {
            let message =
                format!("{what}: the server wants to be asked at {target:?}; use that URL");
            return Err(GitError::new(Trouble::NotFound, message));
        }
        state.url = url;
        state.idle = None;
        Ok(())
    }

    fn send(
        &self,
        what: &str,
        method: &str,
        path: &str,
        header: &str,
        body: &[u8],
        service: Service,
    ) -> Result<Answer, Failure> {
        let timeout = self.git.timeout;
        let (idle, url, login) = {
            let mut state = self.lock();
            (state.idle.take(), state.url.clone(), state.login.clone())
        };
        let now = BootClock.now();
        let fresh = idle.filter(|(_, since)| now.since(*since) < FRESH).map(|(idle, _)| idle);
        let mut connection = match fresh {
            Some(mut connection) => {
                connection.renew(timeout);
                connection
            }
            None => {
                let opened = Connection::open(&url, self.tls.as_ref(), timeout);
                opened.map_err(|e| Failure::before(broken(what, &e, "", timeout)))?
            }
        };
        let login = login.map(|login| login.header()).unwrap_or_default();
        // With version 2 a server would not list its references to those who want to write.
        let version = match service {
            Service::UploadPack => "Git-Protocol: version=2\r\n",
            Service::ReceivePack => "",
        };
        let head = format!(
            "{method} {}{path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: git/2.0 (sprag)\r\n\
             Accept: */*\r\n{version}{login}{header}Content-Length: {}\r\n\r\n",
            url.path,
            url.authority(),
            body.len()
        );
        let mut exchange = || {
            connection.write_all(&[head.as_bytes(), body].concat())?;
            connection.flush()?;
            Answer::read(&mut connection)
        };
        let answer = exchange().map_err(|e| Failure::after(broken(what, &e, "", timeout)))?;
        if answer.keep {
            self.lock().idle = Some((connection, BootClock.now()));
        }
        Ok(answer)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The authorities that this machine believes.
fn trust() -> Result<Arc<ClientConfig>, GitError> {
    let failed = |why: String| GitError::new(Trouble::Failed, why);
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(failed("no certificates of authorities: install ca-certificates".into()));
    }
    // Named, so that a program with two providers does not have to choose one for us.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// A connection, secured or not.
#[derive(Debug)]
enum Connection {
    Plain(BufReader<Socket>),
    Secure(Box<BufReader<StreamOwned<ClientConnection, Socket>>>),
}

impl Connection {
    fn open(url: &HttpUrl, tls: Option<&Arc<ClientConfig>>, timeout: Duration) -> io::Result<Self> {
        let socket = Socket::connect(&url.host, url.port, timeout)?;
        let Some(tls) = tls else { return Ok(Self::Plain(BufReader::new(socket))) };
        let name = ServerName::try_from(url.host.clone()).map_err(io::Error::other)?;
        let client = ClientConnection::new(Arc::clone(tls), name).map_err(io::Error::other)?;
        Ok(Self::Secure(Box::new(BufReader::new(StreamOwned::new(client, socket)))))
    }

    fn renew(&mut self, timeout: Duration) {
        match self {
            Self::Plain(socket) => socket.get_mut().renew(timeout),
            Self::Secure(stream) => stream.get_mut().sock.renew(timeout),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Secure(stream) => stream.read(buffer),
        }
    }
}

impl BufRead for Connection {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self {
            Self::Plain(socket) => socket.fill_buf(),
            Self::Secure(stream) => stream.fill_buf(),
        }
    }

    fn consume(&mut self, count: usize) {
        match self {
            Self::Plain(socket) => socket.consume(count),
            Self::Secure(stream) => stream.consume(count),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.get_mut().write(bytes),
            Self::Secure(stream) => stream.get_mut().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.get_mut().flush(),
            Self::Secure(stream) => stream.get_mut().flush(),
        }
    }
}

/// An answer of the server.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Whether the connection may be used again.
    keep: bool,
}

impl Answer {
    fn read(stream: &mut impl BufRead) -> io::Result<Self> {
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
        if in_chunks {
            return self.read_chunks(stream);
        }
        let length = self.header("content-length").and_then(|length| length.parse::<u64>().ok());
        match length {
            Some(length) => {
                stream.take(length.min(LARGEST)).read_to_end(&mut self.body)?;
                if (self.body.len() as u64) < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            None if self.status == 204 || self.status == 304 => {}
            None => {
                self.keep = false;
                stream.take(LARGEST).read_to_end(&mut self.body)?;
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
            if before.saturating_add(size) > LARGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too large"));
            }
            stream.take(size).read_to_end(&mut self.body)?;
            if self.body.len() as u64 != before + size {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            text_line(stream)?;
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    fn error(&self, what: &str) -> GitError {
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
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "SSH-2.0-OpenSSH\r\n\r\n",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
