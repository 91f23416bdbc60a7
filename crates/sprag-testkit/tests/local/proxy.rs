//! The network that can be broken: what each fault does to a client and to a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sprag_testkit::proxy::{Direction, Fault, Flow, Proxy};
use sprag_testkit::support::{eventually, let_time_pass, timed, within};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Longer than anything takes on this machine that is not held up.
const MOMENT: Duration = Duration::from_millis(100);

/// A server that says everything twice, and counts what it hears. At the end of its input it says
/// goodbye.
struct Twice {
    proxy: Proxy,
    heard: Arc<AtomicUsize>,
}

impl Twice {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
        let proxy = Proxy::start(listener.local_addr().expect("it listens").to_string());
        let heard = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&heard);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let counter = Arc::clone(&counter);
                tokio::spawn(async move {
                    let mut buffer = [0; 1024];
                    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                        counter.fetch_add(count, Ordering::SeqCst);
                        let text = [&buffer[..count], &buffer[..count]].concat();
                        if stream.write_all(&text).await.is_err() {
                            return;
                        }
                    }
                    drop(stream.write_all(b"bye").await);
                });
            }
        });
        Self { proxy, heard }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.proxy.address()).await.expect("the proxy listens")
    }

    fn heard(&self) -> usize {
        self.heard.load(Ordering::SeqCst)
    }

    async fn until_heard(&self, count: usize) {
        eventually("the server hears it", || async { self.heard() == count }).await;
    }
}

/// Reads so many bytes.
async fn hear(stream: &mut TcpStream, count: usize) -> String {
    let mut bytes = vec![0; count];
    within("an answer", stream.read_exact(&mut bytes)).await.expect("the answer is whole");
    String::from_utf8(bytes).expect("the answer is text")
}

async fn say(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.expect("the connection is there");
}

