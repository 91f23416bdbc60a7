//! [`Api`]: asks GitHub inside of the budget, and remembers what has not changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::{Value, json};
use sprag_core::{Error, ErrorKind, Result};
use sprag_ledger::in_short;

use crate::budget::{Budget, Heard, Limited, Verdict};
use crate::call::{Answer, Call, Cost, Method, Urgency};
use crate::config::GitHubConfig;
use crate::error::error;
use crate::http::{GRAPHQL, Http};
use crate::token::Token;

/// How many answers are remembered, and how many bytes.
const REMEMBERED: usize = 4096;
const REMEMBERED_BYTES: usize = 32 << 20;
/// No list is longer, all of its pages together.
const LONGEST_LIST: usize = 64 << 20;

/// GitHub's API for one repository.
#[derive(Debug)]
pub(crate) struct Api {
    http: Http,
    pub(crate) budget: Arc<Budget>,
    /// Below what all paths of the repository are: `/repos/acme/app`.
    pub(crate) repository: String,
    pub(crate) shown: String,
    pub(crate) owner: String,
    pub(crate) repo: String,
    known: Mutex<Known>,
    /// The name of the account, once it was told; nothing if it has none.
    pub(crate) account: OnceLock<Option<String>>,
}

/// Answers that may be good still.
#[derive(Debug, Default)]
struct Known {
    answers: HashMap<String, Answer>,
    bytes: usize,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It was not sent, or refused for being too fast: nothing was done.
    Limited(Limited),
    /// Nobody knows whether it was done.
    Unknown(Error),
    /// It was refused for good.
    Refused(Error),
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Limited(limited) => limited.into(),
            Trouble::Unknown(error) | Trouble::Refused(error) => error,
        }
    }
}

impl Api {
    pub(crate) fn new(config: &GitHubConfig) -> Result<Self> {
        let token = match &config.token {
            Some(token) => token.clone(),
            None => Token::find(config.token_host(), |name| std::env::var_os(name))?,
        };
        let fingerprint = token.fingerprint(&config.api);
        let clock = Arc::clone(&config.clock);
        let budget = Budget::new(config.state.as_deref(), &fingerprint, clock).ahead(config.limits);
        Self::with_budget(config, token, budget)
    }

    pub(crate) fn with_budget(config: &GitHubConfig, token: Token, budget: Budget) -> Result<Self> {
        Ok(Self {
            http: Http::new(config, token)?,
            budget: Arc::new(budget),
            repository: format!("/repos/{}/{}", config.owner, config.repo),
            shown: config.shown(),
            owner: config.owner.clone(),
            repo: config.repo.clone(),
            known: Mutex::default(),
            account: OnceLock::new(),
        })
    }

    /// Asks once. What GitHub says about the thing asked for, be it that there is none or that it
    /// cannot be, is an answer: 2xx, 404, 409, 410 and 422.
    pub(crate) fn ask(&self, call: &Call) -> Result<Answer, Trouble> {
        self.budget.admit(call.cost, call.urgency).map_err(Trouble::Limited)?;
        let known = (call.method == Method::Get).then(|| self.recall(&call.path)).flatten();
        let etag = known.as_ref().and_then(|known| known.facts.etag.as_deref());
        let answer = self.http.send(call, etag).map_err(Trouble::Unknown)?;
        let heard = heard(&answer);
        self.budget.heard(call.cost, &heard);
        if heard.verdict != Verdict::Fine {
            return Err(self.too_fast(call));
        }
        match (answer.status, known) {
            (304, Some(known)) => Ok(Answer { facts: known.facts.fresh(&answer.facts), ..known }),
            (200..=299, _) => {
                if call.method == Method::Get && answer.facts.etag.is_some() {
                    self.remember(&call.path, &answer);
                }
                Ok(answer)
            }
            (404 | 409 | 410 | 422, _) => Ok(answer),
            (500.., _) => {
                let (status, said) = (answer.status, answer.message());
                let message = format!("GitHub answered {status} to {}: {said}", call.shown());
                Err(Trouble::Unknown(error(ErrorKind::Unavailable, message)))
            }
            _ => Err(Trouble::Refused(self.refusal(call, &answer))),
        }
    }

