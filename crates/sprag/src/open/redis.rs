//! `redis://host:port/db`, `rediss://`, `redis+unix:///path`, `redis+sentinel://`,
//! `redis+cluster://`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sprag_core::{Result, Store};
use sprag_redis::{Address, Quarantine, RedisConfig, RedisStore, Tls};

use super::url::StoreUrl;
use super::{StoreKind, password};

pub(super) const KIND: StoreKind = StoreKind {
    scheme: "redis",
    also: &["redis+unix", "rediss", "redis+sentinel", "redis+cluster"],
    forms: &[
        ("redis://localhost:6379", "a Redis server"),
        ("redis://USER:PASSWORD@host:6379/2", "with a login, and database 2"),
        ("redis://host?password_file=FILE", "with a password from a file; or from REDISCLI_AUTH"),
        ("rediss://host:6379", "over TLS; ?tls_ca=FILE for an authority of your own"),
        ("redis+unix:///run/redis/redis.sock", "a Redis server on a Unix socket"),
        ("redis+sentinel://s1:26379,s2:26379/mymaster", "the master that these sentinels name"),
        ("redis+cluster://n1:6379,n2:6379", "a Redis Cluster, found through these nodes"),
    ],
    between: "all who reach one Redis server, Sentinel set or Cluster",
    broken_by: &[
        "a restart of a server without appendfsync always",
        "a failover to a replica that missed the last writes",
        "a jump of the server's clock",
        "somebody who deletes its keys",
    ],
    sql: None,
    capability: RedisStore::ability,
    open: |url| Ok(Arc::new(RedisStore::open(config(url)?)?) as Arc<dyn Store>),
};

const PARAMETERS: &[&str] = &[
    "prefix",
    "allow_eviction",
    "timeout_ms",
    "min_replicas",
    "restart_quarantine",
    "longest_ttl_ms",
    "tls",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "sentinel_password",
    "password_file",
];
pub(super) const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// Reads a URL that is one of ours.
pub(crate) fn config_of(url: &str) -> Result<RedisConfig> {
    let url = StoreUrl::parse(url)?;
    if KIND.answers_for(url.scheme) {
        return config(&url);
    }
    Err(url.bad("is not Redis's; write redis://HOST:PORT or redis+unix:///PATH"))
}

fn config(url: &StoreUrl<'_>) -> Result<RedisConfig> {
    let config = match url.scheme.to_ascii_lowercase().as_str() {
        "redis+sentinel" => sentinel(url)?,
        "redis+cluster" => cluster(url)?,
        "redis+unix" => match url.rest.strip_prefix("//") {
            Some(path) if path.starts_with('/') => {
                let socket = Address::Unix(OsString::from_vec(url.decode(path)?).into());
                with_password(RedisConfig::new(socket), None, password_outside(url, variable)?)
            }
            _ => return Err(url.bad("names no socket; write redis+unix:///run/redis.sock")),
        },
        _ => server(url)?,
    };
    with_parameters(url, config, &[])
}

/// Puts in the parameters, but for those that are `read` already.
pub(super) fn with_parameters(
    url: &StoreUrl<'_>,
    mut config: RedisConfig,
    read: &[&str],
) -> Result<RedisConfig> {
    let mut secured = url.scheme.eq_ignore_ascii_case("rediss");
    let (mut authorities, mut certificate, mut key) = (None, None, None);
    for (name, value) in url.parameters().filter(|(name, _)| !read.contains(name)) {
        config = match name {
            "prefix" => config.prefix(text(url, value)?),
            "allow_eviction" => config.allow_eviction(yes_or_no(url, name, value)?),
            "timeout_ms" => config.timeout(millis(url, name, value)?),
            "longest_ttl_ms" => config.longest_ttl(millis(url, name, value)?),
            "min_replicas" => config.min_replicas(number(url, name, value)?),
            "restart_quarantine" => config.quarantine(match value {
                "witnessed" => Quarantine::Witnessed,
                "always" => Quarantine::Always,
                "never" => Quarantine::Never,
                _ => {
                    return Err(
                        url.bad("has none of witnessed, always, never in restart_quarantine")
                    );
                }
            }),
            "tls" => {
                secured = yes_or_no(url, name, value)?;
                config
            }
            "tls_ca" | "tls_cert" | "tls_key" => {
                let file = Some(PathBuf::from(OsString::from_vec(url.decode(value)?)));
                match name {
                    "tls_ca" => authorities = file,
                    "tls_cert" => certificate = file,
                    _ => key = file,
                }
                config
            }
            "sentinel_password" => config.sentinel_password(text(url, value)?),
            // Read with the login.
            "password_file" => config,
            _ => return Err(url.unknown_parameter(&[read, PARAMETERS].concat())),
        };
    }
    if !secured {
        return Ok(config);
    }
    let own = match (&certificate, &key) {
        (Some(certificate), Some(key)) => Some((certificate.as_path(), key.as_path())),
        (None, None) => None,
        _ => return Err(url.bad("has one of tls_cert and tls_key; give both or none")),
    };
    Ok(config.tls(Tls::new(authorities.as_deref(), own)?))
}

