//! The commands. One file each.

mod acquire;
mod aftermath;
mod breaking;
mod check;
mod completions;
mod config;
mod demo;
mod doctor;
mod explain;
mod history;
mod log;
mod ls;
mod man;
mod release;
mod renew;
mod show;
mod stores;
mod suggest;
mod system;
mod watch;
mod why;
mod work;

use std::io::IsTerminal;
use std::path::Path;

use crate::args::{Cli, Command, Global};
use crate::config::{Origin, Settings, environment, slips};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::output::style::{Colour, Style};
use crate::surroundings::surroundings;
use crate::{run, store, warnings};

/// How a command ends.
pub(crate) type Outcome = Result<Exit, Failure>;

/// Does what was asked for; says what could not be done.
pub(crate) fn dispatch(cli: Cli) -> Exit {
    let Cli { global, command } = cli;
    let settings = Settings::load(&global);
    let colour = settings.as_ref().map_or(Colour::Auto, |settings| settings.color.value);
    let output = output(&global, colour);
    warnings::say_them(output);
    warn(&global, &command, &output);
    if let Command::Config(args) = &command
        && let Some(outcome) = config::change(args, &output)
    {
        return outcome.unwrap_or_else(|failure| failure.print(&output));
    }
    let outcome = settings.and_then(|settings| {
        check_trust(&command, &settings)?;
        if let Some(unused) = settings.project.unused()
            && !matches!(command, Command::Complete(_) | Command::DemoStep(_))
        {
            warnings::say(&output, &unused);
        }
        if takes_locks(&command) && settings.store.value.starts_with("memory:") {
            let text = "memory: is a store for this process alone: nobody else sees its locks";
            warnings::say(&output, text);
        }
        if takes_locks(&command) && settings.store.origin == Origin::Default {
            warn_of_surroundings(&output);
        }
        if output.verbose {
            let (shown, origin) = (store::shown(&settings), &settings.store.origin);
            output.note(&format!("the store is {shown} (from {origin})"));
        }
        let (config, no_input) = (global.config.clone(), global.no_input);
        let context = Context { settings, output, config, no_input };
        act(command, &context)
    });
    outcome.unwrap_or_else(|failure| {
        failure.on_store(global.named_store().map(|(url, _)| url)).print(&output)
    })
}

const fn takes_locks(command: &Command) -> bool {
    matches!(command, Command::Run(_) | Command::Acquire(_))
}

/// Says that a store that nobody has named is seen by few.
fn warn_of_surroundings(output: &Output) {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    if let Some(here) = surroundings(environment, read) {
        let text = format!(
            "no store is named, so this lock is in a file of this {here} and seen by nobody outside of \
             it: set SPRAG_STORE to a store that all reach, such as redis://HOST, or to sqlite: if that \
             is what you want"
        );
        warnings::say(output, &text);
    }
}

/// Refuses what a file of a project may not decide before the user trusts it.
fn check_trust(command: &Command, settings: &Settings) -> Result<(), Failure> {
    let project = &settings.project;
    match command {
        Command::Config(_)
        | Command::Explain(_)
        | Command::Completions(_)
        | Command::Complete(_)
        | Command::Man(_)
        | Command::Stores(_)
        | Command::DemoStep(_) => Ok(()),
        Command::Work(_) => project.check_work(),
        Command::Run(_) | Command::Acquire(_) => {
            project.check_store().and_then(|()| project.check_reason())
        }
        _ => project.check_store(),
    }
}

/// Says what was set and does nothing: whoever set it believes that the locks are elsewhere.
fn warn(global: &Global, command: &Command, output: &Output) {
    // Of a shell that completes a word, or of a step of a demo.
    if matches!(command, Command::Complete(_) | Command::DemoStep(_)) {
        return;
    }
    for (slip, meant) in slips(std::env::vars_os()) {
        warnings::say(output, &format!("{slip} is no variable of sprag: did you mean {meant}?"));
    }
    if global.named_store().is_some() && matches!(command, Command::Work(_)) {
        let text = "--store changes nothing here: claims are locks on the remote of the items";
        warnings::say(output, text);
    }
}

fn act(command: Command, context: &Context) -> Outcome {
    match command {
        Command::Run(args) => run::main(&args, context),
        Command::Acquire(args) => acquire::acquire(&args, context),
        Command::Renew(args) => renew::renew(&args, context),
        Command::Release(args) => release::release(&args, context),
        Command::Check(args) => check::check(&args, context),
        Command::Ls(args) => ls::list(&args, context),
        Command::Show(args) => show::show(&args, context),
        Command::Why(args) => why::why(&args, context),
        Command::Break(args) => breaking::break_lock(&args, context),
        Command::Log(args) => log::show(&args, context),
        Command::Work(args) => work::work(&args, context),
        Command::Stores(args) if args.make_system => system::make(&args.group, context),
        Command::Stores(args) => stores::show(&args, context),
        Command::Doctor(args) => doctor::examine(&args, context),
        Command::Demo(_) => demo::demo(context),
        Command::Config(args) => config::show(&args, context),
        Command::Completions(args) => completions::script(&args, context),
        Command::Man(args) => man::show(&args, context),
        Command::Explain(args) => explain::explain(&args, context),
        Command::Complete(args) => completions::complete(&args, context),
        Command::DemoStep(args) => demo::step(&args.step),
    }
}

fn output(global: &Global, colour: Colour) -> Output {
    let style = |terminal: bool| Style::new(colour, terminal, environment);
    Output {
        json: global.json,
        quiet: global.quiet,
        verbose: global.verbose,
        out: style(std::io::stdout().is_terminal()),
        err: style(std::io::stderr().is_terminal()),
    }
}
