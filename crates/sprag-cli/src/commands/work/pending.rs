//! `sprag work pending`.

use sprag_work::{ErrorKind, How, Outcome as Goal, Purpose};

use super::{Outcome, finish, open_git};
use crate::args::work::Pending;
use crate::context::Context;

/// Sets an item aside.
pub(super) fn pending(args: &Pending, context: &Context) -> Outcome {
    let source = open_git(context)?;
    let claim = match source.reopen(&args.item) {
        Err(error) if error.kind() == ErrorKind::NotClaimed => {
            let how = How { purpose: Purpose::Pend, ..How::default() };
            source.claim_named(&args.item, &how)?
        }
        claim => claim?,
    };
    finish(Box::new(claim), Goal::Pending { question: args.message.clone() }, context)
}
