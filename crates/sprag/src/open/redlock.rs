//! `redlock://a:6379,b:6379,c:6379`

use std::sync::Arc;

use sprag_core::{Result, Store};
use sprag_redis::{RedisConfig, RedlockConfig, RedlockStore};

use super::StoreKind;
use super::redis::{Authority, PORT, database, millis, with_parameters, yes_or_no};
use super::url::StoreUrl;

pub(super) const KIND: StoreKind = StoreKind {
    scheme: "redlock",
    also: &[],
    forms: &[
        ("redlock://a:6379,b:6379,c:6379", "a majority of independent Redis servers"),
        ("redlock://a,b,c?fences=false", "without fences"),
    ],
    between: "all who reach a majority of the same Redis servers",
    broken_by: &[
        "clocks of a majority that jump ahead",
        "a majority that forgets its locks at once",
        "nodes that are replicas of each other",
        "somebody who deletes their keys",
    ],
    capability: RedlockStore::ability,
    sql: None,
    open: |url| Ok(Arc::new(RedlockStore::open(config(url)?)?) as Arc<dyn Store>),
};

const PARAMETERS: &[&str] = &["fences", "node_timeout_ms"];

fn config(url: &StoreUrl<'_>) -> Result<RedlockConfig> {
    let found = Authority::read(url, PORT, "redlock://HOST:PORT,HOST:PORT,HOST:PORT")?;
    let node = |address: &sprag_redis::Address| {
        let node = found.log_in(url, RedisConfig::new(address.clone()))?;
        with_parameters(url, database(url, node, found.rest)?, PARAMETERS)
    };
    let nodes = found.hosts.iter().map(node).collect::<Result<Vec<_>>>()?;
    let mut config = RedlockConfig::new(nodes);
    for (name, value) in url.parameters() {
        config = match name {
            "fences" => config.fences(yes_or_no(url, name, value)?),
            "node_timeout_ms" => config.node_timeout(millis(url, name, value)?),
            _ => config,
        };
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<RedlockConfig> {
        config(&StoreUrl::parse(url)?)
    }

    #[test]
    fn all_nodes_share_login_database_and_parameters() {
        let text = "redlock://me:x@a,b:7,[::1]:8/2?fences=false&prefix=p%3A&node_timeout_ms=9";
        let config = format!("{:?}", read(text).unwrap());
        for means in [
            r#"Tcp("a", 6379)), database: 2, prefix: "p:""#,
            r#"Tcp("b", 7)), database: 2, prefix: "p:""#,
            r#"Tcp("::1", 8)), database: 2, prefix: "p:""#,
            "fences: false, node_timeout: Some(9ms)",
        ] {
            assert!(config.contains(means), "{means} is not in {config}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for url in ["redlock:a", "redlock://", "redlock://a,b?fences=1", "redlock://a,b,c?mode=1"] {
            assert!(read(url).unwrap_err().is_bad_input(), "{url}");
        }
        let error = crate::open("redlock://a:1,b:2").unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("odd number"), "{error}");
    }
}
