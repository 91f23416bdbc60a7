//! The names of locks: on one server they are in a sorted set, in a Cluster they are searched for,
//! because no key would be in the slot of every lock.

use futures_util::future::try_join_all;
use sprag_core::store::{LEFT_OUT, Listing};
use sprag_core::{LockName, Operation, Result};

use crate::link::Link;
use crate::resp::{FromValue, Value};
use crate::script::Call;
use crate::store::RedisStore;

/// How many keys a server looks at in one step.
const STEP: &str = "1000";

/// Up to `count` names in use, in order, after `after` or from the prefix on, and whether there may be
/// more. There may be some that are not in use any more. What can be no name is left out.
pub(crate) async fn page(
    store: &RedisStore,
    listing: &Listing,
    after: Option<&LockName>,
    count: usize,
) -> Result<(Vec<LockName>, bool)> {
    if store.way.is_cluster() {
        let mut names = search(store, Operation::List, &listing.prefix).await?;
        names.retain(|name| after.is_none_or(|after| name > after));
        let more = names.len() > count;
        names.truncate(count);
        return Ok((names, more));
    }
    let from = match after {
        Some(after) if after.as_str() >= listing.prefix.as_str() => format!("({after}"),
        _ => format!("[{}", listing.prefix),
    };
    let (key, mut offset) = (store.keys.names(), 0);
    loop {
        let (limit, skipped) = (count.to_string(), offset.to_string());
        let words = ["ZRANGEBYLEX", &key, &from, "+", "LIMIT", &skipped, &limit];
        let found: Vec<Value> = store.way.ask(Operation::List, &key, Call::plain(&words)).await?;
        let (full, mut names) = (found.len() == count, Vec::new());
        for name in found {
            let text = String::from_value(name);
            if text.as_ref().is_some_and(|name| !name.starts_with(&listing.prefix)) {
                return Ok((names, false));
            }
            match text.as_ref().and_then(|name| LockName::new(name).ok()) {
                Some(name) => names.push(name),
                None => {
                    let lock = text.as_deref().unwrap_or("(no text)");
                    tracing::warn!(target: LEFT_OUT, lock, "a record is left out");
                }
            }
        }
        if !names.is_empty() || !full {
            return Ok((names, full));
        }
        offset += count;
    }
}

/// The names of all locks that any server has a record of, in order.
pub(crate) async fn search(
    store: &RedisStore,
    operation: Operation,
    prefix: &str,
) -> Result<Vec<LockName>> {
    let pattern = store.keys.records(prefix);
    let links = store.way.links(operation).await?;
    let searches = links.iter().map(|link| scan(link, &pattern));
    let found = try_join_all(searches).await.map_err(|error| error.during(operation))?;
    let mut names: Vec<_> =
        found.into_iter().flatten().filter_map(|key| store.keys.name_of(&key)).collect();
    names.sort();
    // A lock that moves from one server to another may be seen on both.
    names.dedup();
    Ok(names)
}

async fn scan(link: &Link, pattern: &str) -> Result<Vec<String>> {
    let (mut found, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let words = ["SCAN", &cursor, "MATCH", pattern, "COUNT", STEP, "TYPE", "hash"];
        let (next, keys): (String, Vec<String>) = link.ask(Call::plain(&words)).await?;
        found.extend(keys);
        if next == "0" {
            return Ok(found);
        }
        cursor = next;
    }
}
