//! `sprag stores`: the kinds of stores in this build.

use serde_json::{Value, json};
use sprag::{Capability, StoreKind};

use super::Outcome;
use crate::args::Stores;
use crate::code::Code;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::table::Table;
use crate::output::view::millis;

/// Shows what each kind of store promises and can do.
pub(crate) fn show(args: &Stores, context: &Context) -> Outcome {
    let output = &context.output;
    let kinds = sprag::stores();
    if let Some(scheme) = &args.sql {
        return show_sql(scheme, context);
    }
    if output.json {
        let kinds: Vec<Value> = kinds.iter().map(to_json).collect();
        output.answer(json!({"stores": kinds}));
        return Ok(Exit::OK);
    }
    let mut table =
        Table::new(["STORE", "PROMISE", "BETWEEN", "SHARED", "SLOTS", "QUEUE", "WAKES", "LOG"]);
    for kind in kinds {
        let able = (kind.capability)();
        let yes = |able: bool| if able { "yes" } else { "no" }.to_owned();
        table.row(vec![
            kind.scheme.to_owned(),
            able.level.to_string(),
            kind.between.to_owned(),
            yes(able.shared),
            yes(able.permits),
            yes(able.queue),
            yes(able.notify),
            yes(able.audit),
        ]);
    }
    let mut lines = table.lines().into_iter();
    output.line(&output.out.strong(&lines.next().unwrap_or_default()));
    lines.for_each(|line| output.line(&line));
    for kind in kinds {
        output.line("");
        let mut forms = Table::default();
        for (url, meaning) in kind.forms {
            forms.row(vec![output.out.note(url), (*meaning).to_owned()]);
        }
        forms.lines().iter().for_each(|line| output.line(line));
        for broken in kind.broken_by {
            output.line(&format!("  its promise is broken by {broken}"));
        }
    }
    output.line("");
    output.line("What the promises mean: sprag explain guarantees");
    Ok(Exit::OK)
}

fn show_sql(scheme: &str, context: &Context) -> Outcome {
    let kind = sprag::stores().iter().find(|kind| kind.scheme == scheme);
    let Some(sql) = kind.and_then(|kind| kind.sql) else {
        let able = sprag::stores().iter().filter(|kind| kind.sql.is_some());
        let able = able.map(|kind| kind.scheme).collect::<Vec<_>>().join(" ");
        let message = format!("{scheme:?} is no store that keeps its locks in SQL tables of yours");
        return Err(Failure::new(Code::Usage, message).advice(format!("there is: {able}")));
    };
    if context.output.json {
        context.output.answer(json!({"store": scheme, "sql": sql}));
    } else {
        context.output.line(sql.trim_end());
    }
    Ok(Exit::OK)
}

fn to_json(kind: &StoreKind) -> Value {
    let able = (kind.capability)();
    let forms = kind.forms.iter().map(|(url, meaning)| json!({"url": url, "meaning": meaning}));
    json!({
        "scheme": kind.scheme,
        "urls": forms.collect::<Vec<_>>(),
        "between": kind.between,
        "broken_by": kind.broken_by,
        "can": abilities(&able),
    })
}

/// What a store can do, for programs.
pub(super) fn abilities(able: &Capability) -> Value {
    json!({
        "level": able.level.to_string(),
        "shared": able.shared,
        "slots": able.permits,
        "queue": able.queue,
        "takeover": able.steal,
        "detached": able.detached,
        "wakes": able.notify,
        "eviction_hints": able.eviction_hints,
        "log": able.audit,
        "min_ttl_ms": millis(able.min_ttl),
        "max_ttl_ms": millis(able.max_ttl),
        "max_waiters": able.max_waiters,
    })
}
