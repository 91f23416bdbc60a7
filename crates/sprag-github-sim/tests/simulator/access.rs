//! Who may do what, and where repositories are.

use crate::support::{REPO, github, path, talk};
use serde_json::json;
use sprag_github_sim::{Access, Talk};

#[test]
fn a_wrong_token_and_none_are_told_apart() {
    let github = github();
    let wrong = Talk::new(github.url(), Some("nonsense")).get("/user").unwrap();
    assert_eq!((wrong.status, &wrong.body["message"]), (401, &json!("Bad credentials")));
    let mut nobody = Talk::new(github.url(), None);
    assert_eq!(nobody.get("/user").unwrap().body["message"], "Requires authentication");
    let seen = nobody.get(&format!("/repos/{REPO}")).unwrap();
    assert_eq!((seen.status, seen.header("x-ratelimit-limit")), (200, Some("60")));
    let mut worker = talk(&github, "worker");
    assert_eq!(worker.get("/user").unwrap().body["login"], "worker");
    github.revoke_token("worker-token");
    assert_eq!(worker.get("/user").unwrap().status, 401);
}

#[test]
fn a_token_without_contents_reads_and_writes_issues_only() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    github.add_token_with("small", "worker", Access::ISSUES_ONLY);
    let mut small = Talk::new(github.url(), Some("small"));
    let comments = path(&format!("issues/{issue}/comments"));
    assert_eq!(small.send("POST", &comments, &json!({"body": "x"})).unwrap().status, 201);
    let refs = json!({"ref": "refs/a/b", "sha": "1"});
    let refused = small.send("POST", &path("git/refs"), &refs).unwrap();
    assert_eq!(refused.status, 403);
    assert_eq!(refused.body["message"], "Resource not accessible by personal access token");
    assert_eq!(small.get(&path("git/ref/heads/main")).unwrap().status, 403);
    github.add_token_with("reader", "worker", Access::READ_ONLY);
    let mut reader = Talk::new(github.url(), Some("reader"));
    assert_eq!(reader.get(&path("git/ref/heads/main")).unwrap().status, 200);
    assert_eq!(reader.send("POST", &path("git/refs"), &refs).unwrap().status, 403);
    assert_eq!(reader.send("POST", &comments, &json!({"body": "x"})).unwrap().status, 403);
}

#[test]
fn who_may_not_push_is_told_that_there_is_nothing() {
    let github = github();
    let refs = json!({"ref": "refs/a/b", "sha": "1"});
    let mut stranger = talk(&github, "stranger");
    assert_eq!(stranger.send("POST", &path("git/refs"), &refs).unwrap().status, 404);
    github.make_private(REPO);
    assert_eq!(stranger.get(&format!("/repos/{REPO}")).unwrap().status, 404);
    let seen = talk(&github, "worker").get(&format!("/repos/{REPO}")).unwrap();
    assert_eq!(seen.body["permissions"]["push"], true);
    assert_eq!(stranger.get("/repos/octocat/none").unwrap().status, 404);
}

#[test]
fn an_archived_repository_is_read_only() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    github.archive(REPO, true);
    let mut worker = talk(&github, "worker");
    assert_eq!(worker.get(&path(&format!("issues/{issue}"))).unwrap().status, 200);
    let path = path(&format!("issues/{issue}/comments"));
    let refused = worker.send("POST", &path, &json!({"body": "x"})).unwrap();
    assert_eq!(refused.status, 403);
    assert_eq!(refused.body["message"], "Repository was archived so is read-only.");
}

#[test]
fn the_old_name_of_a_repository_leads_to_the_new_one() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    github.rename_repo(REPO, "octocat/padlocks");
    let mut worker = talk(&github, "worker");
    let moved = worker.get(&path(&format!("issues/{issue}"))).unwrap();
    assert_eq!(moved.status, 301);
    let to = moved.header("location").unwrap().strip_prefix(github.url()).unwrap().to_owned();
    let found = worker.get(&to).unwrap();
    assert_eq!(found.status, 200);
    let url = found.body["url"].as_str().unwrap();
    assert!(url.ends_with(&format!("/repos/octocat/padlocks/issues/{issue}")), "{url}");
    let write = worker.send("POST", &path("git/refs"), &json!({"ref": "x", "sha": "y"}));
    assert_eq!(write.unwrap().status, 422, "the body is looked at first");
    let gone = worker.ask("DELETE", &path("git/refs/heads/main"), &[], None).unwrap();
    assert_eq!(gone.status, 307);
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let github = github();
    let mut worker = talk(&github, "worker");
    assert_eq!(worker.get("/nowhere").unwrap().status, 404);
    let nameless = worker.ask("GET", "/user", &[("user-agent", "")], None).unwrap();
    assert_eq!(nameless.status, 403);
    github.disable_issues(REPO);
    assert_eq!(worker.get(&path("issues/1")).unwrap().status, 410);
    assert_eq!(worker.get("/api/v3/user").unwrap().status, 200, "an Enterprise server's path");
}
