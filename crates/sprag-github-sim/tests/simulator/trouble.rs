//! Limits, lag and faults.

use std::time::Duration;

use crate::support::{REPO, furnished, github, path, talk};
use serde_json::json;
use sprag_github_sim::{Fault, FaultPlan, Limits, Manner, Setup, Simulator, Talk, Target};

const SECOND: Duration = Duration::from_secs(1);

fn comment(talk: &mut Talk, issue: u64) -> std::io::Result<sprag_github_sim::Answer> {
    talk.send("POST", &path(&format!("issues/{issue}/comments")), &json!({"body": "x"}))
}

#[test]
fn an_answer_that_is_known_already_costs_nothing() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    let mut worker = talk(&github, "worker");
    let issue_path = path(&format!("issues/{issue}"));
    let first = worker.get(&issue_path).unwrap();
    let tag = first.header("etag").unwrap().to_owned();
    assert_eq!(first.header("x-ratelimit-used"), Some("1"));
    let again = |talk: &mut Talk| {
        let answer = talk.ask("GET", &issue_path, &[("if-none-match", &tag)], None).unwrap();
        (answer.status, answer.header("x-ratelimit-used").unwrap().to_owned())
    };
    assert_eq!(again(&mut worker), (304, "1".into()));
    // It belongs to the token.
    assert_eq!(again(&mut talk(&github, "octocat")).0, 200);
    github.label_issue(REPO, issue, "new");
    assert_eq!(again(&mut worker), (200, "2".into()));
    let counters = github.counters().of("worker");
    assert_eq!((counters.len(), counters.primary(), counters.mutations()), (3, 2, 0));
}

#[test]
fn the_hourly_limit_is_shared_by_all_tokens_of_an_account() {
    let github = github();
    github.limits(Limits { primary: 3, ..Limits::GITHUB });
    github.add_token("second", "worker");
    let mut worker = talk(&github, "worker");
    let mut other = Talk::new(github.url(), Some("second"));
    for _ in 0..2 {
        assert_eq!(worker.get("/user").unwrap().status, 200);
    }
    assert_eq!(other.get("/user").unwrap().status, 200);
    let refused = other.get("/user").unwrap();
    assert_eq!((refused.status, refused.header("x-ratelimit-remaining")), (403, Some("0")));
    let message = refused.body["message"].as_str().unwrap();
    assert!(message.starts_with("API rate limit exceeded"), "{message}");
    let rates = worker.get("/rate_limit").unwrap();
    assert_eq!((rates.status, &rates.body["rate"]["remaining"]), (200, &json!(0)));
    assert_eq!(talk(&github, "octocat").get("/user").unwrap().status, 200);
    github.advance(Duration::from_secs(3600));
    assert_eq!(worker.get("/user").unwrap().status, 200);
}

#[test]
fn too_many_comments_in_a_minute_are_refused_in_the_manner_that_is_set() {
    for (manner, status, has_hint) in
        [(Manner::Forbidden, 403, true), (Manner::TooMany, 429, true), (Manner::Silent, 403, false)]
    {
        let github = github();
        github.limits(Limits { content_per_minute: 2, manner, ..Limits::GITHUB });
        let issue = github.add_issue(REPO, "one");
        let mut worker = talk(&github, "worker");
        assert_eq!(comment(&mut worker, issue).unwrap().status, 201);
        assert_eq!(comment(&mut worker, issue).unwrap().status, 201);
        let refused = comment(&mut worker, issue).unwrap();
        assert_eq!((refused.status, refused.header("retry-after").is_some()), (status, has_hint));
        assert!(refused.body["message"].as_str().unwrap().contains("secondary rate limit"));
        assert_ne!(refused.header("x-ratelimit-remaining"), Some("0"));
        github.advance(Duration::from_secs(60));
        assert_eq!(comment(&mut worker, issue).unwrap().status, 201);
        let counters = github.counters();
        assert_eq!((counters.denied(), counters.content(), counters.primary()), (1, 4, 3));
    }
}

