//! A `sprag.toml` may come from anybody: with a clone, an archive, or from a folder of all.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::support::{Home, text};

/// A server of somebody else, at which nobody may call.
struct Stranger(TcpListener);

impl Stranger {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn address(&self) -> String {
        self.0.local_addr().unwrap().to_string()
    }

    #[track_caller]
    fn was_left_alone(&self) {
        let called = self.0.accept();
        assert!(called.as_ref().is_err_and(|e| e.kind() == ErrorKind::WouldBlock), "{called:?}");
    }
}

#[test]
fn a_hostile_file_gets_no_secret_by_any_command_nor_by_tab() {
    let (home, stranger) = (Home::new(), Stranger::new());
    let (address, secret) = (stranger.address(), home.write("id_rsa", "hunter2\n"));
    let env = [
        ("GH_TOKEN", "hunter2"),
        ("GH_ENTERPRISE_TOKEN", "hunter2"),
        ("REDISCLI_AUTH", "hunter2"),
        ("PGPASSWORD", "hunter2"),
        ("AWS_SECRET", "hunter2"),
    ];
    for (url, what) in [
        (format!("github://acme/app?api=http://{address}"), "the parameter api"),
        (
            format!("github://acme/app?token_file={}&api=http://{address}", secret.display()),
            "the parameter token_file",
        ),
        (format!("redis://{address}?prefix=${{AWS_SECRET}}"), "the variable AWS_SECRET"),
        (format!("redis://me:${{AWS_SECRET}}@{address}"), "the variable AWS_SECRET"),
        (format!("redis://{address}"), "the secret in REDISCLI_AUTH"),
        (format!("redlock://{address},{address},{address}"), "the secret in REDISCLI_AUTH"),
        (format!("postgres://me@{address}/app"), "the secret in PGPASSWORD"),
        (format!("redis://{address}?password_file={}", secret.display()), "password_file"),
    ] {
        let file = home.write("work/sprag.toml", &format!("# ours\nstore = \"{url}\"\n"));
        let tab = home.sprag_with(&env, &["__complete", "--", "show", ""]).ok();
        assert_eq!(format!("{}{}", tab.out, tab.err), "", "{url}");
        for args in [&["ls"][..], &["run", "x", "true"], &["doctor"], &["acquire", "x"]] {
            let said = home.sprag_with(&env, args).exits(78).err;
            let place = format!("{}:2: store ", file.canonicalize().unwrap().display());
            assert!(said.contains(&place) && said.contains(what), "{url}: {said}");
            assert!(said.contains("  sprag config trust /"), "{said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
        stranger.was_left_alone();
    }
    // A file for work items has the address of an API too.
    let rules = format!(
        "[work]\nsource = \"github\"\n[work.github]\nrepo = \"acme/app\"\napi = \"http://{address}\"\n"
    );
    home.write("work/sprag.toml", &rules);
    let said = home.sprag_with(&env, &["work", "ls"]).exits(78).err;
    assert!(said.contains("sprag.toml:5: work.github.api "), "{said}");
    stranger.was_left_alone();
}

/// Also with a URL that needs no trust: whoever presses a key has asked for nothing.
#[test]
fn tab_contacts_no_store_that_a_project_chose_before_it_is_trusted() {
    let (home, stranger) = (Home::new(), Stranger::new());
    home.write("work/sprag.toml", &format!("store = \"redis://{}\"\n", stranger.address()));
    home.sprag(&["__complete", "--", "show", ""]).ok();
    stranger.was_left_alone();
    home.write("work/sprag.toml", "store = \"sqlite:ours.db\"\n");
    home.acquire("deploy");
    assert_eq!(home.sprag(&["__complete", "--", "show", ""]).ok().out, "");
    home.sprag(&["config", "trust"]).ok();
    assert_eq!(home.sprag(&["__complete", "--", "show", ""]).ok().out, "deploy\n");
}

#[test]
fn trust_is_for_one_content_and_can_be_taken_back() {
    let home = Home::new();
    let line = |name: &str| format!("store = \"sqlite:${{PLACE}}-{name}.db\"\n");
    let env = [("PLACE", "here")];
    let ls = |code| home.sprag_with(&env, &["ls"]).exits(code);
    let file = home.write("work/sprag.toml", &line("a"));
    ls(78);
    let said = home.sprag(&["config", "trust"]).ok().out;
    assert!(
        said.contains("trusted from now on") && said.contains("  line 1: store reads"),
        "{said}"
    );
    ls(0);
    home.write("work/sprag.toml", &line("b"));
    ls(78);
    let trusted = home.sprag(&["config", "trust", text(&file), "--json"]).ok().json();
    assert_eq!((&trusted["changed"], &trusted["trusted"]), (&true.into(), &true.into()));
    ls(0);
    let again = home.sprag(&["config", "trust", "--json"]).ok().json();
    assert_eq!(again["changed"], false);
    assert!(home.sprag(&["config", "untrust"]).ok().out.contains("is not trusted any more"));
    ls(78);
    // The copy of a trusted file is another file.
    home.sprag(&["config", "trust"]).ok();
    home.write("work/below/sprag.toml", &line("b"));
    let mut below = home.command(&["ls"]);
    let below = below.envs(env).current_dir(home.path("work/below")).output().unwrap();
    assert_eq!(below.status.code(), Some(78));
}

#[test]
fn what_the_user_names_or_owns_needs_no_trust() {
    let home = Home::new();
    let env = [("PLACE", "here")];
    let line = "store = \"sqlite:${PLACE}.db\"\n";
    let file = home.write("work/sprag.toml", line);
    home.sprag_with(&env, &["ls", "--config", text(&file)]).ok();
    home.sprag_with(&[env[0], ("SPRAG_CONFIG", text(&file))], &["ls"]).ok();
    // Another store is asked for, so that of the file does not matter.
    home.sprag_with(&env, &["ls", "-S", "sqlite:"]).ok();
    home.sprag_with(&[("SPRAG_STORE", "sqlite:")], &["ls"]).ok();
    std::fs::remove_file(file).unwrap();
    home.write(".config/sprag/config.toml", line);
    home.sprag_with(&env, &["ls"]).ok();
}

#[test]
fn the_state_of_the_file_is_among_the_settings() {
    let home = Home::new();
    home.write("work/sprag.toml", "wait = 5\nstore = \"redis://me:hunter2@db\"\n");
    let shown = home.sprag(&["config"]).ok().out;
    assert!(shown.contains("sprag.toml  untrusted\n"), "{shown}");
    assert!(shown.contains("line 2      does not count: store has a password\n"), "{shown}");
    assert!(shown.contains("sprag config trust") && !shown.contains("hunter2"), "{shown}");
    let json = home.sprag(&["config", "--json"]).ok().json();
    assert_eq!(json["project"]["trust"], "untrusted");
    assert_eq!(json["project"]["does_not_count"][0]["line"], 2);
    home.sprag(&["config", "trust"]).ok();
    let shown = home.sprag(&["config"]).ok().out;
    assert!(
        shown.contains("sprag.toml  trusted\n") && !shown.contains("does not count"),
        "{shown}"
    );
    for args in [&["explain", "SP044"][..], &["stores"], &["completions", "bash"]] {
        home.sprag(args).ok();
    }
}

#[test]
fn a_file_that_others_can_change_is_not_used() {
    let home = Home::new();
    let file = home.write("work/sprag.toml", "store = \"sqlite:ours.db\"\n");
    for mode in [0o664, 0o646, 0o666] {
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        for args in [&["ls"][..], &["config", "trust"], &["work", "ls"]] {
            let said = home.sprag(args).exits(78).err;
            assert!(said.contains(&format!("can be changed by others (mode {mode:o})")), "{said}");
            assert!(said.contains("chmod go-w /"), "{said}");
        }
        assert!(!home.path("work/ours.db").exists());
        // Somebody who names the store gets that, and is told.
        let named = home.sprag(&["ls", "-S", "sqlite:"]).ok();
        assert!(named.err.contains("sprag.toml is not used"), "{named:?}");
    }
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    home.sprag(&["ls"]).ok();
}

/// A push runs its hooks, as whoever pushes.
#[test]
fn no_hook_of_a_repository_runs_before_its_file_is_trusted() {
    let home = Home::new();
    let store = home.git_store();
    home.write("work/sprag.toml", &format!("store = \"{store}\"\n"));
    home.sprag(&["acquire", "x", "--ttl", "10m"]).ok();
    let hook = home.write("locks.git/hooks/pre-receive", "#!/bin/sh\ntouch \"$HOME/hooked\"\n");
    std::fs::set_permissions(&hook, PermissionsExt::from_mode(0o755)).unwrap();
    let refused = |home: &Home| {
        for args in [&["ls"][..], &["acquire", "y"]] {
            let said = home.sprag(args).exits(78).err;
            assert!(said.contains("a repository on this machine that runs hooks"), "{said}");
        }
        assert!(!home.path("hooked").exists());
    };
    refused(&home);
    // The same behind the name of a remote.
    let git = |args: &[&str]| {
        let mut git = std::process::Command::new("git");
        home.dress(&mut git);
        assert!(git.args(args).status().unwrap().success(), "{args:?}");
    };
    git(&["init", "-q"]);
    git(&["remote", "add", "origin", text(Path::new("../locks.git"))]);
    home.write("work/sprag.toml", "store = \"git:origin\"\n");
    refused(&home);
    std::fs::create_dir(home.path("work/below")).unwrap();
    let below = home.command(&["ls"]).current_dir(home.path("work/below")).status().unwrap();
    assert_eq!(below.code(), Some(78));
    home.sprag(&["config", "trust"]).ok();
    home.sprag(&["acquire", "y", "--ttl", "10m"]).ok();
    assert!(home.path("hooked").exists());
}
