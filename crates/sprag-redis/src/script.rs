//! The scripts, and [`Call`]: one request to the server.

use crate::resp;

/// Everything that one operation does, in one step.
pub(crate) const LOCK: &str = concat!(
    include_str!("scripts/head.lua"),
    include_str!("scripts/fast.lua"),
    include_str!("scripts/load.lua"),
    include_str!("scripts/lock.lua")
);
/// Looks at one lock.
pub(crate) const LOOK: &str = concat!(
    include_str!("scripts/head.lua"),
    include_str!("scripts/load.lua"),
    include_str!("scripts/look.lua")
);
/// Adds to the trail.
pub(crate) const NOTE: &str = include_str!("scripts/note.lua");

/// One vote of a Redlock node.
const REDLOCK_TAKE: &str = concat!(
    include_str!("redlock/scripts/clock.lua"),
    include_str!("redlock/scripts/fast_take.lua"),
    include_str!("redlock/scripts/node.lua"),
    include_str!("redlock/scripts/take.lua")
);
/// What becomes of a lease on a Redlock node.
const REDLOCK_TEND: &str = concat!(
    include_str!("redlock/scripts/fast_end.lua"),
    include_str!("redlock/scripts/clock.lua"),
    include_str!("redlock/scripts/node.lua"),
    include_str!("redlock/scripts/tend.lua")
);
/// Looks at a lock on a Redlock node, or at the node.
const REDLOCK_LOOK: &str = concat!(
    include_str!("redlock/scripts/clock.lua"),
    include_str!("redlock/scripts/node.lua"),
    include_str!("redlock/scripts/look.lua")
);

/// All scripts, in the order of [`Script`].
pub(crate) const ALL: [&str; 6] = [LOCK, LOOK, NOTE, REDLOCK_TAKE, REDLOCK_TEND, REDLOCK_LOOK];

/// Which script.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Script {
    Lock,
    Look,
    Note,
    RedlockTake,
    RedlockTend,
    RedlockLook,
}

/// One request to the server.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Script { script: Script, keys: Vec<String>, arguments: Vec<String> },
    Plain(Vec<String>),
}

impl Call {
    /// A command of Redis.
    pub(crate) fn plain(words: &[&str]) -> Self {
        Self::Plain(words.iter().map(|word| (*word).to_owned()).collect())
    }

    /// Writes the request: a script by its digest where the server knows it, else in full.
    pub(crate) fn write(&self, digests: Option<&[String]>, out: &mut Vec<u8>) {
        match self {
            Self::Plain(words) => resp::write(words, out),
            Self::Script { script, keys, arguments } => {
                let (how, text) = match digests.and_then(|known| known.get(*script as usize)) {
                    Some(digest) => ("EVALSHA", digest.as_str()),
                    None => ("EVAL", ALL[*script as usize]),
                };
                let count = keys.len().to_string();
                let words = [how, text, &count].into_iter();
                let words = words.chain(keys.iter().map(String::as_str));
                let words: Vec<_> = words.chain(arguments.iter().map(String::as_str)).collect();
                resp::write(&words, out);
            }
        }
    }
}
