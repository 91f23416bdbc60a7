//! [`HttpClient`]: issues through GitHub's API.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use sprag_core::{ErrorKind, Result};

use crate::api::Api;
use crate::call::{Call, Cost, Urgency};
use crate::client::{Comment, GitHubClient, Issue};
use crate::config::GitHubConfig;
use crate::error::error;

/// More pages than this are not read.
const MAX_PAGES: usize = 26;

/// A [`GitHubClient`] that asks GitHub, inside of the budget of its token.
#[derive(Clone, Debug)]
pub struct HttpClient {
    api: Arc<Api>,
    urgency: Urgency,
}

impl HttpClient {
    /// Opens a client.
    ///
    /// # Errors
    ///
    /// If there is no token, or no certificates to trust.
    pub fn new(config: &GitHubConfig) -> Result<Self> {
        Ok(Self::over(Arc::new(Api::new(config)?)))
    }

    pub(crate) fn over(api: Arc<Api>) -> Self {
        Self { api, urgency: Urgency::Normal }
    }

    /// The same, for what can wait.
    pub(crate) fn patient(&self) -> Self {
        Self { urgency: Urgency::Mirror, ..self.clone() }
    }

    fn issue_path(&self, number: u64) -> String {
        format!("{}/issues/{number}", self.api.repository)
    }

    fn comment_path(&self, comment: u64) -> String {
        format!("{}/issues/comments/{comment}", self.api.repository)
    }

    fn issue(&self, call: Call) -> Result<Issue> {
        let told: WireIssue = self.api.get(&call.urgent(self.urgency))?.read("an issue")?;
        Ok(told.into())
    }

    fn comment(&self, call: Call) -> Result<Comment> {
        let told: WireComment = self.api.get(&call.urgent(self.urgency))?.read("a comment")?;
        Ok(told.into())
    }

    /// All pages of a list, and GitHub's time of the last.
    fn pages<T: for<'de> Deserialize<'de>>(
        &self,
        path: &str,
        query: &str,
    ) -> Result<(Vec<T>, u64)> {
        let (mut all, mut query, mut date, mut bytes) = (Vec::new(), query.to_owned(), 0, 0);
        for _ in 0..MAX_PAGES {
            let call = Call::get(format!("{path}?{query}")).urgent(self.urgency);
            let answer = self.api.get(&call)?;
            self.api.count(&answer, path, &mut bytes)?;
            date = answer.facts.date.unwrap_or(date);
            all.extend(answer.read::<Vec<T>>(path)?);
            match answer.facts.next {
                Some(next) => query = next,
                None => return Ok((all, date)),
            }
        }
        Ok((all, date))
    }
}

impl GitHubClient for HttpClient {
    fn get_issue(&self, number: u64) -> Result<Issue> {
        self.issue(Call::get(self.issue_path(number)))
    }

    fn assign_issue(&self, number: u64, assignee: &str) -> Result<Issue> {
        let path = format!("{}/assignees", self.issue_path(number));
        self.issue(Call::post(path, json!({ "assignees": [assignee] })))
    }

    fn unassign_issue(&self, number: u64, assignee: &str) -> Result<Issue> {
        let path = format!("{}/assignees", self.issue_path(number));
        self.issue(Call::delete(path, Some(json!({ "assignees": [assignee] }))))
    }

    fn add_comment(&self, number: u64, body: &str) -> Result<Comment> {
        let path = format!("{}/comments", self.issue_path(number));
        self.comment(Call::post(path, json!({ "body": body })).costs(Cost::Content))
    }

    fn edit_comment(&self, comment: u64, body: &str) -> Result<Comment> {
        self.comment(Call::patch(self.comment_path(comment), json!({ "body": body })))
    }

    fn delete_comment(&self, comment: u64) -> Result<()> {
        let call = Call::delete(self.comment_path(comment), None).urgent(self.urgency);
        let answer = self.api.ask(&call)?;
        match answer.status {
            404 | 410 => Ok(()),
            _ if answer.is_success() => Ok(()),
            _ => Err(self.api.refusal(&call, &answer)),
        }
    }

    fn get_comment(&self, comment: u64) -> Result<Option<Comment>> {
        let call = Call::get(self.comment_path(comment)).urgent(self.urgency);
        let answer = self.api.ask(&call)?;
        match answer.status {
            404 | 410 => Ok(None),
            _ if answer.is_success() => Ok(Some(answer.read::<WireComment>("a comment")?.into())),
            _ => Err(self.api.refusal(&call, &answer)),
        }
    }

    fn list_comments(&self, number: u64) -> Result<(Vec<Comment>, u64)> {
        let path = format!("{}/comments", self.issue_path(number));
        let (told, date) = self.pages::<WireComment>(&path, "per_page=100")?;
        Ok((told.into_iter().map(Into::into).collect(), date))
    }

