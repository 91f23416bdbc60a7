use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::support::Home;

#[test]
fn a_broken_lock_goes_to_the_next_and_the_old_holder_is_told() {
    let home = Home::new();
    let old = home.acquire("x");
    let (token, lease) = (old["token"].to_string(), old["lease"].as_str().unwrap());
    let waiter = home.start(&["acquire", "x", "--json", "--holder", "next"]);
    home.until_queued("x");
    let args = ["break", "x", "--token", &token, "-m", "it hangs", "--force", "--yes"];
    let said = home.sprag(&args).ok().out;
    assert_eq!(
        home.mask(&said),
        "broke \"x\": token TOKEN of tester@HOST#PID (its lease was alive: ends in SPAN unless it \
         is renewed); next in queue: next\n"
    );
    assert!(waiter.wait_with_output().unwrap().status.success());
    // The token is compared: the new holder is not hit by the same command.
    home.sprag(&args).exits(77);
    let told = home.sprag(&["renew", "x", "--lease", lease, "--ttl", "1m"]).exits(77).err;
    assert!(told.contains("broke it: it hangs"), "{told}");
    assert!(told.contains("held by next"), "{told}");
}

#[test]
fn a_live_holder_is_broken_only_by_force() {
    let home = Home::new();
    let token = home.acquire("x")["token"].to_string();
    let said = home.sprag(&["break", "x", "--token", &token, "-m", "why", "--yes"]).exits(77);
    assert_eq!(
        home.mask(&said.err),
        "\
error[SP013]: not broken: the holder of \"x\" is alive
  holder   tester@HOST#PID
  lease    alive: ends in SPAN unless it is renewed
hint: break it anyway  sprag break x --token TOKEN --force -m WHY
"
    );
}

/// Breaks `x` on a terminal where somebody types `answer`.
fn on_a_terminal(home: &Home, token: &str, answer: &str) -> (i32, String) {
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&keyboard).unwrap();
    unlockpt(&keyboard).unwrap();
    let name = ptsname(&keyboard, Vec::new()).unwrap();
    let open = || File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut command = home.command(&["break", "x", "--token", token, "-m", "why", "--force"]);
    let mut child = command.stdin(open()).stderr(open()).stdout(Stdio::null()).spawn().unwrap();
    drop(command);
    let mut keyboard = File::from(keyboard);
    let mut screen = String::new();
    let mut bytes = [0; 1024];
    while !screen.contains("to go on: ") {
        let count = keyboard.read(&mut bytes).unwrap();
        screen += std::str::from_utf8(&bytes[..count]).unwrap();
    }
    writeln!(keyboard, "{answer}").unwrap();
    (child.wait().unwrap().code().unwrap(), screen)
}

#[test]
fn a_person_has_to_type_the_name() {
    let home = Home::new();
    let token = home.acquire("x")["token"].to_string();
    let (code, screen) = on_a_terminal(&home, &token, "y");
    assert!(screen.contains("will lose \"x\"."), "{screen}");
    assert_eq!(code, 64);
    home.sprag(&["acquire", "-n", "x"]).exits(75);
    assert_eq!(on_a_terminal(&home, &token, "x").0, 0);
    home.sprag(&["acquire", "-n", "x"]).ok();
}

#[test]
fn where_nobody_can_be_asked_somebody_must_have_said_yes() {
    let home = Home::new();
    let token = home.acquire("x")["token"].to_string();
    let args = ["break", "x", "--token", &token, "-m", "why", "--force"];
    let said = home.sprag(&args).exits(64).err;
    assert_eq!(said, "error[SP014]: not broken: nobody can be asked here; say --yes\n");
}

/// A store that sees only signs of life cannot say that a holder is alive.
#[test]
fn a_holder_of_whom_nothing_is_known_may_be_alive() {
    let home = Home::new();
    let url = home.git_store();
    let env = [("SPRAG_STORE", url.as_str())];
    home.sprag_with(&env, &["acquire", "work/x", "--ttl", "10m"]).ok();
    let words = ["break", "work/x", "--token", "1", "-m", "why", "--yes"];
    let said = home.sprag_with(&env, &words).exits(77).err;
    assert!(said.contains("the holder of \"work/x\" may be alive"), "{said}");
    let said = home.sprag_with(&env, &[&words[..], &["--force"]].concat()).ok();
    assert!(said.err.contains("sprag work recover x"), "{said:?}");
}
