//! A day of many workers on one account, in simulated time.

use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use sprag_core::clock::Clock;
use sprag_core::store::{Attempt, Bind, Renewal, Renewed, Request, Takeover};
use sprag_core::{Holder, LeaseId, LockName, Mode, PartyId, Store};
use sprag_github_sim::{Permission, Simulator};

use crate::api::Api;
use crate::budget::Budget;
use crate::{GitHubConfig, GitHubStore, Token};

const WORKERS: u64 = 40;
const LOCKS: u64 = 3;
const TTL: Duration = Duration::from_secs(300);
const HOUR: Duration = Duration::from_secs(3600);

fn store(github: &Simulator, folder: &std::path::Path) -> GitHubStore {
    let clock = github.clock();
    let token = Token::new("secret").unwrap();
    let config = GitHubConfig::new("acme", "app").unwrap().api(github.url()).unwrap();
    let config = config.clock(Arc::clone(&clock) as Arc<dyn Clock>).state(None);
    let budget = Budget::new(Some(folder), "x", Arc::clone(&clock) as Arc<dyn Clock>);
    // The test waits for whoever takes or renews, so that one lets time pass for everybody.
    let budget = budget.pausing(move |span| match std::thread::current().name() {
        Some("sprag-mirror") => clock.wait(span),
        _ => clock.advance(span),
    });
    let api = Api::with_budget(&config, token, budget).unwrap();
    GitHubStore::over(&config, Arc::new(api)).unwrap()
}

fn name(issue: u64) -> LockName {
    LockName::new(format!("issue-{issue}")).unwrap()
}

/// Takes a lock as soon as the budget allows it.
fn acquire(github: &Simulator, store: &GitHubStore, issue: u64) {
    let request = Request {
        name: name(issue),
        lease: LeaseId::from_u128(issue.into()),
        party: PartyId::from_u128(issue.into()),
        mode: Mode::Exclusive,
        ttl: TTL,
        queue: false,
        priority: 0,
        holder: Holder::new(format!("worker-{issue}"), "node"),
        detached: false,
        fixed: false,
        takeover: Takeover::No,
        resize: false,
    };
    loop {
        match block_on(store.try_acquire(&request)) {
            Ok(Attempt::Granted(_)) => return,
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert!(error.message().contains("rate limit"), "{error}"),
        }
        github.advance(Duration::from_secs(1));
    }
}

/// A whole day with `SPRAG_TORTURE=full`, else an hour and a bit.
#[test]
fn forty_workers_with_three_locks_each_stay_inside_of_the_limits() {
    let full = std::env::var("SPRAG_TORTURE").is_ok_and(|how| how == "full");
    let length = if full { 24 * HOUR } else { HOUR + HOUR / 6 };
    let folder = tempfile::tempdir().unwrap();
    let github = Simulator::start(7);
    github.add_token("secret", "octocat");
    github.add_repo("acme/app");
    github.add_collaborator("acme/app", "octocat", Permission::Write);
    for issue in 1..=WORKERS * LOCKS {
        github.add_issue("acme/app", &format!("task {issue}"));
    }
    let begun = github.clock().now();
    let workers: Vec<_> = (0..WORKERS).map(|_| store(&github, folder.path())).collect();
    let locks = |worker: u64| (1..=LOCKS).map(move |lock| worker * LOCKS + lock);
    let step = TTL / 3 / u32::try_from(WORKERS).unwrap();
    for (worker, number) in workers.iter().zip(0..) {
        locks(number).for_each(|issue| acquire(&github, worker, issue));
        github.advance(Duration::from_millis(5_500));
    }
    while github.clock().now().since(begun) < length {
        for (worker, number) in workers.iter().zip(0..) {
            let renewals: Vec<_> = locks(number)
                .map(|issue| Renewal {
                    name: name(issue),
                    lease: LeaseId::from_u128(issue.into()),
                    ttl: TTL,
                    bind: Bind::Keep,
                })
                .collect();
            let renewed = block_on(worker.renew(&renewals)).unwrap();
            assert!(renewed.iter().all(|one| matches!(one, Renewed::Held(_))), "{renewed:?}");
            github.advance(step);
        }
    }
    let counters = github.counters();
    let hour = |cost: fn(&sprag_github_sim::Call) -> u64| counters.peak(HOUR, cost);
    let told = format!(
        "{} requests, {} changes, {} comments in the busiest hour",
        hour(|call| call.primary),
        hour(|call| u64::from(call.mutation)),
        hour(|call| u64::from(call.content)),
    );
    println!("{told}");
    assert_eq!(counters.denied(), 0, "{told}");
    assert!(hour(|call| call.primary) < 5_000, "{told}");
    assert!(hour(|call| u64::from(call.mutation)) <= 3_600, "{told}");
    assert!(hour(|call| u64::from(call.content)) <= 500, "{told}");
    let minute = counters.peak(Duration::from_secs(60), |call| u64::from(call.content));
    assert!(minute <= 80, "{minute} comments in a minute");
    let state = github.state();
    for issue in 1..=WORKERS * LOCKS {
        let comments = state.repo("acme/app").unwrap().comments(issue).len();
        assert!(comments <= 1, "issue {issue} has {comments} comments");
    }
    // The mirror's threads have a hard time to follow a clock that runs a hundred times as fast.
    let shown = (1..=WORKERS * LOCKS).filter_map(|issue| silence_shown(&github, issue));
    let fresh = shown.filter(|seconds| *seconds <= 35 * 60).count() as u64;
    println!("{fresh} issues show a heartbeat of the last half an hour");
    assert!(fresh * 2 >= WORKERS * LOCKS, "{fresh}: signs of life leave nothing to be shown");
}

/// How many seconds ago the comment of an issue says that its holder gave a sign of life.
fn silence_shown(github: &Simulator, issue: u64) -> Option<u64> {
    let state = github.state();
    let comments = state.repo("acme/app")?.comments(issue);
    let body = comments.first()?.now()?.body.clone();
    let json = body.split("```json\n").nth(1)?.split("\n```").next()?;
    let told: crate::LockMetadata = serde_json::from_str(json).ok()?;
    let shown = crate::time::parse(&told.lock.heartbeat_last)?;
    Some((github.clock().unix_micros() / 1_000_000).saturating_sub(shown))
}
