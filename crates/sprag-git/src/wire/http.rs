//! [`Http`]: a server behind HTTP, asked by requests that stand alone.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sprag_core::clock::{BootClock, Clock, Moment};

use super::answer::Answer;
use super::credential::Login;
use super::stream::Socket;
use super::{Advert, Failure, Reply, Service, broken};
use crate::error::{GitError, Trouble};
use crate::git::Git;
use crate::url::HttpUrl;

/// A connection that was quiet for longer may be closed by the server just as we write to it, and
/// then nobody would know what became of the request.
const FRESH: Duration = Duration::from_secs(1);
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

/// A login that a credential helper knew, and the site that it knew it for.
#[derive(Debug)]
struct Asked {
    site: String,
    login: Login,
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
            Err(failure)
                if service == Service::UploadPack && failure.sent && !failure.is_final() =>
            {
                post()?
            }
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
        let mut asked: Option<Asked> = None;
        let mut redirects = 0;
        let answer = loop {
            let used = self.lock().login.clone();
            let get = || self.send(what, "GET", &path, "", &[], Service::UploadPack);
            let answer =
                get().or_else(|failure| if failure.is_final() { Err(failure) } else { get() })?;
            match answer.status {
                401 => match used {
                    Some(used) => {
                        self.lock().login.take_if(|known| *known == used);
                        if let Some(asked) = asked {
                            asked.login.judge(&self.git, &asked.site, false);
                        }
                        return Err(answer.error(what).into());
                    }
                    None => asked = self.log_in()?.or(asked),
                },
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
        let advert = Advert::read(&mut &answer.body[..], service)
            .map_err(|e| broken(what, &e, &e.to_string(), self.git.timeout))?;
        if let Some(asked) = asked {
            asked.login.judge(&self.git, &asked.site, true);
        }
        let advert = Arc::new(advert);
        if advert.is_v2 || service == Service::ReceivePack {
            self.lock().adverts.insert(service, Arc::clone(&advert));
        }
        Ok(advert)
    }

    /// Asks the user's helpers for a login, unless another thread has done so meanwhile.
    fn log_in(&self) -> Result<Option<Asked>, GitError> {
        let (site, user, known) = {
            let state = self.lock();
            (state.url.site(), state.url.user.clone(), state.login.is_some())
        };
        if known {
            return Ok(None);
        }
        let login = Login::ask(&self.git, &site, user.as_deref())?;
        let mut state = self.lock();
        if state.url.site() != site {
            // Another thread was sent elsewhere, where this login does not go.
            return Ok(None);
        }
        state.login = Some(login.clone());
        Ok(Some(Asked { site, login }))
    }

    /// Goes where the server sends us. A login is for the site that it was given for, so with one
    /// we go to no other: neither may it be sent there, nor told to the user's helpers as good there.
    fn follow(&self, answer: &Answer, path: &str, what: &str) -> Result<(), GitError> {
        let state = &mut *self.lock();
        let target = answer.header("location").unwrap_or_default();
        let refuse = |why: &str| {
            let message = format!("{what}: the server sends us to {target:?}{why}; use that URL");
            GitError::new(Trouble::NotFound, message)
        };
        let moved = target.strip_suffix(path).and_then(|base| state.url.moved(base));
        let url = moved.ok_or_else(|| refuse(""))?;
        if url.secure != state.url.secure {
            return Err(refuse(""));
        }
        if !url.is_on_site_of(&state.url) && state.login.is_some() {
            return Err(refuse(", which is another site, where our login does not go"));
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
