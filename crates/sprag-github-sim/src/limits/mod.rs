//! [`Limits`]: how much an account may ask.

mod usage;

use std::time::Duration;

pub(crate) use usage::{Denial, Price, Resource, Usage};

/// How much each account may ask. The numbers are those that GitHub documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests per hour, of an account with all its tokens.
    pub primary: u64,
    /// Requests per hour without a token.
    pub anonymous: u64,
    /// Points per hour of GraphQL, which has a purse of its own.
    pub graphql: u64,
    /// Searches per minute.
    pub search: u64,
    /// Requests at the same time.
    pub concurrent: usize,
    /// Points per minute of REST: 1 for a read, 5 for a write.
    pub points: u64,
    /// Points per minute of GraphQL: 1 for a query, 5 for a mutation.
    pub graphql_points: u64,
    /// Requests per minute that notify people.
    pub content_per_minute: u64,
    /// Requests per hour that notify people.
    pub content_per_hour: u64,
    /// Whether edits count as if they notified. GitHub does not say so; to be on the safe side.
    pub edits_notify: bool,
    /// How many comments an issue takes, for ever.
    pub comments: u64,
    /// How long an account is turned away that went over a limit other than the hourly ones.
    pub penalty: Duration,
    /// How that is told.
    pub manner: Manner,
}

/// How an account is told that it went over a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// 403 with `retry-after`.
    Forbidden,
    /// 429 with `retry-after`.
    TooMany,
    /// 403 without a word about when to come again.
    Silent,
    /// Each of them by chance.
    Mixed,
}

impl Limits {
    /// As GitHub documents them.
    pub const GITHUB: Self = Self {
        primary: 5_000,
        anonymous: 60,
        graphql: 5_000,
        search: 30,
        concurrent: 100,
        points: 900,
        graphql_points: 2_000,
        content_per_minute: 80,
        content_per_hour: 500,
        edits_notify: false,
        comments: 2_500,
        penalty: Duration::from_secs(60),
        manner: Manner::Forbidden,
    };

    /// So high that no test meets them by accident; the cap of comments stays.
    pub const GENEROUS: Self = Self {
        primary: 1_000_000_000,
        anonymous: 1_000_000_000,
        graphql: 1_000_000_000,
        search: 1_000_000_000,
        concurrent: 100_000,
        points: 1_000_000_000,
        graphql_points: 1_000_000_000,
        content_per_minute: 1_000_000_000,
        content_per_hour: 1_000_000_000,
        ..Self::GITHUB
    };
}
