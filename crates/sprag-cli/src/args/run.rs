//! `sprag run`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sprag::LockName;

use super::{Asking, value};

/// Hold a lock while a command runs
///
/// The options end at NAME: what follows is the command's own, and no shell sees it. When the
/// lock is lost, or sprag is killed, the command and all that it started are stopped before
/// anybody else can get the lock; a store where that cannot be kept is refused.
#[derive(Args, Debug)]
#[command(override_usage = "sprag run [OPTIONS] NAME[,NAME...] [--] COMMAND [ARG...]\n       \
                            sprag run [OPTIONS] -c STRING NAME[,NAME...]")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) asking: Asking,
    /// The time between TERM and KILL when the command has to stop
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    pub(crate) kill_after: Option<Duration>,
    /// What to do with the command when the lock is lost: term, kill, continue or hook:CMD
    #[arg(long, value_name = "ACTION", default_value = "term", value_parser = on_lost)]
    pub(crate) on_lost: OnLost,
    /// What to do if somebody else holds it
    #[arg(long, value_name = "ACTION", value_enum, conflicts_with = "force")]
    pub(crate) if_held: Option<IfHeld>,
    /// Run it once in each period of this length, whoever comes first; others skip it
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    #[arg(conflicts_with = "force")]
    pub(crate) once_per: Option<Duration>,
    /// Inside a run of the same lock, use that one instead of refusing
    #[arg(long)]
    pub(crate) reentrant: bool,
    /// Run it also where the next command may enter while this one is still being stopped, as with
    /// advisory locks of PostgreSQL
    #[arg(long)]
    pub(crate) accept_overlap: bool,
    /// Tell systemd (Type=notify) when the lock is held
    #[arg(long)]
    pub(crate) sd_notify: bool,
    /// Write to this descriptor, in JSON, how it ended
    #[arg(long, value_name = "N")]
    pub(crate) status_fd: Option<u32>,
    /// Run this with /bin/sh instead of a command
    #[arg(short = 'c', long = "command", value_name = "STRING")]
    pub(crate) shell: Option<OsString>,
    /// As in flock; cannot work here
    #[arg(short = 'F', long, hide = true)]
    pub(crate) no_fork: bool,
    /// As in flock; cannot work here
    #[arg(short = 'o', long, hide = true)]
    pub(crate) close: bool,
    /// The lock, or several with commas between them; then the command
    #[arg(value_name = "NAME> [--] <COMMAND", required = true, trailing_var_arg = true)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

/// What to do if somebody else holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IfHeld {
    /// Wait for it
    Wait,
    /// Exit 75
    Fail,
    /// Exit 0
    Skip,
}

/// What to do with the command when the lock is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OnLost {
    /// TERM, then KILL.
    Term,
    /// KILL.
    Kill,
    /// Nothing.
    Continue,
    /// Runs this with the shell instead of TERM, then KILL.
    Hook(OsString),
}

fn on_lost(text: &str) -> Result<OnLost, String> {
    match (text, text.strip_prefix("hook:")) {
        ("term", _) => Ok(OnLost::Term),
        ("kill", _) => Ok(OnLost::Kill),
        ("continue", _) => Ok(OnLost::Continue),
        (_, Some(hook)) if !hook.is_empty() => Ok(OnLost::Hook(hook.into())),
        _ => Err("it is term, kill, continue or hook:CMD".into()),
    }
}

impl Run {
    /// The locks and the command, from the words and `-c`.
    pub(crate) fn locks_and_command(&self) -> Result<(Vec<LockName>, Vec<OsString>), String> {
        let (name, rest) = self.words.split_first().ok_or("which lock?")?;
        let name = name.to_str().ok_or_else(|| format!("the name {name:?} is not UTF-8"))?;
        let names = value::lock_names(name)?;
        let rest = if rest.first().is_some_and(|word| word == "--") { &rest[1..] } else { rest };
        // flock(1) has -c behind the name; a command cannot be called that.
        let shell = match (&self.shell, rest) {
            (Some(shell), []) => Some(shell),
            (None, [flag, shell]) if flag == "-c" => Some(shell),
            (Some(_), _) => return Err("-c STRING is the command: there cannot be another".into()),
            (None, []) => {
                return Err(format!("what shall run under {name:?}? sprag run {name} -- COMMAND"));
            }
            // A flag at the wrong place must not be noticed under the lock, as a missing program.
            (None, [flag, ..]) if flag.as_encoded_bytes().starts_with(b"-") => {
                let flag = flag.display();
                return Err(format!(
                    "{flag} stands behind the name, where the command begins: flags go before it, \
                     sprag run {flag} ... {name} -- COMMAND"
                ));
            }
            (None, _) => None,
        };
        let command = match shell {
            Some(shell) => vec!["/bin/sh".into(), "-c".into(), shell.clone()],
            None => rest.to_vec(),
        };
        Ok((names, command))
    }
}

#[cfg(test)]
mod tests {
    use super::Run;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        run: Run,
    }

    fn words(line: &str) -> Result<(String, String), String> {
        let only = Only::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
        let (names, command) = only.run.locks_and_command()?;
        let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
        let command: Vec<_> = command.iter().map(|word| word.to_str().unwrap()).collect();
        Ok((names.join(" "), command.join(" ")))
    }

    #[test]
    fn options_end_at_the_name() {
        for (line, names, command) in [
            ("run x ls -n -S y --json", "x", "ls -n -S y --json"),
            ("run -n x -- ls -- -n", "x", "ls -- -n"),
            ("run -n -- x ls -n", "x", "ls -n"),
            ("run -w 5m -s b,a ls", "a b", "ls"),
            ("run --priority -3 x ls", "x", "ls"),
            ("run --takeover x ls", "x", "ls"),
            ("run --takeover=3s x ls", "x", "ls"),
            ("run -c true x", "x", "/bin/sh -c true"),
            ("run x -c true", "x", "/bin/sh -c true"),
            ("run x -- -c true", "x", "/bin/sh -c true"),
        ] {
            assert_eq!(words(line), Ok((names.into(), command.into())), "{line}");
        }
    }

    #[test]
    fn what_is_missing_or_too_much_is_said() {
        for (line, message) in [
            ("run", "required"),
            ("run x", "what shall run under"),
            ("run x --", "what shall run under"),
            ("run x --tll 5s -- ls", "flags go before it"),
            ("run -c true x ls", "there cannot be another"),
            ("run x,x ls", "named twice"),
            ("run -n -w 3 x ls", "cannot be used with"),
            ("run --on-lost hook: x ls", "it is term, kill"),
            ("run --slots 0 x ls", "0 is not in"),
        ] {
            let error = words(line).unwrap_err();
            assert!(error.contains(message), "{line}: {error}");
        }
    }
}
