//! On a Redis server of its own.

use sprag_testkit::redis_server::RedisServer;

use crate::nested::with_password;
use crate::support::{Ended, Place, block_on};

/// A server with these options.
fn server(options: &[&str]) -> RedisServer {
    block_on(RedisServer::start(options))
}

fn doctor(place: &Place, url: &str) -> Ended {
    place.end(&["doctor", "-S", url, "--rounds", "3"])
}

#[test]
fn a_command_runs_while_its_lock_is_held_on_redis() {
    if RedisServer::skipped() {
        return;
    }
    let (place, server) = (Place::new(), server(&[]));
    let url = server.url();
    let holder = place.hold(&["-S", &url, "job"]);
    let key = server.ask(&["GET", "sprag:job"]);
    assert_eq!(key.len(), 32, "no lease: {key:?}");
    let held = place.end(&["run", "-S", &url, "-n", "job", "true"]);
    assert_eq!(held.code, 75, "{held:?}");
    assert!(held.err.starts_with("error[SP001]: lock \"job\" is held\n"), "{}", held.err);
    let listed = place.end(&["ls", "-S", &url]);
    assert!(listed.out.contains("job"), "{listed:?}");

    holder.send(rustix::process::Signal::TERM);
    assert_ne!(holder.end().code, 0);
    assert_eq!(server.ask(&["GET", "sprag:job"]), "", "it was not given back");
    let fence = place.end(&["run", "-S", &url, "job", "sh", "-c", "echo $SPRAG_TOKEN"]);
    assert_eq!(fence.code, 0, "{fence:?}");
    assert!(fence.out.trim().parse::<u64>().is_ok(), "{fence:?}");
}

#[test]
fn the_doctor_tells_of_a_redis_that_evicts() {
    if RedisServer::skipped() {
        return;
    }
    let options = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let (place, server) = (Place::new(), server(&options));
    let refused = doctor(&place, &server.url());
    assert_eq!(refused.code, 77, "{refused:?}");
    assert!(refused.err.contains("CONFIG SET maxmemory-policy noeviction"), "{}", refused.err);

    let told = doctor(&place, &format!("{}?allow_eviction=true", server.url()));
    assert_eq!(told.code, 1, "{told:?}");
    let line = told.out.lines().find(|line| line.starts_with("FAIL")).unwrap_or_default();
    assert!(line.contains("allkeys-lru") && line.contains("-> type CONFIG SET"), "{}", told.out);
}

#[test]
fn the_doctor_tells_what_a_restart_of_redis_forgets() {
    if RedisServer::skipped() {
        return;
    }
    let place = Place::new();
    let volatile = doctor(&place, &server(&[]).url());
    assert_eq!(volatile.code, 0, "{volatile:?}");
    let line = volatile.out.lines().find(|line| line.starts_with("WARN")).unwrap_or_default();
    assert!(line.contains("persistence: a restart of the server forgets"), "{}", volatile.out);
    assert!(volatile.out.contains("promises L1"), "{}", volatile.out);

    let log = server(&["--appendonly", "yes", "--appendfsync", "always"]);
    let lasting = doctor(&place, &log.url());
    assert_eq!(lasting.code, 0, "{lasting:?}");
    assert!(!lasting.out.contains("WARN"), "{}", lasting.out);
    assert!(lasting.out.contains("promises L2"), "{}", lasting.out);
}

/// A password is not written where scripts and logs see it, and the lease still finds its store.
#[test]
fn a_lease_of_a_store_with_a_password_finds_it_by_its_name() {
    let Some((_server, url)) = with_password() else { return };
    let place = Place::new();
    let script = |text: &str| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", text]);
        place.set_up(&mut shell);
        shell.env("URL", &url);
        place.run(shell).end()
    };
    let unnamed = script(
        r#""$SPRAG" acquire -S "$URL" a --ttl 9m --export > out; cat out; . ./out
        "$SPRAG" release"#,
    );
    assert_eq!(unnamed.code, 78, "{unnamed:?}");
    assert!(
        !unnamed.out.contains("SPRAG_STORE") && !unnamed.out.contains("hunter2"),
        "{unnamed:?}"
    );
    for part in ["has a secret and is not exported", "error[SP015]", "is from  redis-"] {
        assert!(unnamed.err.contains(part), "no {part} in {unnamed:?}");
    }
    assert!(!unnamed.err.contains("hunter2"), "{unnamed:?}");
    let folder = place.path(".config/sprag");
    std::fs::create_dir_all(&folder).unwrap();
    let settings = format!("[stores.prod]\nurl = \"{url}\"\n");
    std::fs::write(folder.join("config.toml"), settings).unwrap();
    let named = script(
        r#"set -e; eval "$("$SPRAG" acquire -S prod b --ttl 9m --export)"; cd /
        "$SPRAG" check; "$SPRAG" release; echo "$SPRAG_STORE""#,
    );
    assert_eq!((named.code, named.out.lines().last(), named.err.as_str()), (0, Some("prod"), ""));
    let told = script(r#". ./out; "$SPRAG" release"#);
    assert!(told.err.contains("is from  prod, redis://***@"), "{told:?}");
    assert!(told.err.contains("sprag release -S prod a --lease"), "{told:?}");
}
