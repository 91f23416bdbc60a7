//! References and commits: what decides a lock.

use crate::support::{REPO, github, path, talk};
use serde_json::{Value, json};
use sprag_github_sim::{Simulator, Talk};

const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

fn commit(talk: &mut Talk, message: &str, parents: &[&str]) -> String {
    let body = json!({"message": message, "tree": EMPTY_TREE, "parents": parents});
    let answer = talk.send("POST", &path("git/commits"), &body).unwrap();
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.body["sha"].as_str().unwrap().to_owned()
}

fn create(talk: &mut Talk, name: &str, sha: &str) -> (u16, Value) {
    let answer = talk.send("POST", &path("git/refs"), &json!({"ref": name, "sha": sha})).unwrap();
    (answer.status, answer.body["message"].clone())
}

fn tip(github: &Simulator, name: &str) -> Option<String> {
    github.state().repo(REPO).unwrap().git.tip(name).map(str::to_owned)
}

#[test]
fn a_reference_is_created_once() {
    let github = github();
    let mut worker = talk(&github, "worker");
    let oid = commit(&mut worker, "mine", &[]);
    assert_eq!(create(&mut worker, "refs/sprag/locks/a", &oid).0, 201);
    // Also if it would point to the same.
    let again = create(&mut worker, "refs/sprag/locks/a", &oid);
    assert_eq!(again, (422, json!("Reference already exists")));
    let missing = create(&mut worker, "refs/sprag/locks/b", &"1".repeat(40));
    assert_eq!(missing, (422, json!("Object does not exist")));
    for bad in ["sprag", "refs/sprag", "refs/a/b..c", "refs/a/b.lock"] {
        assert_eq!(create(&mut worker, bad, &oid).0, 422, "{bad}");
    }
    let found = worker.get(&path("git/ref/sprag/locks/a")).unwrap();
    assert_eq!((found.status, &found.body["object"]["sha"]), (200, &json!(oid)));
    let found = worker.get(&path("git/ref/sprag%2Flocks%2Fa")).unwrap();
    assert_eq!(found.status, 200);
    assert_eq!(worker.get(&path("git/ref/sprag/locks")).unwrap().status, 404);
    let all = worker.get(&path("git/matching-refs/sprag/")).unwrap();
    assert_eq!(all.body.as_array().unwrap().len(), 1);
}

#[test]
fn of_two_rivals_with_the_same_parent_one_moves_the_reference() {
    let github = github();
    let mut worker = talk(&github, "worker");
    let first = commit(&mut worker, "first", &[]);
    create(&mut worker, "refs/sprag/locks/a", &first);
    let (one, two) = (commit(&mut worker, "1", &[&first]), commit(&mut worker, "2", &[&first]));
    let mut update = |sha: &str, force: bool| {
        let body = json!({"sha": sha, "force": force});
        let answer = worker.send("PATCH", &path("git/refs/sprag/locks/a"), &body).unwrap();
        (answer.status, answer.body["message"].clone())
    };
    assert_eq!(update(&one, false).0, 200);
    assert_eq!(update(&two, false), (422, json!("Update is not a fast forward")));
    assert_eq!(tip(&github, "refs/sprag/locks/a"), Some(one));
    assert_eq!(update(&two, true).0, 200);
    let gone = path("git/refs/sprag/locks/a");
    assert_eq!(worker.ask("DELETE", &gone, &[], None).unwrap().status, 204);
    assert_eq!(worker.ask("DELETE", &gone, &[], None).unwrap().status, 422);
    let body = json!({"sha": first});
    let missing = worker.send("PATCH", &gone, &body).unwrap();
    assert_eq!(missing.body["message"], "Reference does not exist");
}

#[test]
fn equal_commits_of_the_same_second_have_the_same_name() {
    let github = github();
    let mut worker = talk(&github, "worker");
    assert_eq!(commit(&mut worker, "x", &[]), commit(&mut worker, "x", &[]));
    assert_ne!(commit(&mut worker, "x", &[]), commit(&mut worker, "y", &[]));
    github.advance(std::time::Duration::from_secs(1));
    let later = commit(&mut worker, "x", &[]);
    let found = worker.get(&path(&format!("git/commits/{later}"))).unwrap().body;
    assert_eq!((&found["message"], &found["parents"]), (&json!("x"), &json!([])));
    assert_eq!(worker.get(&path(&format!("git/commits/{}", "0".repeat(40)))).unwrap().status, 404);
}

#[test]
fn a_commit_needs_a_tree_and_parents_that_are_there() {
    let github = github();
    let mut worker = talk(&github, "worker");
    let mut status = |body: Value| worker.send("POST", &path("git/commits"), &body).unwrap().status;
    assert_eq!(status(json!({"message": "x", "tree": "1"})), 422);
    assert_eq!(status(json!({"message": "x", "tree": EMPTY_TREE, "parents": ["1"]})), 422);
    github.forget_empty_tree(REPO);
    assert_eq!(status(json!({"message": "x", "tree": EMPTY_TREE})), 422);
    let tree = json!({"tree": [{"path": "a", "mode": "100644", "type": "blob", "content": "x"}]});
    let tree = worker.send("POST", &path("git/trees"), &tree).unwrap();
    assert_eq!(tree.status, 201);
    let body = json!({"message": "x", "tree": tree.body["sha"]});
    assert_eq!(worker.send("POST", &path("git/commits"), &body).unwrap().status, 201);
    let empty = worker.send("POST", &path("git/trees"), &json!({"tree": []})).unwrap();
    assert_eq!(empty.status, 422);
}

#[test]
fn the_history_of_a_reference_is_listed() {
    let github = github();
    let mut worker = talk(&github, "worker");
    let one = commit(&mut worker, "1", &[]);
    let two = commit(&mut worker, "2", &[&one]);
    create(&mut worker, "refs/sprag/locks/a", &two);
    let mut messages = |sha: &str| -> Vec<Value> {
        let log = worker.get(&path(&format!("commits?sha={sha}"))).unwrap().body;
        log.as_array().unwrap().iter().map(|entry| entry["commit"]["message"].clone()).collect()
    };
    assert_eq!(messages(&two), ["2", "1"]);
    assert_eq!(messages("refs/sprag/locks/a"), ["2", "1"]);
    assert_eq!(messages("main"), ["Initial commit"]);
}

#[test]
fn nothing_can_be_kept_in_an_empty_repository() {
    let github = github();
    github.add_empty_repo("octocat/empty");
    let mut owner = talk(&github, "octocat");
    let base = "/repos/octocat/empty/git";
    for path in ["ref/heads/main", "matching-refs/sprag"] {
        assert_eq!(owner.get(&format!("{base}/{path}")).unwrap().status, 409);
    }
    let body = json!({"message": "x", "tree": EMPTY_TREE});
    assert_eq!(owner.send("POST", &format!("{base}/commits"), &body).unwrap().status, 409);
}
