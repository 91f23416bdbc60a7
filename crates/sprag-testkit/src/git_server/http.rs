//! [`GitHttp`]: `git http-backend` behind an HTTP server that can fail on purpose.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::Repository;
use crate::redis_server::Certificates;

/// What goes wrong with a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpFault {
    /// The question before it, what there is, is answered with 500.
    FailGreeting,
    /// It is answered with 500 and not done.
    FailBefore,
    /// It is done and answered with 500.
    FailAfter,
    /// The connection is closed, and it is not done.
    CloseBefore,
    /// It is done, and the connection is closed without an answer.
    CloseAfter,
    /// It is done, and the connection is closed in the middle of the answer.
    CutAnswer,
}

/// `git http-backend` behind an HTTP server, gone with the test.
#[derive(Debug)]
pub struct GitHttp {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    program: PathBuf,
    root: PathBuf,
    tls: Option<Arc<ServerConfig>>,
    closed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    faults: VecDeque<HttpFault>,
    login: Option<String>,
    read_only: bool,
    requests: Vec<String>,
}

impl GitHttp {
    /// Serves a repository, over TLS if there are certificates for that.
    pub(super) fn start(repository: &Repository, certificates: Option<&Certificates>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            program: PathBuf::from(repository.run(&["--exec-path"])).join("git-http-backend"),
            root: repository.root().to_owned(),
            tls: certificates.map(tls),
            closed: AtomicBool::new(false),
            state: Mutex::default(),
        });
        let served = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if served.closed.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let served = Arc::clone(&served);
                // Who breaks a connection is not waited for.
                std::thread::spawn(move || served.accept(stream).ok());
            }
        });
        Self { port, shared }
    }

    /// Where the repository is.
    pub fn url(&self) -> String {
        let scheme = if self.shared.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}/locks.git", self.port)
    }

    /// The same with a login.
    pub fn url_with(&self, login: &str) -> String {
        format!("http://{login}@127.0.0.1:{}/locks.git", self.port)
    }

    /// Makes the next push go wrong; several in the order of the calls.
    pub fn fail(&self, fault: HttpFault) {
        self.shared.state().faults.push_back(fault);
    }

    /// Wants a login from now on, as it stands in the header: base 64 of `user:password`.
    pub fn require_login(&self, basic: &str) {
        self.shared.state().login = Some(format!("Basic {basic}"));
    }

    /// Answers pushes with 403 from now on.
    pub fn forbid_pushes(&self) {
        self.shared.state().read_only = true;
    }

    /// What was asked for, such as `POST /locks.git/git-receive-pack`.
    pub fn requests(&self) -> Vec<String> {
        self.shared.state().requests.clone()
    }
}

