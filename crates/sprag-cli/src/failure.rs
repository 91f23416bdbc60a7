//! [`Failure`]: what a command could not do, for people and for programs.

use serde_json::{Map, Value, json};
use sprag::{Error, ErrorKind, Operation};

use crate::circle;
use crate::code::Code;
use crate::exit::Exit;
use crate::output::plain::{self, one_line};
use crate::output::{Output, SCHEMA};

/// The commands that look at the store of `-S`.
const ON_A_STORE: &[&str] =
    &["run", "acquire", "renew", "release", "check", "ls", "show", "why", "break", "log", "doctor"];

/// What a command could not do: a code, a sentence, facts and what to do next.
#[derive(Debug)]
pub(crate) struct Failure(Box<Inner>);

#[derive(Debug)]
struct Inner {
    code: Code,
    exit: Exit,
    message: String,
    /// One line each.
    facts: Vec<String>,
    hints: Vec<Hint>,
    details: Map<String, Value>,
}

/// What to do next.
#[derive(Debug)]
struct Hint {
    what: String,
    command: Option<String>,
}

impl Failure {
    /// A failure with the code's own status.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code,
            exit: code.exit(),
            message: message.into(),
            facts: Vec::new(),
            hints: Vec::new(),
            details: Map::new(),
        }))
    }

    /// Ends the process with another status, such as that of `-E`.
    #[must_use]
    pub(crate) fn exiting(mut self, exit: Exit) -> Self {
        self.0.exit = exit;
        self
    }

    /// Adds a fact under a label.
    #[must_use]
    pub(crate) fn fact(self, label: &'static str, text: impl AsRef<str>) -> Self {
        self.line(format!("{label:<8} {}", text.as_ref()))
    }

    /// Adds a line of facts.
    #[must_use]
    pub(crate) fn line(mut self, text: String) -> Self {
        self.0.facts.push(one_line(&text).into_owned());
        self
    }

    /// Adds what to do next, with a command that can be typed.
    #[must_use]
    pub(crate) fn hint(mut self, what: impl Into<String>, command: impl Into<String>) -> Self {
        self.0.hints.push(Hint { what: what.into(), command: Some(command.into()) });
        self
    }

    /// Adds what to do next, where it is no command.
    #[must_use]
    pub(crate) fn advice(mut self, what: impl Into<String>) -> Self {
        self.0.hints.push(Hint { what: what.into(), command: None });
        self
    }

    /// Adds a field for programs.
    #[must_use]
    pub(crate) fn detail(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.0.details.insert(field.to_owned(), value.into());
        self
    }

    /// Names the store in the commands to type, if a flag named it: without that flag they would
    /// look at another one.
    #[must_use]
    pub(crate) fn on_store(mut self, flag: Option<&str>) -> Self {
        let Some(store) = flag else { return self };
        // A name is no secret; of a URL nothing is left out only if there is none in it.
        let plain = !store.contains(':') || sprag::redact(store) == store;
        let store = if plain { plain::shell_word(store) } else { "URL".into() };
        for command in self.0.hints.iter_mut().filter_map(|hint| hint.command.as_mut()) {
            let words = command.strip_prefix("sprag ").unwrap_or_default();
            let (verb, rest) = words.split_once(' ').unwrap_or((words, ""));
            if ON_A_STORE.contains(&verb) && !words.contains("-S ") {
                *command = format!("sprag {verb} -S {store} {rest}").trim_end().to_owned();
            }
        }
        self
    }

    /// What went wrong.
    pub(crate) const fn code(&self) -> Code {
        self.0.code
    }

    /// How the process ends.
    pub(crate) const fn exit(&self) -> Exit {
        self.0.exit
    }

    /// The sentence.
    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// Says it on stderr and gives back how the process ends.
    pub(crate) fn print(&self, output: &Output) -> Exit {
        if output.json {
            output.error_line(&self.to_json().to_string());
        } else {
            output.error_line(&self.to_text(output));
        }
        self.exit()
    }

    fn to_text(&self, output: &Output) -> String {
        let style = output.err;
        let mut text = format!("{}: ", style.bad(&format!("error[{}]", self.0.code.id())));
        text += &plain::paragraph(&self.0.message);
        for fact in &self.0.facts {
            text += &format!("\n  {fact}");
        }
        let commands = self.0.hints.iter().filter(|hint| hint.command.is_some());
        let width = commands.map(|hint| hint.what.chars().count()).max().unwrap_or(0);
        for Hint { what, command } in &self.0.hints {
            let hint = style.note("hint:");
            let (what, command) = (one_line(what), command.as_deref().map(one_line));
            text += &match command {
                Some(command) => format!("\n{hint} {what:<width$}  {command}"),
                None => format!("\n{hint} {what}"),
            };
        }
        text
    }

    fn to_json(&self) -> Value {
        let hints: Vec<_> = self.0.hints.iter().map(Hint::to_json).collect();
        let mut error = json!({
            "code": self.0.code.name(),
            "id": self.0.code.id(),
            "exit": self.0.exit.number(),
            "message": self.0.message,
            "hints": hints,
        });
        if let Value::Object(fields) = &mut error {
            fields.extend(self.0.details.clone());
        }
        json!({"schema": SCHEMA, "error": error})
    }
}

impl Hint {
    fn to_json(&self) -> Value {
        json!({"text": self.what, "command": self.command})
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if let (Some(lock), Some(deadlock)) = (error.lock(), error.deadlock()) {
            return circle::describe(lock, deadlock);
        }
        let failure = Self::new(code_of(&error), error.to_string());
        let failure = match error.lock() {
            Some(lock) => failure.detail("lock", lock.as_str()),
            None => failure,
        };
        let failure = match error.loss() {
            Some(loss) => failure.detail("reason", loss.as_str()),
            None => failure,
        };
        match failure.code() {
            Code::Unavailable => failure.hint("see what is wrong", "sprag doctor"),
            Code::RateLimited => failure.hint("see what is left", "sprag doctor"),
            Code::UnknownStore | Code::BadUrl | Code::Unsupported => {
                failure.hint("see the stores", "sprag stores")
            }
            _ => failure,
        }
    }
}

fn code_of(error: &Error) -> Code {
    match error.kind() {
        ErrorKind::Held | ErrorKind::Timeout => Code::Held,
        ErrorKind::Unavailable | ErrorKind::Busy => Code::Unavailable,
        ErrorKind::RateLimited => Code::RateLimited,
        ErrorKind::StoreFull => Code::StoreFull,
        ErrorKind::QueueFull => Code::QueueFull,
        ErrorKind::Lost(_) => Code::Lost,
        ErrorKind::NotOwner => Code::NotHolder,
        ErrorKind::Unsupported => Code::Unsupported,
        ErrorKind::Deadlock => Code::Deadlock,
        ErrorKind::AlreadyHeldHere => Code::Nested,
        ErrorKind::BadInput if error.operation() == Operation::Open => Code::BadUrl,
        ErrorKind::BadInput => Code::Usage,
        ErrorKind::Corrupt => Code::Corrupt,
        ErrorKind::Refused => Code::Refused,
        _ => Code::Bug,
    }
}
