//! Making states that mean the same look the same.

use sprag_core::record::Record;
use sprag_core::{Fence, LeaseId, SessionId};

use super::step::{LEASES, NOW_MS, lease_id};
use super::{Baton, Client, Heir, Message, State};
use crate::models::normal::{rank_fences, renumber};

impl State {
    pub(super) fn new_lease(&mut self, index: usize, asks: u8) -> Option<u8> {
        if self.asked[index] == asks {
            return None;
        }
        self.asked[index] += 1;
        let first = u8::try_from(index).ok()? * LEASES + 1;
        (first..first + LEASES).find(|id| !self.is_known(*id))
    }

    fn is_known(&self, id: u8) -> bool {
        let Record { holders, waiters, .. } = &self.record;
        holders.iter().any(|hold| hold.lease == lease_id(id))
            || waiters.iter().any(|wait| wait.lease == lease_id(id))
            || self.clients.iter().any(|client| client.names(id))
            || self.messages.iter().any(|message| message.names(id))
    }

    pub(super) fn normalise(&mut self, model: &Baton) {
        self.forget_what_is_over();
        self.rename(model);
        self.rank_fences();
    }

    fn forget_what_is_over(&mut self) {
        let clients = &self.clients;
        // Who has left or was let in hears no baton, and who has left hears nothing.
        self.messages.retain(|message| {
            let hears = |client: &Client| match client {
                Client::Waiting { lease, .. } => *lease == message.lease(),
                Client::Inside(inside) => {
                    inside.lease == message.lease() && matches!(message, Message::Told { .. })
                }
                Client::Idle | Client::Leaving { .. } => false,
            };
            clients.iter().any(hears)
        });
        renumber(&mut self.record, |lease| {
            clients.iter().any(|client| client.lease().map(lease_id) == Some(lease))
        });
        for wait in &mut self.record.waiters {
            // Priorities are worth 10 s, so arrivals only order equals, and tickets do that.
            wait.arrived_ms = NOW_MS;
        }
        let Record { holders, waiters, .. } = &self.record;
        self.dead.retain(|id| {
            holders.iter().any(|hold| hold.lease == lease_id(*id))
                || waiters.iter().any(|wait| wait.lease == lease_id(*id))
        });
    }

    fn rank_fences(&mut self) {
        let mut promised = self.record.heir.map_or(0, |heir| heir.fence.get());
        let mut fences = vec![&mut self.newest, &mut self.entered, &mut promised];
        for client in &mut self.clients {
            if let Client::Inside(inside) = client {
                fences.push(&mut inside.fence);
                fences.extend(inside.heir.as_mut().map(|heir| &mut heir.fence));
            }
        }
        for message in &mut self.messages {
            match message {
                Message::Told { fence, heir, .. } => {
                    fences.push(fence);
                    fences.extend(heir.as_mut().map(|heir| &mut heir.fence));
                }
                Message::Baton { heir, .. } => fences.push(&mut heir.fence),
            }
        }
        rank_fences(&mut self.record, fences);
        if let Some(heir) = &mut self.record.heir {
            heir.fence = Fence::new(promised).unwrap_or(Fence::MAX);
        }
    }

    /// Sorts the clients that are like each other, and numbers each client's leases in the order in
    /// which they are looked at here.
    fn rename(&mut self, model: &Baton) {
        let order = self.client_order(model);
        let mut place = [0_u8; 4];
        for (new, old) in (0..).zip(&order) {
            place[*old] = new;
        }
        self.clients = order.iter().map(|old| self.clients[*old]).collect();
        self.asked = order.iter().map(|old| self.asked[*old]).collect();
        let mut next = [0_u8; 4];
        let mut new_ids = [0_u8; 32];
        let mut renamed = |id: u8| {
            let owner = model.owner_of(id);
            let new_id = &mut new_ids[usize::from(id)];
            if *new_id == 0 {
                *new_id = place[owner] * LEASES + next[owner] + 1;
                next[owner] += 1;
            }
            *new_id
        };
        self.clients.iter_mut().for_each(|client| client.rename(&mut renamed));
        let as_id = |lease: LeaseId| u8::try_from(lease.as_u128()).unwrap_or(0);
        for hold in &mut self.record.holders {
            hold.lease = lease_id(renamed(as_id(hold.lease)));
            hold.session = Some(SessionId::from_u128(hold.lease.as_u128()));
        }
        for wait in &mut self.record.waiters {
            wait.lease = lease_id(renamed(as_id(wait.lease)));
            wait.session = Some(SessionId::from_u128(wait.lease.as_u128()));
        }
        if let Some(heir) = &mut self.record.heir {
            heir.lease = lease_id(renamed(as_id(heir.lease)));
        }
        for gone in &mut self.record.gone {
            gone.lease = lease_id(renamed(as_id(gone.lease)));
        }
        self.record.gone.sort_unstable_by_key(|gone| gone.lease);
        for message in &mut self.messages {
            match message {
                Message::Told { lease, heir, .. } => {
                    *lease = renamed(*lease);
                    heir.iter_mut().for_each(|heir| heir.lease = renamed(heir.lease));
                }
                Message::Baton { from, heir } => {
                    *from = renamed(*from);
                    heir.lease = renamed(heir.lease);
                }
            }
        }
        self.messages.sort_unstable();
        self.dead.iter_mut().for_each(|id| *id = renamed(*id));
        self.dead.sort_unstable();
    }

    fn client_order(&self, model: &Baton) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.clients.len()).collect();
        order.sort_by_cached_key(|index| {
            let client = &self.clients[*index];
            let lease = client.lease().map(lease_id);
            let waits = self.record.waiters.iter().position(|wait| Some(wait.lease) == lease);
            let holds = self.record.holders.iter().any(|hold| Some(hold.lease) == lease);
            let told =
                self.messages.iter().filter(|message| Some(message.lease()) == client.lease());
            (
                model.is_mighty(*index),
                self.asked[*index],
                client.without_leases(),
                holds,
                waits,
                told.count(),
            )
        });
        order
    }
}

impl Client {
    fn names(&self, id: u8) -> bool {
        let inside = match self {
            Self::Inside(inside) => {
                inside.predecessor == Some(id) || inside.heir.is_some_and(|heir| heir.lease == id)
            }
            Self::Leaving { predecessor, .. } => *predecessor == Some(id),
            Self::Idle | Self::Waiting { .. } => false,
        };
        inside || self.lease() == Some(id)
    }

    fn rename(&mut self, renamed: &mut impl FnMut(u8) -> u8) {
        match self {
            Self::Idle => {}
            Self::Waiting { lease, .. } => *lease = renamed(*lease),
            Self::Leaving { lease, predecessor } => {
                *lease = renamed(*lease);
                *predecessor = predecessor.map(renamed);
            }
            Self::Inside(inside) => {
                inside.lease = renamed(inside.lease);
                inside.predecessor = inside.predecessor.map(&mut *renamed);
                inside.heir = inside.heir.map(|heir| Heir { lease: renamed(heir.lease), ..heir });
            }
        }
    }

    fn without_leases(mut self) -> Self {
        self.rename(&mut |_| 0);
        self
    }
}

impl Message {
    fn names(&self, id: u8) -> bool {
        let heir = |heir: &Heir| heir.lease == id;
        match self {
            Self::Told { lease, heir: other, .. } => {
                *lease == id || other.as_ref().is_some_and(heir)
            }
            Self::Baton { from, heir: to } => *from == id || heir(to),
        }
    }
}