impl Drop for GitHttp {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        // So that it looks.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(&self, tcp: TcpStream) -> io::Result<()> {
        tcp.set_nodelay(true)?;
        let Some(config) = &self.tls else { return self.serve(tcp) };
        let tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        self.serve(StreamOwned::new(tls, tcp))
    }

    /// Answers until the other end has enough, or a fault closes the connection.
    fn serve(&self, stream: impl Read + Write) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        while let Some(request) = read_request(&mut reader)? {
            let stream = reader.get_mut();
            let fault = {
                let mut state = self.state();
                let path = request.target.split('?').next().unwrap_or_default();
                state.requests.push(format!("{} {path}", request.method));
                let pushes = request.target.contains("git-receive-pack");
                if state.login.is_some()
                    && state.login.as_deref() != request.header("authorization")
                {
                    let extra = "WWW-Authenticate: Basic realm=\"git\"\r\n";
                    write_answer(stream, "401 Unauthorized", extra, b"")?;
                    continue;
                }
                if pushes && state.read_only {
                    write_answer(stream, "403 Forbidden", "", b"no pushes here\n")?;
                    continue;
                }
                let greets = state.faults.front() == Some(&HttpFault::FailGreeting);
                let strikes = pushes && (request.method == "POST") != greets;
                if strikes { state.faults.pop_front() } else { None }
            };
            match fault {
                Some(HttpFault::FailGreeting | HttpFault::FailBefore) => {
                    write_answer(stream, "500 Internal Server Error", "", b"")?;
                    continue;
                }
                Some(HttpFault::CloseBefore) => return Ok(()),
                _ => {}
            }
            let (status, headers, body) = self.ask(&request)?;
            match fault {
                None => write_answer(stream, &status, &headers, &body)?,
                Some(HttpFault::FailAfter) => {
                    write_answer(stream, "500 Internal Server Error", "", b"")?;
                }
                Some(HttpFault::CutAnswer) => {
                    let mut answer = answer(&status, &headers, &body);
                    answer.truncate(answer.len() - body.len() + body.len() / 2);
                    stream.write_all(&answer)?;
                    return stream.flush();
                }
                Some(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Asks git, as a web server would.
    fn ask(&self, request: &Request) -> io::Result<(String, String, Vec<u8>)> {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let mut command = Command::new(&self.program);
        command.env_clear();
        let variables = ["PATH", "HOME"].map(|name| (name, std::env::var_os(name)));
        command.envs(variables.into_iter().filter_map(|(name, value)| Some((name, value?))));
        command.env("GIT_PROJECT_ROOT", &self.root).env("GIT_HTTP_EXPORT_ALL", "1");
        command.env("REQUEST_METHOD", &request.method).env("PATH_INFO", path);
        command.env("QUERY_STRING", query).env("REMOTE_USER", "test");
        command.env("REMOTE_ADDR", "127.0.0.1").env("SERVER_PROTOCOL", "HTTP/1.1");
        command.env("CONTENT_LENGTH", request.body.len().to_string());
        for (name, variable) in [
            ("content-type", "CONTENT_TYPE"),
            ("content-encoding", "HTTP_CONTENT_ENCODING"),
            ("git-protocol", "HTTP_GIT_PROTOCOL"),
        ] {
            if let Some(value) = request.header(name) {
                command.env(variable, value);
            }
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut backend = command.spawn()?;
        let mut input = backend.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let body = request.body.clone();
        // It may answer before it has read everything.
        let writer = std::thread::spawn(move || input.write_all(&body).ok());
        let output = backend.wait_with_output()?.stdout;
        drop(writer.join());
        let end = output.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(output.len());
        let head = String::from_utf8_lossy(&output[..end]).into_owned();
        let body = output.get(end + 4..).unwrap_or_default().to_vec();
        let mut status = "200 OK".to_owned();
        let mut headers = String::new();
        for line in head.lines() {
            match line.split_once(": ") {
                Some(("Status", value)) => status = value.to_owned(),
                _ => headers.push_str(&format!("{line}\r\n")),
            }
        }
        if output.is_empty() {
            "500 Internal Server Error".clone_into(&mut status);
        }
        Ok((status, headers, body))
    }
}

/// What a server over TLS has to know.
fn tls(certificates: &Certificates) -> Arc<ServerConfig> {
    let (certificate, key) = certificates.server();
    let chain = vec![CertificateDer::from_pem_file(certificate).expect("openssl made it")];
    let key = PrivateKeyDer::from_pem_file(key).expect("openssl made it");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("the provider knows TLS 1.3").with_no_client_auth();
    Arc::new(config.with_single_cert(chain, key).expect("they belong together"))
}

fn read_request(reader: &mut BufReader<impl Read + Write>) -> io::Result<Option<Request>> {
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut words = first.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut request = Request { method, target, headers, body: Vec::new() };
    if request.header("expect").is_some() {
        reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    if request.header("transfer-encoding") == Some("chunked") {
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let size = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            reader.by_ref().take(size).read_to_end(&mut request.body)?;
            reader.read_line(&mut line)?;
            if size == 0 {
                break;
            }
        }
    } else {
        let length = request.header("content-length").and_then(|length| length.parse().ok());
        reader.by_ref().take(length.unwrap_or(0)).read_to_end(&mut request.body)?;
    }
    Ok(Some(request))
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn write_answer(
    stream: &mut impl Write,
    status: &str,
    headers: &str,
    body: &[u8],
) -> io::Result<()> {
    stream.write_all(&answer(status, headers, body))?;
    stream.flush()
}
