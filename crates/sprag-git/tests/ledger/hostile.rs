//! Servers that want our logins, or our memory.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sprag_core::Error;
use sprag_git::{Git, GitConfig, GitLedger};
use sprag_ledger::{Ledger, Oid};

use super::{name, write};

/// More than we take of anything, and far less than would hurt.
const PLENTY: u64 = 100 << 20;
/// What a process may take while it reads what a hostile server sends.
const MEMORY_KIB: u64 = 400 << 10;

/// A server that does as it likes with each connection.
struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    /// How many bytes it got rid of.
    sent: Arc<AtomicU64>,
}

impl Server {
    /// `answer` is told the first lines of each request, and writes.
    fn start(answer: impl Fn(&str, &mut dyn Write) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, sent) = (Arc::<Mutex<Vec<String>>>::default(), Arc::default());
        let (heard, counted) = (Arc::clone(&requests), Arc::clone(&sent));
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (heard, counted) = (Arc::clone(&heard), Arc::clone(&counted));
                let answer = Arc::clone(&answer);
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    while let Some(request) = hear(&mut reader) {
                        heard.lock().unwrap().push(request.clone());
                        answer(&request, &mut Counted(&stream, &counted));
                    }
                });
            }
        });
        Self { port, requests, sent }
    }

    fn url(&self, login: &str) -> String {
        format!("http://{login}127.0.0.1:{}/locks.git", self.port)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// A request of HTTP with its body, or the one packet that a `git daemon` is told.
fn hear(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut four = [0; 4];
    reader.read_exact(&mut four).ok()?;
    let mut request = String::from_utf8_lossy(&four).into_owned();
    if let Ok(length) = usize::from_str_radix(&request, 16) {
        let mut rest = vec![0; length - 4];
        reader.read_exact(&mut rest).ok()?;
        return Some(String::from_utf8_lossy(&rest).into_owned());
    }
    while !request.ends_with("\r\n\r\n") {
        reader.read_line(&mut request).ok().filter(|count| *count > 0)?;
    }
    let length = request.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(request + &String::from_utf8_lossy(&body))
}

struct Counted<'a>(&'a TcpStream, &'a AtomicU64);

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.0.write(bytes)?;
        self.1.fetch_add(count as u64, Ordering::SeqCst);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

fn packet(data: impl AsRef<[u8]>) -> Vec<u8> {
    let data = data.as_ref();
    [format!("{:04x}", data.len() + 4).as_bytes(), data].concat()
}

fn respond(to: &mut dyn Write, status: &str, headers: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    drop(to.write_all(&[head.as_bytes(), body].concat()));
}

/// What a server of version 2 says first.
fn greet(to: &mut dyn Write) {
    let lines = [
        packet("# service=git-upload-pack\n"),
        b"0000".to_vec(),
        packet("version 2\n"),
        packet("ls-refs\n"),
        packet("fetch=shallow\n"),
        b"0000".to_vec(),
    ];
    let kind = "Content-Type: application/x-git-upload-pack-advertisement\r\n";
    respond(to, "200 OK", kind, &lines.concat());
}

/// A body without end, of the same text again and again.
fn pour(to: &mut dyn Write, kind: &str, text: &[u8]) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/x-git-{kind}\r\n\r\n");
    let chunk = text.repeat((1 << 16) / text.len() + 1);
    let mut written = to.write_all(head.as_bytes());
    while written.is_ok() {
        written = to.write_all(&chunk);
    }
}

/// The most memory that this process ever had.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[track_caller]
fn is_too_large(error: &Error, server: &Server) {
    assert!(error.is_corrupt() && error.to_string().contains("too large"), "{error}");
    let (sent, peak) = (server.sent.load(Ordering::SeqCst), peak_kib());
    assert!(sent < PLENTY, "{sent} bytes were taken");
    assert!(peak < MEMORY_KIB, "{peak} KiB were held");
}

#[test]
fn an_advertisement_without_end_is_not_heard_out() {
    let oid = "a".repeat(40);
    let reference = packet(format!("{oid} refs/heads/x\0report-status\n"));
    let service = |request: &str| if request.contains("receive") { "receive" } else { "upload" };
    let line = reference.clone();
    let server = Server::start(move |request, to| {
        let service = service(request);
        pour(to, &format!("{service}-pack-advertisement"), &line);
    });
    let ledger = || GitLedger::open(GitConfig::url(server.url(""))).unwrap();
    is_too_large(&ledger().list("refs/").unwrap_err(), &server);
    server.sent.store(0, Ordering::SeqCst);
    is_too_large(&ledger().swap(&[write("a", None, "a")]).unwrap_err(), &server);
    // The same from a `git daemon`, of which nothing is kept in the end.
    let server = Server::start(move |_, to| while to.write_all(&reference).is_ok() {});
    let url = format!("git://127.0.0.1:{}/locks.git", server.port);
    let ledger = GitLedger::open(GitConfig::url(url)).unwrap();
    is_too_large(&ledger.list("refs/").unwrap_err(), &server);
}

