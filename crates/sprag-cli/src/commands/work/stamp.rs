//! `sprag work stamp`.

use sprag_work::{Claimed, How, Outcome as Goal, Source, Wanted};

use super::{Outcome, open_git, say};
use crate::args::work::Stamp;
use crate::code::Code;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Gives items their stamps.
pub(super) fn stamp(args: &Stamp, context: &Context) -> Outcome {
    let source = open_git(context)?;
    let steps = source.flow().steps().iter().filter(|step| step.stamps);
    let states: Vec<_> = steps.map(|step| step.from.clone()).collect();
    if states.is_empty() {
        return Err(Failure::new(Code::Usage, "no step of this flow gives stamps"));
    }
    let ready = source.ready(&Wanted { states, ..Wanted::default() })?;
    let named = |name: &str| args.items.is_empty() || args.items.iter().any(|item| item == name);
    let mut stamped = 0;
    for item in ready.items.iter().filter(|item| named(item.name.as_str())) {
        match source.claim(item, &How::default())? {
            Claimed::Won(claim) => {
                say(&claim.finish(Goal::Done { category: None })?, context);
                stamped += 1;
            }
            Claimed::Passed(why) => context.output.note(&format!("skipped: {} ({why})", item.name)),
        }
    }
    for skipped in ready.skipped.iter().filter(|skipped| named(&skipped.item)) {
        context.output.note(&format!("skipped: {skipped}"));
    }
    if stamped == 0 && !args.items.is_empty() {
        let message = "none of them could be stamped";
        return Err(Failure::new(Code::NoItem, message).hint("see all", "sprag work ls"));
    }
    Ok(Exit::OK)
}
