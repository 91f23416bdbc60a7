//! [`State`]: the name of a state, which is the name of its folder.

use std::fmt;

use serde::{Deserialize, Serialize};
use sprag_ledger::RefName;

use crate::error::{Error, ErrorKind, Result};

/// The name of a state: of the folder that its items are in, such as `archive/production`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct State(String);

impl State {
    /// The state of items that wait for an answer, wherever they were before.
    pub const PENDING: &'static str = "pending";

    /// Checks the name of a state.
    ///
    /// # Errors
    ///
    /// Flow if it cannot be the name of a folder, or is `pending`, which is always there.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let fits = RefName::new(format!("refs/heads/{text}")).is_some() && !text.starts_with('-');
        let pending = text.split('/').any(|part| part == Self::PENDING);
        if fits && !pending && !text.contains(char::is_whitespace) {
            return Ok(Self(text));
        }
        let why = if pending { "every flow has it already" } else { "it is no name of a folder" };
        Err(Error::new(ErrorKind::Flow, format!("{text:?} cannot be a state: {why}")))
    }

    /// A state that is written in this crate.
    pub(super) fn known(text: &'static str) -> Self {
        Self(text.to_owned())
    }

    /// The state of items that wait for an answer.
    pub fn pending() -> Self {
        Self(Self::PENDING.to_owned())
    }

    /// Whether it is that state.
    pub fn is_pending(&self) -> bool {
        self.0 == Self::PENDING
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folders of it.
    pub(super) fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// The first folder of it.
    pub(super) fn head(&self) -> &str {
        self.parts().next().unwrap_or_default()
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for State {
    type Error = Error;

    /// As [`State::new`], and `pending` too: what was written down may be.
    fn try_from(text: String) -> Result<Self> {
        if text == Self::PENDING { Ok(Self(text)) } else { Self::new(text) }
    }
}

impl From<State> for String {
    fn from(state: State) -> Self {
        state.0
    }
}
