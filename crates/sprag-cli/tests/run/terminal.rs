//! `sprag run` on a real terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{Place, Run, wait_for};

/// A terminal, and what was written to it.
struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    run: Run,
}

impl Terminal {
    /// Starts a program as the leader of a session on a new terminal.
    fn start(place: &Place, words: &[&str]) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let mut options = File::options();
        let slave = options.read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(words);
        place.set_up(&mut command);
        command.env("TERM", "xterm").env("PS1", "> ");
        let (one, two, three) = (slave.try_clone().unwrap(), slave.try_clone().unwrap(), slave);
        command.stdin(Stdio::from(one)).stdout(Stdio::from(two)).stderr(Stdio::from(three));
        let run = Run { child: command.spawn().unwrap() };
        drop(command);
        let screen = Arc::new(Mutex::new(String::new()));
        let keyboard = File::from(master);
        let mut reader = keyboard.try_clone().unwrap();
        let seen = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            // The kernel ends it with an error when the last process has left the terminal.
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        Self { keyboard, screen, run }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn wait_for(&self, text: &str) {
        wait_for(&format!("{text:?} on the screen: {:?}", self.screen()), || {
            self.screen().contains(text)
        });
    }

    fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }
}

const SPRAG: &str = env!("CARGO_BIN_EXE_sprag");

#[test]
fn control_c_reaches_the_command_once() {
    let place = Place::new();
    let script = "trap 'echo int >> log' INT; echo up > up; \
                  i=0; while [ $i -lt 40 ]; do sleep 0.02; i=$((i+1)); done; exit 4";
    let mut terminal = Terminal::start(&place, &[SPRAG, "run", "x", "--", "sh", "-c", script]);
    place.wait_lines("up", 1);
    terminal.press("\x03");
    place.wait_lines("log", 1);
    assert_eq!(terminal.run.wait(crate::support::PATIENCE), 4);
    assert_eq!(place.read("log"), "int\n");
}

#[test]
fn a_signal_that_somebody_sends_to_sprag_reaches_the_command_on_a_terminal_too() {
    let place = Place::new();
    let script = "trap 'echo term >> log; exit 3' TERM; echo up > up; while :; do sleep 0.02; done";
    let mut terminal = Terminal::start(&place, &[SPRAG, "run", "x", "--", "sh", "-c", script]);
    place.wait_lines("up", 1);
    terminal.run.send(Signal::TERM);
    assert_eq!(terminal.run.wait(crate::support::PATIENCE), 3);
    assert_eq!(place.read("log"), "term\n");
}

#[test]
fn control_z_and_fg_stop_and_go_on() {
    let place = Place::new();
    let mut terminal = Terminal::start(&place, &["bash", "--norc", "--noprofile", "-i"]);
    terminal.wait_for("> ");
    terminal.press("\"$SPRAG\" run x sh -c 'echo $$ > pid; read line; echo got-$line'\n");
    let pid: i32 = place.wait_lines("pid", 1).trim().parse().unwrap();
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    };
    terminal.press("\x1a");
    terminal.wait_for("Stopped");
    wait_for("the command to stop", || state() == 'T');
    terminal.press("fg\n");
    wait_for("the command to go on", || state() != 'T');
    terminal.press("hello\n");
    terminal.wait_for("got-hello");
    terminal.press("exit\n");
    terminal.run.wait(crate::support::PATIENCE);
}

#[test]
fn while_waiting_there_is_a_spinner_that_is_erased() {
    let place = Place::new();
    let holder = place.hold(&["-m", "nightly", "x"]);
    let mut terminal = Terminal::start(&place, &[SPRAG, "run", "x", "echo", "mine"]);
    terminal.wait_for("⠋ x · held by ");
    terminal.wait_for("⠙ x · held by ");
    holder.send(Signal::TERM);
    drop(holder.end());
    assert_eq!(terminal.run.wait(crate::support::PATIENCE), 0);
    terminal.wait_for("mine");
    let screen = terminal.screen();
    let (spinner, after) = screen.rsplit_once("\r\x1b[K").unwrap();
    assert!(spinner.contains("^C gives up") || spinner.contains("held by"), "{screen:?}");
    assert!(after.starts_with("sprag: acquired \"x\" after "), "{after:?}");
}

#[test]
fn control_c_while_waiting_gives_up() {
    let place = Place::new();
    let holder = place.hold(&["x"]);
    let mut terminal = Terminal::start(&place, &[SPRAG, "run", "x", "echo", "mine"]);
    terminal.wait_for("⠋ x");
    terminal.press("\x03");
    assert_eq!(terminal.run.wait(std::time::Duration::from_secs(1)), 130);
    assert_eq!(place.look("x").waiters, []);
    drop(holder);
}
