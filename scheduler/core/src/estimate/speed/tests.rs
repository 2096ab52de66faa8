//! Speed model from eight chosen probes on the configurations that Optimus' authors measured.

#[path = "../../../../lab/tests/traces/mod.rs"]
mod traces;

use super::*;
use crate::estimate::nnls;
use crate::estimate::probe::{BUDGET, next};

/// Measured configurations of one model: examples per second by size. 0 is a failed run.
struct MeasuredModel {
    name: String,
    batch: u32,
    speeds: BTreeMap<Size, f64>,
}

fn models() -> Vec<MeasuredModel> {
    let file = traces::outside("ps/ps_speed_measured.csv");
    let text = std::fs::read_to_string(file).expect("a file");
    let mut models: Vec<MeasuredModel> = Vec::new();
    for line in text.lines().skip(1) {
        let field: Vec<&str> = line.split(',').collect();
        let [shards, workers] = [3, 4].map(|column| whole_number(field[column]));
        if models.last().is_none_or(|model| model.name != field[0]) {
            models.push(MeasuredModel {
                name: field[0].to_owned(),
                batch: whole_number(field[2]),
                speeds: BTreeMap::new(),
            });
        }
        let speed = field[5].parse().expect("a speed");
        let model = models.last_mut().expect("one was pushed");
        model.speeds.insert((workers, shards), speed);
    }
    models
}

fn whole_number(text: &str) -> u32 {
    text.parse().expect("a whole number")
}

/// Returns the terms of Optimus' own formula. Their weighted sum is the seconds per step.
fn optimus_terms((workers, shards): Size) -> [f64; 5] {
    let (w, p) = (f64::from(workers), f64::from(shards));
    [1.0 / w, 1.0, w / p, w, p]
}

impl MeasuredModel {
    /// Measures `BUDGET` sizes one after the other. A failed run counts.
    fn probe(&self) -> Vec<Size> {
        let mut candidates: Vec<Size> = self.speeds.keys().copied().collect();
        let (mut measured, mut runs) = (Vec::new(), 0);
        while let Some(size) = next(&measured, &candidates).filter(|_| runs < BUDGET) {
            runs += 1;
            if self.speeds[&size] > 0.0 {
                measured.push(size);
            } else {
                candidates.retain(|&candidate| candidate != size);
            }
        }
        measured
    }

    fn step_s(&self, size: Size) -> f64 {
        f64::from(self.batch) / self.speeds[&size]
    }

    /// Returns the speed model of the scheduler from these probes.
    fn speed(&self, probes: &[Size]) -> Speed {
        let measured = probes
            .iter()
            .map(|&size| (size, (self.step_s(size), 1.0)))
            .collect();
        let workers = self.speeds.keys().map(|size| size.0).max();
        let ps_shards = self.speeds.keys().map(|size| size.1).max();
        let ranges = [workers, ps_shards].map(|most| Range {
            min: 1,
            max: most.unwrap_or(1),
        });
        let formula = Formula {
            synchronous: true,
            batch: f64::from(self.batch),
            fixed_part: None,
        };
        Speed::from_measured(formula, measured, ranges.into(), &Policy::optimus())
    }

    /// Returns Optimus' own formula, fitted to the relative error. Measured sizes have their
    /// measured speed.
    fn optimus(&self, probes: &[Size]) -> impl Fn(Size) -> f64 {
        let rows: Vec<([f64; 5], f64)> = probes
            .iter()
            .map(|&size| {
                let terms = optimus_terms(size);
                (terms.map(|term| term / self.step_s(size)), 1.0)
            })
            .collect();
        let th = nnls::solve(&rows);
        let known: BTreeMap<Size, f64> = probes
            .iter()
            .map(|&size| (size, 1.0 / self.step_s(size)))
            .collect();
        move |size| {
            known.get(&size).copied().unwrap_or_else(|| {
                let terms = optimus_terms(size);
                1.0 / terms.iter().zip(th).map(|(a, b)| a * b).sum::<f64>()
            })
        }
    }

    /// Returns the relative errors of the predicted steps per second at all sizes that ran.
    fn errors(&self, predicted: impl Fn(Size) -> f64) -> Vec<f64> {
        self.speeds
            .iter()
            .filter(|(_, speed)| **speed > 0.0)
            .map(|(&size, _)| (predicted(size) * self.step_s(size) - 1.0).abs())
            .collect()
    }
}

