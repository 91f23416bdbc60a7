//! `sprag work advance`.

use sprag_work::{ErrorKind, How, Outcome as Goal};

use super::{Outcome, finish, open};
use crate::args::work::Advance;
use crate::context::Context;

/// Moves an item on.
pub(super) fn advance(args: &Advance, context: &Context) -> Outcome {
    let source = open(context)?;
    let claim = match source.reopen(&args.item) {
        Err(error) if error.kind() == ErrorKind::NotClaimed => {
            source.claim_named(&args.item, &How::default())?
        }
        claim => claim?,
    };
    finish(claim, Goal::Done { category: args.category.clone() }, context)
}
