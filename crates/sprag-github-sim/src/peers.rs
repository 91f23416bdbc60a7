//! What others made, installed in `target/peers` by `cargo xtask test`.

use std::path::{Path, PathBuf};

/// Where something is; `None` if tests with it were declined with `SPRAG_SKIP`.
///
/// # Panics
///
/// If it is missing, with what to type.
pub(crate) fn peer(path: &str, install: &str, skip: &str) -> Option<PathBuf> {
    let declined = std::env::var("SPRAG_SKIP").unwrap_or_default();
    if declined.split(',').any(|name| name == skip) {
        return None;
    }
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers").join(path);
    assert!(
        place.exists(),
        "{path} is missing in target/peers; please type, at the root of the repository:\n  \
         {install}\nor leave out the tests with it with SPRAG_SKIP={skip}"
    );
    Some(place)
}
