use std::io::{Read, Write};
use std::net::TcpListener;

use super::support::Home;

const URLS: [&str; 4] = [
    "redis://me:hunter2@db:6379/1",
    "mysql://db/locks?password=hunter2",
    "sqlite:locks.db?password=hunter2",
    "hunter2",
];

#[test]
fn secrets_in_urls_are_never_printed() {
    let home = Home::new();
    let commands: &[&[&str]] = &[
        &["ls"],
        &["show", "x"],
        &["why"],
        &["acquire", "x"],
        &["run", "x", "--", "true"],
        &["doctor"],
        &["demo"],
        &["config", "--show-origin"],
        &["log"],
        &["stores"],
        &["ls", "--bogus"],
    ];
    let mut looked = 0;
    for url in URLS {
        let file = format!("store = \"{url}\"\n[stores.prod]\nurl = \"{url}\"\n");
        let file = home.write("secret.toml", &file);
        let file = file.to_str().unwrap();
        for args in commands {
            for extra in [&["-v"][..], &["--json"]] {
                let args = [*args, extra].concat();
                let (before, after) = args.split_at(1);
                let answers = [
                    home.sprag(&[before, &["-S", url], after].concat()),
                    home.sprag_with(&[("SPRAG_STORE", url)], &args),
                    home.sprag(&[before, &["--config", file], after].concat()),
                ];
                for answer in answers {
                    let said = format!("{}{}", answer.out, answer.err);
                    assert!(!said.contains("hunter2"), "{url} {args:?}: {said}");
                    looked += 1;
                }
            }
        }
    }
    assert_eq!(looked, 4 * 11 * 2 * 3);
}

#[test]
fn a_broken_file_is_not_quoted() {
    let home = Home::new();
    for text in ["store = \"redis://me:hunter2@db", "password = \"hunter2\"\n", "hunter2 = 1\n[x"] {
        home.write("work/sprag.toml", text);
        let said = home.sprag(&["ls"]).exits(78).err;
        assert!(said.contains("sprag.toml:"), "{said}");
        // The name of a key may be said; what stands behind it may not.
        assert!(!said.contains("\"hunter2") && !said.contains(":hunter2"), "{said}");
    }
}

#[test]
fn a_lease_that_was_mistyped_is_not_repeated() {
    let home = Home::new();
    let said = home.sprag(&["release", "x", "--lease", "0123456789abcdef0123456789abcde"]).err;
    assert!(said.contains("32 hexadecimal digits"), "{said}");
    let env = [("SPRAG_LEASE", "0123456789abcdef-secret")];
    let said = home.sprag_with(&env, &["release", "x"]).exits(64).err;
    assert!(said.contains("SPRAG_LEASE: ") && !said.contains("-secret"), "{said}");
}

/// Others write who they are and why: a terminal must not obey them, and no line may look like ours.
#[test]
fn the_words_of_others_do_not_reach_the_terminal_as_orders() {
    let home = Home::new();
    let holder = "evil\x1b[2J\nfree  x\u{202e}txt";
    let reason = "why\x1b]0;title\x07\rno\u{9b}31m\x1b[31mred\u{200b}\u{2066}";
    let words = ["acquire", "x", "--ttl", "10m", "--holder", holder, "-m", reason];
    let token = home.sprag(&[&words[..], &["--json"]].concat()).ok().json()["token"].to_string();
    let waiter = home.start(&["run", "-w", "1", "--holder", "z", "x", "true"]);
    home.until_queued("x");
    let waited = waiter.wait_with_output().unwrap();
    let mut said = String::from_utf8(waited.stderr).unwrap();
    for args in [&["ls"][..], &["show", "x"], &["why", "x"], &["run", "-n", "x", "true"]] {
        let answer = home.sprag(args);
        said += &(answer.out + &answer.err);
    }
    let breaks = ["break", "x", "--token", &token, "-m", reason, "--force", "--yes"];
    for args in [&breaks[..], &["log"], &["show", "x"]] {
        said += &home.sprag(args).ok().out;
    }
    assert!(said.contains(r"evil\u{1b}[2J\nfree  x"), "{said}");
    assert!(!said.contains(strange), "{said:?}");
    assert!(!said.lines().any(|line| line.starts_with("free  x")), "{said}");
    let json = home.sprag(&["log", "--json"]).ok();
    assert!(!json.out.contains(strange), "{json:?}");
    assert_eq!(json.json()["entries"][0]["reason"], reason);
}

