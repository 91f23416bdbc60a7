//! `sprag work advance`.

use sprag_work::{ErrorKind, How, Outcome as Goal};

use super::{Outcome, finish, open_git};
use crate::args::work::Advance;
use crate::context::Context;

/// Moves an item on.
pub(super) fn advance(args: &Advance, context: &Context) -> Outcome {
    let source = open_git(context)?;
    let claim = match source.reopen(&args.item) {
        Err(error) if error.kind() == ErrorKind::NotClaimed => {
            source.claim_named(&args.item, &How::default())?
        }
        claim => claim?,
    };
    finish(Box::new(claim), Goal::Done { category: args.category.clone() }, context)
}
