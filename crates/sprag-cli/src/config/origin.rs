//! [`Origin`]: who says so.

use std::fmt;
use std::path::PathBuf;

/// Where a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A flag.
    Flag(&'static str),
    /// A variable of the environment.
    Environment(&'static str),
    /// A line of a file.
    File(PathBuf, usize),
    /// The `sprag run` around this process.
    OuterRun,
    /// Nobody: it is what sprag does by itself.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => f.write_str(flag),
            Self::Environment(variable) => f.write_str(variable),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::OuterRun => f.write_str("the sprag run around this"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> Setting<T> {
    /// What sprag does by itself.
    pub(crate) const fn standard(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }
}
