//! A lock is taken from its holder: because it looks dead, or by force.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Place, is_alive, wait_for};

const WORK: &str = "echo $$ > pid; while :; do sleep 0.02; done";

/// What the log says about how `x` was taken over.
fn taken_over(place: &Place) -> String {
    let log = place.end(&["log", "x"]).out;
    log.lines().find(|line| line.contains(" taken over ")).unwrap_or_default().to_owned()
}

#[test]
fn a_holder_that_is_stopped_past_two_renewals_looks_dead_and_is_taken_over() {
    let place = Place::new();
    // It renews every 4s, looks dead after 8s, and its lease ends after 12s.
    let ttl = ["--ttl", "12s", "--kill-after", "100ms"];
    let words = [&["run", "--holder", "ann"], &ttl[..], &["x", "--", "sh", "-c", WORK]].concat();
    let holder = place.start(&words);
    let command: i32 = place.wait_lines("pid", 1).trim().parse().unwrap();
    holder.send(Signal::STOP);
    // While it may only be between two renewals, it is just held.
    let held = place.end(&["run", "-n", "--takeover=1ms", "x", "true"]);
    assert_eq!(held.code, 75, "{held:?}");
    assert!(held.err.starts_with("error[SP001]: lock \"x\" is held\n"), "{}", held.err);
    wait_for("two missed renewals", || {
        place.look("x").holders[0].remaining.unwrap() <= Duration::from_secs(4)
    });
    let ended = place.end(&["run", "-n", "x", "true"]);
    let stale = ended.err;
    assert_eq!(ended.code, 75, "{stale}");
    let lines: Vec<_> = stale.lines().collect();
    assert_eq!(lines[0], "error[SP002]: lock \"x\" is held by a holder that looks dead");
    assert_eq!(lines[1], "  holder   ann");
    let signs = lines.iter().find(|line| line.starts_with("  signs    no renewal for 8")).unwrap();
    assert!(signs.ends_with("s (limit 8s)"), "{stale}");
    assert!(stale.contains("hint: take it over  sprag run --takeover=8s x -- ...\n"), "{stale}");
    let token = place.look("x").fence;
    let free = format!("hint: free it       sprag break x --token {token} --force -m WHY\n");
    assert!(stale.contains(&free), "{stale}");

    let taken = place.end(&["run", "--holder", "bob", "-n", "--takeover=8s", "x", "true"]);
    assert_eq!(taken.code, 0, "{taken:?}");
    holder.send(Signal::CONT);
    let ended = holder.end();
    assert_eq!(ended.code, 76, "{ended:?}");
    assert!(ended.err.contains("bob took it over as stale\n"), "{}", ended.err);
    assert!(!is_alive(command));
    let log = taken_over(&place);
    assert!(log.contains("  ann  bob took it over as stale, after no renewal for 8"), "{log}");
}

#[test]
fn force_takes_it_from_a_live_holder_who_is_stopped_and_it_is_recorded() {
    let place = Place::new();
    let ttl = ["--ttl", "1500ms", "--kill-after", "400ms"];
    let words = [&["run", "--holder", "ann"], &ttl[..], &["x", "--", "sh", "-c", WORK]].concat();
    let holder = place.start(&words);
    let command: i32 = place.wait_lines("pid", 1).trim().parse().unwrap();
    let forced = place.end(&["run", "--holder", "bob", "--force", "x", "echo", "mine"]);
    assert_eq!((forced.code, forced.out.as_str()), (0, "mine\n"), "{forced:?}");
    let ended = holder.end();
    assert_eq!(ended.code, 76, "{ended:?}");
    assert!(ended.err.starts_with("error[SP010]: lost lock \"x\" (token "), "{}", ended.err);
    assert!(ended.err.contains("bob took it by force\n"), "{}", ended.err);
    assert!(!is_alive(command));
    let log = taken_over(&place);
    assert!(log.contains("  ann  bob took it by force, after no renewal for "), "{log}");
}
