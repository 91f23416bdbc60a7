//! [`Message`]: what processes tell each other, one datagram each.

use sprag_core::{Fence, LeaseId, SessionId};

use crate::baton::{Heir, Mark};

/// The longest of them: a grant with an heir.
pub(crate) const LONGEST: usize = GRANT + 16 + 16 + 8 + 8 + 8;
/// A lease, and the fence of its grant; zero if it was not granted.
const GRANT: usize = 16 + 8;
/// A grant, who passes it on, and a mark.
const BATON: usize = GRANT + 16 + 8 + 8;

/// What happened to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// It was granted, with an heir if there is one; or there is no fence, and it was not.
    Told { lease: LeaseId, grant: Option<Fence>, heir: Option<Heir> },
    /// The holder lets its heir in, and has not written it yet.
    Baton { lease: LeaseId, fence: Fence, from: LeaseId, mark: Mark },
}

impl Message {
    /// Writes it into `buffer` and returns the part that was written.
    pub(crate) fn write(self, buffer: &mut [u8; LONGEST]) -> &[u8] {
        let mut pen = Pen { buffer, at: 0 };
        match self {
            Self::Told { lease, grant, heir } => {
                pen.long(lease.as_u128());
                pen.short(grant.unwrap_or(Fence::ZERO).get());
                if let Some(heir) = heir {
                    pen.long(heir.lease.as_u128());
                    pen.long(heir.session.as_u128());
                    pen.short(heir.fence.get());
                    pen.mark(heir.mark);
                }
            }
            Self::Baton { lease, fence, from, mark } => {
                pen.long(lease.as_u128());
                pen.short(fence.get());
                pen.long(from.as_u128());
                pen.mark(mark);
            }
        }
        let Pen { buffer, at } = pen;
        &buffer[..at]
    }

    /// Reads a datagram; nothing if it is none of ours.
    pub(crate) fn read(datagram: &[u8]) -> Option<Self> {
        let mut eye = Eye(datagram);
        let (lease, fence) = (LeaseId::from_u128(eye.long()?), eye.fence()?);
        let grant = (fence > Fence::ZERO).then_some(fence);
        match datagram.len() {
            GRANT => Some(Self::Told { lease, grant, heir: None }),
            BATON => {
                let (from, mark) = (LeaseId::from_u128(eye.long()?), eye.mark()?);
                Some(Self::Baton { lease, fence: grant?, from, mark })
            }
            LONGEST => {
                let (heir, session) =
                    (LeaseId::from_u128(eye.long()?), SessionId::from_u128(eye.long()?));
                let heir = Heir { lease: heir, session, fence: eye.fence()?, mark: eye.mark()? };
                Some(Self::Told { lease, grant, heir: Some(heir) })
            }
            _ => None,
        }
    }
}

struct Pen<'a> {
    buffer: &'a mut [u8; LONGEST],
    at: usize,
}

impl Pen<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn long(&mut self, number: u128) {
        self.put(&number.to_be_bytes());
    }

    fn short(&mut self, number: u64) {
        self.put(&number.to_be_bytes());
    }

    fn mark(&mut self, mark: Mark) {
        self.short(mark.file);
        self.short(mark.length);
    }
}

struct Eye<'a>(&'a [u8]);

impl Eye<'_> {
    fn long(&mut self) -> Option<u128> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u128::from_be_bytes(*number))
    }

    fn short(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*number))
    }

    fn fence(&mut self) -> Option<Fence> {
        Fence::new(self.short()?)
    }

    fn mark(&mut self) -> Option<Mark> {
        Some(Mark { file: self.short()?, length: self.short()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_its_datagram_and_no_other_is_read() {
        let lease = LeaseId::from_u128(7);
        let fence = Fence::new(8).unwrap();
        let mark = Mark { file: 1, length: 2 };
        let heir =
            Heir { lease: LeaseId::from_u128(9), session: SessionId::from_u128(3), fence, mark };
        for message in [
            Message::Told { lease, grant: None, heir: None },
            Message::Told { lease, grant: Some(fence), heir: None },
            Message::Told { lease, grant: Some(fence), heir: Some(heir) },
            Message::Baton { lease, fence, from: LeaseId::from_u128(5), mark },
        ] {
            let mut buffer = [0; LONGEST];
            let datagram = message.write(&mut buffer).to_vec();
            assert_eq!(Message::read(&datagram), Some(message));
            for end in (0..datagram.len()).filter(|end| ![GRANT, BATON].contains(end)) {
                assert_eq!(Message::read(&datagram[..end]), None, "{message:?} cut at {end}");
            }
            let longer = [&datagram[..], &[0]].concat();
            assert_eq!(Message::read(&longer), None, "{message:?}");
        }
        let mut buffer = [0; LONGEST];
        let nothing = Message::Baton { lease, fence: Fence::ZERO, from: lease, mark };
        assert_eq!(Message::read(nothing.write(&mut buffer)), None, "a baton without a fence");
    }
}
