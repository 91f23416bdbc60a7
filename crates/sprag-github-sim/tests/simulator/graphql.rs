//! GraphQL: several references at once, and everything in one query.

use serde_json::{Value, json};
use sprag_github_sim::{Access, Checker, Limits, Simulator, Talk};

use crate::support::{REPO, github, path, talk};

const ZEROS: &str = "0000000000000000000000000000000000000000";
const UPDATE: &str = "mutation($input: UpdateRefsInput!) {
    updateRefs(input: $input) { clientMutationId }
}";

fn query(talk: &mut Talk, query: &str, variables: Value) -> Value {
    let answer = talk.send("POST", "/graphql", &json!({"query": query, "variables": variables}));
    let answer = answer.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

fn repository_id(talk: &mut Talk) -> Value {
    let body = query(talk, "{repository(owner: \"octocat\", name: \"locks\") {id}}", json!({}));
    body["data"]["repository"]["id"].clone()
}

fn commit(talk: &mut Talk, message: &str, parents: &[&str]) -> String {
    let tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
    let body = json!({"message": message, "tree": tree, "parents": parents});
    let answer = talk.send("POST", &path("git/commits"), &body).unwrap();
    answer.body["sha"].as_str().unwrap().to_owned()
}

fn update(talk: &mut Talk, updates: Value) -> Result<(), String> {
    let id = repository_id(talk);
    let input = json!({"repositoryId": id, "refUpdates": updates, "clientMutationId": "me"});
    let body = query(talk, UPDATE, json!({"input": input}));
    match body["errors"][0]["message"].as_str() {
        Some(error) => {
            assert_eq!(body["data"]["updateRefs"], Value::Null);
            Err(error.to_owned())
        }
        None => {
            assert_eq!(body["data"]["updateRefs"]["clientMutationId"], "me");
            Ok(())
        }
    }
}

fn refs(github: &Simulator) -> Vec<String> {
    let refs = github.state().repo(REPO).unwrap().git.refs();
    refs.into_keys().filter(|name| name.starts_with("refs/sprag/")).collect()
}

#[test]
fn several_references_are_compared_and_swapped_together() {
    let github = github();
    let mut worker = talk(&github, "worker");
    let one = commit(&mut worker, "1", &[]);
    let two = commit(&mut worker, "2", &[&one]);
    let create =
        |name: &str| json!({"name": name, "beforeOid": ZEROS, "afterOid": one, "force": false});
    update(&mut worker, json!([create("refs/sprag/a"), create("refs/sprag/b")])).unwrap();
    let again = update(&mut worker, json!([create("refs/sprag/c"), create("refs/sprag/b")]));
    assert!(again.unwrap_err().contains("refs/sprag/b: Reference already exists"));
    assert_eq!(refs(&github), ["refs/sprag/a", "refs/sprag/b"]);
    let forward = |before: &str, after: &str| json!([{"name": "refs/sprag/a", "beforeOid": before, "afterOid": after}]);
    update(&mut worker, forward(&one, &two)).unwrap();
    update(&mut worker, forward(&one, &two)).unwrap_err();
    // Back is no way forward, even for those who know where it is.
    let back = update(&mut worker, forward(&two, &one)).unwrap_err();
    assert!(back.contains("not a fast forward"), "{back}");
    update(&mut worker, forward(&one, ZEROS)).unwrap_err();
    update(&mut worker, forward(&two, ZEROS)).unwrap();
    assert_eq!(refs(&github), ["refs/sprag/b"]);
}

#[test]
fn many_references_are_read_in_one_query() {
    let github = github();
    let mut worker = talk(&github, "worker");
    let one = commit(&mut worker, "summary\n\nbody", &[]);
    let two = commit(&mut worker, "second", &[&one]);
    github.set_ref(REPO, "refs/sprag/locks/a", Some(&two));
    let body = query(
        &mut worker,
        "query($owner: String!, $name: String!) {
           repository(owner: $owner, name: $name) {
             a: ref(qualifiedName: \"refs/sprag/locks/a\") { name prefix target { ...text } }
             b: ref(qualifiedName: \"refs/sprag/locks/b\") { name }
             old: object(oid: \"OLD\") { ... on Commit { message parents(first: 1) { totalCount } } }
             refs(refPrefix: \"refs/sprag/\", first: 10) { nodes { target { oid } } totalCount }
           }
           viewer { login }
           rateLimit { remaining cost }
         }
         fragment text on Commit { oid messageHeadline history(first: 5) { nodes { message } } }"
            .replace("OLD", &one)
            .as_str(),
        json!({"owner": "octocat", "name": "locks"}),
    );
    assert_eq!(
        body,
        json!({"data": {
            "repository": {
                "a": {
                    "name": "locks/a",
                    "prefix": "refs/sprag/",
                    "target": {
                        "oid": two,
                        "messageHeadline": "second",
                        "history": {"nodes": [{"message": "second"}, {"message": "summary\n\nbody"}]},
                    },
                },
                "b": null,
                "old": {"message": "summary\n\nbody", "parents": {"totalCount": 0}},
                "refs": {"nodes": [{"target": {"oid": two}}], "totalCount": 1},
            },
            "viewer": {"login": "worker"},
            "rateLimit": {"remaining": 4999, "cost": 1},
        }})
    );
    let counters = github.counters();
    assert_eq!((counters.graphql(), counters.primary()), (1, 2));
}

#[test]
fn issues_are_read_with_their_comments_and_pull_requests() {
    let github = github();
    let issue = github.add_issue(REPO, "one");
    let pull = github.add_pull_request(REPO, "fix", &[issue]);
    let id = github.comment_as(REPO, issue, "worker", "hello");
    let mut worker = talk(&github, "worker");
    let text = "query($n: Int!) { repository(owner: \"octocat\", name: \"locks\") {
        issue(number: $n) {
          title state assignees(first: 10) { nodes { login } }
          comments(last: 1) { nodes { databaseId body author { login } } }
          closedByPullRequestsReferences(first: 5) { nodes { number state } }
        }
        issues(first: 1, states: OPEN, orderBy: {field: CREATED_AT, direction: ASC}) {
          nodes { number } pageInfo { hasNextPage endCursor }
        }
    }}";
    let body = query(&mut worker, text, json!({"n": issue}));
    assert_eq!(body["errors"], Value::Null, "{body}");
    let repository = &body["data"]["repository"];
    let issue = &repository["issue"];
    assert_eq!(issue["comments"]["nodes"][0]["databaseId"], id);
    assert_eq!(issue["closedByPullRequestsReferences"]["nodes"][0]["number"], pull);
    assert_eq!(repository["issues"]["pageInfo"], json!({"hasNextPage": false, "endCursor": "1"}));
    let missing = query(&mut worker, text, json!({"n": 99}));
    assert_eq!(missing["errors"][0]["type"], "NOT_FOUND");
    assert_eq!(missing["errors"][0]["path"], json!(["repository", "issue"]));
}

#[test]
fn what_is_not_allowed_or_not_there_is_an_error_beside_the_data() {
    let github = github();
    let mut worker = talk(&github, "worker");
    let one = commit(&mut worker, "1", &[]);
    let updates = json!([{"name": "refs/sprag/a", "beforeOid": ZEROS, "afterOid": one}]);
    github.add_token_with("small", "worker", Access::ISSUES_ONLY);
    let mut small = Talk::new(github.url(), Some("small"));
    let refused = update(&mut small, updates.clone()).unwrap_err();
    assert_eq!(refused, "Resource not accessible by personal access token");
    let refused = update(&mut talk(&github, "stranger"), updates.clone()).unwrap_err();
    assert!(refused.contains("correct permissions"), "{refused}");
    github.archive(REPO, true);
    update(&mut worker, updates).unwrap_err();
    assert!(refs(&github).is_empty());
    for bad in ["{viewer {nonsense}}", "{repository(owner: \"a\", name: \"b\") {id}}", "{", "x"] {
        let body = query(&mut worker, bad, json!({}));
        assert!(body["errors"][0]["message"].is_string(), "{bad}: {body}");
    }
    let complaints: Vec<_> = github.violations().iter().map(ToString::to_string).collect();
    if Checker::installed().is_some() {
        assert_eq!(complaints, ["graphql: Query.viewer.nonsense: User has no field nonsense"]);
    }
    let nobody = Talk::new(github.url(), None).send(
        "POST",
        "/graphql",
        &json!({"query": "{viewer{login}}"}),
    );
    assert_eq!(nobody.unwrap().status, 401);
}

#[test]
fn an_empty_purse_is_told_with_status_200() {
    let github = github();
    github.limits(Limits { graphql: 1, ..Limits::GITHUB });
    let mut worker = talk(&github, "worker");
    let text = "{viewer {login}}";
    assert_eq!(query(&mut worker, text, json!({}))["data"]["viewer"]["login"], "worker");
    let refused = query(&mut worker, text, json!({}));
    assert_eq!(refused["errors"][0]["type"], "RATE_LIMITED");
    assert_eq!(worker.get("/user").unwrap().status, 200, "REST has a purse of its own");
}
