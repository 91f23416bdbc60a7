//! Names that were meant.

use super::ls;
use crate::context::Context;
use crate::store::Opened;

/// Says which lock may have been meant by a name that was never used.
pub(super) async fn suggest(name: &str, opened: &Opened, context: &Context) {
    let Ok(locks) = ls::read(opened, None).await else { return };
    if let Some(meant) = nearest(name, locks.iter().map(|lock| lock.name.as_str())) {
        context.output.note(&format!("did you mean {meant:?}?"));
    }
}

/// The known word that differs in the fewest letters, if it is near.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = 1 + word.chars().count() / 4;
    let near = known.into_iter().map(|known| (distance(word, known), known));
    near.filter(|(distance, _)| *distance <= limit).min().map(|(_, known)| known)
}

/// How many letters have to be added, removed or changed.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = line + 1;
        for (column, another) in other.iter().enumerate() {
            let changed = before + usize::from(letter != *another);
            before = row[column + 1];
            row[column + 1] = changed.min(before + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["deploy", "database", "db"];
        assert_eq!(nearest("deplyo", known), Some("deploy"));
        assert_eq!(nearest("databse", known), Some("database"));
        assert_eq!(nearest("report", known), None);
    }
}
