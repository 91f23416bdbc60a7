//! How long a locked issue is waited for: 1 s, 2 s, 4 s, 8 s, 16 s, and then no more.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use sprag_core::policy::RetryConfig;
use sprag_github::LockManagerConfig;

fn main() {
    println!("{:?}", run(&LockManagerConfig::default()));
}

/// The pauses between the attempts.
pub(crate) fn run(config: &LockManagerConfig) -> Vec<Duration> {
    let retries = RetryConfig {
        max_attempts: config.max_retries + 1,
        initial_delay: Duration::from_millis(config.initial_backoff_ms),
        max_delay: Duration::from_millis(config.max_backoff_ms),
        backoff_multiplier: 2.0,
    };
    (1..=config.max_retries).filter_map(|attempt| retries.delay(attempt)).collect()
}
