//! The shard's values: its parameters, their optimizer state, and the update.
//!
//! An update works on chunks that stay in a core's cache. A chunk's gradients are summed over the
//! workers and applied before the next chunk. So each value is read from memory once per step.
//! [`planes`] reads and fills the values.

mod chunk;
mod coded;
mod planes;
#[cfg(test)]
mod tests;

use chunk::{UpdateChunk, UpdateRules, add_up, share};
use muster_comm::assign::ParameterPiece;
use muster_compute::model::{ParameterBlock, ParameterRole};
use muster_compute::optimizer::{self, OptimizerConfig, UpdateRule};
use muster_compute::pages::zeros;
use std::ops::Range;

/// Number of parameters in a chunk: 64 KiB each of parameters, gradients and every plane of state.
const CHUNK: usize = 16 << 10;

/// Minimum number of chunks per thread.
const CHUNKS_PER_THREAD: usize = 16;

/// A part of a block that this shard holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Range in the shard's local order.
    pub range: Range<usize>,
    pub role: ParameterRole,
}

impl Segment {
    /// Returns the segments of the network's `blocks` that a shard with `pieces` holds.
    #[must_use]
    pub fn of(blocks: &[ParameterBlock], pieces: &[ParameterPiece]) -> Vec<Self> {
        let mut out = Vec::new();
        let mut held = 0;
        for piece in pieces {
            let from = blocks.partition_point(|block| block.range().end <= piece.offset);
            for block in &blocks[from..] {
                let start = block.offset.max(piece.offset);
                let end = block.range().end.min(piece.range().end);
                if start >= end {
                    break;
                }
                let range = held..held + (end - start);
                held = range.end;
                out.push(Self {
                    range,
                    role: block.role,
                });
            }
        }
        out
    }

    /// Whether the values are running statistics. They are no gradients and have another update.
    fn is_statistic(&self) -> bool {
        self.role == ParameterRole::Statistic
    }

    /// Returns a segment of `len` weights without a network.
    #[must_use]
    pub fn weights(len: usize) -> Vec<Self> {
        let (range, role) = (0..len, ParameterRole::Weight);
        vec![Self { range, role }]
    }
}

/// Factors of a step's sum of gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factors {
    /// 1 over the targets of the sum.
    pub scale: f32,
    /// Clip factor. It does not apply to running statistics, which are not gradients.
    pub clip: f32,
    /// Factor of the learning rate.
    pub rate: f32,
}

impl Default for Factors {
    fn default() -> Self {
        Self {
            scale: 1.0,
            clip: 1.0,
            rate: 1.0,
        }
    }
}

/// Values of one shard, in its local order.
#[derive(Debug)]
pub struct Tensors {
    optimizer: OptimizerConfig,
    threads: usize,
    segments: Vec<Segment>,
    parameters: Vec<f32>,
    /// Chunk after chunk; within a chunk, plane after plane, as [`OptimizerConfig::update`]
    /// expects.
    state: Vec<f32>,
    /// Known parameters: those that the workers have, where answers are encoded; otherwise empty.
    /// They move with the pieces.
    known: Vec<f32>,
}

impl Tensors {
    /// Creates zeros. `segments` tile the parameters in order.
    #[must_use]
    pub fn new(optimizer: OptimizerConfig, segments: Vec<Segment>, threads: usize) -> Self {
        let parameters = segments.last().map_or(0, |segment| segment.range.end);
        let state = parameters * optimizer.state_len_per_param();
        Self {
            threads: threads.max(1),
            segments: joined(segments, &optimizer),
            optimizer,
            parameters: zeros(parameters),
            state: zeros(state),
            known: Vec::new(),
        }
    }

    /// Stores the known parameters from now on, with the present values.
    #[must_use]
    pub fn with_known(mut self) -> Self {
        self.known = zeros(self.parameters.len());
        self.known.copy_from_slice(&self.parameters);
        self
    }

    /// Returns the parameters that the workers have: the parameters themselves, where answers are
    /// not encoded.
    #[must_use]
    pub fn known(&self) -> &[f32] {
        if self.known.is_empty() {
            &self.parameters
        } else {
            &self.known
        }
    }

    /// Returns the parameters and the known parameters.
    pub fn parameters_and_known(&mut self) -> (&[f32], &mut [f32]) {
        (&self.parameters, &mut self.known)
    }

    /// Returns the number of values that a move transfers for each parameter.
    #[must_use]
    pub fn numbers_per_parameter(&self) -> usize {
        1 + self.state_per_parameter() + usize::from(!self.known.is_empty())
    }

    #[must_use]
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// Returns the number of values of optimizer state per parameter.
    #[must_use]
    pub fn state_per_parameter(&self) -> usize {
        self.optimizer.state_len_per_param()
    }

    /// Sums `gradients` in their order, into the first, and applies the sum as update number
    /// `update`, counted from 0. The bits do not depend on the number of threads.
    pub fn update(&mut self, update: u64, gradients: &mut [&mut [f32]], scale: f32) {
        let factors = Factors {
            scale,
            ..Factors::default()
        };
        self.update_by(update, gradients, factors);
    }

    /// Like [`Self::update`], with all factors.
    pub fn update_by(&mut self, update: u64, gradients: &mut [&mut [f32]], factors: Factors) {
        self.update_from(0, update, gradients, factors);
    }

