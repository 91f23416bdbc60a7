//! Text as a terminal may have it. Who holds a lock, and why, is written by others, and so is what a
//! server answers: it must not move the cursor, change colours or the order of letters, hide, nor
//! look like lines of ours. Everything that is printed goes through [`terminal`] or [`json`].

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

/// Begins a colour of ours, until it is written; no character of any text.
const MARK: char = '\u{fdd0}';
/// What stands behind that and no other text can have: it is another one in each process.
static OURS: LazyLock<String> =
    LazyLock::new(|| format!("{:016x}", RandomState::new().build_hasher().finish()));

/// Whether a terminal obeys a character, or shows nothing of it, so that a text looks like another.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            // Soft hyphens, joiners and fillers.
            '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}'
            | '\u{feff}' | '\u{ffa0}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200d}'
            // The order of letters, and the ends of lines.
            | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            // Invisible operators, isolates, annotations and tags.
            | '\u{2060}'..='\u{206f}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
            | '\u{fdd0}'..='\u{fdef}'
        )
}

/// A colour of ours, by its number.
pub(super) fn colour(code: &str) -> String {
    format!("{MARK}{}{code}m", *OURS)
}

/// What a terminal is given: all that is hidden is shown, but for our own colours and the ends of
/// lines.
pub(super) fn terminal(text: &str) -> Cow<'_, str> {
    let foreign = |c: char| is_hidden(c) && c != '\n' && c != '\t';
    if !text.contains(foreign) {
        return Cow::Borrowed(text);
    }
    let (mut plain, mut rest) = (String::with_capacity(text.len() + 16), text);
    while let Some(at) = rest.find(foreign) {
        plain += &rest[..at];
        rest = &rest[at..];
        if let Some((code, behind)) = our_colour(rest) {
            plain.extend(["\x1b[", code, "m"]);
            rest = behind;
            continue;
        }
        let mut characters = rest.chars();
        plain.extend(characters.next().into_iter().flat_map(char::escape_default));
        rest = characters.as_str();
    }
    Cow::Owned(plain + rest)
}

/// The number of a colour that the text begins with, and what is behind it.
fn our_colour(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix(MARK)?.strip_prefix(OURS.as_str())?.split_once('m')
}

/// JSON with all that is hidden as escapes, which mean the same.
pub(super) fn json(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                plain += &format!("\\u{unit:04x}");
            }
        } else {
            plain.push(c);
        }
    }
    Cow::Owned(plain)
}

/// The words of others, as part of one line.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let plain = |c: char| {
        let hidden = is_hidden(c);
        let escaped = hidden.then(|| c.escape_default());
        escaped.into_iter().flatten().chain((!hidden).then_some(c))
    };
    Cow::Owned(text.chars().flat_map(plain).collect())
}

/// A message of several lines, none of which begins where lines of ours do.
pub(crate) fn paragraph(text: &str) -> Cow<'_, str> {
    if !text.contains('\n') {
        return Cow::Borrowed(text);
    }
    let mut lines = text.split('\n');
    let mut whole = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        whole += if line.starts_with(' ') { "\n" } else { "\n  " };
        whole += line;
    }
    Cow::Owned(whole)
}

/// A text as one word of a shell, which can be copied from a terminal.
pub(crate) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        return text.to_owned();
    }
    if !text.contains(is_hidden) {
        return format!("'{}'", text.replace('\'', r"'\''"));
    }
    let mut word = "$'".to_owned();
    for c in text.chars() {
        let code = u32::from(c);
        word += &match c {
            '\'' | '\\' => format!("\\{c}"),
            c if !is_hidden(c) => c.to_string(),
            _ if code < 0x80 => format!("\\x{code:02x}"),
            _ => format!("\\U{code:08x}"),
        };
    }
    word + "'"
}

#[cfg(test)]
mod tests {
    use super::{colour, json, one_line, paragraph, shell_word, terminal};

    #[test]
    fn a_terminal_obeys_nothing_but_our_colours() {
        assert_eq!(terminal("two\nlines\tand é 日本"), "two\nlines\tand é 日本");
        assert_eq!(terminal("a\x1b[2Jb\rc\x07\x1b]0;t"), r"a\u{1b}[2Jb\rc\u{7}\u{1b}]0;t");
        assert_eq!(terminal("\x1b[31mred\x1b[0m"), r"\u{1b}[31mred\u{1b}[0m");
        assert_eq!(terminal("\u{9b}2J \u{7f}"), r"\u{9b}2J \u{7f}");
        assert_eq!(terminal("a\u{202e}b\u{2066}c\u{200b}d"), r"a\u{202e}b\u{2066}c\u{200b}d");
        let ours = format!("{}red{}", colour("1;31"), colour("0"));
        assert_eq!(terminal(&ours), "\x1b[1;31mred\x1b[0m");
        assert_eq!(terminal("\u{fdd0}0123456789abcdef31m"), r"\u{fdd0}0123456789abcdef31m");
        assert!(one_line(&ours).starts_with(r"\u{fdd0}"));
    }

    #[test]
    fn the_words_of_others_are_one_line() {
        assert_eq!(one_line("fine é"), "fine é");
        assert_eq!(one_line("a\nb\x1b[31m\u{2028}"), r"a\nb\u{1b}[31m\u{2028}");
        assert_eq!(paragraph("a\nhint: b\n  c"), "a\n  hint: b\n  c");
    }

    #[test]
    fn json_means_the_same_without_what_is_hidden() {
        let text = serde_json::to_string("\u{9b}\u{7f}\u{202e}\u{e0001}é\x1b\n").unwrap();
        let shown = json(&text);
        assert_eq!(shown, r#""\u009b\u007f\u202e\udb40\udc01é\u001b\n""#);
        let read: String = serde_json::from_str(&shown).unwrap();
        assert_eq!(read, "\u{9b}\u{7f}\u{202e}\u{e0001}é\x1b\n");
    }

    #[test]
    fn a_word_for_a_shell_is_one_word_that_can_be_copied() {
        for (text, word) in [
            ("deploy/x", "deploy/x"),
            ("", "''"),
            ("-n", "'-n'"),
            ("a b'c$(d)", r"'a b'\''c$(d)'"),
            ("a\u{202e}'\\\n", r"$'a\U0000202e\'\\\x0a'"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }
}
