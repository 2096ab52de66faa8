//! SSP and ASP: the content of reads for random delays, and the weight of stale gradients.

use crate::loopback::{BATCH, LoopbackJob, forever, fresh, size, stats};
use muster_compute::optimizer::{OptimizerConfig, UpdateRule};
use muster_model::spec::{Consistency, Rate};
use muster_training::worker::{Eager, Reply, Shards};
use proptest::prelude::*;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

const STEPS: u64 = 12;

/// A step subtracts exactly the gradient divided by the batch.
fn plain() -> OptimizerConfig {
    OptimizerConfig::new(UpdateRule::Sgd {
        lr: f64::from(BATCH),
        momentum: 0.0,
        nesterov: false,
        weight_decay: 0.0,
    })
}

/// Worker `rank` counts its pushes at this parameter of each shard; the first block is on the first
/// shard, the second on the other.
fn counters(rank: usize) -> [usize; 2] {
    [rank, 40_000 + rank]
}

/// Number of pushes of each worker that these parameters contain, the minimum over the shards.
fn seen(parameters: &[f32], workers: usize) -> Vec<u64> {
    let before = fresh().parameters;
    (0..workers)
        .map(|rank| {
            let counts = counters(rank).map(|at| (before[at] - parameters[at]).round() as u64);
            counts.into_iter().min().unwrap()
        })
        .collect()
}

fn one_more(rank: usize) -> Vec<f32> {
    let mut gradients = vec![0.0; size()];
    for at in counters(rank) {
        gradients[at] = 1.0;
    }
    gradients
}

/// Runs workers with these delays in milliseconds before each of their steps. Returns by worker and
/// step the pushes in the parameters from which the step was computed.
fn run(delays: &[Vec<u8>], staleness: u32, eager: bool) -> Vec<Vec<Vec<u64>>> {
    let consistency = Consistency::Ssp {
        staleness,
        eager,
        rate: Rate::Constant,
    };
    let workers = delays.len();
    let job = LoopbackJob::start_with(workers as u32, 2, consistency, plain());
    // No worker leaves before all are done, because a departure interrupts the others.
    let done = Barrier::new(workers);
    let work = |rank: usize, mut shards: Shards| {
        let mut parameters = fresh().parameters;
        let mut reads = Vec::new();
        let mut eagerly = Eager::new(staleness, size());
        for step in 0..STEPS {
            let delay = Duration::from_millis(u64::from(delays[rank][step as usize]));
            if eager {
                if !eagerly.may_read(&shards, step) {
                    eagerly.flush(&mut shards, &forever).unwrap();
                    parameters.copy_from_slice(eagerly.fresh());
                }
                reads.push(seen(&parameters, workers));
                let pushed =
                    eagerly.overlap(&mut shards, step, &forever, |gradients: &mut [f32]| {
                        thread::sleep(delay);
                        gradients.copy_from_slice(&one_more(rank));
                        (stats(0), ())
                    });
                if let (_, Some(reply)) = pushed.unwrap() {
                    assert!(matches!(reply, Reply::Parameters { clock, .. } if clock == step));
                    parameters.copy_from_slice(eagerly.fresh());
                }
                continue;
            }
            reads.push(seen(&parameters, workers));
            thread::sleep(delay);
            let gradients = one_more(rank);
            let reply = shards.push_pull(step, stats(0), &gradients, &mut parameters, &forever);
            assert!(matches!(reply, Ok(Reply::Parameters { clock, .. }) if clock == step + 1));
        }
        eagerly.flush(&mut shards, &forever).unwrap();
        done.wait();
        reads
    };
    thread::scope(|scope| {
        let work = &work;
        let joined = job.joined(0).into_iter().enumerate();
        let running: Vec<_> = joined
            .map(|(rank, shards)| scope.spawn(move || work(rank, shards)))
            .collect();
        let done = running.into_iter().map(|worker| worker.join().unwrap());
        done.collect()
    })
}

