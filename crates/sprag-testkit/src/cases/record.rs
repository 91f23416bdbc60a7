//! Records that cannot be understood.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use sprag_core::record::{CURRENT_FORMAT, Record};
use sprag_core::store::Listing;

use crate::harness::Harness;
use crate::support::{LONG, name};

/// Writes `text` as the record of a lock and checks that nobody gets that lock. Where the place
/// keeps no such texts, checks the reader that all stores share.
async fn fails_closed(harness: &dyn Harness, lock: &str, text: &str) {
    assert!(Record::from_json(text).is_err(), "{text} was understood");
    let client = harness.client().await;
    client.lock(lock).ttl(LONG).acquire().await.unwrap().release().await.unwrap();
    if !harness.write_record(&name(lock), text).await {
        return;
    }
    let error = client.lock(lock).ttl(LONG).acquire().await.unwrap_err();
    assert!(error.is_corrupt(), "{error:?}");
    assert!(client.lock(lock).try_acquire().await.unwrap_err().is_corrupt());
    assert!(client.inspect(lock).await.unwrap_err().is_corrupt());
    // The others are not hurt.
    client.lock("other").ttl(LONG).acquire().await.unwrap().release().await.unwrap();
}

/// F74: a damaged record is reported as corrupt, and nobody is given the lock.
pub async fn a_damaged_record_fails_closed(harness: &dyn Harness) {
    let good = Record::default().to_json();
    fails_closed(harness, "empty", "").await;
    fails_closed(harness, "cut", &good[..good.len() / 2]).await;
    fails_closed(harness, "flipped", &good.replace("fence", "fance")).await;
}

/// F74: a damaged record is not in the way of whoever lists the others.
pub async fn a_damaged_record_hides_no_other(harness: &dyn Harness) {
    let client = harness.client().await;
    let guards = [
        client.lock("before").ttl(LONG).acquire().await.unwrap(),
        client.lock("damaged").ttl(LONG).acquire().await.unwrap(),
        client.lock("of others").ttl(LONG).acquire().await.unwrap(),
    ];
    // Where no record can be written by hand, all of them are there.
    let damaged = harness.write_record(&name("damaged"), "{").await;
    let page = harness.client().await.list(&Listing::default()).await.unwrap();
    let listed: Vec<_> = page.locks.iter().map(|view| view.name.as_str()).collect();
    let good = listed.iter().filter(|name| **name != "damaged").count();
    assert_eq!(good, 2, "{listed:?}");
    assert!(damaged || listed.len() == 3, "{listed:?}");
    drop(guards);
}

/// F75: a record written by a newer version is not guessed at.
pub async fn a_newer_record_fails_closed(harness: &dyn Harness) {
    let good = Record::default().to_json();
    let newer = good.replace(
        "\"format\":1",
        &format!("\"format\":{}", CURRENT_FORMAT + 1),
    );
    assert_ne!(newer, good);
    fails_closed(harness, "newer", &newer).await;
}
