//! [`store_mark`]: a short text that tells one store from another.

use std::path::PathBuf;

use super::KINDS;
use super::url::StoreUrl;

/// The parameters that are a part of which store it is; others say how it is used.
const PLACES: &[&str] = &["prefix", "namespace", "mode", "host", "port"];

/// A short text about the store that `url` names: its kind, and a checksum of where it is, without
/// users, passwords and most parameters. Two spellings of one store may have two marks, so equal ones say
/// more than different ones: the store itself knows best.
///
/// # Examples
///
/// ```
/// let mark = sprag::store_mark("sqlite:/srv/locks.db");
/// assert_eq!(mark, sprag::store_mark("sqlite:///srv/locks.db?busy_timeout_ms=100"));
/// assert_ne!(mark, sprag::store_mark("sqlite:/srv/other.db"));
/// assert!(mark.starts_with("sqlite-") && mark.len() == 15);
/// ```
pub fn store_mark(url: &str) -> String {
    let Ok(url) = StoreUrl::parse(url) else { return "unknown".to_owned() };
    let Some(kind) = KINDS.iter().find(|kind| kind.answers_for(url.scheme)) else {
        return "unknown".to_owned();
    };
    match place(&url, kind.scheme) {
        Some(place) => format!("{}-{:08x}", kind.scheme, checksum(&place)),
        // What it means depends on where one is.
        None => kind.scheme.to_owned(),
    }
}

/// Where the store is, as far as its URL says.
fn place(url: &StoreUrl<'_>, kind: &str) -> Option<String> {
    if kind == "sqlite" {
        return Some(file(url)?.display().to_string());
    }
    if url.scheme.eq_ignore_ascii_case("git") && !url.rest.starts_with("//") {
        return None;
    }
    let rest = url.rest.trim_start_matches('/').rsplit('@').next().unwrap_or_default();
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let port = match kind {
        "redis" | "redlock" => ":6379",
        "postgres" => ":5432",
        _ => "",
    };
    let hosts = hosts.to_ascii_lowercase();
    let hosts = hosts.split(',').map(|host| host.strip_suffix(port).unwrap_or(host));
    let mut hosts: Vec<_> = hosts.collect();
    hosts.sort_unstable();
    let path = path.trim_end_matches('/').trim_end_matches(".git");
    // The first database of a Redis server need not be named.
    let path = if path == "0" { "" } else { path };
    let mut parts = vec![hosts.join(","), path.to_owned()];
    let places = url.parameters().filter(|(name, _)| PLACES.contains(name));
    parts.extend(places.map(|(name, value)| format!("{name}={value}")));
    Some(parts.join("/"))
}

/// The database file, by its real path.
fn file(url: &StoreUrl<'_>) -> Option<PathBuf> {
    #[cfg(feature = "sqlite")]
    let path = super::sqlite::file(url).ok()?;
    #[cfg(not(feature = "sqlite"))]
    let path = PathBuf::from(url.rest);
    // It may not be there yet; its folder is the same then, too.
    let path = std::path::absolute(path).ok()?;
    let real = path.canonicalize().ok();
    let beside = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    Some(real.or_else(beside).unwrap_or(path))
}

/// FNV-1a: the same in every version and on every machine.
fn checksum(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(all(
    test,
    feature = "git",
    feature = "github",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite"
))]
mod tests {
    use super::store_mark;

    #[test]
    fn one_store_has_one_mark_and_others_have_others() {
        for (one, same) in [
            ("sqlite:/var/x.db", "sqlite:///var/x.db?busy_timeout_ms=1"),
            ("system:", "sqlite:/var/lib/sprag/sprag.db"),
            ("redis://db", "rediss://u:p@db:6379/0"),
            ("redlock://a,b:6379,c", "redlock://c,b,a"),
            ("postgres://me@db/app", "postgresql://db:5432/app?sslmode=require"),
            ("github://acme/app", "GitHub://acme/app?queue=true"),
            ("git+ssh://git@host/a.git", "git+ssh://host/a"),
        ] {
            assert_eq!(store_mark(one), store_mark(same), "{one} and {same}");
        }
        for (one, other) in [
            ("sqlite:/var/x.db", "sqlite:/var/y.db"),
            ("redis://db", "redis://other"),
            ("redis://db", "redis://db?prefix=x"),
            ("redis://db/1", "redis://db/2"),
            ("postgres://db/app", "postgres://db/other"),
            ("github://acme/app", "github://acme/other"),
            ("memory:a", "memory:b"),
        ] {
            assert_ne!(store_mark(one), store_mark(other), "{one} and {other}");
        }
        assert_eq!(store_mark("git:origin"), "git");
        assert_eq!(store_mark("mysql://root:secret@db/x"), "unknown");
    }
}
