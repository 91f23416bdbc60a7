//! How GitHub writes things down in JSON.

use serde_json::{Map, Value, json};

use crate::hash::hash;
use crate::world::git::{Commit, Person};
use crate::world::issue::{Comment, CommentState, Issue, IssueState};
use crate::world::{Permission, Repo, World};

const WEB: &str = "https://github.com";

/// An account, as it is shown inside of other things.
pub(crate) fn user(world: &World, base: &str, login: &str) -> Value {
    let id = world.user(login).map_or(0, |user| user.id);
    let url = format!("{base}/users/{login}");
    json!({
        "login": login,
        "id": id,
        "node_id": node("U", id),
        "avatar_url": format!("https://avatars.githubusercontent.com/u/{id}?v=4"),
        "gravatar_id": "",
        "url": url,
        "html_url": format!("{WEB}/{login}"),
        "followers_url": format!("{url}/followers"),
        "following_url": format!("{url}/following{{/other_user}}"),
        "gists_url": format!("{url}/gists{{/gist_id}}"),
        "starred_url": format!("{url}/starred{{/owner}}{{/repo}}"),
        "subscriptions_url": format!("{url}/subscriptions"),
        "organizations_url": format!("{url}/orgs"),
        "repos_url": format!("{url}/repos"),
        "events_url": format!("{url}/events{{/privacy}}"),
        "received_events_url": format!("{url}/received_events"),
        "type": "User",
        "user_view_type": "public",
        "site_admin": false,
    })
}

/// An account with everything everybody may know.
pub(crate) fn account(world: &World, base: &str, login: &str) -> Value {
    let mut body = user(world, base, login);
    merge(
        &mut body,
        json!({
            "name": login, "company": null, "blog": "", "location": null, "email": null,
            "hireable": null, "bio": null, "twitter_username": null, "public_repos": 1,
            "public_gists": 0, "followers": 0, "following": 0,
            "created_at": "2011-01-25T18:44:36Z", "updated_at": "2011-01-25T18:44:36Z",
        }),
    );
    body
}

/// A repository.
pub(crate) fn repo(
    world: &World,
    base: &str,
    repo: &Repo,
    permission: Option<Permission>,
) -> Value {
    let full = repo.full_name();
    let url = format!("{base}/repos/{full}");
    let open = repo.issues.values().filter(|issue| issue.now().open).count();
    let created = repo.created.iso();
    let may = |needed| permission.is_some_and(|permission| permission >= needed);
    let mut body = json!({
        "id": repo.id, "node_id": node("R", repo.id), "name": repo.name, "full_name": full,
        "owner": user(world, base, &repo.owner), "private": repo.private,
        "html_url": format!("{WEB}/{full}"), "description": null, "fork": false, "url": url,
        "git_url": format!("git://github.com/{full}.git"),
        "ssh_url": format!("git@github.com:{full}.git"),
        "clone_url": format!("{WEB}/{full}.git"), "svn_url": format!("{WEB}/{full}"),
        "homepage": null, "mirror_url": null, "language": null, "license": null,
        "default_branch": "main", "archived": repo.archived, "disabled": false,
        "visibility": if repo.private { "private" } else { "public" },
        "created_at": created, "updated_at": created, "pushed_at": created,
        "permissions": {
            "admin": may(Permission::Admin), "maintain": may(Permission::Admin),
            "push": may(Permission::Write), "triage": may(Permission::Triage),
            "pull": may(Permission::Read),
        },
    });
    let numbers = json!({
        "has_issues": repo.has_issues, "has_projects": true, "has_wiki": true,
        "has_pages": false, "has_discussions": false, "has_downloads": true,
        "forks": 0, "forks_count": 0, "network_count": 0, "subscribers_count": 1, "size": 1,
        "stargazers_count": 0, "watchers": 0, "watchers_count": 0,
        "open_issues": open, "open_issues_count": open, "allow_forking": true,
    });
    merge(&mut body, numbers);
    addresses(&mut body, &url);
    body
}

