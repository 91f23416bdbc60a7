//! What the promise depends on: the settings of the server.

use sprag_core::diagnosis::Finding;

use crate::link::Server;

/// Whether the disk is waited for, whether commits are, and who has copies: all standbys, and those
/// that are waited for.
pub(crate) const SETTINGS: &str = "SELECT current_setting('fsync')::boolean, \
     current_setting('synchronous_commit'), \
     ARRAY[count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum'))] \
     FROM pg_stat_replication";

/// Judges what the server says about itself.
pub(crate) fn findings(
    server: &Server,
    fsync: bool,
    commits: &str,
    standbys: Vec<i64>,
) -> Vec<Finding> {
    let mut findings = vec![Finding::good(format!("PostgreSQL {}, a primary", server.version))];
    findings.push(if fsync {
        Finding::good("persistence: grants and renewals are on the disk before they are answered")
    } else {
        Finding::fail("persistence: a crash of the machine forgets who holds what (fsync = off)")
            .fix("set fsync = on in postgresql.conf and reload it")
    });
    let (all, waited_for) = match standbys[..] {
        [all, waited_for, ..] => (all, waited_for),
        _ => (0, 0),
    };
    findings.push(match (all, waited_for, commits) {
        (0, ..) => Finding::good("standbys: none, so no failover can forget a lock"),
        (_, 1.., "on" | "remote_apply") => {
            Finding::good(format!("standbys: {all}, of which {waited_for} have every lock"))
        }
        _ => Finding::warn(format!(
            "standbys: {all}; a failover may forget the last locks, and two may hold one"
        ))
        .fix("set synchronous_standby_names and synchronous_commit = on, or check the fence"),
    });
    findings.push(if server.pooled {
        Finding::note("wake-ups: none through a connection pool; waiters ask every now and then")
    } else {
        Finding::good("wake-ups: by LISTEN and NOTIFY, on a second connection")
    });
    findings.push(Finding::note(
        "clock: leases end by the server's time of day; if it jumps ahead, they end early",
    ));
    findings.push(Finding::note("deaths: a holder that died is succeeded when its TTL ends"));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use sprag_core::diagnosis::Health;

    #[test]
    fn what_weakens_the_promise_is_told() {
        let worst = |fsync, commits, standbys: &[i64]| {
            let server = Server::example();
            let found = findings(&server, fsync, commits, standbys.to_vec());
            found.into_iter().map(|finding| finding.health).max().unwrap()
        };
        assert_eq!(worst(true, "on", &[0, 0]), Health::Note);
        assert_eq!(worst(true, "on", &[2, 1]), Health::Note);
        assert_eq!(worst(true, "local", &[2, 1]), Health::Warn);
        assert_eq!(worst(true, "on", &[1, 0]), Health::Warn);
        assert_eq!(worst(false, "on", &[0, 0]), Health::Fail);
    }
}
