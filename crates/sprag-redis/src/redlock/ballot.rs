//! [`Ballot`]: the votes of the nodes for one attempt. Pure.

use sprag_core::record::Hold;
use sprag_core::{Fence, LeaseId, Loss};

use super::answer::{Answer, Said};

/// The votes of the nodes for one attempt of a lease.
#[derive(Debug)]
pub(super) struct Ballot {
    lease: LeaseId,
    votes: Vec<Option<Said>>,
    /// Nodes that cannot be asked.
    failed: Vec<usize>,
    /// The latest time by a node's clock.
    pub(super) newest_us: u64,
}

impl Ballot {
    pub(super) fn new(lease: LeaseId, nodes: usize) -> Self {
        Self { lease, votes: vec![None; nodes], failed: Vec::new(), newest_us: 0 }
    }

    /// The node has answered, or cannot be asked.
    pub(super) fn put(&mut self, node: usize, answer: Option<Answer>) {
        match answer {
            Some(answer) => {
                self.newest_us = self.newest_us.max(answer.now_us);
                self.votes[node] = Some(answer.said);
            }
            None => self.failed.push(node),
        }
    }

    /// The node is asked again.
    pub(super) fn take_back(&mut self, node: usize) {
        self.votes[node] = None;
    }

    pub(super) const fn majority(&self) -> usize {
        self.votes.len() / 2 + 1
    }

    fn count(&self, of: impl Fn(&Said) -> bool) -> usize {
        self.votes.iter().flatten().filter(|said| of(said)).count()
    }

    fn granted(&self) -> usize {
        self.count(|said| matches!(said, Said::Yes(_)))
    }

    pub(super) fn is_won(&self) -> bool {
        self.granted() >= self.majority()
    }

    /// Why the lease is over, if any node knows that: only its owner ends it, or who breaks it.
    pub(super) fn gone(&self) -> Option<Loss> {
        self.votes.iter().flatten().find_map(|said| match said {
            Said::Gone(loss) => Some(loss.clone()),
            _ => None,
        })
    }

    /// Whether those who have not spoken yet could still make a majority.
    pub(super) fn is_open(&self) -> bool {
        !self.is_won() && self.gone().is_none() && self.granted() + self.silent() >= self.majority()
    }

    /// Whether too few nodes are left that could vote.
    pub(super) fn is_hopeless(&self) -> bool {
        self.votes.len() - self.failed.len() < self.majority()
    }

    /// The fence of the grant, and the nodes that have it stored with the key.
    pub(super) fn fence(&self) -> (Fence, Vec<usize>) {
        let fences = self.votes.iter().map(|said| match said {
            Some(Said::Yes(fence)) => Some(*fence),
            _ => None,
        });
        let largest = fences.clone().flatten().max().unwrap_or(Fence::ZERO);
        let stored = fences.enumerate().filter(|(_, fence)| *fence == Some(largest));
        (largest, stored.map(|(node, _)| node).collect())
    }

    /// Those nodes that are worth another question at once.
    ///
    /// Where nobody has a majority, all who ask would give up and meet again. So the one that has
    /// most votes goes on, and of equals the one with the smallest lease. The others give up, and
    /// their votes become free.
    pub(super) fn ask_again(&self) -> Vec<usize> {
        let rival = self.rivals().into_iter().map(|(hold, votes)| (votes, hold.lease)).reduce(best);
        let first = match rival {
            Some((votes, _)) if votes >= self.majority() => return Vec::new(),
            Some(rival) => {
                let mine = (self.granted(), self.lease);
                best(mine, rival) == mine
            }
            None => true,
        };
        let nodes = self.votes.iter().enumerate().filter(|(node, said)| match said {
            Some(Said::Held(_)) => first,
            Some(Said::Late | Said::Fresh) => true,
            // The silent may have voted by now; asked again they say the same.
            None => first && !self.failed.contains(node),
            _ => false,
        });
        nodes.map(|(node, _)| node).collect()
    }

