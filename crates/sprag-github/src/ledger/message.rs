//! How an [`Entry`] is written as the message of a commit.

use sprag_core::entropy::{Entropy, OsEntropy};
use sprag_ledger::Entry;

/// Which comment shows the lock, so that whoever comes next writes over it.
const COMMENT: &str = "\nSprag-Comment: ";
/// What makes a commit unlike all others, be everything else in it the same.
const NONCE: &str = "\n\nSprag-Nonce: ";

/// Summary, data, and a number that was never used before.
pub(super) fn write(entry: &Entry, comment: Option<u64>) -> String {
    let summary = entry.summary.replace(['\n', '\r'], " ");
    let comment = comment.map(|id| format!("{COMMENT}{id}")).unwrap_or_default();
    format!("{summary}\n\n{}{NONCE}{:032x}{comment}\n", entry.body, OsEntropy.next_u128())
}

/// The entry in a message, and the comment that shows it. Whatever is not in our form is summary
/// or body as it comes.
pub(super) fn read(message: &str) -> (Entry, Option<u64>) {
    let (summary, rest) = message.split_once("\n\n").unwrap_or((message, ""));
    let (body, ours) = rest.rsplit_once(NONCE).unwrap_or((rest, ""));
    let comment = ours.split_once(COMMENT).and_then(|(_, id)| id.trim().parse().ok());
    let body = body.trim_end_matches('\n').to_owned();
    (Entry { summary: summary.to_owned(), body }, comment)
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
            for comment in [None, Some(17)] {
                let text = write(&entry, comment);
                assert_ne!(text, write(&entry, comment));
                let (read, hint) = read(&text);
                assert_eq!(read.body, entry.body);
                assert_eq!(read.summary, entry.summary.replace('\n', " "));
                assert_eq!(hint, comment);
            }
        }
        let by_hand = Entry { summary: "by hand".into(), body: String::new() };
        assert_eq!(read("by hand"), (by_hand, None));
    }
}
