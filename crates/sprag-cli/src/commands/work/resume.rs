//! `sprag work resume`.

use sprag_work::{How, Outcome as Goal};

use super::{Outcome, finish, open};
use crate::args::work::Resume;
use crate::context::Context;

/// Brings an item back.
pub(super) fn resume(args: &Resume, context: &Context) -> Outcome {
    let source = open(context)?;
    let claim = source.claim_named(&args.item, &How::default())?;
    finish(claim, Goal::Resumed { category: args.category.clone() }, context)
}
