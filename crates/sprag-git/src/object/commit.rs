//! [`Commit`]: an entry as a commit on the empty tree, which `git log` can read.

use sprag_ledger::{Entry, Oid};

use super::{Format, Kind, Object};

/// What we call ourselves in commits. Not the user: their name is in the record.
const IDENTITY: &str = "sprag <sprag@localhost>";

/// A commit, as far as it is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) parent: Option<Oid>,
    pub(crate) entry: Entry,
}

impl Commit {
    /// The commit as an object. The nonce makes it differ from that of a rival who writes the same
    /// in the same second; it is in a header, which `git log` does not show. The time is shown and
    /// decides nothing.
    pub(crate) fn encode(&self, format: Format, nonce: u128, seconds: u64) -> Object {
        let tree = Object::EMPTY_TREE.oid(format);
        let parent = self.parent.iter().map(|oid| format!("parent {oid}\n")).collect::<String>();
        let summary: String =
            self.entry.summary.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let body = &self.entry.body;
        let data = format!(
            "tree {tree}\n{parent}author {IDENTITY} {seconds} +0000\n\
             committer {IDENTITY} {seconds} +0000\nnonce {nonce:032x}\n\n{summary}\n\n{body}\n"
        );
        Object { kind: Kind::Commit, data: data.into_bytes() }
    }

    /// Reads a commit. One that somebody else made has a body that means nothing, but is read.
    pub(crate) fn decode(data: &[u8]) -> Self {
        let text = String::from_utf8_lossy(data);
        let (head, message) = text.split_once("\n\n").unwrap_or((&text, ""));
        let parent = head.lines().find_map(|line| line.strip_prefix("parent "));
        let (summary, body) = message.split_once("\n\n").unwrap_or((message, ""));
        Self {
            parent: parent.and_then(Oid::new),
            entry: Entry {
                summary: summary.trim_end_matches('\n').to_owned(),
                body: body.strip_suffix('\n').unwrap_or(body).to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let parent = Oid::new("a".repeat(40));
        for (summary, body) in [("taken", "{\"a\":1}"), ("", ""), ("größe", "x\n\ny\n"), ("a", "")]
        {
            let entry = Entry { summary: summary.into(), body: body.into() };
            let commit = Commit { parent: parent.clone(), entry };
            assert_eq!(Commit::decode(&commit.encode(Format::Sha1, 7, 9).data), commit);
        }
    }

    #[test]
    fn two_who_write_the_same_write_different_commits() {
        let entry = Entry { summary: "taken".into(), body: "{}".into() };
        let commit = Commit { parent: None, entry };
        let oid = |nonce| commit.encode(Format::Sha256, nonce, 9).oid(Format::Sha256);
        assert_ne!(oid(1), oid(2));
    }

    #[test]
    fn a_stranger_s_commit_is_read_without_trouble() {
        for strange in ["", "tree x", "tree x\nparent y\n\nhello", "\n\n\n\n"] {
            let commit = Commit::decode(strange.as_bytes());
            assert_eq!(commit.parent, None);
            assert_eq!(commit.entry.body, "");
        }
    }
}