/// Ho et al., 2013: the parameters that worker p reads for its step c contain every push of every
/// worker q for steps before c - s.
fn check(reads: &[Vec<Vec<u64>>], staleness: u64) -> Result<(), TestCaseError> {
    for (reader, reads) in reads.iter().enumerate() {
        for (step, seen) in reads.iter().enumerate() {
            for (of, &count) in seen.iter().enumerate() {
                let least = (step as u64).saturating_sub(staleness);
                prop_assert!(
                    count >= least,
                    "worker {reader} read for step {step} with {count} pushes of worker {of}; the bound is {staleness}"
                );
                prop_assert!(
                    count <= (step as u64 + staleness + 1).min(STEPS),
                    "worker {of} was too far ahead of worker {reader} at step {step}: {count}"
                );
            }
        }
    }
    Ok(())
}

fn delays() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let step = prop_oneof![3 => 0u8..2, 1 => 2u8..9];
    let worker = prop::collection::vec(step, STEPS as usize);
    prop::collection::vec(worker, 2..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn no_read_is_older_than_the_bound(delays in delays(), staleness in 1u32..4) {
        let reads = run(&delays, staleness, false);
        check(&reads, u64::from(staleness))?;
        for (rank, reads) in reads.iter().enumerate() {
            let own: Vec<u64> = reads.iter().map(|seen| seen[rank]).collect();
            prop_assert_eq!(own, (0..STEPS).collect::<Vec<_>>(), "each worker reads its own writes");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// A worker that continues before its answer has arrived reads nothing older, only without its
    /// own last push.
    #[test]
    fn no_eager_read_is_older_than_the_bound(delays in delays(), staleness in 1u32..4) {
        let reads = run(&delays, staleness, true);
        check(&reads, u64::from(staleness))?;
        for (rank, reads) in reads.iter().enumerate() {
            for (step, seen) in (0..).zip(reads) {
                prop_assert!(seen[rank] <= step && seen[rank] + 1 >= step, "{rank}, {step}: {seen:?}");
            }
        }
    }
}

/// A single worker never waits for an answer: each step is computed during the transfer of the
/// previous one.
#[test]
fn an_eager_worker_within_the_bound_does_not_wait() {
    let consistency = Consistency::Ssp {
        staleness: 2,
        eager: true,
        rate: Rate::Constant,
    };
    let job = LoopbackJob::start_with(2, 1, consistency, plain());
    let mut joined = job.joined(0);
    let mut eager = Eager::new(2, size());
    // The other worker has not pushed anything: steps 0 to 2 may be computed, step 3 may not.
    for step in 0..3 {
        assert!(eager.may_read(&joined[1], step), "step {step}");
        let (_, reply) = eager
            .overlap(&mut joined[1], step, &forever, |gradients| {
                gradients.copy_from_slice(&one_more(1));
                (stats(1), ())
            })
            .unwrap();
        assert_eq!(reply.is_some(), step > 0);
    }
    assert!(!eager.may_read(&joined[1], 3), "the bound is 2");
}

/// Three pushes of another worker arrived between a worker's read and its push: a third of it
/// counts.
#[test]
fn stale_gradient_has_a_lower_rate() {
    for (rate, expected) in [(Rate::Constant, 1.0), (Rate::ByStaleness, 1.0 / 3.0)] {
        let job = LoopbackJob::start_with(2, 2, Consistency::Asp { rate }, plain());
        let mut joined = job.joined(0);
        let mut parameters = vec![0.0; size()];
        for step in 0..3 {
            let pushed = one_more(1);
            let reply = joined[1].push_pull(step, stats(1), &pushed, &mut parameters, &forever);
            assert!(matches!(reply, Ok(Reply::Parameters { .. })));
        }
        let before = fresh().parameters;
        let moved =
            |parameters: &[f32], rank: usize| counters(rank).map(|at| before[at] - parameters[at]);
        for of in moved(&parameters, 1) {
            assert!((of - 3.0).abs() < 1e-5, "fresh gradients count whole: {of}");
        }
        let reply = joined[0].push_pull(0, stats(0), &one_more(0), &mut parameters, &forever);
        assert!(matches!(reply, Ok(Reply::Parameters { .. })));
        for of in moved(&parameters, 0) {
            assert!((of - expected).abs() < 1e-5, "{rate:?}: {of}");
        }
    }
}