    /// Asks, and takes nothing but success for an answer.
    pub(crate) fn get(&self, call: &Call) -> Result<Answer> {
        let answer = self.ask(call)?;
        if answer.is_success() { Ok(answer) } else { Err(self.refusal(call, &answer)) }
    }

    /// Asks by GraphQL: the data, and what GitHub says was wrong.
    pub(crate) fn graphql(
        &self,
        cost: Cost,
        urgency: Urgency,
        query: &str,
        variables: Value,
    ) -> Result<(Value, Vec<String>), Trouble> {
        let body = json!({ "query": query, "variables": variables });
        let call = Call::post(GRAPHQL, body).costs(cost).urgent(urgency);
        let answer = self.ask(&call)?;
        if !answer.is_success() {
            return Err(Trouble::Refused(self.refusal(&call, &answer)));
        }
        let mut told: Value = answer.read("a GraphQL query").map_err(Trouble::Unknown)?;
        let errors = told.get("errors").and_then(Value::as_array).cloned().unwrap_or_default();
        let words = errors.iter().filter_map(|error| Some(error.get("message")?.as_str()?.into()));
        Ok((told["data"].take(), words.collect()))
    }

    /// What GitHub's refusal means and what to do about it.
    pub(crate) fn refusal(&self, call: &Call, answer: &Answer) -> Error {
        let (repository, said) = (&self.shown, answer.message());
        let message = match answer.status {
            301 | 302 | 307 | 308 => self.moved(call, answer),
            401 => "GitHub refused the token (401): log in with `gh auth login`, or set GH_TOKEN \
                    to a token with the permissions contents:write and issues:write"
                .to_owned(),
            403 if said.contains("archived") => {
                format!(
                    "{repository} is archived, so nothing can be written: unarchive it ({said})"
                )
            }
            403 => format!(
                "the token may not {} on {repository}: give it contents:write and issues:write, \
                 or use ?mode=assignment where it may write issues only ({said})",
                call.shown()
            ),
            404 if call.path.contains("/issues") => format!(
                "{repository} has no {}, or the token may not see it: check the number ({said})",
                call.path.trim_start_matches(&*self.repository).trim_start_matches('/')
            ),
            404 => format!(
                "there is no {repository}, or the token may not see it: check the name, and that \
                 the token has contents:write there ({said})"
            ),
            409 if said.contains("empty") => format!(
                "{repository} has no commit yet, and refs need one: push a first commit ({said})"
            ),
            410 => format!("that was deleted from {repository}: {} ({said})", call.path),
            status => format!("GitHub answered {status} to {}: {said}", call.shown()),
        };
        // An issue that is not there is a wrong number, not a wrong token.
        let no_issue =
            call.path.contains("/issues/") && matches!(answer.status, 300..400 | 404 | 410);
        error(if no_issue { ErrorKind::BadInput } else { ErrorKind::Refused }, message)
    }

    fn moved(&self, call: &Call, answer: &Answer) -> String {
        let location = answer.facts.location.as_deref().unwrap_or_default();
        // Only what comes behind the host: the token goes to no other.
        let path = location.split_once("://").and_then(|(_, rest)| Some(&rest[rest.find('/')?..]));
        let path = path.map(|path| path.trim_start_matches("/api/v3"));
        let follow = path.and_then(|path| {
            // What can be asked for: the repository, or the issue.
            let cut = ["/git/", "/assignees", "/comments", "/commits"];
            let path = cut.iter().fold(path, |path, part| path.split(part).next().unwrap_or(path));
            let found = self.http.send(&Call::get(path), None).ok()?;
            let found: Value = found.read("the new name").ok()?;
            let name = found.get("full_name").or_else(|| found.get("html_url"))?.as_str()?;
            Some(in_short(name, 200))
        });
        let shown = &self.shown;
        match follow {
            Some(name) if call.path.contains("/issues/") => {
                format!(
                    "that issue of {shown} was transferred or its repository renamed: it is {name} now"
                )
            }
            Some(name) => format!("{shown} was renamed: it is {name} now; use github://{name}"),
            None => format!("{shown} was renamed or moved: use its new name"),
        }
    }

