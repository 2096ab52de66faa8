//! Shards with skewed classes, which model the data of users' devices in federated averaging.
//!
//! The distribution follows Hsu, Qi and Brown ("Measuring the Effects of Non-Identical Data
//! Distribution for Federated Visual Classification", 2019). Each worker draws its class shares
//! from a Dirichlet distribution around those of the whole set, and then draws examples by these
//! shares without replacement. The sizes of shards differ by at most one example. With a small
//! concentration each worker has one or two classes; with a large one the shards are alike.
//!
//! A shard is a function of (seed, labels, rank, workers), and the examples of a step are a
//! function of the shard and the step. A resumed run therefore continues exactly where it stopped.
//! Another number of workers gives other shards.

use super::order::{EpochOrder, slice};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Separates the use of a seed for shards from its other uses.
const DOMAIN: [u8; 16] = *b"muster shards v1";

/// Modifies the seed for the order within a shard.
const ORDER: u64 = 0x7368_6172_6473;

/// Examples of one worker, and the order in which it trains on them.
#[derive(Debug, Clone)]
pub struct ExampleShard {
    examples: Vec<u32>,
    seed: u64,
    /// Number of examples of each step.
    part: usize,
    current: Option<(u64, EpochOrder)>,
    indices: Vec<u32>,
}

impl ExampleShard {
    /// Shard of worker `rank` of `workers`, out of examples with these class labels. A step uses
    /// `part` examples of it.
    ///
    /// # Panics
    /// If `rank` is not below `workers`, or `alpha` is not above 0.
    #[must_use]
    pub fn new(
        labels: &[u32],
        alpha: f64,
        seed: u64,
        (rank, workers): (usize, usize),
        part: usize,
    ) -> Self {
        assert!(alpha > 0.0, "a concentration above 0");
        Self {
            examples: deal(labels, alpha, seed, rank, workers),
            seed: seed ^ ORDER ^ (rank as u64) << 48,
            part,
            current: None,
            indices: Vec::with_capacity(part),
        }
    }

    /// Returns all examples of the shard, in no particular order.
    #[must_use]
    pub fn examples(&self) -> &[u32] {
        &self.examples
    }

    /// Returns the examples of `step`. The shard's own epochs follow each other without a gap, each
    /// in another order.
    pub fn indices(&mut self, step: u64) -> &[u32] {
        let len = self.examples.len() as u64;
        self.indices.clear();
        if len == 0 {
            return &self.indices;
        }
        let first = u128::from(step) * self.part as u128;
        for at in first..first + self.part as u128 {
            let (epoch, place) = (
                (at / u128::from(len)) as u64,
                (at % u128::from(len)) as usize,
            );
            let (_, order) = match self.current.take() {
                Some(current) if current.0 == epoch => self.current.insert(current),
                _ => {
                    let order = EpochOrder::new(self.seed, epoch, self.examples.len());
                    self.current.insert((epoch, order))
                }
            };
            self.indices
                .push(self.examples[order.as_slice()[place] as usize]);
        }
        &self.indices
    }
}

/// Returns the shard of one rank. The shards of lower ranks are drawn first, because draws are
/// without replacement.
fn deal(labels: &[u32], alpha: f64, seed: u64, rank: usize, workers: usize) -> Vec<u32> {
    let classes = labels.iter().max().map_or(0, |most| *most as usize + 1);
    let mut left: Vec<Vec<u32>> = vec![Vec::new(); classes];
    // Shuffled, so that the draw does not depend on the order of the file.
    for index in EpochOrder::new(seed ^ ORDER, u64::MAX, labels.len()).as_slice() {
        left[labels[*index as usize] as usize].push(*index);
    }
    let prior: Vec<f64> = left
        .iter()
        .map(|class| class.len() as f64 / labels.len().max(1) as f64)
        .collect();
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..24].copy_from_slice(&DOMAIN);
    let mut shard = Vec::new();
    for worker in 0..=rank {
        let mut rng = ChaCha12Rng::from_seed(key);
        rng.set_stream(worker as u64);
        // When a class runs out, the sums are recomputed; the other classes keep their proportions.
        let drawn: Vec<f64> = prior
            .iter()
            .map(|prior| match *prior {
                0.0 => f64::NEG_INFINITY,
                prior => ln_gamma(&mut rng, alpha * prior),
            })
            .collect();
        // Logarithms, because the values of a small concentration would all underflow to 0.
        let most = drawn.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shares: Vec<f64> = drawn.iter().map(|ln| (ln - most).exp()).collect();
        let mut until = cumulated(&shares, &left);
        shard.clear();
        for _ in slice(labels.len(), worker, workers) {
            let total = until.last().copied().unwrap_or(0.0);
            let drawn = uniform(&mut rng) * total;
            let class = until.partition_point(|until| *until <= drawn);
            let class = class.min(classes - 1);
            // Rounding at the end of the sums may select an exhausted class.
            let class = if left[class].is_empty() {
                left.iter().position(|class| !class.is_empty())
            } else {
                Some(class)
            };
            let class = class.expect("as many examples as shards hold together");
            shard.extend(left[class].pop());
            if left[class].is_empty() {
                until = cumulated(&shares, &left);
            }
        }
    }
    shard
}