fn addresses(body: &mut Value, url: &str) {
    let plain = [
        "contributors",
        "deployments",
        "downloads",
        "events",
        "forks",
        "hooks",
        "languages",
        "merges",
        "stargazers",
        "subscribers",
        "subscription",
        "tags",
        "teams",
    ];
    for name in plain {
        body[format!("{name}_url")] = format!("{url}/{name}").into();
    }
    let templates = [
        ("archive", "{archive_format}{/ref}"),
        ("assignees", "assignees{/user}"),
        ("blobs", "git/blobs{/sha}"),
        ("branches", "branches{/branch}"),
        ("collaborators", "collaborators{/collaborator}"),
        ("comments", "comments{/number}"),
        ("commits", "commits{/sha}"),
        ("compare", "compare/{base}...{head}"),
        ("contents", "contents/{+path}"),
        ("git_commits", "git/commits{/sha}"),
        ("git_refs", "git/refs{/sha}"),
        ("git_tags", "git/tags{/sha}"),
        ("issue_comment", "issues/comments{/number}"),
        ("issue_events", "issues/events{/number}"),
        ("issues", "issues{/number}"),
        ("keys", "keys{/key_id}"),
        ("labels", "labels{/name}"),
        ("milestones", "milestones{/number}"),
        ("pulls", "pulls{/number}"),
        ("notifications", "notifications{?since,all,participating}"),
        ("releases", "releases{/id}"),
        ("statuses", "statuses/{sha}"),
        ("trees", "git/trees{/sha}"),
    ];
    for (name, path) in templates {
        body[format!("{name}_url")] = format!("{url}/{path}").into();
    }
}

/// An issue or pull request.
pub(crate) fn issue(
    world: &World,
    base: &str,
    repo: &Repo,
    issue: &Issue,
    state: &IssueState,
) -> Value {
    let Issue { id, number, .. } = issue;
    let full = repo.full_name();
    let url = format!("{base}/repos/{full}/issues/{number}");
    let kind = if issue.pull.is_some() { "pull" } else { "issues" };
    let assignees: Vec<_> = state.assignees.iter().map(|login| user(world, base, login)).collect();
    let mut body = json!({
        "url": url, "repository_url": format!("{base}/repos/{full}"),
        "labels_url": format!("{url}/labels{{/name}}"), "comments_url": format!("{url}/comments"),
        "events_url": format!("{url}/events"), "timeline_url": format!("{url}/timeline"),
        "html_url": format!("{WEB}/{full}/{kind}/{number}"),
        "id": id, "node_id": node("I", *id), "number": number,
        "title": state.title, "body": state.body, "user": user(world, base, &issue.author),
        "labels": state.labels.iter().map(|name| label(base, repo, name)).collect::<Vec<_>>(),
        "state": if state.open { "open" } else { "closed" }, "state_reason": state.reason,
        "locked": state.locked, "assignee": assignees.first(), "assignees": assignees,
        "milestone": null, "comments": state.comments,
        "created_at": issue.created.iso(), "updated_at": state.updated.iso(),
        "closed_at": state.closed.map(|closed| closed.iso()),
        "author_association": association(repo, &issue.author),
        "active_lock_reason": null, "performed_via_github_app": null,
    });
    if issue.pull.is_some() {
        body["draft"] = false.into();
        body["pull_request"] = json!({
            "url": format!("{base}/repos/{full}/pulls/{number}"),
            "html_url": format!("{WEB}/{full}/pull/{number}"),
            "diff_url": format!("{WEB}/{full}/pull/{number}.diff"),
            "patch_url": format!("{WEB}/{full}/pull/{number}.patch"),
            "merged_at": null,
        });
    }
    body
}

/// A comment.
pub(crate) fn comment(
    world: &World,
    base: &str,
    repo: &Repo,
    comment: &Comment,
    state: &CommentState,
) -> Value {
    let Comment { id, issue, author, .. } = comment;
    let full = repo.full_name();
    json!({
        "id": id, "node_id": node("IC", *id),
        "url": format!("{base}/repos/{full}/issues/comments/{id}"),
        "html_url": format!("{WEB}/{full}/issues/{issue}#issuecomment-{id}"),
        "issue_url": format!("{base}/repos/{full}/issues/{issue}"),
        "user": user(world, base, author), "body": state.body,
        "created_at": comment.created.iso(), "updated_at": state.updated.iso(),
        "author_association": association(repo, author), "performed_via_github_app": null,
    })
}

/// A label.
pub(crate) fn label(base: &str, repo: &Repo, name: &str) -> Value {
    let id = repo.labels.get(name).copied().unwrap_or_default();
    json!({
        "id": id, "node_id": node("LA", id),
        "url": format!("{base}/repos/{}/labels/{}", repo.full_name(), name.replace(' ', "%20")),
        "name": name, "color": "ededed", "default": false, "description": null,
    })
}

