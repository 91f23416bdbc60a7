//! Programs as people write them against `DistributedLock`, from the first lines to whole types: they
//! compile as they are, with nothing but the path of their imports to be chosen.

#![cfg(all(feature = "redis", feature = "postgres"))]
#![allow(
    dead_code,
    unused_variables,
    unused_imports,
    unused_mut,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::restriction,
    reason = "they are written by many hands, to be read and not to be run"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What somebody keeps in checkpoints.
trait StateBackend {}

struct Backend;
impl StateBackend for Backend {}

/// What somebody makes checkpoints with.
struct CheckpointCoordinator<B> {
    backend: Arc<B>,
}

struct Checkpoint(Metadata);

struct Metadata {
    id: u64,
}

impl Checkpoint {
    fn metadata(&self) -> &Metadata {
        &self.0
    }
}

impl<B: StateBackend> CheckpointCoordinator<B> {
    fn new(backend: Arc<B>, _interval: Duration, _path: PathBuf) -> Self {
        Self { backend }
    }

    async fn create_checkpoint(&self) -> anyhow::Result<Checkpoint> {
        Ok(Checkpoint(Metadata { id: 1 }))
    }
}

/// Basic acquisition.
mod basic {
    use sprag::{DistributedLock, RedisDistributedLock};
    use std::time::Duration;

    #[tokio::main]
    async fn main() -> anyhow::Result<()> {
        // Create lock instance
        let lock = RedisDistributedLock::new("redis://localhost:6379").await?;

        // Acquire lock (blocks until available)
        let guard = lock.acquire("my_resource", Duration::from_secs(30)).await?;

        // Critical section - only one instance executes this
        println!("Performing critical operation...");

        // Lock automatically released when guard is dropped
        drop(guard);

        Ok(())
    }
}

/// Acquisition that does not wait.
mod non_blocking {
    use sprag::{DistributedLock, RedisDistributedLock};
    use std::time::Duration;

    #[tokio::main]
    async fn main() -> anyhow::Result<()> {
        let lock = RedisDistributedLock::new("redis://localhost:6379").await?;

        // Try to acquire without blocking
        if let Some(guard) = lock.try_acquire("resource", Duration::from_secs(30)).await? {
            println!("Lock acquired!");
            // Do work...
            drop(guard);
        } else {
            println!("Lock held by another instance");
        }

        Ok(())
    }
}

/// Extension for long operations.
mod extension {
    use sprag::{DistributedLock, RedisDistributedLock};
    use std::time::Duration;

    #[tokio::main]
    async fn main() -> anyhow::Result<()> {
        let lock = RedisDistributedLock::new("redis://localhost:6379").await?;

        // Acquire with initial 30-second TTL
        let mut guard = lock.acquire("long_operation", Duration::from_secs(30)).await?;

        for i in 0..10 {
            // Do work (takes ~20 seconds)
            perform_work_phase(i).await;

            // Extend lock before it expires
            lock.extend(&mut guard, Duration::from_secs(30)).await?;
        }

        Ok(())
    }

    async fn perform_work_phase(phase: u32) {
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
}

/// One instance makes checkpoints.
mod checkpoint {
    use super::{CheckpointCoordinator, StateBackend};
    use sprag::{DistributedLock, RedisDistributedLock};
    use std::sync::Arc;
    use std::time::Duration;

    async fn coordinated_checkpoint<B: StateBackend + 'static>(
        backend: Arc<B>,
        lock: Arc<dyn DistributedLock>,
    ) -> anyhow::Result<()> {
        // Acquire global checkpoint lock
        let guard = lock.acquire("global:checkpoint", Duration::from_secs(60)).await?;

        // Create checkpoint coordinator
        let coordinator =
            CheckpointCoordinator::new(backend, Duration::from_secs(300), "/checkpoints".into());

        // Only one instance executes this
        let checkpoint = coordinator.create_checkpoint().await?;

        println!("Checkpoint created: {}", checkpoint.metadata().id);

        Ok(())
    }
}

/// A leader, made by hand.
mod election {
    use sprag::{DistributedLock, LockGuard};
    use std::sync::Arc;
    use std::time::Duration;

    pub struct LeaderElection {
        lock: Arc<dyn DistributedLock>,
        resource: String,
        ttl: Duration,
        guard: Option<LockGuard>,
    }

    impl LeaderElection {
        pub fn new(lock: Arc<dyn DistributedLock>, cluster_id: &str) -> Self {
            Self {
                lock,
                resource: format!("leader:{}", cluster_id),
                ttl: Duration::from_secs(30),
                guard: None,
            }
        }

        pub async fn try_become_leader(&mut self) -> anyhow::Result<bool> {
            if self.guard.is_some() {
                return Ok(true);
            }

            match self.lock.try_acquire(&self.resource, self.ttl).await? {
                Some(guard) => {
                    self.guard = Some(guard);
                    Ok(true)
                }
                None => Ok(false),
            }
        }

        pub fn is_leader(&self) -> bool {
            self.guard.is_some()
        }

