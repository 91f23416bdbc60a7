//! Whatever answers for GitHub wants our token, or our memory: F53.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sprag_github::{GitHubClient as _, GitHubConfig, GitHubStore, HttpClient, Token};

/// What a process may take while it reads what a hostile server sends.
const MEMORY_KIB: u64 = 300 << 10;

/// A server that does as it likes with each request.
struct Server {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
    sent: Arc<AtomicUsize>,
}

impl Server {
    /// Each request is answered with a head and a body, which comes again and again, so many times.
    fn start(answer: impl Fn(&str) -> (String, Vec<u8>, usize) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (requests, sent) = (Arc::<Mutex<Vec<String>>>::default(), Arc::default());
        let (heard, counted) = (Arc::clone(&requests), Arc::<AtomicUsize>::clone(&sent));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut request = String::new();
                while !request.ends_with("\r\n\r\n")
                    && reader.read_line(&mut request).is_ok_and(|count| count > 0)
                {}
                heard.lock().unwrap().push(request.clone());
                let (head, body, times) = answer(&request);
                let head = format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n");
                let mut written = stream.write_all(head.as_bytes());
                for _ in 0..times {
                    written = written.and_then(|()| stream.write_all(&body));
                    if written.is_err() {
                        break;
                    }
                    counted.fetch_add(body.len(), Ordering::SeqCst);
                }
            }
        });
        Self { url, requests, sent }
    }

    fn config(&self) -> GitHubConfig {
        let config = GitHubConfig::new("acme", "app").unwrap().api(&self.url).unwrap();
        config.token(Token::new("secret-token").unwrap()).state(None).limits(false)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// The most memory that this process ever had.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn the_token_follows_no_redirect() {
    let other = Server::start(|_| ("200 OK".into(), b"{}".to_vec(), 1));
    for status in ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"] {
        let target = other.url.clone();
        let answer = format!("{status}\r\nLocation: {target}/repositories/1/issues/7");
        let server = Server::start(move |_| (answer.clone(), Vec::new(), 0));
        HttpClient::new(&server.config()).unwrap().get_issue(7).unwrap_err();
        let ledger = GitHubStore::open(&server.config()).unwrap();
        let ledger = Arc::clone(ledger.ledger().unwrap().ledger());
        ledger.list("refs/sprag/locks/").unwrap_err();
        assert!(server.requests().iter().any(|request| request.contains("Bearer secret-token")));
    }
    // Nor does a list whose next page is elsewhere.
    let target = other.url.clone();
    let server = Server::start(move |_| {
        let next = format!("200 OK\r\nLink: <{target}/x?page=2>; rel=\"next\"");
        (next, b"[]".to_vec(), 1)
    });
    HttpClient::new(&server.config()).unwrap().list_comments(7).unwrap();
    assert_eq!(other.requests(), Vec::<String>::new());
}

#[test]
fn an_endless_answer_is_not_heard_out() {
    let values = b"0,".repeat(1 << 15);
    let endless = Server::start({
        let values = values.clone();
        move |_| ("200 OK".into(), values.clone(), usize::MAX)
    });
    let error = HttpClient::new(&endless.config()).unwrap().get_issue(7).unwrap_err();
    assert!(error.to_string().contains("more than 16 MiB"), "{error}");
    let sent = endless.sent.load(Ordering::SeqCst);
    assert!(sent < 40 << 20, "{sent} bytes were taken");
    // Millions of values in a few bytes each, as GraphQL's data and as the words of an error.
    for status in ["200 OK", "422 Unprocessable"] {
        let many = [b"{\"data\":[".as_slice(), &values.repeat(200), b"0]}"].concat();
        let server = Server::start(move |_| (status.into(), many.clone(), 1));
        let client = HttpClient::new(&server.config()).unwrap();
        let error = client.linked_pull_requests(7).unwrap_err();
        assert!(error.to_string().len() < 1_000, "{error}");
    }
    // A list that goes on and on.
    let comment = format!(r#"{{"id":1,"body":"{}"}},"#, "x".repeat(60_000));
    let page = format!("[{}{}]", comment.repeat(150), comment.trim_end_matches(','));
    let server = Server::start(move |_| {
        let next = "200 OK\r\nLink: <https://api.github.com/x?page=2>; rel=\"next\"";
        (next.into(), page.clone().into_bytes(), 1)
    });
    let error = HttpClient::new(&server.config()).unwrap().list_comments(7).unwrap_err();
    assert!(error.to_string().contains("more than 64 MiB"), "{error}");
    let peak = peak_kib();
    assert!(peak < MEMORY_KIB, "{peak} KiB were held");
}
