//! Tree-structured Parzen estimators (Bergstra et al. 2011), over all parameters together (Falkner et al. 2018): of points drawn where
//! good trials lie, the one that is likeliest among them and unlikeliest among the others.
//!
//! The mixture is one of whole trials, so that dependences between parameters are kept. In a conditional space a trial that lacks a
//! parameter says nothing about it: where a drawn point has it, that factor is uniform.

use super::{anywhere, best_first};
use crate::numeric::log_between;
use crate::random::Draw;
use crate::study::Record;
use crate::trial::Trial;
use muster_model::study::{Domain, Point, Space};

/// The newest so many trials count in full; before them weights fall linearly with age.
const FLAT: usize = 25;
/// At most so many trials are good.
const MOST_GOOD: usize = 25;

/// A point of the space; `None` if its constraints allow none.
pub(super) fn suggest(record: &Record, candidates: usize, draw: &mut Draw) -> Option<Point> {
    let judged = best_first(record);
    let good_count = judged.len().div_ceil(10).min(MOST_GOOD);
    let (good, rest) = judged.split_at(good_count);
    // Whoever still runs may be bad: others need not try the same.
    let running = record
        .trials
        .iter()
        .filter(|t| t.outcome.is_none() && t.holds_slot());
    let mut bad: Vec<&Trial> = rest.iter().copied().chain(running).collect();
    bad.sort_by_key(|t| t.number);
    let mut good = good.to_vec();
    good.sort_by_key(|t| t.number);
    // Good trials are few, yet the more is known in all, the closer to them the next may be sought.
    let narrow = least_deviation(good.len() + judged.len() / 2);
    let good = Mixture::of(&record.space, &good, narrow);
    let bad = Mixture::of(&record.space, &bad, least_deviation(bad.len()));
    let mut best: Option<(f64, Point)> = None;
    let mut allowed = 0;
    for _ in 0..candidates * 50 {
        let point = good.sample(draw);
        if !record.space.allows(&point) {
            continue;
        }
        let score = good.log_density(&point) - bad.log_density(&point);
        if best.as_ref().is_none_or(|(most, _)| score > *most) {
            best = Some((score, point));
        }
        allowed += 1;
        if allowed == candidates {
            break;
        }
    }
    best.map(|(_, point)| point)
        .or_else(|| anywhere(record, draw))
}

/// A weighted sum of products of kernels, one a trial, and the prior.
struct Mixture<'a> {
    space: &'a Space,
    /// Of each trial, the prior's last.
    weights: Vec<f64>,
    log_weights: Vec<f64>,
    axes: Vec<Axis>,
}

/// One parameter's kernels.
enum Axis {
    /// Normal, cut off at 0 and 1.
    Ordered(Vec<Option<Normal>>),
    /// A choice and all others.
    Choice {
        chosen: Vec<Option<usize>>,
        log_same: f64,
        log_other: f64,
        log_uniform: f64,
    },
}

#[derive(Clone, Copy)]
struct Normal {
    mean: f64,
    deviation: f64,
    /// The logarithm of what is left between 0 and 1, times the deviation.
    log_scale: f64,
}

impl Normal {
    fn new(mean: f64, deviation: f64) -> Self {
        let (below, above) = (mean / deviation, (1.0 - mean) / deviation);
        // Beyond seven deviations lies less than a rounding: of many trials most kernels are as narrow as that.
        let whole = below > 7.0 && above > 7.0;
        let inside = if whole {
            0.0
        } else {
            log_between(-below, above)
        };
        let root = 0.5 * (2.0 * std::f64::consts::PI).ln();
        Self {
            mean,
            deviation,
            log_scale: inside + deviation.ln() + root,
        }
    }

    fn log_density(&self, x: f64) -> f64 {
        let z = (x - self.mean) / self.deviation;
        -0.5 * z * z - self.log_scale
    }

    fn sample(&self, draw: &mut Draw) -> f64 {
        for _ in 0..100 {
            let x = self.mean + self.deviation * draw.normal();
            if (0.0..=1.0).contains(&x) {
                return x;
            }
        }
        self.mean.clamp(0.0, 1.0)
    }
}

impl<'a> Mixture<'a> {
    /// `trials` are by age, the oldest first; `least` is the narrowest that a kernel may be.
    fn of(space: &'a Space, trials: &[&Trial], least: f64) -> Self {
        let count = trials.len();
        let ramp = count.saturating_sub(FLAT);
        let weight = |i: usize| {
            if i >= ramp {
                return 1.0;
            }
            let least = 1.0 / count as f64;
            least + (1.0 - least) * i as f64 / ((ramp - 1).max(1)) as f64
        };
        let mut weights: Vec<f64> = (0..count).map(weight).collect();
        weights.push(1.0);
        let sum: f64 = weights.iter().sum();
        let log_weights = weights.iter().map(|w| (w / sum).ln()).collect();
        let axes = (0..space.len())
            .map(|d| axis(space, d, trials, least))
            .collect();
        Self {
            space,
            weights,
            log_weights,
            axes,
        }
    }

