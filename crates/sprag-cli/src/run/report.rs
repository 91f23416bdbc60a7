//! How it ended, for programs: `--status-fd` and `SPRAG_RESULT_FILE`.

use std::fs::{File, OpenOptions, metadata};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::code::Code;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::with_schema;

/// Where the outcome is written.
#[derive(Clone, Debug)]
pub(crate) struct Report(Vec<PathBuf>);

impl Report {
    /// Refuses what cannot be written to, before anything is done: nobody would hear of it later.
    pub(crate) fn new(descriptor: Option<u32>) -> Result<Self, Failure> {
        let mut places: Vec<PathBuf> = Vec::new();
        places.extend(descriptor.map(|number| format!("/proc/self/fd/{number}").into()));
        places.extend(std::env::var_os("SPRAG_RESULT_FILE").map(Into::into));
        for place in &places {
            // To open a pipe means to wait for its reader.
            let pipe = metadata(place).is_ok_and(|found| found.file_type().is_fifo());
            if let (false, Err(error)) = (pipe, open(place)) {
                let message =
                    format!("the outcome cannot be written to {}: {error}", place.display());
                return Err(Failure::new(Code::Usage, message));
            }
        }
        Ok(Self(places))
    }

    /// Writes one line of JSON: what happened, and with which exit code.
    pub(crate) fn write(&self, outcome: &str, exit: Exit) {
        let line = with_schema(json!({"outcome": outcome, "code": exit.number()}));
        for place in &self.0 {
            // The exit code says it too.
            drop(open(place).and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())));
        }
    }
}

fn open(place: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(place)
}
