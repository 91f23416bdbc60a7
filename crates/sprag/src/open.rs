//! [`open`]: from a URL to a store. The one list of the stores in this build.

#[cfg(feature = "git")]
mod git;
#[cfg(feature = "github")]
mod github;
mod mark;
mod memory;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod password;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "redis")]
mod redlock;
#[cfg(feature = "postgres")]
mod service;
#[cfg(feature = "sqlite")]
mod sqlite;
mod url;

pub use self::mark::store_mark;

use std::sync::Arc;
use std::time::Duration;

use sprag_core::{Capability, Error, Operation, Result, Store};

use self::url::StoreUrl;

/// A kind of store in this build: what its URLs begin with, and how one is opened.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoreKind {
    /// What its URLs begin with, before the colon.
    pub scheme: &'static str,
    /// Other schemes that it answers for, be it to say that it cannot.
    pub(crate) also: &'static [&'static str],
    /// The forms of its URLs, and what each means.
    pub forms: &'static [(&'static str, &'static str)],
    /// Between whom its locks hold.
    pub between: &'static str,
    /// What breaks its promise, in a few words each.
    pub broken_by: &'static [&'static str],
    /// What it keeps in a database, as SQL, for people who may create it where sprag may not.
    pub sql: Option<&'static str>,
    /// What it can do, without opening one.
    pub capability: fn() -> Capability,
    open: fn(&StoreUrl<'_>) -> Result<Arc<dyn Store>>,
}

impl StoreKind {
    fn answers_for(&self, scheme: &str) -> bool {
        let mut schemes = std::iter::once(&self.scheme).chain(self.also);
        schemes.any(|known| known.eq_ignore_ascii_case(scheme))
    }
}

const KINDS: &[StoreKind] = &[
    memory::KIND,
    #[cfg(feature = "sqlite")]
    sqlite::KIND,
    #[cfg(feature = "redis")]
    redis::KIND,
    #[cfg(feature = "redis")]
    redlock::KIND,
    #[cfg(feature = "postgres")]
    postgres::KIND,
    #[cfg(feature = "git")]
    git::KIND,
    #[cfg(feature = "github")]
    github::KIND,
];

/// The kinds of stores in this build.
///
/// # Examples
///
/// ```
/// assert!(sprag::stores().iter().any(|kind| kind.scheme == "memory"));
/// ```
pub const fn stores() -> &'static [StoreKind] {
    KINDS
}

/// Shows a store's URL without user, password and parameters. What is no URL is not shown.
///
/// # Examples
///
/// ```
/// assert_eq!(sprag::redact("redis://me:secret@db:6379/1"), "redis://***@db:6379/1");
/// assert_eq!(sprag::redact("secret"), "...");
/// ```
pub fn redact(url: &str) -> String {
    StoreUrl::parse(url).map_or_else(|_| "...".to_owned(), |url| url.to_string())
}

/// How long a lease lasts on the store that `url` names, if nobody says how long.
///
/// # Examples
///
/// ```
/// assert_eq!(sprag::default_ttl("sqlite:").as_secs(), 30);
/// ```
pub fn default_ttl(url: &str) -> Duration {
    let scheme = StoreUrl::parse(url).map(|url| url.scheme);
    let kind =
        KINDS.iter().find(|kind| scheme.as_ref().is_ok_and(|scheme| kind.answers_for(scheme)));
    (kind.unwrap_or(&memory::KIND).capability)().default_ttl
}

