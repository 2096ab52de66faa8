//! The choice on simulated machines, whose true times and noise are known.

use super::*;
use proptest::prelude::*;

/// Times and noise of a simulated job.
#[derive(Debug, Clone, Copy)]
struct Machine {
    /// Exchange.
    constant_s: f64,
    /// Work on the largest part.
    per_example_s: f64,
    /// In examples.
    noise_scale: f64,
    workers: usize,
    /// Largest relative error of a measured time.
    error: f64,
    /// Number of updates after which the processors become half as fast, and after as many again as
    /// fast as before; 0 if they stay.
    load: usize,
}

impl Machine {
    fn noise(&self) -> GradientNoise {
        GradientNoise::from_bits([1.0, self.noise_scale].map(f64::to_bits))
    }

    fn update_s(&self, batch: usize) -> f64 {
        self.constant_s + self.per_example_s * batch.div_ceil(self.workers) as f64
    }

    fn goodput(&self, choice: &BatchChoice, batch: usize) -> f64 {
        choice.gain(batch, &self.noise()) / self.update_s(batch)
    }

    fn best(&self, choice: &BatchChoice) -> f64 {
        let goodputs = choice
            .ladder
            .iter()
            .map(|batch| self.goodput(choice, *batch));
        goodputs.fold(0.0, f64::max)
    }

    /// Trains for `decisions` decisions, from updates of `batch` examples on. Returns the batch
    /// after each of them.
    fn train(&self, choice: &mut BatchChoice, batch: usize, decisions: usize) -> Vec<usize> {
        let (mut batch, mut state) = (batch, 7u64);
        let mut error = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            1.0 + self.error * ((state >> 33) as f64 / f64::from(1u32 << 30) - 1.0)
        };
        let (mut batches, mut updates) = (Vec::new(), 0usize);
        while batches.len() < decisions {
            let is_loaded = updates
                .checked_div(self.load)
                .is_some_and(|turn| turn % 2 == 1);
            let load = if is_loaded { 2.0 } else { 1.0 };
            updates += 1;
            choice.observe(MeasuredUpdate {
                batch,
                workers: self.workers,
                work_s: (self.update_s(batch) - self.constant_s) * load * error(),
                rest_s: self.constant_s * error(),
            });
            let is_due = choice.is_due();
            let change = choice.choose(&self.noise());
            if let Some(change) = change {
                assert!(is_due && change.from == batch && change.to != batch);
                batch = change.to;
            }
            if is_due {
                batches.push(batch);
            }
        }
        batches
    }
}

/// A job whose updates take nearly the same time with any batch.
const FIXED: Machine = Machine {
    constant_s: 0.02,
    per_example_s: 1e-6,
    noise_scale: 1e6,
    workers: 2,
    error: 0.0,
    load: 0,
};

fn machines() -> impl Strategy<Value = Machine> {
    let constant_s = prop_oneof![Just(0.0), 1e-4..0.2f64];
    (constant_s, 1e-5..3e-3f64, 0f64..17.0, 1usize..9).prop_map(
        |(constant_s, per_example_s, noise, workers)| Machine {
            constant_s,
            per_example_s,
            noise_scale: noise.exp2(),
            workers,
            error: 0.0,
            load: 0,
        },
    )
}

proptest! {
    /// From any size, as after a restart, and after a change of the workers.
    #[test]
    fn choice_converges_to_the_best_goodput(
        machine in machines(),
        (batch, times) in (8usize..200, 2usize..100),
        start in 0f64..=1.0,
        workers in 1usize..9,
    ) {
        let most = batch * times;
        let mut choice = BatchChoice::new(batch, most);
        let mut start = batch + ((most - batch) as f64 * start) as usize;
        for workers in [machine.workers, workers] {
            let machine = Machine { workers, ..machine };
            let batches = machine.train(&mut choice, start, 24);
            prop_assert!(batches.iter().all(|found| (batch..=most).contains(found)));
            let (early, late) = batches.split_at(16);
            prop_assert!(late.iter().all(|found| found == &early[15]), "{:?}", batches);
            let (found, best) = (machine.goodput(&choice, late[0]), machine.best(&choice));
            prop_assert!(found > 0.94 * best, "{} of {}, {:?}", found, best, batches);
            start = late[0];
        }
    }

    /// Times with errors of up to 20 percent.
    #[test]
    fn choice_stays_near_the_best_with_noisy_times(machine in machines(), batch in 8usize..200) {
        let mut choice = BatchChoice::new(batch, 40 * batch);
        let machine = Machine { error: 0.2, ..machine };
        let batches = machine.train(&mut choice, batch, 48);
        let late = &batches[24..];
        let changes = late.windows(2).filter(|pair| pair[0] != pair[1]).count();
        prop_assert!(changes <= 3, "{:?}", batches);
        let found = machine.goodput(&choice, *late.last().unwrap());
        let best = machine.best(&choice);
        prop_assert!(found > 0.9 * best, "{} of {}, {:?}", found, best, batches);
    }
}

