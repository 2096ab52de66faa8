//! Speed of a job on each GPU kind.
//!
//! One kind is the base: that on which the job runs, otherwise the one of which most is known. Its
//! speed is fitted to the measurements on it, and to those on other kinds, converted. Another
//! measured kind is fitted likewise. A kind without measurements has the curve of the base, times
//! the relative speed of the two kinds.

use super::evidence::{Evidence, FamilyEvidence};
use super::speed::Speed;
use super::surface::Size;
use crate::learn::{GoodputModel, PlacedSpeeds, SpreadPenalty, TrustedSpeed, UpdateTimes};
use crate::policy::Policy;
use crate::problem::KindSpeedCurve;
use crate::snapshot::SnapshotJob;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Assumed speed on several nodes relative to one node, before a measurement. It is slightly lower,
/// so that gangs stay together.
pub(crate) const ASSUMED_SPREAD: f64 = 0.98;

/// Trust in a measurement that is converted from another kind, relative to a direct one.
const CONVERTED_TRUST: f64 = 0.5;

/// Loss of speed on several nodes.
#[derive(Debug, Clone)]
enum Spreading {
    Penalty(SpreadPenalty),
    /// Speeds by kind; those of the first kind count for kinds without measurements.
    Curves(BTreeMap<String, Arc<KindSpeedCurve>>),
}

/// Measured kinds and placements of a job.
#[derive(Debug, Clone)]
pub(crate) struct KindEstimates {
    by_kind: BTreeMap<String, KindEstimate>,
    spread: Spreading,
}

#[derive(Debug, Clone)]
enum KindEstimate {
    Fitted(Arc<Speed>),
    /// Speed relative to the base.
    Scaled(f64),
}

impl KindEstimates {
    /// Returns the speed on the base kind, and the speeds on all kinds.
    pub(crate) fn of(
        job: &SnapshotJob,
        evidence: &Evidence,
        policy: &Policy,
    ) -> (Arc<Speed>, Self) {
        Self::along(job, evidence, policy, &|_| None)
    }

    /// Measured kinds have the speeds of their curve, if `curve` returns one.
    fn along(
        job: &SnapshotJob,
        evidence: &Evidence,
        policy: &Policy,
        curve: &dyn Fn(&str) -> Option<Arc<KindSpeedCurve>>,
    ) -> (Arc<Speed>, Self) {
        let full = policy.full_weight_samples.max(1) as f64;
        let placed = PlacedSpeeds::of(&evidence.own, &evidence.family.observations, full);
        let spread = SpreadPenalty::of(&placed, ASSUMED_SPREAD);
        let base = base_of(evidence, &placed);
        let fitting = Fitting {
            job,
            evidence,
            policy,
            curve,
            local: placed
                .kinds()
                .map(|(kind, speeds)| (kind, spread.on_one_node(kind, speeds)))
                .collect(),
            placed,
        };
        let speed = Arc::new(fitting.fit(base));
        let by_kind = evidence.kinds.iter().map(|kind| {
            let estimate = if kind == base {
                KindEstimate::Fitted(Arc::clone(&speed))
            } else if fitting.local.contains_key(kind.as_str()) {
                KindEstimate::Fitted(Arc::new(fitting.fit(kind)))
            } else {
                KindEstimate::Scaled(fitting.ln_ratio(kind, base).exp())
            };
            (kind.clone(), estimate)
        });
        let by_kind = by_kind.collect();
        let curves = evidence.kinds.iter();
        let curves = curves.filter_map(|kind| Some((kind.clone(), curve(kind)?)));
        let curves: BTreeMap<String, Arc<KindSpeedCurve>> = curves.collect();
        let spread = if curves.is_empty() {
            Spreading::Penalty(spread)
        } else {
            Spreading::Curves(curves)
        };
        (speed, Self { by_kind, spread })
    }

    /// Same for a job whose coordinator chooses its batch. The speeds are goodputs, in steps per
    /// second. On kinds with measured batches they follow from the times of updates at all sizes.
    pub(crate) fn of_goodput(
        job: &SnapshotJob,
        evidence: &Evidence,
        goodput: &GoodputModel,
        policy: &Policy,
    ) -> (Arc<Speed>, Self) {
        let mut own = UpdateTimes::default();
        let times = evidence.update_times(&mut own);
        let family = goodput.converted(times, &evidence.family.observations);
        let converted = Evidence {
            own: goodput.converted(times, &evidence.own).into(),
            family: Arc::new(FamilyEvidence::of(family, Vec::new())),
            ..evidence.clone()
        };
        let curve = |kind: &str| times.curve(goodput, kind, job.workers.max);
        Self::along(job, &converted, policy, &curve)
    }

    /// Returns updates per second on one node of a kind, where `base` is the speed on the base
    /// kind.
    pub(crate) fn steps_per_s(&self, kind: &str, base: &Speed, (workers, ps_shards): Size) -> f64 {
        match self.by_kind.get(kind) {
            Some(KindEstimate::Fitted(speed)) => speed.steps_per_s(workers, ps_shards),
            Some(KindEstimate::Scaled(factor)) => factor * base.steps_per_s(workers, ps_shards),
            None => base.steps_per_s(workers, ps_shards),
        }
    }

