//! A fleet: agents in clones of their own and in a shared one, some of which are killed.

use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sprag::clock::{BootClock, Clock};

use crate::support::{Shop, gits, is_full};

struct Size {
    agents: usize,
    clones: usize,
    items: usize,
    kills: usize,
}

const SMALL: Size = Size { agents: 5, clones: 2, items: 4, kills: 2 };
const FULL: Size = Size { agents: 40, clones: 20, items: 300, kills: 10 };

#[test]
fn a_fleet_brings_every_item_to_production_once_whoever_dies() {
    let full = is_full();
    let size = if full { FULL } else { SMALL };
    let shop = Shop::new();
    // On a machine with a load of dozens a short lease is lost now and then.
    let ttl = if full { "120s" } else { "20s" };
    shop.rules(&format!("[work]\ncategory = \"bugs\"\nrun_ttl = \"{ttl}\"\n"));
    for number in 0..size.items {
        shop.place(&format!("new/item{number}"));
    }
    // Half of them share one clone.
    let mut clones = vec!["a".to_owned(); size.agents - size.clones];
    for number in 0..size.clones {
        let name = format!("c{number}");
        shop.clone_named(&name);
        clones.push(name);
    }
    let script = "echo $SPRAG_ITEM_STATE >> $SPRAG_ITEM_PATH/log; git add -A; git commit -qm step";
    let (gits, number) = (gits(), AtomicUsize::new(0));
    let agent = |clone: &str| {
        let args = ["next", "--drain", "--every", "1s", "--worktree", "--", "sh", "-ec", script];
        let mut command = shop.command(clone, &args);
        let number = number.fetch_add(1, Ordering::Relaxed);
        command.env("PATH", &gits[number % gits.len()]);
        let log = std::fs::File::create(shop.path(&format!("tmp/agent-{number}.log"))).unwrap();
        Agent(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    };
    let mut agents: Vec<_> = clones.iter().map(|clone| (clone, agent(clone))).collect();
    let done = |shop: &Shop| {
        let items = shop.items();
        items.iter().filter(|item| item.starts_with("bugs/archive/production/")).count()
    };
    let limit = BootClock.now().plus(Duration::from_secs(if full { 7200 } else { 160 }));
    let mut kills = 0;
    loop {
        let finished = done(&shop);
        if finished == size.items {
            break;
        }
        assert!(BootClock.now() < limit, "{finished} of {}: {:?}", size.items, shop.refs());
        // One dies now and then, and another one comes. All items may be finished at nearly the same
        // time, so their steps are counted.
        let due = steps(&shop) * size.kills >= kills * size.items * STATES.len();
        if kills < size.kills && due {
            let index = (kills * 7 + 3) % agents.len();
            // Whoever is replaced dies.
            let (clone, one) = &mut agents[index];
            *one = agent(clone);
            kills += 1;
        }
        for clone in ["a", clones.last().unwrap()] {
            shop.work(clone, &["recover"]);
        }
        std::thread::park_timeout(Duration::from_millis(500));
    }
    assert_eq!(kills, size.kills);
    for (_, Agent(child)) in &agents {
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
    for (_, Agent(child)) in &mut agents {
        child.wait().unwrap();
    }
    judge(&shop, &size, &clones);
}

/// A worker that ends with the test, however that ends.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The steps that an item takes to production.
const STATES: [&str; 7] =
    ["new", "stamped", "next", "inanalysis", "readyfordevelopment", "readyfortesting", "signedoff"];

/// How many steps all items have taken.
fn steps(shop: &Shop) -> usize {
    let count = ["rev-list", "--count", "--first-parent", "--merges", "main"];
    shop.git("remote.git", &count).parse().unwrap()
}

fn judge(shop: &Shop, size: &Size, clones: &[String]) {
    let items = shop.items();
    assert_eq!(items.len(), size.items, "no item is lost or doubled");
    for item in &items {
        let log = shop.git("remote.git", &["show", &format!("main:docs/work/{item}/log")]);
        assert_eq!(log.lines().collect::<Vec<_>>(), STATES, "{item}: each step once");
    }
    assert_eq!(steps(shop), size.items * STATES.len(), "no merge is doubled");
    // What the dead left is cleared up, sessions at the end of their time. Work that was left on a
    // branch says that something went wrong that nobody did on purpose.
    shop.wait_for_tidy_remote(clones, &format!("a tidy remote\n{}", shop.complaints()));
    for clone in clones {
        shop.assert_tidy(clone);
    }
}
