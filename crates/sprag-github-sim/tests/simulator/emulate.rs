//! The simulator beside `emulate`: the same calls, the same answers, but for what is listed.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sprag_github_sim::{Emulate, Talk};

use crate::support::{REPO, github};

/// One call: what it is called here, what is asked, and which fields of the answer are compared.
/// `{x}` in the path and in texts of the body is what `keep` took out of an earlier answer.
struct Step {
    name: &'static str,
    method: &'static str,
    path: &'static str,
    body: Value,
    fields: &'static [&'static str],
    keep: Option<(&'static str, &'static str)>,
}

fn step(name: &'static str, method: &'static str, path: &'static str, body: Value) -> Step {
    Step { name, method, path, body, fields: &[], keep: None }
}

impl Step {
    fn fields(mut self, fields: &'static [&'static str]) -> Self {
        self.fields = fields;
        self
    }

    fn keep(mut self, field: &'static str, name: &'static str) -> Self {
        self.keep = Some((field, name));
        self
    }
}

/// What differs, and why we are right: GitHub's description, or measurements.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    // The description says 201.
    ("assign", "201", "200"),
    ("assign again", "201", "200"),
    // Strangers are left out without a word, says the description.
    ("assign nobody", "201", "422"),
    // GitHub writes it without the hyphen.
    (
        "backwards",
        "422 /message=\"Update is not a fast forward\"",
        "422 /message=\"Update is not a fast-forward\"",
    ),
];

fn issue_steps() -> Vec<Step> {
    let none = Value::Null;
    vec![
        step("me", "GET", "/user", none.clone()).fields(&["/login"]),
        step("repository", "GET", "/repos/octocat/locks", none.clone()).fields(&[
            "/full_name",
            "/default_branch",
            "/archived",
            "/private",
        ]),
        step("no repository", "GET", "/repos/octocat/none", none.clone()).fields(&["/message"]),
        step("issue", "POST", "{repo}/issues", json!({"title": "one", "body": "text"})).fields(&[
            "/number",
            "/title",
            "/body",
            "/state",
            "/user/login",
            "/comments",
        ]),
        step("untitled issue", "POST", "{repo}/issues", json!({"body": "text"})),
        step("no issue", "GET", "{repo}/issues/99", none.clone()).fields(&["/message"]),
        step("assign", "POST", "{repo}/issues/1/assignees", json!({"assignees": ["octocat"]}))
            .fields(&["/assignees/0/login", "/assignee/login"]),
        step(
            "assign again",
            "POST",
            "{repo}/issues/1/assignees",
            json!({"assignees": ["octocat"]}),
        )
        .fields(&["/assignees/0/login", "/assignees/1/login"]),
        step("assign nobody", "POST", "{repo}/issues/1/assignees", json!({"assignees": ["zz"]})),
        step("unassign", "DELETE", "{repo}/issues/1/assignees", json!({"assignees": ["octocat"]}))
            .fields(&["/assignees"]),
        step("replace", "PATCH", "{repo}/issues/1", json!({"assignees": ["octocat"]}))
            .fields(&["/assignees/0/login", "/assignees/1/login"]),
        step("comment", "POST", "{repo}/issues/1/comments", json!({"body": "first"}))
            .fields(&["/body", "/user/login"])
            .keep("/id", "comment"),
        step("second comment", "POST", "{repo}/issues/1/comments", json!({"body": "second"})),
        step("edit", "PATCH", "{repo}/issues/comments/{comment}", json!({"body": "edited"}))
            .fields(&["/body"]),
        step("comments", "GET", "{repo}/issues/1/comments", none.clone())
            .fields(&["/0/body", "/1/body", "/2/body"]),
        step("page", "GET", "{repo}/issues/1/comments?per_page=1&page=2", none.clone())
            .fields(&["/0/body", "/1/body"]),
        step("delete comment", "DELETE", "{repo}/issues/comments/{comment}", none.clone()),
        step("deleted comment", "GET", "{repo}/issues/comments/{comment}", none.clone()),
        step("counted", "GET", "{repo}/issues/1", none.clone()).fields(&["/comments", "/state"]),
        step("label", "POST", "{repo}/issues/1/labels", json!({"labels": ["bug"]}))
            .fields(&["/0/name"]),
        step("found", "GET", "{repo}/issues?labels=bug&state=open", none.clone())
            .fields(&["/0/number", "/1/number"]),
        step("close", "PATCH", "{repo}/issues/1", json!({"state": "closed"}))
            .fields(&["/state", "/state_reason"]),
        step("none open", "GET", "{repo}/issues", none).fields(&["/0/number"]),
    ]
}