    /// Returns the speed on one node of each kind relative to `base`; empty if they are equal.
    pub(crate) fn relative(&self, base: &Speed, size: Size) -> BTreeMap<String, f64> {
        let base_steps_per_s = base.steps_per_s(size.0, size.1);
        let kinds = self.by_kind.keys().map(|kind| {
            let steps_per_s = self.steps_per_s(kind, base, size);
            (kind.clone(), steps_per_s / base_steps_per_s)
        });
        let relative: BTreeMap<String, f64> = kinds.collect();
        let differs = relative.values().any(|factor| (factor - 1.0).abs() > 1e-9);
        if differs { relative } else { BTreeMap::new() }
    }

    /// Returns the speed on several nodes relative to one node.
    pub(crate) fn spread_factor(&self, kind: &str, size: Size) -> f64 {
        match &self.spread {
            Spreading::Penalty(penalty) => penalty.factor(kind, size),
            Spreading::Curves(curves) => {
                let curve = curves.get(kind).or_else(|| curves.values().next());
                curve.map_or(ASSUMED_SPREAD, |curve| spread_along(curve, size.0))
            }
        }
    }
}

/// Returns the speed on several nodes relative to one node along a curve.
fn spread_along(curve: &KindSpeedCurve, workers: u32) -> f64 {
    let at = workers.saturating_sub(1) as usize;
    let speeds = curve.spread.get(at).zip(curve.local.get(at));
    match speeds {
        Some((spread, local)) if *local > 0.0 => (spread / local).min(ASSUMED_SPREAD),
        _ => ASSUMED_SPREAD,
    }
}

/// Returns the kind on which the job runs; otherwise that of which most is known, by the job's own
/// measurements first.
fn base_of<'e>(evidence: &'e Evidence, placed: &PlacedSpeeds<'e>) -> &'e str {
    if let Some(present) = &evidence.present {
        return present;
    }
    let own = PlacedSpeeds::of(&evidence.own, &[], 1.0);
    let best = own.best_known_kind().or_else(|| placed.best_known_kind());
    best.unwrap_or_else(|| evidence.kinds.first().map_or("", String::as_str))
}

/// Inputs of the fits of one job.
struct Fitting<'e> {
    job: &'e SnapshotJob,
    evidence: &'e Evidence,
    policy: &'e Policy,
    /// Curves that replace the fitted speeds.
    curve: &'e dyn Fn(&str) -> Option<Arc<KindSpeedCurve>>,
    placed: PlacedSpeeds<'e>,
    /// Speeds by kind and size, as on one node.
    local: BTreeMap<&'e str, BTreeMap<Size, TrustedSpeed>>,
}

impl Fitting<'_> {
    /// Fits the speed on a kind: measured sizes, and sizes that were measured only on other kinds.
    fn fit(&self, kind: &str) -> Speed {
        let mut speeds = self.local.get(kind).cloned().unwrap_or_default();
        let mut converted: BTreeMap<Size, TrustedSpeed> = BTreeMap::new();
        for (&other, sizes) in self.local.iter().filter(|(other, _)| **other != kind) {
            let ln_ratio = self.ln_ratio(kind, other);
            for (&size, &speed) in sizes {
                let speed = TrustedSpeed {
                    ln_speed: speed.ln_speed + ln_ratio,
                    trust: speed.trust * CONVERTED_TRUST,
                };
                let best = converted.entry(size).or_insert(speed);
                if speed.trust > best.trust {
                    *best = speed;
                }
            }
        }
        for (size, speed) in converted {
            speeds.entry(size).or_insert(speed);
        }
        let measured = speeds
            .into_iter()
            .map(|(size, speed)| (size, ((-speed.ln_speed).exp(), speed.trust)))
            .collect();
        let mut speed = Speed::learned(self.job, measured, self.largest_measured(), self.policy);
        speed.curve = (self.curve)(kind);
        speed
    }

    /// Returns the logarithm of the speed on a kind relative to another: measured for this job and
    /// its family, else for the tenant's other families, else compared by the assumed curve, else
    /// equal.
    fn ln_ratio(&self, kind: &str, base: &str) -> f64 {
        let measured = self.placed.ln_ratio(kind, base);
        let known = measured.or_else(|| self.evidence.ratios.ln_ratio(kind, base));
        known.unwrap_or_else(|| {
            let levels = self.level(kind).zip(self.level(base));
            levels.map_or(0.0, |(level, base)| level - base)
        })
    }

    /// Returns the mean logarithm of the measured speeds of a kind relative to the assumed curve.
    fn level(&self, kind: &str) -> Option<f64> {
        let sizes = self.local.get(kind)?;
        let (sum, weight) = sizes
            .iter()
            .fold((0.0, 0.0), |(sum, weight), (&size, speed)| {
                let assumed_s = Speed::assumed_step_s(self.job, size, self.policy);
                let relative = speed.ln_speed + assumed_s.ln();
                (sum + relative * speed.trust, weight + speed.trust)
            });
        (weight > 0.0).then(|| sum / weight)
    }

    /// Returns the largest size up to which the job may grow by what is measured: by itself or its
    /// family. `None` while the job has no own measurement: it may then start at any size.
    fn largest_measured(&self) -> Option<Size> {
        if self.evidence.own.is_empty() {
            return None;
        }
        let sizes = self.local.values().flat_map(BTreeMap::keys);
        let largest = sizes.fold((0, 0), |largest: Size, size| {
            (largest.0.max(size.0), largest.1.max(size.1))
        });
        Some(largest)
    }
}