/// A reference.
pub(crate) fn reference(base: &str, repo: &Repo, name: &str, oid: &str) -> Value {
    let url = format!("{base}/repos/{}/git", repo.full_name());
    json!({
        "ref": name, "node_id": format!("REF_{}_{name}", repo.id),
        "url": format!("{url}/{name}"),
        "object": {"sha": oid, "type": "commit", "url": format!("{url}/commits/{oid}")},
    })
}

/// A commit as git has it.
pub(crate) fn git_commit(base: &str, repo: &Repo, oid: &str, commit: &Commit) -> Value {
    let full = repo.full_name();
    let mut body = inner_commit(base, repo, oid, commit);
    let parent = |oid: &String| parent(base, repo, oid);
    merge(
        &mut body,
        json!({
            "sha": oid, "node_id": format!("C_{}_{oid}", repo.id),
            "html_url": format!("{WEB}/{full}/commit/{oid}"),
            "parents": commit.parents.iter().map(parent).collect::<Vec<_>>(),
        }),
    );
    body
}

/// A commit as it is in histories.
pub(crate) fn commit(world: &World, base: &str, repo: &Repo, oid: &str, commit: &Commit) -> Value {
    let full = repo.full_name();
    let url = format!("{base}/repos/{full}/commits/{oid}");
    let account = |person: &Person| world.user(&person.name).map(|it| user(world, base, &it.login));
    let mut inner = inner_commit(base, repo, oid, commit);
    inner["comment_count"] = 0.into();
    json!({
        "sha": oid, "node_id": format!("C_{}_{oid}", repo.id), "commit": inner, "url": url,
        "html_url": format!("{WEB}/{full}/commit/{oid}"), "comments_url": format!("{url}/comments"),
        "author": account(&commit.author), "committer": account(&commit.committer),
        "parents": commit.parents.iter().map(|oid| parent(base, repo, oid)).collect::<Vec<_>>(),
    })
}

fn inner_commit(base: &str, repo: &Repo, oid: &str, commit: &Commit) -> Value {
    let url = format!("{base}/repos/{}/git", repo.full_name());
    let person = |it: &Person| json!({"name": it.name, "email": it.email, "date": it.date.iso()});
    json!({
        "url": format!("{url}/commits/{oid}"), "message": commit.message,
        "author": person(&commit.author), "committer": person(&commit.committer),
        "tree": {"sha": commit.tree, "url": format!("{url}/trees/{}", commit.tree)},
        "verification": {
            "verified": false, "reason": "unsigned", "signature": null, "payload": null,
            "verified_at": null,
        },
    })
}

fn parent(base: &str, repo: &Repo, oid: &str) -> Value {
    let full = repo.full_name();
    json!({
        "sha": oid, "url": format!("{base}/repos/{full}/git/commits/{oid}"),
        "html_url": format!("{WEB}/{full}/commit/{oid}"),
    })
}

/// A tree with the entries it was made of.
pub(crate) fn tree(base: &str, repo: &Repo, oid: &str, entries: &[Value]) -> Value {
    let url = format!("{base}/repos/{}/git", repo.full_name());
    let entry = |entry: &Value| {
        let content = entry.get("content").and_then(Value::as_str).unwrap_or_default();
        let sha = hash(&format!("blob {}\0{content}", content.len()));
        json!({
            "path": entry.get("path"), "mode": entry.get("mode"), "type": "blob", "sha": sha,
            "size": content.len(), "url": format!("{url}/blobs/{sha}"),
        })
    };
    json!({
        "sha": oid, "url": format!("{url}/trees/{oid}"), "truncated": false,
        "tree": entries.iter().map(entry).collect::<Vec<_>>(),
    })
}

/// The id that GraphQL has for something.
pub(crate) fn node(kind: &str, id: u64) -> String {
    format!("{kind}_sim{id:08}")
}

fn association(repo: &Repo, login: &str) -> &'static str {
    if repo.owner.eq_ignore_ascii_case(login) {
        return "OWNER";
    }
    let given = repo.collaborators.contains_key(&login.to_lowercase());
    if given { "COLLABORATOR" } else { "NONE" }
}

fn merge(body: &mut Value, more: Value) {
    let more = if let Value::Object(more) = more { more } else { Map::new() };
    if let Some(body) = body.as_object_mut() {
        body.extend(more);
    }
}
