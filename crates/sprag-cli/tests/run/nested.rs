//! A `sprag run` inside a `sprag run`.

use std::os::unix::fs::PermissionsExt as _;

use sprag_testkit::redis_server::{RedisServer, RedisSetup};

use crate::support::{Place, block_on};

#[test]
fn the_same_lock_is_refused_instead_of_waited_for() {
    let place = Place::new();
    let ended = place.end(&["run", "x", "--", "sh", "-c", "\"$SPRAG\" run x true; echo $?"]);
    assert_eq!(ended.out, "64\n", "{ended:?}");
    assert!(
        ended.err.contains("\"x\" is already held by this process tree (token "),
        "{}",
        ended.err
    );
    assert!(ended.err.contains("taking it again would wait for ourselves"), "{}", ended.err);
}

#[test]
fn reentrant_uses_the_lock_that_is_held_and_takes_the_others() {
    let place = Place::new();
    let inner = "\"$SPRAG\" run --reentrant x sh -c 'echo $SPRAG_LOCK'; \
                 \"$SPRAG\" run --reentrant x,y sh -c 'echo $SPRAG_LOCK $SPRAG_HELD'";
    let ended = place.end(&["run", "x", "--", "sh", "-c", inner]);
    let (x, y) = (place.look("x").fence, place.look("y").fence);
    assert_eq!(ended.out, format!("x\ny x:{x},y:{y}\n"), "{ended:?}");
}

#[test]
fn another_lock_or_another_store_is_another_matter() {
    let place = Place::new();
    let inner = "\"$SPRAG\" run y true && \"$SPRAG\" -S sqlite:./other.db run x true && echo fine";
    let ended = place.end(&["run", "x", "--", "sh", "-c", inner]);
    assert_eq!(ended.out, "fine\n", "{ended:?}");
}

#[test]
fn a_daemon_that_outlived_its_run_may_take_the_lock() {
    let place = Place::new();
    let inner = "setsid sh -c 'echo > up; while [ -S \"$SPRAG_SOCKET\" ]; do sleep 0.01; done; \
                 \"$SPRAG\" run x sh -c \"echo again >> log\"' > /dev/null 2>&1 & while ! [ -e up ]; do sleep 0.01; done";
    let ended = place.end(&["run", "x", "--", "sh", "-c", inner]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(place.wait_lines("log", 1), "again\n");
}

/// A Redis with a user whose password is `hunter2`; the URL with it.
pub(crate) fn with_password() -> Option<(RedisServer, String)> {
    if RedisServer::skipped() {
        return None;
    }
    let server = block_on(RedisSetup::new().tcp().start());
    server.ask(&["ACL", "SETUSER", "me", "on", ">hunter2", "~*", "&*", "+@all"]);
    let url = server.url().replace("redis://", "redis://me:hunter2@");
    assert!(url.contains("hunter2"), "no password in {url}");
    Some((server, url))
}

/// The password is not in the environment of the command, and the lock is still the same one.
#[test]
fn an_inner_run_has_the_store_of_the_outer_one_whose_url_has_a_secret() {
    let Some((server, url)) = with_password() else { return };
    let place = Place::new();
    let script = "env | grep hunt[e]r2; \"$SPRAG\" run -n x echo IN; echo $?; \
                  env -u SPRAG_STORE \"$SPRAG\" run -n x echo IN; echo $?; \
                  \"$SPRAG\" run -n y \"$SPRAG\" ls -q > /dev/null; echo $?; \
                  \"$SPRAG\" run y sh -c '\"$SPRAG\" run -n x echo IN; echo $?; \"$SPRAG\" ls'";
    let ended = place.end(&["run", "-S", &url, "x", "--", "sh", "-c", script]);
    assert!(ended.out.starts_with("64\n64\n0\n64\n"), "{ended:?}");
    assert!(ended.out.contains("\n* x ") && ended.out.contains("\n* y "), "{ended:?}");
    assert!(!ended.out.contains("hunter2") && !place.database().exists(), "{ended:?}");
    assert_eq!(server.ask(&["EXISTS", "sprag:y"]), "0", "it was given back");
}

/// It says where it was, and in another folder there is another file.
#[test]
fn an_inner_run_elsewhere_has_the_store_that_the_outer_one_found_in_a_file() {
    let Some((_server, url)) = with_password() else { return };
    let place = Place::new();
    let file = format!("store = \"{}\"\n", url.replace("hunter2", "${PASSWORD}"));
    std::fs::write(place.path("sprag.toml"), file).unwrap();
    let trusted = place.end(&["config", "trust", "sprag.toml"]);
    assert_eq!(trusted.code, 0, "{trusted:?}");
    let mut outer = place.sprag(&["run", "x", "--", "sh", "-c"]);
    outer.arg("cd /; \"$SPRAG\" run -n x echo IN; echo $?").env("PASSWORD", "hunter2");
    let ended = place.run(outer).end();
    assert_eq!(ended.out, "64\n", "{ended:?}");
}

#[test]
fn another_home_or_another_repository_does_not_make_another_store() {
    let place = Place::new();
    let script = "export HOME=/nonexistent XDG_STATE_HOME=$PWD; \"$SPRAG\" run -n x echo IN; echo $?; \
                  env -u SPRAG_STORE \"$SPRAG\" run -n x echo IN; echo $?";
    let ended = place.end(&["run", "x", "--", "sh", "-c", script]);
    assert_eq!(ended.out, "64\n64\n", "{ended:?}");
    let git = |words: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.args(words);
        place.set_up(&mut command);
        assert!(command.status().unwrap().success());
    };
    for name in ["one", "two"] {
        git(&["init", "-q", "--bare", &format!("{name}.git")]);
        git(&["init", "-q", name]);
        git(&["-C", name, "remote", "add", "origin", &format!("../{name}.git")]);
    }
    let script = "cd ../two; \"$SPRAG\" run -n x echo IN; echo $?";
    let mut outer = place.sprag(&["run", "-S", "git:origin", "x", "--", "sh", "-c", script]);
    outer.current_dir(place.path("one"));
    let ended = place.run(outer).end();
    assert_eq!(ended.out, "64\n", "{ended:?}");
}

