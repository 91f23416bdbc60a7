//! How it ended, for programs: `--status-fd` and `SPRAG_RESULT_FILE`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use serde_json::json;

use crate::exit::Exit;
use crate::output::with_schema;

/// Where the outcome is written.
#[derive(Clone, Debug)]
pub(crate) struct Report(Vec<PathBuf>);

impl Report {
    pub(crate) fn new(descriptor: Option<u32>) -> Self {
        let mut places: Vec<PathBuf> = Vec::new();
        places.extend(descriptor.map(|number| format!("/proc/self/fd/{number}").into()));
        places.extend(std::env::var_os("SPRAG_RESULT_FILE").map(Into::into));
        Self(places)
    }

    /// Writes one line of JSON: what happened, and with which exit code.
    pub(crate) fn write(&self, outcome: &str, exit: Exit) {
        let line = with_schema(json!({"outcome": outcome, "code": exit.number()}));
        for place in &self.0 {
            let file = OpenOptions::new().append(true).create(true).open(place);
            // The exit code says it too.
            drop(file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())));
        }
    }
}
