//! The names of the locks that nodes know of.

use std::collections::BTreeSet;

use sprag_core::store::Listing;
use sprag_core::{LockName, Operation, Result};

use super::membership::GRACE;
use super::nodes::{Failures, Nodes};
use crate::script::Call;

/// How many keys a node looks at in one step.
const STEP: &str = "1000";

/// All names that a majority of nodes knows, in order, after those that were listed before. A lock
/// that is held is known to every majority, so nobody waits long for the others.
pub(super) async fn names(nodes: &Nodes, listing: &Listing) -> Result<BTreeSet<LockName>> {
    let mut names = BTreeSet::new();
    let mut missing: Vec<usize> = (0..nodes.count()).collect();
    let mut failures = Failures::default();
    for (patience, enough) in [(nodes.timeout, nodes.majority()), (GRACE, nodes.count())] {
        let mut awaited = missing.len();
        let asked = missing.clone();
        let asking = asked.into_iter().map(|node| (node, names_on(nodes, node)));
        failures = nodes
            .gather(asking, patience, |node, found| {
                awaited -= 1;
                if let Some(found) = found {
                    missing.retain(|other| *other != node);
                    names.extend(found);
                }
                awaited == 0 || nodes.count() - missing.len() >= enough
            })
            .await;
        if missing.is_empty() {
            break;
        }
    }
    let answered = nodes.count() - missing.len();
    if answered < nodes.majority() {
        return Err(nodes.no_majority(Operation::List, None, &failures));
    }
    names.retain(|name: &LockName| {
        name.as_str().starts_with(&listing.prefix)
            && listing.after.as_ref().is_none_or(|after| name > after)
    });
    Ok(names)
}

async fn names_on(nodes: &Nodes, node: usize) -> Result<Vec<LockName>> {
    let (pattern, mut cursor, mut names) = (nodes.pattern(), String::from("0"), Vec::new());
    loop {
        let call = Call::plain(&["SCAN", &cursor, "MATCH", &pattern, "COUNT", STEP]);
        let (next, keys): (String, Vec<String>) = nodes.link(node).ask(call).await?;
        names.extend(keys.iter().filter_map(|key| nodes.name_in(key)));
        if next == "0" {
            return Ok(names);
        }
        cursor = next;
    }
}
