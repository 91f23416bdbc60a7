//! [`Flow`]: the states that items go through, as data. Pure: it touches no repository.

mod place;
mod rules;
mod state;
#[cfg(test)]
mod tests;

pub use self::place::Place;
pub use self::rules::{Ignored, Rules, StepRule};
pub use self::state::State;

use crate::error::{Error, ErrorKind, Result};
use crate::name::ItemName;

/// How an item gets from one state to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The state it is in.
    pub from: State,
    /// What the branch of whoever does it begins with.
    pub claim: String,
    /// The state it is in afterwards.
    pub to: State,
    /// Whether the item gets its stamp.
    pub stamps: bool,
    /// Whether the item gets its category.
    pub sorts: bool,
}

/// The states of items and the steps between them.
///
/// # Examples
///
/// ```
/// use sprag_work::{Flow, Place};
///
/// let flow = Flow::standard();
/// let place = Place::in_category("newfeatures", "readyforanalysis");
/// let step = flow.step(&place.state).unwrap();
/// assert_eq!((step.claim.as_str(), step.to.as_str()), ("inanalysis", "readyfordevelopment"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    steps: Vec<Step>,
    last: Vec<State>,
}

impl Flow {
    /// The flow that is used where none is written down: from an idea to production.
    pub fn standard() -> Self {
        Self::new(&Rules::standard_steps(), &[State::known("archive/production")])
            .expect("the flow of every day makes sense")
    }

    /// Checks a flow.
    ///
    /// # Errors
    ///
    /// Flow if a state has two steps, leads to an unknown one or back to itself.
    pub fn new(rules: &[StepRule], last: &[State]) -> Result<Self> {
        let mut steps: Vec<Step> = Vec::new();
        for rule in rules {
            let step = rule.to_step()?;
            if let Some(other) = steps.iter().find(|other| other.from == step.from) {
                let (from, one, two) = (&step.from, &other.to, &step.to);
                return Err(bad(format!("{from} has two steps, to {one} and to {two}: drop one")));
            }
            steps.push(step);
        }
        let flow = Self { steps, last: last.to_vec() };
        flow.check()?;
        Ok(flow)
    }

    fn check(&self) -> Result<()> {
        if self.steps.is_empty() {
            return Err(bad("it has no steps"));
        }
        let states = || self.states().map(State::as_str);
        for step in &self.steps {
            if self.last.contains(&step.from) {
                return Err(bad(format!("{} is a last state and has a step: drop one", step.from)));
            }
            if self.step(&step.to).is_none() && !self.last.contains(&step.to) {
                let known: Vec<_> = states().collect();
                let to = step.to.as_str();
                return Err(bad(format!(
                    "{} leads to {to:?}, which is unknown: give it a step, or name it in `last`",
                    step.from
                ))
                .fact("states", known.join(", ")));
            }
            self.refuse_cycle(&step.from)?;
        }
        let words: Vec<_> = self.words().collect();
        for word in &words {
            let inside = format!("{word}-");
            if let Some(other) = words.iter().find(|other| other.starts_with(&inside)) {
                let why = "whose branches could not be told apart";
                return Err(bad(format!("the claims {word:?} and {other:?} are names {why}")));
            }
        }
        Ok(())
    }

    fn refuse_cycle(&self, from: &State) -> Result<()> {
        let mut way = vec![from];
        while let Some(step) = way.last().and_then(|state| self.step(state)) {
            let again = way.contains(&&step.to);
            way.push(&step.to);
            if again {
                let way: Vec<_> = way.iter().map(|state| state.as_str()).collect();
                let way = way.join(" -> ");
                return Err(bad(format!("items would go in a circle: {way}")));
            }
        }
        Ok(())
    }

    /// The steps, in the order in which they were written.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// All states in which items can be but pending.
    pub fn states(&self) -> impl Iterator<Item = &State> {
        let last = self.last.iter();
        self.steps.iter().map(|step| &step.from).chain(last)
    }

    /// Finds a state by its name.
    ///
    /// # Errors
    ///
    /// Input if there is none.
    pub fn state(&self, name: &str) -> Result<State> {
        let name = name.trim_end_matches('/');
        if name == State::PENDING {
            return Ok(State::pending());
        }
        self.states().find(|state| state.as_str() == name).cloned().ok_or_else(|| {
            let known: Vec<_> = self.states().map(State::as_str).collect();
            Error::input(format!("there is no state {name:?}")).fact("states", known.join(", "))
        })
    }

    /// The step out of a state; `None` for last states and for pending.
    pub fn step(&self, state: &State) -> Option<&Step> {
        self.steps.iter().find(|step| step.from == *state)
    }

    /// Whether items stay there.
    pub fn is_last(&self, state: &State) -> bool {
        self.last.contains(state)
    }

