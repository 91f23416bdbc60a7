//! [`key`]: the number of a lock, by which the server and other programs know it.

use sha2::{Digest, Sha256};

/// The advisory lock that stands for a name. Frozen: who computes another one locks something else.
///
/// The first eight bytes, big endian, of SHA-256 over `sprag:pg-advisory:v1`, a zero, the namespace,
/// a zero, and the name. Two names with equal keys exclude each other, which is safe, and is told.
///
/// # Examples
///
/// ```
/// assert_eq!(sprag_postgres::advisory_key("default", "report"), 4_169_873_984_702_537_531);
/// ```
pub fn key(namespace: &str, name: &str) -> i64 {
    let mut hash = Sha256::new();
    for part in ["sprag:pg-advisory:v1", "\0", namespace, "\0", name] {
        hash.update(part);
    }
    let digest = hash.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::key;

    #[test]
    fn keys_are_frozen() {
        for (namespace, name, frozen) in [
            ("default", "report", 4_169_873_984_702_537_531),
            ("default", "a", 8_044_870_614_221_327_135),
            ("billing", "report", -7_711_282_562_215_049_855),
            ("default", "émile", -8_564_061_367_180_344_753),
            ("default", "xxx", -5_252_374_403_704_525_435),
        ] {
            assert_eq!(key(namespace, name), frozen, "{namespace:?} {name:?}");
        }
    }
}
