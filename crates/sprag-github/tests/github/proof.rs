//! Many workers, late reads, lost answers and kills: never two believe to hold one issue.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use sprag_core::clock::{Clock, Moment};
use sprag_core::store::{Attempt, Request, Takeover};
use sprag_core::{LeaseId, LockName, Store};
use sprag_github::{GitHubConfig, GitHubStore, Token};
use sprag_github_sim::SimClock;
use sprag_github_sim::proof::{Claimer, Hold, Proof, Worker};

use crate::place::request;

const TTL: Duration = Duration::from_secs(60);
/// How often something that was not answered is asked again.
const TRIES: usize = 10;

/// A worker that asks the store by itself, in the time of the simulation.
struct Ours {
    store: GitHubStore,
    clock: Arc<SimClock>,
    number: u128,
    leases: u128,
    held: HashMap<u64, LeaseId>,
}

struct Believed {
    fence: u64,
    until: Moment,
    clock: Arc<SimClock>,
}

impl Hold for Believed {
    fn fence(&self) -> u64 {
        self.fence
    }

    fn is_valid(&self) -> bool {
        self.clock.now() < self.until
    }
}

impl Ours {
    fn new(worker: Worker) -> Self {
        let config = GitHubConfig::parse(worker.repo).unwrap().api(&worker.url).unwrap();
        let config = config
            .token(Token::new(worker.token).unwrap())
            .clock(Arc::clone(&worker.clock) as Arc<dyn Clock>)
            .poll(Duration::from_secs(1)..=Duration::from_secs(4))
            // The simulation is thirty times as fast as GitHub is, and so are its limits.
            .limits(false)
            .mirror(false)
            .state(None);
        let store = GitHubStore::open(&config).unwrap();
        let number = u128::try_from(worker.number).unwrap() << 64;
        Self { store, clock: worker.clock, number, leases: 0, held: HashMap::new() }
    }

    fn give_back(&self, issue: u64, lease: LeaseId) {
        let answered = |_: usize| block_on(self.store.release(&name(issue), lease)).is_ok();
        assert!((0..TRIES * 10).any(answered), "it was never answered");
    }
}

fn name(issue: u64) -> LockName {
    LockName::new(format!("issue-{issue}")).unwrap()
}

impl Claimer for Ours {
    fn claim(&mut self, issue: u64) -> Option<Arc<dyn Hold>> {
        self.leases += 1;
        let ask = Request {
            name: name(issue),
            takeover: Takeover::Overdue(Duration::ZERO),
            ..request(self.number + self.leases, TTL)
        };
        let sent = self.clock.now();
        for _ in 0..TRIES {
            match block_on(self.store.try_acquire(&ask)) {
                Ok(Attempt::Granted(grant)) => {
                    self.held.insert(issue, ask.lease);
                    let until = sent.plus(TTL.mul_f64(0.99));
                    let (fence, clock) = (grant.fence.get(), Arc::clone(&self.clock));
                    return Some(Arc::new(Believed { fence, until, clock }));
                }
                Ok(_) => return None,
                // Unknown: the same lease asks again.
                Err(error) if error.is_indeterminate() => {}
                Err(error) => panic!("{error}"),
            }
        }
        self.give_back(issue, ask.lease);
        None
    }

    fn release(&mut self, issue: u64) {
        if let Some(lease) = self.held.remove(&issue) {
            self.give_back(issue, lease);
        }
    }

    fn kill(self: Box<Self>) {}
}

#[test]
fn never_two_believe_to_hold_an_issue() {
    for accounts in [1, 4] {
        let proof = Proof { accounts, ..Proof::sized() };
        let report = proof.run(|worker| Box::new(Ours::new(worker)));
        println!("{accounts} accounts: {report}");
        report.assert_safe();
    }
}
