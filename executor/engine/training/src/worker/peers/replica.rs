//! A worker's replica of the optimizer state, and the update that every worker makes.
//!
//! Sums, rates and parameters have the same bits on every worker, and an update depends on nothing
//! else. So the replicas stay equal without comparison.

use super::priority_allreduce::RangeSum;
use crate::checkpoint::{CheckpointArena, Contents};
use muster_compute::model::{ParameterBlock, ParameterRole};
use muster_compute::optimizer::{self, OptimizerConfig, UpdateRule};
use muster_compute::pages;
use std::ops::Range;
use std::sync::Arc;
use std::thread;

/// Number of parameters in a chunk: 64 KiB each of parameters, sums and every plane of state.
const CHUNK: usize = 16 << 10;

/// Minimum number of chunks per thread.
const CHUNKS_PER_THREAD: usize = 16;

/// Ranges and roles of the tensors.
type Blocks = Arc<[(Range<usize>, ParameterRole)]>;

/// The whole optimizer state; the model holds the parameters.
#[derive(Debug)]
pub struct Replica {
    optimizer: OptimizerConfig,
    blocks: Blocks,
    threads: usize,
    /// Limit for the norm of the mean gradient.
    clip_norm: Option<f64>,
    /// Planes of the state, each as long as the parameters.
    pub state: Vec<Vec<f32>>,
    /// Number of updates so far.
    pub updates: u64,
}

/// A range of blocks whose gradients are summed over all workers' examples, and the factor to the
/// mean.
#[derive(Debug, Clone, PartialEq)]
pub struct GradientRange {
    pub range: Range<usize>,
    pub scale: f32,
}

impl Replica {
    #[must_use]
    pub fn new(optimizer: OptimizerConfig, blocks: &[ParameterBlock], threads: usize) -> Self {
        let parameters = blocks.last().map_or(0, |block| block.range().end);
        Self {
            state: (0..optimizer.state_len_per_param())
                .map(|_| pages::zeros(parameters))
                .collect(),
            blocks: blocks
                .iter()
                .map(|block| (block.range(), block.role))
                .collect(),
            optimizer,
            threads: threads.max(1),
            clip_norm: None,
            updates: 0,
        }
    }

    /// Returns the update rule.
    #[must_use]
    pub fn optimizer(&self) -> &OptimizerConfig {
        &self.optimizer
    }

    /// Returns the limit for the norm of the mean gradient.
    #[must_use]
    pub fn clip_norm(&self) -> Option<f64> {
        self.clip_norm
    }

