//! [`Output`]: how commands answer, as text or as JSON, with or without colour.

pub(crate) mod plain;
pub(crate) mod style;
pub(crate) mod table;
pub(crate) mod time;
pub(crate) mod view;

use std::io::{self, ErrorKind, IsTerminal, Write};

use serde_json::{Value, json};

use self::style::Style;
use crate::code::Code;
use crate::failure::Failure;

/// The version of the form of all JSON answers; grows when a field changes its meaning or goes.
pub(crate) const SCHEMA: u32 = 1;

/// How to answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Answers and errors are JSON.
    pub(crate) json: bool,
    /// Nothing but answers and errors.
    pub(crate) quiet: bool,
    /// More than usual.
    pub(crate) verbose: bool,
    /// The style of stdout.
    pub(crate) out: Style,
    /// The style of stderr.
    pub(crate) err: Style,
}

impl Output {
    /// Prints one answer on stdout.
    pub(crate) fn line(&self, text: &str) {
        match self.try_line(text) {
            Ok(()) => {}
            // A reader that went away, such as `head`, has read enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
            Err(error) => {
                let failure =
                    Failure::new(Code::System, format!("cannot write to stdout: {error}"));
                std::process::exit(failure.print(self).number().into());
            }
        }
    }

    /// As `line`, where it matters whether somebody was told.
    pub(crate) fn try_line(&self, text: &str) -> io::Result<()> {
        self.write(io::stdout().lock(), text)
    }

    /// Empties the terminal of stdout.
    pub(crate) fn clear(&self) {
        let mut stdout = io::stdout().lock();
        // Who went away is noticed with the next line.
        drop(stdout.write_all(b"\x1b[H\x1b[2J\n").and_then(|()| stdout.flush()));
    }

    /// Prints a JSON answer on one line, with the schema first.
    pub(crate) fn answer(&self, fields: Value) {
        self.line(&with_schema(fields).to_string());
    }

    /// Prints one line on stderr, whatever the settings.
    pub(crate) fn error_line(&self, text: &str) {
        // Nobody to tell it to that it could not be told; and whoever closed stderr must not make
        // a command end that holds a lock.
        drop(self.write(io::stderr().lock(), text));
    }

    /// Says on stderr what goes on, unless it is to be quiet.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet && !self.json {
            self.error_line(&format!("sprag: {}", plain::paragraph(text)));
        }
    }

    fn write(&self, mut to: impl Write, text: &str) -> io::Result<()> {
        let text = if self.json { plain::json(text) } else { plain::terminal(text) };
        to.write_all(text.as_bytes())?;
        to.write_all(b"\n")?;
        to.flush()
    }

    /// Whether stdout is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }
}

/// Adds the schema to an answer.
pub(crate) fn with_schema(fields: Value) -> Value {
    let mut answer = json!({"schema": SCHEMA});
    if let (Value::Object(answer), Value::Object(fields)) = (&mut answer, fields) {
        answer.extend(fields);
    }
    answer
}
