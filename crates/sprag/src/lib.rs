#![doc = include_str!("../../../README.md")]

mod distributed_lock;
mod leader_election;
mod locks;
mod open;
#[cfg(feature = "postgres")]
mod postgres_lock;
#[cfg(feature = "redis")]
mod redis_lock;

pub use distributed_lock::DistributedLock;
pub use leader_election::LeaderElection;
pub use locks::{Locks, LocksBuilder};
pub use open::{StoreKind, default_ttl, open, redact, store_mark, stores};

#[doc(inline)]
pub use sprag_core::{
    Capability, Client, ClientBuilder, Election, Error, ErrorKind, Fence, Holder, HolderView,
    IntoLockName, Keeper, Leadership, LeaseId, Level, LockGuard, LockGuards, LockName, LockRequest,
    LockState, LockView, Loss, MemoryStore, Mode, Operation, PartyId, Released, Result,
    RetryConfig, RwLock, Semaphore, SessionId, Store, Strategy, TaskInfo, Ticket, Wait, WaiterView,
    audit, block_on, clock, diagnosis, entropy, home, policy, record, store,
};

#[cfg(feature = "postgres")]
pub use postgres_lock::PostgresDistributedLock;
#[cfg(feature = "redis")]
pub use redis_lock::RedisDistributedLock;
#[cfg(feature = "git")]
#[doc(inline)]
pub use sprag_git::{Abandoned, GitConfig, GitLedger, open as open_git};
#[cfg(feature = "github")]
#[doc(inline)]
pub use sprag_github::{
    self, AcquireOptions, AcquireResult, AssignmentStore, ConflictStrategy, GitHubClient,
    GitHubConfig, GitHubStore, HttpClient, LockManager, LockManagerConfig, LockMetadata,
    LockMetrics, LockStatus, Token as GitHubToken,
};
#[cfg(feature = "postgres")]
#[doc(inline)]
pub use sprag_postgres::{
    Address as PostgresAddress, AdvisoryStore, LockKind, PostgresConfig, PostgresStore, TlsMode,
    advisory_key, lock_for_transaction,
};
#[cfg(feature = "redis")]
#[doc(inline)]
pub use sprag_redis::{
    Address as RedisAddress, Quarantine as RedisQuarantine, RedisConfig, RedisStore, RedlockConfig,
    RedlockStore, Tls as RedisTls,
};
#[cfg(feature = "sqlite")]
#[doc(inline)]
pub use sprag_sqlite::{SqliteConfig, SqliteStore, SystemStore, make_system_store};

/// The examples in the docs run as doctests.
#[cfg(doctest)]
mod docs {
    #[doc = include_str!("../../../docs/best-practices.md")]
    struct BestPractices;
    #[doc = include_str!("../../../docs/guarantees.md")]
    struct Guarantees;
    #[doc = include_str!("../../../docs/metrics.md")]
    struct Metrics;
    #[doc = include_str!("../../../docs/migration.md")]
    struct Migration;
    #[cfg(feature = "git")]
    #[doc = include_str!("../../../docs/stores/git.md")]
    struct Git;
    #[cfg(feature = "github")]
    #[doc = include_str!("../../../docs/stores/github.md")]
    struct GitHub;
    #[doc = include_str!("../../../docs/stores/memory.md")]
    struct Memory;
    #[cfg(feature = "postgres")]
    #[doc = include_str!("../../../docs/stores/postgres.md")]
    struct Postgres;
    #[cfg(feature = "redis")]
    #[doc = include_str!("../../../docs/stores/redis.md")]
    struct Redis;
    #[cfg(feature = "redis")]
    #[doc = include_str!("../../../docs/stores/redlock.md")]
    struct Redlock;
    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../../docs/stores/sqlite.md")]
    struct Sqlite;
    #[doc = include_str!("../../../docs/troubleshooting.md")]
    struct Troubleshooting;
    #[doc = include_str!("../../../ARCHITECTURE.md")]
    struct Architecture;
    #[doc = include_str!("../../../CONTRIBUTING.md")]
    struct Contributing;
}
