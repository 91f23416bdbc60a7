//! [`SqliteConfig`]: where the store is and how patient it is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock};
use sprag_core::home::state_folder;
use sprag_core::{Error, ErrorKind, Operation, Result};

use crate::accounts;
use crate::sharing::Sharing;
use crate::system;

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
    pub(crate) users: Users,
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
            users: Users::Own,
            clock: Arc::new(BootClock),
            busy_timeout: Duration::from_secs(1),
            boot_id: None,
            max_free_records: 10_000,
        }
    }

    /// The store of the whole machine, for the group for which root has made it with
    /// [`make_system_store`](crate::make_system_store).
    pub fn system() -> Self {
        Self { users: Users::Root(None), ..Self::new(system::system_path()) }
    }

    /// Shares the store with all users of this group: the database and all files beside it belong to the
    /// group, also those that are made later, whatever the umask is. They have to be in a folder of their
    /// own, which is made if it is missing.
    #[must_use]
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.users = match self.users {
            Users::Root(_) => Users::Root(Some(name.into())),
            _ => Users::Group(name.into()),
        };
        self
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

/// Which users may use a store.
#[derive(Clone, Debug)]
pub(crate) enum Users {
    /// The one who made it.
    Own,
    /// Those in this group.
    Group(String),
    /// Those in the group for which root has made it, which has to be this one.
    Root(Option<String>),
}

impl Users {
    /// For whom the files beside `database` are.
    pub(crate) fn sharing(&self, database: &Path) -> Result<Sharing> {
        let named = |name: &str| accounts::group_number(name);
        match self {
            Self::Own => Ok(Sharing::of(database)),
            Self::Group(name) => named(name).map(Sharing::Group),
            Self::Root(name) => {
                let group = system::group_of(database)?;
                match name.as_deref().map(named).transpose()? {
                    Some(other) if other != group => {
                        let message = format!(
                            "the store of the whole machine is for the group {}",
                            accounts::group_name(group)
                        );
                        Err(Error::new(ErrorKind::Refused, Operation::Open, message).at("sqlite"))
                    }
                    _ => Ok(Sharing::Group(group)),
                }
            }
        }
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
        let message = "there is no home for the locks of this user, because neither HOME nor \
                       XDG_STATE_HOME is set to an absolute path, as in a service of systemd: set \
                       SPRAG_STORE=system: for the store of the whole machine, or give the service \
                       a StateDirectory=NAME and set SPRAG_STORE=sqlite:/var/lib/NAME/locks.db";
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