fn text(url: &StoreUrl<'_>, part: &str) -> Result<String> {
    String::from_utf8(url.decode(part)?).map_err(|_| url.bad("has bytes that are not UTF-8"))
}

pub(super) fn yes_or_no(url: &StoreUrl<'_>, name: &str, value: &str) -> Result<bool> {
    value.parse().map_err(|_| url.bad(&format!("has no true or false in {name}")))
}

pub(super) fn number(url: &StoreUrl<'_>, name: &str, value: &str) -> Result<u32> {
    let bad = |_| url.bad(&format!("has no number from 0 to {} in {name}", u32::MAX));
    value.parse().map_err(bad)
}

pub(super) fn millis(url: &StoreUrl<'_>, name: &str, value: &str) -> Result<Duration> {
    Ok(Duration::from_millis(number(url, name, value)?.into()))
}

/// `//[user[:password]@]host[:port][,host[:port]...][/rest]`, taken apart.
pub(super) struct Authority<'a> {
    login: Option<&'a str>,
    pub(super) hosts: Vec<Address>,
    pub(super) rest: &'a str,
}

impl<'a> Authority<'a> {
    pub(super) fn read(url: &StoreUrl<'a>, usual_port: u16, form: &str) -> Result<Self> {
        let no_host = || url.bad(&format!("names no host; write {form}"));
        let rest = url.rest.strip_prefix("//").ok_or_else(no_host)?;
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        let (hosts, rest) = place.split_once('/').unwrap_or((place, ""));
        let read = |host: &str| match address(url, host, usual_port)? {
            Address::Tcp(host, _) if host.is_empty() => Err(no_host()),
            address => Ok(address),
        };
        Ok(Self { login, hosts: hosts.split(',').map(read).collect::<Result<_>>()?, rest })
    }

    /// Puts in the login.
    pub(super) fn log_in(
        &self,
        url: &StoreUrl<'_>,
        mut config: RedisConfig,
    ) -> Result<RedisConfig> {
        let (user, password) =
            self.login.map_or(("", ""), |login| login.split_once(':').unwrap_or((login, "")));
        if !user.is_empty() {
            config = config.username(text(url, user)?);
        }
        let password = (!password.is_empty()).then(|| text(url, password)).transpose()?;
        if password.is_some() && url.parameters().any(|(name, _)| name == "password_file") {
            return Err(url.bad("has a password and a password_file: leave one out"));
        }
        let outside = match &password {
            None => password_outside(url, variable)?,
            Some(_) => None,
        };
        Ok(with_password(config, password, outside))
    }
}

/// The password that is not in the URL: of `password_file`, else of `REDISCLI_AUTH`, which
/// `redis-cli` reads too.
fn password_outside(
    url: &StoreUrl<'_>,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<String>> {
    if let Some((_, file)) = url.parameters().find(|(name, _)| *name == "password_file") {
        return password::of_file(Path::new(&OsString::from_vec(url.decode(file)?))).map(Some);
    }
    let set = env("REDISCLI_AUTH").and_then(|value| value.into_string().ok());
    Ok(set.filter(|value| !value.is_empty()))
}

fn with_password(
    config: RedisConfig,
    inside: Option<String>,
    outside: Option<String>,
) -> RedisConfig {
    match inside.or(outside) {
        Some(password) => config.password(password),
        None => config,
    }
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// `host[:port]`; the colons of an IPv6 address are inside brackets.
fn address(url: &StoreUrl<'_>, text: &str, usual_port: u16) -> Result<Address> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let bad = |_| url.bad("has no port from 1 to 65535 after its host");
            (host, port.parse::<u16>().map_err(bad)?)
        }
        _ => (text, usual_port),
    };
    let host = self::text(url, host.trim_start_matches('[').trim_end_matches(']'))?;
    Ok(Address::Tcp(host, port))
}

