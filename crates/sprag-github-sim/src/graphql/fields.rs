//! The fields that objects have.

use serde_json::json;

use super::mutate::Subject;
use super::node::{Node, Page};
use super::run::{Arguments, Out, Reader, Trouble};
use crate::world::issue::{Fate, Issue};
use crate::world::{Commit, Found, Level, Repo};

pub(super) const WEB: &str = "https://github.com";

pub(super) type Field<'a> = Result<Out<'a>, Trouble>;

impl<'a> Reader<'a> {
    /// One field of an object.
    pub(super) fn field(&self, node: &Node<'a>, name: &str, arguments: &Arguments) -> Field<'a> {
        match name {
            "__typename" => return leaf(node.kind()),
            "id" => return leaf(node.id()),
            _ => {}
        }
        match node {
            Node::Query => self.query(name, arguments),
            Node::Rate => self.rate(name),
            Node::User(user) => match name {
                "login" | "name" => leaf(&user.login),
                "databaseId" => leaf(user.id),
                "url" => leaf(format!("{WEB}/{}", user.login)),
                _ => unknown(node, name),
            },
            Node::Repo(repo) => self.repo(node, repo, name, arguments),
            Node::Ref { repo, name: full, oid } => match name {
                "name" => leaf(full.splitn(3, '/').nth(2)),
                "prefix" => {
                    leaf(full.splitn(3, '/').take(2).map(|it| format!("{it}/")).collect::<String>())
                }
                "target" => self.commit(repo, oid),
                "repository" => Ok(Out::Node(Node::Repo(repo))),
                _ => unknown(node, name),
            },
            Node::Commit { repo, oid, commit } => {
                self.commit_field(node, (repo, oid, commit), name, arguments)
            }
            Node::Tree(oid) if name == "oid" => leaf(oid),
            Node::Person(person) => match name {
                "name" => leaf(&person.name),
                "email" => leaf(&person.email),
                "date" => leaf(person.date.iso()),
                _ => unknown(node, name),
            },
            Node::Issue { repo, issue, state } => {
                self.issue_field(node, (repo, issue, state), name, arguments)
            }
            Node::Comment { repo, comment, state } => {
                self.comment_field(node, (repo, comment, state), name)
            }
            Node::Label { name: label, .. } => match name {
                "name" => leaf(label),
                "color" => leaf("ededed"),
                "description" => Ok(Out::NULL),
                _ => unknown(node, name),
            },
            Node::Page(page) => page_field(node, page, name),
            Node::PageInfo { next, previous, start, end } => match name {
                "hasNextPage" => leaf(next),
                "hasPreviousPage" => leaf(previous),
                "startCursor" => leaf(start.map(|at| at.to_string())),
                "endCursor" => leaf(end.map(|at| at.to_string())),
                _ => unknown(node, name),
            },
            Node::Payload { mutation, subject } => match (name, subject) {
                ("clientMutationId", _) => leaf(mutation),
                ("commentEdge", Some(_)) => Ok(Out::Node(node.clone())),
                (_, Some(subject)) => Ok(Out::Node((**subject).clone())),
                _ => unknown(node, name),
            },
            Node::Tree(_) => unknown(node, name),
        }
    }

    fn commit_field(
        &self,
        node: &Node<'a>,
        (repo, oid, commit): (&'a Repo, &'a str, &'a Commit),
        name: &str,
        arguments: &Arguments,
    ) -> Field<'a> {
        match name {
            "oid" => leaf(oid),
            "abbreviatedOid" => leaf(&oid[..7]),
            "message" => leaf(&commit.message),
            "messageHeadline" => leaf(commit.message.lines().next()),
            "messageBody" => leaf(commit.message.split_once("\n\n").map_or("", |it| it.1)),
            "committedDate" => leaf(commit.committer.date.iso()),
            "authoredDate" => leaf(commit.author.date.iso()),
            "author" => Ok(Out::Node(Node::Person(&commit.author))),
            "committer" => Ok(Out::Node(Node::Person(&commit.committer))),
            "tree" => Ok(Out::Node(Node::Tree(&commit.tree))),
            "parents" => {
                let parents = commit.parents.iter();
                let parents = parents.filter_map(|oid| self.commit_node(repo, oid)).collect();
                page(parents, arguments)
            }
            "history" => {
                let log = repo.git.log(oid, self.seen).into_iter();
                let commit = |(oid, commit)| Node::Commit { repo, oid, commit };
                page(log.map(commit).collect(), arguments)
            }
            _ => unknown(node, name),
        }
    }

    fn query(&self, name: &str, arguments: &Arguments) -> Field<'a> {
        match name {
            "viewer" => Ok(self.user(&self.caller.login)),
            "rateLimit" => Ok(Out::Node(Node::Rate)),
            "user" => Ok(self.user(arguments.text("login").unwrap_or_default())),
            "repository" => {
                let text = |name| arguments.text(name).unwrap_or_default();
                let full = format!("{}/{}", text("owner"), text("name"));
                let found = self.world.find(&full);
                let repo = found.and_then(|found| {
                    let (Found::Here(id) | Found::Renamed(id)) = found;
                    let repo = self.world.repos.get(&id);
                    repo.filter(|repo| repo.permission(&self.caller.login).is_some())
                });
                let missing = || {
                    let message =
                        format!("Could not resolve to a Repository with the name '{full}'.");
                    Trouble::new("NOT_FOUND", message)
                };
                Ok(Out::Node(Node::Repo(repo.ok_or_else(missing)?)))
            }
            "node" => {
                let id = arguments.text("id").unwrap_or_default();
                let missing = || {
                    let message =
                        format!("Could not resolve to a node with the global id of '{id}'");
                    Trouble::new("NOT_FOUND", message)
                };
                Ok(Out::Node(self.by_id(id).ok_or_else(missing)?))
            }
            _ => unknown(&Node::Query, name),
        }
    }

