//! Tests with other Rust libraries for the same locks: rslock on Redis, sqlx on PostgreSQL.