/// A daemon that outlived the run, or a script that took SPRAG_SOCKET away.
#[test]
fn a_store_that_nobody_tells_any_more_is_refused_and_never_another_one() {
    let place = Place::new();
    let lease = "0123456789abcdef0123456789abcdef";
    for words in [
        &["run", "x", "true"][..],
        &["acquire", "x"],
        &["renew", "x", "--lease", lease],
        &["release", "x", "--lease", lease],
        &["check", "x", "--lease", lease],
        &["ls"],
        &["show", "x"],
        &["why", "x"],
        &["break", "x", "--token", "1", "-m", "why", "--yes"],
        &["log"],
        &["doctor"],
    ] {
        for socket in [None, Some("/nonexistent.sock")] {
            let mut command = place.sprag(words);
            if socket.is_none() || words[0] == "ls" {
                command.env("SPRAG_STORE", "outer:");
            }
            command.envs(socket.map(|path| ("SPRAG_SOCKET", path)));
            let refused = place.run(command).end();
            assert_eq!(refused.code, 78, "{words:?} {socket:?}: {refused:?}");
            assert!(refused.err.contains("name the store with -S"), "{words:?}: {refused:?}");
        }
    }
    assert!(!place.database().exists());
}

#[test]
fn a_store_that_the_script_names_is_the_one_that_is_used() {
    let Some((_server, url)) = with_password() else { return };
    let place = Place::new();
    let script = "SPRAG_STORE=sqlite:./mine.db \"$SPRAG\" run -n x echo IN; \
                  \"$SPRAG\" -S sqlite:./mine.db run -n x echo IN";
    let ended = place.end(&["run", "-S", &url, "x", "--", "sh", "-c", script]);
    assert_eq!(ended.out, "IN\nIN\n", "{ended:?}");
}

/// Somebody else was first at the place of the sockets: they could answer in the place of the run.
#[test]
fn a_folder_of_sockets_that_others_could_use_is_refused_with_its_path() {
    let place = Place::new();
    let (run, elsewhere) = (place.path("../run/sprag"), place.path("elsewhere"));
    std::fs::create_dir(&elsewhere).unwrap();
    let refused = |what: &str| {
        let ended = place.end(&["run", "x", "touch", "entered"]);
        assert_eq!(ended.code, 78, "{what}: {ended:?}");
        assert!(ended.err.contains("/run/sprag") && ended.err.contains(what), "{ended:?}");
        assert!(!place.path("entered").exists());
    };
    std::os::unix::fs::symlink(&elsewhere, &run).unwrap();
    refused("is not a folder");
    std::fs::remove_file(&run).unwrap();
    std::fs::create_dir(&run).unwrap();
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(&run, 0o755);
    refused("is open to other users");
    open(&run, 0o700);
    open(&place.path("../run"), 0o777);
    refused("is in a folder where other users can replace it");
    open(&place.path("../run"), 0o1777);
    assert_eq!(place.end(&["run", "x", "true"]).code, 0);
}
