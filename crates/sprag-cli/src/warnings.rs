//! What is wrong beside the lock, such as on the issue that shows it, said on stderr.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

use serde_json::json;
use sprag::store;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::output::plain::paragraph;
use crate::output::{Output, with_schema};

/// Who has something to say that no answer and no error says.
const TARGET: &str = "sprag::github";

/// The names of the records that a store has left out of a list because they cannot be read.
static LEFT_OUT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The names of the records that were left out of lists since this was last asked.
pub(crate) fn left_out() -> BTreeSet<String> {
    std::mem::take(&mut *LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner))
}

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
        output.error_line(&format!("{} {}", output.err.warn("warning:"), paragraph(text)));
    }
}

struct Warnings(Output);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let known = [TARGET, store::LEFT_OUT].contains(&metadata.target());
        metadata.is_event() && *metadata.level() <= Level::WARN && known
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let output = &self.0;
        let mut text = Text::default();
        event.record(&mut text);
        if event.metadata().target() == store::LEFT_OUT {
            let lock = text.lock.unwrap_or_else(|| "?".to_owned());
            LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner).insert(lock);
            return;
        }
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
    lock: Option<String>,
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

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "lock" => self.lock = Some(value.to_owned()),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message.push_str(&format!("{value:?}")),
            "lock" => self.lock = Some(format!("{value:?}")),
            _ => self.rest.push_str(&format!(": {value:?}")),
        }
    }
}
