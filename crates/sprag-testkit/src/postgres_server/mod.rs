//! Real PostgreSQL servers for tests: [`Database`] in one that all tests share, [`PostgresServer`]
//! for those that stop it, [`PgBouncer`] in front of either, and [`Psql`] beside us.
//!
//! PostgreSQL refuses to run as root, so everything is started as the user `postgres` then.

mod bouncer;
mod database;
mod private;
mod psql;

pub use bouncer::{PgBouncer, PoolMode};
pub use database::Database;
pub use private::PostgresServer;
pub use psql::Psql;

use std::fs;
use std::io::{Seek as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What every script begins with: how a server is made and launched. `$folder`, `$bin` and `$port`
/// are set.
const LAUNCH: &str = r#"
drop=
if [ "$(id -u)" = 0 ]; then
  drop="setpriv --reuid=postgres --regid=postgres --clear-groups"
fi
make() {
  mkdir -p "$folder"
  [ -z "$drop" ] || chown postgres "$folder"
  cd "$folder"
  $drop "$bin/initdb" --no-sync --auth=trust --username=postgres --encoding=UTF8 --locale=C \
    --pgdata=data
  # Who is called "locked" needs a password.
  printf 'host all locked all scram-sha-256\n%s\nhost all all samenet trust\n' \
    "$(cat data/pg_hba.conf)" > data/pg_hba.conf
  $drop openssl req -x509 -new -nodes -days 3650 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    -addext basicConstraints=critical,CA:FALSE -keyout data/server.key -out data/server.crt
  echo "$port" > port
}
launch() {
  $drop "$bin/postgres" -D data -k "$folder" -p "$port" -h 127.0.0.1 -c ssl=on \
    -c max_connections=300 -c shared_buffers=32MB -c log_min_messages=fatal "$@" &
  server=$!
}
"#;

/// Whether tests with a PostgreSQL server were declined: `SPRAG_SKIP=postgres`.
pub fn skipped() -> bool {
    std::env::var("SPRAG_SKIP").is_ok_and(|list| list.split(',').any(|name| name == "postgres"))
}

/// The newest PostgreSQL of this machine.
fn binaries() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(number);
    match newest.map(|version| version.join("bin")) {
        Some(binaries) if binaries.join("postgres").exists() => binaries,
        _ => panic!(
            "PostgreSQL is missing; please type:\n  sudo apt-get install -y postgresql pgbouncer\n\
             or leave out its tests with SPRAG_SKIP=postgres"
        ),
    }
}

/// A shell that runs `script`, in a group of its own: who kills the test with its group must leave
/// it alone.
fn shell(script: &str, folder: &Path, port: u16) -> Command {
    use std::os::unix::process::CommandExt;
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{LAUNCH}{script}")).env("folder", folder);
    shell.env("bin", binaries()).env("port", port.to_string()).process_group(0);
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    shell
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.expect("there is a free port").port()
}

/// Where a server listens.
#[derive(Clone, Debug)]
struct Place {
    folder: PathBuf,
    port: u16,
}

impl Place {
    /// The URL of a database, through the Unix socket.
    fn url(&self, database: &str) -> String {
        let folder = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{folder}:{}/{database}", self.port)
    }

    /// The URL of a database, through TCP.
    fn tcp_url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Runs SQL as any other program would, and gives back its rows, or what is wrong.
    fn sql(&self, database: &str, text: &str) -> Result<String, String> {
        let mut psql = Command::new(binaries().join("psql"));
        psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres"]);
        psql.arg("-h").arg(&self.folder).args(["-p", &self.port.to_string(), "-d", database]);
        // No argument may be as long as the schema.
        if text.len() < 100_000 {
            psql.args(["-c", text]).stdin(Stdio::null());
        } else {
            let mut file = tempfile::tempfile().expect("there is room for temporary files");
            file.write_all(text.as_bytes()).expect("it can be written");
            file.rewind().expect("it can be read");
            psql.args(["-f", "-"]).stdin(file);
        }
        let output = psql.output().expect("psql comes with PostgreSQL");
        let read = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end().to_owned();
        if output.status.success() { Ok(read(output.stdout)) } else { Err(read(output.stderr)) }
    }

    fn answers(&self) -> bool {
        // Whoever asks where nobody listens keeps a busy machine busy.
        let socket = self.folder.join(format!(".s.PGSQL.{}", self.port));
        socket.exists() && self.sql("postgres", "SELECT 1").is_ok()
    }
}
