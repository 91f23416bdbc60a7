//! Issues, assignees, comments and labels.

use crate::support::{REPO, github, path, talk};
use serde_json::{Value, json};
use sprag_github_sim::{Limits, Permission, Talk};

fn logins(issue: &Value) -> Vec<&str> {
    let list = issue["assignees"].as_array().unwrap();
    list.iter().map(|user| user["login"].as_str().unwrap()).collect()
}

fn assign(talk: &mut Talk, issue: u64, logins: &[&str]) -> (u16, Value) {
    let path = path(&format!("issues/{issue}/assignees"));
    let answer = talk.send("POST", &path, &json!({"assignees": logins})).unwrap();
    (answer.status, answer.body)
}

#[test]
fn assignees_are_added_to_those_who_are_there() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    let mut worker = talk(&github, "worker");
    assert_eq!(logins(&assign(&mut worker, issue, &["worker"]).1), ["worker"]);
    let (status, body) = assign(&mut worker, issue, &["octocat", "worker"]);
    assert_eq!((status, logins(&body)), (201, vec!["worker", "octocat"]));
    let path = path(&format!("issues/{issue}/assignees"));
    let answer = worker.send("DELETE", &path, &json!({"assignees": ["worker"]})).unwrap();
    assert_eq!((answer.status, logins(&answer.body)), (200, vec!["octocat"]));
}

#[test]
fn who_cannot_be_assigned_is_left_out_without_a_word() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    let (status, body) = assign(&mut talk(&github, "worker"), issue, &["stranger", "nobody"]);
    assert_eq!((status, logins(&body).len()), (201, 0));
    // A caller who may not push assigns nobody, and is told that all is well.
    let (status, body) = assign(&mut talk(&github, "stranger"), issue, &["worker"]);
    assert_eq!((status, logins(&body).len()), (201, 0));
}

#[test]
fn an_issue_has_ten_assignees_at_most() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    let names: Vec<_> = (0..12).map(|number| format!("w{number}")).collect();
    for name in &names {
        github.add_collaborator(REPO, name, Permission::Write);
    }
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let (_, body) = assign(&mut talk(&github, "worker"), issue, &names);
    assert_eq!(logins(&body), names[..10]);
}

#[test]
fn an_edit_replaces_the_assignees() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    let mut worker = talk(&github, "worker");
    assign(&mut worker, issue, &["worker"]);
    let path = path(&format!("issues/{issue}"));
    let answer = worker.send("PATCH", &path, &json!({"assignees": ["octocat"]})).unwrap();
    assert_eq!((answer.status, logins(&answer.body)), (200, vec!["octocat"]));
}

#[test]
fn comments_come_in_the_order_of_their_ids_and_in_pages() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    let mut worker = talk(&github, "worker");
    let base = path(&format!("issues/{issue}/comments"));
    for number in 0..5 {
        let body = json!({"body": number.to_string()});
        assert_eq!(worker.send("POST", &base, &body).unwrap().status, 201);
        github.advance(std::time::Duration::from_secs(1));
    }
    let page = worker.get(&format!("{base}?per_page=2&page=2")).unwrap();
    let texts: Vec<_> = page.body.as_array().unwrap().iter().map(|it| &it["body"]).collect();
    assert_eq!(texts, ["2", "3"]);
    let link = page.header("link").unwrap();
    assert!(link.contains("page=3&per_page=2>; rel=\"next\""), "{link}");
    // The link leads to the rest, whatever the repository is called now.
    let next = link.split("rel=\"next\"").next().unwrap().rsplit('<').next().unwrap();
    let next = next.split('>').next().unwrap().strip_prefix(github.url()).unwrap();
    assert_eq!(worker.get(next).unwrap().body.as_array().unwrap().len(), 1);
    let since = "2026-01-01T00:00:03Z";
    let recent = worker.get(&format!("{base}?since={since}")).unwrap();
    assert_eq!(recent.body.as_array().unwrap().len(), 2);
}

#[test]
fn a_comment_is_edited_by_its_author_and_by_those_who_may_push() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    let id = github.comment_as(REPO, issue, "worker", "mine");
    let path = path(&format!("issues/comments/{id}"));
    let edit = |login: &str| {
        let mut talk = talk(&github, login);
        talk.send("PATCH", &path, &json!({"body": login})).unwrap().status
    };
    assert_eq!([edit("worker"), edit("octocat"), edit("stranger")], [200, 200, 403]);
    let mut worker = talk(&github, "worker");
    assert_eq!(worker.get(&path).unwrap().body["body"], "octocat");
    assert_eq!(worker.ask("DELETE", &path, &[], None).unwrap().status, 204);
    assert_eq!(worker.get(&path).unwrap().status, 404);
    assert_eq!(edit("worker"), 404);
}

