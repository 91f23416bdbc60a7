//! GitHub's own command with the simulator: its token, what it reads, and what it writes.

use serde_json::{Value, json};
use sprag_github_sim::{GH_HOST, Gh, Setup, Simulator};

use crate::support::{REPO, furnished};

/// Not compared with the schema of GraphQL: `gh` asks for fields that are newer than it.
fn github() -> Simulator {
    furnished(Simulator::start(1))
}

fn text(output: &std::process::Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn json_of(output: &std::process::Output) -> Value {
    serde_json::from_str(&text(output)).unwrap()
}

fn assignees(github: &Simulator, issue: u64) -> Vec<String> {
    github.state().repo(REPO).unwrap().issue(issue).unwrap().now().assignees.clone()
}

#[test]
fn its_token_is_the_one_of_the_environment_or_of_its_login() {
    let github = github();
    let Some(gh) = Gh::new(&github) else { return };
    assert_eq!(text(&gh.run(Some("from-environment"), &["auth", "token"])), "from-environment");
    assert!(!gh.run(None, &["auth", "token"]).status.success());
    gh.log_in("worker", "worker-token");
    assert_eq!(text(&gh.run(None, &["auth", "token"])), "worker-token");
    assert_eq!(json_of(&gh.run(None, &["api", "user"]))["login"], "worker");
}

#[test]
fn it_reads_what_is_there() {
    let github = github();
    let issue = github.add_issue(REPO, "Build is red");
    github.label_issue(REPO, issue, "bug");
    github.comment_as(REPO, issue, "worker", "on it");
    let Some(gh) = Gh::new(&github) else { return };
    let token = Some("worker-token");
    let found = json_of(&gh.run(token, &["api", &format!("repos/{REPO}/issues/{issue}")]));
    assert_eq!(found["title"], "Build is red");
    let reference = gh.run(token, &["api", &format!("repos/{REPO}/git/ref/heads/main")]);
    assert_eq!(json_of(&reference)["ref"], "refs/heads/main");
    let missing = gh.run(token, &["api", &format!("repos/{REPO}/issues/99")]);
    assert_eq!(missing.status.code(), Some(1));
    let repo = format!("{GH_HOST}/{REPO}");
    let number = issue.to_string();
    let fields = "number,title,state,assignees,labels";
    let view = gh.run(token, &["issue", "view", &number, "-R", &repo, "--json", fields]);
    assert_eq!(
        json_of(&view),
        json!({
            "number": issue,
            "title": "Build is red",
            "state": "OPEN",
            "assignees": [],
            "labels": json_of(&view)["labels"],
        })
    );
    let list = gh.run(token, &["issue", "list", "-R", &repo, "--json", "number"]);
    assert_eq!(json_of(&list), json!([{"number": issue}]));
    let view = text(&gh.run(token, &["issue", "view", &number, "-R", &repo, "--comments"]));
    assert!(view.contains("on it"), "{view}");
    let query = ["api", "graphql", "-f", "query={viewer {login}}"];
    assert_eq!(json_of(&gh.run(token, &query))["data"]["viewer"]["login"], "worker");
}

#[test]
fn it_reaches_github_by_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("github.sock");
    let github = furnished(Setup::new(1).socket(&socket).start());
    let Some(gh) = Gh::new(&github) else { return };
    gh.use_socket(&socket);
    let words = ["api", "--hostname", "github.com", "user"];
    assert_eq!(json_of(&gh.run(Some("worker-token"), &words))["login"], "worker");
}

#[test]
fn a_wrong_token_is_told_by_its_exit_code() {
    let github = github();
    let Some(gh) = Gh::new(&github) else { return };
    let refused = gh.run(Some("nonsense"), &["api", "user"]);
    assert_eq!(refused.status.code(), Some(1));
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("Bad credentials"), "{words}");
}

#[test]
fn it_assigns_by_replacing_the_list_it_has_read() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    let Some(gh) = Gh::new(&github) else { return };
    let (repo, number) = (format!("{GH_HOST}/{REPO}"), issue.to_string());
    let words = ["issue", "edit", &number, "-R", &repo, "--add-assignee", "worker"];
    text(&gh.run(Some("worker-token"), &words));
    assert_eq!(assignees(&github, issue), ["worker"]);
    // It is not an addition on the server: the whole list is written, as it was read before.
    let kinds = github.counters();
    assert_eq!(kinds.by_kind()["graphql replaceActorsForAssignable"], 1);
    let query = kinds.only(|call| call.kind == "graphql query");
    assert_eq!(query.len(), 1, "{:?}", kinds.by_kind());
}

#[test]
fn it_comments() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    let Some(gh) = Gh::new(&github) else { return };
    let (repo, number) = (format!("{GH_HOST}/{REPO}"), issue.to_string());
    text(&gh.run(Some("worker-token"), &["issue", "comment", &number, "-R", &repo, "-b", "hello"]));
    let state = github.state();
    let comments = state.repo(REPO).unwrap().comments(issue);
    assert_eq!(comments[0].now().unwrap().body, "hello");
}
