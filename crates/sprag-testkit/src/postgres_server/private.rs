//! [`PostgresServer`]: a server of one test, which may stop and restart it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{Place, free_port, shell};
use crate::redis_server::ShiftedClock;
use crate::support::{eventually, eventually_within};

/// How long it may take until a server answers: its files are made, or repaired, before.
const START: Duration = Duration::from_secs(60);

/// Does what it is told until its input ends, which it does however the test ends; then ends the
/// server and removes its folder.
const KEEPER: &str = r#"
murder() {
  # One that is stopped has no more children, and the next server needs all of them to be gone.
  kill -STOP $server
  children=$(grep -ls "^PPid:[[:space:]]*$server\$" /proc/[0-9]*/status | cut -d/ -f3)
  kill -KILL $children $server
  wait $server
  for child in $children; do
    while [ -e /proc/$child/exe ]; do sleep 0.01; done
  done
}
if [ -z "$primary" ]; then
  make
else
  mkdir -p "$folder"
  [ -z "$drop" ] || chown postgres "$folder"
  cd "$folder"
  $drop "$bin/pg_basebackup" --host "$primary" --port "$primary_port" --username postgres \
    --pgdata data --write-recovery-conf --checkpoint fast --no-sync
fi
launch "$@"
while read -r word; do
  case $word in
    stop) kill -INT $server; wait $server ;;
    kill) kill -QUIT $server; wait $server ;;
    murder) murder ;;
    promote) $drop "$bin/pg_ctl" promote -D data ;;
    start) launch "$@" ;;
  esac
done
kill -QUIT $server
wait $server
rm -rf "$folder"
"#;

/// A PostgreSQL server in a temporary folder, gone with the test that started it.
#[derive(Debug)]
pub struct PostgresServer {
    place: Place,
    keeper: Child,
}

impl PostgresServer {
    /// Starts a server with these options beside its own, such as `["-c", "fsync=off"]`, and waits
    /// until it answers.
    ///
    /// # Panics
    ///
    /// If there is none to start.
    pub async fn start(options: &[&str]) -> Self {
        Self::launch(options, None, None).await
    }

    /// Starts a server that lives by a clock which can be shifted.
    ///
    /// # Panics
    ///
    /// If there is none to start.
    pub async fn start_with_clock(clock: &ShiftedClock) -> Self {
        Self::launch(&[], None, Some(clock)).await
    }

    /// Starts a standby of this server, which follows it without being waited for.
    ///
    /// # Panics
    ///
    /// If there is none to start.
    pub async fn start_standby(&self) -> Self {
        Self::launch(&[], Some(&self.place), None).await
    }

    async fn launch(
        options: &[&str],
        primary: Option<&Place>,
        clock: Option<&ShiftedClock>,
    ) -> Self {
        let folder = tempfile::tempdir().expect("there is room for temporary files").keep();
        let place = Place { folder, port: free_port() };
        let mut keeper = shell(KEEPER, &place.folder, place.port);
        keeper.arg("keeper").args(options).env_remove("primary");
        if let Some(primary) = primary {
            keeper.env("primary", &primary.folder).env("primary_port", primary.port.to_string());
        }
        keeper.envs(clock.iter().flat_map(|clock| clock.variables()));
        let keeper = keeper.stdin(Stdio::piped()).spawn().expect("there is a shell");
        let server = Self { place, keeper };
        server.ready().await;
        server
    }

    /// The URL of a database, through the Unix socket.
    pub fn url(&self, database: &str) -> String {
        self.place.url(database)
    }

    /// The URL of a database, through TCP.
    pub fn tcp_url(&self, database: &str) -> String {
        self.place.tcp_url(database)
    }

    /// The folder of its socket.
    pub fn folder(&self) -> PathBuf {
        self.place.folder.clone()
    }

    /// Its port.
    pub const fn port(&self) -> u16 {
        self.place.port
    }

    /// Runs SQL in a database as any other program would, and gives back its rows.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn sql(&self, database: &str, text: &str) -> String {
        self.place.sql(database, text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Stops it: its connections are cut, its data is written.
    pub async fn stop(&mut self) {
        self.tell("stop").await;
    }

    /// Ends it on the spot, as a crash would.
    pub async fn kill(&mut self) {
        self.tell("kill").await;
    }

    /// Kills all of it, without a chance to do anything about it.
    pub async fn murder(&mut self) {
        self.tell("murder").await;
    }

    /// Stops the process that brings to the disk what nobody waits for, until the next crash.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn stop_writer(&self) {
        self.signal_writer(Signal::STOP);
    }

    /// Kills one of its processes; it ends all others then, and starts again by itself.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub async fn crash(&self) {
        let before = self.signal_writer(Signal::KILL);
        let crashed = || async { self.writer().is_ok_and(|writer| writer != before) };
        eventually_within(START, "the server has crashed and answers", crashed).await;
    }

    fn writer(&self) -> Result<String, String> {
        let writer = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'";
        let pid = self.place.sql("postgres", writer)?;
        if pid.is_empty() { Err("there is none yet".into()) } else { Ok(pid) }
    }

    fn signal_writer(&self, signal: Signal) -> String {
        let writer = self.writer().expect("the server has a process that writes");
        let pid = writer.parse().ok().and_then(Pid::from_raw).expect("a process has a number");
        kill_process(pid, signal).expect("it is ours");
        writer
    }

    /// Makes a standby a primary.
    pub async fn promote(&mut self) {
        self.say("promote");
        let is_standby = "SELECT pg_is_in_recovery()";
        eventually("it is promoted", || async { self.sql("postgres", is_standby) == "f" }).await;
    }

    /// Starts it again.
    pub async fn start_again(&mut self) {
        self.say("start");
        self.ready().await;
    }

    async fn tell(&mut self, word: &str) {
        self.say(word);
        eventually("the server is gone", || async { !self.place.answers() }).await;
    }

    fn say(&mut self, word: &str) {
        let input = self.keeper.stdin.as_mut().expect("the keeper listens");
        writeln!(input, "{word}").expect("the keeper listens");
    }

    async fn ready(&self) {
        eventually_within(START, "the server answers", || async { self.place.answers() }).await;
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // It can only fail if somebody else waited for it.
        drop(self.keeper.wait());
    }
}
