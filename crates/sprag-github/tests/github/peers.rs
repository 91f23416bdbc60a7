//! The client and the ledger on two servers that were made apart: our simulator and `emulate`.
//! Where the other one cannot do something, what it answers is part of the test.

use std::sync::Arc;

use serde_json::json;
use sprag_github::{GitHubClient, GitHubConfig, GitHubStore, HttpClient, Token};
use sprag_github_sim::{Emulate, Permission, Simulator, Talk};
use sprag_ledger::{Change, Entry, Ledger, New, Oid, RefName, Swapped};

const REPO: &str = "octocat/locks";
const TOKEN: &str = "octocat-token";

/// One of the two.
struct Server {
    url: String,
    /// Whether it is ours: it has GraphQL, and does what GitHub documents.
    ours: bool,
}

impl Server {
    fn config(&self) -> GitHubConfig {
        let config = GitHubConfig::parse(REPO).unwrap().api(&self.url).unwrap();
        config.token(Token::new(TOKEN).unwrap()).state(None).mirror(false)
    }

    fn client(&self) -> HttpClient {
        HttpClient::new(&self.config()).unwrap()
    }

    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::clone(GitHubStore::open(&self.config()).unwrap().ledger().unwrap().ledger())
    }

    /// Opens an issue, which workers never do, and gives its number.
    fn open_issue(&self, title: &str) -> u64 {
        let mut talk = Talk::new(&self.url, Some(TOKEN));
        let body = json!({"title": title, "body": "text"});
        let answer = talk.send("POST", &format!("/repos/{REPO}/issues"), &body).unwrap();
        answer.body["number"].as_u64().unwrap()
    }
}

/// Runs a test on both.
fn on_both(test: impl Fn(&Server)) {
    let github = Simulator::start(7);
    github.add_token(TOKEN, "octocat");
    github.add_repo(REPO);
    github.add_collaborator(REPO, "octocat", Permission::Admin);
    test(&Server { url: github.url().to_owned(), ours: true });
    if let Some(emulate) = Emulate::start() {
        test(&Server { url: emulate.url().to_owned(), ours: false });
    }
}

#[test]
fn issues_are_read_and_assigned() {
    on_both(|server| {
        let (client, number) = (server.client(), server.open_issue("Build is red"));
        assert_eq!(client.account().unwrap().unwrap(), "octocat");
        let issue = client.get_issue(number).unwrap();
        assert_eq!((issue.number, &*issue.title, &*issue.body), (number, "Build is red", "text"));
        assert!(!issue.closed && !issue.locked && !issue.pull_request);
        assert!(issue.created_unix().unwrap() > 1_000_000_000, "{}", issue.created_at);
        let none = client.get_issue(number + 50).unwrap_err();
        assert!(none.is_bad_input(), "{none:?}");
        assert_eq!(client.assign_issue(number, "octocat").unwrap().assignees, ["octocat"]);
        assert_eq!(client.get_issue(number).unwrap().assignees, ["octocat"]);
        match client.assign_issue(number, "stranger") {
            // Without a word, as GitHub does.
            Ok(issue) => assert!(server.ours && issue.assignees == ["octocat"], "{issue:?}"),
            Err(error) => assert!(!server.ours && error.is_refused(), "{error:?}"),
        }
        assert!(client.unassign_issue(number, "octocat").unwrap().assignees.is_empty());
    });
}

#[test]
fn comments_are_written_edited_listed_and_deleted() {
    on_both(|server| {
        let (client, number) = (server.client(), server.open_issue("Build is red"));
        let first = client.add_comment(number, "first").unwrap();
        let second = client.add_comment(number, "second").unwrap();
        assert_eq!((&*first.author, &*first.body), ("octocat", "first"));
        assert_eq!(client.edit_comment(first.id, "edited").unwrap().body, "edited");
        assert_eq!(client.get_comment(first.id).unwrap().unwrap().body, "edited");
        let (listed, _) = client.list_comments(number).unwrap();
        let bodies: Vec<_> = listed.iter().map(|comment| comment.body.as_str()).collect();
        assert_eq!(bodies, ["edited", "second"]);
        client.delete_comment(first.id).unwrap();
        assert_eq!(client.get_comment(first.id).unwrap(), None);
        client.delete_comment(first.id).unwrap();
        assert_eq!(client.list_comments(number).unwrap().0, [second]);
        assert!(client.add_comment(number + 50, "nowhere").unwrap_err().is_bad_input());
    });
}

