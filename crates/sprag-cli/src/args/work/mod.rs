//! `sprag work`. One file per verb.

mod advance;
mod board;
mod claim;
mod done;
mod init;
mod ls;
mod new;
mod next;
mod pending;
mod recover;
mod release;
mod resume;
mod run;
mod stamp;
mod stats;

use clap::{Args, Subcommand};

pub(crate) use self::advance::Advance;
pub(crate) use self::board::Board;
pub(crate) use self::claim::Claim;
pub(crate) use self::done::Done;
pub(crate) use self::init::Init;
pub(crate) use self::ls::Ls;
pub(crate) use self::new::New;
pub(crate) use self::next::{Next, Taking};
pub(crate) use self::pending::Pending;
pub(crate) use self::recover::Recover;
pub(crate) use self::release::Release;
pub(crate) use self::resume::Resume;
pub(crate) use self::run::Run;
pub(crate) use self::stamp::Stamp;
pub(crate) use self::stats::Stats;

/// Work items in a git repository, or issues on GitHub: each is claimed by one worker at a time
///
/// Items are folders below docs/work on the main branch of the remote. A claim is a lock on the
/// remote and a branch that people see. The files, the index and the branch of the repository that
/// you stand in are never touched. With source = "github" below [work] in sprag.toml items are the
/// open issues of a repository.
#[derive(Args, Debug)]
pub(crate) struct Work {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do with items.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Init(Init),
    New(New),
    Stamp(Stamp),
    Ls(Ls),
    Next(Next),
    Run(Run),
    Claim(Claim),
    Advance(Advance),
    Pending(Pending),
    Resume(Resume),
    Done(Done),
    Release(Release),
    Recover(Recover),
    Board(Board),
    Stats(Stats),
}