    fn too_fast(&self, call: &Call) -> Trouble {
        match self.budget.refused(call.cost, call.urgency) {
            Some(limited) => Trouble::Limited(limited),
            None => {
                let message = "GitHub rate limit: it asked us to slow down; try again in a moment";
                Trouble::Unknown(error(ErrorKind::RateLimited, message))
            }
        }
    }

    /// Counts a page of a list, which must not grow without end.
    pub(crate) fn count(&self, page: &Answer, of: &str, bytes: &mut usize) -> Result<()> {
        *bytes = bytes.saturating_add(page.body.len());
        if *bytes <= LONGEST_LIST {
            return Ok(());
        }
        let most = LONGEST_LIST >> 20;
        let message = format!("{} has more than {most} MiB of {of}", self.shown);
        Err(error(ErrorKind::StoreFull, message))
    }

    fn recall(&self, path: &str) -> Option<Answer> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).answers.get(path).cloned()
    }

    fn remember(&self, path: &str, answer: &Answer) {
        let size = answer.body.len();
        if size > REMEMBERED_BYTES / 4 {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.answers.len() >= REMEMBERED || known.bytes + size > REMEMBERED_BYTES {
            *known = Known::default();
        }
        known.bytes += size;
        if let Some(old) = known.answers.insert(path.to_owned(), answer.clone()) {
            known.bytes -= old.body.len();
        }
    }
}

/// What an answer says about our pace.
fn heard(answer: &Answer) -> Heard {
    let facts = answer.facts.clone();
    let said = match answer.status {
        // GraphQL says it in an answer that looks well.
        200 if answer.body.windows(12).any(|word| word == b"RATE_LIMITED") => {
            return Heard { facts, unchanged: false, verdict: Verdict::Exhausted };
        }
        403 | 429 => answer.message().to_ascii_lowercase(),
        status => {
            return Heard { facts, unchanged: status == 304, verdict: Verdict::Fine };
        }
    };
    let verdict = if facts.retry_after.is_some() || said.contains("secondary rate limit") {
        Verdict::SlowDown
    } else if facts.remaining == Some(0) || said.contains("api rate limit exceeded") {
        Verdict::Exhausted
    } else if answer.status == 429 || said.contains("abuse") || said.contains("too quickly") {
        Verdict::SlowDown
    } else {
        Verdict::Fine
    };
    Heard { facts, unchanged: false, verdict }
}

#[cfg(test)]
mod tests {
    use super::heard;
    use crate::budget::Verdict;
    use crate::call::{Answer, Facts};

    #[test]
    fn limits_are_told_apart_from_missing_permissions() {
        let said = |status, message: &str, facts| {
            let body = format!(r#"{{"message":"{message}"}}"#).into_bytes();
            heard(&Answer { status, body, facts }).verdict
        };
        let none = Facts::default;
        let retry = || Facts { retry_after: Some(30), ..Facts::default() };
        let zero = || Facts { remaining: Some(0), ..Facts::default() };
        let secondary = "You have exceeded a secondary rate limit";
        assert_eq!(said(403, secondary, none()), Verdict::SlowDown);
        assert_eq!(said(429, "", none()), Verdict::SlowDown);
        assert_eq!(said(403, "", retry()), Verdict::SlowDown);
        assert_eq!(said(403, "API rate limit exceeded for user", zero()), Verdict::Exhausted);
        assert_eq!(said(403, "Resource not accessible by integration", none()), Verdict::Fine);
        assert_eq!(said(200, "", zero()), Verdict::Fine);
        let body = br#"{"errors":[{"type":"RATE_LIMITED"}]}"#.to_vec();
        let answer = Answer { status: 200, body, ..Answer::default() };
        assert_eq!(heard(&answer).verdict, Verdict::Exhausted);
    }
}
