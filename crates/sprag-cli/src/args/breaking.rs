//! `sprag break`.

use clap::Args;
use sprag::{Fence, LockName};

use super::value;

/// Take a lock away from its holder, who is told
#[derive(Args, Debug)]
pub(crate) struct Break {
    /// The lock
    #[arg(value_name = "NAME", value_parser = value::lock_name)]
    pub(crate) name: LockName,
    /// The holder's token, as `sprag show` tells it: a later holder is not touched
    #[arg(long, value_name = "N", value_parser = token)]
    pub(crate) token: Fence,
    /// Why; the holder and the log are told
    #[arg(short = 'm', long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Break it although its lease is alive
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

fn token(text: &str) -> Result<Fence, String> {
    let number = text.parse::<u64>().ok().and_then(Fence::new);
    number.ok_or_else(|| "a token is a whole number below 2^53".to_owned())
}