pub(super) fn database(
    url: &StoreUrl<'_>,
    config: RedisConfig,
    digits: &str,
) -> Result<RedisConfig> {
    if digits.is_empty() {
        return Ok(config);
    }
    let bad = |_| url.bad("has no number of a database at its end");
    Ok(config.database(digits.parse().map_err(bad)?))
}

fn server(url: &StoreUrl<'_>) -> Result<RedisConfig> {
    let found = Authority::read(url, PORT, "redis://HOST:PORT")?;
    let [address] = <[Address; 1]>::try_from(found.hosts.clone()).map_err(|_| {
        url.bad("names several servers; write redis+cluster://, redis+sentinel:// or redlock://")
    })?;
    database(url, found.log_in(url, RedisConfig::new(address))?, found.rest)
}

/// `//hosts/master[/database]`
fn sentinel(url: &StoreUrl<'_>) -> Result<RedisConfig> {
    let found = Authority::read(url, SENTINEL_PORT, "redis+sentinel://HOST:PORT/MASTER")?;
    let (master, digits) = found.rest.split_once('/').unwrap_or((found.rest, ""));
    if master.is_empty() {
        return Err(url.bad("names no master; write redis+sentinel://HOST:PORT/MASTER"));
    }
    let config = RedisConfig::sentinel(text(url, master)?, found.hosts.clone());
    database(url, found.log_in(url, config)?, digits)
}

fn cluster(url: &StoreUrl<'_>) -> Result<RedisConfig> {
    let found = Authority::read(url, PORT, "redis+cluster://HOST:PORT,HOST:PORT")?;
    let config = found.log_in(url, RedisConfig::cluster(found.hosts.clone()))?;
    database(url, config, found.rest)
}

#[cfg(test)]
mod tests {
    use super::{StoreUrl, config_of, password_outside};

    #[test]
    fn a_password_may_stand_outside_of_the_url() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a b");
        std::fs::write(&file, "hunter2\n").unwrap();
        let file = file.display().to_string().replace(' ', "%20");
        let read = |url: &str| {
            let env = |name: &str| (name == "REDISCLI_AUTH").then(|| "of the variable".into());
            password_outside(&StoreUrl::parse(url).unwrap(), env)
        };
        let with_file = format!("redis://me@db?password_file={file}");
        assert_eq!(read(&with_file).unwrap().as_deref(), Some("hunter2"));
        assert_eq!(read("redis://db").unwrap().as_deref(), Some("of the variable"));
        assert!(read("redis://db?password_file=/none").unwrap_err().is_refused());
        for url in ["redis://db", "redis+cluster://a,b", "redis+sentinel://a/m", "redis+unix:///a"]
        {
            let shown = format!("{:?}", config_of(&format!("{url}?password_file={file}")).unwrap());
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        let both = format!("redis://:x@db?password_file={file}");
        assert!(config_of(&both).unwrap_err().is_bad_input());
    }

    #[test]
    fn each_form_means_one_server() {
        for (url, means) in [
            ("redis://db", r#"Tcp("db", 6379)), database: 0, prefix: "sprag:""#),
            ("redis://db:7000/3", r#"Tcp("db", 7000)), database: 3, prefix: "sprag:""#),
            ("REDIS://me:a%40b@[::1]:7000", r#"Tcp("::1", 7000)), database: 0, prefix: "sprag:""#),
            ("redis://[::1]?prefix=a%3A", r#"Tcp("::1", 6379)), database: 0, prefix: "a:""#),
            ("rediss://db?tls=false", "tls: false"),
            (
                "redis+sentinel://a,[::1]:7/my%20master/2?sentinel_password=x",
                r#"master: "my master", sentinels: [Tcp("a", 26379), Tcp("::1", 7)], login: _ }, database: 2"#,
            ),
            ("redis+cluster://a,b:7", r#"Cluster([Tcp("a", 6379), Tcp("b", 7)])"#),
            ("redis+unix:///a%20b", r#"Unix("/a b")), database: 0, prefix: "sprag:""#),
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
            "redis://a,b",
            "redis://db?min_replicas=-1",
            "redis://db?restart_quarantine=sometimes",
            "rediss://db?tls_ca=/no/such/file",
            "rediss://db?tls_cert=/no/such/file",
            "redis+sentinel://a",
            "redis+cluster://,",
            "redis+unix://sock",
            "sqlite:x",
        ] {
            assert!(config_of(url).unwrap_err().is_bad_input(), "{url}");
        }
    }
}
