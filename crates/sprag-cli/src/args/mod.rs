//! The command line, as data. One file per command.

mod acquire;
mod asking;
mod breaking;
mod check;
mod completions;
mod config;
mod demo;
mod doctor;
mod explain;
mod lease;
mod log;
mod ls;
mod man;
mod release;
mod renew;
mod run;
mod show;
mod stores;
pub(crate) mod value;
mod why;
pub(crate) mod work;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand};

pub(crate) use self::acquire::Acquire;
pub(crate) use self::asking::Asking;
pub(crate) use self::breaking::Break;
pub(crate) use self::check::Check;
pub(crate) use self::completions::{Complete, Completions, Shell};
pub(crate) use self::config::{Config, Trust};
pub(crate) use self::demo::{Demo, DemoStep, Step};
pub(crate) use self::doctor::Doctor;
pub(crate) use self::explain::Explain;
pub(crate) use self::lease::Lease;
pub(crate) use self::log::Log;
pub(crate) use self::ls::{Column, Ls};
pub(crate) use self::man::Man;
pub(crate) use self::release::Release;
pub(crate) use self::renew::Renew;
pub(crate) use self::run::{IfHeld, OnLost, Run};
pub(crate) use self::show::Show;
pub(crate) use self::stores::Stores;
pub(crate) use self::why::Why;
pub(crate) use self::work::Work;

use crate::code::Code;
use crate::config::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::nearest::nearest;
use crate::output::Output;
use crate::output::style::{Colour, Style};

/// Hold a lock while a command runs, and look at locks, on any store.
#[derive(Debug, Parser)]
#[command(name = "sprag", version, max_term_width = 100)]
#[command(disable_help_subcommand = false, arg_required_else_help = true)]
#[command(
    after_help = "With nothing set up, locks live in a file of yours and hold between your own \
                        processes on this machine; those of all its users: --system.\nExit codes: \
                        sprag explain exit-codes"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every command.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The store: a URL such as sqlite:./locks.db, or a name from sprag.toml
    #[arg(short = 'S', long, global = true, value_name = "URL|NAME")]
    pub(crate) store: Option<String>,
    /// The store of all users of this machine: the same as -S system:
    #[arg(long, global = true, conflicts_with = "store")]
    pub(crate) system: bool,
    /// Answer in JSON, errors too
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say nothing but answers and errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Say more
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", value_enum)]
    pub(crate) color: Option<Colour>,
    /// Read this file instead of the sprag.toml found upwards
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Who takes the locks, for others to see [default: user@host#pid]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) holder: Option<String>,
    /// Never ask, even on a terminal
    #[arg(long, global = true)]
    pub(crate) no_input: bool,
}

impl Global {
    /// The store that a flag names, and the flag.
    pub(crate) fn named_store(&self) -> Option<(&str, &'static str)> {
        match &self.store {
            Some(store) => Some((store, "--store")),
            None => self.system.then_some(("system:", "--system")),
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Acquire(Acquire),
    Renew(Renew),
    Release(Release),
    Check(Check),
    Ls(Ls),
    Show(Show),
    Why(Why),
    Break(Break),
    Log(Log),
    Work(Work),
    Stores(Stores),
    Doctor(Doctor),
    Demo(Demo),
    Config(Config),
    Completions(Completions),
    Man(Man),
    Explain(Explain),
    #[command(name = "__complete", hide = true)]
    Complete(Complete),
    #[command(name = "__demo", hide = true)]
    DemoStep(DemoStep),
}

/// What came of the command line.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// A command to be done.
    Command(Box<Cli>),
    /// Help was shown, or an error said.
    Answered(Exit),
}

/// Reads the command line. Help and errors are answered at once.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Parsed {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let error = match Cli::try_parse_from(&arguments).and_then(|cli| refuse_flag(cli, &arguments)) {
        Ok(cli) => return Parsed::Command(Box::new(cli)),
        Err(error) => error,
    };
    // As if there were no settings: what they are is not known yet.
    let style =
        Style::new(Colour::Auto, std::io::IsTerminal::is_terminal(&std::io::stderr()), |n| {
            environment(n)
        });
    let json = arguments.iter().any(|argument| argument == "--json");
    let output = Output { json, quiet: false, verbose: false, out: style, err: style };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output.line(error.render().to_string().trim_end());
            Parsed::Answered(Exit::OK)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            output.error_line(error.render().to_string().trim_end());
            Parsed::Answered(Exit::USAGE)
        }
        _ => Parsed::Answered(usage(&error, &arguments).print(&output)),
    }
}

/// Refuses a flag that `run` does not know where the name of its lock should be.
///
/// What follows the name may look like flags, so clap takes all of it as it is, the first word
/// too. That one is looked at again more strictly; behind `--` it may be anything.
fn refuse_flag(cli: Cli, arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let Command::Run(run) = &cli.command else { return Ok(cli) };
    if run.words.first().is_some_and(|word| word.as_encoded_bytes().starts_with(b"-")) {
        let strict = |run: clap::Command| run.mut_arg("words", |w| w.allow_hyphen_values(false));
        Cli::command().mut_subcommand("run", strict).try_get_matches_from(arguments)?;
    }
    Ok(cli)
}

/// What other tools call our commands.
const ELSEWHERE: &[(&str, &str)] = &[
    ("lock", "run"),
    ("exec", "run"),
    ("unlock", "release"),
    ("force-unlock", "break"),
    ("steal", "break"),
    ("status", "show"),
    ("info", "show"),
    ("ps", "ls"),
    ("history", "log"),
];

/// Says in our form what clap found; the usage lines are in the help.
fn usage(error: &clap::Error, arguments: &[OsString]) -> Failure {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let mut paragraphs = text.split("\n\n");
    let message = paragraphs.next().unwrap_or_default().trim_end().to_owned();
    let mut failure = Failure::new(Code::Usage, message);
    let cli = Cli::command();
    let given = arguments.iter().skip(1).find_map(|word| cli.find_subcommand(word));
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) {
        let known =
            given.unwrap_or(&cli).get_subcommands().filter(|command| !command.is_hide_set());
        let elsewhere = ELSEWHERE.iter().find(|(theirs, _)| given.is_none() && theirs == word);
        if let Some((_, ours)) = elsewhere {
            return failure
                .hint("what it is called here", format!("sprag {ours}"))
                .hint("see the commands", "sprag help");
        }
        // Clap does not recognise a slip in a word of three letters.
        let unseen = error.get(ContextKind::SuggestedSubcommand).is_none();
        if let Some(meant) = nearest(word, known.map(clap::Command::get_name)).filter(|_| unseen) {
            failure = failure.advice(format!("a similar subcommand exists: '{meant}'"));
        }
    }
    for line in paragraphs.flat_map(str::lines) {
        if let Some(tip) = line.trim().strip_prefix("tip: ") {
            failure = failure.advice(tip);
        }
    }
    match given.map(clap::Command::get_name) {
        Some(command) => failure.hint("see the flags", format!("sprag help {command}")),
        None => failure.hint("see the commands", "sprag help"),
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_makes_sense() {
        Cli::command().debug_assert();
    }
}
