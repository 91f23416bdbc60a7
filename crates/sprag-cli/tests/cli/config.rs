use super::support::{Answer, Home, text};

fn store(answer: Answer) -> (String, String) {
    let json = answer.ok().json();
    let row = &json["settings"][0];
    assert_eq!(row["name"], "store");
    (row["value"].as_str().unwrap().to_owned(), row["origin"].as_str().unwrap().to_owned())
}

#[test]
fn flags_go_before_the_environment_and_the_environment_before_files() {
    let home = Home::new();
    let ask = ["config", "--json"];
    let both = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
    assert_eq!(store(home.sprag(&ask)), both("sqlite:", "default"));

    let user = home.write(".config/sprag/config.toml", "store = \"memory:user\"\n");
    let origin = format!("{}:1", user.display());
    assert_eq!(store(home.sprag(&ask)), both("memory:user", &origin));

    // In a folder above the working directory.
    let project = home.write("sprag.toml", "# ours\nstore = \"memory:project\"\n");
    let origin = format!("{}:2", project.canonicalize().unwrap().display());
    assert_eq!(store(home.sprag(&ask)), both("memory:project", &origin));

    let other = home.write("other.toml", "store = \"memory:other\"\n");
    let flag = home.sprag(&["config", "--json", "--config", text(&other)]);
    assert_eq!(store(flag), both("memory:other", &format!("{}:1", other.display())));

    let env = [("SPRAG_STORE", "memory:env")];
    assert_eq!(store(home.sprag_with(&env, &ask)), both("memory:env", "SPRAG_STORE"));
    let flag = home.sprag_with(&env, &["config", "--json", "-S", "memory:flag"]);
    assert_eq!(store(flag), both("memory:flag", "--store"));
}

#[test]
fn origins_are_shown_when_asked_for() {
    let home = Home::new();
    let env = [("SPRAG_WAIT", "90")];
    let shown = home.sprag_with(&env, &["config", "--show-origin"]).ok().out;
    let expected = "\
store       sqlite:  default
holder      -        default
wait        1m30s    SPRAG_WAIT
ttl         30s      default
kill_after  5s       default
color       auto     default
";
    assert_eq!(shown, expected);
    assert!(!home.sprag(&["config"]).ok().out.contains("default"));
}

#[test]
fn settings_decide_what_commands_do() {
    let home = Home::new();
    home.write(
        "work/sprag.toml",
        "store = \"here\"\nwait = 0\nttl = \"2m\"\nholder = \"nightly\"\n\
         [stores.here]\nurl = \"sqlite:${PLACE}.db\"\n",
    );
    let env = [("PLACE", "locks")];
    home.sprag(&["config", "trust"]).ok();
    let taken = home.sprag_with(&env, &["acquire", "x", "--json"]).ok().json();
    assert_eq!(taken["ttl_ms"], 120_000);
    assert!(home.path("work/locks.db").is_file());
    // A wait of 0 is not to wait.
    let held = home.sprag_with(&env, &["acquire", "x", "--json"]).exits(75).error();
    assert_eq!(held["state"]["holders"][0]["holder"], "nightly");
}

/// Otherwise each folder of a project would have locks of its own.
#[test]
fn a_relative_store_in_a_file_is_one_for_all_below_it() {
    let home = Home::new();
    let urls = "store = \"sqlite:./ours.db\"\n[stores.other]\nurl = \"sqlite:other.db\"\n";
    home.write("work/sprag.toml", urls);
    home.write("work/a b%/c/file", "");
    for store in [&[][..], &["-S", "other"]] {
        home.sprag(&[&["acquire", "x", "--ttl", "10m"], store].concat()).ok();
        let mut below = home.command(&[&["run", "-n"], store, &["x", "true"]].concat());
        let below = below.current_dir(home.path("work/a b%/c")).status().unwrap();
        assert_eq!(below.code(), Some(75), "{store:?}");
    }
    // A flag means where one is.
    home.sprag(&["acquire", "x", "--ttl", "10m", "-S", "sqlite:a b%25/ours.db"]).ok();
    assert!(home.path("work/a b%/ours.db").is_file());
}
