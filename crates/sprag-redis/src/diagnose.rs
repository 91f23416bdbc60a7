//! What the promise depends on: the settings of the server.

use sprag_core::diagnosis::Finding;
use sprag_core::{Operation, Result};

use crate::hello::{FSYNC, Info};
use crate::link::Server;
use crate::script::Call;
use crate::store::min_replicas;
use crate::way::Way;

/// Asks every server, and judges what it says.
pub(crate) async fn diagnose(way: &Way, configured: Option<u32>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for link in way.links(Operation::Inspect).await? {
        let asked = link.ask::<String>(Call::plain(&["INFO"])).await;
        let text = asked.map_err(|error| error.during(Operation::Inspect))?;
        let mut info = Info::read(&text);
        if let Ok(answer) = link.ask(Call::plain(&FSYNC)).await {
            info.learn_fsync(answer);
        }
        findings.extend(self::findings(&info, &link.server, min_replicas(configured, &link)));
    }
    Ok(findings)
}

/// Judges what the server says about itself.
fn findings(info: &Info, server: &Server, confirm: u32) -> Vec<Finding> {
    let mut findings = vec![Finding::good(format!("Redis {}, a master", info.version()))];
    findings.push(match info.evicts() {
        None => Finding::good("memory: no key is evicted (maxmemory-policy noeviction)"),
        Some(policy) => Finding::fail(format!("locks can be evicted (maxmemory-policy {policy})"))
            .fix("type CONFIG SET maxmemory-policy noeviction"),
    });
    findings.push(if info.has_log() {
        Finding::good("persistence: append-only file; locks survive a restart of the server")
    } else if info.writes_log() && info.stops_at_rewrite() {
        Finding::warn("persistence: a crash while the log is rewritten forgets the locks since")
            .fix("type CONFIG SET no-appendfsync-on-rewrite no, and set it in redis.conf")
    } else if info.writes_log() {
        Finding::warn("persistence: a crash of the server forgets the locks of the last seconds")
            .fix("type CONFIG SET appendfsync always, and set it in redis.conf")
    } else {
        Finding::warn("persistence: a restart of the server forgets who holds what")
            .fix("set appendonly yes and appendfsync always, by CONFIG SET and in redis.conf")
    });
    let replicas = info.get("connected_slaves");
    findings.push(if replicas == "0" {
        Finding::good("replicas: none, so no failover can forget a lock")
    } else if confirm > 0 {
        Finding::note(format!(
            "replicas: {replicas}, of which {confirm} confirm each lock; a failover to another one may \
             forget the last locks"
        ))
    } else {
        Finding::warn(format!(
            "replicas: {replicas}; a failover may forget the last locks, and two may hold one"
        ))
        .fix(format!("add min_replicas={replicas} to the URL, so that they confirm each lock"))
    });
    findings.push(match server.jump() {
        Some(jump) => {
            Finding::warn(format!("clock: it has jumped by {jump} ms since we connected"))
                .fix("let the server's clock be slewed, not stepped (chrony, ntpd -x)")
        }
        None => Finding::note(
            "clock: leases end by the server's time of day; if it jumps ahead, they end early",
        ),
    });
    if let Some(left) = server.closed_for() {
        let text = format!(
            "quarantine: it was restarted and may have forgotten locks; none is granted for {} s",
            left.as_secs() + 1
        );
        let how = server.longest.how_to_end();
        findings.push(
            Finding::warn(text).fix(format!("if nobody holds a lock from before, type {how}")),
        );
    }
    findings.push(Finding::note("deaths: a holder that died is succeeded when its TTL ends"));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Quarantine;
    use crate::longest::Longest;
    use sprag_core::diagnosis::Health;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn what_weakens_the_promise_is_told() {
        let worst = |text: &str| {
            let longest = Arc::new(Longest::new("longest".into(), "open".into(), Duration::ZERO));
            let server = Server::new("redis", Quarantine::default(), longest);
            findings(&Info::read(text), &server, 0)
                .into_iter()
                .map(|finding| finding.health)
                .max()
                .unwrap()
        };
        let good = "redis_version:7.0.15\nmaxmemory_policy:noeviction\naof_enabled:1\nconnected_slaves:0\n\
             appendfsync:always";
        assert_eq!(worst(good), Health::Note);
        assert_eq!(worst(&good.replace("aof_enabled:1", "aof_enabled:0")), Health::Warn);
        assert_eq!(worst(&good.replace("fsync:always", "fsync:everysec")), Health::Warn);
        let stops = format!("{good}\nno-appendfsync-on-rewrite:yes");
        assert_eq!(worst(&stops), Health::Warn);
        assert_eq!(worst(&good.replace("slaves:0", "slaves:1")), Health::Warn);
        assert_eq!(worst(&good.replace("noeviction", "allkeys-lru")), Health::Fail);
    }
}
