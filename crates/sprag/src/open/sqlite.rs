//! `sqlite:`, `sqlite:./locks.db`, `sqlite:///abs.db`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sprag_core::{Result, Store};
use sprag_sqlite::{SqliteConfig, SqliteStore, default_path};

use super::StoreKind;
use super::url::StoreUrl;

pub(super) const KIND: StoreKind = StoreKind {
    scheme: "sqlite",
    also: &["system"],
    forms: &[
        ("sqlite:", "the file of this user, $XDG_STATE_HOME/sprag/sprag.db"),
        ("sqlite:./locks.db", "a file in the working directory"),
        ("sqlite:///var/lib/app/locks.db", "a file by its absolute path"),
        ("sqlite:/srv/locks/locks.db?group=NAME", "a file that the users in a group share"),
        ("system:", "the file of this machine, made once by sudo sprag stores --make-system"),
    ],
    between: "the processes of one user; of several with system:",
    broken_by: &[
        "somebody who deletes or replaces the file while it is used",
        "a file system that loses what was written and flushed",
    ],
    sql: None,
    capability: SqliteStore::ability,
    open,
};

const PARAMETERS: &[&str] = &["busy_timeout_ms", "max_free_records", "group"];

fn open(url: &StoreUrl<'_>) -> Result<Arc<dyn Store>> {
    let mut config = match url.scheme.to_ascii_lowercase().as_str() {
        "system" if url.rest.is_empty() => SqliteConfig::system(),
        "system" => return Err(url.bad("names a place; write system: or sqlite:/DIR/locks.db")),
        _ => SqliteConfig::new(path(url, |name| std::env::var_os(name))?),
    };
    for (name, value) in url.parameters() {
        let number = || {
            let bad = |_| url.bad(&format!("has no number from 0 to {} in {name}", u32::MAX));
            value.parse::<u32>().map_err(bad)
        };
        config = match name {
            "busy_timeout_ms" => config.busy_timeout(Duration::from_millis(number()?.into())),
            "group" if value.is_empty() => return Err(url.bad("has no name in group")),
            "group" => config.group(text(url, value)?),
            "max_free_records" => config.max_free_records(number()?),
            _ => return Err(url.unknown_parameter(PARAMETERS)),
        };
    }
    Ok(Arc::new(SqliteStore::with_config(config)?))
}

/// The database file that a URL names.
pub(super) fn file(url: &StoreUrl<'_>) -> Result<PathBuf> {
    match url.scheme.eq_ignore_ascii_case("system") {
        true => Ok(sprag_sqlite::system_path()),
        false => path(url, |name| std::env::var_os(name)),
    }
}

fn text(url: &StoreUrl<'_>, value: &str) -> Result<String> {
    String::from_utf8(url.decode(value)?).map_err(|_| url.bad("has no text in group"))
}

fn path(url: &StoreUrl<'_>, env: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    if url.rest.is_empty() {
        return default_path(env);
    }
    if url.rest == ":memory:" {
        return Err(url.bad("would be seen by nobody else; write memory: for a store in memory"));
    }
    let path = url.decoded()?;
    let path = match path.strip_prefix(b"//") {
        None => &path[..],
        Some(path) if path.starts_with(b"/") => path,
        // Some programs take this for a relative path, others for a host.
        Some(_) => {
            return Err(url.bad(
                "has a host; write sqlite:locks.db for a file in the working directory or \
                 sqlite:///locks.db for an absolute path",
            ));
        }
    };
    Ok(OsString::from_vec(path.to_vec()).into())
}

#[cfg(test)]
mod tests {
    use super::{StoreUrl, path};
    use crate::Locks;

    fn path_of(url: &str) -> sprag_core::Result<String> {
        let env = |name: &str| (name == "XDG_STATE_HOME").then(|| "/state".into());
        let path = path(&StoreUrl::parse(url).unwrap(), env)?;
        Ok(path.into_os_string().into_string().unwrap())
    }

    #[test]
    fn each_form_means_one_file() {
        for (url, file) in [
            ("sqlite:", "/state/sprag/sprag.db"),
            ("sqlite:?busy_timeout_ms=1", "/state/sprag/sprag.db"),
            ("sqlite:./locks.db", "./locks.db"),
            ("sqlite:locks.db", "locks.db"),
            ("sqlite:/var/locks.db", "/var/locks.db"),
            ("sqlite:///var/locks.db", "/var/locks.db"),
            ("sqlite:a%20b%3F.db", "a b?.db"),
        ] {
            assert_eq!(path_of(url).unwrap(), file, "{url}");
        }
    }

    #[test]
    fn forms_with_two_meanings_are_refused() {
        for url in ["sqlite://locks.db", "sqlite://host/x.db", "sqlite://", "sqlite::memory:"] {
            assert!(path_of(url).unwrap_err().is_bad_input(), "{url}");
        }
        for url in ["system:locks.db", "system:///locks.db", "system:?mode=ro"] {
            assert!(Locks::open(url).unwrap_err().is_bad_input(), "{url}");
        }
    }

    #[test]
    fn parameters_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let open = |parameters: &str| {
            let file = folder.path().join("locks.db");
            Locks::open(&format!("sqlite:{}?{parameters}", file.display()))
        };
        for good in ["", "busy_timeout_ms=200&max_free_records=10", "&busy_timeout_ms=0"] {
            open(good).unwrap();
        }
        for bad in [
            "group=",
            "group",
            "mode=ro",
            "busy_timeout_ms",
            "busy_timeout_ms=-1",
            "BUSY_TIMEOUT_MS=1",
        ] {
            assert!(open(bad).unwrap_err().is_bad_input(), "{bad}");
        }
    }
}
