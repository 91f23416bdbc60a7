//! States that mean the same are made to look the same.

use super::{Ask, Attempt, Client, Late, Nodes, Phase, Redlock, Rule, State, bit};
use crate::models::normal::rank;

impl State {
    /// All fences there are, to be changed.
    fn fences(&mut self) -> Vec<&mut u64> {
        let mut fences = vec![&mut self.last];
        fences.extend(self.nodes.iter_mut().map(|node| &mut node.fence));
        fences.extend(self.clients.iter_mut().map(|client| &mut client.fence));
        fences.extend(self.late.iter_mut().filter_map(|late| match &mut late.ask {
            Ask::Store(fence) => Some(fence),
            _ => None,
        }));
        fences
    }

    pub(super) fn newest_fence(&self) -> u64 {
        let nodes = self.nodes.iter().map(|node| node.fence);
        let clients = self.clients.iter().map(|client| client.fence);
        nodes.chain(clients).max().unwrap_or(0).max(self.last)
    }

    /// The attempts of the client that somebody may still name.
    fn attempts(&mut self, index: usize) -> Vec<&mut Attempt> {
        let keys = self.nodes.iter_mut().filter_map(|node| node.key.as_mut());
        let named = keys.map(|key| &mut key.attempt);
        let named = named.chain(self.late.iter_mut().map(|late| &mut late.attempt));
        let mut named: Vec<_> = named.filter(|attempt| attempt.client == index).collect();
        let client = &mut self.clients[index];
        if client.phase == Phase::Idle && named.is_empty() {
            (client.attempt, client.entered) =
                (Attempt { client: index, ..Attempt::default() }, false);
        } else {
            named.push(&mut client.attempt);
        }
        named
    }

    pub(super) fn known_attempts(&self, index: usize) -> usize {
        let keys = self.nodes.iter().filter_map(|node| node.key).map(|key| key.attempt);
        let late = self.late.iter().map(|late| late.attempt);
        let mut known: Vec<_> = keys.chain(late).filter(|known| known.client == index).collect();
        known.sort_unstable();
        known.dedup();
        known.len()
    }

    /// Attempts get the smallest numbers that keep their order, and leases too.
    fn renumber_attempts(&mut self, index: usize) {
        let mut attempts = self.attempts(index);
        let ranks = |mut all: Vec<u8>| {
            all.sort_unstable();
            all.dedup();
            move |one: u8| {
                u8::try_from(all.partition_point(|other| *other < one)).unwrap_or(u8::MAX)
            }
        };
        let number = ranks(attempts.iter().map(|attempt| attempt.number).collect());
        let lease = ranks(attempts.iter().map(|attempt| attempt.lease).collect());
        for attempt in &mut attempts {
            (attempt.lease, attempt.number) = (lease(attempt.lease), number(attempt.number) + 1);
        }
    }

    /// Numbers become ranks; fences twice their ranks, so that there is room between them. Of the
    /// states that differ only in who is who, the smallest stands for all.
    pub(super) fn normalised(mut self, model: &Redlock) -> Self {
        self.forget_what_does_nothing(model.rule);
        (0..self.clients.len()).for_each(|index| self.renumber_attempts(index));
        let mut fences = self.fences();
        rank(&mut fences);
        fences.into_iter().for_each(|fence| *fence *= 2);
        self.late.sort_unstable();
        let (nodes, clients) = (orders(1, model.nodes), orders(0, model.clients));
        let pairs =
            nodes.iter().flat_map(|nodes| clients.iter().map(move |clients| (nodes, clients)));
        pairs.map(|(nodes, clients)| self.renamed(nodes, clients)).min().unwrap_or(self)
    }

    /// A request that the node will refuse for ever is as good as answered.
    fn forget_what_does_nothing(&mut self, rule: Rule) {
        for client in &mut self.clients {
            let is_wrong = rule == Rule::WriteBackAnywhere && client.phase == Phase::Storing;
            if is_wrong || matches!(client.phase, Phase::Idle | Phase::Taking) {
                continue;
            }
            let (attempt, freeing) = (client.attempt, client.phase == Phase::Freeing);
            let means = |other: Attempt| {
                other == attempt
                    || freeing && other.is_of_lease_of(attempt) && other.number < attempt.number
            };
            for (place, node) in self.nodes.iter().enumerate() {
                let comes = |late: &Late| {
                    late.node == place && late.ask == Ask::Take && means(late.attempt)
                };
                let is_there = node.key.is_some_and(|key| means(key.attempt));
                if !is_there && !self.late.iter().any(comes) {
                    client.asked &= !bit(place);
                }
            }
            if freeing {
                client.yes = 0;
                if client.asked == 0 {
                    client.stop();
                }
            }
        }
    }

    /// The state in which node `nodes[i]` is called `i`, and so the clients.
    fn renamed(&self, nodes: &[usize], clients: &[usize]) -> Self {
        let place = |order: &[usize], old: usize| order.iter().position(|o| *o == old).unwrap_or(0);
        let moved = |set: Nodes| {
            nodes
                .iter()
                .enumerate()
                .fold(0, |sum, (new, old)| sum | if set & bit(*old) == 0 { 0 } else { bit(new) })
        };
        let mut state = self.clone();
        state.nodes = nodes.iter().map(|old| self.nodes[*old].clone()).collect();
        for key in state.nodes.iter_mut().filter_map(|node| node.key.as_mut()) {
            key.attempt.client = place(clients, key.attempt.client);
        }
        let rename = |(new, old): (usize, &usize)| {
            let client = self.clients[*old].clone();
            let (stored, asked, yes) =
                (moved(client.stored), moved(client.asked), moved(client.yes));
            let attempt = Attempt { client: new, ..client.attempt };
            Client { attempt, stored, asked, yes, ..client }
        };
        state.clients = clients.iter().enumerate().map(rename).collect();
        for late in &mut state.late {
            late.node = place(nodes, late.node);
            late.attempt.client = place(clients, late.attempt.client);
        }
        state.late.sort_unstable();
        state
    }
}

/// All orders of `0..count` in which the first `fixed` stay where they are.
fn orders(fixed: usize, count: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![(0..fixed).collect::<Vec<_>>()];
    for _ in fixed..count {
        orders = orders
            .into_iter()
            .flat_map(|order| {
                let left: Vec<_> = (fixed..count).filter(|next| !order.contains(next)).collect();
                left.into_iter().map(move |next| [order.as_slice(), &[next]].concat())
            })
            .collect();
    }
    orders
}
