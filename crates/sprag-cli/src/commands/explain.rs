//! `sprag explain`: codes and topics in full sentences.

use serde_json::{Value, json};

use super::Outcome;
use crate::args::Explain;
use crate::code::Code;
use crate::context::Context;
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::nearest::nearest;
use crate::output::table::Table;

const TOPICS: &[(&str, &str)] = &[
    ("exit-codes", ""),
    ("guarantees", include_str!("../topics/guarantees.txt")),
    ("environment", include_str!("../topics/environment.txt")),
    ("config", include_str!("../topics/config.txt")),
    ("stores", include_str!("../topics/stores.txt")),
    ("tokens", include_str!("../topics/tokens.txt")),
];

/// Explains one subject, or lists them.
pub(crate) fn explain(args: &Explain, context: &Context) -> Outcome {
    let Some(subject) = &args.subject else {
        list(context);
        return Ok(Exit::OK);
    };
    let wanted = subject.to_ascii_lowercase();
    let code = Code::ALL.iter().find(|code| {
        code.id().to_ascii_lowercase() == wanted || code.name() == wanted.replace('-', "_")
    });
    if let Some(code) = code {
        show_code(*code, context);
        return Ok(Exit::OK);
    }
    if let Some((topic, text)) = TOPICS.iter().find(|(topic, _)| *topic == wanted) {
        let text = if text.is_empty() { exit_codes() } else { text.trim_end().to_owned() };
        if context.output.json {
            context.output.answer(json!({"topic": topic, "text": text}));
        } else {
            context.output.line(&text);
        }
        return Ok(Exit::OK);
    }
    let known = Code::ALL.iter().flat_map(|code| [code.id(), code.name()]);
    let known = known.chain(TOPICS.iter().map(|(topic, _)| *topic));
    let message = match nearest(&subject.to_ascii_uppercase(), known.clone())
        .or_else(|| nearest(&wanted, known))
    {
        Some(meant) => format!("there is no code or topic {subject:?}; did you mean {meant:?}?"),
        None => format!("there is no code or topic {subject:?}"),
    };
    Err(Failure::new(Code::Unknown, message).hint("see the list", "sprag explain"))
}

fn show_code(code: Code, context: &Context) {
    let (id, name, exit, text) = (code.id(), code.name(), code.exit().number(), code.text());
    if context.output.json {
        context.output.answer(json!({"code": name, "id": id, "exit": exit, "text": text}));
    } else {
        context.output.line(&format!("{id}  {name}  (exit {exit})\n\n{text}"));
    }
}

fn list(context: &Context) {
    if context.output.json {
        let codes: Vec<Value> = Code::ALL
            .iter()
            .map(|code| json!({"code": code.name(), "id": code.id(), "exit": code.exit().number()}))
            .collect();
        let topics: Vec<_> = TOPICS.iter().map(|(topic, _)| topic).collect();
        context.output.answer(json!({"codes": codes, "topics": topics}));
        return;
    }
    let mut table = Table::new(["CODE", "NAME", "EXIT"]);
    for code in Code::ALL {
        let exit = code.exit().number().to_string();
        table.row(vec![code.id().into(), code.name().into(), exit]);
    }
    table.lines().iter().for_each(|line| context.output.line(line));
    let topics: Vec<_> = TOPICS.iter().map(|(topic, _)| *topic).collect();
    context.output.line(&format!("topics: {}", topics.join(", ")));
}

fn exit_codes() -> String {
    let mut table = Table::new(["CODE", "NAME", "MEANING"]);
    for (code, name, meaning) in exit::TABLE {
        table.row(vec![(*code).into(), (*name).into(), (*meaning).into()]);
    }
    table.lines().join("\n")
}