#[test]
fn a_list_of_references_without_end_is_not_heard_out() {
    let line = packet(format!("{} refs/heads/{}\n", "a".repeat(40), "x".repeat(60_000)));
    let server = Server::start(move |request, to| match request.starts_with("GET") {
        true => greet(to),
        false => pour(to, "upload-pack-result", &line),
    });
    let ledger = GitLedger::open(GitConfig::url(server.url(""))).unwrap();
    is_too_large(&ledger.list("refs/").unwrap_err(), &server);
}

/// Less than one MiB that unpacks to a hundred, as a stranger makes it with git alone.
#[test]
fn a_pack_that_unpacks_to_too_much_is_not_unpacked() {
    let folder = tempfile::tempdir().unwrap();
    let git = Git::new().repository(folder.path());
    git.ok(["init", "--quiet", "--bare"]).unwrap();
    // Objects of zeros hardly take room on the way.
    let blob = |size: usize| {
        let zeros = format!("{size}{}", "\0".repeat(size)).into_bytes();
        git.ok_with(["hash-object", "-w", "--stdin"], &zeros).unwrap().text()
    };
    let names: String = (0..8).map(|at| format!("{}\n", blob((12 << 20) + at))).collect();
    let pack = git.ok_with(["pack-objects", "--stdout", "-q", "--window=0"], names.as_bytes());
    let pack = pack.unwrap().stdout;
    assert!(pack.len() < 1 << 20, "{} bytes travel", pack.len());
    let tip = Oid::new("a".repeat(40)).unwrap();
    let list = [packet(format!("{tip} {}\n", name("a"))), b"0000".to_vec()].concat();
    let kind = "Content-Type: application/x-git-upload-pack-result\r\n";
    let server = Server::start(move |request, to| match request {
        _ if request.starts_with("GET") => greet(to),
        _ if request.contains("ls-refs") => respond(to, "200 OK", kind, &list),
        _ => {
            let bands = pack.chunks(60_000).map(|part| packet([&[1], part].concat()));
            let body = [packet("packfile\n"), bands.flatten().collect(), b"0000".to_vec()].concat();
            respond(to, "200 OK", kind, &body);
        }
    });
    let ledger = GitLedger::open(GitConfig::url(server.url(""))).unwrap();
    is_too_large(&ledger.entries(&[(name("a"), tip)]).unwrap_err(), &server);
}

/// A clone whose credential helper knows a password, and writes down what it is asked and told.
struct Helped {
    folder: tempfile::TempDir,
}

impl Helped {
    fn new(remote: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let git = Git::new().directory(folder.path());
        git.ok(["init", "--quiet"]).unwrap();
        git.ok(["remote", "add", "origin", remote]).unwrap();
        let log = folder.path().join("told");
        let log = log.display();
        let helper = format!(
            "!f() {{ echo \"op=$1\" >> {log}; cat >> {log}; test $1 = get && \
             echo username=ada && echo password=secret; }}; f"
        );
        git.ok(["config", "credential.helper", &helper]).unwrap();
        Self { folder }
    }

    fn list(&self) -> sprag_core::Result<()> {
        let config = GitConfig::remote("origin", self.folder.path());
        GitLedger::open(config).unwrap().list("refs/").map(drop)
    }

    /// Operations of the helper, and what it was told with each.
    fn told(&self) -> Vec<String> {
        let told = std::fs::read_to_string(self.log()).unwrap_or_default();
        told.split("op=").skip(1).map(str::to_owned).collect()
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("told")
    }
}

fn is_logged_in(request: &str) -> bool {
    // ada:secret
    request.contains("Authorization: Basic YWRhOnNlY3JldA==\r\n")
}

fn deny(to: &mut dyn Write) {
    respond(to, "401 Unauthorized", "WWW-Authenticate: Basic realm=\"git\"\r\n", b"");
}

fn send_to(to: &mut dyn Write, url: &str) {
    let location = format!("Location: {url}/info/refs?service=git-upload-pack\r\n");
    respond(to, "302 Found", &location, b"");
}