    /// Returns the number of parameters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.last().map_or(0, |(range, _)| range.end)
    }

    /// Scales mean gradients down to the norm `norm`, if they are longer.
    #[must_use]
    pub fn clipping(mut self, norm: Option<f64>) -> Self {
        self.clip_norm = norm;
        self
    }

    /// Returns the norms of gradients of these parameters.
    #[must_use]
    pub fn norms(&self) -> GradientNorms {
        GradientNorms {
            blocks: Arc::clone(&self.blocks),
            threads: self.threads,
        }
    }

    /// Like [`GradientNorms::square`].
    #[must_use]
    pub fn square_norm(&self, sums: &[f32], parts: &[GradientRange]) -> f64 {
        self.norms().square(sums, parts)
    }

    /// Restores updates and state from a checkpoint.
    pub fn fill(&mut self, updates: u64, contents: &Contents<CheckpointArena>) {
        self.updates = updates;
        for (plane, kept) in self.state.iter_mut().zip(&contents.state) {
            plane.copy_from_slice(kept);
        }
    }

    /// Copies the content of a checkpoint into memory that is reused where it is large enough.
    pub fn copy(&self, parameters: &[f32], into: &mut Contents) {
        copy(parameters, &mut into.parameters);
        into.state.resize_with(self.state.len(), Vec::new);
        for (plane, kept) in self.state.iter().zip(&mut into.state) {
            copy(plane, kept);
        }
        into.extras.clear();
    }

    /// Applies the sums of one step; `parts` tile the parameters along blocks. The bits do not
    /// depend on the number of threads.
    pub fn update(&mut self, parameters: &mut [f32], sums: &[f32], parts: &[GradientRange]) {
        let optimizer = self.optimizer.clone();
        self.update_by(&optimizer, parameters, sums, parts);
    }

    /// Like [`Self::update`], with the learning rate of `step` in the schedule times `gain`.
    pub fn update_worth(
        &mut self,
        (step, gain): (u64, f64),
        parameters: &mut [f32],
        sums: &[f32],
        parts: &[GradientRange],
    ) {
        let optimizer = self.optimizer.for_one(step, gain);
        self.update_by(&optimizer, parameters, sums, parts);
    }

    fn update_by(
        &mut self,
        optimizer: &OptimizerConfig,
        parameters: &mut [f32],
        sums: &[f32],
        parts: &[GradientRange],
    ) {
        let step = self.updates;
        self.updates += 1;
        let clip = self.clip_norm.map_or(1.0, |limit| {
            optimizer::clip_factor(limit, self.square_norm(sums, parts).sqrt())
        });
        let jobs = jobs(
            optimizer,
            &self.blocks,
            &mut self.state,
            parameters,
            (sums, clip),
            parts,
        );
        run(jobs, self.threads, (optimizer, step));
    }

    /// Applies some ranges of the next update's sums, ascending and disjoint; they may begin and
    /// end within blocks. [`Self::end_update`] must follow after all ranges. The bits equal those
    /// of [`Self::update`].
    ///
    /// # Panics
    /// Where an update needs more than a value and its state: with clipping, and with LARS.
    pub fn update_ranges(&mut self, parameters: &mut [f32], sums: &[RangeSum]) {
        let by_tensor = matches!(self.optimizer.rule, UpdateRule::Lars { .. });
        assert!(
            self.clip_norm.is_none() && !by_tensor,
            "no number's update looks at another's"
        );
        let (optimizer, step) = (&self.optimizer, self.updates);
        let jobs = jobs_of_ranges(&self.blocks, &mut self.state, parameters, sums);
        run(jobs, self.threads, (optimizer, step));
    }

    /// Ends an update after all of its ranges.
    pub fn end_update(&mut self) {
        self.updates += 1;
    }
}

/// Norms of gradients.
#[derive(Debug, Clone)]
pub struct GradientNorms {
    blocks: Blocks,
    threads: usize,
}

impl GradientNorms {
    /// Returns the squared Euclidean norm of the mean gradient of `sums`, whose factors are in
    /// `parts`. Statistics are left out.
    #[must_use]
    pub fn square(&self, sums: &[f32], parts: &[GradientRange]) -> f64 {
        let gradients: Vec<(&[f32], f32)> = self
            .blocks
            .iter()
            .filter(|(_, role)| *role != ParameterRole::Statistic)
            .map(|(range, _)| (&sums[range.clone()], scale_of(range, parts)))
            .collect();
        optimizer::square_norm(&gradients, self.threads)
    }
}

/// Runs all jobs on up to `threads` threads.
fn run(jobs: Vec<ChunkUpdate<'_>>, threads: usize, (optimizer, step): (&OptimizerConfig, u64)) {
    let threads = threads.min(jobs.len() / CHUNKS_PER_THREAD).max(1);
    let share = jobs.len().div_ceil(threads).max(1);
    let mut jobs = jobs.into_iter();
    thread::scope(|scope| {
        for _ in 1..threads {
            let share: Vec<ChunkUpdate<'_>> = jobs.by_ref().take(share).collect();
            scope.spawn(move || share.into_iter().for_each(|job| job.run(optimizer, step)));
        }
        jobs.for_each(|job| job.run(optimizer, step));
    });
}

/// Divides an update into jobs that can run in parallel.
fn jobs<'a>(
    optimizer: &OptimizerConfig,
    blocks: &[(Range<usize>, ParameterRole)],
    state: &'a mut [Vec<f32>],
    parameters: &'a mut [f32],
    (sums, clip): (&'a [f32], f64),
    parts: &[GradientRange],
) -> Vec<ChunkUpdate<'a>> {
    let by_tensor = matches!(optimizer.rule, UpdateRule::Lars { .. });
    let mut jobs = Vec::new();
    let mut planes = state.iter_mut();
    let [mut first, mut second] =
        std::array::from_fn(|_| planes.next().map_or(&mut [][..], Vec::as_mut_slice));
    let mut rest = parameters;
    for (range, role) in blocks {
        let scale = match role {
            // Clipping applies to gradients only, not to statistics.
            ParameterRole::Statistic => scale_of(range, parts),
            _ => (f64::from(scale_of(range, parts)) * clip) as f32,
        };
        let block = take(&mut rest, range.len());
        let sum = &sums[range.clone()];
        let trust = match role {
            ParameterRole::Weight if by_tensor => optimizer.trust(block, sum, scale),
            _ => 1.0,
        };
        for (parameters, sum) in block.chunks_mut(CHUNK).zip(sum.chunks(CHUNK)) {
            let len = parameters.len();
            jobs.push(ChunkUpdate {
                role: *role,
                parameters,
                sum,
                planes: [take(&mut first, len), take(&mut second, len)],
                scale,
                trust,
            });
        }
    }
    jobs
}

