//! A run inside of another: what that one holds is not waited for.

use std::os::unix::process::CommandExt;
use std::process::Command;

use sprag::Mode;

use super::environment::Outer;
use super::plan::Plan;
use crate::code::Code;
use crate::failure::Failure;

/// Refuses what this process tree holds already, or with `--reentrant` goes into it. Whether there
/// is nothing left to take and the command can just be run.
pub(crate) fn enter(plan: &mut Plan) -> Result<bool, Failure> {
    for outer in &plan.around.held {
        let Some(index) = plan.names.iter().position(|name| name.as_str() == outer.name) else {
            continue;
        };
        if !plan.reentrant {
            return Err(refuse(outer)
                .advice("say --reentrant to run the command under the lock that is held"));
        }
        if !outer.mode.is_some_and(|mode| covers(mode, plan.mode)) {
            return Err(uncovered(outer, plan.mode));
        }
        if !outer.waits_for_us {
            return Err(daemon(outer));
        }
        plan.names.remove(index);
        plan.slot = outer.slot;
    }
    Ok(plan.names.is_empty() && plan.once_per.is_none())
}

/// Whether what is asked for is a part of what is held.
fn covers(held: Mode, asked: Mode) -> bool {
    match (held, asked) {
        (Mode::Exclusive, Mode::Exclusive | Mode::Shared) => true,
        (held, asked) => held == asked,
    }
}

/// Becomes the command.
pub(crate) fn exec(plan: &Plan) -> std::io::Error {
    let Some((program, arguments)) = plan.command.split_first() else {
        return std::io::ErrorKind::NotFound.into();
    };
    let mut command = Command::new(program);
    // Another run in between may have had another slot.
    command.envs(plan.slot.map(|slot| ("SPRAG_SLOT", slot.to_string())));
    command.args(arguments).exec()
}

fn refuse(outer: &Outer) -> Failure {
    let who = crate::config::environment("SPRAG_HOLDER").unwrap_or_default();
    let message = format!(
        "{:?} is already held by this process tree (token {}, {who}); taking it again would wait \
         for ourselves",
        outer.name, outer.token
    );
    Failure::new(Code::Nested, message)
}

fn uncovered(outer: &Outer, asked: Mode) -> Failure {
    let (name, held) = (&outer.name, outer.mode.map_or("-", Mode::as_str));
    let message = format!(
        "--reentrant cannot use the lock {name:?} of this process tree (token {}): it is held as \
         {held}, and asked for as {}",
        outer.token,
        asked.as_str()
    );
    let advice = match asked {
        Mode::Shared => "ask for it as it is held",
        _ => "let the outer run take it as the inner one needs it, or name another lock here",
    };
    Failure::new(Code::Nested, message).advice(advice)
}

fn daemon(outer: &Outer) -> Failure {
    let message = format!(
        "--reentrant cannot use the lock {:?} (token {}): this process has a session of its own, \
         and the run that holds the lock does not wait for it",
        outer.name, outer.token
    );
    Failure::new(Code::Nested, message)
        .advice("start it without setsid, or let it take a lock of its own after that run")
}

#[cfg(test)]
mod tests {
    use super::covers;
    use sprag::Mode;

    #[test]
    fn only_a_part_of_what_is_held_is_covered() {
        let permits = |of| Mode::Permits { count: 1, of };
        for (held, asked, covered) in [
            (Mode::Exclusive, Mode::Exclusive, true),
            (Mode::Exclusive, Mode::Shared, true),
            (Mode::Exclusive, permits(2), false),
            (Mode::Shared, Mode::Shared, true),
            (Mode::Shared, Mode::Exclusive, false),
            (permits(2), permits(2), true),
            (permits(2), permits(3), false),
            (permits(1), Mode::Exclusive, false),
            (permits(2), Mode::Shared, false),
        ] {
            assert_eq!(covers(held, asked), covered, "{held} for {asked}");
        }
    }
}
