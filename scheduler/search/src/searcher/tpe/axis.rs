//! Kernels of one parameter: a normal kernel around each trial if the parameter is ordered,
//! otherwise its choice with a small weight on the others.

use super::near::Near;
use super::points::Points;
use crate::numeric::log_between;
use crate::random::StudyRng;
use muster_model::study::Domain;

/// Value in the form that the kernels of its axis use.
#[derive(Debug, Clone, Copy)]
pub(super) enum AxisValue {
    /// Between 0 and 1.
    Unit(f64),
    Choice(usize),
}

/// Kernels of a mixture along one parameter: one per trial, the prior's last.
pub(super) enum KernelAxis {
    Ordered(Normals),
    /// Kernels of an unordered choice.
    Choice {
        chosen: Vec<Option<usize>>,
        log_same: f64,
        log_other: f64,
        log_uniform: f64,
    },
}

/// Normal kernels, truncated at 0 and 1. The kernel of a trial without the parameter has infinite
/// deviation and is uniform. Struct of arrays, because every candidate evaluates all kernels.
pub(super) struct Normals {
    means: Vec<f64>,
    deviations: Vec<f64>,
    /// Inverse of the deviation.
    sharpness: Vec<f64>,
    /// Logarithm of the mass between 0 and 1, times the deviation.
    log_scales: Vec<f64>,
    /// Maximum log density over all kernels.
    peak: f64,
    /// Last deviation with its logarithm. With many trials most kernels have the smallest
    /// deviation, so this avoids logarithms.
    newest: (f64, f64),
}

impl KernelAxis {
    /// Kernels around the values of dimension `d`, one per point.
    pub(super) fn of(domain: &Domain, d: usize, points: &Points, least: f64) -> Self {
        let kernels = points.len() as f64 + 1.0;
        if let Domain::Categorical {
            choices,
            ordered: false,
        } = domain
        {
            let spread = 1.0 / kernels;
            let whole = 1.0 + spread * choices.len() as f64;
            let chosen = points.column(d).map(|v| v.map(|v| v as usize));
            return Self::Choice {
                chosen: chosen.chain([None]).collect(),
                log_same: ((1.0 + spread) / whole).ln(),
                log_other: (spread / whole).ln(),
                log_uniform: -(choices.len() as f64).ln(),
            };
        }
        let line = domain.line();
        let units = points.column(d).map(|v| v.map(|v| line.unit(v)));
        let units: Vec<Option<f64>> = units.collect();
        let mut normals = Normals::room_for(points.len() + 1);
        let deviations = deviations(&units, least);
        for ((value, mean), deviation) in points.column(d).zip(units).zip(deviations) {
            // A kernel narrower than half a value's cell would be denser than its value can be
            // likely.
            let least = value.map_or(0.0, |v| line.cell(v) / 2.0);
            match mean {
                Some(mean) => normals.push(mean, deviation.max(least)),
                None => normals.push_uniform(),
            }
        }
        normals.push(0.5, 1.0);
        Self::Ordered(normals)
    }

    pub(super) fn sample(&self, kernel: usize, domain: &Domain, rng: &mut StudyRng) -> f64 {
        match self {
            Self::Ordered(normals) => domain.at(normals.sample(kernel, rng)),
            Self::Choice {
                chosen, log_same, ..
            } => {
                let uniform = domain.at(rng.unit());
                let Some(choice) = chosen[kernel] else {
                    return uniform;
                };
                // The probability besides the choice's own part is spread over the other choices.
                if rng.unit() < log_same.exp() {
                    return choice as f64;
                }
                let count = domain.count().unwrap_or(1) as usize;
                if count == 1 {
                    return 0.0;
                }
                let other = rng.below(count - 1);
                (other + usize::from(other >= choice)) as f64
            }
        }
    }

    /// Converts a value to the form of the kernels.
    pub(super) fn place(&self, value: f64, domain: &Domain) -> AxisValue {
        match self {
            Self::Ordered(_) => AxisValue::Unit(domain.unit(value)),
            Self::Choice { .. } => AxisValue::Choice(value as usize),
        }
    }

