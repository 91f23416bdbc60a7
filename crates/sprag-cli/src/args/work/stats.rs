//! `sprag work stats`.

use clap::Args;

/// Show how the work goes: claims, success rate, stale ones, throughput, contention
#[derive(Args, Debug)]
pub(crate) struct Stats {}
