//! Packets: the lines that git speaks in.

use std::io::{self, Read};

/// Packets are at most so long, with their four digits.
const LONGEST: usize = 65520;

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    Data(Vec<u8>),
    /// The end of a message.
    Flush,
    /// The end of a part of a message.
    Delimiter,
}

/// Adds a packet to a message.
pub(crate) fn put(message: &mut Vec<u8>, data: impl AsRef<[u8]>) {
    let data = data.as_ref();
    message.extend(format!("{:04x}", data.len() + 4).bytes());
    message.extend(data);
}

/// Ends a message.
pub(crate) fn put_flush(message: &mut Vec<u8>) {
    message.extend(b"0000");
}

/// Ends a part of a message.
pub(crate) fn put_delimiter(message: &mut Vec<u8>) {
    message.extend(b"0001");
}

/// Reads the next packet; `None` at the end of the stream.
pub(crate) fn next(stream: &mut dyn Read) -> io::Result<Option<Packet>> {
    let mut digits = [0; 4];
    let mut filled = 0;
    while filled < 4 {
        match stream.read(&mut digits[filled..])? {
            0 if filled == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    let bad = || {
        let said = String::from_utf8_lossy(&digits).into_owned();
        io::Error::new(io::ErrorKind::InvalidData, format!("{said:?} begins no packet"))
    };
    let text = std::str::from_utf8(&digits).map_err(|_| bad())?;
    match usize::from_str_radix(text, 16).map_err(|_| bad())? {
        0 => Ok(Some(Packet::Flush)),
        1 => Ok(Some(Packet::Delimiter)),
        length @ 4..=LONGEST => {
            let mut data = vec![0; length - 4];
            stream.read_exact(&mut data)?;
            Ok(Some(Packet::Data(data)))
        }
        _ => Err(bad()),
    }
}

/// The text of a line, without its end.
pub(crate) fn line(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(data);
    text.strip_suffix('\n').unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_comes_next() {
        let mut message = Vec::new();
        put(&mut message, "hello\n");
        put_delimiter(&mut message);
        put_flush(&mut message);
        let mut stream = &message[..];
        assert_eq!(next(&mut stream).unwrap(), Some(Packet::Data(b"hello\n".to_vec())));
        assert_eq!(next(&mut stream).unwrap(), Some(Packet::Delimiter));
        assert_eq!(next(&mut stream).unwrap(), Some(Packet::Flush));
        assert_eq!(next(&mut stream).unwrap(), None);
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        for bad in ["00", "000a", "0003", "zzzz", "ffff", "<htm", "+0ab"] {
            assert!(next(&mut bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
