//! Making states that mean the same look the same.

use sprag_core::record::Record;
use sprag_core::{LeaseId, SessionId};

use super::step::{NOW_MS, lease_id};
use super::{Queue, Reply, Rule, Slot, State, What};
use crate::models::normal::{rank_fences, renumber};

impl State {
    fn is_known(&self, lease: LeaseId) -> bool {
        let Record { holders, waiters, gone, .. } = &self.record;
        self.is_asked_for(lease)
            || holders.iter().any(|hold| hold.lease == lease)
            || waiters.iter().any(|wait| wait.lease == lease)
            || gone.iter().any(|gone| gone.lease == lease)
    }

    /// Whether a client or a request may still name the lease.
    fn is_asked_for(&self, lease: LeaseId) -> bool {
        let named = |id: u8| lease_id(id) == lease;
        let mut clients = self.clients.iter();
        self.late.iter().any(|request| named(request.lease))
            || clients.any(|client| {
                client.lease.as_ref().is_some_and(|lease| named(lease.id))
                    || matches!(&client.slot, Slot::Sent { request, .. } if named(request.lease))
            })
    }

    pub(super) fn unused_lease(&self, index: usize, leases: u8) -> Option<u8> {
        let first = u8::try_from(index).ok()? * leases + 1;
        (first..first + leases).find(|id| !self.is_known(lease_id(*id)) && !self.dead.contains(id))
    }

    pub(super) fn normalise(&mut self, model: &Queue) {
        for client in &mut self.clients {
            if client.lease.is_none() && matches!(client.slot, Slot::Answered { .. }) {
                client.slot = Slot::Empty;
            }
            if model.rule == Rule::Right {
                client.slot.forget_age();
            }
        }
        let mut record = std::mem::take(&mut self.record);
        renumber(&mut record, |lease| self.is_asked_for(lease));
        for wait in &mut record.waiters {
            // Priorities are worth 10 s, so arrivals only order equals, and tickets do that.
            wait.arrived_ms = NOW_MS;
        }
        self.record = record;
        let mut dead = std::mem::take(&mut self.dead);
        dead.retain(|id| self.is_known(lease_id(*id)));
        self.dead = dead;
        self.rename(model);
        self.rank_fences();
    }

    fn rank_fences(&mut self) {
        let mut fences = vec![&mut self.newest];
        for request in &mut self.late {
            if let What::Evict(fence) = &mut request.what {
                fences.push(fence);
            }
        }
        for client in &mut self.clients {
            if let Some(held) = client.lease.as_mut().and_then(|lease| lease.held.as_mut()) {
                fences.push(&mut held.fence);
            }
            if let Slot::Answered { reply: Reply::Granted(held), .. } = &mut client.slot {
                fences.push(&mut held.fence);
            }
        }
        rank_fences(&mut self.record, fences);
    }

    /// Sorts clients with equal roles, and numbers each client's leases in the order in which
    /// they are looked at here: its own, then those on their way, then those in the record.
    fn rename(&mut self, model: &Queue) {
        let order = self.client_order(model);
        let mut place = [0_u8; 4];
        for (new, old) in (0..).zip(&order) {
            place[*old] = new;
        }
        self.clients = order.iter().map(|old| std::mem::take(&mut self.clients[*old])).collect();
        let leases = model.leases;
        let mut next = [0_u8; 4];
        let mut new_ids = [0_u8; 32];
        let mut renamed = |id: u8| {
            let owner = usize::from((id - 1) / leases);
            let new_id = &mut new_ids[usize::from(id)];
            if *new_id == 0 {
                *new_id = place[owner] * leases + next[owner] + 1;
                next[owner] += 1;
            }
            *new_id
        };
        for client in &mut self.clients {
            if let Some(lease) = &mut client.lease {
                lease.id = renamed(lease.id);
            }
            if let Slot::Sent { request, .. } = &mut client.slot {
                request.lease = renamed(request.lease);
            }
        }
        for request in self.late.iter_mut().filter(|request| request.lease > 0) {
            request.lease = renamed(request.lease);
        }
        let mut rename = |lease: &mut LeaseId| {
            *lease = lease_id(renamed(u8::try_from(lease.as_u128()).unwrap_or(0)));
        };
        for hold in &mut self.record.holders {
            rename(&mut hold.lease);
            hold.session = Some(SessionId::from_u128(hold.lease.as_u128()));
        }
        for wait in &mut self.record.waiters {
            rename(&mut wait.lease);
            wait.session = Some(SessionId::from_u128(wait.lease.as_u128()));
        }
        self.record.gone.iter_mut().for_each(|gone| rename(&mut gone.lease));
        self.record.holders.sort_unstable_by_key(|hold| hold.lease);
        self.record.gone.sort_unstable_by_key(|gone| gone.lease);
        self.dead.iter_mut().for_each(|id| *id = renamed(*id));
        self.dead.sort_unstable();
        self.late.sort_unstable();
    }

    fn client_order(&self, model: &Queue) -> Vec<usize> {
        let waiting_at =
            |id: u8| self.record.waiters.iter().position(|wait| wait.lease == lease_id(id));
        let holds = |id: u8| self.record.holders.iter().any(|hold| hold.lease == lease_id(id));
        let mut order: Vec<usize> = (0..self.clients.len()).collect();
        order.sort_by_cached_key(|index| {
            let role = model.roles.iter().position(|role| *role == model.roles[*index]);
            let client = &self.clients[*index];
            let lease = client.lease.as_ref().map(|lease| {
                (lease.anchor, lease.wish, lease.held, holds(lease.id), waiting_at(lease.id))
            });
            let slot = match &client.slot {
                Slot::Empty => (0, 0, None),
                Slot::Sent { age, request } => (1, *age, Some((request.what, None))),
                Slot::Answered { age, what, reply } => (2, *age, Some((*what, Some(*reply)))),
            };
            (role, lease, slot)
        });
        order
    }
}

impl Slot {
    /// Only the ages of those requests are looked at whose answer may move the deadline.
    fn forget_age(&mut self) {
        use What::{Acquire, Renew, RenewShort};
        match self {
            Self::Sent { request, .. }
                if matches!(request.what, Acquire(_) | Renew | RenewShort) => {}
            Self::Answered {
                what: Renew | RenewShort,
                reply: Reply::Granted(_) | Reply::NotGranted,
                ..
            }
            | Self::Answered { what: Acquire(_), reply: Reply::NotGranted, .. }
            | Self::Empty => {}
            Self::Sent { age, .. } | Self::Answered { age, .. } => *age = 0,
        }
    }
}
