//! Workers that train alone and average their parameters after a fixed number of steps.
//!
//! A round ends after each step whose number is a multiple of `every`. Each method is a rule on a
//! worker's parameters x and the mean m over the workers that trained. Some methods also have a
//! centre z with a velocity v, which have the same bits on every worker:
//!
//! * local SGD (Stich, ICLR 2019): x ← m;
//! * FedAvg (McMahan et al., AISTATS 2017): of each round's sampled workers, weighted by their
//!   examples, x ← m;
//! * BMUF (Chen and Huo, ICASSP 2016, with a block learning rate of 1): v ← μ·v + (m − z);
//!   z ← z + v; x ← z;
//! * EASGD (Zhang, Choromanska and LeCun, NIPS 2015, with α = β = ρ): x ← x − ρ·(x − z);
//!   z ← z + ρ·(m − z);
//! * SMA (CROSSBOW, Koliousis et al., VLDB 2019, with α = 1/n): x ← x − (x − z)/n; z' ← m + μ·v;
//!   v ← z' − z;
//! * gossip (Jin et al., 2016): x ← (x + x of a partner)/2, with another partner in each round.
//!
//! Where all workers take the mean, they also take the mean of the optimizer state. So after a
//! round there is one model and one state.

use muster_compute::data::EpochOrder;
use muster_model::spec;

/// Averaging state of one worker.
#[derive(Debug)]
pub struct AveragingState {
    method: spec::Averaging,
    seed: u64,
    /// Centre of the methods that have one. For EASGD and SMA, checkpoints contain it instead of
    /// this worker's own parameters.
    pub centre: Vec<f32>,
    pub velocity: Vec<f32>,
}

impl AveragingState {
    /// Creates the state for a model of `parameters` parameters.
    #[must_use]
    pub fn new(method: spec::Averaging, seed: u64, parameters: usize) -> Self {
        use spec::Averaging::{Bmuf, Easgd, Fedavg, Gossip, LocalSgd, Sma};
        let (centre, velocity) = match method {
            Easgd { .. } => (parameters, 0),
            Sma { .. } | Bmuf { .. } => (parameters, parameters),
            LocalSgd { .. } | Fedavg { .. } | Gossip { .. } => (0, 0),
        };
        Self {
            centre: vec![0.0; centre],
            velocity: vec![0.0; velocity],
            method,
            seed,
        }
    }

    /// Starts from these parameters, without velocity.
    pub fn begin(&mut self, parameters: &[f32]) {
        if !self.centre.is_empty() {
            self.centre.copy_from_slice(parameters);
        }
        self.velocity.fill(0.0);
    }

    /// Whether a round ends after `steps` steps.
    #[must_use]
    pub fn is_due(&self, steps: u64) -> bool {
        steps.is_multiple_of(u64::from(self.method.every().max(1)))
    }

    /// Whether the optimizer state is averaged too.
    #[must_use]
    pub fn averages_state(method: spec::Averaging) -> bool {
        use spec::Averaging::{Bmuf, Easgd, Fedavg, Gossip, LocalSgd, Sma};
        match method {
            LocalSgd { .. } | Fedavg { .. } | Bmuf { .. } => true,
            Easgd { .. } | Sma { .. } | Gossip { .. } => false,
        }
    }

    /// Whether the exchange is a mean over all workers rather than over pairs.
    #[must_use]
    pub fn is_global(&self) -> bool {
        !matches!(self.method, spec::Averaging::Gossip { .. })
    }

    /// Whether checkpoints contain the centre instead of the worker's own parameters. BMUF's
    /// parameters equal the centre after each round, and have moved on from it since.
    #[must_use]
    pub fn keeps_centre(&self) -> bool {
        use spec::Averaging::{Easgd, Sma};
        matches!(self.method, Easgd { .. } | Sma { .. })
    }

    /// Whether this worker trains in step `step`. With FedAvg only the sampled workers do, the same
    /// ones in the whole round.
    #[must_use]
    pub fn trains(&self, step: u64, rank: usize, workers: usize) -> bool {
        let spec::Averaging::Fedavg { every, share, .. } = self.method else {
            return true;
        };
        let round = step / u64::from(every.max(1));
        let sampled = ((share * workers as f64).ceil() as usize).clamp(1, workers);
        let order = EpochOrder::new(self.seed ^ 0x0066_6564_6176_6721, round, workers);
        order.as_slice()[..sampled].contains(&(rank as u32))
    }

    /// Returns the weight of this worker's parameters after `examples` examples in the round.
    #[must_use]
    pub fn weight(&self, examples: u64) -> f32 {
        match self.method {
            spec::Averaging::Fedavg { .. } => examples as f32,
            _ => 1.0,
        }
    }

    /// Returns the gossip partner in the round that ends with `steps`. Every pair meets in turn; a
    /// worker may have no partner in a round.
    #[must_use]
    pub fn partner(&self, steps: u64, rank: usize, workers: usize) -> Option<usize> {
        let round = (steps / u64::from(self.method.every().max(1))) as usize % workers;
        let partner = (round + workers - rank) % workers;
        (partner != rank).then_some(partner)
    }