        pub async fn maintain_leadership(&mut self) -> anyhow::Result<()> {
            if let Some(ref mut guard) = self.guard {
                self.lock.extend(guard, self.ttl).await?;
            }
            Ok(())
        }
    }
}

/// Partitions that are compacted by one.
mod compaction {
    use sprag::{DistributedLock, RedisDistributedLock};
    use std::sync::Arc;
    use std::time::Duration;

    async fn compact_partition(
        lock: Arc<dyn DistributedLock>,
        partition_id: u32,
    ) -> anyhow::Result<()> {
        let resource = format!("compaction:partition:{}", partition_id);

        // Try to acquire - skip if another instance is compacting
        if let Some(guard) = lock.try_acquire(&resource, Duration::from_secs(300)).await? {
            println!("Starting compaction for partition {}", partition_id);

            // Perform compaction
            perform_compaction(partition_id).await?;

            println!("Compaction completed for partition {}", partition_id);

            drop(guard);
        } else {
            println!("Partition {} already being compacted", partition_id);
        }

        Ok(())
    }

    async fn perform_compaction(partition_id: u32) -> anyhow::Result<()> {
        // Compaction logic here
        Ok(())
    }
}

/// Tasks that are claimed.
mod task_queue {
    use sprag::DistributedLock;
    use std::sync::Arc;
    use std::time::Duration;

    pub struct DistributedTaskQueue {
        lock: Arc<dyn DistributedLock>,
        queue_name: String,
    }

    impl DistributedTaskQueue {
        pub async fn claim_task(&self, task_id: &str) -> anyhow::Result<bool> {
            let resource = format!("task:{}:{}", self.queue_name, task_id);

            match self.lock.try_acquire(&resource, Duration::from_secs(60)).await? {
                Some(guard) => {
                    // Task claimed, execute it
                    self.execute_task(task_id).await?;
                    drop(guard);
                    Ok(true)
                }
                None => {
                    // Task already claimed by another worker
                    Ok(false)
                }
            }
        }

        async fn execute_task(&self, task_id: &str) -> anyhow::Result<()> {
            println!("Executing task: {}", task_id);
            Ok(())
        }
    }
}

/// Retries, a prefix.
mod redis_configuration {
    use sprag::{RedisDistributedLock, RetryConfig};
    use std::time::Duration;

    #[tokio::main]
    async fn main() -> anyhow::Result<()> {
        // Custom retry configuration
        let retry_config = RetryConfig {
            max_attempts: 20,
            initial_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(5),
            backoff_multiplier: 2.0,
        };

        let lock = RedisDistributedLock::with_config(
            "redis://localhost:6379",
            "myapp:lock:", // Custom prefix
            retry_config,
        )
        .await?;

        Ok(())
    }
}

/// A pool.
mod postgres_configuration {
    use sprag::PostgresDistributedLock;

    #[tokio::main]
    async fn main() -> anyhow::Result<()> {
        // With custom pool size
        let lock = PostgresDistributedLock::with_pool_size(
            "postgresql://localhost/mydb",
            20, // Max connections
        )
        .await?;

        Ok(())
    }
}

/// How long leases are.
mod ttl {
    use sprag::DistributedLock;
    use std::time::Duration;

    async fn shown(lock: &dyn DistributedLock) -> anyhow::Result<()> {
        // Short operations: 10-30 seconds
        let guard = lock.acquire("quick_task", Duration::from_secs(10)).await?;

        // Medium operations: 1-5 minutes
        let guard = lock.acquire("checkpoint", Duration::from_secs(60)).await?;

        // Long operations: Use extension
        let mut guard = lock.acquire("compaction", Duration::from_secs(30)).await?;
        // Extend periodically...
        Ok(())
    }
}

/// What can come of a try.
mod failures {
    use sprag::DistributedLock;
    use std::time::Duration;

    async fn shown(lock: &dyn DistributedLock) -> anyhow::Result<()> {
        match lock.try_acquire("resource", Duration::from_secs(30)).await {
            Ok(Some(guard)) => {
                // Lock acquired, proceed
            }
            Ok(None) => {
                // Lock held by another instance, skip or retry
            }
            Err(e) => {
                // Backend error, log and handle
                eprintln!("Lock error: {}", e);
            }
        }
        Ok(())
    }
}

/// What others may do as well.
mod non_critical {
    use sprag::DistributedLock;
    use std::time::Duration;

    async fn shown(lock: &dyn DistributedLock) -> anyhow::Result<()> {
        async fn cleanup_cache() -> anyhow::Result<()> {
            Ok(())
        }
        // For optional optimizations
        if let Some(guard) = lock.try_acquire("cache_cleanup", Duration::from_secs(30)).await? {
            cleanup_cache().await?;
        } else {
            // Skip cleanup, another instance is doing it
        }
        Ok(())
    }
}

/// Two locks in one order.
mod multiple {
    use sprag::DistributedLock;
    use std::sync::Arc;
    use std::time::Duration;