    /// Like [`Self::update_by`], for a part that begins with value `offset`. A step applied part by
    /// part has the bits of an undivided one.
    ///
    /// # Panics
    /// When the part begins or ends within a chunk, or the rule needs whole tensors.
    pub fn update_from(
        &mut self,
        offset: usize,
        update: u64,
        gradients: &mut [&mut [f32]],
        factors: Factors,
    ) {
        let is_whole = gradients[0].len() == self.parameters.len();
        assert!(
            is_whole || !self.looks_at_whole_tensors(),
            "a part is no tensor"
        );
        let end = offset + gradients[0].len();
        assert!(
            offset.is_multiple_of(CHUNK)
                && (end.is_multiple_of(CHUNK) || end == self.parameters.len()),
            "a part is of whole chunks"
        );
        let scale = factors.scale * factors.clip;
        let slowed;
        let optimizer = if factors.rate == 1.0 {
            &self.optimizer
        } else {
            slowed = self.optimizer.slowed(factors.rate);
            &slowed
        };
        let planes = optimizer.state_len_per_param();
        let threads = self.threads;
        let (first, others) = gradients
            .split_first_mut()
            .expect("a step has at least one gradient");
        let others: &[&mut [f32]] = others;
        let trusts = match self.optimizer.rule {
            UpdateRule::Lars { .. } => {
                add_up(first, others, threads);
                Some(self.trusts(first, scale))
            }
            _ => None,
        };
        let others = if trusts.is_some() { &[] } else { others };
        let state = self.state.chunks_mut(CHUNK * planes.max(1));
        let mut state = state.skip(offset / CHUNK);
        let mut chunks: Vec<UpdateChunk<'_>> = self.parameters[offset..end]
            .chunks_mut(CHUNK)
            .zip(first.chunks_mut(CHUNK))
            .enumerate()
            .map(|(index, (parameters, sum))| UpdateChunk {
                offset: offset + index * CHUNK,
                start: index * CHUNK,
                parameters,
                sum,
                state: state.next().unwrap_or_default(),
            })
            .collect();
        let rules = UpdateRules {
            optimizer,
            segments: &self.segments,
            trusts: trusts.as_deref(),
            update,
            factors,
        };
        share(&mut chunks, threads, CHUNKS_PER_THREAD, |chunk| {
            chunk.add(others);
            chunk.update(&rules);
        });
    }

    /// Sums `gradients` in their order, into the first. Returns the squared norm of the sum times
    /// `scale`.
    pub fn sum_up(&self, gradients: &mut [&mut [f32]], scale: f32) -> f64 {
        let (first, others) = gradients
            .split_first_mut()
            .expect("a step has at least one gradient");
        add_up(first, others, self.threads);
        self.square_norm(first, scale)
    }

    /// Returns the squared norm of these gradients times `scale`. Running statistics are left out.
    #[must_use]
    pub fn square_norm(&self, gradients: &[f32], scale: f32) -> f64 {
        let counted = self
            .segments
            .iter()
            .filter(|segment| !segment.is_statistic());
        let parts: Vec<(&[f32], f32)> = counted
            .map(|segment| (&gradients[segment.range.clone()], scale))
            .collect();
        optimizer::square_norm(&parts, self.threads)
    }

    /// Like [`Self::square_norm`], for a part that begins with value `offset`.
    #[must_use]
    pub fn square_norm_from(&self, offset: usize, gradients: &[f32], scale: f32) -> f64 {
        let end = offset + gradients.len();
        let parts: Vec<(&[f32], f32)> = self
            .segments
            .iter()
            .filter(|segment| !segment.is_statistic())
            .map(|segment| segment.range.start.max(offset)..segment.range.end.min(end))
            .filter(|range| !range.is_empty())
            .map(|range| (&gradients[range.start - offset..range.end - offset], scale))
            .collect();
        optimizer::square_norm(&parts, 1)
    }

    /// Whether an update depends on more than each value's own gradient.
    #[must_use]
    pub fn looks_at_whole_tensors(&self) -> bool {
        matches!(self.optimizer.rule, UpdateRule::Lars { .. })
    }

    /// Returns the LARS factor of each segment.
    fn trusts(&self, sum: &[f32], scale: f32) -> Vec<f32> {
        let segments = self.segments.iter();
        segments
            .map(|segment| match segment.role {
                ParameterRole::Weight => {
                    let range = segment.range.clone();
                    let parameters = &self.parameters[range.clone()];
                    self.optimizer.trust(parameters, &sum[range], scale)
                }
                ParameterRole::Bias | ParameterRole::Statistic => 1.0,
            })
            .collect()
    }
}

/// Joins neighbouring segments with the same update, so that most shards have one segment.
fn joined(segments: Vec<Segment>, optimizer: &OptimizerConfig) -> Vec<Segment> {
    let by_tensor = matches!(optimizer.rule, UpdateRule::Lars { .. });
    let mut out: Vec<Segment> = Vec::new();
    for segment in segments {
        match out.last_mut() {
            Some(last) if !by_tensor && last.is_statistic() == segment.is_statistic() => {
                last.range.end = segment.range.end
            }
            _ => out.push(segment),
        }
    }
    out
}
