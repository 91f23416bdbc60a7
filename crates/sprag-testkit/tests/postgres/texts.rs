//! Texts that people write, and records that cannot be read: neither may cost a lock, nor hide others.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use sprag::audit::{AuditKind, AuditQuery};
use sprag::store::{Eviction, Listing};
use sprag::{Holder, Locks};
use sprag_testkit::postgres_server::{Database, skipped};
use sprag_testkit::support::{LONG, eventually, name, within};

/// Whatever somebody may write into a reason.
const TEXTS: &[&str] = &[
    "a\\u0000b",
    "\0",
    "a\0b\\u0000\\\0",
    "\\\\u0000",
    "\\",
    "\"}],",
    "\t\r\n\u{1f}\u{7f}\u{85}\u{2028}",
    "\u{fffe}\u{ffff}\u{10ffff}",
    "'; DROP SCHEMA sprag CASCADE; --",
    "$$ %s %L \\d+ ${1}",
];

/// What is kept of it: PostgreSQL has no zeros.
fn kept(text: &str) -> String {
    text.replace('\0', "\u{2400}")
}

async fn texts_cost_no_lock(url: &str) {
    for (number, text) in TEXTS.iter().enumerate() {
        let lock = format!("job-{number}");
        let locks = Locks::builder(url).holder(Holder::new(*text, "here")).open().unwrap();
        let other = Locks::open(url).unwrap();
        for shared in [false, true] {
            let ask = |locks: &Locks| {
                let request = locks.lock(lock.as_str()).ttl(LONG).reason(*text);
                if shared { request.shared() } else { request }
            };
            let guard = ask(&locks).acquire().await.unwrap();
            let waiting = tokio::spawn(other.lock(lock.as_str()).ttl(LONG).reason(*text).acquire());
            let waits = async || {
                let view = other.inspect(lock.as_str()).await.unwrap();
                let reason = view.holders[0].holder.reason.clone();
                assert_eq!(reason, Some(kept(text)), "{text:?}");
                view.waiters.len() == 1
            };
            eventually("it waits", waits).await;
            let all = other.list(&Listing::default()).await.unwrap().locks;
            assert_eq!(all.len(), 1, "{text:?}");
            assert_eq!(all[0].holders[0].holder.worker_id, kept(text));
            other.evict(lock.as_str(), guard.fence(), text).await.unwrap();
            within("it is granted", waiting).await.unwrap().unwrap().release().await.unwrap();
        }
        let told = other.store().audit(&AuditQuery::default()).await.unwrap();
        assert!(told.iter().all(|entry| entry.kind != AuditKind::Unreadable), "{text:?}");
        assert!(told.iter().any(|entry| entry.holder.reason == Some(kept(text))), "{text:?}");
    }
}

#[tokio::test]
async fn no_text_costs_a_lock() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    texts_cost_no_lock(&database.url()).await;
    texts_cost_no_lock(&format!("{}?mode=advisory&namespace=advisory", database.url())).await;
}

/// What may have become of a record.
const DAMAGES: &[&str] = &[
    // What a reason with `\u0000` in it once left behind.
    r#"plain = '{"holder": "\␀b"}'"#,
    "plain = ''",
    "plain = '{}'",
    "plain_lease = NULL, holders = '[{}]'",
    "plain_lease = NULL, holders = '{}'",
    r#"plain_lease = NULL, holders = '["x", 1, null]'"#,
    r#"plain_lease = NULL, holders = '[{"lease": "x", "fence": 1, "mode": "strange",
       "renewed_ms": 1, "ttl_ms": 99999999999999, "holder": {}}]'"#,
];

async fn one_damaged_record_is_one_row(
    database: &Database,
    url: &str,
    space: &str,
    damages: &[&str],
) {
    let locks = Locks::open(url).unwrap();
    for damage in damages {
        let good = locks.lock("good").ttl(LONG).acquire().await.unwrap();
        let bad = locks.lock("bad").ttl(LONG).acquire().await.unwrap();
        // So that both are written.
        assert_eq!(locks.list(&Listing::default()).await.unwrap().locks.len(), 2, "{damage}");
        database.sql(&format!(
            "UPDATE sprag.lock SET {damage} WHERE name = 'bad' AND space = '{space}'; \
             UPDATE sprag.trail SET event = NULL, entry = NULL, plain = 'x' WHERE sequence = \
               (SELECT max(sequence) FROM sprag.trail WHERE name = 'bad' AND space = '{space}')"
        ));
        let all = locks.list(&Listing::default()).await.unwrap().locks;
        let names: Vec<_> = all.iter().map(|view| view.name.as_str()).collect();
        assert_eq!(names, ["bad", "good"], "{damage}");
        assert_eq!(all[0].holders[0].holder.worker_id, "unknown", "{damage}");
        let told = locks.store().audit(&AuditQuery::default()).await.unwrap();
        let unreadable = told.iter().filter(|entry| entry.kind == AuditKind::Unreadable);
        assert!(unreadable.count() >= 1 && told.len() >= 2, "{damage}: {told:?}");

        // Nobody gets it, and it can be broken by what is shown, once.
        let other = Locks::open(url).unwrap();
        let entered = other.lock("bad").try_acquire().await;
        assert!(!matches!(entered, Ok(Some(_))), "{damage}");
        let fence = other.inspect("bad").await.unwrap().holders[0].fence;
        assert_eq!(fence, bad.fence(), "{damage}");
        other.evict("bad", fence, "cannot be read").await.unwrap();
        let again = Eviction { name: name("bad"), fence, by: "me".into(), reason: "again".into() };
        let again = other.store().evict(&again).await.unwrap();
        assert!(matches!(again, sprag::store::Evicted::NotHeld), "{damage}: {again:?}");
        let next = within("it is free", other.lock("bad").ttl(LONG).acquire()).await.unwrap();
        assert!(next.fence() > fence, "{damage}");
        next.release().await.unwrap();
        assert!(good.is_valid(), "{damage}");
        good.release().await.unwrap();
        drop(bad);
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_one_row_and_can_be_broken() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    one_damaged_record_is_one_row(&database, &database.url(), "default", DAMAGES).await;
    let url = format!("{}?mode=advisory&namespace=advisory", database.url());
    // Those that leave a trace of who has the session lock.
    one_damaged_record_is_one_row(&database, &url, "advisory", &DAMAGES[..3]).await;
}
