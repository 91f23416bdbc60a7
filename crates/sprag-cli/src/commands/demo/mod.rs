//! `sprag demo`: four claims, tried out on this machine with real processes.

mod resource;
mod stage;

use std::path::PathBuf;

use serde_json::{Value, json};

use self::stage::Stage;
use super::Outcome;
use crate::args::Step;
use crate::code::Code;
use crate::config::Origin;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::time;

/// What one scene showed.
struct Scene {
    name: &'static str,
    /// What was seen, with its numbers.
    text: String,
    /// Whether it is as promised.
    kept: bool,
}

/// Plays all scenes; a promise that is not kept ends with a failure.
pub(crate) fn demo(context: &Context) -> Outcome {
    let folder = Folder::make()?;
    let begun = time::now();
    // Nobody wants the locks of a demonstration among the real ones, unless they ask for it.
    let url = match context.settings.store.origin {
        Origin::Default => format!("sqlite:{}", folder.0.join("locks.db").display()),
        _ => context.settings.store.value.clone(),
    };
    let stage = Stage::new(&context.settings, url, folder.0.clone())?;
    let mut scenes = Vec::new();
    context.block_on(async {
        for number in 1..=4 {
            let scene = match number {
                1 => stage.without_lock()?,
                2 => stage.with_lock()?,
                3 => stage.killed().await?,
                _ => stage.frozen().await?,
            };
            if !context.output.json {
                let mark = if scene.kept { "" } else { "   <== NOT AS PROMISED" };
                let (name, text) = (scene.name, &scene.text);
                context.output.line(&format!("[{number}/4] {name}: {text}{mark}"));
            }
            scenes.push(scene);
        }
        Ok(())
    })?;
    let took = time::ago(begun);
    if context.output.json {
        let claims: Vec<Value> = scenes
            .iter()
            .map(|scene| json!({"claim": scene.name, "seen": scene.text, "kept": scene.kept}))
            .collect();
        context.output.answer(json!({"claims": claims, "store": stage.shown()}));
    } else {
        let (shown, took) = (stage.shown(), time::span(took));
        context.output.line(&format!("store: {shown}, {took}; try your own: sprag demo -S URL"));
    }
    match scenes.iter().find(|scene| !scene.kept) {
        None => Ok(Exit::OK),
        Some(broken) => {
            let message = format!("{}: {}", broken.name, broken.text);
            Err(Failure::new(Code::Claim, message))
        }
    }
}

/// What a process of the demonstration does.
pub(crate) fn step(step: &Step) -> Outcome {
    let failed = |error: std::io::Error| Failure::new(Code::Bug, format!("demo: {error}"));
    match step {
        Step::Add { file, times } => {
            resource::add(file, *times).map_err(failed)?;
            Ok(Exit::OK)
        }
        Step::Look { pid } => Ok(if resource::is_there(*pid) { Exit::NO } else { Exit::OK }),
        Step::Write { file, token } => {
            resource::wait_for_a_line().map_err(failed)?;
            let written = resource::write(file, *token).map_err(failed)?;
            Ok(if written { Exit::OK } else { Exit::DENIED })
        }
    }
}

/// A folder that goes when the demonstration ends.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self, Failure> {
        let name = format!("sprag-demo-{}-{}", std::process::id(), time::now());
        let folder = std::env::temp_dir().join(name);
        match std::fs::create_dir(&folder) {
            Ok(()) => Ok(Self(folder)),
            Err(error) => {
                let what = format!("cannot make {}: {error}", folder.display());
                Err(Failure::new(Code::Refused, what))
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is in the directory for temporary files.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
