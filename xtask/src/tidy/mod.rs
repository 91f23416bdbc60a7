//! `cargo xtask tidy`: what no compiler checks. Each check is pure: files in, findings out.

#![expect(clippy::print_stdout, reason = "findings are for people")]

mod files;
mod links;
mod manifests;
mod text;

use std::fmt;

use crate::failure::{Failure, Outcome};
use crate::shell::Shell;
use files::Files;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// Counted from 1; 0 if it is about the whole file.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Runs all checks over the files of the project and prints what they find.
pub(crate) fn run(shell: &Shell) -> Outcome {
    let files = Files::of(shell)?;
    let findings = check(&files);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("{} files are tidy", files.len());
            Ok(())
        }
        1 => Err(Failure::failed("1 thing is untidy")),
        many => Err(Failure::failed(format!("{many} things are untidy"))),
    }
}

fn check(files: &Files) -> Vec<Finding> {
    let mut findings = Vec::new();
    text::check(files, &mut findings);
    links::check(files, &mut findings);
    manifests::check(files, &mut findings);
    findings.sort();
    findings
}
