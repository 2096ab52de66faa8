//! Relative speeds of GPU kinds over the families of a tenant.

use super::observation::Observation;
use super::placed_speeds::PlacedSpeeds;
use muster_model::pace::median;
use std::collections::BTreeMap;

/// Relative speeds of pairs of GPU kinds: the median over the families that were measured on both.
/// A single unusual family among several does not decide it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KindRatios {
    /// Logarithm of the speed on the second kind relative to the first. The first name is the
    /// smaller one.
    ln_ratios: BTreeMap<String, BTreeMap<String, f64>>,
}

impl KindRatios {
    /// Learns from the measurements of families. `full_samples` is the number of samples from
    /// which a measurement is fully trusted.
    #[must_use]
    pub fn of<'a>(families: impl Iterator<Item = &'a [Observation]>, full_samples: f64) -> Self {
        let mut all: BTreeMap<String, BTreeMap<String, Vec<f64>>> = BTreeMap::new();
        for family in families {
            // Updates with chosen batches are not comparable. Their steps are observed too.
            let steps = family.iter().filter(|seen| seen.batch.is_none());
            let steps: Vec<Observation> = steps.cloned().collect();
            let speeds = PlacedSpeeds::of(&[], &steps, full_samples);
            let kinds: Vec<&str> = speeds.kinds().map(|(kind, _)| kind).collect();
            for (at, base) in kinds.iter().enumerate() {
                for kind in &kinds[at + 1..] {
                    if let Some(ln_ratio) = speeds.ln_ratio(kind, base) {
                        let of_base = all.entry((*base).to_owned()).or_default();
                        of_base
                            .entry((*kind).to_owned())
                            .or_default()
                            .push(ln_ratio);
                    }
                }
            }
        }
        let ln_ratios = all.into_iter().map(|(base, kinds)| {
            let medians = kinds
                .into_iter()
                .map(|(kind, ratios)| (kind, median(ratios)));
            (base, medians.collect())
        });
        Self {
            ln_ratios: ln_ratios.collect(),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ln_ratios.is_empty()
    }

    /// Returns the logarithm of the speed on `kind` relative to that on `base`. `None` if no family
    /// was measured on both.
    #[must_use]
    pub fn ln_ratio(&self, kind: &str, base: &str) -> Option<f64> {
        let of_pair = |base: &str, kind: &str| self.ln_ratios.get(base)?.get(kind).copied();
        of_pair(base, kind).or_else(|| of_pair(kind, base).map(|ln_ratio| -ln_ratio))
    }
}
