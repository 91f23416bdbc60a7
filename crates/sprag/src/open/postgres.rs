//! `postgres://user:password@host:port/database`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::Duration;

use sprag_core::{Result, Store};
use sprag_postgres::{Address, AdvisoryStore, LockKind, PostgresConfig, PostgresStore, TlsMode};

use super::StoreKind;
use super::url::StoreUrl;

pub(super) const KIND: StoreKind = StoreKind {
    scheme: "postgres",
    also: &["postgresql"],
    forms: &[
        ("postgres://localhost/app", "a PostgreSQL database"),
        ("postgres://USER:PASSWORD@host:5432/app", "with a login"),
        ("postgres:///app?host=/run/postgresql", "through a Unix socket"),
        ("postgres://host/app?mode=advisory", "with session locks, for programs without sprag"),
        ("postgres://host/app?sslmode=verify-full", "over TLS, with the right server only"),
    ],
    between: "all who reach one PostgreSQL database",
    broken_by: &[
        "a failover to a standby that missed the last writes",
        "a jump of the server's clock",
        "fsync = off and a crash of its machine",
        "somebody who changes its tables",
    ],
    sql: Some(sprag_postgres::SQL),
    capability: PostgresStore::ability,
    open: |url| {
        let config = config(url)?;
        Ok(match config.lock_kind() {
            LockKind::Lease => Arc::new(PostgresStore::open(config)?) as Arc<dyn Store>,
            LockKind::Advisory => Arc::new(AdvisoryStore::open(config)?),
        })
    },
};

const PARAMETERS: &[&str] = &[
    "mode",
    "namespace",
    "max_locks",
    "timeout_ms",
    "sslmode",
    "sslrootcert",
    "host",
    "port",
    "user",
    "password",
];
const PORT: u16 = 5432;

/// Where the server is and who we are, as far as it is known yet.
#[derive(Default)]
struct Parts {
    host: Vec<u8>,
    port: Option<u16>,
    user: Option<String>,
    password: Option<String>,
}

/// What a URL says, with locks of this kind unless it says otherwise.
pub(crate) fn config_of(url: &str, kind: LockKind) -> Result<PostgresConfig> {
    let url = StoreUrl::parse(url)?;
    if !KIND.answers_for(url.scheme) {
        return Err(url.bad("is not PostgreSQL's; write postgres://HOST/DATABASE"));
    }
    let told = url.parameters().any(|(name, _)| name == "mode");
    let config = config(&url)?;
    Ok(if told { config } else { config.kind(kind) })
}

fn config(url: &StoreUrl<'_>) -> Result<PostgresConfig> {
    let (mut parts, database) = authority(url)?;
    for (name, value) in url.parameters() {
        match name {
            "host" => parts.host = url.decode(value)?,
            "port" => parts.port = Some(port(url, value)?),
            "user" => parts.user = Some(text(url, value)?),
            "password" => parts.password = Some(text(url, value)?),
            _ => {}
        }
    }
    let mut config = PostgresConfig::new(address(url, &parts)?, database);
    if let Some(user) = parts.user {
        config = config.user(user);
    }
    if let Some(password) = parts.password {
        config = config.password(password);
    }
    for (name, value) in url.parameters() {
        config = match name {
            "host" | "port" | "user" | "password" => config,
            "mode" => config.kind(kind(url, value)?),
            "namespace" => config.namespace(text(url, value)?),
            "max_locks" => {
                let bad = |_| url.bad(&format!("has no number from 1 to {} in {name}", u32::MAX));
                config.max_locks(value.parse::<std::num::NonZeroU32>().map_err(bad)?.get() as usize)
            }
            "sslmode" => config.tls(tls(url, value)?),
            "sslrootcert" => config.root_certificate(OsString::from_vec(url.decode(value)?)),
            "timeout_ms" => {
                let bad = |_| url.bad(&format!("has no number from 1 to {} in {name}", u32::MAX));
                config.timeout(Duration::from_millis(value.parse::<u32>().map_err(bad)?.into()))
            }
            _ => return Err(url.unknown_parameter(PARAMETERS)),
        };
    }
    Ok(config)
}

/// `//[user[:password]@][host][:port]/database`
fn authority(url: &StoreUrl<'_>) -> Result<(Parts, String)> {
    let no_database = || url.bad("names no database; write postgres://HOST/DATABASE");
    let rest = url.rest.strip_prefix("//").ok_or_else(no_database)?;
    let (login, place) = match rest.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, rest),
    };
    let (host, database) = place.split_once('/').unwrap_or((place, ""));
    let database = text(url, database)?;
    if database.is_empty() {
        return Err(no_database());
    }
    let mut parts = Parts::default();
    // The colons of an IPv6 address are inside brackets.
    let host = match host.rsplit_once(':') {
        Some((host, digits)) if !digits.ends_with(']') => {
            parts.port = Some(port(url, digits)?);
            host
        }
        _ => host,
    };
    parts.host = url.decode(host.trim_start_matches('[').trim_end_matches(']'))?;
    if let Some(login) = login {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        parts.user = (!user.is_empty()).then(|| text(url, user)).transpose()?;
        parts.password = (!password.is_empty()).then(|| text(url, password)).transpose()?;
    }
    Ok((parts, database))
}