/// The reset may come before connecting has returned.
async fn is_refused(proxy: &Proxy) -> bool {
    match TcpStream::connect(proxy.address()).await {
        Ok(mut stream) => is_reset(&mut stream).await,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// Whether the connection was reset; closed in order does not count.
async fn is_reset(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match within("the end", stream.read_to_end(&mut rest)).await {
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        Ok(_) => false,
    }
}

/// Whether nothing comes for a moment.
async fn is_silent(stream: &TcpStream) -> bool {
    tokio::time::timeout(MOMENT, stream.peek(&mut [0])).await.is_err()
}

#[tokio::test]
async fn unbroken_it_changes_nothing() {
    let server = Twice::start().await;
    let mut one = server.connect().await;
    say(&mut one, "ab").await;
    assert_eq!(hear(&mut one, 4).await, "abab");
    let two = server.connect().await;
    eventually("both are open", || async { server.proxy.lines() == [0, 1] }).await;
    // The end of the requests is passed on, and so is what is said after it.
    one.shutdown().await.unwrap();
    assert_eq!(hear(&mut one, 3).await, "bye");
    drop((one, two));
    eventually("both are closed", || async { server.proxy.lines().is_empty() }).await;
    assert_eq!(server.proxy.count(), 2);
}

#[tokio::test]
async fn a_delay_holds_up_one_direction() {
    let server = Twice::start().await;
    let mut stream = server.connect().await;
    server.proxy.set(Direction::Reply, Flow::Delayed(3 * MOMENT, MOMENT));
    let (_, took) = timed(async {
        say(&mut stream, "ab").await;
        server.until_heard(2).await;
    })
    .await;
    assert!(took < 3 * MOMENT, "the request was held up: {took:?}");
    let ((), took) = timed(async { drop(hear(&mut stream, 4).await) }).await;
    assert!(took >= 2 * MOMENT, "{took:?}");
}

#[tokio::test]
async fn a_request_is_cut_after_some_bytes() {
    let server = Twice::start().await;
    let mut stream = server.connect().await;
    server.proxy.once("cd", Fault::CutRequest(3));
    say(&mut stream, "ab").await;
    assert_eq!(hear(&mut stream, 4).await, "abab");
    say(&mut stream, "cdef").await;
    assert!(is_reset(&mut stream).await);
    server.until_heard(5).await;
}

#[tokio::test]
async fn a_reply_is_cut_after_the_server_has_done_its_work() {
    let server = Twice::start().await;
    server.proxy.times(2, "a", Fault::CutReply(0));
    for heard in [2, 4] {
        let mut stream = server.connect().await;
        say(&mut stream, "ab").await;
        assert!(is_reset(&mut stream).await);
        assert_eq!(server.heard(), heard);
    }
    server.proxy.once("a", Fault::CutReply(3));
    let mut stream = server.connect().await;
    say(&mut stream, "ab").await;
    assert_eq!(hear(&mut stream, 3).await, "aba");
    assert!(is_reset(&mut stream).await);
    let mut stream = server.connect().await;
    say(&mut stream, "ab").await;
    assert_eq!(hear(&mut stream, 4).await, "abab", "it was for one request");
}

#[tokio::test]
async fn what_is_frozen_arrives_when_it_is_let() {
    let server = Twice::start().await;
    let (mut frozen, mut other) = (server.connect().await, server.connect().await);
    eventually("both are open", || async { server.proxy.lines() == [0, 1] }).await;
    server.proxy.set_line(0, Direction::Request, Flow::Frozen);
    say(&mut frozen, "ab").await;
    say(&mut other, "cd").await;
    assert_eq!(hear(&mut other, 4).await, "cdcd");
    assert!(is_silent(&frozen).await);
    assert_eq!(server.heard(), 2, "the request came through");
    server.proxy.set_line(0, Direction::Request, Flow::Open);
    assert_eq!(hear(&mut frozen, 4).await, "abab");

    server.proxy.freeze();
    let mut new = server.connect().await;
    say(&mut new, "ef").await;
    assert!(is_silent(&new).await && server.heard() == 4);
    // Whoever gave up has still asked.
    drop(new);
    server.proxy.heal();
    server.until_heard(6).await;
}

#[tokio::test]
async fn a_hole_swallows_everything_and_tells_nobody() {
    let server = Twice::start().await;
    let mut stream = server.connect().await;
    say(&mut stream, "ab").await;
    assert_eq!(hear(&mut stream, 4).await, "abab");
    server.proxy.lose_everything();
    say(&mut stream, "cd").await;
    let mut new = server.connect().await;
    say(&mut new, "ef").await;
    assert!(is_silent(&stream).await && is_silent(&new).await);
    assert_eq!(server.heard(), 2);
    server.proxy.heal();
    assert!(is_reset(&mut stream).await, "the rest would make no sense");
    let mut stream = server.connect().await;
    say(&mut stream, "gh").await;
    assert_eq!(hear(&mut stream, 4).await, "ghgh");
}

#[tokio::test]
async fn half_closed_it_still_answers() {
    let server = Twice::start().await;
    let mut stream = server.connect().await;
    server.proxy.once("ab", Fault::HalfClose);
    say(&mut stream, "ab").await;
    assert_eq!(hear(&mut stream, 7).await, "ababbye");
}

#[tokio::test]
async fn connections_are_reset_and_refused() {
    let server = Twice::start().await;
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    eventually("both are open", || async { server.proxy.lines() == [0, 1] }).await;
    server.proxy.reset(0);
    assert!(is_reset(&mut one).await);
    say(&mut two, "ab").await;
    assert_eq!(hear(&mut two, 4).await, "abab");
    server.proxy.reset_all();
    assert!(is_reset(&mut two).await);
    server.proxy.refuse(true);
    assert!(is_refused(&server.proxy).await);
    server.proxy.heal();
    say(&mut server.connect().await, "cd").await;
    server.until_heard(4).await;
    assert_eq!(server.proxy.count(), 4);
    let gone = Proxy::start("127.0.0.1:1");
    assert!(is_refused(&gone).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_captured_request_is_sent_once_more() {
    let server = Twice::start().await;
    let mut stream = server.connect().await;
    say(&mut stream, "ab").await;
    assert_eq!(hear(&mut stream, 4).await, "abab");
    drop(stream);
    let captured = server.proxy.captured();
    assert_eq!((captured.len(), captured[0].line, server.proxy.saw("b")), (1, 0, 1));
    assert_eq!(server.proxy.replay(&captured[0]), b"abab");
    assert_eq!((server.heard(), server.proxy.count()), (4, 1));
}

/// A test that blocks its runtime does not stop the network.
#[tokio::test]
async fn it_works_while_the_runtime_of_the_test_does_not() {
    let redis = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(redis.local_addr().unwrap().to_string());
    let mut client = std::net::TcpStream::connect(proxy.address()).unwrap();
    std::io::Write::write_all(&mut client, b"ab").unwrap();
    let (mut server, _) = redis.accept().unwrap();
    let mut bytes = [0; 2];
    std::io::Read::read_exact(&mut server, &mut bytes).unwrap();
    assert_eq!(&bytes, b"ab");
    let_time_pass(Duration::ZERO).await;
}