    fn rate(&self, name: &str) -> Field<'a> {
        let rate = &self.rates["resources"]["graphql"];
        match name {
            "limit" | "used" | "remaining" => leaf(&rate[name]),
            "cost" | "nodeCount" => leaf(1),
            "resetAt" => {
                let seconds = rate["reset"].as_u64().unwrap_or_default();
                leaf(crate::stamp::Stamp::from_micros(seconds * 1_000_000).iso())
            }
            _ => unknown(&Node::Rate, name),
        }
    }

    fn repo(
        &self,
        node: &Node<'a>,
        repo: &'a Repo,
        name: &str,
        arguments: &Arguments,
    ) -> Field<'a> {
        let readable = self.caller.access.contents >= Level::Read;
        match name {
            "name" => leaf(&repo.name),
            "nameWithOwner" => leaf(repo.full_name()),
            "owner" => Ok(self.user(&repo.owner)),
            "databaseId" => leaf(repo.id),
            "url" => leaf(format!("{WEB}/{}", repo.full_name())),
            "isArchived" => leaf(repo.archived),
            "isEmpty" => leaf(repo.git.is_empty()),
            "isPrivate" => leaf(repo.private),
            "hasIssuesEnabled" => leaf(repo.has_issues),
            "viewerPermission" => {
                leaf(repo.permission(&self.caller.login).map(|it| it.word().to_uppercase()))
            }
            "ref" | "refs" | "object" | "defaultBranchRef" if !readable => {
                Err(Trouble::new("FORBIDDEN", "Resource not accessible by personal access token"))
            }
            "ref" => Ok(self.reference(repo, arguments.text("qualifiedName").unwrap_or_default())),
            "defaultBranchRef" => Ok(self.reference(repo, "refs/heads/main")),
            "refs" => {
                let found =
                    repo.git.matching(arguments.text("refPrefix").unwrap_or_default(), self.seen);
                let refs = found.into_iter().map(|(name, oid)| Node::Ref { repo, name, oid });
                page(refs.collect(), arguments)
            }
            "object" => {
                let expression = arguments.text("oid").or_else(|| arguments.text("expression"));
                let expression = expression.unwrap_or_default();
                let tip = repo.git.tip_at(expression, self.seen);
                Ok(self.commit_node(repo, tip.unwrap_or(expression)).map_or(Out::NULL, Out::Node))
            }
            "issue" | "pullRequest" | "issueOrPullRequest" => {
                let number = arguments.get("number").as_u64().unwrap_or_default();
                let found = repo.issues.get(&number).and_then(|it| self.issue_node(repo, it));
                let fits = |node: &Node<'_>| {
                    name == "issueOrPullRequest" || node.kind().eq_ignore_ascii_case(name)
                };
                let missing = || {
                    let message = format!(
                        "Could not resolve to an issue or pull request with the number of {number}."
                    );
                    Trouble::new("NOT_FOUND", message)
                };
                Ok(Out::Node(found.filter(fits).ok_or_else(missing)?))
            }
            "issues" => self.issues(repo, arguments),
            _ => unknown(node, name),
        }
    }

    pub(super) fn user(&self, login: &str) -> Out<'a> {
        self.world.user(login).map_or(Out::NULL, |user| Out::Node(Node::User(user)))
    }

    fn reference(&self, repo: &'a Repo, name: &str) -> Out<'a> {
        let found = repo.git.reference(name, self.seen);
        found.map_or(Out::NULL, |(name, oid)| Out::Node(Node::Ref { repo, name, oid }))
    }

    fn commit(&self, repo: &'a Repo, oid: &str) -> Field<'a> {
        Ok(self.commit_node(repo, oid).map_or(Out::NULL, Out::Node))
    }

    fn commit_node(&self, repo: &'a Repo, oid: &str) -> Option<Node<'a>> {
        let (oid, commit) = repo.git.object(oid, self.seen)?;
        Some(Node::Commit { repo, oid, commit })
    }

    /// An issue as this replica has it, if it is there.
    pub(super) fn issue_node(&self, repo: &'a Repo, issue: &'a Issue) -> Option<Node<'a>> {
        let state = issue.versions.at(self.seen).filter(|state| state.fate == Fate::Here)?;
        Some(Node::Issue { repo, issue, state })
    }

    fn by_id(&self, id: &str) -> Option<Node<'a>> {
        let visible = |repo: &&Repo| repo.permission(&self.caller.login).is_some();
        let repos = || self.world.repos.values().filter(visible);
        let issues = repos().flat_map(|repo| {
            repo.issues.values().filter_map(move |issue| self.issue_node(repo, issue))
        });
        let users = self.world.users.values().map(Node::User);
        let mut all = repos().map(Node::Repo).chain(users).chain(issues);
        all.find(|node| node.id().as_deref() == Some(id))
    }

    /// What a mutation was about, as it is now.
    pub(super) fn subject(&self, subject: &Subject) -> Option<Node<'a>> {
        match subject {
            Subject::Nothing => None,
            Subject::Issue(repo, number) => {
                let repo = self.world.repos.get(repo)?;
                self.issue_node(repo, repo.issues.get(number)?)
            }
            Subject::Comment(repo, id) => {
                let repo = self.world.repos.get(repo)?;
                let comment = repo.comments.get(id)?;
                Some(Node::Comment { repo, comment, state: comment.now()? })
            }
            Subject::Ref(repo, name) => {
                let repo = self.world.repos.get(repo)?;
                match self.reference(repo, name) {
                    Out::Node(node) => Some(node),
                    Out::Leaf(_) | Out::List(_) => None,
                }
            }
        }
    }
}

