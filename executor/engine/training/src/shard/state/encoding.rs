//! Codecs of a shard, and their memory.

use muster_comm::shard_codec::ShardCodec;
use std::sync::Arc;

/// Encoding of pushes and answers.
#[derive(Debug, Default)]
pub struct ShardEncoding {
    /// Codecs of pushes and answers in the present layout, if they are encoded.
    pub shard_codec: Option<Arc<ShardCodec>>,
    /// Encoded answer to the step that was completed last.
    pub deltas: Option<Arc<Vec<u8>>>,
    /// Memory of codes that were applied.
    pub spare_codes: Vec<Vec<u8>>,
}

impl ShardEncoding {
    /// Sets the codec of a new layout.
    pub fn begin_layout(&mut self, shard_codec: Option<ShardCodec>) {
        self.shard_codec = shard_codec.map(Arc::new);
        // Their capacity is that of codes for the previous pieces.
        self.spare_codes = Vec::new();
    }

    /// Returns memory for an answer: that of the previous one, if no worker is still sent it.
    pub fn take_deltas(&mut self) -> Vec<u8> {
        let before = self.deltas.take();
        before.and_then(Arc::into_inner).unwrap_or_default()
    }

    /// Returns memory for codes that are kept.
    pub fn take_spare_codes(&mut self) -> Vec<u8> {
        self.spare_codes.pop().unwrap_or_default()
    }
}
