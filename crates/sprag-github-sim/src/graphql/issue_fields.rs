//! The fields of issues and comments.

use serde_json::{Value, json};

use super::fields::{Field, WEB, leaf, page, unknown};
use super::node::Node;
use super::run::{Arguments, Out, Reader};
use crate::world::Repo;
use crate::world::issue::{Comment, CommentState, Issue, IssueState};

impl<'a> Reader<'a> {
    pub(super) fn issues(&self, repo: &'a Repo, arguments: &Arguments) -> Field<'a> {
        let words = |value: &Value| -> Vec<String> {
            let one = value.as_str().map(str::to_owned).into_iter();
            let many = value.as_array().into_iter().flatten();
            one.chain(many.filter_map(|it| it.as_str().map(str::to_owned))).collect()
        };
        let states = words(arguments.get("states"));
        let labels = words(arguments.get("labels"));
        let filter = arguments.get("filterBy");
        let labels = [labels, words(&filter["labels"])].concat();
        let assignee = filter["assignee"].as_str();
        let wanted = |issue: &Issue, state: &IssueState| {
            let word = if state.open { "OPEN" } else { "CLOSED" };
            let has = |label: &String| state.labels.iter().any(|it| it.eq_ignore_ascii_case(label));
            issue.pull.is_none()
                && (states.is_empty() || states.iter().any(|it| it == word))
                && (labels.is_empty() || labels.iter().any(has))
                && assignee.is_none_or(|login| state.assignees.iter().any(|it| it == login))
        };
        let seen = repo.issues.values().filter_map(|issue| self.issue_node(repo, issue));
        let mut found: Vec<_> = seen
            .filter(|node| matches!(node, Node::Issue { issue, state, .. } if wanted(issue, state)))
            .collect();
        let order = arguments.get("orderBy");
        if order["field"] == "UPDATED_AT" {
            found.sort_by_key(|node| match node {
                Node::Issue { state, .. } => state.updated,
                _ => crate::stamp::Stamp::BEGINNING,
            });
        }
        if order["direction"] == "DESC" {
            found.reverse();
        }
        page(found, arguments)
    }

    pub(super) fn issue_field(
        &self,
        node: &Node<'a>,
        (repo, issue, state): (&'a Repo, &'a Issue, &'a IssueState),
        name: &str,
        arguments: &Arguments,
    ) -> Field<'a> {
        let users = |logins: &'a [String]| {
            let users = logins.iter().filter_map(|login| self.world.user(login));
            page(users.map(Node::User).collect(), arguments)
        };
        let kind = if issue.pull.is_some() { "pull" } else { "issues" };
        match name {
            "number" => leaf(issue.number),
            "databaseId" | "fullDatabaseId" => leaf(issue.id),
            "title" => leaf(&state.title),
            "body" | "bodyText" => leaf(&state.body),
            "state" => leaf(if state.open { "OPEN" } else { "CLOSED" }),
            "stateReason" => leaf(state.reason.as_ref().map(|reason| reason.to_uppercase())),
            "closed" => leaf(!state.open),
            "locked" => leaf(state.locked),
            "url" => leaf(format!("{WEB}/{}/{kind}/{}", repo.full_name(), issue.number)),
            "author" => Ok(self.user(&issue.author)),
            "createdAt" => leaf(issue.created.iso()),
            "updatedAt" => leaf(state.updated.iso()),
            "closedAt" => leaf(state.closed.map(|closed| closed.iso())),
            "assignees" | "assignedActors" => users(&state.assignees),
            "labels" => page(
                state.labels.iter().map(|name| Node::Label { repo, name }).collect(),
                arguments,
            ),
            "comments" => {
                let ids = repo.talk.get(&issue.number).into_iter().flatten();
                let seen = ids.filter_map(|id| repo.comments.get(id)).filter_map(|comment| {
                    let state = comment.versions.at(self.seen)?.as_ref()?;
                    Some(Node::Comment { repo, comment, state })
                });
                page(seen.collect(), arguments)
            }
            "closedByPullRequestsReferences" => {
                let closed = arguments.get("includeClosedPrs") == true;
                let pulls =
                    repo.closers(issue.number).filter_map(|pull| self.issue_node(repo, pull));
                let fits = |node: &Node<'_>| {
                    closed || matches!(node, Node::Issue { state, .. } if state.open)
                };
                page(pulls.filter(fits).collect(), arguments)
            }
            "repository" => Ok(Out::Node(Node::Repo(repo))),
            // What nobody has here.
            "milestone" | "issueType" | "parent" => Ok(Out::NULL),
            "reactionGroups" => leaf(json!([])),
            "subIssues" | "blockedBy" | "blocking" | "projectItems" | "projectCards" => {
                page(Vec::new(), arguments)
            }
            "subIssuesSummary" => leaf(json!({"total": 0, "completed": 0, "percentCompleted": 0})),
            "isPinned" | "isDraft" => leaf(false),
            _ => unknown(node, name),
        }
    }

    pub(super) fn comment_field(
        &self,
        node: &Node<'a>,
        (repo, comment, state): (&'a Repo, &'a Comment, &'a CommentState),
        name: &str,
    ) -> Field<'a> {
        match name {
            "databaseId" | "fullDatabaseId" => leaf(comment.id),
            "body" | "bodyText" => leaf(&state.body),
            "author" => Ok(self.user(&comment.author)),
            "authorAssociation" => leaf("COLLABORATOR"),
            "createdAt" => leaf(comment.created.iso()),
            "updatedAt" => leaf(state.updated.iso()),
            "includesCreatedEdit" => leaf(state.updated > comment.created),
            "viewerDidAuthor" => leaf(comment.author == self.caller.login),
            "isMinimized" => leaf(false),
            "minimizedReason" => Ok(Out::NULL),
            "reactionGroups" => leaf(json!([])),
            "url" => leaf(format!(
                "{WEB}/{}/issues/{}#issuecomment-{}",
                repo.full_name(),
                comment.issue,
                comment.id
            )),
            _ => unknown(node, name),
        }
    }
}
