//! `sprag completions`: scripts that ask sprag itself how a word could go on.

use clap::{Arg, ArgAction, Command, CommandFactory};
use serde_json::json;

use super::{Outcome, ls};
use crate::args::{Cli, Complete, Completions, Shell};
use crate::context::Context;
use crate::exit::Exit;
use crate::output::plain::one_line;
use crate::slot;
use crate::store::Opened;

/// Prints the script of a shell.
pub(crate) fn script(args: &Completions, context: &Context) -> Outcome {
    let script = match args.shell {
        Shell::Bash => include_str!("../completions/sprag.bash"),
        Shell::Zsh => include_str!("../completions/sprag.zsh"),
        Shell::Fish => include_str!("../completions/sprag.fish"),
    };
    if context.output.json {
        context.output.answer(json!({"script": script}));
    } else {
        context.output.line(script.trim_end());
    }
    Ok(Exit::OK)
}

/// Prints how the last word could go on, one answer a line. Never fails: somebody is typing.
pub(crate) fn complete(args: &Complete, context: &Context) -> Outcome {
    let words: Vec<_> = args.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let Some((last, before)) = words.split_last() else { return Ok(Exit::OK) };
    let mut root = Cli::command();
    root.build();
    let answers = match place(&root, before, last) {
        Place::Words(words) => words,
        Place::Locks => locks(context, last),
        Place::Stores => stores(context),
        Place::Elsewhere => Vec::new(),
    };
    // A name that cannot be shown as it is cannot be typed either.
    let fits =
        |answer: &&String| answer.starts_with(last.as_str()) && one_line(answer) == answer.as_str();
    for answer in answers.iter().filter(fits) {
        context.output.line(answer);
    }
    Ok(Exit::OK)
}

/// What can stand in one place of the command line.
enum Place {
    Words(Vec<String>),
    Locks,
    Stores,
    /// Files, or a command of somebody else: the shell knows better.
    Elsewhere,
}

/// What can stand behind the words `before`, where `last` has been begun.
fn place(root: &Command, before: &[String], last: &str) -> Place {
    let mut command = root;
    let mut positional = 0;
    let mut value_of: Option<&Arg> = None;
    for word in before {
        if value_of.take().is_some() {
            continue;
        }
        if word == "--" {
            return Place::Elsewhere;
        }
        if word.starts_with('-') {
            value_of = flag(command, word).filter(|_| !word.contains('='));
        } else if let Some(next) = command.find_subcommand(word) {
            command = next;
        } else {
            positional += 1;
        }
    }
    if let Some(argument) = value_of {
        return values(argument);
    }
    if last.starts_with('-') {
        return Place::Words(flags(command));
    }
    if command.has_subcommands() {
        let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
        return Place::Words(visible.map(|command| command.get_name().to_owned()).collect());
    }
    let argument = command.get_positionals().nth(positional);
    argument.map_or(Place::Elsewhere, values)
}

/// The flag that a word is, if it takes a value.
fn flag<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let found = command.get_arguments().find(|argument| {
        let long = argument.get_long_and_visible_aliases().unwrap_or_default();
        long.iter().any(|long| format!("--{long}") == word)
            || argument.get_short().is_some_and(|short| format!("-{short}") == word)
    });
    found.filter(|argument| matches!(argument.get_action(), ArgAction::Set | ArgAction::Append))
}

fn flags(command: &Command) -> Vec<String> {
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    shown.filter_map(|argument| Some(format!("--{}", argument.get_long()?))).collect()
}

fn values(argument: &Arg) -> Place {
    let name =
        argument.get_value_names().and_then(|names| names.first()).map_or("", |n| n.as_str());
    match name {
        name if argument.is_positional() && (name.starts_with("NAME") || name == "PREFIX") => {
            Place::Locks
        }
        "URL|NAME" => Place::Stores,
        "COMMAND" if argument.get_num_args().is_none_or(|count| count.max_values() == 1) => {
            let root = Cli::command();
            Place::Words(root.get_subcommands().map(|c| c.get_name().to_owned()).collect())
        }
        _ => {
            let values = argument.get_possible_values();
            Place::Words(values.iter().map(|value| value.get_name().to_owned()).collect())
        }
    }
}

/// The locks that are there; of several names with commas, the last goes on.
fn locks(context: &Context, last: &str) -> Vec<String> {
    let before = last.rfind(',').map_or("", |comma| &last[..=comma]);
    let prefix = &last[before.len()..];
    // Whoever presses a key has asked for nothing to be contacted.
    if !context.settings.project.may_be_contacted() {
        return Vec::new();
    }
    let Ok(opened) = Opened::open(&context.settings) else { return Vec::new() };
    let found = context.block_on(async { ls::read(&opened, Some(prefix)).await });
    let mut found = found.unwrap_or_default();
    slot::hide(&mut found);
    found.iter().map(|lock| format!("{before}{}", lock.name)).collect()
}

/// The stores that have a name, and how the URLs of others begin.
fn stores(context: &Context) -> Vec<String> {
    let named = context.settings.stores.keys().cloned();
    named.chain(sprag::stores().iter().map(|kind| format!("{}:", kind.scheme))).collect()
}
