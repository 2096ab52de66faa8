//! Connections to a shard. Each has a thread, which reads its frames and sends the answers.

mod acceptor;
mod frames;
mod handover;
mod snapshot_reads;
mod worker_connection;

pub use acceptor::ShardAcceptor;
