//! [`Rules`]: the `[work]` section of `sprag.toml`.

use serde::Deserialize;

use super::{Flow, State, Step};
use crate::error::Result;
use crate::github::GitHubRules;

/// What stands for the category in the name of a state.
const CATEGORY: &str = "{category}/";
/// Where items are, unless the rules say something else.
const ROOT: &str = "docs/work";

/// How work is done in a repository, as `[work]` in `sprag.toml` says it. All of it is optional.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The folder that the items are below.
    pub root: Option<String>,
    /// The remote that everybody works with.
    pub remote: Option<String>,
    /// The branch that finished work is merged into.
    pub main: Option<String>,
    /// The category of items for which none is given.
    pub category: Option<String>,
    /// The folder that worktrees are made in.
    pub worktrees: Option<String>,
    /// What becomes of ignored files in them.
    pub ignored: Option<Ignored>,
    /// How long a claim without a process lasts.
    pub claim_ttl: Option<String>,
    /// How long the claim of a running command lasts without a sign of life.
    pub run_ttl: Option<String>,
    /// Where items come from: `git`, or `github`.
    pub source: Option<String>,
    /// Which issues are items, where they come from GitHub.
    pub github: Option<GitHubRules>,
    /// The steps, where the flow is another one.
    pub step: Option<Vec<StepRule>>,
    /// The states in which items stay.
    pub last: Option<Vec<State>>,
}

/// What becomes of files that git ignores, when the worktree of a claim is done with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ignored {
    /// The folder is kept with them. Caches that can be made again do not count: folders with a
    /// `CACHEDIR.TAG`, `node_modules` and `__pycache__`.
    #[default]
    Keep,
    /// They are removed with the folder.
    Discard,
}

/// A step, as the rules say it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRule {
    /// The state that items are in.
    pub from: String,
    /// What the branch of whoever does it begins with.
    pub claim: String,
    /// The state that they are in afterwards; `{category}/next` where they get a category.
    pub to: String,
    /// Whether they get a stamp.
    #[serde(default)]
    pub stamp: bool,
}

impl Rules {
    /// The flow that they describe.
    ///
    /// # Errors
    ///
    /// Flow if it makes no sense.
    pub fn flow(&self) -> Result<Flow> {
        match (&self.step, &self.last) {
            (None, None) => Ok(Flow::standard()),
            (step, last) => {
                let standard = || vec![State::known("archive/production")];
                let steps = step.clone().unwrap_or_else(Self::standard_steps);
                Flow::new(&steps, &last.clone().unwrap_or_else(standard))
            }
        }
    }

    /// The folder that the items are below, without slashes around it.
    pub fn root(&self) -> &str {
        self.root.as_deref().map_or(ROOT, |root| root.trim_matches('/'))
    }

    /// The steps of every day.
    pub(super) fn standard_steps() -> Vec<StepRule> {
        const STEPS: [(&str, &str, &str); 10] = [
            ("new", "stamp", "stamped"),
            ("stamped", "triaging", "{category}/next"),
            ("next", "readyforanalysis", "inanalysis"),
            ("readyforanalysis", "inanalysis", "readyfordevelopment"),
            ("inanalysis", "inanalysis", "readyfordevelopment"),
            ("readyfordevelopment", "indevelopment", "readyfortesting"),
            ("indevelopment", "indevelopment", "readyfortesting"),
            ("readyfortesting", "intesting", "signedoff"),
            ("intesting", "intesting", "signedoff"),
            ("signedoff", "production", "archive/production"),
        ];
        let rule = |(from, claim, to): (&str, &str, &str)| StepRule {
            from: from.to_owned(),
            claim: claim.to_owned(),
            to: to.to_owned(),
            stamp: from == "new",
        };
        STEPS.into_iter().map(rule).collect()
    }
}

impl StepRule {
    pub(super) fn to_step(&self) -> Result<Step> {
        let (sorts, to) = match self.to.strip_prefix(CATEGORY) {
            Some(to) => (true, to),
            None => (false, self.to.as_str()),
        };
        // The claim is part of a branch's name as a state is part of a path.
        let claim = State::new(self.claim.as_str())?;
        Ok(Step {
            from: State::new(self.from.as_str())?,
            claim: claim.as_str().to_owned(),
            to: State::new(to)?,
            stamps: self.stamp,
            sorts,
        })
    }
}
