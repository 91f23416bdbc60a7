//! [`Wire`]: what `sprag run` and its guardian say to each other.
//!
//! A frame is one byte for the kind, four for the length, and the rest. Arguments and environment
//! go as the bytes they are, ended by NUL, which none of them can contain.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use sprag::clock::Moment;

use crate::args::OnLost;

/// The longest frame: more than any kernel lets a command line be.
const LONGEST: usize = 16 << 20;
/// How many descriptors travel at most: stdin and the lifeline.
const DESCRIPTORS: usize = 2;

/// What the guardian is to start, and how it guards it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// The lease is good until then.
    pub(crate) valid_until: Moment,
    /// The time between TERM and KILL.
    pub(crate) kill_after: Duration,
    /// How long before the end of the lease all must be over.
    pub(crate) margin: Duration,
    /// The process group that the command joins; 0 for one of its own.
    pub(crate) group: i32,
    pub(crate) on_lost: OnLost,
    /// The socket to be removed if `sprag run` cannot do it any more; empty for none.
    pub(crate) socket: OsString,
    /// The store where the leases are; empty if nothing is to be given back there.
    pub(crate) store: String,
    /// The locks and the leases that the guardian gives back if `sprag run` cannot, in this order.
    pub(crate) leases: Vec<(String, String)>,
    /// Where it runs; empty for here.
    pub(crate) directory: OsString,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// What is added to the environment.
    pub(crate) environment: Vec<(String, OsString)>,
    /// What is taken out of it.
    pub(crate) without: Vec<String>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// To the guardian: start this; with stdin and the lifeline.
    Start(Box<Order>),
    /// To the guardian: the lease was renewed.
    Renewed(Moment),
    /// To the guardian: send this signal to the command's group.
    Signal(u8),
    /// To the guardian: the lock is lost.
    Lost,
    /// To the guardian: everything was given back, or nothing is to be.
    Done,
    /// From the guardian: the command runs.
    Started(i32),
    /// From the guardian: it could not be started, for this reason.
    NotStarted(i32),
    /// From the guardian: the lease was not renewed, and the command is being stopped.
    Overdue,
    /// From the guardian: all is over; the command's wait status.
    Ended(i32),
}

/// One end.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: UnixStream,
    received: VecDeque<u8>,
    descriptors: VecDeque<OwnedFd>,
}

