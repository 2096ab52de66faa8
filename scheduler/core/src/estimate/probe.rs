//! Choice of sizes to measure, so that the speed at all sizes becomes known best. Tests compare the
//! speed model from eight such sizes with the rest of Optimus' measurements. The scheduler does not
//! run probes: jobs explore by growing (record 0172).
//!
//! Each probe is the size whose measurement reduces the total uncertainty of all candidates most.
//! This is the integrated mean squared error of Sacks et al. (Statistical Science 1989), one step
//! ahead. Sizes that were measured for other reasons count too.

use super::surface::{Cholesky, NOISE, Size, SurfacePoint};
use muster_model::spec::Range;

/// Maximum number of probed sizes of a job. Beyond them, noise dominates the error.
pub(crate) const BUDGET: usize = 8;

/// Maximum number of candidate worker counts, and of shard counts.
const LEVELS: u32 = 8;

/// Returns the candidate sizes of these ranges: all sizes if there are few, else geometrically
/// spaced ones.
pub(crate) fn candidates(workers: Range, ps_shards: Range) -> Vec<Size> {
    let ps_shards = levels(ps_shards);
    levels(workers)
        .into_iter()
        .flat_map(|w| ps_shards.iter().map(move |&p| (w, p)))
        .collect()
}

fn levels(range: Range) -> Vec<u32> {
    if range == Range::NONE {
        return vec![0];
    }
    let (min, max) = (range.min.max(1), range.max.max(range.min).max(1));
    if max - min < LEVELS {
        return (min..=max).collect();
    }
    let growth = f64::from(max) / f64::from(min);
    let mut levels: Vec<u32> = (0..LEVELS)
        .map(|i| {
            let share = f64::from(i) / f64::from(LEVELS - 1);
            // Between `min` and `max`, which are 32 bits.
            (f64::from(min) * growth.powf(share)).round() as u32
        })
        .collect();
    levels.dedup();
    levels
}

/// Returns the candidate that reduces the uncertainty most beside the `measured` sizes. Returns
/// `None` if the budget is spent or all candidates are measured. Callers remove a size whose probe
/// failed from the candidates.
pub(crate) fn next(measured: &[Size], candidates: &[Size]) -> Option<Size> {
    if measured.len() >= BUDGET {
        return None;
    }
    let known: Vec<SurfacePoint> = measured.iter().copied().map(SurfacePoint::of).collect();
    let cholesky = Cholesky::of(known.len(), |i, j| {
        let noise = if i == j { NOISE * NOISE } else { 0.0 };
        known[i].covariance(&known[j]) + noise
    });
    let places: Vec<SurfacePoint> = candidates.iter().copied().map(SurfacePoint::of).collect();
    let explained: Vec<Vec<f64>> = places
        .iter()
        .map(|place| cholesky.forward(known.iter().map(|known| known.covariance(place))))
        .collect();
    (0..candidates.len())
        .filter(|&a| !measured.contains(&candidates[a]))
        .map(|a| (a, reduction(&places, &explained, a)))
        // The first of equals, independent of rounding in `max_by`.
        .reduce(|best, next| if next.1 > best.1 { next } else { best })
        .map(|(a, _)| candidates[a])
}

/// Returns the reduction of the total uncertainty by a measurement at the place `a`.
fn reduction(places: &[SurfacePoint], explained: &[Vec<f64>], a: usize) -> f64 {
    let all: f64 = (0..places.len())
        .map(|b| covariance_left(places, explained, a, b).powi(2))
        .sum();
    all / (covariance_left(places, explained, a, a) + NOISE * NOISE)
}

/// Returns the covariance of two places that the measured sizes leave unexplained.
fn covariance_left(places: &[SurfacePoint], explained: &[Vec<f64>], a: usize, b: usize) -> f64 {
    let both = explained[a].iter().zip(&explained[b]);
    let known: f64 = both.map(|(a, b)| a * b).sum();
    places[a].covariance(&places[b]) - known
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP_TO_16: Range = Range { min: 1, max: 16 };

    fn plan() -> Vec<Size> {
        let candidates = candidates(UP_TO_16, UP_TO_16);
        let mut measured = Vec::new();
        while let Some(size) = next(&measured, &candidates) {
            measured.push(size);
        }
        measured
    }

    #[test]
    fn probes_cover_both_ends_without_repetition() {
        let plan = plan();
        assert_eq!(plan.len(), BUDGET);
        for (i, size) in plan.iter().enumerate() {
            assert!(!plan[..i].contains(size), "{plan:?}");
        }
        let probes = plan.iter();
        assert!(
            probes.clone().any(|&(w, p)| w >= 8 * p),
            "many workers per shard: {plan:?}"
        );
        assert!(
            probes.clone().any(|&(w, p)| p >= 4 * w),
            "many shards per worker: {plan:?}"
        );
        assert!(
            probes.clone().any(|&(w, p)| w.min(p) >= 12),
            "much of both: {plan:?}"
        );
        assert!(
            probes.clone().any(|&(w, p)| w.max(p) <= 2),
            "little of both: {plan:?}"
        );
    }

    #[test]
    fn measured_neighbourhood_is_not_probed_again() {
        let around: Vec<Size> = vec![(8, 8), (8, 9), (9, 8), (9, 9)];
        let found = next(&around, &candidates(UP_TO_16, UP_TO_16)).expect("a probe is left");
        assert!(
            found.0.abs_diff(8) > 2 || found.1.abs_diff(8) > 2,
            "{found:?}"
        );
    }

    #[test]
    fn wide_ranges_have_few_candidates_including_both_ends() {
        let wide = Range { min: 2, max: 500 };
        let found = candidates(wide, Range { min: 3, max: 5 });
        assert_eq!(found.len(), 8 * 3);
        assert!(found.contains(&(2, 3)) && found.contains(&(500, 5)));
        assert_eq!(
            candidates(Range { min: 4, max: 4 }, Range { min: 1, max: 1 }),
            [(4, 1)]
        );
    }

    #[test]
    fn job_without_shards_is_probed_by_workers_only() {
        let found = candidates(Range { min: 1, max: 3 }, Range::NONE);
        assert_eq!(found, [(1, 0), (2, 0), (3, 0)]);
        assert_eq!(next(&[(1, 0)], &found), Some((3, 0)));
    }

    #[test]
    fn fixed_job_has_no_next_probe() {
        assert_eq!(next(&[(4, 1)], &[(4, 1)]), None);
    }
}
