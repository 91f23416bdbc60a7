//! [`PgBouncer`]: a connection pool in front of a server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::{free_port, shell};
use crate::support::eventually;

const KEEPER: &str = r#"
[ -z "$drop" ] || chown -R postgres "$folder"
$drop pgbouncer -q "$folder/pgbouncer.ini" &
pool=$!
read -r never
kill -9 $pool
wait $pool
rm -rf "$folder"
"#;

/// For how long a client keeps its connection to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// For as long as it is connected.
    Session,
    /// For one transaction.
    Transaction,
}

/// A PgBouncer with two connections to the server for each database.
#[derive(Debug)]
pub struct PgBouncer {
    folder: PathBuf,
    port: u16,
    keeper: Child,
}

impl PgBouncer {
    /// Starts one in front of the server whose socket is in `folder`, and waits until it listens.
    ///
    /// # Panics
    ///
    /// If there is none to start.
    pub async fn start(mode: PoolMode, server: &Path, server_port: u16) -> Self {
        let folder = tempfile::tempdir().expect("there is room for temporary files").keep();
        let port = free_port();
        let mode = if mode == PoolMode::Session { "session" } else { "transaction" };
        let server = server.display();
        let settings = format!(
            "[databases]\n* = host={server} port={server_port} user=postgres\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = {mode}\ndefault_pool_size = 2\nmax_client_conn = 200\n"
        );
        fs::write(folder.join("pgbouncer.ini"), settings).expect("a file can be written");
        let mut keeper = shell(KEEPER, &folder, port);
        let keeper = keeper.stdin(Stdio::piped()).spawn().expect("there is a shell");
        let pool = Self { folder, port, keeper };
        let listens = || async { std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() };
        eventually("pgbouncer listens; if it is missing: apt-get install pgbouncer", listens).await;
        pool
    }

    /// The URL of a database through it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Where it listens.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Where it lives.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // It can only fail if somebody else waited for it.
        drop(self.keeper.wait());
    }
}
