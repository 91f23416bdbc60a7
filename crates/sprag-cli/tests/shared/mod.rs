//! What the tests of work items in git and on GitHub have in common.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use sprag::clock::{BootClock, Clock};

/// How long something may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

/// Waits until a file is there.
#[track_caller]
pub(crate) fn wait_for(path: &Path) {
    wait_until(|| path.exists(), &path.display().to_string());
}

#[track_caller]
pub(crate) fn wait_until(mut reached: impl FnMut() -> bool, what: &str) {
    let left = || if reached() { Vec::new() } else { vec![what.to_owned()] };
    wait_for_none(left, "it comes", LIMIT);
}

/// Waits until nothing is left of what is in the way of something.
#[track_caller]
pub(crate) fn wait_for_none(mut left: impl FnMut() -> Vec<String>, what: &str, patience: Duration) {
    let limit = BootClock.now().plus(patience);
    loop {
        let left = left();
        if left.is_empty() {
            return;
        }
        assert!(BootClock.now() < limit, "{left:?} is in the way of this: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}
