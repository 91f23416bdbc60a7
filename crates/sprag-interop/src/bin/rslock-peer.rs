//! rslock as a peer of the tests; see [`sprag_testkit::peers`].

use std::time::Duration;

use sprag_testkit::peers::Section;

#[tokio::main]
async fn main() {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [mode, host, ports, key, ..] = &words[..] else {
        panic!("usage: rslock-peer MODE HOST PORTS KEY [FOLDER]");
    };
    let urls: Vec<_> = ports.split(',').map(|port| format!("redis://{host}:{port}")).collect();
    let mut manager = rslock::LockManager::new(urls);
    let ttl = Duration::from_secs(10);
    let say = |word: &str| {
        use std::io::Write as _;
        writeln!(std::io::stdout(), "{word}").expect("somebody listens");
    };
    match mode.as_str() {
        "try" => {
            manager.set_retry(1, Duration::ZERO);
            match manager.lock(key, ttl).await {
                Ok(lock) => {
                    say("granted");
                    manager.unlock(&lock).await;
                }
                Err(_) => say("held"),
            }
        }
        "hold" => {
            let guard = manager.acquire(key, ttl).await.expect("it is granted");
            say("granted");
            drop(std::io::stdin().read_line(&mut String::new()));
            guard.release().await;
            say("released");
        }
        _ => {
            manager.set_retry(1, Duration::from_millis(2));
            let section = Section::at(&words[4]);
            let mut rounds = 0;
            while !section.file("enough").exists() {
                let guard = manager.acquire(key, ttl).await.expect("it is granted");
                section.visit().await;
                guard.release().await;
                rounds += 1;
                if rounds == 1 {
                    say("ready");
                }
                // Others get their turn.
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
            say(&format!("done {rounds}"));
        }
    }
}
