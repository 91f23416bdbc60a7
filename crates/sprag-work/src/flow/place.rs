//! [`Place`]: where an item is.

use std::fmt;

use super::State;
use crate::name::ItemName;

/// Where an item is: its state, and its category once it has one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The folder between the root and the state.
    pub category: Option<String>,
    /// The state.
    pub state: State,
}

impl Place {
    /// What the folder of a pending item begins with; behind it is the item's name.
    pub(super) const PENDING: &'static str = "pending-";

    /// A place without a category.
    pub fn plain(state: &'static str) -> Self {
        Self { category: None, state: State::known(state) }
    }

    /// A place in a category.
    pub fn in_category(category: &str, state: &'static str) -> Self {
        Self { category: Some(category.to_owned()), state: State::known(state) }
    }

    /// Where an item that is here goes while it waits for an answer.
    #[must_use]
    pub fn pending(&self) -> Self {
        Self { category: self.category.clone(), state: State::pending() }
    }

    /// The path of an item that is here, below `root`.
    pub fn path(&self, root: &str, item: &ItemName) -> String {
        let category = self.category.as_deref().map(|name| format!("{name}/")).unwrap_or_default();
        if self.state.is_pending() {
            return format!("{root}/{category}{}{item}", Self::PENDING);
        }
        format!("{root}/{category}{}/{item}", self.state)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.category {
            Some(category) => write!(f, "{category}/{}", self.state),
            None => write!(f, "{}", self.state),
        }
    }
}
