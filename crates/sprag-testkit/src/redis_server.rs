//! [`RedisServer`]: a private `redis-server`, gone with the test that started it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::eventually;

/// Waits until its input ends, which it does however the test ends; then ends the server and
/// removes its folder.
const KEEPER: &str = r#"
redis-server "$@" &
server=$!
read -r never
kill -9 $server
wait $server
rm -rf "$0"
"#;

const LIMIT: Duration = Duration::from_secs(10);

/// A Redis server in a temporary folder, on a Unix socket.
#[derive(Debug)]
pub struct RedisServer {
    folder: PathBuf,
    keeper: Child,
}

impl RedisServer {
    /// Whether tests with a Redis server were declined: `SPRAG_SKIP=redis`.
    pub fn skipped() -> bool {
        std::env::var("SPRAG_SKIP").is_ok_and(|list| list.split(',').any(|name| name == "redis"))
    }

    /// Starts a server with these options beside its own, and waits until it answers.
    ///
    /// # Panics
    ///
    /// If there is none to start.
    pub async fn start(options: &[&str]) -> Self {
        let mut version = Command::new("redis-server");
        version.arg("--version").stdout(Stdio::null());
        assert!(
            version.status().is_ok_and(|status| status.success()),
            "`redis-server` is missing; please type:\n  sudo apt-get install -y redis-server\n\
             or leave out its tests with SPRAG_SKIP=redis"
        );
        let folder = tempfile::tempdir().expect("there is room for temporary files").keep();
        let socket = folder.join("redis.sock");
        let mut keeper = Command::new("sh");
        keeper.arg("-c").arg(KEEPER).arg(&folder).args(["--port", "0", "--save", ""]);
        keeper.arg("--unixsocket").arg(&socket).arg("--dir").arg(&folder).args(options);
        // A group of its own: who kills the test with its group must leave the keeper alone.
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let keeper = keeper.spawn().expect("there is a shell");
        let server = Self { folder, keeper };
        // One that wants a password first answers too.
        let ready = |answer: String| answer == "PONG" || answer.starts_with("NOAUTH");
        let answers = || async { server.connect().is_ok() && ready(server.ask(&["PING"])) };
        eventually("the server answers", answers).await;
        server
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("redis.sock")
    }

    /// How it is opened.
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Sends one command on a connection of its own, as any other program would, and gives back
    /// the answer as text; nothing for nil.
    ///
    /// # Panics
    ///
    /// If there is no answer.
    pub fn ask(&self, words: &[&str]) -> String {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        let mut stream = self.connect().expect("the server is there");
        stream.write_all(request.as_bytes()).expect("the server listens");
        let mut answer = BufReader::new(stream);
        let mut line = String::new();
        answer.read_line(&mut line).expect("the server answers");
        let (kind, rest) = line.trim_end().split_at(1);
        match (kind, rest.parse::<usize>()) {
            ("$", Ok(length)) => {
                let mut text = vec![0; length];
                answer.read_exact(&mut text).expect("the answer is whole");
                String::from_utf8(text).expect("the answer is text")
            }
            ("$", Err(_)) => String::new(),
            _ => rest.to_owned(),
        }
    }

    fn connect(&self) -> std::io::Result<UnixStream> {
        let stream = UnixStream::connect(self.socket())?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(stream)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // It can only fail if somebody else waited for it.
        drop(self.keeper.wait());
    }
}
