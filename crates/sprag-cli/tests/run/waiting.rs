//! What is said while the lock is waited for.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Place, now};

#[test]
fn the_first_line_comes_within_a_second_and_says_who_why_since_when_and_which_place() {
    let place = Place::new();
    let holder = place.hold(&["-m", "deploy v1.8.2", "x"]);
    let started = now();
    let mut waiter = place.start(&["run", "-w", "10m", "x", "echo", "mine"]);
    let mut err = BufReader::new(waiter.child.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    let took = now().since(started);
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(line.starts_with("sprag: waiting for \"x\": held by "), "{line}");
    for part in [
        format!("#{} since ", holder.pid()),
        "Z (".into(),
        "), \"deploy v1.8.2\", renewed ".into(),
        " ago; queue position 1 of 1; waited ".into(),
        " of 10m\n".into(),
    ] {
        assert!(line.contains(&part), "no {part:?} in {line}");
    }
    holder.send(Signal::TERM);
    drop(holder.end());
    line.clear();
    err.read_line(&mut line).unwrap();
    let token = place.look("x").fence;
    assert!(line.starts_with("sprag: acquired \"x\" after "), "{line}");
    assert!(line.ends_with(&format!("s (token {token})\n")), "{line}");
    let ended = waiter.end();
    assert_eq!((ended.code, ended.out.as_str()), (0, "mine\n"));
}

#[test]
fn a_lock_that_is_free_is_taken_without_a_word() {
    let place = Place::new();
    let ended = place.end(&["run", "x", "true"]);
    assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (0, "", ""));
}

#[test]
fn systemd_is_told_when_the_lock_is_held() {
    let place = Place::new();
    let path = place.path("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let mut command = place.sprag(&["run", "--sd-notify", "x", "true"]);
    command.env("NOTIFY_SOCKET", &path);
    assert_eq!(place.run(command).end().code, 0);
    let mut buffer = [0; 512];
    let mut heard = Vec::new();
    for _ in 0..2 {
        let length = socket.recv(&mut buffer).unwrap();
        heard.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
    }
    assert_eq!(heard, ["READY=1\nSTATUS=holding \"x\"", "STOPPING=1"]);
}