    // Always acquire locks in consistent order
    async fn acquire_multiple(
        lock: Arc<dyn DistributedLock>,
        resource1: &str,
        resource2: &str,
    ) -> anyhow::Result<()> {
        // Sort resources alphabetically
        let (first, second) =
            if resource1 < resource2 { (resource1, resource2) } else { (resource2, resource1) };

        let _guard1 = lock.acquire(first, Duration::from_secs(30)).await?;
        let _guard2 = lock.acquire(second, Duration::from_secs(30)).await?;

        // Both locks acquired safely
        Ok(())
    }
}

/// What a lock is watched by.
mod monitoring {
    use sprag::DistributedLock;
    use std::time::Duration;
    use tracing::{info, warn};

    async fn shown(lock: &dyn DistributedLock) -> anyhow::Result<()> {
        let start = std::time::Instant::now();
        let mut guard = lock.acquire("resource", Duration::from_secs(30)).await?;
        let wait_time = start.elapsed();

        info!(resource = "resource", wait_ms = wait_time.as_millis(), "Lock acquired");

        // Do work...

        if guard.time_remaining() < Duration::from_secs(5) {
            warn!("Lock about to expire, extending");
            lock.extend(&mut guard, Duration::from_secs(30)).await?;
        }
        Ok(())
    }
}

/// Tests of a lock on a server.
mod tests {
    use sprag::{DistributedLock, RedisDistributedLock};
    use std::sync::Arc;
    use std::time::Duration;

    async fn test_basic_lock() {
        let lock = RedisDistributedLock::new("redis://localhost:6379").await.unwrap();

        let guard = lock.acquire("test", Duration::from_secs(10)).await.unwrap();
        assert!(lock.is_locked("test").await.unwrap());

        drop(guard);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!lock.is_locked("test").await.unwrap());
    }

    async fn test_concurrent_access() {
        let lock = Arc::new(RedisDistributedLock::new("redis://localhost:6379").await.unwrap());

        let mut handles = vec![];
        for _ in 0..10 {
            let lock = lock.clone();
            handles.push(tokio::spawn(async move {
                lock.try_acquire("shared", Duration::from_secs(1)).await.unwrap()
            }));
        }

        let results: Vec<_> = futures::future::join_all(handles).await;
        let acquired = results.iter().filter(|r| r.as_ref().unwrap().is_some()).count();

        // Only one should acquire the lock
        assert_eq!(acquired, 1);
    }
}

/// A lease that ends soon after a crash.
mod crash_recovery {
    use sprag::DistributedLock;
    use std::time::Duration;

    async fn shown(lock: &dyn DistributedLock) -> anyhow::Result<()> {
        // Set shorter TTL for crash recovery
        let guard = lock.acquire("resource", Duration::from_secs(30)).await?;
        Ok(())
    }
}

/// A schedule of one's own.
mod backoff {
    use sprag::{DistributedLock, LockGuard};
    use std::time::Duration;

    // Implement custom retry with backoff
    async fn acquire_with_backoff(
        lock: &dyn DistributedLock,
        resource: &str,
    ) -> anyhow::Result<LockGuard> {
        let mut delay = Duration::from_millis(100);

        loop {
            if let Some(guard) = lock.try_acquire(resource, Duration::from_secs(30)).await? {
                return Ok(guard);
            }

            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(Duration::from_secs(5));
        }
    }
}

/// Extension well before the end.
mod before_expiration {
    use sprag::DistributedLock;
    use std::time::Duration;

    async fn shown(lock: &dyn DistributedLock, mut guard: sprag::LockGuard) -> anyhow::Result<()> {
        // Extend lock well before expiration
        if guard.time_remaining() < Duration::from_secs(10) {
            lock.extend(&mut guard, Duration::from_secs(30)).await?;
        }
        Ok(())
    }
}

/// A lock in place of a flag.
mod after_migration {
    use sprag::DistributedLock;
    use std::time::Duration;

    async fn shown(lock: &dyn DistributedLock) -> anyhow::Result<()> {
        async fn create_checkpoint() -> anyhow::Result<()> {
            Ok(())
        }
        // Automatic coordination with lock
        let guard = lock.acquire("checkpoint", Duration::from_secs(60)).await?;
        create_checkpoint().await?;
        // Lock automatically released
        Ok(())
    }
}

/// A lock around what is there.
mod existing_coordinator {
    use super::CheckpointCoordinator;
    use sprag::DistributedLock;
    use sprag::RedisDistributedLock;
    use std::sync::Arc;
    use std::time::Duration;

    async fn shown(
        backend: std::sync::Arc<super::Backend>,
        interval: Duration,
        path: std::path::PathBuf,
    ) -> anyhow::Result<()> {
        // Create lock instance
        let lock = Arc::new(RedisDistributedLock::new("redis://localhost:6379").await?);

        // Wrap checkpoint creation
        let guard = lock.acquire("global:checkpoint", Duration::from_secs(60)).await?;

        let coordinator = CheckpointCoordinator::new(backend, interval, path);
        coordinator.create_checkpoint().await?;

        drop(guard);
        Ok(())
    }
}
