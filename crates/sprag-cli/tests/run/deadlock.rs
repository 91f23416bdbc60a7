//! Runs inside of runs that wait for each other.

use rustix::process::Signal;

use crate::support::{Place, Run, now, send, wait_for};

/// Holds `outer`, then waits for `inner` as soon as both have their first.
fn nest(place: &Place, who: &str, outer: &str, inner: &str) -> Run {
    let script = format!(
        "echo >> up; while [ $(wc -l < up) -lt 2 ]; do sleep 0.01; done; echo $$ > {who}.pid; \
         exec \"$SPRAG\" run -q {inner} -- sh -c 'echo {who} >> log'"
    );
    let holder = ["--holder", who];
    place.start(&[&["run", "-q"], &holder[..], &[outer, "--", "sh", "-c", &script]].concat())
}

fn until_both_wait(place: &Place) {
    let waits = |name| place.look(name).waiters.len() == 1;
    wait_for("both to wait", || waits("x") && waits("y"));
}

#[test]
fn a_circle_of_nested_runs_has_one_victim_and_the_other_goes_on() {
    let place = Place::new();
    let runs = [nest(&place, "ann", "x", "y"), nest(&place, "bob", "y", "x")];
    until_both_wait(&place);
    let started = now();
    let [ann, bob] = runs.map(Run::end);
    let took = now().since(started);
    // It takes 1.2s; the rest is for a busy machine.
    assert!(took.as_secs() < 10, "{took:?}");
    let (victim, other, name, [has, wants]) = match (ann.code, bob.code) {
        (79, 0) => (ann, "bob", "ann", ["x", "y"]),
        (0, 79) => (bob, "ann", "bob", ["y", "x"]),
        codes => panic!("{codes:?}: {ann:?} {bob:?}"),
    };
    assert_eq!(place.read("log"), format!("{other}\n"));
    let said = victim.err;
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[0], format!("error[SP020]: waiting for {wants:?} would never end"));
    assert_eq!(lines[1], format!("  you ({name})  hold {has:?}   want {wants:?}"));
    let theirs = format!("  {other}        holds {wants:?}  wants {has:?} (since ");
    assert!(lines[2].starts_with(&theirs), "{said}");
    assert_eq!(lines[3], "hint: take both at once  sprag run x,y -- ...");
    assert_eq!(lines.len(), 4, "{said}");
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn why_shows_a_circle_of_nested_runs() {
    let place = Place::new();
    let runs = [nest(&place, "ann", "x", "y"), nest(&place, "bob", "y", "x")];
    // Who is stopped does not search.
    let pids = ["ann.pid", "bob.pid"].map(|file| place.wait_lines(file, 1).trim().parse().unwrap());
    until_both_wait(&place);
    for pid in pids {
        send(pid, Signal::STOP);
    }
    let why = place.end(&["why", "x"]);
    let json = place.end(&["why", "x", "--json"]);
    for pid in pids {
        send(pid, Signal::CONT);
    }
    let lines: Vec<_> = why.out.lines().collect();
    assert!(lines[0].starts_with("x  <- held by ann since "), "{}", why.out);
    assert!(lines[1].starts_with("└─ waits for y  <- held by bob since "), "{}", why.out);
    assert!(lines[2].starts_with("   └─ waits for x  <- held by ann since "), "{}", why.out);
    assert!(lines[2].ends_with("   <== a circle"), "{}", why.out);
    assert_eq!(lines[3], "a circle: one of them has to let go");
    assert!(json.out.contains(r#""cycle":true"#), "{}", json.out);
    let mut codes = runs.map(|run| run.end().code);
    codes.sort_unstable();
    assert_eq!(codes, [0, 79]);
}

#[test]
fn who_works_beside_a_waiter_is_in_no_circle() {
    let place = Place::new();
    // Inside of one run, one holds y and works while another waits for x. Somebody else holds x
    // and waits for y, which will be free.
    let inside = "\"$SPRAG\" run -q y -- sh -c 'echo > y; while ! [ -e go ]; do sleep 0.01; done' & \
                  while ! [ -e x ]; do sleep 0.01; done; \"$SPRAG\" run -q x -- true; a=$?; \
                  wait $!; echo $a $?";
    let run = place.start(&["run", "-q", "around", "--", "sh", "-c", inside]);
    place.wait_lines("y", 1);
    let other = "echo > x; exec \"$SPRAG\" run -q y -- true";
    let other = place.start(&["run", "-q", "x", "--", "sh", "-c", other]);
    until_both_wait(&place);
    // Longer than a search takes.
    crate::support::let_time_pass(std::time::Duration::from_millis(1700));
    until_both_wait(&place);
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(other.end().code, 0);
    let ended = run.end();
    assert_eq!((ended.code, ended.out.as_str()), (0, "0 0\n"), "{ended:?}");
}
