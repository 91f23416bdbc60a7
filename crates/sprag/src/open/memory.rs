//! `memory:` and `memory:NAME`.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use sprag_core::{MemoryStore, Result, Store};

use super::StoreKind;
use super::url::StoreUrl;

pub(super) const KIND: StoreKind = StoreKind {
    scheme: "memory",
    also: &[],
    forms: &[
        ("memory:", "a new store inside this process"),
        ("memory:NAME", "the store of that name inside this process"),
    ],
    between: "the tasks of one process",
    broken_by: &["the end of the process, which forgets all locks and fences"],
    sql: None,
    capability: MemoryStore::ability,
    open,
};

/// The stores that have a name. They stay until the process ends: forgetting one would set its
/// fences back.
static NAMED: LazyLock<Mutex<HashMap<Vec<u8>, MemoryStore>>> = LazyLock::new(Mutex::default);

fn open(url: &StoreUrl<'_>) -> Result<Arc<dyn Store>> {
    url.no_parameters()?;
    if url.rest.starts_with('/') {
        return Err(url.bad("names a place; write memory: or memory:NAME"));
    }
    let name = url.decoded()?;
    if name.is_empty() {
        return Ok(Arc::new(MemoryStore::new()));
    }
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    // A session of its own for each that opens it, as for every other store.
    Ok(Arc::new(named.entry(name).or_default().connect()))
}

#[cfg(test)]
mod tests {
    use crate::Locks;

    #[tokio::test]
    async fn a_name_is_shared_and_no_name_is_not() {
        let one = Locks::open("memory:shared-by-name").unwrap();
        let two = Locks::open("memory:shared-by-name").unwrap();
        let fresh = Locks::open("memory:").unwrap();
        let guard = one.lock("x").acquire().await.unwrap();
        assert!(two.inspect("x").await.unwrap().is_locked());
        assert!(!fresh.inspect("x").await.unwrap().is_locked());
        drop(guard);
    }

    #[test]
    fn other_forms_are_refused() {
        for url in ["memory://x", "memory:/x", "memory:x?size=1", "memory:%"] {
            assert!(Locks::open(url).unwrap_err().is_bad_input(), "{url}");
        }
    }
}