    /// Applies the end of a round to this worker's parameters `x`. `sum` covers all workers;
    /// `factor` times `sum` is the mean.
    pub fn apply(&mut self, x: &mut [f32], sum: &[f32], factor: f32, workers: usize) {
        use spec::Averaging::{Bmuf, Easgd, Fedavg, Gossip, LocalSgd, Sma};
        match self.method {
            LocalSgd { .. } | Fedavg { .. } | Gossip { .. } => mean(x, sum, factor),
            Easgd { rho, .. } => {
                let rho = rho as f32;
                for ((x, z), sum) in x.iter_mut().zip(&mut self.centre).zip(sum) {
                    let before = *z;
                    *z += rho * (factor * sum - before);
                    *x -= rho * (*x - before);
                }
            }
            Sma { momentum, .. } => {
                let (mu, alpha) = (momentum as f32, 1.0 / workers as f32);
                let centre = self.centre.iter_mut().zip(&mut self.velocity);
                for ((x, (z, v)), sum) in x.iter_mut().zip(centre).zip(sum) {
                    let before = *z;
                    *z = factor * sum + mu * *v;
                    *v = *z - before;
                    *x -= alpha * (*x - before);
                }
            }
            Bmuf { momentum, .. } => {
                let mu = momentum as f32;
                let centre = self.centre.iter_mut().zip(&mut self.velocity);
                for ((x, (z, v)), sum) in x.iter_mut().zip(centre).zip(sum) {
                    *v = mu * *v + (factor * sum - *z);
                    *z += *v;
                    *x = *z;
                }
            }
        }
    }
}

/// Sets `x` to the mean.
pub fn mean(x: &mut [f32], sum: &[f32], factor: f32) {
    for (x, sum) in x.iter_mut().zip(sum) {
        *x = factor * sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::Averaging::{Bmuf, Easgd, Fedavg, Gossip, LocalSgd, Sma};

    /// Does one round of workers with the parameters `xs`, one each.
    fn round(all: &mut [AveragingState], xs: &mut [f32]) {
        let sum: f32 = xs.iter().sum();
        let n = xs.len();
        for (averaging, x) in all.iter_mut().zip(xs) {
            averaging.apply(std::slice::from_mut(x), &[sum], 1.0 / n as f32, n);
        }
    }

    fn two(method: spec::Averaging) -> [AveragingState; 2] {
        std::array::from_fn(|_| {
            let mut averaging = AveragingState::new(method, 1, 1);
            averaging.begin(&[1.0]);
            averaging
        })
    }

    #[test]
    fn each_rule_matches_its_paper() {
        let mut xs = [3.0, 5.0];
        round(&mut two(LocalSgd { every: 1 }), &mut xs);
        assert_eq!(xs, [4.0, 4.0]);

        let mut xs = [3.0, 5.0];
        let mut all = two(Easgd { every: 1, rho: 0.5 });
        round(&mut all, &mut xs);
        assert_eq!((xs, all[0].centre[0]), ([2.0, 3.0], 2.5));

        let mut xs = [3.0, 5.0];
        let mut all = two(Sma {
            every: 1,
            momentum: 0.5,
        });
        round(&mut all, &mut xs);
        assert_eq!(
            (xs, all[1].centre[0], all[1].velocity[0]),
            ([2.0, 3.0], 4.0, 3.0)
        );
        round(&mut all, &mut xs);
        assert_eq!(all[1].centre[0], 2.5 + 0.5 * 3.0);

        let mut xs = [3.0, 5.0];
        let mut all = two(Bmuf {
            every: 1,
            momentum: 0.5,
        });
        round(&mut all, &mut xs);
        assert_eq!(xs, [4.0, 4.0]);
        xs = [5.0, 5.0];
        round(&mut all, &mut xs);
        assert_eq!(xs, [4.0 + 1.0 + 0.5 * 3.0; 2]);
    }

    #[test]
    fn partners_agree_and_every_pair_meets() {
        for workers in 1..8 {
            let gossip = AveragingState::new(Gossip { every: 2 }, 1, 1);
            let mut met = vec![0; workers * workers];
            for steps in (2..=2 * workers as u64).step_by(2) {
                for rank in 0..workers {
                    if let Some(partner) = gossip.partner(steps, rank, workers) {
                        assert_eq!(gossip.partner(steps, partner, workers), Some(rank));
                        met[rank * workers + partner] += 1;
                    }
                }
            }
            for (pair, times) in met.iter().enumerate() {
                assert_eq!(*times, usize::from(pair / workers != pair % workers));
            }
        }
    }

    /// Returns those of five workers that train in the round of `step`.
    fn sample(fedavg: &AveragingState, step: u64) -> Vec<usize> {
        (0..5)
            .filter(|&rank| fedavg.trains(step, rank, 5))
            .collect()
    }

    #[test]
    fn sample_has_requested_size_and_changes_per_round() {
        let fedavg = AveragingState::new(
            Fedavg {
                every: 4,
                share: 0.5,
                alpha: None,
            },
            7,
            1,
        );
        let first = sample(&fedavg, 0);
        assert_eq!(first.len(), 3);
        assert_eq!(first, sample(&fedavg, 3));
        assert!((1..10).any(|round| sample(&fedavg, 4 * round) != first));
    }
}
