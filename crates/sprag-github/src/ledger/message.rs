//! How an [`Entry`] is written as the message of a commit.

use sprag_core::entropy::{Entropy, OsEntropy};
use sprag_ledger::Entry;

/// What makes a commit unlike all others, be everything else in it the same.
const NONCE: &str = "\n\nSprag-Nonce: ";

/// Summary, data, and a number that was never used before.
pub(super) fn write(entry: &Entry) -> String {
    let summary = entry.summary.replace(['\n', '\r'], " ");
    format!("{summary}\n\n{}{NONCE}{:032x}\n", entry.body, OsEntropy.next_u128())
}

/// The entry in a message; whatever is not in our form is summary or body as it comes.
pub(super) fn read(message: &str) -> Entry {
    let (summary, rest) = message.split_once("\n\n").unwrap_or((message, ""));
    let body = rest.rsplit_once(NONCE).map_or(rest, |(body, _)| body);
    Entry { summary: summary.to_owned(), body: body.trim_end_matches('\n').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_never_the_same_twice() {
        let entry = |summary: &str, body: &str| Entry { summary: summary.into(), body: body.into() };
        for entry in [
            entry("acquired by w", r#"{"a":"b\n\nSprag-Nonce: 7"}"#),
            entry("empty", ""),
            entry("two\nlines", "{}"),
        ] {
            let text = write(&entry);
            assert_ne!(text, write(&entry));
            let read = read(&text);
            assert_eq!(read.body, entry.body);
            assert_eq!(read.summary, entry.summary.replace('\n', " "));
        }
        assert_eq!(read("by hand").body, "");
    }
}
