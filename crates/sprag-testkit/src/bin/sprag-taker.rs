//! Takes locks and gets killed: the other process in every test that needs one.
//!
//! Obeys commands, one line of JSON each; see `sprag_testkit::process`. With `--loop` it takes
//! and gives back locks until its input ends.

use std::process::ExitCode;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    sprag_testkit::process::taker_main(std::env::args().skip(1).collect()).await
}
