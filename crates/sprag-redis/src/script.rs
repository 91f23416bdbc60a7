//! The scripts, and [`Call`]: one request to the server.

use redis::Cmd;

/// Everything that one operation does, in one step.
pub(crate) const LOCK: &str =
    concat!(include_str!("scripts/load.lua"), include_str!("scripts/lock.lua"));
/// Looks at one lock.
pub(crate) const LOOK: &str =
    concat!(include_str!("scripts/load.lua"), include_str!("scripts/look.lua"));
/// Adds to the trail.
pub(crate) const NOTE: &str = include_str!("scripts/note.lua");

/// All scripts, in the order of [`Script`].
pub(crate) const ALL: [&str; 3] = [LOCK, LOOK, NOTE];

/// Which script.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Script {
    Lock,
    Look,
    Note,
}

/// One request to the server.
#[derive(Debug)]
pub(crate) enum Call {
    Script { script: Script, keys: Vec<String>, arguments: Vec<String> },
    Plain(Cmd),
}

impl Call {
    /// A command of Redis.
    pub(crate) fn plain(words: &[&str]) -> Self {
        let mut command = Cmd::new();
        command.arg(words);
        Self::Plain(command)
    }

    /// The command by the script's digest, which the server knows since it was loaded.
    pub(crate) fn command(&self, digests: &[String; 3]) -> Cmd {
        match self {
            Self::Plain(command) => command.clone(),
            Self::Script { script, keys, arguments } => {
                evaluate("EVALSHA", &digests[*script as usize], keys, arguments)
            }
        }
    }

    /// The command with the whole script, for a server that has forgotten it.
    pub(crate) fn in_full(&self) -> Cmd {
        match self {
            Self::Plain(command) => command.clone(),
            Self::Script { script, keys, arguments } => {
                evaluate("EVAL", ALL[*script as usize], keys, arguments)
            }
        }
    }
}

fn evaluate(how: &str, script: &str, keys: &[String], arguments: &[String]) -> Cmd {
    let mut command = redis::cmd(how);
    command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
    command
}