impl Wire {
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self { socket, received: VecDeque::new(), descriptors: VecDeque::new() }
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, message: &Message) -> io::Result<()> {
        self.socket.write_all(&message.to_frame())
    }

    /// Sends a message, or drops it where the other end reads nothing any more: it is stopped,
    /// and the messages before it say enough.
    pub(crate) fn try_send(&mut self, message: &Message) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(&self.socket, &message.to_frame(), flags) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a message, and descriptors with it.
    pub(crate) fn send_with(
        &mut self,
        message: &Message,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let frame = message.to_frame();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("too many descriptors"));
        }
        let parts = [IoSlice::new(&frame)];
        let sent = sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
        self.socket.write_all(&frame[sent..])
    }

    /// Reads what there is; waits if there is nothing. False when the other end is gone.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let read = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::CONNRESET) => return Ok(false),
                other => break other?,
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if read.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::other("descriptors were lost on the way: too many open files"));
        }
        self.received.extend(&bytes[..read.bytes]);
        Ok(read.bytes > 0)
    }

    /// The next whole message that was read.
    pub(crate) fn next(&mut self) -> io::Result<Option<Message>> {
        let received = self.received.make_contiguous();
        let Some((&[kind, a, b, c, d], rest)) = received.split_first_chunk() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if length > LONGEST {
            return Err(nonsense());
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let message = Message::from_frame(kind, body).ok_or_else(nonsense)?;
        self.received.drain(..5 + length);
        Ok(Some(message))
    }

    /// Waits for a message; `None` when the other end is gone.
    pub(crate) fn wait(&mut self) -> io::Result<Option<Message>> {
        loop {
            if let Some(message) = self.next()? {
                return Ok(Some(message));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Says that nothing will be said any more.
    pub(crate) fn hang_up(&self) {
        drop(self.socket.shutdown(std::net::Shutdown::Both));
    }

    /// The next descriptor that came with a message.
    pub(crate) fn descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn nonsense() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "sprag and its guardian do not understand each other",
    )
}

impl Message {
    fn to_frame(&self) -> Vec<u8> {
        let (kind, body) = match self {
            Self::Start(order) => (b's', order.to_bytes()),
            Self::Renewed(until) => (b'r', nanos(*until).to_be_bytes().to_vec()),
            Self::Signal(number) => (b'k', vec![*number]),
            Self::Lost => (b'l', Vec::new()),
            Self::Done => (b'd', Vec::new()),
            Self::Started(pid) => (b'p', pid.to_be_bytes().to_vec()),
            Self::NotStarted(errno) => (b'n', errno.to_be_bytes().to_vec()),
            Self::Overdue => (b'o', Vec::new()),
            Self::Ended(status) => (b'e', status.to_be_bytes().to_vec()),
        };
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let mut frame = vec![kind];
        frame.extend(length.to_be_bytes());
        frame.extend(body);
        frame
    }

    fn from_frame(kind: u8, body: &[u8]) -> Option<Self> {
        let number = || body.try_into().ok().map(i32::from_be_bytes);
        match kind {
            b's' => Order::from_bytes(body).map(Box::new).map(Self::Start),
            b'r' => {
                body.try_into().ok().map(|nanos| Self::Renewed(moment(u64::from_be_bytes(nanos))))
            }
            b'k' => body.first().copied().map(Self::Signal),
            b'l' => Some(Self::Lost),
            b'd' => Some(Self::Done),
            b'p' => number().map(Self::Started),
            b'n' => number().map(Self::NotStarted),
            b'o' => Some(Self::Overdue),
            b'e' => number().map(Self::Ended),
            _ => None,
        }
    }
}

/// Nanoseconds since the clock's start; enough for 500 years of uptime.
fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.since_start().as_nanos()).unwrap_or(u64::MAX)
}

const fn moment(nanos: u64) -> Moment {
    Moment::new(Duration::from_nanos(nanos))
}

