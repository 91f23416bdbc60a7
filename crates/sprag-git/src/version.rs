//! [`Version`]: which git this is.

use std::fmt;

/// The version of a `git` program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

impl Version {
    /// The oldest git that is good enough.
    pub const MINIMUM: Self = Self { major: 2, minor: 30, patch: 0 };

    /// Reads what `git version` says.
    pub(crate) fn read(said: &str) -> Option<Self> {
        let number = said.trim().strip_prefix("git version ")?.split_whitespace().next()?;
        let mut parts = number.split('.').map(|part| {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part[..digits].parse().ok()
        });
        let (major, minor) = (parts.next()??, parts.next()??);
        Some(Self { major, minor, patch: parts.next().flatten().unwrap_or(0) })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn versions_of_all_builds_are_read() {
        let read = |said| Version::read(said).unwrap().to_string();
        assert_eq!(read("git version 2.47.3\n"), "2.47.3");
        assert_eq!(read("git version 2.39.5 (Apple Git-154)"), "2.39.5");
        assert_eq!(read("git version 2.45.1.windows.1"), "2.45.1");
        assert_eq!(read("git version 2.48.0-rc1"), "2.48.0");
        assert_eq!(read("git version 2.30"), "2.30.0");
        assert_eq!(Version::read("gut version 2"), None);
        assert!(Version::read("git version 2.29.9").unwrap() < Version::MINIMUM);
    }
}
