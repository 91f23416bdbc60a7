//! What the promise depends on: the nodes, and that a majority of them votes.

use sprag_core::diagnosis::Finding;
use sprag_core::{Operation, Result};

use super::membership::{GRACE, NOT_YET, look};
use super::nodes::Nodes;
use crate::hello::Info;
use crate::script::Call;

/// Asks every node, and judges what they say.
pub(super) async fn diagnose(nodes: &Nodes, fences: bool) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let (census, failures) = look(nodes, GRACE).await;
    let (votes, count, needed) = (census.votes.len(), nodes.count(), nodes.majority());
    findings.push(match votes {
        _ if votes == count => Finding::good(format!("nodes: all {count} vote, {needed} decide")),
        _ if votes >= needed => Finding::warn(format!(
            "nodes: {votes} of {count} vote and {needed} decide: {} more may fail",
            votes - needed
        )),
        _ => Finding::fail(format!("nodes: {votes} of {count} vote, and {needed} have to")),
    });
    for (node, left) in &census.rests {
        let (address, left) = (nodes.link(*node).address(), left / 1000 + 1);
        let text =
            format!("{address} was restarted, may have forgotten locks and rests for {left} s");
        let how = format!(
            "if nobody holds a lock from before, type redis-cli HDEL '{}' rest there",
            nodes.mark()
        );
        findings.push(Finding::warn(text).fix(how));
    }
    for (node, _) in &census.fresh {
        let address = nodes.link(*node).address();
        findings.push(Finding::note(format!("{address} knows of no lock, and {NOT_YET}")));
    }
    let asking = (0..count).map(|node| {
        (node, async move { nodes.link(node).ask::<String>(Call::plain(&["INFO"])).await })
    });
    let mut heard = 0;
    let asked = nodes.gather(asking, nodes.timeout, |node, info| {
        heard += 1;
        findings.extend(info.iter().flat_map(|info| about(nodes, node, &Info::read(info))));
        heard == count
    });
    drop(asked.await);
    if votes < count && !failures.is_empty() {
        let error = nodes.no_majority(Operation::Inspect, None, &failures);
        findings.push(Finding::note(error.message().to_owned()));
    }
    findings.push(if fences {
        Finding::good("fences: stored by a majority before a lock is granted")
    } else {
        Finding::warn("fences: switched off, so nothing stops a holder that was paused too long")
    });
    findings.push(Finding::note(
        "clocks: leases end by the nodes' time of day; if a majority jumps ahead, they end early",
    ));
    findings.push(Finding::note("deaths: a holder that died is succeeded when its TTL ends"));
    Ok(findings)
}

fn about(nodes: &Nodes, node: usize, info: &Info) -> Vec<Finding> {
    let address = nodes.link(node).address();
    let mut findings = Vec::new();
    if let Some(policy) = info.evicts() {
        let text = format!("{address}: locks can be evicted (maxmemory-policy {policy})");
        findings.push(Finding::fail(text).fix("type CONFIG SET maxmemory-policy noeviction"));
    }
    if let Some(jump) = nodes.link(node).server.jump() {
        let text = format!("{address}: its clock has jumped by {jump} ms since we connected");
        findings.push(
            Finding::warn(text)
                .fix("let the server's clock be slewed, not stepped (chrony, ntpd -x)"),
        );
    }
    if info.get("connected_slaves") != "0" {
        let text = format!("{address}: has replicas; a failover forgets its last votes");
        findings.push(Finding::warn(text).fix("let the nodes of Redlock stand alone"));
    }
    findings
}
