//! Many workers at once.

use std::collections::BTreeSet;
use std::sync::Mutex;

use sprag_core::LockGuard;
use sprag_work::{Claim, How, Outcome, Task, Turn, Worker};

use crate::support::*;

#[test]
fn of_many_workers_one_gets_an_item() {
    let world = World::new();
    let shared = world.clone_named("shared");
    place_item(&shared, "bugs/next/x-00000001");
    let clones = [shared.clone(), shared, world.clone_named("b"), world.clone_named("c")];
    let won = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (number, clone) in clones.iter().enumerate() {
            let (world, won) = (&world, &won);
            scope.spawn(move || {
                let source = world.source(clone, &format!("agent-{number}"));
                if let Ok(claim) = source.claim_named("x", &in_worktree()) {
                    won.lock().unwrap().push((source, claim));
                }
            });
        }
    });
    let mut won = won.into_inner().unwrap();
    assert_eq!(won.len(), 1);
    let (_source, claim) = won.pop().unwrap();
    Box::new(claim).finish(done()).unwrap();
    assert_eq!(world.items(), ["bugs/inanalysis/x-00000001"]);
    let sprag = |name: &String| name.starts_with("refs/sprag/uploads") || name.contains("heads/r");
    assert_eq!(world.refs().into_iter().find(sprag), None);
}

/// Whoever pushed to main while another one does would have done its work in vain.
#[test]
fn clones_of_one_remote_on_one_machine_land_one_after_the_other() {
    const CLONES: usize = 4;
    let world = World::new();
    let met = world.path("met");
    let hook = format!(
        "#!/bin/sh\n[ $1 = refs/heads/main ] || exit 0\n\
         mkdir {at} || echo $$ >> {met}\nsleep 0.2\nrmdir {at}\nexit 0\n",
        at = world.path("landing").display(),
        met = met.display()
    );
    let path = world.remote().join("hooks/update");
    let maker = world.clone_named("maker");
    let claims: Vec<_> = (0..CLONES)
        .map(|number| {
            place_item(&maker, &format!("bugs/next/x{number}-0000000{number}"));
            let source = world.source(&world.clone_named(&format!("c{number}")), "agent");
            source.claim_named(&format!("x{number}"), &How::default()).unwrap()
        })
        .collect();
    std::fs::write(&path, hook).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::thread::scope(|scope| {
        for claim in claims {
            scope.spawn(|| Box::new(claim).finish(done()).unwrap());
        }
    });
    assert_eq!(std::fs::read_to_string(met).unwrap_or_default(), "", "they met on the way to main");
}

#[test]
fn workers_of_one_clone_and_of_others_work_everything_off_once() {
    const ITEMS: usize = 6;
    let world = World::new();
    let shared = world.clone_named("shared");
    let source = world.source(&shared, "maker");
    for number in 0..ITEMS {
        new_item(&source, &format!("item{number}"));
    }
    drop(source);
    let clones = [shared.clone(), shared, world.clone_named("b")];
    let steps = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (number, clone) in clones.iter().enumerate() {
            let (world, steps) = (&world, &steps);
            scope.spawn(move || {
                let source = world.source(clone, &format!("agent-{number}"));
                let handler = |task: &Task, _: &LockGuard| {
                    let file = task.path().unwrap().join("log.txt");
                    let mut text = std::fs::read_to_string(&file).unwrap_or_default();
                    text += &format!("{}\n", task.item.place.state);
                    std::fs::write(file, text).unwrap();
                    done()
                };
                let mut worker = Worker::new(source, handler).claiming(in_worktree());
                // Who finds nothing may only have come too early.
                let mut idle = 0;
                while idle < 5 {
                    match worker.turn().unwrap() {
                        Turn::Worked { result, .. } => {
                            let done = result.unwrap();
                            steps.lock().unwrap().push((done.item.to_string(), done.from));
                            idle = 0;
                        }
                        Turn::Idle { .. } => idle += 1,
                    }
                }
            });
        }
    });
    let items = world.items();
    assert_eq!(items.len(), ITEMS, "{items:?}");
    assert!(items.iter().all(|item| item.starts_with("bugs/archive/production/")), "{items:?}");
    let steps = steps.into_inner().unwrap();
    let unique: BTreeSet<_> = steps.iter().collect();
    assert_eq!((steps.len(), unique.len()), (ITEMS * 7, ITEMS * 7), "each step once");
    for item in items {
        let log = git(&world.remote(), &["show", &format!("main:docs/work/{item}/log.txt")]);
        assert_eq!(
            log.lines().collect::<Vec<_>>(),
            [
                "new",
                "stamped",
                "next",
                "inanalysis",
                "readyfordevelopment",
                "readyfortesting",
                "signedoff"
            ]
        );
    }
}

#[test]
fn a_worker_that_fails_or_panics_lets_go_and_its_work_is_kept() {
    let world = World::new();
    let clone = world.clone_named("a");
    place_item(&clone, "bugs/next/x-00000001");
    let source = world.source(&clone, "agent-1");
    let fail = |task: &Task, _: &LockGuard| {
        std::fs::write(task.directory.join("try.rs"), "fn first_try() {}\n").unwrap();
        Outcome::Failed { why: "it is hard".into() }
    };
    let mut worker = Worker::new(source.clone(), fail).claiming(in_worktree());
    let Turn::Worked { result: Ok(finished), .. } = worker.turn().unwrap() else { panic!() };
    let left = finished.left_on.unwrap();
    assert!(left.starts_with("unfinished/readyforanalysis-x-00000001."), "{left}");
    assert_eq!(git(&world.remote(), &["show", &format!("{left}:try.rs")]), "fn first_try() {}");
    let Turn::Idle { skipped } = worker.turn().unwrap() else { panic!("it went wrong before") };
    assert_eq!(skipped[0].why, "it went wrong here before");

    let panic = |task: &Task, _: &LockGuard| -> Outcome {
        std::fs::write(task.directory.join("try.rs"), "fn second_try() {}\n").unwrap();
        panic!("on purpose")
    };
    let mut worker = Worker::new(source.clone(), panic).claiming(in_worktree());
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.turn()));
    assert!(caught.is_err());
    assert_eq!(world.refs().iter().filter(|name| name.contains("unfinished/")).count(), 2);
    source.claim_named("x", &in_worktree()).map(drop).unwrap();
}
