//! What the promise depends on: the settings of the server.

use sprag_core::diagnosis::Finding;

use crate::link::Server;

/// Whether the disk is waited for, who has copies, and whether this user may do anything.
pub(crate) const SETTINGS: &str = "SELECT fsync, standbys, superuser FROM sprag.settings_v1()";

/// Judges what the server says about itself.
pub(crate) fn findings(
    server: &Server,
    fsync: bool,
    standbys: &[i64],
    superuser: bool,
) -> Vec<Finding> {
    let mut findings = vec![Finding::good(format!("PostgreSQL {}, a primary", server.version))];
    findings.push(if fsync {
        Finding::good("persistence: grants and renewals are on the disk before they are answered")
    } else {
        Finding::fail("persistence: a crash of the machine forgets who holds what (fsync = off)")
            .fix("set fsync = on in postgresql.conf and reload it")
    });
    let (all, waited_for) = match standbys {
        [all, waited_for, ..] => (*all, *waited_for),
        _ => (0, 0),
    };
    findings.push(match (all, waited_for) {
        (0, _) => Finding::good("standbys: none, so no failover can forget a lock"),
        (_, 1..) => {
            Finding::good(format!("standbys: {all}, of which {waited_for} have every lock"))
        }
        _ => Finding::warn(format!(
            "standbys: {all}; a failover may forget the last locks, and two may hold one"
        ))
        .fix("set synchronous_standby_names, or check the fence"),
    });
    findings.push(if superuser {
        Finding::warn(
            "rights: sprag logs in as a superuser; who owns the schema sprag could do anything \
             in its name",
        )
        .fix("log in as a user that only uses locks: SELECT sprag.let_in('its name') lets it in")
    } else {
        Finding::good("rights: no superuser")
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
        let worst = |fsync, standbys: &[i64], superuser| {
            let found = findings(&Server::example(), fsync, standbys, superuser);
            found.into_iter().map(|finding| finding.health).max().unwrap()
        };
        assert_eq!(worst(true, &[0, 0], false), Health::Note);
        assert_eq!(worst(true, &[2, 1], false), Health::Note);
        assert_eq!(worst(true, &[1, 0], false), Health::Warn);
        assert_eq!(worst(true, &[0, 0], true), Health::Warn);
        assert_eq!(worst(false, &[0, 0], false), Health::Fail);
    }
}
