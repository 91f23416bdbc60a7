//! [`Psql`]: another program in a database.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use super::{Database, binaries};

/// A program that does not know sprag, with a session of its own, which it has until this is dropped.
#[derive(Debug)]
pub struct Psql(Child);

impl Psql {
    /// Connects as the administrator, does what the statement says, and waits for the next one, which
    /// never comes.
    ///
    /// # Panics
    ///
    /// If there is no PostgreSQL on this machine.
    pub fn hold(database: &Database, statement: &str) -> Self {
        let mut psql = Command::new(binaries().join("psql"));
        psql.args(["-X", "-q", "-U", "postgres", "-d", database.name(), "-h"]);
        psql.arg(database.folder()).args(["-p", &database.port().to_string()]);
        let psql = psql.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let mut psql = Self(psql.expect("psql comes with PostgreSQL"));
        let input = psql.0.stdin.as_mut().expect("it reads");
        writeln!(input, "{statement};").expect("it reads");
        psql
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
