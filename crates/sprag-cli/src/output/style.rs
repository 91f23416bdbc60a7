//! [`Style`]: colours, or none.

use clap::ValueEnum;

use super::plain;

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless NO_COLOR or TERM=dumb says otherwise.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Colour {
    /// As it is written in flags and files.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// The colours of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    coloured: bool,
}

impl Style {
    /// Decides for a stream; `env` reads the environment.
    pub(crate) fn new(
        colour: Colour,
        terminal: bool,
        env: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let set = |name: &str| env(name).is_some_and(|value| !value.is_empty());
        let coloured = match colour {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto if set("NO_COLOR") => false,
            Colour::Auto if env("CLICOLOR_FORCE").is_some_and(|v| !v.is_empty() && v != "0") => {
                true
            }
            Colour::Auto => {
                terminal
                    && env("TERM").is_none_or(|term| term != "dumb")
                    && env("CLICOLOR").is_none_or(|value| value != "0")
            }
        };
        Self { coloured }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.coloured {
            format!("{}{text}{}", plain::colour(code), plain::colour("0"))
        } else {
            text.to_owned()
        }
    }

    /// Errors, stale leases.
    pub(crate) fn bad(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    /// Warnings, leases that are nearly over.
    pub(crate) fn warn(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// What is well.
    pub(crate) fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Hints and names.
    pub(crate) fn note(self, text: &str) -> String {
        self.paint("36", text)
    }

    /// Headings.
    pub(crate) fn strong(self, text: &str) -> String {
        self.paint("1", text)
    }
}

#[cfg(test)]
mod tests {
    use super::{Colour, Style};

    fn coloured(colour: Colour, terminal: bool, set: &[(&str, &str)]) -> bool {
        let env = |name: &str| {
            set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        Style::new(colour, terminal, env).coloured
    }

    #[test]
    fn the_flag_goes_before_the_environment_and_the_environment_before_the_terminal() {
        use Colour::{Always, Auto, Never};
        for (colour, terminal, set, expected) in [
            (Auto, true, &[][..], true),
            (Auto, false, &[], false),
            (Auto, true, &[("NO_COLOR", "1")], false),
            (Auto, true, &[("NO_COLOR", "")], true),
            (Auto, false, &[("CLICOLOR_FORCE", "1")], true),
            (Auto, false, &[("CLICOLOR_FORCE", "0")], false),
            (Auto, true, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], false),
            (Auto, true, &[("TERM", "dumb")], false),
            (Auto, true, &[("CLICOLOR", "0")], false),
            (Always, false, &[("NO_COLOR", "1")], true),
            (Never, true, &[("CLICOLOR_FORCE", "1")], false),
        ] {
            assert_eq!(coloured(colour, terminal, set), expected, "{colour:?} {terminal} {set:?}");
        }
    }
}
