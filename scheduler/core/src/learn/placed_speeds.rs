//! Speeds of a job by GPU kind and placement, from its own measurements and those of its family.
//!
//! All means are geometric, because kinds and placements differ by factors.

use super::observation::{Observation, Size, Spread};
use std::collections::BTreeMap;

/// Weight of the assumption that a job is as fast as its family, in sizes measured with full
/// trust.
const FAMILY_LEVEL_WEIGHT: f64 = 0.5;
/// Smallest number of samples of the other jobs of a family that counts. It is above the rounding
/// errors of the difference.
const LEAST_SAMPLES: f64 = 0.5;

/// Size, and whether the workers are on several nodes.
pub type Place = (Size, Spread);

/// Measured speed with its trust.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrustedSpeed {
    /// Logarithm of updates per second.
    pub ln_speed: f64,
    /// From above 0 to 1: 1 from a given number of samples on.
    pub trust: f64,
}

/// Speeds of a job by GPU kind and placement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlacedSpeeds<'a> {
    by_kind: BTreeMap<&'a str, BTreeMap<Place, TrustedSpeed>>,
}

/// Sum over samples at one place.
#[derive(Debug, Clone, Copy, Default)]
struct SampleSum {
    /// Sum of the logarithms of the speeds.
    ln_speed: f64,
    samples: f64,
}

type SampleSums<'a> = BTreeMap<(&'a str, Place), SampleSum>;

impl<'a> PlacedSpeeds<'a> {
    /// Returns the speeds measured by the job itself, completed by those of its family.
    /// `full_samples` is the number of samples from which a measurement is fully trusted.
    ///
    /// The part of the family at a place falls as the job's own samples grow. If the job is faster
    /// or slower than its family where both were measured, it is assumed to be so elsewhere.
    /// `family` may cover the job too: it then counts with the number of the other samples. Its
    /// mean stays as it is, because it may be older than the own samples or lack some of them.
    #[must_use]
    pub fn of(own: &'a [Observation], family: &'a [Observation], full_samples: f64) -> Self {
        let own = sums(own);
        let mut others = sums(family);
        for (at, known) in &own {
            if let Some(sum) = others.get_mut(at) {
                *sum = sum.without(known.samples);
            }
        }
        others.retain(|_, sum| sum.samples >= LEAST_SAMPLES);
        let level = level_above(&own, &others, full_samples);
        let mut by_kind: BTreeMap<&str, BTreeMap<Place, TrustedSpeed>> = BTreeMap::new();
        for (&(kind, place), sum) in &own {
            let speeds = by_kind.entry(kind).or_default();
            speeds.insert(place, sum.mean(full_samples));
        }
        for (&(kind, place), sum) in &others {
            let mut theirs = sum.mean(full_samples);
            theirs.ln_speed += level;
            let speeds = by_kind.entry(kind).or_default();
            let known = speeds.get(&place);
            let speed = known.map_or(theirs, |known| known.completed_by(theirs));
            speeds.insert(place, speed);
        }
        Self { by_kind }
    }

    /// Returns the measured kinds with their speeds, in order.
    pub fn kinds(&self) -> impl Iterator<Item = (&'a str, &BTreeMap<Place, TrustedSpeed>)> {
        self.by_kind.iter().map(|(&kind, speeds)| (kind, speeds))
    }

    /// Returns the speeds on a kind; `None` if it was not measured.
    #[must_use]
    pub fn on(&self, kind: &str) -> Option<&BTreeMap<Place, TrustedSpeed>> {
        self.by_kind.get(kind)
    }

    /// Returns the kind with the most trust over all places; `None` without measurements.
    #[must_use]
    pub fn best_known_kind(&self) -> Option<&'a str> {
        let trusts = self.by_kind.iter().rev().map(|(&kind, speeds)| {
            let trust: f64 = speeds.values().map(|speed| speed.trust).sum();
            (kind, trust)
        });
        let best = trusts.max_by(|a, b| a.1.total_cmp(&b.1));
        best.map(|(kind, _)| kind)
    }

    /// Returns the logarithm of the speed on `kind` relative to that on `base`: the mean over the
    /// places that were measured on both. `None` if there is none.
    #[must_use]
    pub fn ln_ratio(&self, kind: &str, base: &str) -> Option<f64> {
        let (speeds, bases) = (self.on(kind)?, self.on(base)?);
        let common = speeds.iter().filter_map(|(place, speed)| {
            let base = bases.get(place)?;
            let weight = speed.trust.min(base.trust);
            Some((speed.ln_speed - base.ln_speed, weight))
        });
        weighted_mean(common)
    }
}

impl SampleSum {
    /// Returns the sum with the same mean over fewer samples; empty if none is left.
    fn without(self, samples: f64) -> Self {
        let rest = self.samples - samples;
        if rest < LEAST_SAMPLES {
            return Self::default();
        }
        Self {
            ln_speed: self.ln_speed * rest / self.samples,
            samples: rest,
        }
    }

    fn mean(self, full_samples: f64) -> TrustedSpeed {
        TrustedSpeed {
            ln_speed: self.ln_speed / self.samples,
            trust: (self.samples / full_samples).min(1.0),
        }
    }
}

impl TrustedSpeed {
    /// Returns the mean with a speed that counts only as far as this one is not trusted.
    fn completed_by(self, other: Self) -> Self {
        let rest = (1.0 - self.trust) * other.trust;
        let trust = self.trust + rest;
        Self {
            ln_speed: (self.trust * self.ln_speed + rest * other.ln_speed) / trust,
            trust,
        }
    }
}

fn sums(observations: &[Observation]) -> SampleSums<'_> {
    let mut sums = SampleSums::new();
    for observation in observations.iter().filter(|one| one.is_usable()) {
        let place = (observation.size(), observation.spread());
        let sum = sums.entry((&observation.gpu_kind, place)).or_default();
        sum.ln_speed += observation.samples * observation.steps_per_s.ln();
        sum.samples += observation.samples;
    }
    sums
}

/// Returns the logarithm of the job's speed relative to its family: the mean over the places that
/// were measured for both, and over the assumption that they are equal.
fn level_above(own: &SampleSums<'_>, family: &SampleSums<'_>, full_samples: f64) -> f64 {
    let common = own.iter().filter_map(|(at, sum)| {
        let (own, theirs) = (sum.mean(full_samples), family.get(at)?.mean(full_samples));
        Some((own.ln_speed - theirs.ln_speed, own.trust.min(theirs.trust)))
    });
    weighted_mean(common.chain([(0.0, FAMILY_LEVEL_WEIGHT)])).unwrap_or(0.0)
}

/// Returns the mean of (value, weight) pairs; `None` without weight.
pub(super) fn weighted_mean(values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (sum, weight) = values.fold((0.0, 0.0), |(sum, total), (value, weight)| {
        (sum + value * weight, total + weight)
    });
    (weight > 0.0).then(|| sum / weight)
}

#[cfg(test)]
mod tests;
