//! Goodput from measured updates, against known times of updates.

use super::*;
use crate::learn::ObservedBatch;

const NOISE: NoiseScale = NoiseScale(10.0);

const MODEL: GoodputModel = GoodputModel {
    init: 100,
    max: 1_600,
    noises: [NoiseScale(10.0); STRETCHES],
};

/// An update of `workers` workers: 10 ms, 1 ms for each example of a part, and 20 ms for the
/// exchange.
fn seen(workers: u32, examples: u32) -> Observation {
    let exchange_s = if workers > 1 { 0.02 } else { 0.0 };
    let update_s = 0.01 + 0.001 * f64::from(examples / workers) + exchange_s;
    Observation {
        gpu_kind: "A".to_owned(),
        workers,
        ps_shards: 0,
        nodes: 1,
        steps_per_s: 1.0 / update_s,
        samples: 5.0,
        batch: Some(ObservedBatch {
            examples,
            exchange_s,
        }),
    }
}

fn times(observations: &[Observation]) -> UpdateTimes {
    UpdateTimes::of(observations.iter()).expect("there are batches")
}

#[test]
fn measured_batches_of_a_size_become_its_best_goodput() {
    let own = [seen(4, 100), seen(4, 200)];
    let converted = MODEL.converted(&times(&own), &own);
    let [only] = &converted[..] else {
        panic!("one size: {converted:?}")
    };
    assert_eq!((only.samples, only.batch), (10.0, None));
    let best = (1..=16).map(|times| {
        let batch = f64::from(times * 100);
        NOISE.gain(batch / 100.0) / (0.03 + batch / 4_000.0)
    });
    let best = best.fold(0.0, f64::max);
    assert!(
        (only.steps_per_s / best - 1.0).abs() < 0.02,
        "{only:?}, {best}"
    );
    assert!(only.steps_per_s > 1.3 * own[0].steps_per_s, "{only:?}");
}

#[test]
fn without_noise_a_step_is_an_update_of_the_first_batch() {
    let model = GoodputModel {
        noises: [NoiseScale(0.0); STRETCHES],
        ..MODEL
    };
    let own = [seen(4, 100), seen(4, 400)];
    let converted = model.converted(&times(&own), &own);
    assert!((converted[0].steps_per_s - own[0].steps_per_s).abs() < 1e-9);
}

/// Sizes without a measurement follow from the measured computation and exchange.
#[test]
fn curve_tells_the_goodput_of_further_sizes() {
    let measured = [seen(1, 100), seen(1, 400), seen(2, 400), seen(4, 800)];
    let curve = times(&measured).curve(&MODEL, "A", 8).expect("measured");
    let truth = |workers: f64| {
        let exchange_s = if workers > 1.0 { 0.02 } else { 0.0 };
        let goodputs = (100..=1_600).map(|examples| {
            let batch = f64::from(examples);
            NOISE.gain(batch / 100.0) / (0.01 + exchange_s + 0.001 * batch / workers)
        });
        goodputs.fold(0.0, f64::max)
    };
    for (workers, speed) in (1..).zip(&curve.local) {
        let truth = truth(f64::from(workers));
        assert!(
            (speed / truth - 1.0).abs() < 0.03,
            "{workers}: {speed}, {truth}"
        );
    }
    assert_eq!((curve.local.len(), curve.spread.len()), (8, 8));
    assert_eq!(times(&measured).curve(&MODEL, "B", 8), None);
}

/// The batch of a size, its goodput and that of the first batch follow from the times of updates.
#[test]
fn best_batch_has_the_highest_goodput_of_a_size() {
    let times = times(&[seen(1, 100), seen(1, 400), seen(2, 400), seen(4, 800)]);
    for workers in [1, 4] {
        let found = times.best_batch(&MODEL, "A", workers, Spread::OneNode);
        let found = found.expect("measured");
        let goodput = |examples: u32| {
            let batch = f64::from(examples);
            NOISE.gain(batch / 100.0) * seen(workers, examples).steps_per_s
        };
        let best = (1..=400).map(|quarter| goodput(quarter * 4 + 96));
        let best = best.fold(0.0, f64::max);
        assert!((found.steps_per_s / best - 1.0).abs() < 0.03, "{found:?}");
        assert!((found.steps_per_s / goodput(found.batch) - 1.0).abs() < 0.03);
        assert_eq!(found.smallest_batch, 100);
        let smallest = found.smallest_steps_per_s;
        assert!((smallest / goodput(100) - 1.0).abs() < 0.03, "{found:?}");
        // One worker has no exchange to save, and its updates are as slow as their examples.
        let saves = found.batch > 100 && found.speedup() > 1.1;
        assert_eq!(saves, workers == 4, "{found:?}");
        // The curve of equal noise has the same goodput.
        let curve = times.curve(&MODEL, "A", 4).expect("measured");
        assert_eq!(found.steps_per_s, curve.local[workers as usize - 1]);
        let spread = times.best_batch(&MODEL, "A", workers, Spread::Nodes);
        let spread = spread.expect("measured").steps_per_s;
        assert_eq!(spread, curve.spread[workers as usize - 1]);
    }
    let clean = GoodputModel {
        noises: [NoiseScale(0.0); STRETCHES],
        ..MODEL
    };
    let found = times.best_batch(&clean, "A", 4, Spread::OneNode);
    assert_eq!(
        found.map(|one| (one.batch, one.speedup())),
        Some((100, 1.0))
    );
    assert_eq!(times.best_batch(&MODEL, "B", 4, Spread::OneNode), None);
}

#[test]
fn steps_stay_as_they_are() {
    let steps = Observation {
        batch: None,
        ..seen(2, 100)
    };
    let measured = [seen(2, 100), seen(4, 100)];
    let own = [seen(4, 100), steps.clone()];
    let converted = MODEL.converted(&times(&measured), &own);
    assert_eq!((converted.len(), &converted[1]), (2, &steps));
    let both = [seen(2, 100), steps.clone()];
    let converted = MODEL.converted(&times(&measured), &both);
    assert_eq!((converted.len(), converted[0].batch), (1, None));
    assert!(converted[0].steps_per_s > steps.steps_per_s);
    assert!(UpdateTimes::of([steps].iter()).is_none());
}