    fn sample(&self, draw: &mut Draw) -> Point {
        let kernel = draw.weighted(&self.weights);
        let mut point: Point = vec![None; self.space.len()];
        for (d, axis) in self.axes.iter().enumerate() {
            if !self.space.is_active(d, &point) {
                continue;
            }
            let domain = &self.space.dimensions[d].domain;
            point[d] = Some(axis.sample(kernel, domain, draw));
        }
        point
    }

    fn log_density(&self, point: &[Option<f64>]) -> f64 {
        let mut terms = self.log_weights.clone();
        for ((axis, value), dimension) in self.axes.iter().zip(point).zip(&self.space.dimensions) {
            if let Some(value) = value {
                axis.add_log_densities(*value, &dimension.domain, &mut terms);
            }
        }
        let most = terms.iter().copied().fold(f64::MIN, f64::max);
        most + terms.iter().map(|t| (t - most).exp()).sum::<f64>().ln()
    }
}

fn axis(space: &Space, d: usize, trials: &[&Trial], least: f64) -> Axis {
    let domain = &space.dimensions[d].domain;
    let kernels = trials.len() as f64 + 1.0;
    if let Domain::Categorical {
        choices,
        ordered: false,
    } = domain
    {
        let spread = 1.0 / kernels;
        let whole = 1.0 + spread * choices.len() as f64;
        let chosen = trials.iter().map(|t| t.point[d].map(|v| v as usize));
        return Axis::Choice {
            chosen: chosen.chain([None]).collect(),
            log_same: ((1.0 + spread) / whole).ln(),
            log_other: (spread / whole).ln(),
            log_uniform: -(choices.len() as f64).ln(),
        };
    }
    let values: Vec<Option<f64>> = trials
        .iter()
        .map(|t| t.point[d].map(|v| domain.unit(v)))
        .collect();
    let deviations = deviations(&values, least);
    let normals = trials.iter().zip(values).zip(deviations);
    let normals = normals.map(|((trial, mean), deviation)| {
        // Narrower than half a value's part a kernel would be denser than its value can be likely.
        let least = trial.point[d].map_or(0.0, |v| domain.cell(v) / 2.0);
        Some(Normal::new(mean?, deviation.max(least)))
    });
    Axis::Ordered(normals.chain([Some(Normal::new(0.5, 1.0))]).collect())
}

fn least_deviation(trials: usize) -> f64 {
    1.0 / (2.0 + trials as f64).min(100.0)
}

/// Each kernel reaches to its further neighbour, but is never narrower than `least`.
fn deviations(values: &[Option<f64>], least: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).filter(|i| values[*i].is_some()).collect();
    order.sort_by(|a, b| {
        values[*a]
            .unwrap_or(0.0)
            .total_cmp(&values[*b].unwrap_or(0.0))
    });
    let mut deviations = vec![1.0; values.len()];
    for (place, &i) in order.iter().enumerate() {
        let at = |place: usize| values[order[place]].unwrap_or(0.0);
        let here = at(place);
        let below = place.checked_sub(1).map(|p| here - at(p));
        let above = (place + 1 < order.len()).then(|| at(place + 1) - here);
        let reach = match (below, above) {
            (Some(below), Some(above)) => below.max(above),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => here.max(1.0 - here),
        };
        deviations[i] = reach.clamp(least, 1.0);
    }
    deviations
}

impl Axis {
    fn sample(&self, kernel: usize, domain: &Domain, draw: &mut Draw) -> f64 {
        match self {
            Self::Ordered(normals) => {
                let unit = match normals[kernel] {
                    Some(normal) => normal.sample(draw),
                    None => draw.unit(),
                };
                domain.at(unit)
            }
            Self::Choice {
                chosen, log_same, ..
            } => {
                let uniform = domain.at(draw.unit());
                let Some(choice) = chosen[kernel] else {
                    return uniform;
                };
                // What is left besides the choice's own part is spread over the others.
                if draw.unit() < log_same.exp() {
                    return choice as f64;
                }
                let count = domain.count().unwrap_or(1) as usize;
                if count == 1 {
                    return 0.0;
                }
                let other = draw.below(count - 1);
                (other + usize::from(other >= choice)) as f64
            }
        }
    }

    /// Adds each kernel's log density at `value` to its term.
    fn add_log_densities(&self, value: f64, domain: &Domain, terms: &mut [f64]) {
        match self {
            Self::Ordered(normals) => {
                let unit = domain.unit(value);
                for (term, normal) in terms.iter_mut().zip(normals) {
                    *term += normal.map_or(0.0, |normal| normal.log_density(unit));
                }
            }
            Self::Choice {
                chosen,
                log_same,
                log_other,
                log_uniform,
            } => {
                let value = value as usize;
                for (term, choice) in terms.iter_mut().zip(chosen) {
                    *term += match choice {
                        Some(choice) if *choice == value => *log_same,
                        Some(_) => *log_other,
                        None => *log_uniform,
                    };
                }
            }
        }
    }
}