fn percent(errors: &[f64]) -> f64 {
    100.0 * errors.iter().sum::<f64>() / errors.len() as f64
}

/// A bound of 5 % would be below the noise of these measurements: see the next test.
#[test]
#[ignore = "needs MUSTER_TRACES: the speeds that Optimus' authors measured"]
fn eight_probes_predict_speed_at_hundreds_of_sizes() {
    let models = models();
    let (mut ours, mut theirs, mut failed) = (Vec::new(), Vec::new(), 0);
    for model in &models {
        let probes = model.probe();
        let speed = model.speed(&probes);
        let errors = model.errors(|(w, p)| speed.steps_per_s(w, p));
        let optimus = model.errors(model.optimus(&probes));
        println!(
            "{:24} {:3} sizes: {:5.2} % (Optimus' formula {:5.2} %) from (w, p) = {probes:?}",
            model.name,
            errors.len(),
            percent(&errors),
            percent(&optimus)
        );
        failed += model.speeds.len() - errors.len();
        ours.extend(errors);
        theirs.extend(optimus);
    }
    println!(
        "{} sizes, {failed} failed runs left out: {:.2} % (Optimus' formula {:.2} %)",
        ours.len(),
        percent(&ours),
        percent(&theirs)
    );
    assert!(percent(&ours) < 6.5, "{}", percent(&ours));
    assert!(percent(&ours) < 0.9 * percent(&theirs));
}

/// Predicts each fifth of the sizes from the other four. This is a lower bound of the error of
/// eight probes.
#[test]
#[ignore = "needs MUSTER_TRACES: the speeds that Optimus' authors measured"]
fn hundreds_of_probes_predict_little_better_than_eight() {
    const FOLDS: usize = 5;
    let models = models();
    let (mut from_most, mut from_eight) = (Vec::new(), Vec::new());
    for model in &models {
        let speed = model.speed(&model.probe());
        from_eight.extend(model.errors(|(w, p)| speed.steps_per_s(w, p)));
        let ran: Vec<Size> = model
            .speeds
            .iter()
            .filter(|(_, speed)| **speed > 0.0)
            .map(|(&size, _)| size)
            .collect();
        for fold in 0..FOLDS {
            let known: Vec<Size> = ran
                .iter()
                .enumerate()
                .filter(|(i, _)| i % FOLDS != fold)
                .map(|(_, &size)| size)
                .collect();
            let speed = model.speed(&known);
            let left_out = ran.iter().skip(fold).step_by(FOLDS);
            from_most.extend(
                left_out
                    .map(|&(w, p)| (speed.steps_per_s(w, p) * model.step_s((w, p)) - 1.0).abs()),
            );
        }
    }
    let (most, eight) = (percent(&from_most), percent(&from_eight));
    println!("from four fifths of the sizes {most:.2} %, from eight probes {eight:.2} %");
    assert!(eight < 1.3 * most, "{eight} and {most}");
}

#[test]
#[ignore = "needs MUSTER_TRACES: the speeds that Optimus' authors measured"]
fn standard_errors_match_the_errors() {
    let models = models();
    let (mut within, mut within_two, mut count) = (0, 0, 0);
    for model in &models {
        let probes = model.probe();
        let speed = model.speed(&probes);
        for (&(w, p), _) in model.speeds.iter().filter(|(_, speed)| **speed > 0.0) {
            if probes.contains(&(w, p)) {
                continue;
            }
            // The measured value has noise of its own.
            let expected = speed.standard_error(w, p).hypot(NOISE);
            let missed = (speed.steps_per_s(w, p) * model.step_s((w, p))).ln().abs();
            within += u32::from(missed <= expected);
            within_two += u32::from(missed <= 2.0 * expected);
            count += 1;
        }
    }
    println!("of {count} errors {within} are within one standard error, {within_two} within two");
    let [one, two] = [within, within_two].map(|number| f64::from(number) / f64::from(count));
    assert!((0.6..=0.85).contains(&one), "{one}");
    assert!(two >= 0.9, "{two}");
}