fn reference_steps() -> Vec<Step> {
    let none = Value::Null;
    vec![
        step("main", "GET", "{repo}/git/ref/heads/main", none.clone())
            .fields(&["/ref", "/object/type"])
            .keep("/object/sha", "main"),
        step("main's commit", "GET", "{repo}/git/commits/{main}", none.clone())
            .fields(&["/parents/0/sha"])
            .keep("/tree/sha", "tree"),
        step(
            "commit",
            "POST",
            "{repo}/git/commits",
            json!({"message": "one", "tree": "{tree}", "parents": ["{main}"]}),
        )
        .fields(&["/message"])
        .keep("/sha", "one"),
        step(
            "rival",
            "POST",
            "{repo}/git/commits",
            json!({"message": "two", "tree": "{tree}", "parents": ["{main}"]}),
        )
        .keep("/sha", "two"),
        step("no ref", "GET", "{repo}/git/ref/sprag/a", none.clone()).fields(&["/message"]),
        step("create", "POST", "{repo}/git/refs", json!({"ref": "refs/sprag/a", "sha": "{main}"}))
            .fields(&["/ref"]),
        step("exists", "POST", "{repo}/git/refs", json!({"ref": "refs/sprag/a", "sha": "{main}"}))
            .fields(&["/message"]),
        step(
            "forward",
            "PATCH",
            "{repo}/git/refs/sprag/a",
            json!({"sha": "{one}", "force": false}),
        )
        .fields(&["/ref"]),
        step("backwards", "PATCH", "{repo}/git/refs/sprag/a", json!({"sha": "{two}"}))
            .fields(&["/message"]),
        step("force", "PATCH", "{repo}/git/refs/sprag/a", json!({"sha": "{two}", "force": true})),
        step("all", "GET", "{repo}/git/matching-refs/sprag", none.clone())
            .fields(&["/0/ref", "/1/ref"]),
        step("delete", "DELETE", "{repo}/git/refs/sprag/a", none.clone()),
        step("gone", "GET", "{repo}/git/ref/sprag/a", none),
    ]
}

/// What a server answers to each step, in a form that can be compared.
fn run(url: &str) -> Vec<(&'static str, String)> {
    let mut talk = Talk::new(url, Some("octocat-token"));
    let mut kept = BTreeMap::from([("repo", format!("/repos/{REPO}"))]);
    let mut outcomes = Vec::new();
    for step in issue_steps().into_iter().chain(reference_steps()) {
        let fill = |text: &str| {
            kept.iter().fold(text.to_owned(), |text, (name, value)| {
                text.replace(&format!("{{{name}}}"), value)
            })
        };
        let body: Option<Value> = match &step.body {
            Value::Null => None,
            body => Some(serde_json::from_str(&fill(&body.to_string())).unwrap()),
        };
        let answer = talk.ask(step.method, &fill(step.path), &[], body.as_ref()).unwrap();
        let mut outcome = answer.status.to_string();
        for field in step.fields {
            let value = answer.body.pointer(field).unwrap_or(&Value::Null);
            outcome.push_str(&format!(" {field}={value}"));
        }
        outcomes.push((step.name, outcome));
        if let Some((field, name)) = step.keep {
            let value = answer.body.pointer(field).unwrap_or(&Value::Null);
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            kept.insert(name, text);
        }
    }
    outcomes
}

#[test]
fn both_answer_the_same_but_for_what_is_listed() {
    let Some(emulate) = Emulate::start() else { return };
    let github = github();
    let (ours, theirs) = (run(github.url()), run(emulate.url()));
    drop(github.violations());
    let mut unexpected = Vec::new();
    let mut found = Vec::new();
    for ((name, ours), (_, theirs)) in ours.iter().zip(&theirs) {
        let listed = DIFFERENCES.iter().find(|(step, ..)| step == name);
        match listed {
            Some((_, us, them)) => {
                let as_listed = ours.starts_with(us) && theirs.starts_with(them);
                found.push((*name, as_listed && ours != theirs));
            }
            None if ours == theirs => {}
            None => unexpected.push(format!("{name}:\n  ours   {ours}\n  theirs {theirs}")),
        }
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
    // A difference that is no more is to be taken off the list.
    assert!(found.iter().all(|(_, is_there)| *is_there), "{found:?}");
    assert_eq!(found.len(), DIFFERENCES.len());
}

#[test]
fn what_nobody_else_has_is_still_ours_alone() {
    let Some(emulate) = Emulate::start() else { return };
    let mut talk = Talk::new(emulate.url(), Some("octocat-token"));
    let found = talk.get(&format!("/repos/{REPO}")).unwrap();
    assert_eq!(found.header("etag"), None);
    let query = json!({"query": "{viewer {login}}"});
    assert_eq!(talk.send("POST", "/graphql", &query).unwrap().status, 404);
}

#[test]
fn it_has_one_winner_among_rivals_who_create_a_reference_too() {
    let Some(emulate) = Emulate::start() else { return };
    let github = github();
    for url in [emulate.url(), github.url()] {
        let mut talk = Talk::new(url, Some("octocat-token"));
        let main = talk.get(&format!("/repos/{REPO}/git/ref/heads/main")).unwrap();
        let sha = &main.body["object"]["sha"];
        let body = json!({"ref": "refs/sprag/race", "sha": sha});
        let statuses: Vec<_> = std::thread::scope(|scope| {
            let rival = || {
                let mut talk = Talk::new(url, Some("octocat-token"));
                talk.send("POST", &format!("/repos/{REPO}/git/refs"), &body).unwrap().status
            };
            let rivals: Vec<_> = (0..20).map(|_| scope.spawn(rival)).collect();
            rivals.into_iter().map(|rival| rival.join().unwrap()).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 422).count(), 19, "{statuses:?}");
    }
}
