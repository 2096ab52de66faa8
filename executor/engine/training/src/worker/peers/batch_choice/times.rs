//! Seconds of an update by the examples of its largest part: means of measured parts, and the line
//! through them.

use std::collections::BTreeMap;

/// Number of updates from which on a mean limits the next one, and which it counts for when its
/// part is used again.
const KNOWN: f64 = 5.0;

/// Largest time that is counted, in units of the mean. A suspended process may delay an update by
/// seconds.
const MOST_MEANS: f64 = 4.0;

/// Smallest ratio of two parts that determine a line. Errors would decide between closer ones.
const APART: f64 = 1.1;

/// Smallest time in seconds that relative errors refer to.
const SMALLEST_S: f64 = 1e-6;

/// Measured times by part.
///
/// While a part is in use, its mean follows the machine. The means of the other parts follow it in
/// proportion, because the same processors and the same network would serve them. So two means are
/// comparable although the parts were in use at different times.
#[derive(Debug, Clone, Default)]
pub struct UpdateTimes {
    means: BTreeMap<usize, AgedMean>,
    /// Part of the last update.
    present: usize,
}

#[derive(Debug, Clone, Copy)]
struct AgedMean {
    seconds: f64,
    /// Number of updates, at most the memory.
    weight: f64,
}

/// Seconds of an update with a part of n examples: `constant_s + n per_example_s`. Neither is
/// negative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeLine {
    constant_s: f64,
    per_example_s: f64,
}

impl TimeLine {
    /// Returns the line of the sums of two times.
    #[must_use]
    pub fn plus(&self, other: Self) -> Self {
        Self {
            constant_s: self.constant_s + other.constant_s,
            per_example_s: self.per_example_s + other.per_example_s,
        }
    }

    #[must_use]
    pub fn seconds(&self, part: usize) -> f64 {
        self.constant_s + self.per_example_s * part as f64
    }
}

/// Whether two parts, the smaller first, determine a line.
#[must_use]
pub fn are_apart(low: usize, high: usize) -> bool {
    high as f64 >= APART * low as f64
}

impl UpdateTimes {
    /// Adds the time of an update. A mean covers about the last `memory` updates of its part. Later
    /// changes of it are changes of the machine's speed.
    pub fn observe(&mut self, part: usize, seconds: f64, memory: f64) {
        let is_again = self.present != part;
        self.present = part;
        let mean = self.means.entry(part).or_insert(AgedMean {
            seconds,
            weight: 0.0,
        });
        if is_again {
            mean.weight = mean.weight.min(KNOWN);
        }
        let before = mean.seconds.max(SMALLEST_S);
        let seconds = if mean.weight < KNOWN {
            seconds
        } else {
            seconds.min(MOST_MEANS * before)
        };
        mean.weight = (mean.weight + 1.0).min(memory);
        mean.seconds += (seconds - mean.seconds) / mean.weight;
        let is_settled = mean.weight >= memory;
        let speed = if is_settled {
            mean.seconds / before
        } else {
            1.0
        };
        for (_, other) in self.means.iter_mut().filter(|(other, _)| **other != part) {
            other.weight = (other.weight * (1.0 - 1.0 / memory)).max(1.0);
            other.seconds *= speed;
        }
    }

    /// Returns the mean seconds of an update with this part, if it was measured.
    #[must_use]
    pub fn mean(&self, part: usize) -> Option<f64> {
        self.means.get(&part).map(|mean| mean.seconds)
    }

    /// Returns the line with the smallest relative errors among those without a negative
    /// coefficient; `None` until parts that are apart were measured.
    #[must_use]
    pub fn line(&self) -> Option<TimeLine> {
        let (least, _) = self.means.first_key_value()?;
        let (most, _) = self.means.last_key_value()?;
        are_apart(*least, *most).then(|| WeightedSums::of(&self.means).line())
    }
}

/// Sums over measured parts for least squares.
#[derive(Debug, Clone, Copy, Default)]
struct WeightedSums {
    weight: f64,
    part: f64,
    seconds: f64,
    part_squared: f64,
    product: f64,
}

impl WeightedSums {
    fn of(means: &BTreeMap<usize, AgedMean>) -> Self {
        let mut sums = Self::default();
        for (&part, mean) in means {
            let (part, seconds) = (part as f64, mean.seconds);
            let weight = mean.weight / seconds.max(SMALLEST_S).powi(2);
            sums.weight += weight;
            sums.part += weight * part;
            sums.seconds += weight * seconds;
            sums.part_squared += weight * part * part;
            sums.product += weight * part * seconds;
        }
        sums
    }