#[test]
fn an_issue_is_closed_for_comments_when_it_has_too_many() {
    let github = github();
    github.limits(Limits { comments: 3, ..Limits::GITHUB });
    let issue = github.add_issue(REPO, "one");
    let mut worker = talk(&github, "worker");
    let path = path(&format!("issues/{issue}/comments"));
    let mut comment = || worker.send("POST", &path, &json!({"body": "x"})).unwrap();
    assert_eq!([comment().status, comment().status, comment().status], [201, 201, 201]);
    let answer = comment();
    assert_eq!(answer.status, 403);
    let message = answer.body["message"].as_str().unwrap();
    assert_eq!(message, "Commenting is disabled on issues with more than 3 comments");
}

#[test]
fn only_those_who_may_push_comment_where_the_conversation_is_locked() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    github.lock_issue(REPO, issue);
    let path = path(&format!("issues/{issue}/comments"));
    let comment = |login: &str| {
        talk(&github, login).send("POST", &path, &json!({"body": "x"})).unwrap().status
    };
    assert_eq!([comment("stranger"), comment("worker")], [403, 201]);
}

#[test]
fn issues_that_are_gone_say_where() {
    let github = github();
    github.add_repo("octocat/other");
    let (gone, moved) = (github.add_issue(REPO, "gone"), github.add_issue(REPO, "moved"));
    github.delete_issue(REPO, gone);
    let there = github.transfer_issue(REPO, moved, "octocat/other");
    let mut worker = talk(&github, "worker");
    assert_eq!(worker.get(&path(&format!("issues/{gone}"))).unwrap().status, 410);
    assert_eq!(worker.get(&path("issues/99")).unwrap().status, 404);
    let answer = worker.get(&path(&format!("issues/{moved}"))).unwrap();
    assert_eq!(answer.status, 301);
    let to = answer.header("location").unwrap().strip_prefix(github.url()).unwrap();
    let issue = worker.get(to).unwrap();
    assert_eq!((issue.status, &issue.body["number"]), (200, &json!(there)));
    let comments = path(&format!("issues/{moved}/comments"));
    assert_eq!(worker.send("POST", &comments, &json!({"body": "x"})).unwrap().status, 307);
}

#[test]
fn issues_are_found_by_label_and_state_the_oldest_first_if_wanted() {
    let github = github();
    let numbers: Vec<_> = ["a", "b", "c", "d"].map(|title| github.add_issue(REPO, title)).into();
    for number in &numbers[..3] {
        github.label_issue(REPO, *number, "ready to go");
    }
    github.close_issue(REPO, numbers[1]);
    let pull = github.add_pull_request(REPO, "fix c", &[numbers[2]]);
    let mut worker = talk(&github, "worker");
    let mut found = |path: &str| -> Vec<u64> {
        let body = worker.get(path).unwrap().body;
        let list = body.get("items").unwrap_or(&body).as_array().unwrap().clone();
        list.iter().map(|issue| issue["number"].as_u64().unwrap()).collect()
    };
    let list = path("issues?labels=ready%20to%20go&sort=created&direction=asc");
    assert_eq!(found(&list), [numbers[0], numbers[2]]);
    assert_eq!(found(&path("issues?state=all")).len(), 5);
    let search = |words: &str| format!("/search/issues?q=repo:{REPO}+is:issue+{words}&order=asc");
    assert_eq!(found(&search("is:open+label:\"ready+to+go\"")), [numbers[0], numbers[2]]);
    assert_eq!(found(&search("is:open+-linked:pr")), [numbers[0], numbers[3]]);
    let timeline = found(&path("issues?state=closed"));
    assert_eq!(timeline, [numbers[1]]);
    let events = worker.get(&path(&format!("issues/{}/timeline", numbers[2]))).unwrap().body;
    assert_eq!(events[0]["source"]["issue"]["number"], pull);
    assert!(events[0]["source"]["issue"]["pull_request"].is_object());
}

#[test]
fn labels_are_added_and_removed() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    let mut worker = talk(&github, "worker");
    let base = path(&format!("issues/{issue}/labels"));
    let added = worker.send("POST", &base, &json!({"labels": ["a", "b"]})).unwrap();
    assert_eq!((added.status, added.body.as_array().unwrap().len()), (200, 2));
    let left = worker.ask("DELETE", &format!("{base}/a"), &[], None).unwrap();
    assert_eq!((left.status, &left.body[0]["name"]), (200, &json!("b")));
    assert_eq!(worker.ask("DELETE", &format!("{base}/a"), &[], None).unwrap().status, 404);
}

#[test]
fn an_issue_is_closed_and_opened_again() {
    let github = github();
    let mut worker = talk(&github, "worker");
    let created = worker.send("POST", &path("issues"), &json!({"title": "new"})).unwrap();
    assert_eq!((created.status, &created.body["number"]), (201, &json!(1)));
    let mut set = |state: &str| {
        worker.send("PATCH", &path("issues/1"), &json!({"state": state})).unwrap().body
    };
    let closed = set("closed");
    assert_eq!(
        (&closed["state"], &closed["state_reason"]),
        (&json!("closed"), &json!("completed"))
    );
    assert_eq!(set("open")["closed_at"], Value::Null);
}
