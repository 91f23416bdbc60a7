//! `redis://host:port/db`, `redis+unix:///path`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::Duration;

use sprag_core::{Error, ErrorKind, Operation, Result, Store};
use sprag_redis::{Address, RedisConfig, RedisStore};

use super::StoreKind;
use super::url::StoreUrl;

pub(super) const KIND: StoreKind = StoreKind {
    scheme: "redis",
    also: &["redis+unix", "rediss", "redis+sentinel", "redis+cluster", "redlock"],
    forms: &[
        ("redis://localhost:6379", "a Redis server"),
        ("redis://USER:PASSWORD@host:6379/2", "with a login, and database 2"),
        ("redis+unix:///run/redis/redis.sock", "a Redis server on a Unix socket"),
    ],
    between: "all who reach one Redis server",
    broken_by: &[
        "a restart of a server without an append-only file",
        "a failover to a replica that missed the last writes",
        "a jump of the server's clock",
        "somebody who deletes its keys",
    ],
    capability: RedisStore::ability,
    open: |url| Ok(Arc::new(RedisStore::open(config(url)?)?) as Arc<dyn Store>),
};

const PARAMETERS: &[&str] = &["prefix", "allow_eviction", "timeout_ms"];
const PORT: u16 = 6379;

/// Reads a URL that is one of ours.
pub(crate) fn config_of(url: &str) -> Result<RedisConfig> {
    let url = StoreUrl::parse(url)?;
    if KIND.answers_for(url.scheme) {
        return config(&url);
    }
    Err(url.bad("is not Redis's; write redis://HOST:PORT or redis+unix:///PATH"))
}

fn config(url: &StoreUrl<'_>) -> Result<RedisConfig> {
    let text = |part: &str| {
        String::from_utf8(url.decode(part)?).map_err(|_| url.bad("has bytes that are not UTF-8"))
    };
    let mut config = match url.scheme.to_ascii_lowercase().as_str() {
        "redis" => server(url, text)?,
        "redis+unix" => match url.rest.strip_prefix("//") {
            Some(path) if path.starts_with('/') => {
                RedisConfig::new(Address::Unix(OsString::from_vec(url.decode(path)?).into()))
            }
            _ => return Err(url.bad("names no socket; write redis+unix:///run/redis.sock")),
        },
        other => {
            let what = match other {
                "rediss" => "TLS to Redis is",
                "redis+sentinel" => "Redis Sentinel is",
                "redis+cluster" => "Redis Cluster is",
                _ => "Redlock is",
            };
            let message = format!("{what} not supported yet; write redis:// for a single server");
            return Err(Error::new(ErrorKind::Unsupported, Operation::Open, message));
        }
    };
    for (name, value) in url.parameters() {
        config = match (name, value) {
            ("prefix", prefix) => config.prefix(text(prefix)?),
            ("allow_eviction", "true") => config.allow_eviction(true),
            ("allow_eviction", "false") => config.allow_eviction(false),
            ("allow_eviction", _) => return Err(url.bad("has no true or false in allow_eviction")),
            ("timeout_ms", millis) => {
                let bad = |_| url.bad(&format!("has no number from 1 to {} in {name}", u32::MAX));
                config.timeout(Duration::from_millis(millis.parse::<u32>().map_err(bad)?.into()))
            }
            _ => return Err(url.unknown_parameter(PARAMETERS)),
        };
    }
    Ok(config)
}

/// `//[user[:password]@]host[:port][/database]`
fn server(url: &StoreUrl<'_>, text: impl Fn(&str) -> Result<String>) -> Result<RedisConfig> {
    let no_host = || url.bad("names no host; write redis://HOST:PORT");
    let rest = url.rest.strip_prefix("//").ok_or_else(no_host)?;
    let (login, place) = match rest.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, rest),
    };
    let (host, database) = place.split_once('/').unwrap_or((place, ""));
    // The colons of an IPv6 address are inside brackets.
    let (host, port) = match host.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let bad = |_| url.bad("has no port from 1 to 65535 after its host");
            (host, port.parse::<u16>().map_err(bad)?)
        }
        _ => (host, PORT),
    };
    let host = text(host.trim_start_matches('[').trim_end_matches(']'))?;
    if host.is_empty() {
        return Err(no_host());
    }
    let mut config = RedisConfig::new(Address::Tcp(host, port));
    if !database.is_empty() {
        let bad = |_| url.bad("has no number of a database after its host");
        config = config.database(database.parse().map_err(bad)?);
    }
    if let Some(login) = login {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        if !user.is_empty() {
            config = config.username(text(user)?);
        }
        if !password.is_empty() {
            config = config.password(text(password)?);
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::config_of;

    #[test]
    fn each_form_means_one_server() {
        for (url, means) in [
            ("redis://db", r#"Tcp("db", 6379), database: 0, prefix: "sprag:""#),
            ("redis://db:7000/3", r#"Tcp("db", 7000), database: 3, prefix: "sprag:""#),
            ("REDIS://me:a%40b@[::1]:7000", r#"Tcp("::1", 7000), database: 0, prefix: "sprag:""#),
            ("redis://[::1]?prefix=a%3A", r#"Tcp("::1", 6379), database: 0, prefix: "a:""#),
            ("redis+unix:///a%20b", r#"Unix("/a b"), database: 0, prefix: "sprag:""#),
        ] {
            let config = format!("{:?}", config_of(url).unwrap());
            assert!(config.contains(means), "{url}: {config}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for url in [
            "redis:db",
            "redis://",
            "redis://db:0x1",
            "redis://db/x",
            "redis://db?mode=1",
            "redis://db?allow_eviction=1",
            "redis://db?timeout_ms=-1",
            "redis+unix://sock",
            "sqlite:x",
        ] {
            assert!(config_of(url).unwrap_err().is_bad_input(), "{url}");
        }
    }

    #[test]
    fn what_is_not_there_yet_is_said_to_be_unsupported() {
        for scheme in ["rediss", "redis+sentinel", "redis+cluster", "redlock"] {
            let error = crate::open(&format!("{scheme}://a:1,b:2")).unwrap_err();
            assert!(error.is_unsupported() && error.to_string().contains("not supported"));
        }
        // Options of what is not there are refused as unknown.
        assert!(config_of("redis://db?min_replicas=1").unwrap_err().is_bad_input());
    }
}