/// Like [`jobs`], for ranges in which nothing but the role depends on the block.
fn jobs_of_ranges<'a>(
    blocks: &[(Range<usize>, ParameterRole)],
    state: &'a mut [Vec<f32>],
    parameters: &'a mut [f32],
    sums: &'a [RangeSum],
) -> Vec<ChunkUpdate<'a>> {
    let mut jobs = Vec::new();
    let mut planes = state.iter_mut();
    let [mut first, mut second] =
        std::array::from_fn(|_| planes.next().map_or(&mut [][..], Vec::as_mut_slice));
    let mut rest = parameters;
    let mut end = 0;
    for RangeSum {
        range,
        scale,
        floats,
    } in sums
    {
        // Skips the values between two ranges.
        for plane in [&mut rest, &mut first, &mut second] {
            take(plane, range.start - end);
        }
        end = range.end;
        let from = blocks.partition_point(|(block, _)| block.end <= range.start);
        let meeting = blocks[from..].iter();
        for (block, role) in meeting.take_while(|(block, _)| block.start < range.end) {
            let here = block.start.max(range.start)..block.end.min(range.end);
            let sum = &floats[here.start - range.start..here.end - range.start];
            for sum in sum.chunks(CHUNK) {
                jobs.push(ChunkUpdate {
                    role: *role,
                    parameters: take(&mut rest, sum.len()),
                    sum,
                    planes: [take(&mut first, sum.len()), take(&mut second, sum.len())],
                    scale: *scale,
                    trust: 1.0,
                });
            }
        }
    }
    jobs
}

/// Returns the factor of the part that contains a block.
fn scale_of(block: &Range<usize>, parts: &[GradientRange]) -> f32 {
    let part = parts.iter().find(|part| part.range.contains(&block.start));
    part.map_or(0.0, |part| part.scale)
}

fn copy(from: &[f32], into: &mut Vec<f32>) {
    into.clear();
    into.extend_from_slice(from);
}

/// Takes the first `len` values of `rest`, or as many as it has.
fn take<'a>(rest: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    let whole = std::mem::take(rest);
    let (taken, left) = whole.split_at_mut(len.min(whole.len()));
    *rest = left;
    taken
}

/// Update of one chunk.
struct ChunkUpdate<'a> {
    role: ParameterRole,
    parameters: &'a mut [f32],
    sum: &'a [f32],
    planes: [&'a mut [f32]; 2],
    scale: f32,
    trust: f32,
}

