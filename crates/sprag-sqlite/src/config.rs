//! [`SqliteConfig`]: where the store is and how patient it is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock};
use sprag_core::home::state_folder;
use sprag_core::{Error, ErrorKind, Operation, Result};

/// How to open a [`SqliteStore`](crate::SqliteStore).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sprag_sqlite::SqliteConfig;
///
/// let config = SqliteConfig::new("/run/builds/sprag.db").busy_timeout(Duration::from_millis(200));
/// ```
#[derive(Clone, Debug)]
pub struct SqliteConfig {
    pub(crate) path: PathBuf,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) busy_timeout: Duration,
    pub(crate) boot_id: Option<String>,
    pub(crate) max_free_records: u32,
}

impl SqliteConfig {
    /// The database file at `path`, with the defaults.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            clock: Arc::new(BootClock),
            busy_timeout: Duration::from_secs(1),
            boot_id: None,
            max_free_records: 10_000,
        }
    }

    /// The clock that ends leases. All processes must use the same; others than the machine's
    /// are for tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// How long a request waits for its turn to write before it is answered as busy; 1 s by
    /// default. Only a process that was stopped in the middle of a write makes others wait so
    /// long.
    #[must_use]
    pub const fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// What tells one run of the machine from the next; the kernel's boot id by default. Other
    /// values are for tests.
    #[must_use]
    pub fn boot_id(mut self, boot_id: impl Into<String>) -> Self {
        self.boot_id = Some(boot_id.into());
        self
    }

    /// How many records of free locks are kept before the store cleans them up; 10,000 by
    /// default. Fences keep growing over a clean-up.
    #[must_use]
    pub const fn max_free_records(mut self, records: u32) -> Self {
        self.max_free_records = records;
        self
    }
}

/// The database file of this user: `$XDG_STATE_HOME/sprag/sprag.db`, else
/// `$HOME/.local/state/sprag/sprag.db`. `env` looks up a variable.
///
/// # Errors
///
/// If neither variable is set to an absolute path.
///
/// # Examples
///
/// ```
/// let path = sprag_sqlite::default_path(|name| (name == "HOME").then(|| "/users/ada".into()))?;
/// assert_eq!(path.to_str(), Some("/users/ada/.local/state/sprag/sprag.db"));
/// # Ok::<(), sprag_core::Error>(())
/// ```
pub fn default_path(env: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    // A relative path would be another store in each working directory: locks that exclude
    // nobody.
    state_folder(env).map(|state| state.join("sprag.db")).ok_or_else(|| {
        let message = "neither XDG_STATE_HOME nor HOME is set to an absolute path: set one, or \
                       name the database file";
        Error::new(ErrorKind::Refused, Operation::Open, message).at("sqlite")
    })
}

#[cfg(test)]
mod tests {
    use super::default_path;

    #[test]
    fn the_state_directory_comes_first_and_relative_paths_do_not_count() {
        let env = |state: &'static str, home: &'static str| {
            default_path(move |name| match name {
                "XDG_STATE_HOME" => (!state.is_empty()).then(|| state.into()),
                "HOME" => (!home.is_empty()).then(|| home.into()),
                _ => None,
            })
        };
        assert_eq!(env("/s", "/h").unwrap().to_str(), Some("/s/sprag/sprag.db"));
        let home = "/h/.local/state/sprag/sprag.db";
        assert_eq!(env("s", "/h").unwrap().to_str(), Some(home));
        assert_eq!(env("", "/h").unwrap().to_str(), Some(home));
        assert!(env("s", "").unwrap_err().is_refused());
    }
}
