//! Tree-structured Parzen estimators (Bergstra et al. 2011) over all parameters jointly (Falkner et
//! al. 2018). Of points drawn near good trials, the one with the largest ratio of densities between
//! good and other trials is proposed.
//!
//! The mixture consists of whole trials, so that dependences between parameters are kept. In a
//! conditional space a trial without a parameter is uniform in it.
//!
//! No state is kept between proposals. A proposal needs a few passes over the trials and no sort.

mod axis;
mod near;
mod points;

use super::anywhere;
use crate::random::StudyRng;
use crate::study::StudyRecord;
use crate::trial::{SearchTrial, TrialState};
use axis::{AxisValue, KernelAxis};
use muster_model::study::{Point, Space};
use near::Near;
use points::Points;

/// Number of newest trials with full weight; older weights fall linearly with age.
const FLAT: usize = 25;
/// Maximum number of good trials.
const MOST_GOOD: usize = 25;
/// Log distance to the densest kernel below which a kernel contributes nothing to a float, even a
/// million times.
const NEGLIGIBLE: f64 = -60.0;
/// Upper bound of the rounding error of a log term.
const ROUNDING: f64 = 1.0;

/// Proposes a point of the space; `None` if its constraints allow none.
pub(super) fn suggest(
    record: &StudyRecord,
    candidates: usize,
    rng: &mut StudyRng,
) -> Option<Point> {
    let judged = record.trials.iter().filter(|t| t.outcome.is_some());
    let judged = judged.count();
    let is_good = best(record, judged.div_ceil(10).min(MOST_GOOD));
    let width = record.space.len();
    let mut good = Points::room_for(MOST_GOOD, width);
    let mut bad = Points::room_for(record.trials.len(), width);
    for (trial, is_good) in record.trials.iter().zip(is_good) {
        if is_good {
            good.push(&trial.point);
        } else if trial.outcome.is_some() || trial.holds_slot() {
            // A running trial counts as bad, so that other trials do not repeat it.
            bad.push(&trial.point);
        }
    }
    // The number of good trials is limited, so their kernels narrow with the number of all results.
    let narrow = least_deviation(good.len() + judged / 2);
    let good = Mixture::of(&record.space, &good, narrow);
    let bad = Mixture::of(&record.space, &bad, least_deviation(bad.len()));
    let mut best: Option<(f64, Point)> = None;
    let mut allowed = 0;
    let mut near = Near::default();
    for _ in 0..candidates * 50 {
        let point = good.sample(rng);
        if !record.space.allows(&point) {
            continue;
        }
        let score = good.log_density(&point, &mut near) - bad.log_density(&point, &mut near);
        if best.as_ref().is_none_or(|(most, _)| score > *most) {
            best = Some((score, point));
        }
        allowed += 1;
        if allowed == candidates {
            break;
        }
    }
    best.map(|(_, point)| point)
        .or_else(|| anywhere(record, rng))
}

/// For each trial, whether it is among the `count` best. Completed trials precede stopped and
/// waiting ones; among those, further trained trials precede others.
fn best(record: &StudyRecord, mut count: usize) -> Vec<bool> {
    let mut is_best = vec![false; record.trials.len()];
    let judged = record.trials.iter().filter(|t| t.outcome.is_some());
    let (mut class, mut rest): (Vec<&SearchTrial>, Vec<&SearchTrial>) =
        judged.partition(|t| t.state == TrialState::Completed);
    loop {
        let taken = count.min(class.len());
        for number in least(class, taken) {
            is_best[number] = true;
        }
        count -= taken;
        if count == 0 {
            return is_best;
        }
        let furthest = rest.iter().map(|t| t.outcome_step()).max().unwrap_or(0);
        (class, rest) = rest.into_iter().partition(|t| t.outcome_step() == furthest);
    }
}

/// Numbers of the `count` trials with the smallest loss; by rank and crowding with several
/// objectives.
fn least(trials: Vec<&SearchTrial>, count: usize) -> Vec<usize> {
    fn losses(trial: &SearchTrial) -> &[f64] {
        let outcome = trial.outcome.as_ref();
        outcome.map_or(&[], |outcome| &outcome.losses)
    }
    if trials.iter().any(|t| losses(t).len() != 1) {
        let rows: Vec<&[f64]> = trials.iter().map(|t| losses(t)).collect();
        let order = crate::pareto::order(&rows).into_iter().take(count);
        return order.map(|i| trials[i].number as usize).collect();
    }
    let mut rows: Vec<(f64, usize)> = trials
        .iter()
        .map(|t| (losses(t)[0], t.number as usize))
        .collect();
    if count < rows.len() {
        rows.select_nth_unstable_by(count, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }
    rows.into_iter()
        .take(count)
        .map(|(_, number)| number)
        .collect()
}

/// Weighted sum of products of kernels: one per trial, and the prior.
struct Mixture<'a> {
    space: &'a Space,
    /// Weight per trial; the prior's is last.
    weights: Vec<f64>,
    log_weights: Vec<f64>,
    axes: Vec<KernelAxis>,
}