impl ChunkUpdate<'_> {
    fn run(self, optimizer: &OptimizerConfig, step: u64) {
        if self.role == ParameterRole::Statistic {
            optimizer::follow(self.parameters, self.sum, self.scale);
            return;
        }
        optimizer.update_part(
            step,
            self.parameters,
            self.sum,
            self.planes,
            self.scale,
            self.trust,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sgd(lr: f64) -> OptimizerConfig {
        OptimizerConfig::new(UpdateRule::Sgd {
            lr,
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
        })
    }

    /// The rate is that of the schedule at the present step, times the gain.
    #[test]
    fn update_uses_scheduled_rate_times_gain() {
        let blocks = ParameterBlock::in_a_row([(4, ParameterRole::Weight)]);
        let mut optimizer = sgd(1.0);
        optimizer.schedule.warmup_steps = 10;
        let parts = [GradientRange {
            range: 0..4,
            scale: 1.0,
        }];
        let mut replica = Replica::new(optimizer, &blocks, 1);
        let mut parameters = vec![0.0; 4];
        for (worth, rate) in [((0, 2.5), 0.25), ((2, 3.0), 0.9), ((5, 1.0), 0.6)] {
            let before = parameters[0];
            replica.update_worth(worth, &mut parameters, &[-1.0; 4], &parts);
            let moved = f64::from(parameters[0] - before);
            assert!((moved - rate).abs() < 1e-6, "{worth:?}: {moved}");
        }
        assert_eq!(replica.updates, 3);
    }

    fn bits(parameters: &[f32], state: &[Vec<f32>]) -> Vec<u32> {
        let all = state.iter().flatten().chain(parameters);
        all.map(|number| number.to_bits()).collect()
    }

    /// For every division and order, with blocks of every role.
    #[test]
    fn update_in_ranges_has_the_bits_of_the_whole() {
        let blocks = ParameterBlock::in_a_row([
            (70_001, ParameterRole::Weight),
            (10, ParameterRole::Bias),
            (6, ParameterRole::Statistic),
            (3_000, ParameterRole::Weight),
        ]);
        let len = 73_017;
        let sums: Vec<f32> = (0..len)
            .map(|i| ((i * 7_919) % 1_003) as f32 / 501.5 - 1.0)
            .collect();
        let momentum = UpdateRule::Sgd {
            lr: 0.1,
            momentum: 0.9,
            nesterov: false,
            weight_decay: 0.01,
        };
        let adam = UpdateRule::Adam {
            lr: 0.01,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
        };
        let [a, b, c, d] =
            [0..16_385, 16_385..16_386, 16_386..70_013, 70_013..len].map(|range| RangeSum {
                floats: sums[range.clone()].to_vec(),
                range,
                scale: 0.25,
            });
        let (later, earlier) = ([b, d], [a, c]);
        for rule in [momentum, adam] {
            let [mut whole, mut cut] =
                [0; 2].map(|_| Replica::new(OptimizerConfig::new(rule), &blocks, 3));
            let [mut expected, mut found] = [0; 2].map(|_| vec![0.5; len]);
            for _ in 0..3 {
                let part = GradientRange {
                    range: 0..len,
                    scale: 0.25,
                };
                whole.update(&mut expected, &sums, &[part]);
                cut.update_ranges(&mut found, &later);
                cut.update_ranges(&mut found, &earlier);
                cut.end_update();
            }
            assert_eq!(whole.updates, cut.updates);
            let same = bits(&expected, &whole.state) == bits(&found, &cut.state);
            assert!(same, "{rule:?}");
        }
    }

    /// Compares with f64: two parts with different scales, and a statistic that is neither counted
    /// nor scaled.
    #[test]
    fn an_update_is_clipped_by_the_norm_of_the_whole_mean() {
        let blocks = ParameterBlock::in_a_row([
            (70_000, ParameterRole::Weight),
            (10, ParameterRole::Bias),
            (6, ParameterRole::Statistic),
            (3_000, ParameterRole::Weight),
        ]);
        let len = 73_016;
        let sums: Vec<f32> = (0..len)
            .map(|i| ((i * 7_919) % 1_003) as f32 / 501.5 - 1.0)
            .collect();
        let parts = [(70_010..len, 0.5), (0..70_010, 0.25)]
            .map(|(range, scale)| GradientRange { range, scale });
        let statistics = 70_010..70_016;
        let means: Vec<f64> = (0..len)
            .map(|i| f64::from(sums[i]) * if i < 70_010 { 0.25 } else { 0.5 })
            .collect();
        let squares = (0..len)
            .filter(|i| !statistics.contains(i))
            .map(|i| means[i].powi(2));
        let norm = squares.sum::<f64>().sqrt();
        for limit in [0.5, 2.0 * norm] {
            let factor = (limit / (norm + 1e-6)).min(1.0);
            let mut after: Option<Vec<f32>> = None;
            for threads in [1, 3] {
                let mut replica = Replica::new(sgd(1.0), &blocks, threads).clipping(Some(limit));
                let mut parameters = vec![0.0; len];
                replica.update(&mut parameters, &sums, &parts);
                for (i, parameter) in parameters.iter().enumerate() {
                    let expected = if statistics.contains(&i) {
                        means[i]
                    } else {
                        means[i] * factor
                    };
                    let off = f64::from(*parameter) + expected;
                    assert!(
                        off.abs() <= 1e-6 * expected.abs(),
                        "{limit}, {i}: {parameter}"
                    );
                }
                let first = after.get_or_insert_with(|| parameters.clone());
                assert!(
                    first
                        .iter()
                        .zip(&parameters)
                        .all(|(a, b)| a.to_bits() == b.to_bits())
                );
            }
        }
    }
}
