//! The Redis servers that tests start do what a test expects of them.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use sprag_testkit::redis_server::{
    Certificates, RedisCluster, RedisSentinels, RedisServer, RedisSetup, ShiftedClock,
};
use sprag_testkit::support::eventually;

/// Set for a process that is to be killed with its server.
const VICTIM: &str = "SPRAG_TEST_VICTIM";

/// What `redis-cli` says, with these arguments.
fn redis_cli(words: &[&str]) -> String {
    let output = Command::new("redis-cli").args(words).stdin(Stdio::null()).output();
    let output = output.expect("redis-cli comes with redis-server");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

#[tokio::test]
async fn a_log_survives_a_crash_and_nothing_else_does() {
    if RedisServer::skipped() {
        return;
    }
    let (mut plain, mut logged) =
        (RedisSetup::new().tcp().start().await, RedisSetup::new().tcp().log().start().await);
    for server in [&mut plain, &mut logged] {
        let (port, run) = (server.port(), server.info("run_id"));
        assert_eq!(server.ask(&["SET", "a", "1"]), "OK");
        assert!(server.is_running());
        server.kill();
        assert!(!server.is_running());
        server.restart().await;
        assert_eq!(server.port(), port);
        assert_ne!(server.info("run_id"), run);
    }
    assert_eq!(plain.ask(&["GET", "a"]), "");
    assert_eq!(logged.ask(&["GET", "a"]), "1");
    logged.restart_empty().await;
    assert_eq!(logged.ask(&["GET", "a"]), "");
}

#[tokio::test]
async fn a_halted_server_answers_when_it_goes_on() {
    if RedisServer::skipped() {
        return;
    }
    let server = RedisServer::start(&[]).await;
    let mut talk = server.talk();
    server.stop().await;
    talk.send(&["PING"]).unwrap();
    server.go_on();
    assert_eq!(talk.answer().unwrap(), "PONG");
}

#[tokio::test]
async fn a_replica_repeats_its_master() {
    if RedisServer::skipped() {
        return;
    }
    let master = RedisSetup::new().tcp().start().await;
    let replica = RedisSetup::new().replica_of(master.port()).start().await;
    replica.until_linked().await;
    master.ask(&["SET", "a", "1"]);
    eventually("it is repeated", || async { replica.ask(&["GET", "a"]) == "1" }).await;
    assert!(replica.ask(&["SET", "a", "2"]).starts_with("READONLY"));
}

#[tokio::test]
async fn tls_needs_the_authority_and_where_it_is_mutual_a_certificate() {
    if RedisServer::skipped() {
        return;
    }
    let certificates = Certificates::make();
    let server = RedisSetup::new().tls(&certificates).start().await;
    let strict = RedisSetup::new().tls(&certificates.mutual()).password("hunter2").start().await;
    let (authority, (certificate, key)) = (certificates.authority(), certificates.client());
    let ask = |server: &RedisServer, more: &[&str]| {
        let port = server.port().to_string();
        let first = ["-h", "127.0.0.1", "-p", &port, "--tls"];
        redis_cli(&[&first, more, &["PING"]].concat())
    };
    let trust = ["--cacert", authority.to_str().unwrap()];
    let show = ["--cert", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()];
    assert_eq!(ask(&server, &trust), "PONG");
    assert_ne!(ask(&server, &[]), "PONG");
    assert_ne!(ask(&strict, &trust), "PONG");
    let both = [&trust[..], &show, &["-a", "hunter2", "--no-auth-warning"]].concat();
    assert_eq!(ask(&strict, &both), "PONG");
    assert_eq!(strict.ask(&["PING"]), "PONG");
}

#[tokio::test]
async fn a_shifted_clock_jumps_for_its_server_alone() {
    if RedisServer::skipped() {
        return;
    }
    let clock = ShiftedClock::make();
    let (shifted, steady) =
        (RedisSetup::new().clock(&clock).start().await, RedisServer::start(&[]).await);
    let seconds = |server: &RedisServer| {
        server.ask(&["TIME"]).lines().next().unwrap().parse::<i64>().unwrap()
    };
    let difference = || seconds(&shifted) - seconds(&steady);
    assert!(difference().abs() <= 1, "{}", difference());
    shifted.ask(&["SET", "short", "1", "EX", "100"]);
    clock.ahead(Duration::from_secs(120));
    assert!((119..=121).contains(&difference()), "{}", difference());
    assert_eq!(shifted.ask(&["GET", "short"]), "", "it lives by its own clock");
    clock.behind(Duration::from_secs(3600));
    assert!((-3601..=-3599).contains(&difference()), "{}", difference());
}

#[tokio::test]
async fn sentinels_choose_another_master() {
    if RedisServer::skipped() {
        return;
    }
    let mut set = RedisSentinels::start(2).await;
    let old = set.master().port();
    // Both on one connection: on another than the write, WAIT counts nothing.
    let mut talk = set.master().talk();
    talk.ask(&["SET", "a", "1"]).unwrap();
    assert_eq!(talk.ask(&["WAIT", "2", "9000"]).unwrap(), "2");
    set.fail_over().await;
    assert_ne!(set.master().port(), old);
    // Sentinels disconnect the clients of a server that they tell what it is.
    let chosen = set.master();
    let has_it = || async { chosen.try_ask(&["GET", "a"]).is_ok_and(|answer| answer == "1") };
    eventually("it has what was written", has_it).await;
    // The old one comes back as a replica.
    let revived = &mut set.servers()[0];
    revived.restart().await;
    eventually("it is a replica", || async { revived.says("role", "slave") }).await;
}

#[tokio::test]
async fn a_cluster_moves_slots_and_replaces_masters() {
    if RedisServer::skipped() {
        return;
    }
    let mut cluster = RedisCluster::start().await;
    let slot = cluster.slot("a");
    let owner = cluster.owner(slot).unwrap();
    let other = (owner + 1) % 3;
    assert_eq!(cluster.nodes()[owner].ask(&["SET", "a", "1"]), "OK");
    assert!(cluster.nodes()[other].ask(&["GET", "a"]).starts_with("MOVED"));
    cluster.begin_move(slot, other);
    assert_eq!(cluster.nodes()[owner].ask(&["GET", "a"]), "1");
    cluster.move_keys(slot, other);
    assert!(cluster.nodes()[owner].ask(&["GET", "a"]).starts_with("ASK"));
    cluster.end_move(slot, other);
    assert_eq!(cluster.owner(slot), Some(other));
    assert_eq!(cluster.nodes()[other].ask(&["GET", "a"]), "1");
    // WAIT would be of no use: on another connection than the write it counts nothing.
    let replica = &cluster.nodes()[other + 3];
    let repeated = || async {
        let mut talk = replica.talk();
        talk.ask(&["READONLY"]).unwrap();
        talk.ask(&["GET", "a"]).unwrap() == "1"
    };
    eventually("the replica has it", repeated).await;
    cluster.nodes()[other].kill();
    let next = cluster.until_moved(slot, other).await;
    assert_eq!(next, other + 3, "its replica takes over");
    assert_eq!(cluster.nodes()[next].ask(&["GET", "a"]), "1");
}

/// Neither by the end of the test, nor when the test is killed.
#[tokio::test]
async fn no_server_outlives_its_test() {
    if RedisServer::skipped() {
        return;
    }
    let server = RedisServer::start(&[]).await;
    let folder = server.socket().parent().unwrap().to_owned();
    let process = format!("/proc/{}", server.info("process_id"));
    if std::env::var_os(VICTIM).is_some() {
        println!("victim {} {process}", folder.display());
        // For ever: whoever started this will kill it.
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }
    drop(server);
    assert!(!folder.exists() && !Path::new(&process).exists());

    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "shapes::no_server_outlives_its_test", "--nocapture"]).env(VICTIM, "1");
    let mut victim = victim.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.starts_with("victim ")).unwrap();
    let [_, folder, process] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
    assert!(Path::new(folder).exists() && Path::new(process).exists());
    victim.kill().unwrap();
    victim.wait().unwrap();
    let gone = || async { !Path::new(folder).exists() && !Path::new(process).exists() };
    eventually("the server is gone", gone).await;
}
