//! How long a job lasts of which nothing but jobs like it tells.

use muster_core::snapshot::Lasts;

/// What is taken for the spread of such lengths (standard deviation of the logarithm) before they show one, and as how many of them it counts.
const SPREAD: f64 = 0.3;
const COUNTS_AS: f64 = 2.0;

/// Of a job that has done so many seconds, beside jobs that took these; `None` without any.
#[must_use]
pub fn like(took_s: &[f64], done_s: f64) -> Option<Lasts> {
    let logs: Vec<f64> = took_s
        .iter()
        .map(|took_s| took_s.max(0.1))
        .filter(|took_s| took_s.is_finite())
        .map(f64::ln)
        .collect();
    if logs.is_empty() {
        return None;
    }
    let count = logs.len() as f64;
    let middle = logs.iter().sum::<f64>() / count;
    let squares: f64 = logs.iter().map(|log| (log - middle).powi(2)).sum();
    let variance = (COUNTS_AS * SPREAD * SPREAD + squares) / (COUNTS_AS + count - 1.0);
    Some(Lasts {
        middle_s: middle.exp(),
        // Of the next one, where the mean too is known from these only.
        spread: (variance * (1.0 + 1.0 / count)).sqrt(),
        done_s,
    })
}

#[cfg(test)]
mod tests {
    use super::{SPREAD, like};

    #[test]
    fn one_like_it_tells_little_and_many_alike_tell_much() {
        assert_eq!(like(&[], 0.0), None);
        let one = like(&[100.0], 30.0).expect("one");
        assert!((one.middle_s - 100.0).abs() < 1e-9 && one.spread > SPREAD);
        assert_eq!(one.done_s, 30.0);
        let many = like(&[99.0, 100.0, 101.0].repeat(6), 0.0).expect("many");
        assert!(many.spread < 0.12, "{many:?}");
        let apart = like(&[10.0, 1_000.0].repeat(9), 0.0).expect("many");
        assert!((apart.middle_s - 100.0).abs() < 1e-6 && apart.spread > 2.0);
    }
}
