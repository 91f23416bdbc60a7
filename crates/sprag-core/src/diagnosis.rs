//! [`Finding`]: what a store says about itself when it is examined.

/// One thing that was found out about a store. For people.
///
/// # Examples
///
/// ```
/// use sprag_core::diagnosis::{Finding, Health};
///
/// let finding = Finding::warn("locks can be evicted").fix("set maxmemory-policy noeviction");
/// assert_eq!(finding.health, Health::Warn);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How good or bad it is.
    pub health: Health,
    /// What was found, on one line, without secrets.
    pub text: String,
    /// What to do about it.
    pub fix: Option<String>,
}

/// How good or bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// As it should be.
    Good,
    /// Worth knowing.
    Note,
    /// The promise holds only under a condition that the finding names.
    Warn,
    /// The promise does not hold here.
    Fail,
}

impl Health {
    /// The health as a word, for programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

impl Finding {
    fn new(health: Health, text: impl Into<String>) -> Self {
        Self { health, text: text.into(), fix: None }
    }

    /// It is as it should be.
    pub fn good(text: impl Into<String>) -> Self {
        Self::new(Health::Good, text)
    }

    /// It is worth knowing.
    pub fn note(text: impl Into<String>) -> Self {
        Self::new(Health::Note, text)
    }

    /// The promise holds only under a condition.
    pub fn warn(text: impl Into<String>) -> Self {
        Self::new(Health::Warn, text)
    }

    /// The promise does not hold.
    pub fn fail(text: impl Into<String>) -> Self {
        Self::new(Health::Fail, text)
    }

    /// Says what to do about it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}
