//! Running a model to its end, and the numbers to show for it.

use std::fmt;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use sprag_core::clock::{BootClock, Clock};
use stateright::{Checker, HasDiscoveries, Model};

/// How much of a model was looked at, and what was wrong with it.
#[derive(Debug)]
pub struct Run {
    /// Different states.
    pub unique: usize,
    /// Steps taken, over all states.
    pub generated: usize,
    /// The longest shortest way to a state.
    pub depth: usize,
    /// How long it took.
    pub seconds: f64,
    /// The property that failed first, with the steps that lead there.
    pub failure: Option<Failure>,
}

/// A property that does not hold.
#[derive(Debug)]
pub struct Failure {
    /// Which one.
    pub property: &'static str,
    /// One line for each step, from the start to the failure.
    pub steps: Vec<String>,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unique, generated, depth, seconds, failure } = self;
        write!(f, "{unique} states, {generated} generated, depth {depth}, {seconds:.1} s")?;
        if let Some(Failure { property, steps }) = failure {
            write!(f, "; FAILED: {property}, after {} steps:", steps.len())?;
            for step in steps {
                write!(f, "\n    {step}")?;
            }
        }
        Ok(())
    }
}

/// Looks at every state of the model, breadth first, and stops at the first failure.
pub fn explore<M>(model: M) -> Run
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + fmt::Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + fmt::Debug + PartialEq + Send + Sync + 'static,
{
    explore_within(model, None)
}

/// Looks at the states of the model, the nearest first, until `bound` steps were taken over all of
/// them, and stops at the first failure. Without a bound it looks at every state.
pub fn explore_within<M>(model: M, bound: Option<NonZeroUsize>) -> Run
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + fmt::Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + fmt::Debug + PartialEq + Send + Sync + 'static,
{
    let start = BootClock.now();
    let mut checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    if let Some(bound) = bound {
        checker = checker.target_state_count(bound.get());
    }
    let checker = checker.spawn_bfs().join();
    let failure = checker.discoveries().into_iter().next().map(|(property, path)| Failure {
        property,
        steps: path.into_actions().iter().map(|action| format!("{action:?}")).collect(),
    });
    Run {
        unique: checker.unique_state_count(),
        generated: checker.state_count(),
        depth: checker.max_depth(),
        seconds: BootClock.now().since(start).as_secs_f64(),
        failure,
    }
}

/// Counts how often the interesting things happened. A model in which no lease is ever stolen
/// says nothing about stealing, so the tests ask for all of them.
#[derive(Debug)]
pub struct Happened<const N: usize> {
    names: [&'static str; N],
    counts: [AtomicU64; N],
}

impl<const N: usize> Happened<N> {
    /// Nothing happened yet.
    pub const fn new(names: [&'static str; N]) -> Self {
        Self { names, counts: [const { AtomicU64::new(0) }; N] }
    }

    /// It happened.
    ///
    /// # Panics
    ///
    /// If the name is not one of those given to [`new`](Self::new).
    pub fn note(&self, name: &'static str) {
        let index = self.names.iter().position(|known| *known == name);
        let index = index.unwrap_or_else(|| panic!("nobody asked for {name:?}"));
        self.counts[index].fetch_add(1, Ordering::Relaxed);
    }

    /// What never happened.
    pub fn never(&self) -> Vec<&'static str> {
        let pairs = self.names.iter().zip(&self.counts);
        pairs
            .filter(|(_, count)| count.load(Ordering::Relaxed) == 0)
            .map(|(name, _)| *name)
            .collect()
    }
}

impl<const N: usize> fmt::Display for Happened<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in self.names.iter().zip(&self.counts) {
            write!(f, "\n    {name}: {}", count.load(Ordering::Relaxed))?;
        }
        Ok(())
    }
}
