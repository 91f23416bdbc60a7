//! [`in_order`]: the one order in which several locks are taken.
//!
//! Whoever takes several locks one by one in the same order as everybody else never waits in a
//! circle.

use crate::name::LockName;

/// Where a lock stands in the order: by store, then namespace, then the bytes of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place<'a> {
    /// The store's id: the same for all clients of the store.
    pub store: &'a str,
    /// The namespace inside the store.
    pub namespace: &'a str,
    /// The lock.
    pub name: &'a LockName,
}

/// Sorts `items` by their place and makes one of those that mean the same lock.
///
/// `merge` adds a later item to the first one of its place; it decides what asking twice means,
/// such as the stronger of two modes.
///
/// # Examples
///
/// ```
/// use sprag_core::LockName;
/// use sprag_core::policy::order::{Place, in_order};
///
/// let names = [LockName::new("b")?, LockName::new("a")?, LockName::new("b")?];
/// let sorted = in_order(
///     names,
///     |name| Place { store: "memory", namespace: "", name },
///     |_, _| {},
/// );
/// assert_eq!(sorted, [LockName::new("a")?, LockName::new("b")?]);
/// # Ok::<(), sprag_core::Error>(())
/// ```
pub fn in_order<T>(
    items: impl IntoIterator<Item = T>,
    place: impl Fn(&T) -> Place<'_>,
    mut merge: impl FnMut(&mut T, T),
) -> Vec<T> {
    let mut sorted: Vec<T> = items.into_iter().collect();
    // Stable: items of one place stay in the order in which they were given.
    sorted.sort_by(|a, b| place(a).cmp(&place(b)));
    let mut merged: Vec<T> = Vec::with_capacity(sorted.len());
    for item in sorted {
        match merged.last_mut() {
            Some(last) if place(last) == place(&item) => merge(last, item),
            _ => merged.push(item),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::{Place, in_order};
    use crate::name::LockName;

    type Item = (&'static str, &'static str, LockName, u32);

    fn item(store: &'static str, namespace: &'static str, name: &str, number: u32) -> Item {
        (store, namespace, LockName::new(name).unwrap(), number)
    }

    fn sorted(items: Vec<Item>) -> Vec<(String, u32)> {
        fn place((store, namespace, name, _): &Item) -> Place<'_> {
            Place { store, namespace, name }
        }
        let merged = in_order(items, place, |first, again| first.3 = first.3.max(again.3));
        let text = |(store, namespace, name, number): Item| {
            (format!("{store}/{namespace}/{name}"), number)
        };
        merged.into_iter().map(text).collect()
    }

    #[test]
    fn the_store_counts_before_the_namespace_and_the_namespace_before_the_name() {
        let items = vec![
            item("s2", "a", "a", 0),
            item("s1", "b", "a", 0),
            item("s1", "a", "z", 0),
            item("s1", "a", "b", 0),
        ];
        let names: Vec<_> = sorted(items).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["s1/a/b", "s1/a/z", "s1/b/a", "s2/a/a"]);
    }

    #[test]
    fn names_are_compared_as_bytes() {
        let items = vec![item("s", "", "ä", 0), item("s", "", "a", 0), item("s", "", "B", 0)];
        let names: Vec<_> = sorted(items).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["s//B", "s//a", "s//ä"]);
    }

    #[test]
    fn a_lock_asked_for_twice_is_taken_once_as_the_caller_merges_it() {
        let items = vec![item("s", "", "x", 1), item("s", "", "y", 9), item("s", "", "x", 5)];
        assert_eq!(sorted(items), [("s//x".into(), 5), ("s//y".into(), 9)]);
    }
}
