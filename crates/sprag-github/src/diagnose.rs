//! What `sprag doctor` tells about GitHub, and how many locks its limits carry.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use sprag_core::diagnosis::Finding;
use sprag_core::{Error, ErrorKind, Result};
use sprag_ledger::{Ledger, RefName};
use tokio::sync::oneshot;

use crate::api::Api;
use crate::call::Call;
use crate::client::GitHubClient;
use crate::error::error;
use crate::issues::HttpClient;
use crate::ledger::GitHubLedger;

/// What GitHub allows one account, as it documents.
const REQUESTS_PER_HOUR: u64 = 5_000;
const CHANGES_PER_HOUR: u64 = 3_600;
const COMMENTS_PER_HOUR: u64 = 500;
/// A sign of life is a commit and a ref.
const CALLS_PER_SIGN: u64 = crate::budget::RENEWAL_CALLS;
/// The comment of a lock is refreshed at least so often, with a look before.
const REFRESHES_PER_HOUR: u64 = 2;

/// The histories of so many locks are counted, each up to so many commits: a request is a hundred.
const COUNTED: usize = 10;
const DEPTH: usize = 1_000;

#[derive(Deserialize)]
struct Repository {
    #[serde(default)]
    permissions: Option<Permissions>,
    #[serde(default)]
    archived: bool,
    #[serde(default)]
    has_issues: bool,
}

#[derive(Deserialize)]
struct Permissions {
    #[serde(default)]
    push: bool,
}

/// Looks at the token, the repository and what is left of the budget.
pub(crate) async fn examine(api: Arc<Api>) -> Result<Vec<Finding>> {
    let (told, answer) = oneshot::channel();
    let thread = std::thread::Builder::new().name("sprag-doctor".into());
    let gone = || error(ErrorKind::Unavailable, "no thread to look at GitHub");
    let run = move || drop(told.send(look(&api)));
    thread.spawn(run).map_err(|cause| gone().caused_by(cause))?;
    answer.await.unwrap_or_else(|_| Err(gone()))
}

fn look(api: &Arc<Api>) -> Result<Vec<Finding>> {
    let account = HttpClient::over(Arc::clone(api)).account()?;
    let told: Repository = api.get(&Call::get(api.repository.clone()))?.read(&api.shown)?;
    let mut findings = Vec::new();
    let who = account.as_deref().unwrap_or("an App");
    findings.push(match told.permissions {
        Some(Permissions { push: false }) => Finding::fail(format!(
            "the token of {who} may not write to {}",
            api.shown
        ))
        .fix("give it contents:write and issues:write, or use ?mode=assignment, which is only L1"),
        _ => Finding::good(format!("the token of {who} may write to {}", api.shown)),
    });
    if account.is_none() {
        let text = "an App has no account, so issues show its locks by a comment and no assignee";
        findings.push(Finding::note(text));
    }
    if told.archived {
        findings.push(Finding::fail("the repository is archived").fix("unarchive it"));
    }
    if !told.has_issues {
        let text = "issues are switched off there, so nobody sees the locks";
        findings.push(Finding::warn(text).fix("switch them on in the settings of the repository"));
    }
    let [(rest, rest_limit), (graphql, graphql_limit)] = api.budget.left();
    let mut left = format!("{rest} of {rest_limit} requests left this hour");
    if graphql_limit > 0 {
        left.push_str(&format!(", {graphql} of {graphql_limit} points of GraphQL"));
    }
    findings.push(stored(api));
    findings.push(if rest * 4 < rest_limit {
        Finding::warn(left).fix("give leases a longer --ttl, or use fewer workers per account")
    } else {
        Finding::good(left)
    });
    Ok(findings)
}

/// What the locks leave in the repository.
fn stored(api: &Arc<Api>) -> Finding {
    let ledger = GitHubLedger::new(Arc::clone(api), Arc::default());
    let count = || {
        let locks = ledger.list(RefName::locks())?;
        let sessions = ledger.list(RefName::sessions())?.len();
        let text = format!("{} locks and {sessions} sessions are kept", locks.len());
        let counted = &locks[..locks.len().min(COUNTED)];
        let histories = counted.iter().map(|(name, _)| ledger.history(name, DEPTH));
        let commits = histories.map(|history| Ok(history?.len())).sum::<Result<usize>>()?;
        let which = match locks.len() {
            0 => return Ok(text),
            1..=COUNTED => String::new(),
            _ => format!(" of {COUNTED} locks"),
        };
        Ok(format!("{text}, with {commits} commits as the history{which}"))
    };
    match count() {
        Ok(text) => Finding::good(text),
        Err::<_, Error>(error) => Finding::warn(format!("what is kept cannot be read: {error}")),
    }
}

/// What `locks` cost of GitHub's limits per hour if each is held by a worker of its own, all on one
/// account, with leases of this length.
///
/// # Examples
///
/// ```
/// use sprag_core::diagnosis::Health;
/// use sprag_github::forecast;
/// use std::time::Duration;
///
/// let health = |locks| forecast(locks, Duration::from_secs(300))[0].health;
/// assert_eq!(health(20), Health::Good);
/// assert_eq!(health(40), Health::Warn);
/// assert_eq!(health(400), Health::Fail);
/// ```
pub fn forecast(locks: u64, ttl: Duration) -> Vec<Finding> {
    let every = (ttl.as_secs() / 3).max(1);
    let signs = locks.saturating_mul(3600 / every);
    let changes = signs.saturating_mul(CALLS_PER_SIGN) + locks * REFRESHES_PER_HOUR;
    // Each refresh is looked before, once for the issue and once for its comment.
    let requests = changes + locks * REFRESHES_PER_HOUR * 2;
    let text = format!(
        "{locks} workers with a lock each, a sign of life every {every}s: {requests} of \
         {REQUESTS_PER_HOUR} requests and {changes} of {CHANGES_PER_HOUR} changes an hour"
    );
    let longest = (CHANGES_PER_HOUR - locks.min(1000) * REFRESHES_PER_HOUR).max(1);
    let needed = locks.saturating_mul(CALLS_PER_SIGN * 3 * 3600).div_ceil(longest);
    let fix = format!("give leases a --ttl of at least {}m", needed.div_ceil(60).max(1));
    let load = if changes > CHANGES_PER_HOUR || requests > REQUESTS_PER_HOUR {
        Finding::fail(text).fix(fix)
    } else if changes * 4 > CHANGES_PER_HOUR * 3 {
        Finding::warn(text).fix(fix)
    } else {
        Finding::good(text)
    };
    let churn = COMMENTS_PER_HOUR * 24 / 25;
    let comments = format!(
        "each issue gets one comment, which is edited: {churn} issues an hour can be taken for \
         the first time; waiting costs nothing while nothing changes"
    );
    vec![load, Finding::note(comments)]
}
