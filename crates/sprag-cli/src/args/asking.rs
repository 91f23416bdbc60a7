//! [`Asking`]: how a lock is asked for, by `run` and `acquire`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use sprag::{Mode, Strategy, Wait};

use super::value;
use crate::config::{Settings, wait_for};
use crate::exit::Exit;

/// How a lock is asked for.
#[derive(Args, Debug)]
pub(crate) struct Asking {
    /// Do not wait: exit 75 if somebody else holds it
    #[arg(short, long, visible_alias = "nb", conflicts_with = "wait")]
    nonblock: bool,
    /// How long to wait for the lock; 0 is -n [default: for ever, or SPRAG_WAIT]
    #[arg(short, long, visible_alias = "timeout", value_name = "DURATION")]
    #[arg(value_parser = value::duration)]
    wait: Option<Duration>,
    /// Share the lock with others that share it
    #[arg(short, long)]
    shared: bool,
    /// Hold the lock alone; the default
    #[arg(short = 'x', long, conflicts_with = "shared")]
    exclusive: bool,
    /// Let N hold it at once; the command of `run` finds its own number, from 0, in SPRAG_SLOT
    #[arg(long, value_name = "N", conflicts_with_all = ["shared", "exclusive"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    slots: Option<u32>,
    /// Go before lower priorities: each level counts as having come 10s earlier, -8 to 8
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i8).range(-8..=8))]
    pub(crate) priority: i8,
    /// How long the lease lasts without being renewed [default: 30s, or SPRAG_TTL]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    ttl: Option<Duration>,
    /// Take the lock over from a holder that has missed two renewals and given no sign of life for
    /// so long [without a value: 5m]
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "5m", value_parser = value::duration)]
    takeover: Option<Duration>,
    /// Take the lock from whoever holds it, past the queue. `run` enters when the old command is
    /// dead, or has to be; with `now` beside it, which breaks the protection
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "dead", conflicts_with_all = ["takeover", "wait"])]
    force: Option<Force>,
    /// The exit code if somebody else holds it, instead of 75
    #[arg(short = 'E', long, value_name = "N")]
    conflict_exit_code: Option<u8>,
    /// Why, for others to see, also in logs [default of `run`: the name of the program]
    #[arg(short = 'm', long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// When whoever takes a lock by force enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Force {
    /// When the command of the old holder is dead, or has to be
    Dead,
    /// At once
    Now,
}

impl Asking {
    /// Whether the lock is taken from anybody.
    pub(crate) const fn is_forced(&self) -> bool {
        self.force.is_some()
    }

    /// Whether it is entered beside the old command.
    pub(crate) fn enters_now(&self) -> bool {
        self.force == Some(Force::Now)
    }

    /// How long to wait, if something was said about that.
    pub(crate) fn wait(&self) -> Option<Wait> {
        if self.nonblock { Some(Wait::No) } else { self.wait.map(wait_for) }
    }

    /// How long the lease lasts.
    pub(crate) fn ttl(&self, settings: &Settings) -> Duration {
        self.ttl.unwrap_or(settings.ttl.value)
    }

    /// How much of the lock is asked for.
    pub(crate) fn mode(&self) -> Mode {
        match self.slots {
            Some(of) => Mode::Permits { count: 1, of },
            None if self.shared => Mode::Shared,
            None => Mode::Exclusive,
        }
    }

    /// What to do about a holder that is in the way.
    pub(crate) fn strategy(&self) -> Strategy {
        match (self.is_forced(), self.takeover) {
            (true, _) => Strategy::ForceAcquire,
            (_, Some(after)) => Strategy::StealStale { after },
            _ => Strategy::Retry,
        }
    }

    /// How the process ends if somebody else holds it.
    pub(crate) fn if_held_exit(&self) -> Exit {
        self.conflict_exit_code.map_or(Exit::HELD, Exit::status)
    }
}
