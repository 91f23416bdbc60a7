//! What is said beside the answer: limits by their code, and what the issue does not show.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use sprag_github_sim::Limits;

use crate::shared::wait_for;
use crate::support::{Hub, REPO};

#[test]
fn a_rate_limit_has_a_code_of_its_own() {
    let hub = Hub::new();
    hub.add_issue("one");
    hub.github.limits(Limits { primary: 0, graphql: 0, ..Limits::GITHUB });
    let limited = hub.work(&["ls"]).exits(69);
    assert!(limited.err.starts_with("error[SP032]: "), "{limited:?}");
    assert!(limited.err.contains("GitHub rate limit: 0 of 0 left"), "{limited:?}");
    let store = hub.store();
    let limited = hub.sprag(&["ls", "-S", &store]).exits(69);
    assert!(limited.err.starts_with("error[SP032]: "), "{limited:?}");
    assert!(limited.err.contains("hint: see what is left"), "{limited:?}");
    let json = hub.sprag(&["ls", "--json", "-S", &store]).exits(69);
    assert!(json.err.contains("\"code\":\"rate_limited\""), "{json:?}");
}

#[test]
fn what_the_issue_cannot_show_is_a_warning_and_the_lock_is_held() {
    let hub = Hub::new();
    let number = hub.add_issue("one");
    hub.github.delete_issue(REPO, number);
    let go = hub.path("go");
    let script = format!("until [ -e {} ]; do sleep 0.05; done; echo ran", go.display());
    let (store, name) = (hub.store(), format!("issue-{number}"));
    let mut command = hub.command("a", &["run", "-S", &store, &name, "--", "sh", "-c", &script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let warning = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("warning:")));
    let warning = warning.unwrap().unwrap();
    assert!(warning.contains(&format!("issue {number}: the lock is not shown")), "{warning}");
    std::fs::write(&go, "").unwrap();
    wait_for(&go);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout == b"ran\n", "{output:?}");
}
