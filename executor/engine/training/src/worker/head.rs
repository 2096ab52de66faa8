//! Step metadata: floats before the gradients in the arena, summed together with them.
//!
//! All workers read the same sum of a step. So they agree, without another message, on the step
//! after which the members or the batch change or training ends.

use crate::worker::noise::NoiseParts;
use muster_comm::wire::metadata::StepStats;

/// Number of floats; they fill one cache line.
pub const HEAD: usize = 16;

/// Metadata of one worker's step, or its sum over all workers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepMetadata {
    pub stats: StepStats,
    /// Coordinator: the members change after this step.
    pub regroup: bool,
    /// Coordinator: training has ended; this is not a step.
    pub finish: bool,
    /// Coordinator: the next step begins with a checkpoint.
    pub keep: bool,
    /// Weight of this worker's parameters, where parameters are averaged.
    pub weight: f32,
    /// 1 if this worker has all sums of the step on its GPU, where gradients are summed on GPUs.
    pub summed: f32,
    /// Set in steps that measure the gradient noise.
    pub parts: NoiseParts,
    /// Coordinator: examples of an update from the next step on; 0 where they stay. Exact up to
    /// 2^24.
    pub batch: usize,
}

impl StepMetadata {
    pub fn write(&self, out: &mut [f32]) {
        out[..HEAD].fill(0.0);
        // Two floats hold a sum of losses to 48 bits.
        let high = self.stats.loss_sum as f32;
        out[0] = high;
        if high.is_finite() {
            out[1] = (self.stats.loss_sum - f64::from(high)) as f32;
        }
        [out[2], out[13]] = halves(self.stats.correct);
        [out[3], out[14]] = halves(self.stats.examples);
        out[4] = f32::from(u8::from(self.regroup));
        out[5] = f32::from(u8::from(self.finish));
        out[6] = self.weight;
        out[7] = self.parts.squares;
        out[8] = self.parts.inverses;
        out[9] = self.parts.workers;
        out[10] = f32::from(u8::from(self.keep));
        // Exact up to slice number 2^24; only the coordinator sets it.
        out[11] = self.stats.hold as f32;
        out[12] = self.summed;
        out[15] = self.batch as f32;
    }

    /// Whether all workers have all sums. `self` must be the sum over `workers` workers.
    #[must_use]
    pub fn is_unanimous(&self, workers: usize) -> bool {
        self.summed == workers as f32
    }

    /// Whether the next step does not follow at once: training ends, the members change, or all
    /// workers suspend.
    #[must_use]
    pub fn needs_pause(&self) -> bool {
        self.finish || self.regroup || self.stats.hold > 0
    }

    #[must_use]
    pub fn read(floats: &[f32]) -> Self {
        Self {
            stats: StepStats {
                loss_sum: f64::from(floats[0]) + f64::from(floats[1]),
                correct: whole([floats[2], floats[13]]),
                examples: whole([floats[3], floats[14]]),
                dropped: 0,
                hold: floats[11] as u64,
            },
            regroup: floats[4] > 0.0,
            finish: floats[5] > 0.0,
            keep: floats[10] > 0.0,
            weight: floats[6],
            summed: floats[12],
            parts: NoiseParts {
                squares: floats[7],
                inverses: floats[8],
                workers: floats[9],
            },
            batch: floats[15] as usize,
        }
    }
}

/// Number of bits in a count's low half. The sum of the low halves of 4,096 workers is exact in a
/// float. The sum of the high halves is exact for totals up to 2^36.
const LOW: u32 = 12;

/// Splits a count into two floats. Their sums over workers give the sum of the counts.
fn halves(count: u64) -> [f32; 2] {
    [(count & ((1 << LOW) - 1)) as f32, (count >> LOW) as f32]
}

fn whole([low, high]: [f32; 2]) -> u64 {
    low as u64 + ((high as u64) << LOW)
}

/// Converts a count to floats of 16 bits each, which a transfer leaves unchanged.
#[must_use]
pub fn count_to_floats(count: u64) -> [f32; 4] {
    std::array::from_fn(|i| f32::from((count >> (16 * i)) as u16))
}

#[must_use]
pub fn count_from_floats(floats: [f32; 4]) -> u64 {
    (0..4).fold(0, |count, i| count | (floats[i] as u64) << (16 * i))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_round_trips() {
        let head = StepMetadata {
            stats: StepStats {
                loss_sum: 1_234.567_890_123,
                correct: 77,
                examples: 16_777_215,
                dropped: 0,
                hold: 77,
            },
            regroup: true,
            finish: false,
            keep: true,
            weight: 3.0,
            summed: 2.0,
            parts: NoiseParts {
                squares: 0.5,
                inverses: 0.25,
                workers: 1.0,
            },
            batch: 65_535,
        };
        let mut floats = [f32::NAN; HEAD];
        head.write(&mut floats);
        let read = StepMetadata::read(&floats);
        assert!((read.stats.loss_sum - head.stats.loss_sum).abs() < 1e-9);
        assert_eq!((read.stats.correct, read.stats.examples), (77, 16_777_215));
        assert_eq!((read.regroup, read.finish, read.keep), (true, false, true));
        assert_eq!((read.stats.hold, read.batch), (77, 65_535));
        assert_eq!((read.weight, read.parts), (head.weight, head.parts));
        assert!(read.is_unanimous(2) && !read.is_unanimous(3));
        let diverged = StepMetadata {
            stats: StepStats {
                loss_sum: f64::INFINITY,
                ..head.stats
            },
            ..head
        };
        diverged.write(&mut floats);
        assert!(!StepMetadata::read(&floats).stats.loss_sum.is_finite());
    }

    fn counts(rank: u64) -> StepStats {
        StepStats {
            correct: 16_777_217 + 3 * rank,
            examples: 1_000_000_007 + 2 * rank,
            ..StepStats::default()
        }
    }

    /// A round of averaging counts the examples of many steps.
    #[test]
    fn counts_of_all_workers_add_up_exactly() {
        let mut sums = [0.0f32; HEAD];
        for rank in 0..60 {
            let mut floats = [f32::NAN; HEAD];
            let head = StepMetadata {
                stats: counts(rank),
                ..StepMetadata::default()
            };
            head.write(&mut floats);
            sums.iter_mut()
                .zip(floats)
                .for_each(|(sum, own)| *sum += own);
        }
        let read = StepMetadata::read(&sums).stats;
        let all: Vec<StepStats> = (0..60).map(counts).collect();
        let correct: u64 = all.iter().map(|stats| stats.correct).sum();
        let examples: u64 = all.iter().map(|stats| stats.examples).sum();
        assert_eq!((read.correct, read.examples), (correct, examples));
    }

    #[test]
    fn count_round_trips_through_floats() {
        for count in [0, 1, 65_535, 65_536, u64::MAX, 0x0123_4567_89ab_cdef] {
            assert_eq!(count_from_floats(count_to_floats(count)), count);
        }
    }
}
