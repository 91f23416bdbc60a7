//! [`Database`]: a database of one test, in a server that all tests of this user share.
//!
//! Making a cluster takes seconds, making a database in it does not. Tests run in processes of their
//! own, so the server belongs to none of them: each holds a shared lock on a file as long as it
//! lives, and a keeper ends the server when nobody does any more.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::OnceLock;

use super::{Place, free_port, shell};
use crate::support::scratch_folder;

/// Starts the server unless it is there. Where nothing has to last, nothing is flushed to the disk.
///
/// A test takes the lock on `users` before this, and the keeper takes it only together with the one
/// on `start`: so nobody starts what is being ended, and nobody ends what is being started.
const START: &str = r#"
exec 8> "$folder.start"
flock 8
if ! { [ -s "$folder/port" ] && "$bin/pg_isready" -q -h "$folder" -p "$(cat "$folder/port")"; }; then
  rm -rf "$folder"
  make
  launch -c fsync=off -c full_page_writes=off 8>&-
  until "$bin/pg_isready" -q -h "$folder" -p "$port"; do sleep 0.02; done
  {
    exec 8>&-
    while sleep 2; do
      if flock "$folder.start" flock -n "$folder.users" sh -c "kill -QUIT $server; rm -rf '$folder'"
      then exit; fi
    done
  } &
fi
"#;

/// A fresh database, gone with the test.
#[derive(Debug)]
pub struct Database {
    place: Place,
    name: String,
}

impl Database {
    /// Makes one.
    ///
    /// # Panics
    ///
    /// If there is no PostgreSQL on this machine.
    pub fn fresh() -> Self {
        let place = server().clone();
        let name = format!("test_{:016x}", fastrand::u64(..));
        let database = Self { place, name };
        let made = database.place.sql("postgres", &format!("CREATE DATABASE {}", database.name));
        made.unwrap_or_else(|error| panic!("no database: {error}"));
        database
    }

    /// Its URL, through the Unix socket.
    pub fn url(&self) -> String {
        self.place.url(&self.name)
    }

    /// Its URL, through TCP.
    pub fn tcp_url(&self) -> String {
        self.place.tcp_url(&self.name)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder of its server's socket.
    pub fn folder(&self) -> PathBuf {
        self.place.folder.clone()
    }

    /// Its server's port.
    pub const fn port(&self) -> u16 {
        self.place.port
    }

    /// Runs SQL as any other program would, and gives back its rows, or what is wrong.
    ///
    /// # Errors
    ///
    /// What PostgreSQL says.
    pub fn try_sql(&self, text: &str) -> Result<String, String> {
        self.place.sql(&self.name, text)
    }

    /// Runs SQL as any other program would, and gives back its rows.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn sql(&self, text: &str) -> String {
        self.place.sql(&self.name, text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Which processes of the server have the advisory lock of a key, one after the other.
    ///
    /// # Panics
    ///
    /// If it does not tell.
    pub fn holders_of(&self, key: i64) -> String {
        self.sql(&format!(
            "SELECT string_agg(pid::text, ' ') FROM pg_locks WHERE locktype = 'advisory' AND granted \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
             AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = {key}"
        ))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Whatever is left goes with the server.
        drop(self.place.sql("postgres", &format!("DROP DATABASE {} WITH (FORCE)", self.name)));
    }
}

/// The server that all share, started by whoever comes first.
fn server() -> &'static Place {
    static SERVER: OnceLock<(Place, File)> = OnceLock::new();
    let (place, _) = SERVER.get_or_init(|| {
        let user = rustix::process::getuid().as_raw();
        let folder = scratch_folder().join(format!("sprag-postgres-{user}"));
        let users = File::create(folder.with_extension("users")).expect("a file can be made");
        users.lock_shared().expect("files can be locked");
        let mut start = shell(START, &folder, free_port());
        let started = start.status().expect("there is a shell");
        assert!(started.success(), "no PostgreSQL server could be started: {started}");
        let port = fs::read_to_string(folder.join("port")).expect("the server has a port");
        let port = port.trim().parse().expect("a port is a number");
        (Place { folder, port }, users)
    });
    place
}
