//! What the promise depends on, and what there is room for: the server about itself.

use sprag_core::diagnosis::Finding;
use tokio_postgres::Row;

use crate::error::Misfit;
use crate::link::Server;

/// Whether the disk is waited for, who has copies, whether this user may do anything, and how many
/// connections there are.
pub(crate) const SETTINGS: &str = "SELECT settings.fsync, settings.standbys, settings.superuser, \
     room.fits, room.most, stored.locks, stored.free, stored.oldest_s, stored.entries, stored.bytes \
     FROM sprag.settings_v1() AS settings, sprag.room_v1() AS room, sprag.stored_v1() AS stored";
/// Fewer connections are few.
const FEW: i64 = 10;

/// What the server says about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    fsync: bool,
    /// All, and those that are waited for.
    standbys: Vec<i64>,
    superuser: bool,
    /// How many more connections there may be, and how many there may be at all.
    fits: i64,
    most: i64,
    stored: Stored,
}

/// What is kept in the database.
#[derive(Clone, Debug, Default)]
struct Stored {
    locks: i64,
    free: i64,
    /// For how long the longest of them is free.
    oldest_s: i64,
    entries: i64,
    bytes: i64,
}

impl Settings {
    pub(crate) fn read(row: &Row) -> Result<Self, Misfit> {
        Ok(Self {
            fsync: row.try_get(0)?,
            standbys: row.try_get(1)?,
            superuser: row.try_get(2)?,
            fits: row.try_get(3)?,
            most: row.try_get(4)?,
            stored: Stored {
                locks: row.try_get(5)?,
                free: row.try_get(6)?,
                oldest_s: row.try_get(7)?,
                entries: row.try_get(8)?,
                bytes: row.try_get::<_, Option<i64>>(9)?.unwrap_or(0),
            },
        })
    }

    /// Judges it.
    pub(crate) fn findings(&self, server: &Server) -> Vec<Finding> {
        let mut findings = vec![Finding::good(format!("PostgreSQL {}, a primary", server.version))];
        findings.push(if self.fsync {
            Finding::good(
                "persistence: grants and renewals are on the disk before they are answered",
            )
        } else {
            Finding::fail(
                "persistence: a crash of the machine forgets who holds what (fsync = off)",
            )
            .fix("set fsync = on in postgresql.conf and reload it")
        });
        findings.push(self.about_standbys());
        findings.push(if self.superuser {
            Finding::warn(
                "rights: sprag logs in as a superuser; who owns the schema sprag could do anything \
                 in its name",
            )
            .fix(
                "log in as a user that only uses locks: SELECT sprag.let_in('its name') lets it in",
            )
        } else {
            Finding::good("rights: no superuser")
        });
        findings.push(self.about_connections(server));
        findings.push(self.stored.finding());
        findings.push(if server.pooled {
            Finding::note(
                "wake-ups: none through a connection pool; waiters ask every now and then",
            )
        } else {
            Finding::good("wake-ups: by LISTEN and NOTIFY, on the one connection of a process")
        });
        findings.push(Finding::note(
            "clock: leases end by the server's time of day; if it jumps ahead, they end early",
        ));
        findings.push(Finding::note("deaths: a holder that died is succeeded when its TTL ends"));
        findings
    }

    fn about_standbys(&self) -> Finding {
        let (all, waited_for) = match self.standbys[..] {
            [all, waited_for, ..] => (all, waited_for),
            _ => (0, 0),
        };
        match (all, waited_for) {
            (0, _) => Finding::good("standbys: none, so no failover can forget a lock"),
            (_, 1..) => {
                Finding::good(format!("standbys: {all}, of which {waited_for} have every lock"))
            }
            _ => Finding::warn(format!(
                "standbys: {all}; a failover may forget the last locks, and two may hold one"
            ))
            .fix("set synchronous_standby_names, or check the fence"),
        }
    }

    /// Each process that uses locks has one connection, as long as it holds or waits.
    fn about_connections(&self, server: &Server) -> Finding {
        let Self { fits, most, .. } = self;
        if server.pooled {
            return Finding::note(format!(
                "connections: one to the pool for each process; of the server's {most}, {fits} are free"
            ));
        }
        let text = format!(
            "connections: {fits} more processes fit, as each has one while it holds or waits; {most} is \
             the most"
        );
        if *fits < FEW {
            let fix = "raise max_connections, or put PgBouncer in front of it for leases";
            return Finding::warn(text).fix(fix);
        }
        Finding::good(text)
    }
}

impl Stored {
    fn finding(&self) -> Finding {
        let Self { locks, free, oldest_s, entries, bytes } = self;
        let (minutes, kib) = (oldest_s / 60, bytes / 1024);
        Finding::good(format!(
            "stored: {locks} locks, {free} of them free, the oldest for {minutes} min; {entries} entries of \
             the trail; {kib} KiB in all"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sprag_core::diagnosis::Health;

    #[test]
    fn what_weakens_the_promise_is_told() {
        let good = Settings {
            fsync: true,
            standbys: vec![0, 0],
            fits: 90,
            most: 97,
            ..Settings::default()
        };
        let worst = |settings: Settings| {
            let found = settings.findings(&Server::example());
            found.into_iter().map(|finding| finding.health).max().unwrap()
        };
        assert_eq!(worst(good.clone()), Health::Note);
        assert_eq!(worst(Settings { standbys: vec![2, 1], ..good.clone() }), Health::Note);
        assert_eq!(worst(Settings { standbys: vec![1, 0], ..good.clone() }), Health::Warn);
        assert_eq!(worst(Settings { superuser: true, ..good.clone() }), Health::Warn);
        assert_eq!(worst(Settings { fits: 3, ..good.clone() }), Health::Warn);
        assert_eq!(worst(Settings { fsync: false, ..good }), Health::Fail);
    }
}