/// What a terminal obeys or does not show.
fn strange(c: char) -> bool {
    c.is_control() && c != '\n' || "\u{200b}\u{202e}\u{2066}".contains(c)
}

/// With colours too, which are ours alone.
#[test]
fn the_answer_of_a_server_gives_no_orders_and_looks_like_no_hint() {
    let home = Home::new();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = format!("redis://{}", server.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = [0; 4096];
            while stream.read(&mut asked).is_ok_and(|count| count > 0) {
                let said = "-ODD \x1b[31mred\x1b[0m\x1b]0;t\x07\u{9b}2J \u{202e}txt\u{200b}\r\n";
                let said = said.repeat(8);
                if stream.write_all(said.as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    for args in [&["ls"][..], &["doctor"], &["show", "x"], &["ls", "--json"]] {
        let args = [args, &["-S", &store]].concat();
        let answer = home.sprag(&args);
        let said = answer.out + &answer.err;
        assert!(said.contains("red") && !said.contains(strange), "{args:?}: {said:?}");
        let coloured = home.sprag(&[&args[..], &["--color", "always"]].concat()).err;
        assert!(!coloured.contains("\x1b[31mred") && !coloured.contains("\x1b]"), "{coloured:?}");
    }
}

/// Names of locks are written by others, and a hint is there to be copied.
#[test]
fn what_is_to_be_typed_is_one_word_of_a_shell() {
    let home = Home::new();
    let name = "a$(touch hooked)'\u{202e}b";
    home.sprag(&["acquire", name, "--ttl", "10m"]).ok();
    let said = home.sprag(&["run", "-n", name, "true"]).exits(75).err;
    assert!(!said.contains(strange), "{said:?}");
    let hint = said.lines().find(|line| line.contains("sprag show -w")).unwrap();
    let word = hint.split("show -w ").nth(1).unwrap();
    let script = format!("printf %s {word}");
    let mut bash = std::process::Command::new("bash");
    home.dress(&mut bash);
    let printed = bash.env("LC_ALL", "C.UTF-8").args(["-c", &script]).output().unwrap().stdout;
    assert_eq!(String::from_utf8(printed).unwrap(), name);
    assert!(!home.path("work/hooked").exists());
}

/// What others see, and what a git store keeps for ever, has no argument of the command.
#[test]
fn the_words_of_a_command_are_not_its_reason() {
    let home = Home::new();
    let secrets = ["Authorization: Bearer hunter2", "-u", "me:hunter2", "-phunter2"];
    let script = "sprag show x --json; sprag log --json";
    let script = script.replace("sprag", env!("CARGO_BIN_EXE_sprag"));
    let run = ["x", "--", "sh", "-c", &script, "sh"];
    let git = home.git_store();
    for store in ["sqlite:", &git] {
        let run = [&["run", "-S", store][..], &run, &secrets].concat();
        let said = home.sprag(&run).ok().out;
        assert!(said.contains(r#""reason":"sh""#), "{said}");
        let trail = home.sprag(&["log", "-S", store, "--json"]).ok().out;
        assert!(!format!("{said}{trail}").contains("hunter2"), "{said} {trail}");
    }
    let mut history = std::process::Command::new("git");
    let history = history.arg("-C").arg(home.path("locks.git")).args(["log", "--all", "-p"]);
    let history = history.output().unwrap().stdout;
    let history = String::from_utf8_lossy(&history);
    assert!(history.contains("commit ") && !history.contains("hunter2"), "{history}");

    // Whoever wants more says so, in a file that counts.
    home.write("work/sprag.toml", "reason = \"command\"\n");
    let refused = home.sprag(&["run", "x", "true", "--all"]).exits(78).err;
    assert!(refused.contains("sprag.toml:1: reason shows the words of commands"), "{refused}");
    home.sprag(&["config", "trust"]).ok();
    let show = env!("CARGO_BIN_EXE_sprag");
    let said = home.sprag(&["run", "x", show, "show", "x", "--holder", "token=hunter2"]).ok().out;
    assert!(said.contains("show x --holder token=***") && !said.contains("hunter2"), "{said}");
}
