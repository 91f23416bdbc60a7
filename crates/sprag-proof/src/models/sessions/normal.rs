//! Making states that mean the same look the same.

use sprag_core::{LeaseId, SessionId};

use super::step::{bit, lease_id, session_of};
use super::{Process, Reply, Request, Rule, Sessions, Slot, State, Watched};
use crate::models::normal::{rank_fences, renumber};

impl State {
    /// Starts a process with a new session. `None` if a session from before is still known.
    pub(super) fn start_again(&mut self, index: usize) -> Option<()> {
        let (own, old) = (session_of(index), session_of(index) + 1);
        if self.is_known(old) {
            return None;
        }
        let moved = |session: &mut u8| {
            if *session == own {
                *session = old;
            }
        };
        let moved_bit = |bits: &mut u8| {
            if *bits & bit(own) != 0 {
                *bits = (*bits & !bit(own)) | bit(old);
            }
        };
        let moved_watch = |what: &mut Watched| {
            if let Watched::Session(session) = what {
                moved(session);
            }
        };
        let moved_request = |request: &mut Request| match request {
            Request::Beat { session } | Request::Kill { session } => moved(session),
            Request::Look(what) => moved_watch(what),
            Request::Change { knows, .. } => moved_bit(knows),
        };
        let process = &mut self.processes[index];
        let locks = process.leases.len();
        let knows = process.knows;
        *process =
            Process { anchor: 0, leases: vec![None; locks], watch: None, knows, slot: Slot::Empty };
        moved_bit(&mut self.dead);
        for process in &mut self.processes {
            moved_bit(&mut process.knows);
            if let Some(watch) = &mut process.watch {
                moved_watch(&mut watch.what);
            }
            match &mut process.slot {
                Slot::Sent { request, .. } => moved_request(request),
                Slot::Answered { reply: Reply::Seen { what, .. }, .. } => moved_watch(what),
                Slot::Answered { reply: Reply::Dead(session), .. } => moved(session),
                _ => {}
            }
        }
        self.late.iter_mut().for_each(moved_request);
        for session in self.sessions_in_locks() {
            if *session == SessionId::from_u128(u128::from(own)) {
                *session = SessionId::from_u128(u128::from(old));
            }
        }
        Some(())
    }

    fn sessions_in_locks(&mut self) -> impl Iterator<Item = &mut SessionId> {
        self.locks.iter_mut().flat_map(|record| {
            let holders = record.holders.iter_mut().filter_map(|hold| hold.session.as_mut());
            holders.chain(record.waiters.iter_mut().filter_map(|wait| wait.session.as_mut()))
        })
    }

    /// Whether a session is in a lock, watched, or named by a request. A late acquire of a former
    /// life would bring back the session it was sent with.
    fn is_known(&self, session: u8) -> bool {
        let id = Some(SessionId::from_u128(u128::from(session)));
        let watched = |what: &Watched| *what == Watched::Session(session);
        let named = |request: &Request| match request {
            Request::Beat { session: other } | Request::Kill { session: other } => {
                *other == session
            }
            Request::Look(what) => watched(what),
            Request::Change { .. } => false,
        };
        self.late.iter().any(named)
            || self.locks.iter().any(|record| {
                record.holders.iter().any(|hold| hold.session == id)
                    || record.waiters.iter().any(|wait| wait.session == id)
            })
            || self.processes.iter().any(|process| {
                process.watch.is_some_and(|watch| watched(&watch.what))
                    || match &process.slot {
                        Slot::Sent { request, .. } => named(request),
                        Slot::Answered { reply: Reply::Seen { what, .. }, .. } => watched(what),
                        Slot::Answered { reply: Reply::Dead(other), .. } => *other == session,
                        _ => false,
                    }
            })
    }

    fn is_asked_for(&self, lease: LeaseId) -> bool {
        let named = |request: &Request| matches!(request, Request::Change { lease: id, .. } if lease_id(*id) == lease);
        self.late.iter().any(named)
            || self.processes.iter().any(|process| {
                let mut leases = process.leases.iter().flatten();
                leases.any(|own| lease_id(own.id) == lease)
                    || matches!(&process.slot, Slot::Sent { request, .. } if named(request))
            })
    }

    pub(super) fn unused_lease(&self, index: usize, lock: u8, locks: u8) -> Option<u8> {
        let first = (u8::try_from(index).ok()? * locks + lock) * 2 + 1;
        let record = &self.locks[usize::from(lock)];
        (first..first + 2).find(|id| {
            let lease = lease_id(*id);
            !self.is_asked_for(lease)
                && record.holders.iter().all(|hold| hold.lease != lease)
                && record.waiters.iter().all(|wait| wait.lease != lease)
                && record.gone.iter().all(|gone| gone.lease != lease)
        })
    }

