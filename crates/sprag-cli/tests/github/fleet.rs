//! A fleet of workers on issues, some of which are killed; reads are late and answers get lost.

use std::collections::BTreeMap;
use std::fs;
use std::process::Child;
use std::time::Duration;

use sprag::clock::{BootClock, Clock};
use sprag_github_sim::FaultPlan;

use crate::support::Hub;

struct Size {
    workers: usize,
    machines: usize,
    issues: usize,
    kills: usize,
    limit: Duration,
}

const SMALL: Size =
    Size { workers: 5, machines: 2, issues: 12, kills: 3, limit: Duration::from_secs(150) };
const FULL: Size =
    Size { workers: 20, machines: 5, issues: 200, kills: 15, limit: Duration::from_secs(3600) };

#[test]
fn every_issue_is_processed_once_whoever_is_killed() {
    let full = std::env::var("SPRAG_TORTURE").is_ok_and(|size| size == "full");
    let size = if full { FULL } else { SMALL };
    let hub = Hub::new();
    let numbers: Vec<_> = (0..size.issues).map(|n| hub.add_issue(&format!("job {n}"))).collect();
    let victims: Vec<_> =
        numbers.iter().step_by(size.issues / size.kills).take(size.kills).collect();
    for victim in &victims {
        // Who works on it first works until it is killed.
        fs::write(hub.path(&format!("hang-issue-{victim}")), "").unwrap();
    }
    let script = format!(
        "cd {}; echo begin $SPRAG_ITEM $SPRAG_TOKEN >> log; if rm hang-$SPRAG_ITEM 2>/dev/null; then \
         echo $SPRAG_HOLDER > hangs-$SPRAG_ITEM.new; mv hangs-$SPRAG_ITEM.new hangs-$SPRAG_ITEM; \
         sleep 1000; fi; echo end $SPRAG_ITEM $SPRAG_TOKEN >> log",
        hub.path("").display()
    );
    hub.github.lag(Duration::from_secs(1));
    hub.github.faults(FaultPlan::ambiguous(0.03));
    let hire = |number: usize| -> Child {
        let (machine, holder) = (format!("m{}", number % size.machines), format!("w{number}"));
        let args =
            ["--holder", &holder, "work", "next", "--drain", "--every", "1s", "--", "sh", "-ec"];
        let mut command = hub.command(&machine, &args);
        let log = fs::File::create(hub.path(&format!("{holder}.log"))).unwrap();
        command.arg(&script).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    };
    let mut workers: BTreeMap<_, _> =
        (0..size.workers).map(|number| (format!("w{number}"), hire(number))).collect();
    let (mut hired, mut kills) = (size.workers, 0);
    let limit = BootClock.now().plus(size.limit);
    while numbers.iter().any(|number| hub.issue(*number).open) {
        let logs =
            || workers.keys().map(|name| fs::read_to_string(hub.path(&format!("{name}.log"))));
        assert!(
            BootClock.now() < limit,
            "{}\n{:?}",
            fs::read_to_string(hub.path("log")).unwrap_or_default(),
            logs().collect::<Vec<_>>()
        );
        for victim in &victims {
            let hangs = hub.path(&format!("hangs-issue-{victim}"));
            let Ok(holder) = fs::read_to_string(&hangs) else { continue };
            fs::remove_file(hangs).unwrap();
            let mut worker = workers.remove(holder.trim()).unwrap();
            worker.kill().unwrap();
            worker.wait().unwrap();
            workers.insert(format!("w{hired}"), hire(hired));
            (hired, kills) = (hired + 1, kills + 1);
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
    for worker in workers.values_mut() {
        let pid = rustix::process::Pid::from_raw(i32::try_from(worker.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
    for worker in workers.values_mut() {
        worker.wait().unwrap();
    }
    assert_eq!(kills, size.kills, "each of them was killed while it worked");
    judge(&hub, &numbers);
}

fn judge(hub: &Hub, numbers: &[u64]) {
    let log = fs::read_to_string(hub.path("log")).unwrap();
    for number in numbers {
        let name = format!("issue-{number}");
        let mut last = 0;
        let mut ends = 0;
        for line in log.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let [what, item, token] = words[..] else { panic!("{line:?}") };
            if item != name {
                continue;
            }
            let token: u64 = token.parse().unwrap();
            match what {
                "begin" => assert!(token > last, "{name}: token {token} after {last}\n{log}"),
                _ => assert_eq!(token, last, "{name}: whoever began last ends\n{log}"),
            }
            last = token;
            ends += usize::from(what == "end");
        }
        assert_eq!(ends, 1, "{name} is processed exactly once\n{log}");
        let comments = hub.comments(*number).len() as u64;
        assert!(comments <= last, "{name}: {comments} comments for {last} holds");
    }
}
