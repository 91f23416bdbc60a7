//! Who held a lock before, from the audit trail.

use std::collections::HashMap;

use serde_json::{Value, json};
use sprag::audit::{AuditEntry, AuditKind, AuditQuery};
use sprag::{Fence, LeaseId, LockName};

use crate::output::plain::one_line;
use crate::output::time;
use crate::store::Opened;

/// How far back the trail is read, and how many of those who held it are shown.
const ENTRIES: usize = 100;
const TENURES: usize = 3;

/// One time that somebody held the lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tenure {
    who: String,
    token: Fence,
    /// Not known if it is too long ago.
    from: Option<u64>,
    until: u64,
    end: AuditKind,
}

/// The last who held the lock and do not any more, the latest first. Nothing where the store keeps
/// no trail.
pub(super) async fn read(opened: &Opened, name: &LockName) -> Vec<Tenure> {
    let query = AuditQuery { name: Some(name.clone()), after: 0, limit: ENTRIES };
    tenures(&opened.audit(&query).await.unwrap_or_default())
}

fn tenures(entries: &[AuditEntry]) -> Vec<Tenure> {
    let mut began: HashMap<LeaseId, u64> = HashMap::new();
    let mut ended: Vec<(LeaseId, Tenure)> = Vec::new();
    for entry in entries.iter().filter(|entry| entry.fence != Fence::ZERO) {
        match entry.kind {
            AuditKind::Acquired => {
                began.entry(entry.lease).or_insert(entry.at_unix_ms);
            }
            AuditKind::RenewedLate | AuditKind::Refused | AuditKind::Unreadable => {}
            end => match ended.iter_mut().find(|(lease, _)| *lease == entry.lease) {
                // Told twice: who took it away says more than who noticed.
                Some((_, tenure)) if tenure.end == AuditKind::Lost => tenure.end = end,
                Some(_) => {}
                None => ended.push((
                    entry.lease,
                    Tenure {
                        who: entry.holder.worker_id.clone(),
                        token: entry.fence,
                        from: began.get(&entry.lease).copied(),
                        until: entry.at_unix_ms,
                        end,
                    },
                )),
            },
        }
    }
    ended.into_iter().rev().take(TENURES).map(|(_, tenure)| tenure).collect()
}

impl Tenure {
    /// `token 8 alice 09:12-09:14 released`.
    pub(super) fn text(&self) -> String {
        let Self { who, token, from, until, end } = self;
        let until = time::minute(*until);
        let when = match from.map(time::minute) {
            Some(from) if from != until => format!("{from}-{until}"),
            _ => until,
        };
        format!("token {token} {} {when} {end}", one_line(who))
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "holder": self.who,
            "token": self.token.get(),
            "from": self.from.map(time::rfc3339),
            "until": time::rfc3339(self.until),
            "end": self.end.as_str().replace(' ', "_"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{AuditEntry, AuditKind, Fence, LeaseId, tenures};
    use sprag::{Holder, LockName};

    fn entry(minute: u64, who: u64, kind: AuditKind) -> AuditEntry {
        let name = LockName::new("x").unwrap();
        let (lease, fence) = (LeaseId::from_u128(who.into()), Fence::new(who).unwrap());
        let holder = Holder::new(format!("w{who}"), "node");
        AuditEntry::new(minute * 60_000, name, kind, fence, lease, holder)
    }

    #[test]
    fn the_last_three_are_told_each_once_and_the_holder_is_not() {
        use AuditKind::{Acquired, Broken, Lost, Refused, Released, RenewedLate};
        let trail = [
            entry(1, 1, Acquired),
            entry(2, 1, Released),
            entry(3, 2, Released),
            entry(4, 3, Acquired),
            entry(5, 3, Lost),
            entry(6, 3, Broken),
            entry(6, 4, Acquired),
            entry(6, 9, Refused),
            entry(6, 4, Released),
            entry(7, 5, Acquired),
            entry(8, 5, RenewedLate),
        ];
        let told: Vec<_> = tenures(&trail).iter().map(|tenure| tenure.text()).collect();
        let day = "1970-01-01 ";
        assert_eq!(
            told,
            [
                format!("token 4 w4 {day}00:06 released"),
                format!("token 3 w3 {day}00:04-{day}00:05 broken"),
                format!("token 2 w2 {day}00:03 released"),
            ]
        );
    }
}
