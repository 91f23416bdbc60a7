//! `sprag work` with issues.

use rustix::process::{Pid, Signal, kill_process};

use crate::shared::{Answer, wait_for};
use crate::support::{Hub, LABEL, REPO};

#[test]
fn the_most_urgent_and_then_the_oldest_issue_is_worked_on_and_closed() {
    let hub = Hub::new();
    hub.rules("priorities = [\"urgent\", \"high\"]");
    let old = hub.add_issue("Build is red");
    let taken = hub.add_issue("A person has it");
    hub.github.edit_issue(REPO, taken, |state| state.assignees.push("alice".into()));
    let solved = hub.add_issue("It is in review");
    let pull = hub.github.add_pull_request(REPO, "Fix it", &[solved]);
    hub.github.label_issue(REPO, solved, "high");
    let other = hub.github.add_issue(REPO, "Not for workers");
    let urgent = hub.add_issue("Down");
    hub.github.label_issue(REPO, urgent, "Urgent");
    let script = "printf '%s|' $SPRAG_ITEM \"$SPRAG_ITEM_TITLE\" $SPRAG_ITEM_LABELS \
                  $SPRAG_ITEM_PRIORITY $SPRAG_ITEM_NUMBER $SPRAG_ITEM_REPO $SPRAG_TOKEN; echo";
    let first = hub.work(&["next", "--", "sh", "-c", script]).exits(0);
    assert_eq!(
        first.out,
        format!(
            "issue-{urgent}|Down|agent,Urgent|2|{urgent}|acme/app|1|\ndone issue-{urgent}: open -> closed\n"
        )
    );
    assert!(
        first.err.contains(&format!("skipped: issue-{taken} (assigned to alice)")),
        "{first:?}"
    );
    assert!(first.err.contains(&format!("claimed issue-{urgent} (token 1): Down")), "{first:?}");
    let second = hub.work(&["next", "--", "true"]).exits(0);
    assert!(second.err.contains(&format!("issue-{solved} (open PR #{pull})")), "{second:?}");
    assert!(second.out.contains(&format!("done issue-{old}")), "{second:?}");
    for number in [urgent, old] {
        let (issue, comments) = (hub.issue(number), hub.comments(number));
        assert!(!issue.open && issue.assignees.is_empty(), "{issue:?}");
        assert!(comments.len() == 1 && comments[0].contains("Result: `done`"), "{comments:?}");
    }
    let none = hub.work(&["next", "--", "true"]).exits(75);
    assert!(none.err.contains("error[SP091]: there is nothing to claim"), "{none:?}");
    for number in [taken, solved, other] {
        assert!(hub.issue(number).open && hub.comments(number).is_empty());
    }
}

#[test]
fn a_command_that_fails_relabels_its_issue_and_says_so_in_its_one_comment() {
    let hub = Hub::new();
    hub.rules(
        "success = { remove = [\"agent\"], add = [\"in review\"] }\n\
         failure = { remove = [\"agent\"], add = [\"failed\"] }",
    );
    let (bad, good) = (hub.add_issue("bad"), hub.add_issue("good"));
    let script = "test \"$SPRAG_ITEM_TITLE\" = good || exit 3";
    let run = hub.work(&["run", "--workers", "2", "--", "sh", "-c", script]).exits(3);
    assert!(run.out.contains(&format!("done issue-{good}: open -> in-review")), "{run:?}");
    assert!(run.out.contains(&format!("done issue-{bad}: open -> failed")), "{run:?}");
    assert_eq!(hub.issue(good).labels, ["in review"]);
    assert_eq!(hub.issue(bad).labels, ["failed"]);
    let comments = hub.comments(bad);
    assert_eq!(comments.len(), 1);
    assert!(comments[0].contains("failed: the command ended with 3"), "{comments:?}");
    assert!(hub.issue(bad).open && hub.issue(bad).assignees.is_empty());
    let held = hub.sprag(&["ls", "-S", &hub.store()]).exits(0);
    assert!(!held.out.contains("issue-"), "{held:?}");
}