impl<'a> Mixture<'a> {
    /// `points` are ordered by age, the oldest first. `least` is the smallest deviation of a
    /// kernel.
    fn of(space: &'a Space, points: &Points, least: f64) -> Self {
        let count = points.len();
        let ramp = count.saturating_sub(FLAT);
        let mut weights: Vec<f64> = (0..count)
            .map(|i| {
                if i >= ramp {
                    return 1.0;
                }
                let least = 1.0 / count as f64;
                least + (1.0 - least) * i as f64 / ((ramp - 1).max(1)) as f64
            })
            .collect();
        weights.push(1.0);
        let sum: f64 = weights.iter().sum();
        let log_weights = weights.iter().map(|w| (w / sum).ln()).collect();
        let axes = space.dimensions.iter().enumerate();
        let axes = axes.map(|(d, dimension)| KernelAxis::of(&dimension.domain, d, points, least));
        let axes = axes.collect();
        Self {
            space,
            weights,
            log_weights,
            axes,
        }
    }

    fn sample(&self, rng: &mut StudyRng) -> Point {
        let kernel = rng.weighted(&self.weights);
        let mut point: Point = vec![None; self.space.len()];
        for (d, axis) in self.axes.iter().enumerate() {
            if !self.space.is_active(d, &point) {
                continue;
            }
            let domain = &self.space.dimensions[d].domain;
            point[d] = Some(axis.sample(kernel, domain, rng));
        }
        point
    }

    /// Logarithm of the density at a point. Terms far below the largest one are negligible. The
    /// prior has its own term, so kernels that cannot come near it on the remaining axes are
    /// dropped. After the first axis few narrow kernels remain.
    fn log_density(&self, point: &[Option<f64>], near: &mut Near) -> f64 {
        let places: Vec<(&KernelAxis, AxisValue)> = (self.axes.iter().zip(point))
            .zip(&self.space.dimensions)
            .filter_map(|((axis, value), dimension)| {
                let place = axis.place((*value)?, &dimension.domain);
                Some((axis, place))
            })
            .collect();
        let prior = self.log_weights.len() - 1;
        let at_prior =
            |term, (axis, place): &(&KernelAxis, AxisValue)| term + axis.log_density(*place, prior);
        let floor = places.iter().fold(self.log_weights[prior], at_prior) + NEGLIGIBLE - ROUNDING;
        let mut to_come: f64 = places.iter().map(|(axis, _)| axis.peak()).sum();
        near.all(&self.log_weights);
        for (axis, place) in &places {
            to_come -= axis.peak();
            axis.add_log_densities(*place, near);
            near.keep_above(floor - to_come);
        }
        let most = most(&near.terms);
        let above = near.terms.iter().map(|t| t - most);
        let above = above.filter(|t| *t > NEGLIGIBLE);
        most + above.map(f64::exp).sum::<f64>().ln()
    }
}

/// Maximum in eight lanes, which the compiler vectorises.
fn most(values: &[f64]) -> f64 {
    let mut strands = [f64::MIN; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        for (strand, value) in strands.iter_mut().zip(chunk) {
            *strand = if *value > *strand { *value } else { *strand };
        }
    }
    let all = strands.iter().chain(rest).copied();
    all.fold(f64::MIN, f64::max)
}

fn least_deviation(trials: usize) -> f64 {
    1.0 / (2.0 + trials as f64).min(100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn space() -> Space {
        let spec: muster_model::study::SearchSpec = serde_json::from_value(json!({
            "objectives": [{"metric": "loss", "goal": "minimize"}], "trials": 1,
            "parameters": [
                {"name": "x", "type": "float", "low": 0, "high": 1},
                {"name": "c", "type": "categorical", "choices": ["a", "b", "c"]},
                {"name": "n", "type": "int", "low": 0, "high": 9},
                {"name": "y", "type": "float", "low": 0, "high": 1},
            ],
        }))
        .expect("a search");
        spec.space().expect("a space")
    }

    /// Reference implementation with every kernel on every axis.
    fn dense(mixture: &Mixture<'_>, point: &[Option<f64>]) -> f64 {
        let mut terms = mixture.log_weights.clone();
        for (d, axis) in mixture.axes.iter().enumerate() {
            let Some(value) = point[d] else { continue };
            let place = axis.place(value, &mixture.space.dimensions[d].domain);
            for (kernel, term) in terms.iter_mut().enumerate() {
                *term += axis.log_density(place, kernel);
            }
        }
        let most = terms.iter().copied().fold(f64::MIN, f64::max);
        let above = terms.iter().map(|t| t - most).filter(|t| *t > NEGLIGIBLE);
        most + above.map(f64::exp).sum::<f64>().ln()
    }

    fn float() -> impl Strategy<Value = Option<f64>> {
        prop::option::weighted(0.9, prop_oneof![0.0f64..=1.0, 0.5f64..0.51])
    }

    fn whole(most: u8) -> impl Strategy<Value = Option<f64>> {
        prop::option::weighted(0.9, (0..=most).prop_map(f64::from))
    }

    fn point() -> impl Strategy<Value = Point> {
        let values = (float(), whole(2), whole(9), float());
        values.prop_map(|(x, c, n, y)| vec![x, c, n, y])
    }

    proptest! {
        /// Equal to the bit: a search that is rebuilt from its events must propose the same points.
        #[test]
        fn density_without_dropped_kernels_is_bit_equal(
            trials in prop::collection::vec(point(), 1..400),
            points in prop::collection::vec(point(), 1..20),
        ) {
            let space = space();
            let mut kernels = Points::room_for(trials.len(), space.len());
            trials.iter().for_each(|point| kernels.push(point));
            let mixture = Mixture::of(&space, &kernels, least_deviation(10 * trials.len()));
            let mut near = Near::default();
            for point in points {
                let (found, defined) = (mixture.log_density(&point, &mut near), dense(&mixture, &point));
                prop_assert_eq!(found.to_bits(), defined.to_bits(), "{} and {}", found, defined);
            }
        }
    }
}
