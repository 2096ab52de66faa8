//! Speed of workers on several nodes relative to one node.

use super::observation::{Size, Spread};
use super::placed_speeds::{Place, PlacedSpeeds, TrustedSpeed, weighted_mean};
use std::collections::BTreeMap;

/// Limits of the relative speed. A gang is never assumed to gain from more nodes.
const LEAST: f64 = 0.05;
const MOST: f64 = 1.0;

/// Relative speed on several nodes, by GPU kind and size where it was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct SpreadPenalty {
    /// Logarithm of the relative speed where no size was measured on both.
    ln_usual: f64,
    ln_measured: BTreeMap<String, BTreeMap<Size, f64>>,
}

impl SpreadPenalty {
    /// Learns the penalty from sizes that were measured on one node and on several. `assumed` is
    /// the relative speed before a measurement. It counts only as far as the measurements are not
    /// fully trusted.
    #[must_use]
    pub fn of(speeds: &PlacedSpeeds<'_>, assumed: f64) -> Self {
        let mut pairs: Vec<(f64, f64)> = Vec::new();
        let mut ln_measured: BTreeMap<String, BTreeMap<Size, f64>> = BTreeMap::new();
        for (kind, of_kind) in speeds.kinds() {
            for (size, ln_relative, trust) in pairs_of(of_kind) {
                pairs.push((ln_relative, trust));
                let known = trust * ln_relative + (1.0 - trust) * assumed.ln();
                let measured = ln_measured.entry(kind.to_owned()).or_default();
                measured.insert(size, known);
            }
        }
        let trust: f64 = pairs.iter().map(|(_, trust)| trust).sum();
        let left = (1.0 - trust).max(0.0);
        let pairs = pairs.into_iter().chain([(assumed.ln(), left)]);
        Self {
            ln_usual: weighted_mean(pairs).unwrap_or(assumed.ln()),
            ln_measured,
        }
    }

    /// Returns the speed on several nodes relative to one node: 0.05 to 1.
    #[must_use]
    pub fn factor(&self, kind: &str, size: Size) -> f64 {
        let measured = self.ln_measured.get(kind);
        let measured = measured.and_then(|sizes| sizes.get(&size));
        measured.unwrap_or(&self.ln_usual).exp().clamp(LEAST, MOST)
    }

    /// Returns the speeds of a kind by size as on one node. Where only the speed on several nodes
    /// was measured, the penalty is divided out.
    #[must_use]
    pub fn on_one_node(
        &self,
        kind: &str,
        speeds: &BTreeMap<Place, TrustedSpeed>,
    ) -> BTreeMap<Size, TrustedSpeed> {
        let mut local = BTreeMap::new();
        // `OneNode` precedes `Nodes` at each size.
        for (&(size, spread), &speed) in speeds {
            let ln_factor = match spread {
                Spread::OneNode => 0.0,
                Spread::Nodes => self.factor(kind, size).ln(),
            };
            local.entry(size).or_insert(TrustedSpeed {
                ln_speed: speed.ln_speed - ln_factor,
                ..speed
            });
        }
        local
    }
}

/// Returns the sizes that were measured on one node and on several: logarithm of the relative
/// speed, and its trust.
fn pairs_of(speeds: &BTreeMap<Place, TrustedSpeed>) -> impl Iterator<Item = (Size, f64, f64)> + '_ {
    let local = speeds
        .iter()
        .filter(|((_, spread), _)| *spread == Spread::OneNode);
    local.filter_map(|(&(size, _), local)| {
        let spread = speeds.get(&(size, Spread::Nodes))?;
        let trust = local.trust.min(spread.trust);
        Some((size, spread.ln_speed - local.ln_speed, trust))
    })
}