#[test]
fn ladder_has_both_ends_and_small_steps() {
    assert_eq!(ladder(1, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(ladder(32, 64), [32, 38, 45, 54, 64]);
    assert_eq!(ladder(32, 40), [32, 38, 40]);
    let long = ladder(100, 65_536);
    assert_eq!((long[0], long.last()), (100, Some(&65_536)));
    let mut ratios = long.windows(2).map(|pair| pair[1] as f64 / pair[0] as f64);
    assert!(ratios.all(|ratio| (1.0..=1.21).contains(&ratio)));
}

#[test]
fn batch_at_most_doubles_beyond_measured_ones() {
    let mut choice = BatchChoice::new(32, 500);
    assert_eq!(
        FIXED.train(&mut choice, 32, 6),
        [64, 128, 256, 500, 500, 500]
    );
}

#[test]
fn batch_without_noise_is_the_smallest() {
    let quiet = Machine {
        noise_scale: 0.0,
        ..FIXED
    };
    let mut choice = BatchChoice::new(32, 500);
    assert_eq!(quiet.train(&mut choice, 32, 4), [32; 4]);
    // After a restart with a large batch.
    let slow = Machine {
        per_example_s: 1e-3,
        ..quiet
    };
    let mut choice = BatchChoice::new(32, 500);
    assert_eq!(slow.train(&mut choice, 500, 5), [256, 128, 64, 32, 32]);
}

#[test]
fn trial_of_a_batch_that_takes_longer_is_taken_back() {
    let linear = Machine {
        constant_s: 0.0,
        per_example_s: 1e-3,
        noise_scale: 20.0,
        ..FIXED
    };
    let mut choice = BatchChoice::new(32, 500);
    assert_eq!(linear.train(&mut choice, 32, 5), [64, 32, 32, 32, 32]);
    // Not even in constant time is a larger batch worth it.
    let calm = Machine {
        noise_scale: 1.0,
        ..linear
    };
    let mut choice = BatchChoice::new(32, 500);
    assert_eq!(calm.train(&mut choice, 32, 3), [32; 3]);
    // No two batches are apart.
    let mut choice = BatchChoice::new(32, 33);
    assert_eq!(linear.train(&mut choice, 32, 3), [32; 3]);
}

#[test]
fn times_are_measured_anew_for_other_workers() {
    let mut choice = BatchChoice::new(32, 512);
    // One worker exchanges nothing.
    let alone = Machine {
        constant_s: 0.0,
        per_example_s: 1e-4,
        noise_scale: 2_000.0,
        workers: 1,
        error: 0.0,
        load: 0,
    };
    let batches = alone.train(&mut choice, 32, 4);
    assert!(batches[3] <= 64, "{batches:?}");
    let together = Machine {
        constant_s: 0.05,
        workers: 2,
        ..alone
    };
    let batches = together.train(&mut choice, 32, 8);
    assert_eq!(batches[7], 512, "{batches:?}");
    let batches = alone.train(&mut choice, 512, 8);
    assert!(batches[7] < 140, "{batches:?}");
}

/// The exchange takes longer although the workers stay.
#[test]
fn slower_network_makes_the_batch_grow() {
    let machine = Machine {
        constant_s: 0.002,
        per_example_s: 1e-4,
        noise_scale: 2_000.0,
        ..FIXED
    };
    let mut choice = BatchChoice::new(32, 512);
    let batches = machine.train(&mut choice, 32, 6);
    assert!(batches[5] <= 256, "{batches:?}");
    let slower = Machine {
        constant_s: 0.05,
        ..machine
    };
    let batches = slower.train(&mut choice, batches[5], 8);
    assert_eq!(batches[7], 512, "{batches:?}");
}

/// Neither many short updates nor a few long ones suffice.
#[test]
fn decision_needs_updates_and_time() {
    for (seconds, updates) in [(1.0, 50), (0.00201, 498), (0.02001, 50)] {
        let mut choice = BatchChoice::new(32, 512);
        for update in 0..updates + SETTLES {
            assert_eq!(choice.choose(&FIXED.noise()), None, "{seconds}, {update}");
            choice.observe(MeasuredUpdate {
                batch: 32,
                workers: 2,
                work_s: 0.5 * seconds,
                rest_s: 0.5 * seconds,
            });
        }
        let change = choice.choose(&FIXED.noise()).unwrap();
        assert_eq!((change.from, change.to), (32, 64), "{seconds}");
        assert_eq!(choice.choose(&FIXED.noise()), None);
    }
}

/// Half of the time other programs use the processors, and some of them come and go with the
/// decisions.
#[test]
fn swings_become_rare() {
    for (load, noise_scale) in [(60, 80.0), (114, 800.0), (152, 80.0), (400, 800.0)] {
        let machine = Machine {
            constant_s: 0.0,
            per_example_s: 1e-4,
            noise_scale,
            workers: 4,
            error: 0.0,
            load,
        };
        let mut choice = BatchChoice::new(32, 1_024);
        let batches = machine.train(&mut choice, 32, 40);
        let late = &batches[20..];
        let changes = late.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes <= 4, "{load}: {batches:?}");
    }
}

#[test]
fn change_names_its_reason() {
    let change = BatchChange {
        from: 64,
        to: 128,
        goodput: Some(PredictedGoodput {
            before: 80.0,
            after: 123.46,
        }),
        noise_scale: Some(1_234.4),
        update_s: 0.0125,
        workers: 2,
    };
    assert_eq!(
        change.to_string(),
        "batch 128 instead of 64: predicted goodput 123.5 instead of 80.0 steps/s, \
         noise scale 1234 examples, 12.50 ms per update of 2 workers"
    );
    let trial = BatchChange {
        goodput: None,
        noise_scale: None,
        ..change
    };
    assert_eq!(
        trial.to_string(),
        "batch 128 instead of 64: to measure how long it takes, 12.50 ms per update of 2 workers"
    );
}