    fn account(&self) -> Result<Option<String>> {
        if let Some(known) = self.api.account.get() {
            return Ok(known.clone());
        }
        let call = Call::get("/user").urgent(self.urgency);
        let login = match self.api.ask(&call) {
            Ok(answer) if answer.is_success() => Some(answer.read::<User>("the account")?.login),
            // An App has no account to be assigned.
            Ok(_) | Err(crate::api::Trouble::Refused(_)) => None,
            Err(trouble) => return Err(trouble.into()),
        };
        Ok(self.api.account.get_or_init(|| login).clone())
    }

    fn list_issues(&self, labels: &[String]) -> Result<Vec<Issue>> {
        let labels: Vec<_> = labels.iter().map(|label| escape(label)).collect();
        let labels = match labels.len() {
            0 => String::new(),
            _ => format!("&labels={}", labels.join(",")),
        };
        let query = format!("state=open&sort=created&direction=asc&per_page=100{labels}");
        let path = format!("{}/issues", self.api.repository);
        let (told, _) = self.pages::<WireIssue>(&path, &query)?;
        Ok(told.into_iter().map(Issue::from).filter(|issue| !issue.pull_request).collect())
    }

    fn linked_pull_requests(&self, number: u64) -> Result<Vec<u64>> {
        let query = "query($owner: String!, $name: String!, $number: Int!) { \
                     repository(owner: $owner, name: $name) { issue(number: $number) { \
                     closedByPullRequestsReferences(first: 20, includeClosedPrs: false) { \
                     nodes { number state } } } } }";
        let variables = json!({ "owner": self.api.owner, "name": self.api.repo, "number": number });
        let (data, errors) = self.api.graphql(Cost::Query, self.urgency, query, variables)?;
        let nodes = &data["repository"]["issue"]["closedByPullRequestsReferences"]["nodes"];
        let Some(nodes) = nodes.as_array() else {
            let told = errors.first().map_or("no such issue", String::as_str);
            let message = format!("the pull requests of issue {number} are not known: {told}");
            return Err(error(ErrorKind::Refused, message));
        };
        let open = |node: &&Value| node["state"].as_str() == Some("OPEN");
        Ok(nodes.iter().filter(open).filter_map(|node| node["number"].as_u64()).collect())
    }

    fn close_issue(&self, number: u64) -> Result<Issue> {
        let body = json!({ "state": "closed", "state_reason": "completed" });
        self.issue(Call::patch(self.issue_path(number), body))
    }

    fn relabel_issue(&self, number: u64, add: &[String], remove: &[String]) -> Result<()> {
        let path = format!("{}/labels", self.issue_path(number));
        if !add.is_empty() {
            self.api.get(&Call::post(&path, json!({ "labels": add })).urgent(self.urgency))?;
        }
        for label in remove {
            let call = Call::delete(format!("{path}/{}", escape(label)), None).urgent(self.urgency);
            let answer = self.api.ask(&call)?;
            if !answer.is_success() && answer.status != 404 {
                return Err(self.api.refusal(&call, &answer));
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct User {
    login: String,
}

#[derive(Deserialize)]
struct Label {
    name: String,
}

#[derive(Deserialize)]
struct WireIssue {
    number: u64,
    #[serde(default)]
    title: String,
    #[serde(default)]
    body: Option<String>,
    state: String,
    #[serde(default)]
    locked: bool,
    #[serde(default)]
    pull_request: Option<Value>,
    #[serde(default)]
    assignees: Vec<User>,
    #[serde(default)]
    labels: Vec<Label>,
    #[serde(default)]
    created_at: String,
}

impl From<WireIssue> for Issue {
    fn from(told: WireIssue) -> Self {
        Self {
            number: told.number,
            title: told.title,
            body: told.body.unwrap_or_default(),
            closed: told.state == "closed",
            locked: told.locked,
            pull_request: told.pull_request.is_some_and(|pull| !pull.is_null()),
            assignees: told.assignees.into_iter().map(|user| user.login).collect(),
            labels: told.labels.into_iter().map(|label| label.name).collect(),
            created_at: told.created_at,
        }
    }
}

#[derive(Deserialize)]
struct WireComment {
    id: u64,
    #[serde(default)]
    user: Option<User>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    updated_at: String,
    #[serde(default)]
    author_association: String,
}

impl From<WireComment> for Comment {
    fn from(told: WireComment) -> Self {
        Self {
            id: told.id,
            author: told.user.map(|user| user.login).unwrap_or_default(),
            body: told.body.unwrap_or_default(),
            updated_at: told.updated_at,
            by_member: matches!(&*told.author_association, "OWNER" | "MEMBER" | "COLLABORATOR"),
        }
    }
}

/// Escapes what has a meaning in a URL.
fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
