//! `sprag work next`: one item, one command, one claim.

use std::time::Duration;

use sprag_work::{Claim, ErrorKind, How, ItemName, Items, Outcome as Goal, Skipped, Wanted};

use super::claim::{kept_for, say as say_claimed, text};
use super::{Outcome, open, say, say_leftovers};
use crate::args::work::{Next, Taking};
use crate::code::Code;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::identity;
use crate::run::plan::Plan;
use crate::run::under::{Ran, Reins, Under};

/// Claims the next item, or one after the other.
pub(super) fn next(args: &Next, context: &Context) -> Outcome {
    // Before there are threads.
    let reins = if args.command.is_empty() { None } else { Some(Reins::take()?) };
    let source = open(context)?;
    let wanted = wanted(&args.taking, &*source)?;
    let how = How { worktree: args.taking.worktree, ..How::default() };
    let Some(reins) = reins else { return keep(&*source, &wanted, &how, context) };
    let mut turns = Turns { args, context, source: &*source, reins: &reins, wanted, how };
    let first = turns.turn()?;
    if !args.drain && args.taking.every.is_none() {
        return match first {
            Turn::Worked(exit) => Ok(exit),
            Turn::Interrupted(exit) => Ok(exit),
            Turn::Idle => Err(nothing()),
        };
    }
    turns.drain(first)
}

/// Which items are wanted.
fn wanted(taking: &Taking, source: &dyn Items) -> Result<Wanted, Failure> {
    let states = taking.states.iter().map(|state| source.state(state));
    Ok(Wanted { states: states.collect::<sprag_work::Result<_>>()?, without: Vec::new() })
}

/// Claims the next item and leaves it claimed.
fn keep(source: &dyn Items, wanted: &Wanted, how: &How, context: &Context) -> Outcome {
    let ttl = kept_for(None, context)?;
    let how = How { ttl: Some(ttl), ..how.clone() };
    let (claim, skipped) = sprag_work::next(source, wanted, &how)?;
    say_skipped(&skipped, context);
    let Some(claim) = claim else { return Err(nothing()) };
    say_claimed(&claim.keep(ttl)?, context);
    Ok(Exit::OK)
}

fn nothing() -> Failure {
    Failure::new(Code::NoItem, "there is nothing to claim").hint("see all", "sprag work board")
}

fn say_skipped(skipped: &[Skipped], context: &Context) {
    if !skipped.is_empty() {
        let all: Vec<_> = skipped.iter().map(ToString::to_string).collect();
        context.output.note(&format!("skipped: {}", all.join(", ")));
    }
}

/// What came of one turn.
enum Turn {
    /// The command ran; how it ended.
    Worked(Exit),
    /// A signal came.
    Interrupted(Exit),
    Idle,
}

struct Turns<'a> {
    args: &'a Next,
    context: &'a Context,
    source: &'a dyn Items,
    reins: &'a Reins,
    wanted: Wanted,
    how: How,
}

