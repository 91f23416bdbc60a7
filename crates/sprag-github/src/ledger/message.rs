//! [`Message`]: how entries are written as the message of a commit.

use serde::{Deserialize, Serialize};
use sprag_core::entropy::{Entropy, OsEntropy};
use sprag_ledger::{Entry, Oid, RefName};

/// What makes a commit unlike all others, be everything else in it the same.
const NONCE: &str = "\n\nSprag-Nonce: ";
/// Which comment shows the lock, so that whoever comes next writes over it.
const COMMENT: &str = "\nSprag-Comment: ";
/// An entry of another ref that points here, too: it saves a request.
const ALSO: &str = "\nSprag-Also: ";

/// Where the ref was before a commit that begins anew, as parents say of others.
const FOLLOWS: &str = "\nSprag-Follows: ";

/// What is in one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) entry: Entry,
    pub(super) comment: Option<u64>,
    pub(super) follows: Option<Oid>,
    pub(super) also: Vec<(RefName, Entry)>,
}

#[derive(Serialize, Deserialize)]
struct Also {
    #[serde(rename = "ref")]
    name: RefName,
    summary: String,
    body: String,
}

impl Message {
    pub(super) const fn new(entry: Entry, comment: Option<u64>) -> Self {
        Self { entry, comment, follows: None, also: Vec::new() }
    }

    /// How many bytes it takes, about.
    pub(super) fn size(&self) -> usize {
        let entries = [&self.entry].into_iter().chain(self.also.iter().map(|(_, entry)| entry));
        entries.map(|entry| entry.summary.len() + entry.body.len()).sum()
    }

    /// The entry of one of the refs that point here.
    pub(super) fn of(&self, name: &RefName) -> &Entry {
        let other = self.also.iter().find(|(other, _)| other == name);
        other.map_or(&self.entry, |(_, entry)| entry)
    }

    /// Summary, data, and a number that was never used before.
    pub(super) fn write(&self) -> String {
        let summary = self.entry.summary.replace(['\n', '\r'], " ");
        let mut text = format!("{summary}\n\n{}", self.entry.body);
        text.push_str(&format!("{NONCE}{:032x}", OsEntropy.next_u128()));
        if let Some(comment) = self.comment {
            text.push_str(&format!("{COMMENT}{comment}"));
        }
        if let Some(follows) = &self.follows {
            text.push_str(&format!("{FOLLOWS}{follows}"));
        }
        for (name, entry) in &self.also {
            let Entry { summary, body } = entry.clone();
            let also = Also { name: name.clone(), summary, body };
            // Of texts alone, so it cannot fail; and on one line.
            let also = serde_json::to_string(&also).unwrap_or_default();
            text.push_str(&format!("{ALSO}{also}"));
        }
        text.push('\n');
        text
    }

    /// Whatever is not in our form is summary or body as it comes.
    pub(super) fn read(text: &str) -> Self {
        let (summary, rest) = text.split_once("\n\n").unwrap_or((text, ""));
        let (body, ours) = rest.rsplit_once(NONCE).unwrap_or((rest, ""));
        let after =
            |mark: &'static str| ours.split(mark).skip(1).filter_map(|it| it.lines().next());
        let comment = after(COMMENT).next().and_then(|id| id.parse().ok());
        let follows = after(FOLLOWS).next().and_then(Oid::new);
        let also = after(ALSO).filter_map(|line| serde_json::from_str::<Also>(line).ok());
        let also = also.map(|Also { name, summary, body }| (name, Entry { summary, body }));
        let (summary, body) = (summary.to_owned(), body.trim_end_matches('\n').to_owned());
        Self { entry: Entry { summary, body }, comment, follows, also: also.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(summary: &str, body: &str) -> Entry {
        Entry { summary: summary.into(), body: body.into() }
    }

    #[test]
    fn what_was_written_is_read_and_never_the_same_twice() {
        let session = RefName::new("refs/sprag/sessions/a").unwrap();
        let beat = entry("sign of life 3", r#"{"beat":3}"#);
        for entry in [
            entry("acquired by w", r#"{"a":"b\n\nSprag-Nonce: 7\nSprag-Comment: 8"}"#),
            entry("two lines", "{}\n{}"),
            entry("empty", ""),
        ] {
            for comment in [None, Some(17)] {
                for also in [Vec::new(), vec![(session.clone(), beat.clone())]] {
                    let follows = comment.and_then(|_| Oid::new("a".repeat(40)));
                    let message = Message { entry: entry.clone(), comment, follows, also };
                    let text = message.write();
                    assert_ne!(text, message.write());
                    assert_eq!(Message::read(&text), message);
                }
            }
        }
    }

    #[test]
    fn each_ref_has_its_own_entry() {
        let name = |text: &str| RefName::new(text).unwrap();
        let mut message = Message::new(entry("lock", "{}"), None);
        message.also.push((name("refs/sprag/sessions/a"), entry("beat", "1")));
        assert_eq!(message.of(&name("refs/sprag/sessions/a")).body, "1");
        assert_eq!(message.of(&name("refs/sprag/locks/a")).summary, "lock");
    }

    #[test]
    fn what_somebody_wrote_by_hand_is_no_data() {
        assert_eq!(Message::read("by hand"), Message::new(entry("by hand", ""), None));
        let lone = Message::read("a\n\nb\nSprag-Comment: 7\n");
        assert_eq!(lone.comment, None);
    }
}
