//! What the other side says, as part of a message of ours.

/// The words of another program or server as one line of at most so many characters: what a
/// terminal would obey is shown instead, and what is cut off leaves dots.
///
/// # Examples
///
/// ```
/// use sprag_ledger::in_short;
///
/// assert_eq!(in_short("no\nway \u{1b}[2J", 100), r"no\nway \u{1b}[2J");
/// assert_eq!(in_short("abcdef", 5), "ab...");
/// ```
pub fn in_short(text: &str, longest: usize) -> String {
    let shown = |c: char| {
        let escaped = is_obeyed(c).then(|| c.escape_default());
        escaped.into_iter().flatten().chain((!is_obeyed(c)).then_some(c))
    };
    let mut characters = text.trim_end().chars().flat_map(shown);
    let mut short: String = characters.by_ref().take(longest).collect();
    if characters.next().is_some() {
        let kept = longest.saturating_sub(3);
        let end = short.char_indices().nth(kept).map_or(short.len(), |(end, _)| end);
        short.truncate(end);
        short.push_str("...");
    }
    short
}

/// Whether a terminal does something else with it than to show it: control characters, and those
/// that change the direction of the text.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::in_short;

    #[test]
    fn nothing_is_obeyed_and_nothing_is_long() {
        assert_eq!(in_short("fine é ü", 100), "fine é ü");
        assert_eq!(in_short("a\u{202e}b\u{9b}c\r\n", 100), r"a\u{202e}b\u{9b}c");
        for longest in 0..20 {
            let short = in_short(&"\u{1b}ä".repeat(50), longest);
            assert!(short.chars().count() <= longest.max(3), "{short:?}");
        }
    }
}
