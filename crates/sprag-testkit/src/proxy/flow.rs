//! [`Flow`] and [`Fault`]: what can happen to bytes on their way.

use std::time::Duration;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Request,
    /// From the server to the client.
    Reply,
}

/// How bytes go in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// At once.
    Open,
    /// Each after a while: the first, and up to the second at random on top.
    Delayed(Duration, Duration),
    /// Not until they are let: they wait in between, in order. So does the end of the connection.
    Frozen,
    /// Never: they disappear, and nobody is told. So does the end of the connection.
    Hole,
}

/// What is done to the connection of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Reset when so many bytes of the request are with the server.
    CutRequest(usize),
    /// Reset when so many bytes of the reply are with the client. With 0 the server has done what
    /// was asked and nobody knows.
    CutReply(usize),
    /// The reply, and all after it, waits until it is let.
    FreezeReply,
    /// The request, and all after it, waits until it is let.
    FreezeRequest,
    /// The reply, and all after it, disappears.
    LoseReply,
    /// The server is told that no more requests come; replies go on.
    HalfClose,
}

impl Fault {
    /// What cuts one request off. After some of them the server has done what was asked.
    pub const CUTS: [Self; 6] = [
        Self::CutReply(0),
        Self::CutReply(3),
        Self::CutRequest(0),
        Self::CutRequest(40),
        Self::LoseReply,
        Self::HalfClose,
    ];
}