    /// What branches begin with: all the words.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let mut words: Vec<_> = self.steps.iter().map(|step| step.claim.as_str()).collect();
        words.push(State::PENDING);
        words.sort_unstable();
        words.dedup();
        words.into_iter()
    }

    /// What the branch begins with of whoever works on an item in this state; `None` for last ones.
    pub fn claim_word(&self, state: &State) -> Option<&str> {
        if state.is_pending() {
            // Whoever brings an item back sorts it anew, or as if.
            let sorting = self.steps.iter().find(|step| step.sorts);
            return Some(sorting.map_or(State::PENDING, |step| &step.claim));
        }
        self.step(state).map(|step| step.claim.as_str())
    }

    /// The items that a branch may be the claim of: at most one for each word.
    pub fn claims_of<'a>(&'a self, branch: &'a str) -> impl Iterator<Item = ItemName> + 'a {
        self.words().filter_map(|word| {
            let item = branch.strip_prefix(word)?.strip_prefix('-')?;
            ItemName::new(item).ok()
        })
    }

    /// Where an item goes from its place.
    ///
    /// # Errors
    ///
    /// Input if there is no step, or the category is not known that it takes.
    pub fn advance(&self, place: &Place, category: Option<&str>) -> Result<Place> {
        let Some(step) = self.step(&place.state) else {
            let why = if place.state.is_pending() { "waits for an answer" } else { "is done" };
            let error = Error::input(format!("an item in {} {why}", place.state));
            return Err(error.next("bring a pending one back", "sprag work resume ITEM"));
        };
        self.arrive(step.sorts, &step.to, place, category)
    }

    /// Where an item comes back to that was pending, and was in the state `left` before.
    ///
    /// # Errors
    ///
    /// Input if it is not pending, or the category is not known that it takes.
    pub fn resume(
        &self,
        place: &Place,
        left: Option<&State>,
        category: Option<&str>,
    ) -> Result<Place> {
        if !place.state.is_pending() {
            return Err(Error::input(format!("the item is in {}, not pending", place.state)));
        }
        let sorting = self.steps.iter().find(|step| step.sorts);
        match (left, sorting) {
            // It left before it was sorted, and its category is known by now.
            (Some(left), Some(step)) if *left == step.from && category.is_some() => {
                self.arrive(true, &step.to, place, category)
            }
            (Some(left), _) => Ok(Place { category: place.category.clone(), state: left.clone() }),
            (None, Some(step)) => self.arrive(true, &step.to, place, category),
            (None, None) => self
                .steps
                .first()
                .map(|step| Place { category: place.category.clone(), state: step.from.clone() })
                .ok_or_else(|| bad("it has no steps")),
        }
    }

    fn arrive(
        &self,
        sorts: bool,
        to: &State,
        from: &Place,
        category: Option<&str>,
    ) -> Result<Place> {
        // Who has a category keeps it, and who has none gets it where the flow says so.
        let given = category.filter(|_| sorts).map(str::to_owned);
        let category = given.or_else(|| from.category.clone());
        if let Some(name) = &category {
            self.check_category(name)?;
        } else if sorts {
            let error = Error::input(format!("an item in {to} has a category, and none was given"));
            return Err(error
                .next("name it", "sprag work advance ITEM --category NAME")
                .fact("or", "let the command move the folder to NAME/".to_owned() + to.as_str()));
        }
        Ok(Place { category, state: to.clone() })
    }

    fn check_category(&self, name: &str) -> Result<()> {
        let taken = self.states().any(|state| state.head() == name);
        if taken || name == State::PENDING || name.starts_with(Place::PENDING) {
            return Err(Error::input(format!("{name:?} is a state and cannot be a category")));
        }
        if name.contains(['/', '\\']) || name.starts_with(['.', '-']) || name.trim() != name {
            return Err(Error::input(format!("{name:?} cannot be the name of a folder here")));
        }
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(Error::input(format!("{name:?} cannot be the name of a folder here")));
        }
        Ok(())
    }

    /// Whose folder a path below the root is in: the place, the name as it is, and how many parts
    /// of the path lead to the item's folder. `None` if it is in no item's folder.
    pub fn locate<'a>(&self, path: &[&'a str]) -> Option<(Place, &'a str, usize)> {
        if let Some((state, item, parts)) = self.locate_state(path) {
            return Some((Place { category: None, state }, item, parts));
        }
        let (category, rest) = path.split_first()?;
        self.check_category(category).ok()?;
        let (state, item, parts) = self.locate_state(rest)?;
        Some((Place { category: Some((*category).to_owned()), state }, item, parts + 1))
    }

    fn locate_state<'a>(&self, path: &[&'a str]) -> Option<(State, &'a str, usize)> {
        if let Some(item) = path.first()?.strip_prefix(Place::PENDING) {
            return Some((State::pending(), item, 1));
        }
        self.states().find_map(|state| {
            let parts = state.parts().count();
            let fits = path.len() > parts && state.parts().eq(path[..parts].iter().copied());
            fits.then(|| (state.clone(), path[parts], parts + 1))
        })
    }
}

fn bad(message: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Flow, format!("the flow of work makes no sense: {message}"))
        .next("see the flow in use", "sprag work init --dry-run")
}
