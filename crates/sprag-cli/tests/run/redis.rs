//! On a Redis server of its own.

use sprag_testkit::redis_server::RedisServer;

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
