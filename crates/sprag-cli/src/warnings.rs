//! What is wrong beside the lock, such as on the issue that shows it, said on stderr.

use std::fmt::Debug;

use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::output::{Output, with_schema};

/// Who has something to say that no answer and no error says.
const TARGET: &str = "sprag::github";

/// Says warnings from now on.
pub(crate) fn say_them(output: Output) {
    // There is one process and one call, so nobody was faster.
    drop(tracing::subscriber::set_global_default(Warnings(output)));
}

/// Says one, unless it is to be quiet.
pub(crate) fn say(output: &Output, text: &str) {
    if output.quiet {
        return;
    }
    if output.json {
        output.error_line(&with_schema(json!({"warning": text})).to_string());
    } else {
        output.error_line(&format!("{} {text}", output.err.warn("warning:")));
    }
}

struct Warnings(Output);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN && metadata.target() == TARGET
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let output = &self.0;
        let mut text = Text::default();
        event.record(&mut text);
        say(output, &text.finish());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message, with what it is about before it and why behind it.
#[derive(Default)]
struct Text {
    message: String,
    issue: Option<u64>,
    rest: String,
}

impl Text {
    fn finish(self) -> String {
        let issue = self.issue.map(|issue| format!("issue {issue}: ")).unwrap_or_default();
        format!("{issue}{}{}", self.message, self.rest)
    }
}

impl Visit for Text {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "issue" => self.issue = Some(value),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message.push_str(&format!("{value:?}")),
            _ => self.rest.push_str(&format!(": {value:?}")),
        }
    }
}
