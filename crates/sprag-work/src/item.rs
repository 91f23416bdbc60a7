//! [`Item`]: one piece of work.

use std::cmp::Reverse;

use crate::flow::{Place, State};
use crate::name::ItemName;

/// One piece of work, as it is on the main branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its name.
    pub name: ItemName,
    /// Where it is.
    pub place: Place,
    /// Higher goes first.
    pub priority: i64,
    /// The state that it was in before it became pending.
    pub left: Option<State>,
    /// The smaller, the longer it is there; unique within a repository.
    pub order: u64,
    /// When it came into its state, in seconds since 1970, by the clock of whoever moved it. For
    /// people only.
    pub since: Option<u64>,
}

impl Item {
    /// What items are sorted by: priority first, then who came first.
    pub fn rank(&self) -> (Reverse<i64>, u64, &ItemName) {
        (Reverse(self.priority), self.order, &self.name)
    }
}

/// Sorts items into the order in which they are worked on.
pub fn in_order(items: &mut [Item]) {
    items.sort_by(|one, other| one.rank().cmp(&other.rank()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn item(number: usize, priority: i64, order: u64) -> Item {
        Item {
            name: ItemName::new(format!("item{number}")).unwrap(),
            place: Place::plain("new"),
            priority,
            left: None,
            order,
            since: None,
        }
    }

    proptest! {
        #[test]
        fn priority_comes_first_and_then_age(marks in proptest::collection::vec((-3..3_i64, 0..9_u64), 0..20)) {
            let made = marks.iter().enumerate().map(|(n, (p, o))| item(n, *p, *o));
            let mut items: Vec<_> = made.collect();
            in_order(&mut items);
            for pair in items.windows(2) {
                prop_assert!(pair[0].priority >= pair[1].priority);
                prop_assert!(pair[0].priority > pair[1].priority || pair[0].order <= pair[1].order);
            }
        }
    }
}