impl Order {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |part: &[u8]| {
            bytes.extend_from_slice(part);
            bytes.push(0);
        };
        put(nanos(self.valid_until).to_string().as_bytes());
        put(self.kill_after.as_nanos().to_string().as_bytes());
        put(self.margin.as_nanos().to_string().as_bytes());
        put(self.group.to_string().as_bytes());
        let (word, hook) = match &self.on_lost {
            OnLost::Term => ("term", OsStr::new("")),
            OnLost::Kill => ("kill", OsStr::new("")),
            OnLost::Continue => ("continue", OsStr::new("")),
            OnLost::Hook(hook) => ("hook", hook.as_os_str()),
        };
        put(word.as_bytes());
        put(hook.as_bytes());
        put(self.socket.as_bytes());
        put(self.directory.as_bytes());
        put(self.store.as_bytes());
        put(self.leases.len().to_string().as_bytes());
        for (name, lease) in &self.leases {
            put(name.as_bytes());
            put(lease.as_bytes());
        }
        put(self.command.len().to_string().as_bytes());
        self.command.iter().for_each(|part| put(part.as_bytes()));
        put(self.without.len().to_string().as_bytes());
        self.without.iter().for_each(|name| put(name.as_bytes()));
        for (name, value) in &self.environment {
            put(name.as_bytes());
            put(value.as_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut parts = bytes.strip_suffix(b"\0")?.split(|byte| *byte == 0);
        let mut take = || parts.next().map(|part| OsString::from_vec(part.to_vec()));
        fn number(part: OsString) -> Option<u64> {
            part.to_str()?.parse().ok()
        }
        let valid_until = moment(number(take()?)?);
        let kill_after = Duration::from_nanos(number(take()?)?);
        let margin = Duration::from_nanos(number(take()?)?);
        let group = i32::try_from(number(take()?)?).ok()?;
        let (word, hook) = (take()?, take()?);
        let on_lost = match word.to_str()? {
            "term" => OnLost::Term,
            "kill" => OnLost::Kill,
            "continue" => OnLost::Continue,
            "hook" => OnLost::Hook(hook),
            _ => return None,
        };
        let (socket, directory) = (take()?, take()?);
        let mut text = || take()?.into_string().ok();
        let store = text()?;
        let count: u64 = text()?.parse().ok()?;
        let leases = (0..count).map(|_| Some((text()?, text()?))).collect::<Option<_>>()?;
        let count = number(take()?)?;
        let command = (0..count).map(|_| take()).collect::<Option<_>>()?;
        let count = number(take()?)?;
        let without = (0..count).map(|_| take()?.into_string().ok()).collect::<Option<_>>()?;
        let mut environment = Vec::new();
        while let Some(name) = take() {
            environment.push((name.into_string().ok()?, take()?));
        }
        Some(Self {
            valid_until,
            kill_after,
            margin,
            group,
            on_lost,
            socket,
            directory,
            store,
            leases,
            command,
            environment,
            without,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> Order {
        Order {
            valid_until: Moment::new(Duration::from_millis(12_345)),
            kill_after: Duration::from_secs(5),
            margin: Duration::from_millis(300),
            group: 7,
            on_lost: OnLost::Hook("echo lost".into()),
            socket: "/run/x.sock".into(),
            directory: "/x y".into(),
            store: "redis://localhost".into(),
            leases: vec![("x".into(), "0f".into()), ("y".into(), "f0".into())],
            command: vec!["sh".into(), "".into(), OsString::from_vec(vec![0xff, 0xfe])],
            environment: vec![("A".into(), "1=2".into()), ("B".into(), "".into())],
            without: vec!["C".into()],
        }
    }

    #[test]
    fn every_message_survives_the_way() {
        let messages = [
            Message::Start(Box::new(order())),
            Message::Start(Box::new(Order { environment: Vec::new(), ..order() })),
            Message::Renewed(Moment::new(Duration::from_nanos(7))),
            Message::Signal(15),
            Message::Lost,
            Message::Done,
            Message::Started(4121),
            Message::NotStarted(2),
            Message::Overdue,
            Message::Ended(0x0f),
        ];
        let (one, two) = UnixStream::pair().unwrap();
        let (mut one, mut two) = (Wire::new(one), Wire::new(two));
        for message in &messages {
            one.send(message).unwrap();
        }
        for message in messages {
            assert_eq!(two.wait().unwrap(), Some(message));
        }
        drop(one);
        assert_eq!(two.wait().unwrap(), None);
    }

    #[test]
    fn descriptors_travel_with_a_long_message() {
        let (one, two) = UnixStream::pair().unwrap();
        let (mut one, mut two) = (Wire::new(one), Wire::new(two));
        let command = vec![OsString::from("x".repeat(300_000))];
        let message = Message::Start(Box::new(Order { command, ..order() }));
        let sent = message.clone();
        let file = std::fs::File::open("/dev/null").unwrap();
        let sender = std::thread::spawn(move || {
            one.send_with(&sent, &[file.as_fd(), file.as_fd()]).unwrap();
        });
        assert_eq!(two.wait().unwrap(), Some(message));
        assert!(two.descriptor().is_some() && two.descriptor().is_some());
        assert!(two.descriptor().is_none());
        sender.join().unwrap();
    }

    #[test]
    fn nonsense_is_an_error_and_no_panic() {
        let (mut one, two) = UnixStream::pair().unwrap();
        let mut two = Wire::new(two);
        one.write_all(&[b'?', 0, 0, 0, 0]).unwrap();
        assert!(two.wait().is_err());
        assert_eq!(Order::from_bytes(b"1\x00"), None);
    }
}
