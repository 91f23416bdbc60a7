//! `sprag work done`.

use sprag_work::Outcome as Goal;

use super::{Outcome, finish, item_here, open};
use crate::args::work::Done;
use crate::context::Context;

/// Merges the work on an item.
pub(super) fn done(args: &Done, context: &Context) -> Outcome {
    let source = open(context)?;
    let item = item_here(args.item.as_deref(), &*source)?;
    let claim = source.reopen(&item)?;
    finish(claim, Goal::Done { category: args.category.clone() }, context)
}
