//! Words that were meant.

/// The known word that differs by the fewest slips, if it is near.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    within(1 + word.chars().count() / 4, word, known)
}

/// The known word that differs by the fewest slips, and by no more than `limit`.
pub(crate) fn within<'a>(
    limit: usize,
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let near = known.into_iter().map(|known| (distance(word, known), known));
    near.filter(|(distance, _)| *distance <= limit).min().map(|(_, known)| known)
}

/// How many letters have to be added, removed, changed or swapped with the next.
fn distance(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().collect();
    let other: Vec<char> = other.chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for (line, letter) in one.iter().enumerate() {
        let mut row = vec![line + 1];
        for (column, another) in other.iter().enumerate() {
            let above = &rows[line];
            let changed = above[column] + usize::from(letter != another);
            let mut least = changed.min(above[column + 1] + 1).min(row[column] + 1);
            let swapped =
                line > 0 && column > 0 && *letter == other[column - 1] && one[line - 1] == *another;
            if swapped {
                least = least.min(rows[line - 1][column - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["deploy", "database", "db", "run"];
        assert_eq!(nearest("deplyo", known), Some("deploy"));
        assert_eq!(nearest("databse", known), Some("database"));
        assert_eq!(nearest("rnu", known), Some("run"));
        assert_eq!(nearest("urn", known), Some("run"));
        assert_eq!(nearest("nru", known), None);
        assert_eq!(nearest("report", known), None);
    }
}
