//! Where a test keeps its locks: a fresh store of each kind.

use tempfile::TempDir;

/// A fresh store that can be opened several times, as several processes would.
pub(crate) struct Place {
    pub(crate) url: String,
    _folder: Option<TempDir>,
}

impl Place {
    pub(crate) fn memory() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let url = format!("memory:test-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self { url, _folder: None }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/locks.db", folder.path().display());
        Self { url, _folder: Some(folder) }
    }
}

/// Makes each named case a test on each store.
macro_rules! on_each_store {
    ($($case:ident,)*) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                super::$case(crate::place::Place::memory()).await;
            })*
        }

        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                super::$case(crate::place::Place::sqlite()).await;
            })*
        }
    };
}

pub(crate) use on_each_store;
