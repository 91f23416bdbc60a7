//! The simulator and whoever talks to it, compared with GitHub's own description.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sprag_github_sim::{Checker, Setup, Simulator};

use crate::support::{REPO, furnished, path, talk};

#[test]
fn every_endpoint_answers_as_github_describes_it() {
    let github = furnished(Setup::new(1).checked().start());
    let issue = github.add_issue(REPO, "one");
    github.add_pull_request(REPO, "fix one", &[issue]);
    github.comment_as(REPO, issue, "octocat", "hello");
    let mut owner = talk(&github, "octocat");
    let mut ask = |method: &str, path: &str, body: Option<Value>| {
        let answer = owner.ask(method, path, &[], body.as_ref()).unwrap();
        assert!(answer.status < 300, "{method} {path}: {answer:?}");
        answer.body
    };
    for path in ["/user", "/users/worker", "/rate_limit"] {
        ask("GET", path, None);
    }
    ask("GET", &format!("/repos/{REPO}"), None);
    ask("GET", &format!("/search/issues?q=repo:{REPO}+is:issue&sort=created&order=asc"), None);
    ask("GET", &path("assignees/worker"), None);
    ask("GET", &path("collaborators/worker/permission"), None);
    ask("GET", &path("commits?sha=main&per_page=5"), None);
    ask("GET", &path("issues?state=all&labels=a&per_page=100&page=1"), None);
    ask("POST", &path("issues"), Some(json!({"title": "new", "body": "text", "labels": ["a"]})));
    let at = path(&format!("issues/{issue}"));
    ask("GET", &at, None);
    ask("PATCH", &at, Some(json!({"state": "closed", "state_reason": "completed"})));
    ask("POST", &format!("{at}/assignees"), Some(json!({"assignees": ["worker"]})));
    ask("DELETE", &format!("{at}/assignees"), Some(json!({"assignees": ["worker"]})));
    ask("POST", &format!("{at}/labels"), Some(json!({"labels": ["a", "b"]})));
    ask("PUT", &format!("{at}/labels"), Some(json!({"labels": ["a"]})));
    ask("GET", &format!("{at}/labels"), None);
    ask("DELETE", &format!("{at}/labels/a"), None);
    ask("PUT", &format!("{at}/lock"), None);
    ask("DELETE", &format!("{at}/lock"), None);
    ask("GET", &format!("{at}/timeline"), None);
    let comment = ask("POST", &format!("{at}/comments"), Some(json!({"body": "x"})));
    ask("GET", &format!("{at}/comments?since=2026-01-01T00:00:00Z"), None);
    let comment = path(&format!("issues/comments/{}", comment["id"]));
    ask("GET", &comment, None);
    ask("PATCH", &comment, Some(json!({"body": "y"})));
    ask("DELETE", &comment, None);
    let file = json!({"path": "a", "mode": "100644", "type": "blob", "content": "x"});
    let tree = ask("POST", &path("git/trees"), Some(json!({"tree": [file]})))["sha"].clone();
    let body = json!({"message": "m", "tree": tree, "parents": []});
    let commit = ask("POST", &path("git/commits"), Some(body))["sha"].clone();
    ask("GET", &path(&format!("git/commits/{}", commit.as_str().unwrap())), None);
    ask("POST", &path("git/refs"), Some(json!({"ref": "refs/sprag/a", "sha": commit})));
    ask("GET", &path("git/ref/sprag/a"), None);
    ask("GET", &path("git/matching-refs/sprag"), None);
    ask("PATCH", &path("git/refs/sprag/a"), Some(json!({"sha": commit, "force": false})));
    ask("DELETE", &path("git/refs/sprag/a"), None);

    let counters = github.counters();
    let asked: BTreeSet<_> = counters.by_kind().into_keys().map(str::to_owned).collect();
    assert_eq!(asked, Simulator::endpoints().into_iter().collect());
}

#[test]
fn what_is_not_as_described_is_found() {
    if Checker::installed().is_none() {
        return;
    }
    let github = furnished(Setup::new(1).checked().start());
    let mut worker = talk(&github, "worker");
    let mut complaints = |method: &str, path: &str, body: Option<Value>| -> Vec<String> {
        worker.ask(method, path, &[], body.as_ref()).unwrap();
        github.violations().iter().map(ToString::to_string).collect()
    };
    assert_eq!(complaints("GET", "/user", None), [""; 0]);
    assert_eq!(
        complaints("POST", &path("git/commits"), Some(json!({"message": "x"}))),
        ["POST /repos/{owner}/{repo}/git/commits: body.tree: is missing"]
    );
    assert_eq!(
        complaints("GET", &path("issues?stat=open&sort=name"), None).len(),
        2,
        "a name and a value that are not known"
    );
    assert_eq!(
        complaints("POST", &path("git/refs"), Some(json!({"ref": 1, "sha": "x", "forced": true})))
            .len(),
        2
    );
}