/// Cumulative sums of the shares, with 0 for exhausted classes.
fn cumulated(shares: &[f64], left: &[Vec<u32>]) -> Vec<f64> {
    let mut sum = 0.0;
    shares
        .iter()
        .zip(left)
        .map(|(share, left): (&f64, &Vec<u32>)| {
            sum += if left.is_empty() { 0.0 } else { *share };
            sum
        })
        .collect()
}

/// Uniform in [0, 1).
fn uniform(rng: &mut ChaCha12Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Logarithm of a gamma variable of this shape (Marsaglia and Tsang, ACM TOMS 2000).
fn ln_gamma(rng: &mut ChaCha12Rng, shape: f64) -> f64 {
    if shape < 1.0 {
        // 1 - u is never 0.
        let ln_power = (1.0 - uniform(rng)).ln() / shape;
        return ln_gamma(rng, shape + 1.0) + ln_power;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        // Box and Muller.
        let radius = (-2.0 * (1.0 - uniform(rng)).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * uniform(rng)).cos();
        let v = (1.0 + c * normal).powi(3);
        if v > 0.0 && (1.0 - uniform(rng)).ln() < 0.5 * normal * normal + d - d * v + d * v.ln() {
            return (d * v).ln();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Vec<u32> {
        (0..6_000).map(|i| i % 10).collect()
    }

    fn shard(alpha: f64, rank: usize, workers: usize) -> ExampleShard {
        ExampleShard::new(&labels(), alpha, 7, (rank, workers), 30)
    }

    /// Mean over workers of the largest class share of a shard.
    fn skew(alpha: f64, workers: usize) -> f64 {
        let labels = labels();
        let largest = (0..workers).map(|rank| {
            let mut counts = [0; 10];
            let shard = shard(alpha, rank, workers);
            for example in shard.examples() {
                counts[labels[*example as usize] as usize] += 1;
            }
            f64::from(*counts.iter().max().unwrap()) / shard.examples().len() as f64
        });
        largest.sum::<f64>() / workers as f64
    }

    #[test]
    fn shards_partition_the_examples_evenly() {
        for workers in [1, 3, 7] {
            let mut all: Vec<u32> = Vec::new();
            for rank in 0..workers {
                let shard = shard(0.3, rank, workers);
                assert_eq!(shard.examples().len(), slice(6_000, rank, workers).len());
                all.extend(shard.examples());
            }
            all.sort_unstable();
            assert_eq!(all, (0..6_000).collect::<Vec<_>>(), "{workers} workers");
        }
    }

    #[test]
    fn concentration_controls_the_class_skew() {
        let (single, some, alike) = (skew(0.05, 6), skew(5.0, 6), skew(1e5, 6));
        assert!(single > 0.5, "{single}");
        assert!(alike < 0.13, "{alike}");
        assert!(alike < some && some < single, "{alike} {some} {single}");
    }

    #[test]
    fn gamma_variable_has_expected_moments() {
        let mut rng = ChaCha12Rng::from_seed([3; 32]);
        for shape in [0.3, 1.0, 4.5] {
            let drawn: Vec<f64> = (0..40_000)
                .map(|_| ln_gamma(&mut rng, shape).exp())
                .collect();
            let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
            let variance =
                drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
            assert!((mean / shape - 1.0).abs() < 0.04, "{shape}: mean {mean}");
            assert!(
                (variance / shape - 1.0).abs() < 0.1,
                "{shape}: variance {variance}"
            );
        }
    }

    #[test]
    fn resumed_shard_continues_and_repeats_no_example() {
        let mut first = shard(0.5, 1, 4);
        let mut seen = vec![0; 6_000];
        // The shard has 1,500 examples; a step uses 30.
        for step in 0..50 {
            let indices = first.indices(step).to_vec();
            assert_eq!(indices, shard(0.5, 1, 4).indices(step), "step {step}");
            indices.iter().for_each(|index| seen[*index as usize] += 1);
        }
        let own: Vec<u32> = first.examples().to_vec();
        assert!((0..6_000u32).all(|index| seen[index as usize] == u8::from(own.contains(&index))));
        assert_ne!(first.indices(50).to_vec(), shard(0.5, 1, 4).indices(0));
        assert_eq!(first.indices(3).to_vec(), shard(0.5, 1, 4).indices(3));
    }
}
