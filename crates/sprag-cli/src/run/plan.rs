//! [`Plan`]: what `sprag run` was asked to do, checked before anything is touched.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use nix::unistd::getpgrp;
use sprag::{LockName, Mode, PartyId, Strategy, Wait};

use super::environment::{self, Around};
use super::holding::Holding;
use super::socket::{Told, store_mark};
use super::wire::Order;
use crate::args::{IfHeld, OnLost, Run};
use crate::code::Code;
use crate::config::{Origin, UsualReason};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::time;

/// The longest text that is made of a command for others to see.
const REASON: usize = 80;
/// What the name of an option or variable has in it whose value nobody should see.
const SECRETS: [&str; 7] =
    ["password", "passwd", "secret", "token", "apikey", "api-key", "api_key"];

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The store's URL, for the environment.
    pub(crate) store: String,
    /// What a run inside of this one knows the store by.
    pub(crate) store_mark: String,
    /// The runs around this one.
    pub(crate) around: Around,
    /// Who we are in deadlocks.
    pub(crate) party: PartyId,
    /// What was asked for: sorted, each once.
    pub(crate) named: Vec<LockName>,
    /// What of it has to be taken; a run around this one may hold the rest.
    pub(crate) names: Vec<LockName>,
    /// The slot that the run around this one has for us.
    pub(crate) slot: Option<u32>,
    pub(crate) command: Vec<OsString>,
    pub(crate) mode: Mode,
    pub(crate) wait: Wait,
    pub(crate) skip_if_held: bool,
    pub(crate) ttl: Duration,
    pub(crate) kill_after: Duration,
    pub(crate) on_lost: OnLost,
    pub(crate) priority: i8,
    pub(crate) strategy: Strategy,
    /// Whether a lock that is taken by force is entered beside the old command.
    pub(crate) enters_now: bool,
    pub(crate) once_per: Option<Duration>,
    pub(crate) reason: String,
    pub(crate) if_held_exit: Exit,
    pub(crate) reentrant: bool,
    pub(crate) accept_overlap: bool,
    pub(crate) sd_notify: bool,
    pub(crate) status_fd: Option<u32>,
}

impl Plan {
    pub(crate) fn new(args: &Run, context: &Context) -> Result<Self, Failure> {
        refuse_what_flock_has(args)?;
        let bad = |message: String| Failure::new(Code::Usage, message);
        let (names, command) = args.locks_and_command().map_err(bad)?;
        let asking = &args.asking;
        let mode = asking.mode();
        let slots = matches!(mode, Mode::Permits { .. });
        if names.len() > 1 && (slots || args.once_per.is_some()) {
            return Err(bad("--slots and --once-per go with one lock, not with several".into()));
        }
        let settings = &context.settings;
        let ttl = asking.ttl(settings);
        let wait = asking.wait().unwrap_or(match args.if_held {
            Some(IfHeld::Fail | IfHeld::Skip) => Wait::No,
            Some(IfHeld::Wait) | None => settings.wait.value,
        });
        let store = environment::store_url(&settings.store.value);
        let around = Around::here(&store);
        Ok(Self {
            store_mark: store_mark(&store),
            store,
            party: around.inner_party(),
            around,
            kill_after: kill_after(args, context, ttl)?,
            reason: asking
                .reason
                .clone()
                .unwrap_or_else(|| reason(&command, settings.reason.value)),
            named: names.clone(),
            names,
            slot: None,
            command,
            mode,
            wait,
            skip_if_held: args.if_held == Some(IfHeld::Skip),
            ttl,
            on_lost: args.on_lost.clone(),
            priority: asking.priority,
            strategy: asking.strategy(),
            enters_now: asking.enters_now(),
            once_per: args.once_per,
            if_held_exit: asking.if_held_exit(),
            reentrant: args.reentrant,
            accept_overlap: args.accept_overlap,
            sd_notify: args.sd_notify,
            status_fd: args.status_fd,
        })
    }

    /// A plan for a command under a lock that is taken elsewhere.
    pub(crate) fn under(
        name: LockName,
        command: Vec<OsString>,
        store: String,
        ttl: Duration,
        context: &Context,
    ) -> Self {
        let around = Around::here(&store);
        Self {
            store_mark: store_mark(&store),
            store,
            party: around.inner_party(),
            around,
            named: vec![name.clone()],
            names: vec![name],
            slot: None,
            reason: reason(&command, context.settings.reason.value),
            command,
            mode: Mode::Exclusive,
            wait: Wait::No,
            skip_if_held: false,
            ttl,
            kill_after: context.settings.kill_after.value.min(ttl / 6),
            on_lost: OnLost::Term,
            priority: 0,
            strategy: Strategy::default(),
            enters_now: false,
            once_per: None,
            if_held_exit: Exit::HELD,
            reentrant: false,
            accept_overlap: false,
            sd_notify: false,
            status_fd: None,
        }
    }

    /// How long a store that is there but too busy is asked again. Longer than that nobody is busy:
    /// somebody is stopped in the middle of a write.
    pub(crate) fn store_patience(&self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(60);
        match self.wait {
            Wait::No => Duration::ZERO,
            Wait::AtMost(limit) => limit.min(LONGEST),
            Wait::Forever => LONGEST,
        }
    }