    /// Maximum log density of any kernel at any place.
    pub(super) fn peak(&self) -> f64 {
        match self {
            Self::Ordered(normals) => normals.peak,
            Self::Choice {
                log_same,
                log_other,
                log_uniform,
                ..
            } => log_same.max(*log_other).max(*log_uniform),
        }
    }

    pub(super) fn log_density(&self, place: AxisValue, kernel: usize) -> f64 {
        match (self, place) {
            (Self::Ordered(normals), AxisValue::Unit(unit)) => normals.log_density(unit, kernel),
            (
                Self::Choice {
                    chosen,
                    log_same,
                    log_other,
                    log_uniform,
                },
                AxisValue::Choice(value),
            ) => match &chosen[kernel] {
                Some(choice) if *choice == value => *log_same,
                Some(_) => *log_other,
                None => *log_uniform,
            },
            (Self::Ordered(_), AxisValue::Choice(_))
            | (Self::Choice { .. }, AxisValue::Unit(_)) => {
                unreachable!("a place is of its own axis")
            }
        }
    }

    /// Adds each kernel's log density to its term.
    pub(super) fn add_log_densities(&self, place: AxisValue, near: &mut Near) {
        if let (Self::Ordered(normals), AxisValue::Unit(unit)) = (self, place)
            && near.terms.len() == normals.means.len()
        {
            return normals.add_log_densities(unit, &mut near.terms);
        }
        for (term, kernel) in near.terms.iter_mut().zip(&near.kernels) {
            *term += self.log_density(place, *kernel as usize);
        }
    }
}

impl Normals {
    fn room_for(count: usize) -> Self {
        Self {
            means: Vec::with_capacity(count),
            deviations: Vec::with_capacity(count),
            sharpness: Vec::with_capacity(count),
            log_scales: Vec::with_capacity(count),
            peak: f64::NEG_INFINITY,
            newest: (1.0, 0.0),
        }
    }

    fn push(&mut self, mean: f64, deviation: f64) {
        let (below, above) = (mean / deviation, (1.0 - mean) / deviation);
        // The mass beyond seven deviations is below the rounding error. With many trials most
        // kernels are that narrow.
        let whole = below > 7.0 && above > 7.0;
        let inside = if whole {
            0.0
        } else {
            log_between(-below, above)
        };
        let root = 0.5 * (2.0 * std::f64::consts::PI).ln();
        if deviation.to_bits() != self.newest.0.to_bits() {
            self.newest = (deviation, deviation.ln());
        }
        self.add(mean, deviation, inside + self.newest.1 + root);
    }

    fn push_uniform(&mut self) {
        self.add(0.5, f64::INFINITY, 0.0);
    }

    fn add(&mut self, mean: f64, deviation: f64, log_scale: f64) {
        self.means.push(mean);
        self.deviations.push(deviation);
        self.sharpness.push(1.0 / deviation);
        self.log_scales.push(log_scale);
        self.peak = self.peak.max(-log_scale);
    }

    fn sample(&self, kernel: usize, rng: &mut StudyRng) -> f64 {
        let (mean, deviation) = (self.means[kernel], self.deviations[kernel]);
        if deviation.is_infinite() {
            return rng.unit();
        }
        for _ in 0..100 {
            let x = mean + deviation * rng.normal();
            if (0.0..=1.0).contains(&x) {
                return x;
            }
        }
        mean.clamp(0.0, 1.0)
    }

    fn log_density(&self, unit: f64, kernel: usize) -> f64 {
        let z = (unit - self.means[kernel]) * self.sharpness[kernel];
        -(0.5 * z * z + self.log_scales[kernel])
    }