fn address(url: &StoreUrl<'_>, parts: &Parts) -> Result<Address> {
    let port = parts.port.unwrap_or(PORT);
    if parts.host.first() == Some(&b'/') {
        return Ok(Address::Unix(OsString::from_vec(parts.host.clone()).into(), port));
    }
    let host = String::from_utf8(parts.host.clone());
    match host.map_err(|_| url.bad("has bytes that are not UTF-8"))? {
        empty if empty.is_empty() => Err(url.bad("names no host; write postgres://HOST/DATABASE")),
        many if many.contains(',') => {
            Err(url.bad("names several hosts; write the one of the primary"))
        }
        host => Ok(Address::Tcp(host, port)),
    }
}

fn text(url: &StoreUrl<'_>, part: &str) -> Result<String> {
    String::from_utf8(url.decode(part)?).map_err(|_| url.bad("has bytes that are not UTF-8"))
}

fn port(url: &StoreUrl<'_>, digits: &str) -> Result<u16> {
    let known = digits.parse().ok().filter(|port| *port > 0);
    known.ok_or_else(|| url.bad("has no port from 1 to 65535"))
}

fn kind(url: &StoreUrl<'_>, value: &str) -> Result<LockKind> {
    match value {
        "lease" => Ok(LockKind::Lease),
        "advisory" => Ok(LockKind::Advisory),
        _ => Err(url.bad("has none of lease and advisory in mode")),
    }
}

fn tls(url: &StoreUrl<'_>, value: &str) -> Result<TlsMode> {
    match value {
        "disable" => Ok(TlsMode::Disable),
        "prefer" | "allow" => Ok(TlsMode::Prefer),
        "require" => Ok(TlsMode::Require),
        "verify-full" => Ok(TlsMode::VerifyFull),
        _ => Err(url.bad("has none of disable, prefer, require, verify-full in sslmode")),
    }
}

#[cfg(test)]
mod tests {
    use super::{StoreUrl, config};

    fn shown(url: &str) -> sprag_core::Result<String> {
        config(&StoreUrl::parse(url)?).map(|config| format!("{config:?}"))
    }

    #[test]
    fn each_form_means_one_database() {
        for (url, means) in [
            ("postgres://db/app", r#"Tcp("db", 5432), database: "app", namespace: "default""#),
            ("postgresql://me:pw@db:5/app", r#"Tcp("db", 5), database: "app""#),
            ("postgres://[::1]:5/app", r#"Tcp("::1", 5)"#),
            ("postgres:///app?host=/run/pg&port=7", r#"Unix("/run/pg", 7)"#),
            ("postgres://%2Frun%2Fpg:7/app", r#"Unix("/run/pg", 7)"#),
            ("postgres://db/app?mode=lease&namespace=a%20b", r#"namespace: "a b", kind: Lease"#),
            ("postgres://db/app?sslmode=verify-full", "tls: VerifyFull"),
            ("postgres://db/app?timeout_ms=100", "Prefer"),
        ] {
            let shown = shown(url).unwrap();
            assert!(shown.contains(means), "{url}: {shown}");
        }
    }

    #[test]
    fn what_is_missing_or_not_understood_is_told() {
        for (url, told) in [
            ("postgres:app", "names no database"),
            ("postgres://db", "names no database"),
            ("postgres:///app", "names no host"),
            ("postgres://a,b/app", "several hosts"),
            ("postgres://db:0/app", "no port"),
            ("postgres://db/app?sslmode=verify-ca", "verify-full"),
            ("postgres://db/app?mode=row", "lease and advisory"),
            ("postgres://db/app?pool=3", "unknown parameter"),
        ] {
            let error = shown(url).unwrap_err();
            assert!(error.is_bad_input() && error.to_string().contains(told), "{url}: {error}");
        }
        let advisory = shown("postgres://db/app?mode=advisory&max_locks=5").unwrap();
        assert!(advisory.contains("kind: Advisory"), "{advisory}");
        assert!(shown("postgres://db/app?max_locks=0").unwrap_err().is_bad_input());
    }

    #[test]
    fn no_password_is_ever_shown() {
        for url in ["postgres://me:hunter2@db/app", "postgres://db/app?password=hunter2"] {
            assert!(!shown(url).unwrap().contains("hunter2"));
        }
    }
}
