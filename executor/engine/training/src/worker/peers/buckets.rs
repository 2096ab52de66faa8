//! Buckets of gradients, and the step that sums them during the backward pass.

use super::coded::EncodedAllReduce;
use super::replica::{GradientNorms, GradientRange};
use crate::worker::clip::OwnClip;
use crate::worker::head::{HEAD, StepMetadata};
use crate::worker::model::WorkerModel;
use crate::worker::noise::NoiseParts;
use crate::worker::progress::StepTimes;
use muster_comm::collective::{CollectiveGroup, Reduced};
use muster_comm::fabric::FabricError;
use muster_comm::wire::metadata::StepStats;
use muster_compute::data::slice;
use muster_compute::model::ParameterBlock;
use muster_model::id::TaskId;
use std::ops::Range;
use std::sync::mpsc;
use std::thread;

/// Minimum number of gradients in a bucket (4 MiB). The fixed costs of a sum are then negligible,
/// and the last bucket is still short.
const BUCKET: usize = 1 << 20;

/// Returns ranges of whole blocks that tile the parameters, the last first, as the backward pass
/// completes them. The same on all workers.
#[must_use]
pub fn buckets(blocks: &[ParameterBlock]) -> Vec<Range<usize>> {
    let mut end = blocks.last().map_or(0, |block| block.range().end);
    let mut buckets = Vec::new();
    for block in blocks.iter().rev() {
        if end - block.offset >= BUCKET || block.offset == 0 {
            buckets.push(block.offset..end);
            end = block.offset;
        }
    }
    buckets
}

/// How gradients are summed: as floats, or as encoded bytes.
#[derive(Debug)]
pub enum AllReduceFormat<'a> {
    Plain,
    Coded(&'a mut EncodedAllReduce),
}

impl AllReduceFormat<'_> {
    fn all_reduce(
        &mut self,
        group: &mut CollectiveGroup,
        step: u64,
        arena: Range<usize>,
    ) -> Result<Reduced, FabricError> {
        match self {
            Self::Plain => group.all_reduce(arena),
            Self::Coded(coded) => coded.all_reduce(group, step, arena),
        }
    }
}

/// Division of a step's examples among the workers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatchDivision {
    /// Workers in order of rank.
    pub workers: Vec<TaskId>,
    pub batch: usize,
    /// Targets per example whose gradients are added, such as the positions of a text.
    pub targets: u32,
}

impl BatchDivision {
    /// Returns the factor from a sum over all workers' examples to their mean.
    #[must_use]
    pub fn whole(&self) -> f32 {
        1.0 / (self.batch * self.targets.max(1) as usize) as f32
    }

    /// Returns the factor from a sum to the mean over the examples whose gradients it contains. It
    /// is that of the whole batch unless a worker has died in the middle of the step. Sums that
    /// were completed later lack the examples of that worker, and the mean covers the others.
    pub fn scale(&self, group: &CollectiveGroup, reduced: Reduced) -> f32 {
        let targets = self.targets.max(1) as usize;
        if reduced.contributions == self.workers.len() {
            return self.whole();
        }
        let contributors = group
            .members_of(reduced.view)
            .expect("a sum is of a view that this worker was in");
        let examples: usize = (0..self.workers.len())
            .filter(|&rank| {
                contributors
                    .iter()
                    .any(|member| member.id == self.workers[rank])
            })
            .map(|rank| slice(self.batch, rank, self.workers.len()).len())
            .sum();
        1.0 / (examples.max(1) * targets) as f32
    }
}

/// A step to be computed and summed.
#[derive(Debug)]
pub struct BucketStep<'a> {
    pub number: u64,
    /// Place of its examples in the data.
    pub place: u64,
    pub cut: &'a BatchDivision,
    pub head: StepMetadata,
    /// Set where the gradient noise is measured; leaves statistics out of the norms.
    pub measured_by: Option<GradientNorms>,
    /// Whether the noise is measured between two halves of this worker's examples, because there is
    /// no other worker.
    pub in_halves: bool,
    /// Set where each worker clips its own gradients, which are then one bucket.
    pub clip: Option<OwnClip>,
}

impl BucketStep<'_> {
    /// Returns the head for these gradients.
    pub fn head(&self, stats: StepStats, gradients: &[f32]) -> StepMetadata {
        // The slice number belongs to the step, the counts to the pass.
        let stats = StepStats {
            hold: self.head.stats.hold,
            ..stats
        };
        StepMetadata {
            stats,
            parts: self
                .noise_part(stats.examples, gradients)
                .unwrap_or_default(),
            ..self.head
        }
    }

    /// Measures the noise part of `examples` examples, whose gradients are summed in `gradients`.
    fn noise_part(&self, examples: u64, gradients: &[f32]) -> Option<NoiseParts> {
        let examples = examples as f32;
        let norms = self.measured_by.as_ref().filter(|_| examples > 0.0)?;
        let whole = GradientRange {
            range: 0..gradients.len(),
            scale: 1.0 / (examples * self.cut.targets.max(1) as f32),
        };
        Some(NoiseParts {
            squares: norms.square(gradients, &[whole]) as f32,
            inverses: 1.0 / examples,
            workers: 1.0,
        })
    }

    /// Computes the gradients of the step in two halves, and measures the noise as two workers with
    /// these parts would. `first` is memory for the first half.
    fn gradient_in_halves(
        &self,
        model: &mut WorkerModel,
        first: &mut Vec<f32>,
        gradients: &mut [f32],
    ) -> (StepMetadata, StepTimes) {
        first.resize(gradients.len(), 0.0);
        let ([mut stats, other], times) = model.gradient_in_halves(self.place, first, gradients);
        let mut parts = self.noise_part(stats.examples, first).unwrap_or_default();
        let second = self
            .noise_part(other.examples, gradients)
            .unwrap_or_default();
        parts.squares += second.squares;
        parts.inverses += second.inverses;
        parts.workers += second.workers;
        for (sum, first) in gradients.iter_mut().zip(first) {
            *sum += *first;
        }
        stats.add(other);
        stats.hold = self.head.stats.hold;
        let head = StepMetadata {
            stats,
            parts,
            ..self.head
        };
        (head, times)
    }
}