/// Opens the store that `url` names.
///
/// | URL | store |
/// |---|---|
/// | `sqlite:` | the file of this user, `$XDG_STATE_HOME/sprag/sprag.db` |
/// | `sqlite:./locks.db`, `sqlite:///var/lib/app/locks.db` | another file |
/// | `sqlite:/srv/locks/locks.db?group=devs` | a file that the users in a group share |
/// | `system:` | the file of this machine, which root has made |
/// | `memory:` | a new store inside this process |
/// | `memory:NAME` | the store of that name inside this process |
/// | `redis://localhost:6379` | a Redis server |
/// | `rediss://`, `redis+unix:///run/redis.sock` | over TLS; on a Unix socket |
/// | `redis+sentinel://s1,s2/mymaster` | the master that sentinels name |
/// | `redis+cluster://n1,n2` | a Redis Cluster |
/// | `redlock://a:6379,b:6379,c:6379` | a majority of independent Redis servers |
/// | `postgres://localhost/app` | a PostgreSQL database |
/// | `git:origin`, `git+ssh://host/locks.git` | a git repository |
/// | `github://owner/repo`, `github://host/owner/repo` | a GitHub repository |
///
/// Blocks for as long as it takes to open a file or a connection.
///
/// # Errors
///
/// Bad input for a URL that is not understood, with what to write instead. Whatever it contains,
/// user names, passwords and parameters are not repeated in the message. Otherwise what the
/// store says: see [`Error`].
///
/// # Examples
///
/// ```
/// let store = sprag::open("memory:")?;
/// assert_eq!(store.capability().store, "memory");
///
/// let error = sprag::open("mysql://root:secret@db/locks").unwrap_err();
/// assert!(error.is_bad_input());
/// assert!(!error.to_string().contains("secret"));
/// # Ok::<(), sprag::Error>(())
/// ```
pub fn open(url: &str) -> Result<Arc<dyn Store>> {
    let url = StoreUrl::parse(url)?;
    match KINDS.iter().find(|kind| kind.answers_for(url.scheme)) {
        Some(kind) => (kind.open)(&url).map_err(|error| error.at(kind.scheme)),
        None => {
            let known = KINDS.iter().map(|kind| kind.scheme).collect::<Vec<_>>().join(" ");
            let hint = match left_out(url.scheme) {
                Some(feature) => {
                    format!(": turn on the feature `{feature}` of the crate `sprag` for this one")
                }
                None => String::new(),
            };
            let message = format!("unknown store \"{url}\"; this build supports: {known}{hint}");
            Err(Error::bad_input(Operation::Open, message))
        }
    }
}

/// The feature that would bring a store that this build does not have.
fn left_out(scheme: &str) -> Option<&'static str> {
    let scheme = scheme.to_ascii_lowercase();
    let feature = match scheme.split('+').next()? {
        "redis" | "rediss" | "redlock" => "redis",
        "postgres" | "postgresql" => "postgres",
        "sqlite" | "system" => "sqlite",
        "git" => "git",
        "github" => "github",
        _ => return None,
    };
    Some(feature)
}

#[cfg(test)]
mod tests {
    use super::open;

    #[test]
    fn an_unknown_scheme_is_answered_with_the_known_ones() {
        let error = open("mysql://db/locks").unwrap_err();
        assert!(error.is_bad_input());
        let message = error.to_string();
        assert!(message.starts_with(r#"cannot open: unknown store "mysql://db/locks""#));
        #[cfg(all(feature = "sqlite", feature = "redis", feature = "postgres", feature = "git"))]
        assert!(
            message.contains("; this build supports: memory sqlite redis redlock postgres git"),
            "{message}"
        );
    }

    #[test]
    fn the_case_of_the_scheme_does_not_matter() {
        assert_eq!(open("MEMORY:").unwrap().capability().store, "memory");
    }

    #[test]
    fn credentials_are_never_repeated() {
        for url in [
            "mysql://root:hunter2@db/locks",
            "mysql://root:hunter2@db:3306/locks?ssl=1#x",
            "mysql://db/locks?user=root&password=hunter2",
            "mysql://db/locks?password=x@hunter2",
            "mysql://db/locks?password=x&hunter2",
            "mysql://db/locks#hunter2",
            "mysql://root:hunter2/x@db/locks",
            "mysql://root:hunter2?x@db/locks",
            "mysql://root:x?hunter2",
            "mysql://root:x@hunter2@db",
            "mysql://db;password=hunter2",
            "jdbc:sqlserver://db;user=root;password=hunter2",
            "mysql:host=db password=hunter2",
            "root:hunter2@db",
            "host=db password=hunter2",
            "hunter2@db",
            "memory:x?password=hunter2",
            "memory://root:hunter2@x",
            "sqlite://root:hunter2@db/x",
            "sqlite:x.db?password=hunter2",
            "sqlite:x.db#hunter2",
            "redis://root:hunter2@db:port/0",
            "redis://root:hunter2@db/0?password=x",
            "redis://:hunter2@/0",
            "redis+unix:sock?password=hunter2",
            "postgres://root:hunter2@db:port/app",
            "postgres://root:hunter2@db",
            "postgres://db/app?pass=hunter2",
            "git+https://root:hunter2@host:port/x",
            "git+https://host/x?token=hunter2",
            "git+ssh://root:hunter2@host",
            "git:root:hunter2@host",
        ] {
            let error = open(url).unwrap_err();
            assert!(error.is_bad_input(), "{url}: {error:?}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{url}: {error:?}");
        }
    }
}
