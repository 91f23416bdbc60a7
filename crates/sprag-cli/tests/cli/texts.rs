use super::support::Home;

#[track_caller]
fn same(home: &Home, said: &str, expected: &str) {
    let said = home.mask(said);
    assert!(said.trim_end() == expected.trim_end(), "\n{said}\nis not\n{expected}");
}

#[test]
fn a_held_lock_is_described() {
    let home = Home::new();
    home.sprag(&["acquire", "deploy prod", "--ttl", "10m", "-m", "deploy v1.8.2"]).ok();
    let answer = home.sprag(&["acquire", "-n", "deploy prod"]).exits(75);
    same(
        &home,
        &answer.err,
        "\
error[SP001]: lock \"deploy prod\" is held
  holder   tester@HOST#PID
  reason   deploy v1.8.2
  since    TIME (SPAN ago), token TOKEN
  lease    alive: ends in SPAN unless it is renewed
  store    sqlite:
hint: wait for it           sprag run --wait SPAN 'deploy prod' -- ...
hint: watch it              sprag show -w 'deploy prod'
hint: see what holds it up  sprag why 'deploy prod'",
    );
    assert_eq!(answer.out, "");
}

#[test]
fn who_waits_is_told_for_whom() {
    let home = Home::new();
    home.sprag(&["acquire", "x", "--ttl", "10m", "-m", "the reason"]).ok();
    let answer = home.sprag(&["acquire", "x", "-w", "2s"]).exits(75);
    let first = answer.err.lines().next().unwrap();
    same(
        &home,
        first,
        "sprag: waiting for \"x\": held by tester@HOST#PID since TIME (SPAN), \"the reason\", \
         lease ends in SPAN; queue position 1 of 1; waited SPAN of SPAN",
    );
    let quiet = home.sprag(&["acquire", "x", "-q", "-w", "1s"]).exits(75);
    assert!(quiet.err.starts_with("error[SP001]"), "{quiet:?}");
}

#[test]
fn a_list_shows_what_is_held_and_whose() {
    let home = Home::new();
    home.sprag(&["acquire", "mine", "--ttl", "10m", "-m", "a reason"]).ok();
    home.sprag(&["acquire", "theirs", "--ttl", "10m", "--holder", "ci@runner-7"]).ok();
    let list = home.sprag(&["ls"]).ok().out;
    let lines: Vec<_> = list.lines().map(|line| home.mask(line)).collect();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(&lines[0]), "NAME MODE HOLDER REASON HELD LEASE WAIT TOKEN");
    assert_eq!(words(&lines[1]), "* mine excl tester@HOST#PID a reason SPAN SPAN 0 TOKEN");
    assert_eq!(words(&lines[2]), "theirs excl ci@runner-7 - SPAN SPAN 0 TOKEN");
    assert_eq!(lines[3], "2 locks, 0 waiters      (* = yours)");
    let some = home.sprag(&["ls", "the", "-o", "name"]).ok().out;
    assert_eq!(some, "  NAME\n  theirs\n1 lock, 0 waiters      (* = yours)\n");
}

#[test]
fn what_was_done_in_this_period_is_listed_as_done() {
    let home = Home::new();
    home.sprag(&["run", "--once-per", "1d", "report", "--", "true"]).ok();
    let list = home.sprag(&["ls", "-o", "name,mode,held,lease"]).ok().out;
    let line = home.mask(list.lines().nth(1).unwrap());
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words, ["*", "report", "done", "-", "next", "SPAN"]);
}

#[test]
fn one_lock_is_shown_with_its_queue() {
    let home = Home::new();
    home.sprag(&["acquire", "x", "--ttl", "10m", "-m", "first"]).ok();
    let mut waiter = home.start(&["acquire", "x", "-m", "second", "--priority", "-2"]);
    home.until_queued("x");
    let shown = home.sprag(&["show", "x"]).ok().out;
    waiter.kill().unwrap();
    waiter.wait().unwrap();
    same(
        &home,
        &shown,
        "\
x  exclusive  sqlite:
  holder   tester@HOST#PID   token TOKEN   since TIME (SPAN)
  lease    alive: ends in SPAN unless it is renewed
  reason   first
  queue    1. tester@HOST#PID  waiting SPAN  \"second\"  priority -2",
    );
    same(
        &home,
        &home.sprag(&["show", "y"]).ok().out,
        "y  free  sqlite:\n  nobody has ever held it",
    );
}

#[test]
fn the_root_of_a_blockage_is_found() {
    let home = Home::new();
    let sprag = env!("CARGO_BIN_EXE_sprag");
    home.sprag(&["acquire", "db", "--ttl", "10m", "--holder", "bob", "-m", "manual fix"]).ok();
    // A chain as one process makes it: several locks, taken in order.
    let mut chain = home.start(&["run", "--holder", "ci", "a,db", "--", sprag, "--version"]);
    home.until_queued("db");
    let why = home.sprag(&["why", "a"]).ok().out;
    let data = home.sprag(&["why", "a", "--json"]).ok().json();
    chain.kill().unwrap();
    chain.wait().unwrap();
    same(
        &home,
        &why,
        "\
a  <- held by ci since TIME (SPAN), \"sprag\"
└─ waits for db  <- held by bob since TIME (SPAN), \"manual fix\"   <== root blocker
no cycle; breaking db frees 1 waiter",
    );
    let lock = &data["locks"][0];
    assert_eq!((&lock["roots"], &lock["cycle"]), (&serde_json::json!(["db"]), &false.into()));
    same(&home, &home.sprag(&["why", "free"]).ok().out, "free  is free: nothing holds it up");
}