    /// Same for all kernels, in a form that the compiler vectorises.
    fn add_log_densities(&self, unit: f64, terms: &mut [f64]) {
        let kernels = self.means.iter().zip(&self.sharpness).zip(&self.log_scales);
        for (term, ((mean, sharpness), log_scale)) in terms.iter_mut().zip(kernels) {
            let z = (unit - mean) * sharpness;
            *term -= 0.5 * z * z + log_scale;
        }
    }
}

/// Deviation of each kernel: the distance to the farther neighbour, at least `least`. A value with
/// two neighbours within `least` does not need the exact ones. Values are therefore sorted into
/// cells of half that width, and only the ends of each cell are compared.
fn deviations(values: &[Option<f64>], least: f64) -> Vec<f64> {
    let cells = (2.0 / least).ceil();
    let mut ends: Vec<Option<CellExtremes>> = vec![None; cells as usize + 1];
    for (i, value) in values.iter().enumerate() {
        let Some(value) = *value else { continue };
        match &mut ends[(value * cells) as usize] {
            Some(ends) => ends.widen(value, i),
            empty => *empty = Some(CellExtremes::of(value, i)),
        }
    }
    let mut deviations: Vec<f64> = values
        .iter()
        .map(|value| if value.is_some() { least } else { 1.0 })
        .collect();
    let taken: Vec<CellExtremes> = ends.into_iter().flatten().collect();
    for (place, here) in taken.iter().enumerate() {
        let below = place.checked_sub(1).map(|p| here.first.0 - taken[p].last.0);
        let above = taken.get(place + 1).map(|next| next.first.0 - here.last.0);
        if here.first.1 == here.last.1 {
            let value = here.first.0;
            let reach = match (below, above) {
                (Some(below), Some(above)) => below.max(above),
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => value.max(1.0 - value),
            };
            deviations[here.first.1] = reach.clamp(least, 1.0);
            continue;
        }
        // The neighbour on the other side is in the same cell.
        deviations[here.first.1] = below.unwrap_or(0.0).clamp(least, 1.0);
        deviations[here.last.1] = above.unwrap_or(0.0).clamp(least, 1.0);
    }
    deviations
}

/// Smallest and largest value of a cell with their indices. Among equal values the first in the
/// list counts as smaller.
#[derive(Clone)]
struct CellExtremes {
    first: (f64, usize),
    last: (f64, usize),
}

impl CellExtremes {
    fn of(value: f64, place: usize) -> Self {
        Self {
            first: (value, place),
            last: (value, place),
        }
    }

    /// `place` is above all earlier indices.
    fn widen(&mut self, value: f64, place: usize) {
        if value < self.first.0 {
            self.first = (value, place);
        }
        if value >= self.last.0 {
            self.last = (value, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::deviations;
    use proptest::prelude::*;

    /// Reference implementation by sorting.
    fn sorted(values: &[Option<f64>], least: f64) -> Vec<f64> {
        let mut order: Vec<usize> = (0..values.len()).filter(|i| values[*i].is_some()).collect();
        let known: Vec<f64> = values.iter().map(|value| value.unwrap_or(0.0)).collect();
        order.sort_by(|a, b| known[*a].total_cmp(&known[*b]));
        let mut deviations = vec![1.0; values.len()];
        for (place, &i) in order.iter().enumerate() {
            let here = known[i];
            let below = place.checked_sub(1).map(|p| here - known[order[p]]);
            let above = order.get(place + 1).map(|&next| known[next] - here);
            let reach = match (below, above) {
                (Some(below), Some(above)) => below.max(above),
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => here.max(1.0 - here),
            };
            deviations[i] = reach.clamp(least, 1.0);
        }
        deviations
    }

    proptest! {
        #[test]
        fn deviations_equal_those_of_sorted_values(
            least in 0.01f64..0.5,
            values in prop::collection::vec(
                prop::option::weighted(0.9, prop_oneof![0.0f64..=1.0, prop::sample::select(vec![0.0, 0.25, 0.5, 1.0])]), 0..300),
        ) {
            prop_assert_eq!(deviations(&values, least), sorted(&values, least));
        }
    }
}