impl Turns<'_> {
    /// Works until nothing is left, or for ever.
    fn drain(&mut self, first: Turn) -> Outcome {
        let (mut turn, mut worst) = (first, Exit::OK);
        loop {
            match turn {
                Turn::Interrupted(exit) => return Ok(exit),
                Turn::Worked(exit) if exit != Exit::OK => worst = exit,
                Turn::Worked(_) => {}
                Turn::Idle => match self.args.taking.every {
                    None => return Ok(worst),
                    Some(every) => {
                        if let Some(exit) = self.rest(every) {
                            return Ok(exit);
                        }
                        // Others may have put right what went wrong here.
                        self.wanted.without.clear();
                    }
                },
            }
            let avoided = self.wanted.without.len();
            turn = match self.turn() {
                Ok(turn) => turn,
                Err(failure) => {
                    let passes = matches!(failure.code(), Code::Unavailable | Code::RateLimited);
                    worst = failure.print(&self.context.output);
                    // Where nothing was claimed, to ask again at once would only fail again.
                    let claimed = self.wanted.without.len() > avoided;
                    if claimed && !passes { Turn::Worked(worst) } else { Turn::Idle }
                }
            };
        }
    }

    /// Waits, unless a signal says to end.
    fn rest(&self, span: Duration) -> Option<Exit> {
        const LOOK: Duration = Duration::from_millis(200);
        let mut left = span;
        loop {
            if let Some(exit) = self.reins.pulled() {
                return Some(exit);
            }
            if left.is_zero() {
                return None;
            }
            std::thread::park_timeout(left.min(LOOK));
            left = left.saturating_sub(LOOK);
        }
    }

    fn turn(&mut self) -> Result<Turn, Failure> {
        if let Some(exit) = self.reins.pulled() {
            return Ok(Turn::Interrupted(exit));
        }
        let (claim, skipped) = sprag_work::next(self.source, &self.wanted, &self.how)?;
        say_skipped(&skipped, self.context);
        let Some(claim) = claim else { return Ok(Turn::Idle) };
        let name = claim.task().item.name.clone();
        let worked = self.work(claim);
        if !matches!(worked, Ok((Turn::Worked(Exit::OK), Moved::On))) {
            self.avoid(name);
        }
        worked.map(|(turn, _)| turn)
    }

    fn avoid(&mut self, item: ItemName) {
        self.wanted.without.push(item);
    }

    /// Runs the command on an item, and lets go of it.
    fn work(&self, claim: Box<dyn Claim>) -> Result<(Turn, Moved), Failure> {
        let task = claim.task().clone();
        say_leftovers(&task.leftovers, self.context);
        self.context.output.note(&text(&task));
        let holder = identity::holder(&self.context.settings).worker_id;
        let ran = match claim.guard() {
            None => Ok(Ran::Lost),
            Some(guard) => {
                let store = self.source.shown();
                let command = self.args.command.clone();
                let name = guard.name().clone();
                let plan = Plan::under(name, command, store, guard.ttl(), self.context);
                let under = Under {
                    plan: &plan,
                    guard,
                    holder: &holder,
                    directory: &task.directory,
                    variables: task.variables(),
                    lifeline: claim.lifeline(),
                };
                under.run(self.reins, self.context)
            }
        };
        let failed = |why: String| Goal::Failed { why };
        let goal = match &ran {
            Ok(Ran::Ended(Exit::OK)) => Goal::Done { category: self.args.taking.category.clone() },
            Ok(Ran::Ended(exit)) if ended_by_signal(*exit) => Goal::Released,
            Ok(Ran::Ended(exit)) => failed(format!("the command ended with {}", exit.number())),
            Ok(Ran::Interrupted(_)) => Goal::Released,
            Ok(Ran::Lost) => failed("the claim was lost".to_owned()),
            Err(failure) => failed(failure.message().to_owned()),
        };
        match (ran, claim.finish(goal)) {
            (Err(failure), finished) => {
                finished?;
                Err(failure)
            }
            (Ok(Ran::Lost), Err(error)) if error.kind() == ErrorKind::Lost => {
                Ok((Turn::Worked(Exit::LOST), Moved::Not))
            }
            (Ok(Ran::Lost), Err(error)) => Err(Failure::from(error).exiting(Exit::LOST)),
            (Ok(ran), finished) => {
                let finished = finished?;
                say(&finished, self.context);
                let moved = if finished.from == finished.to { Moved::Not } else { Moved::On };
                let turn = match ran {
                    Ran::Ended(exit) => Turn::Worked(exit),
                    Ran::Interrupted(exit) => Turn::Interrupted(exit),
                    Ran::Lost => Turn::Worked(Exit::LOST),
                };
                Ok((turn, moved))
            }
        }
    }
}

/// Whether an item is not where it was.
enum Moved {
    On,
    Not,
}

/// Whether a command was asked to end: that is no failure of its item.
fn ended_by_signal(exit: Exit) -> bool {
    const HANGUP: u8 = 1;
    const INTERRUPT: u8 = 2;
    const TERMINATE: u8 = 15;
    [HANGUP, INTERRUPT, TERMINATE].map(Exit::signal).contains(&exit)
}
