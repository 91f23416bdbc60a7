//! Which slot of a Cluster a key is in.

/// How many slots a Cluster has.
const SLOTS: u16 = 16384;

/// The slot of a key: of what is between its first braces, if anything is.
pub(crate) fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let counted = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16(counted.as_bytes()) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_server() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        // As CLUSTER KEYSLOT says.
        assert_eq!(slot_of("foo"), 12182);
        assert_eq!(slot_of("{foo}:bar"), 12182);
        assert_eq!(slot_of("a{foo}b{bar}"), 12182);
        assert_eq!(slot_of("foo{}{bar}"), slot_of_whole("foo{}{bar}"));
        assert_eq!(slot_of("{foo"), slot_of_whole("{foo"));
    }

    fn slot_of_whole(key: &str) -> u16 {
        crc16(key.as_bytes()) % SLOTS
    }
}