#[test]
fn a_worker_that_is_asked_to_end_gives_its_issue_back_as_it_was() {
    let hub = Hub::new();
    hub.rules("failure = { remove = [\"agent\"], add = [\"failed\"] }");
    let number = hub.add_issue("long");
    let started = hub.path("started");
    let script = format!("touch {}; exec sleep 100", started.display());
    let worker = hub.start(&["work", "next", "--", "sh", "-c", &script]);
    wait_for(&started);
    let pid = Pid::from_raw(i32::try_from(worker.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    Answer::of(worker.wait_with_output().unwrap()).exits(143);
    assert_eq!(hub.issue(number).labels, [LABEL]);
    assert!(hub.comments(number)[0].contains("Result: `released`"), "{:?}", hub.comments(number));
    let again = hub.work(&["next", "--", "sh", "-c", "echo $SPRAG_TOKEN"]).exits(0);
    assert!(again.out.starts_with("2\n"), "{again:?}");
    assert_eq!(hub.comments(number).len(), 1, "the next one writes over it");
}

#[test]
fn whoever_lost_its_lock_is_stopped_and_changes_nothing() {
    let hub = Hub::new();
    let number = hub.add_issue("long");
    let started = hub.path("started");
    let script = format!("touch {}; exec sleep 100", started.display());
    let worker = hub.start(&["work", "next", "--", "sh", "-c", &script]);
    wait_for(&started);
    let name = format!("issue-{number}");
    let args =
        ["break", "-S", &hub.store(), &name, "--token", "1", "--force", "--yes", "-m", "why"];
    hub.sprag(&args).exits(0);
    Answer::of(worker.wait_with_output().unwrap()).exits(76);
    assert!(hub.issue(number).open);
    hub.work(&["next", "--", "true"]).exits(0);
    assert!(!hub.issue(number).open);
}

#[test]
fn a_claim_is_kept_until_it_is_done_or_released() {
    let hub = Hub::new();
    let (first, second) = (hub.add_issue("one"), hub.add_issue("two"));
    let claimed = hub.json(&["claim", &first.to_string()]);
    assert_eq!((&claimed["issue"], &claimed["title"]), (&first.into(), &"one".into()));
    assert_eq!(hub.issue(first).assignees, ["octocat"]);
    let held = hub.work(&["claim", &format!("issue-{first}")]).exits(75);
    assert!(held.err.contains("claimed here before: sprag work release"), "{held:?}");
    let elsewhere = hub.command("b", &["work", "claim", &first.to_string()]).output().unwrap();
    let elsewhere = Answer::of(elsewhere).exits(75);
    assert!(elsewhere.err.contains("lost race to node-"), "{elsewhere:?}");
    let skipped = hub.command("b", &["work", "next", "--", "true"]).output().unwrap();
    let skipped = Answer::of(skipped).exits(0);
    assert!(skipped.err.contains(&format!("issue-{first} (claimed by ")), "{skipped:?}");
    assert!(!hub.issue(second).open, "the other one was free");
    let board = hub.json(&["board"]);
    assert_eq!(board["items"][0]["owner"]["detached"], true);
    assert!(hub.work(&["ls"]).exits(0).out.contains(&format!("issue-{first}  open")));
    let stats = hub.json(&["stats"]);
    assert_eq!((&stats["active_claims"], &stats["items"]["open"]), (&1.into(), &1.into()));
    hub.work(&["release"]).exits(0);
    assert!(hub.issue(first).open && hub.issue(first).assignees.is_empty());
    hub.work(&["done", &first.to_string()]).exits(77);
    hub.work(&["claim", &first.to_string()]).exits(0);
    let done = hub.work(&["done"]).exits(0);
    assert_eq!(done.out, format!("done issue-{first}: open -> closed\n"));
    assert!(hub.comments(first).len() == 1 && hub.comments(first)[0].contains("`done`"));
}

#[test]
fn what_issues_cannot_do_says_what_to_do() {
    let hub = Hub::new();
    let number = hub.add_issue("one");
    for verb in [&["init"][..], &["new", "x"], &["stamp"], &["advance", "1"], &["recover"]] {
        let refused = hub.work(verb).exits(64);
        assert!(refused.err.contains("gh issue create"), "{verb:?}: {refused:?}");
    }
    let state = hub.work(&["next", "--state", "new", "--", "true"]).exits(64);
    assert!(state.err.contains("labels below [work.github]"), "{state:?}");
    let worktree = hub.work(&["next", "--worktree", "--", "true"]).exits(75);
    assert!(worktree.err.contains("git worktree add"), "{worktree:?}");
    let pull = hub.github.add_pull_request(REPO, "p", &[]);
    assert!(hub.work(&["claim", &pull.to_string()]).exits(64).err.contains("pull request"));
    assert!(hub.work(&["claim", "4711"]).exits(75).err.contains("has no issue 4711"));
    assert!(hub.work(&["claim", "x"]).exits(64).err.contains("write its number"));
    hub.github.close_issue(REPO, number);
    assert!(hub.work(&["claim", &number.to_string()]).exits(75).err.contains("closed"));
    hub.rules("failure = \"close\"");
    assert!(hub.work(&["ls"]).exits(78).err.contains("would close issues"));
    std::fs::write(hub.path("sprag.toml"), "[work]\nsource = \"github\"\n").unwrap();
    assert!(hub.work(&["ls"]).exits(78).err.contains("repo = \"OWNER/REPO\""));
}