    /// Who else has the key, and on how many nodes.
    fn rivals(&self) -> Vec<(&Hold, usize)> {
        let mut rivals: Vec<(&Hold, usize)> = Vec::new();
        for said in self.votes.iter().flatten() {
            let Said::Held(hold) = said else { continue };
            match rivals.iter_mut().find(|(known, _)| known.lease == hold.lease) {
                Some((_, votes)) => *votes += 1,
                None => rivals.push((hold, 1)),
            }
        }
        rivals
    }

    /// Who is in the way, if a majority is there to ask.
    pub(super) fn holder(&self) -> Option<&Hold> {
        let there = self.count(|said| matches!(said, Said::Yes(_) | Said::Held(_))) + self.silent();
        let first = self.rivals().into_iter().max_by_key(|(_, votes)| *votes);
        first.filter(|_| there >= self.majority()).map(|(hold, _)| hold)
    }

    /// Who may have a majority, if those have spoken for it that have not spoken yet.
    pub(super) fn likely_holder(&self) -> Option<&Hold> {
        let first = self.rivals().into_iter().max_by_key(|(_, votes)| *votes);
        let (hold, _) = first.filter(|(_, votes)| votes + self.silent() >= self.majority())?;
        self.witnesses(hold.lease).max_by_key(|hold| (self.witnesses_of(hold), hold.fence))
    }

    /// Whether those who have not spoken yet cannot change who has a majority, and what it is
    /// known by.
    pub(super) fn is_settled(&self) -> bool {
        let most = self.rivals().into_iter().map(|(_, votes)| votes).max().unwrap_or(0);
        let agreed = self.likely_holder().map_or(0, |hold| self.witnesses_of(hold));
        agreed >= self.majority() || most + self.silent() < self.majority()
    }

    /// How many have not spoken yet.
    fn silent(&self) -> usize {
        self.votes.iter().filter(|vote| vote.is_none()).count() - self.failed.len()
    }

    fn witnesses(&self, lease: LeaseId) -> impl Iterator<Item = &Hold> {
        self.votes.iter().flatten().filter_map(move |said| match said {
            Said::Held(hold) if hold.lease == lease => Some(&**hold),
            _ => None,
        })
    }

    /// How many nodes say the same about this holder. Its fence is stored by a majority.
    fn witnesses_of(&self, hold: &Hold) -> usize {
        self.witnesses(hold.lease).filter(|other| other.fence == hold.fence).count()
    }

    /// The largest fence that any node has stored.
    pub(super) fn newest_fence(&self) -> Fence {
        let fences = self.votes.iter().flatten().map(|said| match said {
            Said::Yes(fence) | Said::Free(fence) => *fence,
            Said::Held(hold) => hold.fence,
            _ => Fence::ZERO,
        });
        fences.max().unwrap_or(Fence::ZERO)
    }

    /// Whether all nodes that granted chose the same fence.
    pub(super) fn agree(&self) -> bool {
        self.fence().1.len() == self.granted()
    }

    /// Whether it is known that the node has nothing of this attempt.
    pub(super) fn has_nothing(&self, node: usize) -> bool {
        matches!(
            self.votes[node],
            Some(Said::Held(_) | Said::Fresh | Said::Rests(_) | Said::Gone(_))
        )
    }

    /// Why nodes that have answered did not vote.
    pub(super) fn abstentions(&self) -> impl Iterator<Item = (usize, String)> + '_ {
        self.votes.iter().enumerate().filter_map(|(node, said)| {
            let why = match said.as_ref()? {
                Said::Fresh => "has forgotten its locks".into(),
                Said::Rests(millis) => {
                    let left = millis / 1000 + 1;
                    format!("has forgotten its locks and does not vote for another {left} s")
                }
                Said::Late => "got the request too late".into(),
                _ => return None,
            };
            Some((node, why))
        })
    }

    pub(super) fn is_anybody_fresh(&self) -> bool {
        self.count(|said| *said == Said::Fresh) > 0
    }
}

