//! [`FaultPlan`]: what goes wrong, by chance from a seed or at the next request of a kind.

use std::time::Duration;

/// Something that goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is answered so, and nothing was done.
    ErrorBefore(u16),
    /// It is done, and answered so.
    ErrorAfter(u16),
    /// The connection is closed, and nothing was done.
    CloseBefore,
    /// It is done, and the connection is closed.
    CloseAfter,
    /// 422 "Reference update failed", and nothing was done.
    Flake,
    /// It is done, and the answer comes that much later.
    SlowAnswer(Duration),
    /// It is done only after that time, when its sender may have given up.
    LateWrite(Duration),
}

/// Which requests a fault is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// All of them.
    #[default]
    Any,
    /// Those that change nothing.
    Reads,
    /// Those that change something.
    Writes,
    /// Those whose kind contains this, such as `git/refs`.
    Kind(&'static str),
}

impl Target {
    pub(crate) fn fits(self, kind: &str, mutation: bool) -> bool {
        match self {
            Self::Any => true,
            Self::Reads => !mutation,
            Self::Writes => mutation,
            Self::Kind(part) => kind.contains(part),
        }
    }
}

/// What goes wrong, and how often.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    rules: Vec<(Target, f64, Fault)>,
}

impl FaultPlan {
    /// Nothing goes wrong.
    pub const fn new() -> Self {
        Self { rules: Vec::new() }
    }

    /// With this probability, this goes wrong with requests of that kind. The first rule that
    /// strikes counts.
    #[must_use]
    pub fn with(mut self, target: Target, probability: f64, fault: Fault) -> Self {
        self.rules.push((target, probability, fault));
        self
    }

    /// Writes whose outcome is unknown to whoever sent them: half of them were done.
    #[must_use]
    pub fn ambiguous(probability: f64) -> Self {
        let faults = [
            Fault::ErrorBefore(502),
            Fault::ErrorAfter(502),
            Fault::CloseBefore,
            Fault::CloseAfter,
        ];
        // Each of those that are left strikes with the same chance.
        let share = probability / 4.0;
        faults.into_iter().fold(Self::new(), |plan, fault| plan.with(Target::Writes, share, fault))
    }

    pub(crate) fn draw(
        &self,
        kind: &str,
        mutation: bool,
        random: &mut fastrand::Rng,
    ) -> Option<Fault> {
        let fits = self.rules.iter().filter(|(target, ..)| target.fits(kind, mutation));
        fits.into_iter().find(|(_, probability, _)| random.f64() < *probability).map(|rule| rule.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_strikes_as_often_as_it_says_and_only_where_it_is_meant() {
        let plan = FaultPlan::ambiguous(0.05);
        let mut random = fastrand::Rng::with_seed(7);
        let mut strikes = |mutation| {
            (0..10_000).filter(|_| plan.draw("POST /", mutation, &mut random).is_some()).count()
        };
        assert_eq!(strikes(false), 0);
        let hits = strikes(true);
        assert!((400..600).contains(&hits), "{hits}");
    }
}
