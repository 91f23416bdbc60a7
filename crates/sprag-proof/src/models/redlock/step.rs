//! One step of the model.

use super::{
    AGAIN, Action, Ask, Attempt, Client, EXPIRED, EXTENDED, Key, LATE, Late, Phase, RESTARTED,
    RESTED, Redlock, Rule, SPLIT, STORED, State, UNHEARD, bit,
};

/// What a node answers.
enum Answer {
    /// Yes, with the fence that is stored there.
    Yes(u64),
    No,
}

impl Redlock {
    pub(super) fn step(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Tick => self.tick(state),
            Action::Take(index) => {
                let Client { mut attempt, entered, .. } = state.clients[index];
                attempt.number += 1;
                attempt.lease += u8::from(entered);
                let (phase, asked) = (Phase::Taking, self.everybody());
                state.clients[index] = Client { phase, attempt, asked, ..Client::default() };
            }
            Action::Serve(index, node) => {
                let ask = state.clients[index].ask()?;
                let answer = self.serve(state, node, state.clients[index].attempt, ask);
                self.hear(&mut state.clients[index], node, ask, &answer);
            }
            Action::ServeUnheard(index, node) => {
                let ask = state.clients[index].ask()?;
                let answer = self.serve(state, node, state.clients[index].attempt, ask);
                if let (Answer::Yes(_), Ask::Take) = (answer, ask) {
                    self.happened.note(UNHEARD);
                }
                state.clients[index].asked &= !bit(node);
            }
            Action::LeaveBehind(index, node) => {
                let client = &mut state.clients[index];
                let (ask, attempt) = (client.ask()?, client.attempt);
                client.asked &= !bit(node);
                state.late.push(Late { node, attempt, ask });
            }
            Action::ServeLate(index) => {
                let Late { node, attempt, ask } = state.late.remove(index);
                if let Answer::Yes(_) = self.serve(state, node, attempt, ask) {
                    self.happened.note(LATE);
                }
            }
            Action::Store(index) => {
                let client = &mut state.clients[index];
                client.phase = Phase::Storing;
                client.asked = self.everybody() & !client.stored;
                client.yes = 0;
            }
            Action::Enter(index) => self.enter(state, index),
            Action::Extend(index) => {
                let client = &mut state.clients[index];
                (client.extension, client.asked, client.yes) = (Some(0), self.everybody(), 0);
            }
            Action::Extended(index) => {
                let client = &mut state.clients[index];
                client.age = client.age.min(client.extension?);
                (client.extension, client.asked, client.yes) = (None, 0, 0);
                self.happened.note(EXTENDED);
            }
            Action::Free(index) => {
                if state.clients[index].phase == Phase::Taking {
                    self.happened.note(SPLIT);
                }
                self.free(&mut state.clients[index]);
            }
            Action::Stop(index) => state.clients[index].stop(),
            Action::Restart(index) => self.restart(state, index),
        }
        Some(())
    }

    const fn everybody(&self) -> u8 {
        (1 << self.nodes) - 1
    }

    fn free(&self, client: &mut Client) {
        client.stop();
        (client.phase, client.asked) = (Phase::Freeing, self.everybody());
    }

    fn tick(&self, state: &mut State) {
        for node in &mut state.nodes {
            node.rest = node.rest.saturating_sub(1);
            if let Some(key) = &mut node.key {
                key.age += 1;
                if key.age >= self.ttl {
                    node.key = None;
                    self.happened.note(EXPIRED);
                }
            }
        }
        for client in &mut state.clients {
            if client.is_timed() {
                client.age = (client.age + 1).min(self.ttl);
            }
            if let Some(age) = &mut client.extension {
                *age = (*age + 1).min(self.ttl);
            }
            if client.is_timed() && client.age >= self.ttl {
                // Too late for everything but to free what is left.
                self.free(client);
            }
        }
    }

    /// The node does what it is asked.
    fn serve(&self, state: &mut State, index: usize, attempt: Attempt, ask: Ask) -> Answer {
        let newest = state.newest_fence();
        let node = &mut state.nodes[index];
        let same = |key: &Key| key.attempt == attempt;
        match ask {
            Ask::Take => {
                if node.rest > 0 {
                    self.happened.note(RESTED);
                    return Answer::No;
                }
                match node.key {
                    Some(key) if !key.attempt.is_of_lease_of(attempt) => return Answer::No,
                    Some(key) if key.attempt.number > attempt.number => return Answer::No,
                    Some(key) if same(&key) => return Answer::Yes(node.fence),
                    Some(_) => self.happened.note(AGAIN),
                    // The first node's clock is ahead. What the others count is odd, and so just
                    // above what is stored and below everything else.
                    None => node.fence = if index == 0 { newest + 2 } else { node.fence + 1 },
                }
                node.key = Some(Key { attempt, age: 0 });
                node.asked = self.rule == Rule::SilenceIsProof;
            }
            Ask::Store(fence) => {
                let held = node.key.as_ref().is_some_and(same) && node.rest == 0;
                if !held && self.rule != Rule::WriteBackAnywhere {
                    return Answer::No;
                }
                if fence > node.fence {
                    self.happened.note(STORED);
                }
                node.fence = node.fence.max(fence);
            }
            Ask::Extend => match &mut node.key {
                Some(key) if same(key) => key.age = 0,
                _ => return Answer::No,
            },
            Ask::Free => {
                let mine = |key: Key| {
                    key.attempt.is_of_lease_of(attempt)
                        && (key.attempt.number <= attempt.number
                            || self.rule == Rule::FreesLaterAttempts)
                };
                if !node.key.is_some_and(mine) {
                    return Answer::No;
                }
                node.key = None;
            }
        }
        Answer::Yes(node.fence)
    }

    fn hear(&self, client: &mut Client, node: usize, ask: Ask, answer: &Answer) {
        client.asked &= !bit(node);
        let Answer::Yes(fence) = *answer else { return };
        client.yes |= bit(node);
        match ask {
            Ask::Take if fence > client.fence => {
                (client.fence, client.stored) = (fence, bit(node));
            }
            Ask::Take if fence < client.fence => {}
            Ask::Take | Ask::Store(_) => client.stored |= bit(node),
            Ask::Extend | Ask::Free => {}
        }
        if self.rule == Rule::DeadlineFromReply && ask == Ask::Take {
            client.age = 0;
        }
    }

    fn enter(&self, state: &mut State, index: usize) {
        let client = &mut state.clients[index];
        (client.phase, client.asked, client.yes, client.stored) = (Phase::Holding, 0, 0, 0);
        state.fence_went_back = client.fence <= state.last;
        state.last = client.fence;
        (client.fence, client.entered) = (0, true);
    }

    fn restart(&self, state: &mut State, index: usize) {
        let newest = state.newest_fence();
        let ignorant = state.nodes.iter().enumerate();
        let ignorant = ignorant.filter(|(other, node)| *other == index || !node.asked).count();
        let votes = match self.rule {
            Rule::FreshNodeVotes => true,
            Rule::SilenceIsProof => ignorant > self.nodes / 2,
            _ => false,
        };
        let node = &mut state.nodes[index];
        if node.key.take().is_some() {
            self.happened.note(RESTARTED);
        }
        node.fence = if self.rule == Rule::FreshFences { 0 } else { newest };
        (node.rest, node.asked) = (if votes { 0 } else { self.ttl }, false);
    }
}

impl Client {
    /// Does nothing any more, and remembers only what it asked for last.
    pub(super) fn stop(&mut self) {
        *self = Self { attempt: self.attempt, entered: self.entered, ..Self::default() };
    }

    /// What it asks the nodes that it asks something.
    const fn ask(&self) -> Option<Ask> {
        match (self.phase, self.extension) {
            (Phase::Taking, _) => Some(Ask::Take),
            (Phase::Storing, _) => Some(Ask::Store(self.fence)),
            (Phase::Holding, Some(_)) => Some(Ask::Extend),
            (Phase::Freeing, _) => Some(Ask::Free),
            (Phase::Holding, None) | (Phase::Idle, _) => None,
        }
    }

    const fn is_timed(&self) -> bool {
        matches!(self.phase, Phase::Taking | Phase::Storing | Phase::Holding)
    }
}
