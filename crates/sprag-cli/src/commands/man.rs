//! `sprag man`: manual pages, made of the same description as the help.

use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use serde_json::json;

use super::Outcome;
use crate::args::{Cli, Man};
use crate::code::Code;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::nearest::nearest;

/// Prints one page or writes all of them.
pub(crate) fn show(args: &Man, context: &Context) -> Outcome {
    let pages = pages();
    if let Some(folder) = &args.directory {
        for page in &pages {
            write(folder, page).map_err(|error| {
                let what = format!("cannot write into {}: {error}", folder.display());
                Failure::new(Code::Usage, what)
            })?;
        }
        let count = pages.len();
        if context.output.json {
            let names: Vec<_> = pages.iter().map(file_name).collect();
            context.output.answer(json!({"changed": true, "pages": names}));
        } else if !context.output.quiet {
            context.output.line(&format!("wrote {count} pages into {}", folder.display()));
        }
        return Ok(Exit::OK);
    }
    let wanted = args.command.as_ref().map_or_else(|| "sprag".into(), |c| format!("sprag-{c}"));
    let Some(page) = pages.iter().find(|page| page.get_name() == wanted) else {
        let known = pages.iter().map(Command::get_name);
        let meant = nearest(&wanted, known).and_then(|name| name.strip_prefix("sprag-"));
        let meant = meant.map(|meant| format!("; did you mean {meant:?}?")).unwrap_or_default();
        let message = format!("there is no page {wanted:?}{meant}");
        return Err(Failure::new(Code::Unknown, message).hint("see the commands", "sprag help"));
    };
    let text = render(page).map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
    if context.output.json {
        context.output.answer(json!({"page": wanted, "roff": text}));
    } else {
        context.output.line(text.trim_end());
    }
    Ok(Exit::OK)
}

/// The page of sprag itself, and one for each command.
fn pages() -> Vec<Command> {
    let mut sprag = Cli::command();
    sprag.build();
    let mut pages = below("sprag", &sprag);
    pages.insert(0, sprag);
    pages
}

/// The pages of the commands of a command, and of theirs.
fn below(name: &str, command: &Command) -> Vec<Command> {
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let commands = commands.filter(|command| command.get_name() != "help");
    let pages = commands.flat_map(|command| {
        let name = format!("{name}-{}", command.get_name());
        let page = command.clone().name(name.clone()).display_name(name.clone());
        std::iter::once(page).chain(below(&name, command))
    });
    pages.collect()
}

fn file_name(page: &Command) -> String {
    format!("{}.1", page.get_name())
}

fn write(folder: &Path, page: &Command) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join(file_name(page)), render(page)?)
}

fn render(page: &Command) -> io::Result<String> {
    let mut roff = Vec::new();
    clap_mangen::Man::new(page.clone()).render(&mut roff)?;
    Ok(String::from_utf8_lossy(&roff).into_owned())
}