#[test]
fn a_login_goes_to_no_other_site() {
    let other = Arc::new(Server::start(|_, to| greet(to)));
    let target = other.url("");
    let server = Server::start(move |request, to| match is_logged_in(request) {
        true => send_to(to, &target),
        false => deny(to),
    });
    let helped = Helped::new(&server.url(""));
    let error = helped.list().unwrap_err();
    assert!(error.to_string().contains("another site"), "{error}");
    let told = helped.told();
    assert!(told.len() == 1 && told[0].starts_with("get"), "{told:?}");
    // Nor one that is in the URL.
    let ledger = GitLedger::open(GitConfig::url(server.url("ada:secret@"))).unwrap();
    let error = ledger.list("refs/").unwrap_err();
    assert!(error.to_string().contains("another site"), "{error}");
    assert_eq!(other.requests(), Vec::<String>::new());
    assert!(server.requests().iter().any(|request| is_logged_in(request)));
}

#[test]
fn the_site_that_asks_is_the_site_whose_login_is_good() {
    // Sent elsewhere without a login, one is asked for that site, and told good for it.
    let other =
        Server::start(|request, to| if is_logged_in(request) { greet(to) } else { deny(to) });
    let target = other.url("");
    let server = Server::start(move |_, to| send_to(to, &target));
    let helped = Helped::new(&server.url("mallory@"));
    drop(helped.list());
    let told = helped.told();
    let host = format!("host=127.0.0.1:{}\n", other.port);
    assert!(told.len() == 2 && told.iter().all(|told| told.contains(&host)), "{told:?}");
    assert!(told[1].starts_with("store") && !told[0].contains("mallory"), "{told:?}");
    assert!(server.requests().iter().all(|request| !request.contains("Authorization")));
    // A redirect on the same site is as good as none.
    let server = Server::start(|request, to| match is_logged_in(request) {
        _ if request.contains("/moved/") => greet(to),
        true => send_to(to, "/moved/locks.git"),
        false => deny(to),
    });
    let helped = Helped::new(&server.url(""));
    drop(helped.list());
    let told = helped.told();
    assert!(told.len() == 2 && told[1].starts_with("store"), "{told:?}");
    assert!(told[1].contains(&format!("host=127.0.0.1:{}\n", server.port)), "{told:?}");
}

/// The command lines of this machine that have this in them.
fn command_lines_with(secret: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(secret)).collect()
}

#[test]
fn no_command_line_shows_a_password() {
    // Of this run alone, so that tests that run beside it do not count.
    let secret = format!("hunter{}", std::process::id());
    let shown = Arc::<Mutex<Vec<String>>>::default();
    let (seen, looked_for) = (Arc::clone(&shown), secret.clone());
    let server = Server::start(move |request, to| {
        seen.lock().unwrap().extend(command_lines_with(&looked_for));
        match request {
            _ if !request.contains("Authorization: Basic ") => deny(to),
            _ if request.starts_with("GET") => greet(to),
            _ => respond(
                to,
                "200 OK",
                "Content-Type: application/x-git-upload-pack-result\r\n",
                b"0000",
            ),
        }
    });
    let url = server.url(&format!("ada:{secret}@"));
    // A git that writes down how it is called.
    let folder = tempfile::tempdir().unwrap();
    let (program, log) = (folder.path().join("git"), folder.path().join("log"));
    let script = format!("#!/bin/sh\necho \"$@\" >> {}\nexec git \"$@\"\n", log.display());
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let clone = folder.path().join("clone");
    Git::new().ok(["init", "--quiet", clone.to_str().unwrap()]).unwrap();
    std::fs::write(clone.join(".git/config"), format!("[remote \"origin\"]\nurl = {url}\n"))
        .unwrap();
    for git_talks in [false, true] {
        for config in [GitConfig::url(&url), GitConfig::remote("origin", &clone)] {
            let config = config.program(&program).git_talks(git_talks);
            assert_eq!(GitLedger::open(config).unwrap().list("refs/").unwrap(), []);
        }
    }
    // As work items use a remote.
    let git = Git::new().program(&program).directory(&clone).hide_login(&url);
    assert_eq!(git.ok(["ls-remote", "origin"]).unwrap().text(), "");
    assert!(server.requests().len() > 5);
    assert_eq!(*shown.lock().unwrap(), Vec::<String>::new());
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("ls-remote") && !log.contains(&secret), "{log}");
}
