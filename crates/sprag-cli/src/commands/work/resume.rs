//! `sprag work resume`.

use sprag_work::{How, Outcome as Goal};

use super::{Outcome, finish, open_git};
use crate::args::work::Resume;
use crate::context::Context;

/// Brings an item back.
pub(super) fn resume(args: &Resume, context: &Context) -> Outcome {
    let source = open_git(context)?;
    let claim = source.claim_named(&args.item, &How::default())?;
    finish(Box::new(claim), Goal::Resumed { category: args.category.clone() }, context)
}