/// Sums of a step over all workers.
#[derive(Debug)]
pub struct BucketSums {
    pub head: StepMetadata,
    pub parts: Vec<GradientRange>,
}

/// Computes the gradients in the arena and sums them in one piece: for few gradients, or a single
/// worker. `half` is memory for the gradients of half of the examples.
pub fn in_one(
    (group, format): (&mut CollectiveGroup, &mut AllReduceFormat<'_>),
    model: &mut WorkerModel,
    step: &BucketStep<'_>,
    half: &mut Vec<f32>,
) -> (Result<BucketSums, FabricError>, StepTimes) {
    let len = model.parameters.len();
    let gradients = &mut group.gradients_mut()[HEAD..HEAD + len];
    let (head, times) = if step.in_halves {
        step.gradient_in_halves(model, half, gradients)
    } else {
        let (stats, times) = model.gradient(step.place, gradients, &mut |_, _| {});
        if let Some(clip) = step.clip {
            let targets = stats.examples * u64::from(step.cut.targets.max(1));
            clip.apply(&model.network, gradients, targets, step.cut.workers.len());
        }
        (step.head(stats, gradients), times)
    };
    head.write(group.gradients_mut());
    let sums = format
        .all_reduce(group, step.number, 0..HEAD + len)
        .map(|reduced| BucketSums {
            head: StepMetadata::read(group.sums()),
            parts: vec![GradientRange {
                range: 0..len,
                scale: step.cut.scale(group, reduced),
            }],
        });
    (sums, times)
}

/// Sums each of `buckets` on a separate thread as soon as the backward pass has completed it, into
/// `sums`.
pub fn overlapped(
    (group, format): (&mut CollectiveGroup, &mut AllReduceFormat<'_>),
    model: &mut WorkerModel,
    step: &BucketStep<'_>,
    buckets: &[Range<usize>],
    (gradients, sums): (&mut [f32], &mut [f32]),
) -> (Result<BucketSums, FabricError>, StepTimes) {
    let (ready, exchange) = mpsc::channel::<(Range<usize>, Vec<f32>)>();
    let (last, early) = buckets.split_last().expect("a network has parameters");
    thread::scope(|scope| {
        let exchanger = scope.spawn(move || {
            let mut parts = Vec::with_capacity(buckets.len());
            for (range, floats) in exchange {
                // The head precedes the gradients in the arena, and is summed with the last bucket,
                // which begins with the first gradients.
                let arena = HEAD + range.end - floats.len()..HEAD + range.end;
                group.gradients_mut()[arena.clone()].copy_from_slice(&floats);
                let reduced = format.all_reduce(group, step.number, arena)?;
                // The next sum may be completed in another view, whose memory lacks this one.
                sums[range.clone()]
                    .copy_from_slice(&group.sums()[HEAD + range.start..HEAD + range.end]);
                let scale = step.cut.scale(group, reduced);
                parts.push(GradientRange { range, scale });
            }
            let head = StepMetadata::read(group.sums());
            Ok(BucketSums { head, parts })
        });
        let mut waiting = early.iter().peekable();
        let (stats, times) = model.gradient(step.place, gradients, &mut |done, gradients| {
            while let Some(bucket) = waiting.next_if(|bucket| bucket.start >= done.start) {
                // The receiver is gone after an error of the exchange; that error is returned.
                let _ = ready.send((bucket.clone(), gradients[bucket.clone()].to_vec()));
            }
        });
        let head = step.head(stats, gradients);
        let mut floats = vec![0.0; HEAD + last.len()];
        head.write(&mut floats);
        floats[HEAD..].copy_from_slice(&gradients[last.clone()]);
        let _ = ready.send((last.clone(), floats));
        drop(ready);
        let summed = exchanger.join().expect("an exchange does not panic");
        (summed, times)
    })
}

/// Coordinator: announces the end of training through the head of a step without gradients.
pub fn finish(
    (group, format): (&mut CollectiveGroup, &mut AllReduceFormat<'_>),
    step: u64,
    buckets: &[Range<usize>],
) -> Result<(), FabricError> {
    let head = StepMetadata {
        finish: true,
        ..StepMetadata::default()
    };
    group.gradients_mut().fill(0.0);
    head.write(group.gradients_mut());
    for bucket in buckets {
        let start = if bucket.start == 0 {
            0
        } else {
            HEAD + bucket.start
        };
        format.all_reduce(group, step, start..HEAD + bucket.end)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_compute::model::ImageShape;
    use muster_compute::model::zoo;

    #[test]
    fn buckets_tile_the_parameters_from_the_end_along_blocks() {
        let input = ImageShape {
            height: 28,
            width: 28,
            channels: 1,
        };
        let network = zoo::mlp(input, &[2_048, 1_024, 512, 64], 10).unwrap();
        let buckets = buckets(network.blocks());
        assert!(buckets.len() > 1);
        let mut end = network.parameter_count();
        for bucket in &buckets {
            assert_eq!(bucket.end, end);
            assert!(
                network
                    .blocks()
                    .iter()
                    .any(|block| block.offset == bucket.start)
            );
            assert!(bucket.len() >= BUCKET || bucket.start == 0);
            end = bucket.start;
        }
        assert_eq!(end, 0);
    }
}