    pub(super) fn normalise(&mut self, model: &Sessions) {
        self.late.sort_unstable();
        let mut records = std::mem::take(&mut self.locks);
        for record in &mut records {
            renumber(record, |lease| self.is_asked_for(lease));
        }
        self.locks = records;
        self.forget_sessions(model);
        self.forget_ages(model);
        self.rename_leases();
        for lock in 0..self.locks.len() {
            let mut fences = vec![&mut self.newest[lock]];
            for process in &mut self.processes {
                fences.extend(process.leases[lock].as_mut().and_then(|lease| lease.held.as_mut()));
                if let Slot::Answered { reply: Reply::Granted { lock: of, fence, .. }, .. } =
                    &mut process.slot
                    && usize::from(*of) == lock
                {
                    fences.push(fence);
                }
            }
            rank_fences(&mut self.locks[lock], fences);
        }
    }

    /// Drops what is known of old sessions that nobody names any more.
    fn forget_sessions(&mut self, model: &Sessions) {
        for old in (0..model.processes).map(|process| process * 2 + 1) {
            if self.is_known(old) {
                continue;
            }
            self.dead &= !bit(old);
            let forget = |request: &mut Request| {
                if let Request::Change { knows, .. } = request {
                    *knows &= !bit(old);
                }
            };
            self.late.iter_mut().for_each(forget);
            for process in &mut self.processes {
                process.knows &= !bit(old);
                if let Slot::Sent { request, .. } = &mut process.slot {
                    forget(request);
                }
            }
        }
    }

    /// Drops answers that come too late to matter, and ages that nobody will look at: those of
    /// heartbeats and of detached leases move a deadline, the others do not.
    fn forget_ages(&mut self, model: &Sessions) {
        for (index, process) in self.processes.iter_mut().enumerate() {
            let unwanted = match &process.slot {
                Slot::Answered { reply, .. } => match reply {
                    Reply::Granted { lock, .. }
                    | Reply::NotGranted { lock }
                    | Reply::Gone { lock } => process.leases[usize::from(*lock)].is_none(),
                    Reply::Nothing => true,
                    _ => false,
                },
                _ => false,
            };
            if unwanted {
                process.slot = Slot::Empty;
            }
            let timeless = match &process.slot {
                Slot::Sent { request: Request::Change { lock, .. }, .. }
                | Slot::Answered {
                    reply:
                        Reply::Granted { lock, .. } | Reply::NotGranted { lock } | Reply::Gone { lock },
                    ..
                } => !model.is_detached(index, usize::from(*lock)),
                Slot::Sent { request: Request::Beat { .. }, .. }
                | Slot::Answered { reply: Reply::Beaten, .. } => false,
                _ => model.rule != Rule::ObservationFromSend,
            };
            if let Slot::Sent { age, .. } | Slot::Answered { age, .. } = &mut process.slot
                && timeless
            {
                *age = 0;
            }
            for (lock, lease) in process.leases.iter_mut().enumerate() {
                if let Some(lease) = lease
                    && !model.is_detached(index, lock)
                {
                    lease.anchor = 0;
                }
            }
        }
    }

    /// Of the two ids of a process's leases on a lock, the one in use is the first.
    fn rename_leases(&mut self) {
        let mut used = [0_u8; 32];
        let mut renamed = |id: u8| {
            let pair = (id - 1) / 2 * 2 + 1;
            let other = pair + 1 - (id - pair);
            match (used[usize::from(id)], used[usize::from(other)]) {
                (0, 0) => used[usize::from(id)] = pair,
                (0, taken) => used[usize::from(id)] = pair + 1 - (taken - pair),
                _ => {}
            }
            used[usize::from(id)]
        };
        for process in &mut self.processes {
            process.leases.iter_mut().flatten().for_each(|lease| lease.id = renamed(lease.id));
            if let Slot::Sent { request: Request::Change { lease, .. }, .. } = &mut process.slot {
                *lease = renamed(*lease);
            }
        }
        for request in &mut self.late {
            if let Request::Change { lease, .. } = request {
                *lease = renamed(*lease);
            }
        }
        let mut rename = |lease: &mut LeaseId| {
            *lease = lease_id(renamed(u8::try_from(lease.as_u128()).unwrap_or(0)));
        };
        for record in &mut self.locks {
            record.holders.iter_mut().for_each(|hold| rename(&mut hold.lease));
            record.waiters.iter_mut().for_each(|wait| rename(&mut wait.lease));
            record.gone.iter_mut().for_each(|gone| rename(&mut gone.lease));
            record.gone.sort_unstable_by_key(|gone| gone.lease);
        }
    }
}
