//! Keeps a Redis Cluster for the tests of this user until none of them is left.

#[tokio::main(flavor = "current_thread")]
async fn main() {
    sprag_testkit::redis_server::keep_shared_cluster().await;
}