    fn line(&self) -> TimeLine {
        let spread = self.weight * self.part_squared - self.part.powi(2);
        let per_example_s = (self.weight * self.product - self.part * self.seconds) / spread;
        let constant_s = (self.seconds - per_example_s * self.part) / self.weight;
        if per_example_s < 0.0 {
            return TimeLine {
                constant_s: self.seconds / self.weight,
                per_example_s: 0.0,
            };
        }
        if constant_s < 0.0 {
            return TimeLine {
                constant_s: 0.0,
                per_example_s: self.product / self.part_squared,
            };
        }
        TimeLine {
            constant_s,
            per_example_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: f64 = 50.0;

    fn measured(points: &[(usize, f64)]) -> UpdateTimes {
        let mut times = UpdateTimes::default();
        for (part, seconds) in points {
            (0..10).for_each(|_| times.observe(*part, *seconds, MEMORY));
        }
        times
    }

    fn near(found: f64, expected: f64) {
        assert!(
            (found - expected).abs() < 1e-9 * expected.max(1.0),
            "{found}, {expected}"
        );
    }

    #[test]
    fn line_needs_parts_that_are_apart() {
        assert_eq!(UpdateTimes::default().line(), None);
        let times = measured(&[(100, 1.0), (105, 1.1)]);
        assert_eq!(times.line(), None);
        near(times.mean(105).unwrap(), 1.1);
        assert_eq!(times.mean(104), None);
        assert!(measured(&[(100, 1.0), (112, 1.1)]).line().is_some());
    }

    #[test]
    fn line_goes_through_measured_parts() {
        let line = measured(&[(32, 3.2), (64, 4.4), (128, 6.8)]).line();
        let line = line.unwrap();
        near(line.seconds(0), 2.0);
        near(line.seconds(256), 11.6);
    }

    #[test]
    fn line_has_no_negative_coefficient() {
        let falling = measured(&[(32, 2.0), (64, 1.0)]).line().unwrap();
        near(falling.seconds(1), falling.seconds(1_000));
        assert!((1.0..2.0).contains(&falling.seconds(1)));
        let steep = measured(&[(32, 1.0), (64, 4.0)]).line().unwrap();
        near(steep.seconds(0), 0.0);
        near(steep.seconds(64), 2.0 * steep.seconds(32));
        assert!((1.0..2.0).contains(&steep.seconds(32)));
    }

    #[test]
    fn mean_follows_its_part_and_resists_a_delay() {
        let mut times = measured(&[(32, 1.0)]);
        times.observe(32, 1_000.0, MEMORY);
        let after = times.mean(32).unwrap();
        assert!(after < 1.4, "{after}");
        (0..1_000).for_each(|_| times.observe(32, 2.0, MEMORY));
        let after = times.mean(32).unwrap();
        assert!((after - 2.0).abs() < 0.01, "{after}");
    }

    /// A part that is measured again counts anew.
    #[test]
    fn part_in_use_again_is_measured_again() {
        let mut times = UpdateTimes::default();
        (0..200).for_each(|_| times.observe(32, 1.0, MEMORY));
        (0..10).for_each(|_| times.observe(64, 1.0, MEMORY));
        (0..40).for_each(|_| times.observe(32, 3.0, MEMORY));
        let after = times.mean(32).unwrap();
        assert!((2.5..3.0).contains(&after), "{after}");
        near(times.mean(64).unwrap(), 1.0);
    }

    #[test]
    fn speed_of_the_machine_applies_to_all_parts() {
        let mut times = measured(&[(32, 1.0)]);
        (0..100).for_each(|_| times.observe(64, 1.5, MEMORY));
        (0..1_000).for_each(|_| times.observe(64, 3.0, MEMORY));
        let line = times.line().unwrap();
        let [small, large] = [32, 64].map(|part| line.seconds(part));
        assert!((small - 2.0).abs() < 0.01, "{small}");
        assert!((large - 3.0).abs() < 0.01, "{large}");
    }

    #[test]
    fn times_of_two_lines_add_up() {
        let work = measured(&[(32, 3.2), (64, 6.4)]).line().unwrap();
        let rest = measured(&[(32, 1.0), (64, 1.0)]).line().unwrap();
        near(work.plus(rest).seconds(100), 11.0);
    }
}