/// The first or last so many of a list, behind a cursor.
pub(super) fn page<'a>(nodes: Vec<Node<'a>>, arguments: &Arguments) -> Field<'a> {
    let total = nodes.len();
    let after = arguments.text("after").and_then(|cursor| cursor.parse().ok());
    let mut skipped = after.unwrap_or(0).min(total);
    let count = arguments.count("first").or_else(|| arguments.count("last"));
    let count = count.ok_or_else(|| {
        let message = "You must provide a `first` or `last` value to properly paginate.";
        Trouble::new("MISSING_PAGINATION_BOUNDARIES", message)
    })?;
    if count > 100 {
        let message =
            format!("Requesting {count} records exceeds the `first` limit of 100 records.");
        return Err(Trouble::new("EXCESSIVE_PAGINATION", message));
    }
    if arguments.count("first").is_none() {
        skipped = skipped.max(total.saturating_sub(count));
    }
    let nodes = nodes.into_iter().skip(skipped).take(count).collect();
    Ok(Out::Node(Node::Page(Page { nodes, total, skipped })))
}

fn page_field<'a>(node: &Node<'a>, page: &Page<'a>, name: &str) -> Field<'a> {
    let end = page.skipped + page.nodes.len();
    match name {
        "totalCount" => leaf(page.total),
        "nodes" => Ok(Out::List(page.nodes.clone())),
        "pageInfo" => Ok(Out::Node(Node::PageInfo {
            next: end < page.total,
            previous: page.skipped > 0,
            start: (!page.nodes.is_empty()).then_some(page.skipped + 1),
            end: (!page.nodes.is_empty()).then_some(end),
        })),
        _ => unknown(node, name),
    }
}

pub(super) fn leaf<'a>(value: impl serde::Serialize) -> Field<'a> {
    Ok(Out::Leaf(json!(value)))
}

pub(super) fn unknown<'a>(node: &Node<'_>, name: &str) -> Field<'a> {
    let message = format!("Field '{name}' doesn't exist on type '{}'", node.kind());
    Err(Trouble::new("undefinedField", message))
}
