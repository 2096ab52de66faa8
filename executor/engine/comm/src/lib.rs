//! Communication of the training engine: the wire protocol, the connections between workers,
//! collectives, gradient compression, memory shared within a node, and the division of parameters
//! among PS shards.
//!
//! It knows parameter blocks, bytes and peers. It must not depend on consistency models,
//! checkpoints or data sets. Of `muster-compute` it uses the descriptions of parameters and the
//! vectorised loops, of `muster-model` ids and the settings of codecs.

pub mod assign;
pub mod collective;
pub mod compress;
pub mod fabric;
pub mod log;
pub mod memory;
pub mod partitions;
pub mod shard_codec;
pub mod wire;
