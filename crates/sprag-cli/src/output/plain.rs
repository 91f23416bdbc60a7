//! Text as a terminal may have it. Who holds a lock, and why, is written by others: it must not move
//! the cursor, nor look like lines of ours.

use std::borrow::Cow;

/// The text without what a terminal obeys, except colours and the ends of lines.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    let mut rest = text;
    let mut plain = String::new();
    while let Some(at) = rest.find(|c: char| c.is_control() && c != '\n' && c != '\t') {
        let (front, back) = rest.split_at(at);
        let colour = colour(back);
        plain += front;
        plain += colour;
        rest = &back[colour.len()..];
        if colour.is_empty() {
            let mut characters = rest.chars();
            plain.extend(characters.next().into_iter().flat_map(char::escape_default));
            rest = characters.as_str();
        }
    }
    if plain.is_empty() { Cow::Borrowed(rest) } else { Cow::Owned(plain + rest) }
}

/// The sequence for a colour that the text begins with.
fn colour(text: &str) -> &str {
    let Some(numbers) = text.strip_prefix("\x1b[") else { return "" };
    match numbers.find(|c: char| !c.is_ascii_digit() && c != ';') {
        Some(end) if numbers[end..].starts_with('m') => &text[..2 + end + 1],
        _ => "",
    }
}

/// The words of others, as part of one line.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let plain = |c: char| {
        let escaped = c.is_control().then(|| c.escape_default());
        escaped.into_iter().flatten().chain((!c.is_control()).then_some(c))
    };
    Cow::Owned(text.chars().flat_map(plain).collect())
}

#[cfg(test)]
mod tests {
    use super::{harmless, one_line};

    #[test]
    fn a_terminal_obeys_nothing_but_colours() {
        assert_eq!(harmless("two\nlines\tand é"), "two\nlines\tand é");
        assert_eq!(harmless("\x1b[1;31mred\x1b[0m"), "\x1b[1;31mred\x1b[0m");
        assert_eq!(harmless("a\x1b[2Jb\rc\x07\x1b]0;t"), r"a\u{1b}[2Jb\rc\u{7}\u{1b}]0;t");
        assert_eq!(harmless("\x1b[31"), r"\u{1b}[31");
        assert_eq!(harmless("\u{9b}2J"), r"\u{9b}2J");
    }

    #[test]
    fn the_words_of_others_are_one_line_without_colours() {
        assert_eq!(one_line("fine é"), "fine é");
        assert_eq!(one_line("a\nb\x1b[31m"), r"a\nb\u{1b}[31m");
    }
}
