//! The few floats before the gradients in the arena: what a step's sum tells beside the gradients.
//!
//! They are summed with the gradients, so everyone reads the same of the same step: that is how all agree on the step after which
//! the members change, or training ends, without a message more.

use crate::wire::hello::StepStats;
use crate::worker::noise::Parts;

/// Floats, a cache line of them.
pub const HEAD: usize = 16;

/// What one worker says of its step, and the sum of that over all.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Head {
    pub stats: StepStats,
    /// The chief: after this step the members change.
    pub regroup: bool,
    /// The chief: this is no step, training is over.
    pub finish: bool,
    /// The chief: the next step begins with a checkpoint.
    pub keep: bool,
    /// What this worker's parameters count for, where parameters are averaged.
    pub weight: f32,
    /// 1 of a worker that has all of the step's sums on its GPU, where gradients meet there.
    pub summed: f32,
    /// In steps in which the noise of gradients is measured.
    pub parts: Parts,
}

impl Head {
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
        // Exact up to 2^24 turns; the chief alone names one.
        out[11] = self.stats.hold as f32;
        out[12] = self.summed;
    }

    /// Of the sum over so many workers: whether all of them have all sums.
    #[must_use]
    pub fn is_unanimous(&self, workers: usize) -> bool {
        self.summed == workers as f32
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
            parts: Parts {
                squares: floats[7],
                inverses: floats[8],
                workers: floats[9],
            },
        }
    }
}

/// Bits of a count in its low half: the sum of so many of 4,096 workers is exact in a float, as is that of what is above them, up to
/// 2^36 in all.
const LOW: u32 = 12;

/// A count as two floats whose sums over workers are those of the counts.
fn halves(count: u64) -> [f32; 2] {
    [(count & ((1 << LOW) - 1)) as f32, (count >> LOW) as f32]
}

fn whole([low, high]: [f32; 2]) -> u64 {
    low as u64 + ((high as u64) << LOW)
}

/// A count as floats that go over the wire unchanged: sixteen bits each.
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
    fn a_head_is_what_it_was() {
        let head = Head {
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
            parts: Parts {
                squares: 0.5,
                inverses: 0.25,
                workers: 1.0,
            },
        };
        let mut floats = [f32::NAN; HEAD];
        head.write(&mut floats);
        let read = Head::read(&floats);
        assert!((read.stats.loss_sum - head.stats.loss_sum).abs() < 1e-9);
        assert_eq!((read.stats.correct, read.stats.examples), (77, 16_777_215));
        assert_eq!((read.regroup, read.finish, read.keep), (true, false, true));
        assert_eq!(read.stats.hold, 77);
        assert_eq!((read.weight, read.parts), (head.weight, head.parts));
        assert!(read.is_unanimous(2) && !read.is_unanimous(3));
        let diverged = Head {
            stats: StepStats {
                loss_sum: f64::INFINITY,
                ..head.stats
            },
            ..head
        };
        diverged.write(&mut floats);
        assert!(!Head::read(&floats).stats.loss_sum.is_finite());
    }

    /// A round of averaging has the examples of many steps.
    #[test]
    fn counts_of_all_workers_add_up_exactly() {
        let counts = |rank: u64| StepStats {
            correct: 16_777_217 + 3 * rank,
            examples: 1_000_000_007 + 2 * rank,
            ..StepStats::default()
        };
        let mut sums = [0.0f32; HEAD];
        for rank in 0..60 {
            let mut floats = [f32::NAN; HEAD];
            let head = Head {
                stats: counts(rank),
                ..Head::default()
            };
            head.write(&mut floats);
            sums.iter_mut()
                .zip(floats)
                .for_each(|(sum, own)| *sum += own);
        }
        let read = Head::read(&sums).stats;
        let expected = |of: fn(StepStats) -> u64| (0..60).map(|rank| of(counts(rank))).sum::<u64>();
        assert_eq!(read.correct, expected(|stats| stats.correct));
        assert_eq!(read.examples, expected(|stats| stats.examples));
    }

    #[test]
    fn counts_survive() {
        for count in [0, 1, 65_535, 65_536, u64::MAX, 0x0123_4567_89ab_cdef] {
            assert_eq!(count_from_floats(count_to_floats(count)), count);
        }
    }
}
