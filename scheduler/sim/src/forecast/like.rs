//! Evidence from earlier jobs of the same document: the duration, or steps and speed.

use muster_core::snapshot::{PastDuration, TrainingLength};

/// Prior spread of durations (standard deviation of the logarithm), and its weight as a number of
/// jobs.
const SPREAD: f64 = 0.3;
const COUNTS_AS: f64 = 2.0;

/// Earlier job of the same document that succeeded and reported its steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EarlierRun {
    /// Training time in seconds.
    pub took_s: f64,
    pub steps: f64,
    /// Workers and PS shards for most of the time; `None` without a measured speed.
    pub size: Option<(u32, u32)>,
}

/// Expected duration of a job after `done_s` seconds, from the durations of earlier jobs; `None`
/// without any.
#[must_use]
pub fn like(took_s: &[f64], done_s: f64) -> Option<TrainingLength> {
    let (middle_s, spread) = next(took_s.iter().map(|took_s| took_s.max(0.1)))?;
    Some(TrainingLength {
        middle_s,
        spread,
        done_s,
    })
}

/// Expected steps and speed of a job of at least `least` workers and shards. `earlier` is ordered
/// newest first; `None` without any.
#[must_use]
pub fn ran(earlier: &[EarlierRun], least: (u32, u32)) -> Option<PastDuration> {
    let done = earlier.iter().filter(|one| one.steps >= 1.0);
    let newest = done.clone().next()?.size.unwrap_or(least);
    let (steps, steps_spread) = next(done.clone().map(|one| one.steps))?;
    // Speeds are comparable at one size only. The size has little effect on the steps.
    let of_size = done.filter(|one| one.size.unwrap_or(least) == newest);
    let (steps_per_s, speed_spread) = next(of_size.map(|one| one.steps / one.took_s.max(0.1)))?;
    Some(PastDuration {
        steps,
        steps_spread,
        steps_per_s,
        speed_spread,
        workers: newest.0,
        ps_shards: newest.1,
    })
}

/// Median of positive numbers, and standard deviation of the logarithm of the next number; `None`
/// without any.
fn next(numbers: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let logs: Vec<f64> = numbers
        .filter(|number| number.is_finite())
        .map(f64::ln)
        .collect();
    if logs.is_empty() {
        return None;
    }
    let count = logs.len() as f64;
    let middle = logs.iter().sum::<f64>() / count;
    let squares: f64 = logs.iter().map(|log| (log - middle).powi(2)).sum();
    let variance = (COUNTS_AS * SPREAD * SPREAD + squares) / (COUNTS_AS + count - 1.0);
    // The factor adds the uncertainty of the mean, which comes from the same numbers.
    Some((middle.exp(), (variance * (1.0 + 1.0 / count)).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::{EarlierRun, SPREAD, like, ran};

    #[test]
    fn duration_spread_shrinks_with_number_of_earlier_jobs() {
        assert_eq!(like(&[], 0.0), None);
        let one = like(&[100.0], 30.0).expect("one");
        assert!((one.middle_s - 100.0).abs() < 1e-9 && one.spread > SPREAD);
        assert_eq!(one.done_s, 30.0);
        let many = like(&[99.0, 100.0, 101.0].repeat(6), 0.0).expect("many");
        assert!(many.spread < 0.12, "{many:?}");
        let apart = like(&[10.0, 1_000.0].repeat(9), 0.0).expect("many");
        assert!((apart.middle_s - 100.0).abs() < 1e-6 && apart.spread > 2.0);
    }

    fn earlier(took_s: f64, steps: f64, size: Option<(u32, u32)>) -> EarlierRun {
        EarlierRun {
            took_s,
            steps,
            size,
        }
    }

    #[test]
    fn earlier_jobs_give_steps_and_speed_at_newest_size() {
        assert_eq!(ran(&[], (1, 1)), None);
        assert_eq!(ran(&[earlier(3.0, 0.0, None)], (1, 1)), None);
        let known = ran(
            &[
                earlier(10.0, 400.0, Some((2, 1))),
                earlier(40.0, 400.0, Some((1, 1))),
            ],
            (1, 1),
        );
        let known = known.expect("two jobs");
        assert!((known.steps - 400.0).abs() < 1e-6, "{known:?}");
        assert!((known.steps_per_s - 40.0).abs() < 1e-6, "{known:?}");
        assert_eq!((known.workers, known.ps_shards), (2, 1));
    }
}
