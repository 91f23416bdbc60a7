//! Processes with advisory locks that hang or are cut off, as the server sees them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command as Program;
use std::time::Duration;

use sprag::Loss;
use sprag_testkit::postgres_server::{Database, PostgresServer, skipped};
use sprag_testkit::process::{Answer, Ask, Command, TakerConfig};
use sprag_testkit::support::{LONG, eventually, name, now};

const TAKER: &str = env!("CARGO_BIN_EXE_sprag-taker");
const SESSIONS: &str = "SELECT count(*) FROM sprag.grips";

/// A process that was stopped keeps its connection, and with it the session lock. Who waits takes
/// the lock when its TTL has ended, and the server disconnects the one that does not let go.
#[tokio::test]
async fn a_stopped_holder_is_evicted() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let url = format!("{}?mode=advisory", database.url());
    let (mut holder, mut other) = (
        TakerConfig::new(TAKER, &url).name("holder").spawn().await,
        TakerConfig::new(TAKER, &url).name("other").spawn().await,
    );
    let lock = name("report");
    let held = holder.acquire(Ask::new(lock.clone(), Duration::from_secs(2))).await;
    let pid = database.sql("SELECT pid FROM sprag.grips");
    holder.stop().await;
    let granted = other.acquire(Ask::new(lock.clone(), LONG)).await;
    assert!(granted.fence > held.fence, "{granted:?} after {held:?}");
    let alive = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
    eventually("it is disconnected", async || database.sql(&alive) == "0").await;
    holder.go_on();
    let state = holder.ask(Command::State(lock.clone())).await;
    assert!(matches!(state, Answer::Lost(_)), "{state:?}");
    assert_eq!(other.release(&lock).await, None);
}

/// One that is stopped right after it got the lock has not written that down, and never does.
#[tokio::test]
async fn a_holder_that_is_stopped_at_once_is_succeeded() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let url = format!("{}?mode=advisory", database.url());
    let (mut holder, mut other) = (
        TakerConfig::new(TAKER, &url).name("holder").spawn().await,
        TakerConfig::new(TAKER, &url).name("other").spawn().await,
    );
    let lock = name("report");
    let held = holder.acquire(Ask::new(lock.clone(), Duration::from_secs(8))).await;
    holder.stop().await;
    let granted = other.acquire(Ask::new(lock.clone(), LONG)).await;
    assert!(granted.fence > held.fence, "{granted:?} after {held:?}");
    holder.go_on();
    let state = holder.ask(Command::State(lock.clone())).await;
    assert!(matches!(state, Answer::Lost(_)), "{state:?}");
    assert_eq!(other.release(&lock).await, None);
}

/// F36: a link goes down and nobody is told. The holder gives up first, then the server, which
/// would not for hours by itself.
#[tokio::test]
async fn a_holder_behind_a_dead_link_is_given_up_by_both_sides_in_turn() {
    if skipped() {
        return;
    }
    let Some(network) = Network::up() else { return };
    let listen = format!("127.0.0.1,{}", network.address);
    let server = PostgresServer::start(&["-h", &listen]).await;
    let url = format!(
        "postgres://postgres@{}:{}/postgres?mode=advisory&sslmode=disable",
        network.address,
        server.port()
    );
    let inside = ["ip", "netns", "exec", &network.name];
    let mut holder = TakerConfig::new(TAKER, &url).through(&inside).spawn().await;
    let lock = name("report");
    holder.acquire(Ask::new(lock.clone(), LONG * 60)).await;
    eventually("it is written down", async || server.sql("postgres", SESSIONS) == "1").await;
    let pid = server.sql("postgres", "SELECT pid FROM sprag.grips");
    let told = holder.start(Command::AwaitLoss(lock));

    let cut = now();
    network.cut();
    let told = holder.finish(told).await;
    assert!(matches!(told, Answer::Lost(Loss::SessionDied)), "{told:?}");
    let noticed = now().since(cut);
    let alive = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
    assert_eq!(server.sql("postgres", &alive), "1", "the server was first, after {noticed:?}");
    eventually("the server gives it up", async || server.sql("postgres", &alive) == "0").await;
    let freed = now().since(cut);
    assert!(freed < Duration::from_secs(14), "only after {freed:?}");
}

/// A network with one machine on it, and a link that can be cut.
struct Network {
    name: String,
    address: String,
}

impl Network {
    /// Makes one. If this machine does not let us, the test fails, unless the one who runs it knows.
    fn up() -> Option<Self> {
        let id = std::process::id();
        let (name, port) = (format!("sprag{id}"), format!("spr{id}"));
        let net = format!("10.{}.{}", 200 + id % 50, id / 50 % 250);
        let network = Self { name: name.clone(), address: format!("{net}.1") };
        let steps = [
            format!("netns add {name}"),
            format!("link add {port} type veth peer name inner netns {name}"),
            format!("address add {net}.1/30 dev {port}"),
            format!("link set {port} up"),
            format!("-n {name} address add {net}.2/30 dev inner"),
            format!("-n {name} link set inner up"),
        ];
        let refused = steps.iter().find_map(|step| ip(step).err());
        let Some(refused) = refused else { return Some(network) };
        let skipped = std::env::var("SPRAG_SKIP").unwrap_or_default();
        assert!(
            skipped.split([',', ' ']).any(|word| word == "netns"),
            "this machine refuses a network of our own ({refused}): run as root with iproute2, or \
             set SPRAG_SKIP=netns to go without this test"
        );
        None
    }

    fn cut(&self) {
        ip(&format!("-n {} link set inner down", self.name)).unwrap();
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Its end of the link takes the other one with it.
        drop(ip(&format!("netns delete {}", self.name)));
    }
}

fn ip(words: &str) -> Result<(), String> {
    let output = Program::new("ip").args(words.split(' ')).output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("ip {words}: {}", said.trim())) }
}
