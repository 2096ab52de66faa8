//! Settings from which a shard creates its tensors, for any pieces.

use super::tensors::{Segment, Tensors};
use muster_comm::assign::{ParameterPiece, load};
use muster_comm::compress::Codecs;
use muster_comm::shard_codec::{ShardCodec, has_plain_statistics};
use muster_compute::model::{ParameterBlock, ParameterInit, ParameterRole};
use muster_compute::optimizer::OptimizerConfig;

/// Settings of a job, the same for every shard.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub optimizer: OptimizerConfig,
    /// Blocks of the network.
    pub blocks: Vec<ParameterBlock>,
    /// Number of threads for updates.
    pub threads: usize,
    /// Codecs of pushes, and under BSP of answers.
    pub codecs: Option<Codecs>,
    /// Seed of the answers' random numbers.
    pub seed: u64,
}

impl Recipe {
    /// Creates the settings for `parameters` weights without a network.
    #[must_use]
    pub fn weights(optimizer: OptimizerConfig, parameters: usize, threads: usize) -> Self {
        let block = ParameterBlock {
            name: "weights".to_owned(),
            offset: 0,
            len: parameters,
            shape: vec![parameters],
            role: ParameterRole::Weight,
            fill: ParameterInit::Constant(0.0),
        };
        Self {
            optimizer,
            blocks: vec![block],
            threads,
            codecs: None,
            seed: 0,
        }
    }

    /// Sets the codecs of pushes.
    #[must_use]
    pub fn with_codecs(self, codecs: Option<Codecs>) -> Self {
        Self { codecs, ..self }
    }

    /// Returns the codecs of a shard with these pieces.
    ///
    /// # Panics
    /// When a codec's settings are outside their range: the job document was validated.
    #[must_use]
    pub fn shard_codec(&self, pieces: &[ParameterPiece]) -> Option<ShardCodec> {
        let codecs = self.codecs.as_ref()?;
        let shard_codec = ShardCodec::new(codecs, &self.blocks, pieces);
        Some(shard_codec.expect("the document's codecs are validated"))
    }

    /// Like [`has_plain_statistics`] for this job.
    #[must_use]
    pub fn has_plain_statistics(&self) -> bool {
        has_plain_statistics(self.codecs.as_ref(), &self.blocks)
    }

    /// Returns the number of parameters of the whole network.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.blocks.last().map_or(0, |block| block.range().end)
    }

    /// Whether a shard can hold these pieces: ascending, disjoint, within the network.
    #[must_use]
    pub fn allows(&self, pieces: &[ParameterPiece]) -> bool {
        let mut end = 0;
        let in_order = pieces.iter().all(|piece| {
            let follows = piece.len > 0 && piece.offset >= end;
            let piece_end = piece.offset.checked_add(piece.len);
            end = piece_end.unwrap_or(usize::MAX);
            follows && piece_end.is_some()
        });
        in_order && end <= self.parameters()
    }

    /// Creates zero tensors for these pieces; with known parameters, if `answers_encoded`.
    #[must_use]
    pub fn tensors(&self, pieces: &[ParameterPiece], answers_encoded: bool) -> Tensors {
        let tensors = Tensors::new(
            self.optimizer.clone(),
            Segment::of(&self.blocks, pieces),
            self.threads,
        );
        debug_assert_eq!(tensors.parameters().len(), load(pieces));
        if answers_encoded && self.codecs.is_some() {
            tensors.with_known()
        } else {
            tensors
        }
    }
}