#[test]
fn names_that_were_never_used_are_answered_with_the_nearest() {
    let home = Home::new();
    home.acquire("deploy");
    for command in ["show", "why"] {
        let answer = home.sprag(&[command, "deplyo"]).ok();
        assert_eq!(answer.err, "sprag: did you mean \"deploy\"?\n");
    }
}

#[test]
fn what_changed_is_said_and_quiet_is_quiet() {
    let home = Home::new();
    let taken = home.sprag(&["acquire", "x", "--ttl", "10m"]).ok().out;
    same(&home, &taken, "acquired \"x\" (token TOKEN) until TIME\nlease LEASE");
    let lease = taken.trim_end().rsplit(' ').next().unwrap();
    assert_eq!(home.sprag(&["renew", "-q", "x", "--lease", lease]).ok().out, "");
    let gone = home.sprag(&["release", "x", "--lease", lease]).ok().out;
    same(&home, &gone, "released \"x\" (token TOKEN) after SPAN");
    let again = home.sprag(&["release", "x", "--lease", lease]).exits(77).err;
    same(
        &home,
        &again,
        "\
error[SP011]: not released: your lease of \"x\" does not hold it any more: it was released
  now      free; the last token was TOKEN",
    );
}

#[test]
fn hints_name_only_commands_that_exist() {
    let home = Home::new();
    let commands = super::support::commands(&home);
    let mut sources = String::new();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => sources.push_str(&std::fs::read_to_string(path).unwrap()),
            }
        }
    }
    let mut seen = 0;
    for place in ["(\"sprag ", ", \"sprag ", "`sprag ", "(sprag ", "\n  sprag "] {
        for rest in sources.split(place).skip(1) {
            let word: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
            if !word.is_empty() && word != "help" && !rest.starts_with("__") {
                assert!(commands.contains(&word), "sprag {word}");
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "{seen}");
}

#[test]
fn colours_are_used_when_asked_for_and_never_in_json() {
    let home = Home::new();
    home.acquire("x");
    let plain = home.sprag(&["acquire", "-n", "x"]);
    assert!(!plain.err.contains('\x1b'), "{plain:?}");
    let forced = home.sprag(&["acquire", "-n", "x", "--color", "always"]);
    assert!(forced.err.starts_with("\x1b[1;31merror[SP001]\x1b[0m"), "{forced:?}");
    let asked = home.sprag_with(&[("CLICOLOR_FORCE", "1")], &["acquire", "-n", "x"]);
    assert!(asked.err.contains('\x1b'), "{asked:?}");
    let env = [("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")];
    assert!(!home.sprag_with(&env, &["acquire", "-n", "x"]).err.contains('\x1b'));
    let json = home.sprag(&["acquire", "-n", "x", "--color", "always", "--json"]);
    assert!(!json.err.contains('\x1b'), "{json:?}");
}

#[test]
fn verbose_names_the_store_and_who_chose_it() {
    let home = Home::new();
    let answer = home.sprag_with(&[("SPRAG_STORE", "sqlite:x.db")], &["ls", "-v"]).ok();
    assert_eq!(answer.err, "sprag: the store is sqlite:x.db (from SPRAG_STORE)\n");
}

#[test]
fn who_held_a_lock_before_is_shown_with_it() {
    let home = Home::new();
    for who in ["ann", "bob", "cid", "dee"] {
        home.sprag(&["run", "--holder", who, "x", "true"]).ok();
    }
    home.sprag(&["acquire", "x", "--holder", "eve"]).ok();
    let token = home.sprag(&["show", "x", "--json"]).ok().json()["token"].to_string();
    home.sprag(&["break", "x", "--token", &token, "-m", "why", "--force", "--yes"]).ok();
    let shown = home.sprag(&["show", "x"]).ok().out;
    let line = shown.lines().find(|line| line.starts_with("  before ")).unwrap();
    let who: Vec<_> = line.trim_start_matches("  before   ").split(" · ").collect();
    assert_eq!(who.len(), 3, "{shown}");
    for (text, (name, end)) in
        who.iter().zip([("eve", "broken"), ("dee", "released"), ("cid", "released")])
    {
        assert!(text.starts_with("token "), "{shown}");
        assert!(text.contains(&format!(" {name} ")) && text.ends_with(end), "{shown}");
    }
    let before = home.sprag(&["show", "x", "--json"]).ok().json()["before"].clone();
    assert_eq!(before[0]["holder"], "eve");
    assert_eq!(before[0]["token"].to_string(), token);
    assert_eq!(before[0]["end"], "broken");
    assert!(before[0]["from"].is_string() && before[2]["holder"] == "cid", "{before}");
}