#[test]
fn reads_are_behind_and_writes_are_not() {
    let github = github();
    github.advance(Duration::from_secs(100));
    github.lag(Duration::from_secs(10));
    let issue = github.add_issue(REPO, "one");
    let mut worker = talk(&github, "worker");
    let main = worker.get(&path("git/ref/heads/main")).unwrap().body["object"]["sha"].clone();
    let refs = path("git/refs");
    let body = json!({"ref": "refs/sprag/a", "sha": main});
    assert_eq!(worker.send("POST", &refs, &body).unwrap().status, 201);
    assert_eq!(comment(&mut worker, issue).unwrap().status, 201);
    let comments = path(&format!("issues/{issue}/comments"));
    let mut seen = || {
        let found = worker.get(&path("git/ref/sprag/a")).unwrap().status == 200;
        (found, worker.get(&comments).unwrap().body.as_array().unwrap().len())
    };
    assert_eq!(seen(), (false, 0));
    github.advance(5 * SECOND);
    let looks: Vec<_> = (0..20).map(|_| seen().0).collect();
    assert!(looks.contains(&true) && looks.contains(&false), "{looks:?}");
    github.advance(6 * SECOND);
    assert_eq!(seen(), (true, 1));
    // What was just written is answered as it was written.
    let created = worker.send("POST", &path("issues"), &json!({"title": "two"})).unwrap();
    let labels = path(&format!("issues/{}/labels", created.body["number"]));
    assert_eq!(worker.send("POST", &labels, &json!({"labels": ["a"]})).unwrap().status, 200);
    assert_eq!(worker.send("POST", &refs, &body).unwrap().status, 422);
}

#[test]
fn what_goes_wrong_before_is_not_done_and_what_goes_wrong_after_is() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    let mut worker = talk(&github, "worker");
    let count = || github.state().repo(REPO).unwrap().comments(issue).len();
    for (fault, status, done) in [
        (Fault::ErrorBefore(503), Some(503), 0),
        (Fault::CloseBefore, None, 0),
        (Fault::Flake, Some(422), 0),
        (Fault::ErrorAfter(502), Some(502), 1),
        (Fault::CloseAfter, None, 2),
    ] {
        github.fail_next(Target::Kind("/comments"), fault);
        assert_eq!(worker.get("/user").unwrap().status, 200, "another kind is spared");
        assert_eq!(comment(&mut worker, issue).ok().map(|it| it.status), status, "{fault:?}");
        assert_eq!(count(), done, "{fault:?}");
    }
    assert_eq!(comment(&mut worker, issue).unwrap().status, 201);
    github.outage(Some(500));
    assert_eq!(worker.get("/user").unwrap().status, 500);
    github.outage(None);
    assert_eq!(worker.get("/user").unwrap().status, 200);
}

#[test]
fn a_late_write_has_the_smaller_id_and_comes_after() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    github.fail_next(Target::Writes, Fault::LateWrite(5 * SECOND));
    std::thread::scope(|scope| {
        let late = scope.spawn(|| comment(&mut talk(&github, "worker"), issue).unwrap());
        while github.pending_faults() > 0 {
            std::thread::yield_now();
        }
        let first = comment(&mut talk(&github, "octocat"), issue).unwrap();
        assert_eq!(github.state().repo(REPO).unwrap().comments(issue).len(), 1);
        github.advance(5 * SECOND);
        let late = late.join().unwrap();
        assert!(late.body["id"].as_u64() < first.body["id"].as_u64());
    });
    assert_eq!(github.state().repo(REPO).unwrap().comments(issue).len(), 2);
}

#[test]
fn the_same_seed_brings_the_same_trouble() {
    let run = |seed: u64| {
        let github = furnished(Simulator::start(seed));
        github.faults(FaultPlan::ambiguous(0.3).with(Target::Reads, 0.2, Fault::ErrorBefore(502)));
        let issue = github.add_issue(REPO, "one");
        let mut worker = talk(&github, "worker");
        let mut outcomes = Vec::new();
        for _ in 0..30 {
            outcomes.push(comment(&mut worker, issue).ok().map(|answer| answer.status));
            outcomes.push(worker.get("/user").ok().map(|answer| answer.status));
        }
        (outcomes, github.state().repo(REPO).unwrap().comments(issue).len())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn a_clock_that_runs_is_followed_by_the_date() {
    let github = furnished(Setup::new(1).speed(1000).start());
    let mut worker = talk(&github, "worker");
    let date = |talk: &mut Talk| talk.get("/user").unwrap().header("date").unwrap().to_owned();
    let first = date(&mut worker);
    github.clock().wait(2 * SECOND);
    assert_ne!(date(&mut worker), first);
}

#[test]
fn too_many_requests_at_once_are_refused() {
    let github = github();
    github.limits(Limits { concurrent: 1, ..Limits::GITHUB });
    github.fail_next(Target::Any, Fault::LateWrite(SECOND));
    std::thread::scope(|scope| {
        let ask = || talk(&github, "worker").get("/user").unwrap().status;
        let slow = scope.spawn(ask);
        while github.pending_faults() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(ask(), 403);
        github.advance(SECOND);
        assert_eq!(slow.join().unwrap(), 200);
    });
}
