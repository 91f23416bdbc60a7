//! [`hash`]: SHA-1, as git has it.

/// 40 digits that are the same for the same text.
pub(crate) fn hash(text: &str) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}
