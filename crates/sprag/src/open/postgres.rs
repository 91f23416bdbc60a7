//! `postgres://user:password@host:port/database`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sprag_core::{Result, Store};
use sprag_postgres::{Address, AdvisoryStore, LockKind, PostgresConfig, PostgresStore, TlsMode};

use super::password::Login;
use super::service::Service;
use super::url::StoreUrl;
use super::{StoreKind, password};

pub(super) const KIND: StoreKind = StoreKind {
    scheme: "postgres",
    also: &["postgresql"],
    forms: &[
        ("postgres://localhost/app", "a PostgreSQL database"),
        ("postgres://USER:PASSWORD@host:5432/app", "with a login; or PGPASSWORD, ~/.pgpass"),
        ("postgres:///?service=NAME", "a server of pg_service.conf; or PGSERVICE"),
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
    "password_file",
    "service",
];
const PORT: u16 = 5432;
/// Where sockets are; `.pgpass` calls them localhost.
const SOCKETS: [&str; 3] = ["/var/run/postgresql", "/run/postgresql", "/tmp"];

/// Where the server is and who we are, as far as it is known yet.
#[derive(Default)]
struct Parts {
    host: Vec<u8>,
    port: Option<u16>,
    database: String,
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
    config_in(url, |name| std::env::var_os(name))
}

fn config_in(url: &StoreUrl<'_>, env: impl Fn(&str) -> Option<OsString>) -> Result<PostgresConfig> {
    let mut parts = authority(url)?;
    let (mut file, mut asked) = (None, None);
    for (name, value) in url.parameters() {
        match name {
            "host" => parts.host = url.decode(value)?,
            "port" => parts.port = Some(port(url, value)?),
            "user" => parts.user = Some(text(url, value)?),
            "password" => parts.password = Some(text(url, value)?),
            "password_file" => file = Some(OsString::from_vec(url.decode(value)?)),
            "service" => asked = Some(text(url, value)?),
            _ => {}
        }
    }
    if parts.password.is_some() && file.is_some() {
        return Err(url.bad("has a password and a password_file: leave one out"));
    }
    if let Some(file) = file {
        parts.password = Some(password::of_file(Path::new(&file))?);
    }
    let set = |name: &str| env(name)?.into_string().ok().filter(|value| !value.is_empty());
    let service = match asked.or_else(|| set("PGSERVICE")) {
        Some(name) => find_service(url, &name, &env)?,
        None => Service::default(),
    };
    fill(url, &mut parts, &service)?;
    if parts.database.is_empty() {
        return Err(no_database(url));
    }
    let address = address(url, &parts)?;
    if parts.password.is_none() {
        parts.password = match set("PGPASSWORD") {
            Some(password) => Some(password),
            None => of_pgpass(&address, &parts, &env)?,
        };
    }
    let mut config = PostgresConfig::new(address, parts.database);
    if let Some(user) = parts.user {
        config = config.user(user);
    }
    if let Some(password) = parts.password {
        config = config.password(password);
    }
    let named = |wanted: &str| url.parameters().any(|(name, _)| name == wanted);
    if let Some(mode) = service.get("sslmode").filter(|_| !named("sslmode")) {
        config = config.tls(tls(url, mode)?);
    }
    if let Some(file) = service.get("sslrootcert").filter(|_| !named("sslrootcert")) {
        config = config.root_certificate(file);
    }
    with_parameters(url, config)
}

/// What `pg_service.conf` says under a name.
fn find_service(
    url: &StoreUrl<'_>,
    name: &str,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<Service> {
    Service::find(name, env).map_err(|files| {
        let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        url.bad(&format!("asks for the service {name:?}, which is not in {}", files.join(" or ")))
    })
}

/// Puts in what the URL leaves out. The password of a service is for the server of that service.
fn fill(url: &StoreUrl<'_>, parts: &mut Parts, service: &Service) -> Result<()> {
    let host = service.get("host").unwrap_or_default().as_bytes();
    let same_server = parts.host.is_empty() || parts.host == host;
    if same_server {
        parts.host = host.to_vec();
        if let Some(digits) = service.get("port").filter(|_| parts.port.is_none()) {
            parts.port = Some(port(url, digits)?);
        }
        let password = service.get("password").map(str::to_owned);
        parts.password = parts.password.take().or(password);
    }
    parts.user = parts.user.take().or_else(|| service.get("user").map(str::to_owned));
    if parts.database.is_empty() {
        parts.database = service.get("dbname").unwrap_or_default().to_owned();
    }
    Ok(())
}

/// The password that libpq would find in its file.
fn of_pgpass(
    address: &Address,
    parts: &Parts,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<String>> {
    let (host, port) = match address {
        Address::Tcp(host, port) => (host.clone(), *port),
        Address::Unix(folder, port) => (folder.display().to_string(), *port),
    };
    let of_system = || env("USER").or_else(|| env("LOGNAME"))?.into_string().ok();
    let user = parts.user.clone().or_else(of_system).unwrap_or_default();
    let host = if SOCKETS.contains(&host.as_str()) { "localhost" } else { &host };
    let login = Login { host, port, database: &parts.database, user: &user };
    password::of_pgpass(login, &env)
}

fn with_parameters(url: &StoreUrl<'_>, mut config: PostgresConfig) -> Result<PostgresConfig> {
    for (name, value) in url.parameters() {
        config = match name {
            "host" | "port" | "user" | "password" | "password_file" | "service" => config,
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

fn no_database(url: &StoreUrl<'_>) -> sprag_core::Error {
    url.bad("names no database; write postgres://HOST/DATABASE")
}

/// `//[user[:password]@][host][:port][/database]`; what is left out is empty.
fn authority(url: &StoreUrl<'_>) -> Result<Parts> {
    let rest = url.rest.strip_prefix("//").ok_or_else(|| no_database(url))?;
    let (login, place) = match rest.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, rest),
    };
    let (host, database) = place.split_once('/').unwrap_or((place, ""));
    let mut parts = Parts { database: text(url, database)?, ..Parts::default() };
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
    Ok(parts)
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
#[path = "postgres_tests.rs"]
mod tests;
