//! `sprag work init`.

use serde_json::json;

use super::{Outcome, open_git};
use crate::args::work::Init;
use crate::context::Context;
use crate::exit::Exit;

/// Makes the folder of items.
pub(super) fn init(args: &Init, context: &Context) -> Outcome {
    let source = open_git(context)?;
    let output = &context.output;
    if args.dry_run {
        match output.json {
            true => output.answer(json!({"changed": false, "page": source.page()})),
            false => output.line(source.page().trim_end()),
        }
        return Ok(Exit::OK);
    }
    let made = source.init()?;
    let (root, main) = (source.root(), source.repo().main());
    if output.json {
        output.answer(json!({"changed": made, "root": root, "main": main}));
    } else if made {
        output.line(&format!("made {root}/README.md on {main}"));
    } else {
        output.line(&format!("{root} is on {main} already"));
    }
    Ok(Exit::OK)
}
