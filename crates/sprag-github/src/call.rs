//! [`Call`] and [`Answer`]: one request to GitHub and what came back.

use serde::de::DeserializeOwned;
use serde_json::Value;
use sprag_core::{ErrorKind, Result};
use sprag_ledger::in_short;

use crate::error::error;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Below the address of the API, such as `/repos/acme/app/issues/1`.
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    pub(crate) cost: Cost,
    pub(crate) urgency: Urgency,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
    Patch,
    Delete,
}

/// What a request takes from the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cost {
    /// It reads; free of the primary limit where nothing changed.
    Read,
    /// It changes something.
    Write,
    /// It changes something that people are notified of: a new comment.
    Content,
    /// It reads by GraphQL, which has points of its own.
    Query,
    /// It changes something by GraphQL.
    Mutation,
}

/// Who goes first when there is not enough for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Urgency {
    /// What people look at; can wait.
    Mirror,
    /// Taking, looking, releasing.
    Normal,
    /// A sign of life: before everything.
    Renewal,
}

impl Call {
    const fn new(method: Method, path: String, body: Option<Value>, cost: Cost) -> Self {
        Self { method, path, body, cost, urgency: Urgency::Normal }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::Get, path.into(), None, Cost::Read)
    }

    pub(crate) fn post(path: impl Into<String>, body: Value) -> Self {
        Self::new(Method::Post, path.into(), Some(body), Cost::Write)
    }

    pub(crate) fn patch(path: impl Into<String>, body: Value) -> Self {
        Self::new(Method::Patch, path.into(), Some(body), Cost::Write)
    }

    pub(crate) fn delete(path: impl Into<String>, body: Option<Value>) -> Self {
        Self::new(Method::Delete, path.into(), body, Cost::Write)
    }

    pub(crate) const fn costs(mut self, cost: Cost) -> Self {
        self.cost = cost;
        self
    }

    pub(crate) const fn urgent(mut self, urgency: Urgency) -> Self {
        self.urgency = urgency;
        self
    }

    /// What is asked, for messages.
    pub(crate) fn shown(&self) -> String {
        let method = match self.method {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        };
        format!("{method} {}", self.path)
    }
}

/// What came back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) facts: Facts,
}

/// What the headers tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) etag: Option<String>,
    /// Where the next page of a list is.
    pub(crate) next: Option<String>,
    pub(crate) location: Option<String>,
    /// GitHub's clock, in seconds since 1970.
    pub(crate) date: Option<u64>,
    pub(crate) retry_after: Option<u64>,
    pub(crate) limit: Option<u64>,
    pub(crate) remaining: Option<u64>,
    pub(crate) reset: Option<u64>,
    /// Which of its limits these numbers are about: `core`, `graphql`.
    pub(crate) resource: Option<String>,
}

impl Facts {
    /// These, with what a newer answer without a body tells.
    pub(crate) fn fresh(self, newer: &Self) -> Self {
        let Self { etag, next, location, .. } = self;
        Self { etag, next, location, ..newer.clone() }
    }
}

impl Answer {
    pub(crate) const fn is_success(&self) -> bool {
        self.status >= 200 && self.status < 300
    }

    /// What GitHub says in words, cut to a length that fits into a message.
    pub(crate) fn message(&self) -> String {
        let told = self.read::<Value>("an error").ok();
        let text = told.as_ref().and_then(|value| value.get("message")?.as_str());
        let details = told.as_ref().and_then(|value| value.get("errors")?.as_array().cloned());
        let details = details.unwrap_or_default().into_iter().filter_map(|detail| {
            let text = detail.get("message").unwrap_or(&detail).as_str()?;
            Some(text.to_owned())
        });
        let words: Vec<_> = text.map(str::to_owned).into_iter().chain(details).collect();
        in_short(&words.join(": "), 300)
    }

    /// The body as data.
    pub(crate) fn read<T: DeserializeOwned>(&self, of: &str) -> Result<T> {
        if values(&self.body) > MOST_VALUES {
            let message = format!("GitHub's answer about {of} has more than {MOST_VALUES} values");
            return Err(error(ErrorKind::Corrupt, message));
        }
        serde_json::from_slice(&self.body).map_err(|e| {
            let message = format!("GitHub's answer about {of} is not understood: {e}");
            error(ErrorKind::Corrupt, message)
        })
    }
}

/// No answer that we understand has more values. Each takes up to a hundred bytes of memory, and
/// two in the answer.
const MOST_VALUES: usize = 500_000;

/// How many values a text in JSON has at most.
fn values(text: &[u8]) -> usize {
    let (mut in_string, mut escaped, mut values) = (false, false, 1);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::{Answer, MOST_VALUES, values};
    use serde_json::Value;

    #[test]
    fn an_answer_of_too_many_values_is_not_read() {
        assert_eq!(values(br#"{"a,[{\",":[1,2,{"b":""}]}"#), 6);
        let body = format!("[{}1]", "0,".repeat(MOST_VALUES)).into_bytes();
        let answer = Answer { body, ..Answer::default() };
        let error = answer.read::<Value>("refs").unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains("more than 500000"), "{error}");
        assert_eq!(answer.message(), "");
    }

    #[test]
    fn what_github_says_is_repeated_in_short() {
        let body = br#"{"message":"Validation Failed","errors":[{"message":"no\nway"},"odd"]}"#;
        let answer = Answer { body: body.to_vec(), ..Answer::default() };
        assert_eq!(answer.message(), r"Validation Failed: no\nway: odd");
        let body = format!(r#"{{"message":"{}"}}"#, "x".repeat(10_000)).into_bytes();
        assert_eq!(Answer { body, ..Answer::default() }.message().len(), 300);
        assert_eq!(Answer::default().message(), "");
    }
}