#[test]
fn issues_are_found_by_label_and_closed() {
    on_both(|server| {
        let client = server.client();
        let (first, second) = (server.open_issue("one"), server.open_issue("two"));
        let bug = ["bug".to_owned()];
        let found =
            || client.list_issues(&bug).unwrap().iter().map(|it| it.number).collect::<Vec<_>>();
        assert_eq!(found(), [0; 0]);
        for number in [second, first] {
            client.relabel_issue(number, &bug, &[]).unwrap();
        }
        assert_eq!(found(), [first, second], "the oldest first");
        client.relabel_issue(first, &[], &bug).unwrap();
        // It has none of that name any more, which is as good.
        client.relabel_issue(first, &[], &bug).unwrap();
        assert_eq!(found(), [second]);
        assert!(client.close_issue(second).unwrap().closed);
        assert_eq!(found(), [0; 0]);
        assert!(client.get_issue(second).unwrap().closed);
        match client.linked_pull_requests(first) {
            Ok(pulls) => assert!(server.ours && pulls.is_empty()),
            // It has no GraphQL.
            Err(error) => assert!(!server.ours && error.is_refused(), "{error:?}"),
        }
    });
}

fn name(text: &str) -> RefName {
    RefName::new(format!("refs/sprag/locks/{text}")).unwrap()
}

fn change(at: &RefName, old: Option<&Oid>, text: &str) -> Change {
    let entry = Entry { summary: text.to_owned(), body: format!("{{\"{text}\":1}}") };
    Change { name: at.clone(), old: old.cloned(), new: New::Entry(entry) }
}

fn done(swapped: sprag_core::Result<Vec<Swapped>>) -> Oid {
    match &swapped.unwrap()[..] {
        [Swapped::Done(Some(tip))] => tip.clone(),
        other => panic!("not done: {other:?}"),
    }
}

#[test]
fn refs_are_created_moved_listed_and_read() {
    on_both(|server| {
        let (ours, theirs, at) = (server.ledger(), server.ledger(), name("a"));
        assert_eq!(ours.tips(std::slice::from_ref(&at)).unwrap(), [None]);
        let one = done(ours.swap(&[change(&at, None, "one")]));
        assert_eq!(theirs.swap(&[change(&at, None, "rival")]).unwrap(), [Swapped::Refused]);
        let two = done(theirs.swap(&[change(&at, Some(&one), "two")]));
        let late = ours.swap(&[change(&at, Some(&one), "late")]).unwrap();
        assert_eq!(late, [Swapped::Refused]);
        assert_eq!(ours.tips(std::slice::from_ref(&at)).unwrap(), [Some(two.clone())]);
        assert_eq!(ours.list("refs/sprag/locks/").unwrap(), [(at.clone(), two.clone())]);
        let entries = ours.entries(&[(at.clone(), two.clone())]).unwrap();
        assert_eq!((&*entries[0].summary, &*entries[0].body), ("two", "{\"two\":1}"));
        let history = ours.history(&at, 10);
        let history: Vec<_> = history.unwrap().into_iter().map(|(oid, _)| oid).collect();
        assert_eq!(history, [two, one]);
    });
}

#[test]
fn several_refs_at_once_take_graphql() {
    on_both(|server| {
        let ledger = server.ledger();
        let both = [change(&name("a"), None, "one"), change(&name("b"), None, "two")];
        match ledger.swap(&both) {
            Ok(swapped) => {
                assert!(server.ours, "{swapped:?}");
                assert!(swapped.iter().all(|one| matches!(one, Swapped::Done(_))), "{swapped:?}");
            }
            Err(error) => {
                assert!(!server.ours && error.is_refused(), "{error:?}");
                assert_eq!(ledger.list("refs/sprag/").unwrap(), [], "and nothing was done");
            }
        }
    });
}