    /// The lock that is asked for as the nth; one of those that were named in any case.
    pub(crate) fn nth(&self, index: usize) -> &LockName {
        let names = if self.names.is_empty() { &self.named } else { &self.names };
        &names[index.min(names.len() - 1)]
    }

    /// What whoever asks is told.
    pub(crate) fn told(&self, taken: &dyn Holding) -> Told {
        Told {
            store: self.store_mark.clone(),
            url: Some(self.store.clone()),
            session: environment::session(),
            outer: self.around.socket.clone(),
            mode: Some(self.mode),
            slot: taken.slot(),
            locks: taken.held(),
        }
    }

    /// What the guardian is told once the locks are taken.
    pub(super) fn order(&self, taken: &dyn Holding, holder: &str, socket: Option<&Path>) -> Order {
        // With a terminal, the command has to be where the terminal's signals go.
        let shared_group = std::fs::File::open("/dev/tty").is_ok();
        Order {
            valid_until: taken.valid_until(),
            kill_after: self.kill_after,
            margin: self.margin(),
            group: if shared_group { getpgrp().as_raw() } else { 0 },
            on_lost: self.on_lost.clone(),
            socket: socket.map(Into::into).unwrap_or_default(),
            directory: OsString::new(),
            store: String::new(),
            leases: Vec::new(),
            command: self.command.clone(),
            environment: environment::variables(self, taken, holder, socket),
            without: environment::without(taken),
        }
    }

    /// How long before the end of the lease the last process has to be gone: time for the kernel
    /// and for a busy machine.
    pub(crate) fn margin(&self) -> Duration {
        (self.ttl / 10).min(Duration::from_secs(1))
    }
}

fn refuse_what_flock_has(args: &Run) -> Result<(), Failure> {
    let flag = match (args.no_fork, args.close) {
        (true, _) => "--no-fork",
        (_, true) => "--close",
        _ => return Ok(()),
    };
    let message =
        format!("{flag} cannot work here: someone must renew the lease while the command runs");
    Err(Failure::new(Code::Usage, message))
}

fn kill_after(args: &Run, context: &Context, ttl: Duration) -> Result<Duration, Failure> {
    let setting = &context.settings.kill_after;
    let said = args.kill_after.is_some() || !matches!(setting.origin, Origin::Default);
    let kill_after = args.kill_after.unwrap_or(setting.value);
    if !said {
        return Ok(kill_after.min(ttl / 6));
    }
    let least = kill_after * 3;
    if ttl >= least {
        return Ok(kill_after);
    }
    let [ttl, kill_after, least] = [ttl, kill_after, least].map(time::span);
    let message = format!(
        "ttl {ttl} is too short for --kill-after {kill_after} (need at least 3 x kill-after = \
         {least})"
    );
    Err(Failure::new(Code::Usage, message))
}

/// What others see of the command while they wait, and what a log keeps: the name of the program.
/// Its arguments may have secrets, and not all of them look like one.
fn reason(command: &[OsString], usual: UsualReason) -> String {
    let text = match usual {
        UsualReason::Program => {
            let program = command.first().map(Path::new).and_then(Path::file_name);
            program.unwrap_or_default().to_string_lossy().into_owned()
        }
        UsualReason::Command => words(command),
    };
    let text = text.replace(char::is_control, " ");
    match text.char_indices().nth(REASON) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// The whole command, but for what looks like a secret.
fn words(command: &[OsString]) -> String {
    let mut hide_next = false;
    let mut words = Vec::new();
    for word in command {
        let word = word.to_string_lossy();
        let lower = word.to_lowercase();
        let secret = SECRETS.iter().any(|secret| lower.contains(secret));
        words.push(match word.split_once('=') {
            _ if hide_next => "***".to_owned(),
            Some((name, _)) if secret => format!("{name}=***"),
            _ if word.contains("://") => sprag::redact(&word),
            _ => word.to_string(),
        });
        hide_next = secret && word.starts_with('-') && !word.contains('=');
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::{UsualReason, reason};

    #[test]
    fn others_see_the_program_and_no_argument() {
        for (line, shown) in [
            ("curl -H Authorization:\u{a0}Bearer\u{a0}hunter2 https://x", "curl"),
            ("/opt/team/bin/deploy.sh -u me:hunter2", "deploy.sh"),
            ("mysql -phunter2", "mysql"),
            ("/bin/sh -c hunter2", "sh"),
            ("..", ""),
        ] {
            let words: Vec<_> = line.split(' ').map(Into::into).collect();
            assert_eq!(reason(&words, UsualReason::Program), shown);
        }
        let long = [std::ffi::OsString::from("ä".repeat(300))];
        assert_eq!(reason(&long, UsualReason::Program).chars().count(), 83);
    }

    #[test]
    fn what_looks_like_a_secret_is_hidden_also_where_the_command_is_wanted() {
        for (line, shown) in [
            ("./deploy.sh v1.8.2", "./deploy.sh v1.8.2"),
            ("x --password hunter2 y", "x --password *** y"),
            ("x --password=hunter2", "x --password=***"),
            ("env API_TOKEN=hunter2 x", "env API_TOKEN=*** x"),
            ("psql postgres://me:hunter2@db/app", "psql postgres://***@db/app"),
        ] {
            let words: Vec<_> = line.split(' ').map(Into::into).collect();
            assert_eq!(reason(&words, UsualReason::Command), shown);
        }
    }
}
