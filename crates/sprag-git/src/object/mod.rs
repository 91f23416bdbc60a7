//! Git's objects, as far as records need them.

mod commit;
mod pack;

use std::fmt::Write as _;

use sha1_smol::Sha1;
use sha2::{Digest, Sha256};
use sprag_ledger::Oid;

pub(crate) use commit::Commit;
pub(crate) use pack::{read_pack, write_pack};

/// Which hash a repository names its objects by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    #[default]
    Sha1,
    Sha256,
}

impl Format {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }

    pub(crate) fn of(oid: &Oid) -> Self {
        if oid.as_str().len() == 64 { Self::Sha256 } else { Self::Sha1 }
    }

    /// What stands for nothing.
    pub(crate) fn zeros(self) -> String {
        "0".repeat(self.bytes() * 2)
    }

    const fn bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// The hash of a text, in digits.
    pub(crate) fn digest(self, text: &[u8]) -> String {
        hex(&self.hash(&[text]))
    }

    fn hash(self, parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Sha1 => {
                let mut digest = Sha1::new();
                parts.iter().for_each(|part| digest.update(part));
                digest.digest().bytes().to_vec()
            }
            Self::Sha256 => {
                let mut digest = Sha256::new();
                parts.iter().for_each(|part| digest.update(part));
                digest.finalize().as_slice().to_vec()
            }
        }
    }
}

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Commit,
    Tree,
    Blob,
    Tag,
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) data: Vec<u8>,
}

impl Object {
    /// The tree without anything in it.
    pub(crate) const EMPTY_TREE: Self = Self { kind: Kind::Tree, data: Vec::new() };

    /// Its name.
    pub(crate) fn oid(&self, format: Format) -> String {
        let kind = match self.kind {
            Kind::Commit => "commit",
            Kind::Tree => "tree",
            Kind::Blob => "blob",
            Kind::Tag => "tag",
        };
        let head = format!("{kind} {}\0", self.data.len());
        hex(&format.hash(&[head.as_bytes(), &self.data]))
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Format, Object};

    #[test]
    fn objects_are_named_as_git_names_them() {
        let name = |format| Object::EMPTY_TREE.oid(format);
        assert_eq!(name(Format::Sha1), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
        assert_eq!(
            name(Format::Sha256),
            "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
        );
    }
}
