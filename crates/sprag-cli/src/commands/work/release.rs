//! `sprag work release`.

use sprag_work::Outcome as Goal;

use super::{Outcome, finish, item_here, open};
use crate::args::work::Release;
use crate::context::Context;

/// Gives a claim back.
pub(super) fn release(args: &Release, context: &Context) -> Outcome {
    let source = open(context)?;
    let item = item_here(args.item.as_deref(), &*source)?;
    finish(source.reopen(&item)?, Goal::Released, context)
}
