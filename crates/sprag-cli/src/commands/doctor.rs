//! `sprag doctor`: is this store well?

use std::time::Duration;

use serde_json::{Value, json};
use sprag::diagnosis::{Finding, Health};
use sprag::record::Expiry;
use sprag::{Capability, LockName, StoreKind};

use super::{Outcome, ls, stores};
use crate::args::Doctor;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::plain::one_line;
use crate::output::style::Style;
use crate::output::time;
use crate::output::view::millis;
use crate::store::Opened;

/// A store this slow is worth a word: a third of the shortest TTL that people use.
const SLOW: Duration = Duration::from_millis(500);
const TTL: Duration = Duration::from_secs(10);

/// Looks at the store from outside, then lets it speak about itself.
pub(crate) fn examine(args: &Doctor, context: &Context) -> Outcome {
    let opened = Opened::open(&context.settings)?;
    context.block_on(async {
        // What is kept for ever, and costs requests that are counted, is not tried a hundred times.
        let counted = opened.capability().expiry == Expiry::Observed;
        let wanted = if counted { 1 } else { args.rounds };
        let rounds = measure(&opened, wanted).await?;
        let median = rounds[rounds.len() / 2];
        let worst = rounds[rounds.len() - 1];
        let able = opened.capability();
        let mut findings = vec![speed(median, worst, rounds.len())];
        if wanted < args.rounds {
            let text = format!("{wanted} round instead of {}, as each costs requests", args.rounds);
            findings.push(Finding::note(text));
        }
        findings.extend(opened.store().diagnose().await?);
        let (records, truncated) = records(&opened, counted).await;
        findings.push(records);
        findings.extend(forecast(args.locks, able, context.settings.ttl.value));
        findings.push(Finding::note(format!("promises {}", able.level)));
        let kind = sprag::stores().iter().find(|kind| kind.scheme == able.store);
        for broken in kind.map_or(&[][..], |kind: &StoreKind| kind.broken_by) {
            findings.push(Finding::note(format!("that is broken by {broken}")));
        }
        let failed = findings.iter().any(|finding| finding.health == Health::Fail);
        if context.output.json {
            context.output.answer(json!({
                "store": opened.shown,
                "healthy": !failed,
                "median_us": micros(median),
                "worst_us": micros(worst),
                "rounds": rounds.len(),
                "truncated": truncated,
                "can": stores::abilities(able),
                "findings": findings.iter().map(to_json).collect::<Vec<_>>(),
            }));
        } else {
            context.output.line(&opened.shown);
            for finding in &findings {
                context.output.line(&line(finding, context.output.out));
            }
            context.output.line("What the promises mean: sprag explain guarantees");
        }
        Ok(if failed { Exit::NO } else { Exit::OK })
    })
}

/// Takes and releases a lock of its own; the times, shortest first.
async fn measure(opened: &Opened, rounds: u32) -> Result<Vec<Duration>, Failure> {
    // Nobody else uses this name, whoever examines the store at the same time; but where names stay
    // for ever there is only one.
    let able = opened.capability();
    let name = match able.expiry {
        Expiry::Clock => format!("sprag/doctor/{}-{}", std::process::id(), time::now()),
        Expiry::Observed => "sprag/doctor".to_owned(),
    };
    let (name, ttl) = (LockName::new(name)?, TTL.max(able.min_ttl));
    let clock = opened.clock();
    let mut times = Vec::new();
    for _ in 0..rounds {
        let begun = clock.now();
        let guard = opened.lock(name.as_str()).ttl(ttl).no_wait().acquire().await?;
        guard.release().await?;
        times.push(clock.now().since(begun));
    }
    times.sort();
    Ok(times)
}

/// Whether the records of the locks in use can be read, and whether some were not looked at.
async fn records(opened: &Opened, counted: bool) -> (Finding, bool) {
    if counted {
        let text = "the records of the locks were not read, as that costs requests: see sprag ls";
        return (Finding::note(text), true);
    }
    let listed = match ls::read_up_to(ls::MAX_LOCKS, opened, None).await {
        Ok(listed) => listed,
        Err(failure) => {
            let text = format!("the locks in use cannot be listed: {}", failure.message());
            return (Finding::note(text), true);
        }
    };
    let what = match listed.truncated {
        true => format!("the records of the first {} locks in use", listed.locks.len()),
        false => "the records of all locks in use".to_owned(),
    };
    if listed.unreadable.is_empty() {
        return (Finding::good(format!("{what} can be read")), listed.truncated);
    }
    let names: Vec<_> = listed.unreadable.iter().map(String::as_str).collect();
    let text = format!("{what} can be read, but for {}", names.join(", "));
    let fix = "sprag show NAME says what is wrong with each";
    (Finding::warn(text).fix(fix), listed.truncated)
}

/// What a number of locks would cost, where requests are counted.
fn forecast(locks: Option<u64>, able: &Capability, ttl: Duration) -> Vec<Finding> {
    match locks {
        Some(locks) if able.store == "github" => sprag::sprag_github::forecast(locks, ttl),
        Some(_) => {
            vec![Finding::note("this store counts no requests: any number of locks will do")]
        }
        None => Vec::new(),
    }
}

fn speed(median: Duration, worst: Duration, rounds: usize) -> Finding {
    let text = format!(
        "reachable, {} median acquire and release, {} worst ({rounds} rounds)",
        fine(median),
        fine(worst)
    );
    if median < SLOW {
        Finding::good(text)
    } else {
        let fix = format!("give leases a --ttl of at least {}", time::span(median * 60));
        Finding::warn(text).fix(fix)
    }
}

/// Short times with their digits: `0.12 ms`.
fn fine(span: Duration) -> String {
    format!("{:.2} ms", span.as_secs_f64() * 1000.0)
}

fn micros(span: Duration) -> u64 {
    millis(span * 1000)
}

fn line(finding: &Finding, style: Style) -> String {
    let mark = match finding.health {
        Health::Good => style.good("ok   "),
        Health::Note => "info ".to_owned(),
        Health::Warn => style.warn("WARN "),
        Health::Fail => style.bad("FAIL "),
    };
    let fix = finding.fix.as_ref().map(|fix| format!("  -> {}", one_line(fix)));
    format!("{mark} {}{}", one_line(&finding.text), fix.unwrap_or_default())
}

fn to_json(finding: &Finding) -> Value {
    json!({"health": finding.health.as_str(), "text": finding.text, "fix": finding.fix})
}
