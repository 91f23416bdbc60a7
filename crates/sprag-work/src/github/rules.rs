//! [`GitHubRules`]: the `[work.github]` section of `sprag.toml`.

use serde::Deserialize;

use crate::error::{Error, ErrorKind, Result};

/// Which issues are items, and what becomes of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitHubRules {
    /// The repository: `OWNER/REPO`, or `HOST/OWNER/REPO` on a server of your own.
    pub repo: Option<String>,
    /// The labels that an item has, all of them.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Labels that go first, the most urgent one first.
    #[serde(default)]
    pub priorities: Vec<String>,
    /// The accounts of workers, beside the one of this token: an issue that is assigned to
    /// anybody else is left to them.
    #[serde(default)]
    pub accounts: Vec<String>,
    /// What becomes of an issue that is done; it is closed by default.
    pub success: Option<After>,
    /// What becomes of an issue whose command failed; nothing by default.
    pub failure: Option<After>,
    /// Another address of the API.
    pub api: Option<String>,
    /// How late GitHub's answers may be.
    pub lag: Option<String>,
    /// How old what is known about locks may be when an issue is chosen.
    pub status_ttl: Option<String>,
    /// Whether GitHub's documented limits are kept ahead of time.
    pub limits: Option<bool>,
}

/// What becomes of an issue.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub enum After {
    /// It is closed as completed.
    Close,
    /// It stays as it is.
    Nothing,
    /// It gets other labels.
    Relabel {
        /// The labels that it loses.
        remove: Vec<String>,
        /// The labels that it gets.
        add: Vec<String>,
    },
}

/// The form in which it is written.
#[derive(Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "neither \"close\", \"nothing\" nor { remove = [..], add = [..] }"
)]
enum Raw {
    Word(Word),
    Relabel {
        #[serde(default)]
        remove: Vec<String>,
        #[serde(default)]
        add: Vec<String>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Close,
    Nothing,
}

impl From<Raw> for After {
    fn from(raw: Raw) -> Self {
        match raw {
            Raw::Word(Word::Close) => Self::Close,
            Raw::Word(Word::Nothing) => Self::Nothing,
            Raw::Relabel { remove, add } => Self::Relabel { remove, add },
        }
    }
}

impl GitHubRules {
    pub(super) fn repo(&self) -> Result<&str> {
        self.repo.as_deref().ok_or_else(|| {
            let message = "source = \"github\" below [work] needs to know where the issues are: \
                           write repo = \"OWNER/REPO\" below [work.github] in sprag.toml";
            Error::new(ErrorKind::Flow, message)
        })
    }

    pub(super) fn success(&self) -> &After {
        self.success.as_ref().unwrap_or(&After::Close)
    }

    pub(super) fn failure(&self) -> &After {
        self.failure.as_ref().unwrap_or(&After::Nothing)
    }

    /// Refuses what would never end or never begin.
    pub(super) fn check(&self) -> Result<()> {
        let bad = |message: String| Err(Error::new(ErrorKind::Flow, message));
        if self.failure == Some(After::Close) {
            return bad(
                "failure = \"close\" below [work.github] would close issues whose command \
                        failed: use \"nothing\" or { add = [\"failed\"] }"
                    .to_owned(),
            );
        }
        let all = [&self.labels, &self.priorities].into_iter().flatten();
        if let Some(label) =
            all.into_iter().find(|label| label.trim().is_empty() || label.contains(','))
        {
            return bad(format!("{label:?} below [work.github] is no label"));
        }
        match self.success() {
            After::Relabel { remove, .. }
                if !self.labels.iter().any(|label| has(remove, label)) =>
            {
                bad("success below [work.github] removes none of the labels, so that the issue \
                     would be taken again and again: remove one of them"
                    .to_owned())
            }
            _ => Ok(()),
        }
    }

    /// How urgent an issue with these labels is: higher goes first.
    pub(super) fn priority(&self, labels: &[String]) -> i64 {
        let rank = self.priorities.iter().position(|label| has(labels, label));
        let rank = rank.map_or(0, |rank| self.priorities.len() - rank);
        i64::try_from(rank).unwrap_or(i64::MAX)
    }
}

/// GitHub does not mind the case of labels and accounts.
pub(super) fn has(names: &[String], wanted: &str) -> bool {
    names.iter().any(|name| name.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> std::result::Result<GitHubRules, String> {
        let rules: GitHubRules = toml::from_str(text).map_err(|error| error.to_string())?;
        rules.check().map_err(|error| error.to_string())?;
        Ok(rules)
    }

    #[test]
    fn the_words_and_the_tables_are_read() {
        let read = rules(
            "repo = 'acme/app'\nlabels = ['ready']\npriorities = ['urgent', 'high']\n\
             success = { remove = ['ready'], add = ['review'] }\nfailure = { add = ['failed'] }",
        );
        let read = read.unwrap();
        assert_eq!(read.repo().unwrap(), "acme/app");
        assert!(matches!(read.success(), After::Relabel { add, .. } if add == &["review"]));
        let priority = |label: &str| read.priority(&[label.to_owned()]);
        assert_eq!((priority("URGENT"), priority("high"), priority("low")), (2, 1, 0));
        assert_eq!(rules("success = 'nothing'").unwrap().success(), &After::Nothing);
        assert_eq!(rules("").unwrap().success(), &After::Close);
        assert_eq!(rules("").unwrap().failure(), &After::Nothing);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, why) in [
            ("failure = 'close'", "would close"),
            ("labels = ['a,b']", "no label"),
            ("labels = ['a']\nsuccess = { add = ['b'] }", "again and again"),
            ("success = 'delete'", "\"close\", \"nothing\""),
            ("label = 'a'", "unknown field"),
        ] {
            let error = rules(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(GitHubRules::default().repo().unwrap_err().to_string().contains("OWNER/REPO"));
    }
}