/// Of two candidates with their votes, the one that goes on.
fn best(one: (usize, LeaseId), other: (usize, LeaseId)) -> (usize, LeaseId) {
    let order = |candidate: &(usize, LeaseId)| (std::cmp::Reverse(candidate.0), candidate.1);
    if order(&one) <= order(&other) { one } else { other }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sprag_core::{Holder, Mode, PartyId};

    fn lease(number: u128) -> LeaseId {
        LeaseId::from_u128(number)
    }

    fn yes(fence: u64) -> Option<Said> {
        Some(Said::Yes(Fence::new(fence).unwrap()))
    }

    fn held(by: u128) -> Option<Said> {
        Some(Said::Held(Box::new(Hold {
            lease: lease(by),
            session: None,
            party: PartyId::from_u128(by),
            mode: Mode::Exclusive,
            fence: Fence::ZERO,
            ttl_ms: 1,
            renewed_ms: 0,
            upgrading: false,
            fixed: false,
            took_over: false,
            holder: Holder::default(),
        })))
    }

    fn ballot(mine: u128, votes: &[Option<Said>]) -> Ballot {
        Ballot { lease: lease(mine), votes: votes.to_vec(), failed: Vec::new(), newest_us: 0 }
    }

    #[test]
    fn a_majority_wins_and_less_does_not() {
        assert!(ballot(1, &[yes(1), None, yes(1)]).is_won());
        let mut open = ballot(1, &[yes(1), None, held(2)]);
        assert!(!open.is_won() && open.is_open());
        open.put(1, None);
        assert!(!open.is_open(), "a node that fails does not vote");
        assert!(!ballot(1, &[held(2), None, held(2)]).is_open());
        assert!(!ballot(1, &[yes(1), yes(1), held(2), None, None]).is_won());
    }

    #[test]
    fn the_fence_is_the_largest_and_stored_where_it_came_from() {
        let (fence, stored) = ballot(1, &[yes(5), yes(7), None, yes(7), held(2)]).fence();
        assert_eq!((fence.get(), stored), (7, vec![1, 3]));
    }

    #[test]
    fn of_those_who_split_the_votes_exactly_one_goes_on() {
        let split = |mine, votes: &[Option<Said>]| ballot(mine, votes).ask_again();
        assert_eq!(split(1, &[yes(1), held(2), held(3)]), [1, 2]);
        assert_eq!(split(1, &[yes(1), held(2), None]), [1, 2]);
        assert_eq!(split(2, &[held(1), yes(1), held(3)]), [0; 0]);
        assert_eq!(split(3, &[held(1), held(2), yes(1)]), [0; 0]);
        // More votes count for more than a small lease.
        assert_eq!(split(9, &[yes(1), yes(1), held(1), held(2), held(3)]), [2, 3, 4]);
        // A holder is not disturbed.
        assert_eq!(split(1, &[yes(1), held(2), held(2)]), [0; 0]);
    }

    #[test]
    fn a_holder_is_seen_although_nodes_are_silent() {
        let looked = |votes: &[Option<Said>]| {
            let ballot = ballot(0, votes);
            (ballot.is_settled(), ballot.likely_holder().map(|hold| hold.lease.as_u128()))
        };
        let free = || Some(Said::Free(Fence::ZERO));
        assert_eq!(looked(&[held(1), held(1), None]), (true, Some(1)));
        assert_eq!(looked(&[held(1), free(), None]), (false, Some(1)));
        assert_eq!(looked(&[held(1), free(), free()]), (true, None));
        assert_eq!(looked(&[free(), None, None]), (false, None));
        assert_eq!(looked(&[free(), free(), None]), (true, None));
    }

    #[test]
    fn a_lease_that_is_over_is_not_asked_for_again() {
        let over = ballot(1, &[Some(Said::Gone(Loss::Released)), yes(1), None]);
        assert!(!over.is_open());
        assert_eq!(over.gone(), Some(Loss::Released));
    }
}
