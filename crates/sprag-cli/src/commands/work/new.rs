//! `sprag work new`.

use serde_json::json;
use sprag_work::{ItemName, NewItem};

use super::{Outcome, open_git};
use crate::args::work::New;
use crate::context::Context;
use crate::exit::Exit;

/// Makes an item.
pub(super) fn new(args: &New, context: &Context) -> Outcome {
    // Before anything is asked of the remote.
    let name = ItemName::new(args.name.as_str())?;
    let source = open_git(context)?;
    let new = NewItem { name, text: args.message.clone(), priority: args.priority };
    let place = source.create(&new)?;
    let path = place.path(source.root(), &new.name);
    match context.output.json {
        true => context.output.answer(json!({
            "changed": true,
            "item": new.name.as_str(),
            "state": place.state.as_str(),
            "path": path,
        })),
        false => context.output.line(&format!("made {} in {path}", new.name)),
    }
    Ok(Exit::OK)
}
