//! Inputs of a policy about the jobs, as the outlooks of a dense problem.

use super::profile_curves::{ProfiledKind, adaptive_curve, best_batch, fixed_batch_curve};
use super::training::ReferenceTraining;
use muster_core::learn::{
    BatchSplit, Batching, CurveBounds, CurveCache, Family, NoiseScale, PlacementShape, StepTime,
};
use muster_core::problem::{KindSpeedCurve, ProblemNode, ScalingModel};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Source of a policy's inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservationSource {
    /// The profiles themselves. The authors of the rigid policies and of "Optimus+Oracle" gave them
    /// to their policies.
    Oracle,
    /// Only measurements of the jobs of this run so far.
    Learned(Learning),
}

/// Use of the measurements. All but the first leave something out, to measure its worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learning {
    /// All jobs of an application share a model of each GPU kind.
    Shared,
    /// Each job has its own models. The ratio of the speeds of one GPU of each kind is known.
    PerJob,
    /// As [`Self::PerJob`], and predictions assume batches up to the user's. Jobs run with batches
    /// up to the application's limit. Sia's artefact does both.
    SiaArtefact,
    /// All GPU kinds share one model.
    WithoutKinds,
    /// Nodes do not matter: GPUs on several nodes count as GPUs on one.
    WithoutPlacement,
    /// No job takes more GPUs than it requests or a job of its application had.
    WithoutExploration,
}

impl Learning {
    fn is_per_job(self) -> bool {
        matches!(self, Self::PerJob | Self::SiaArtefact)
    }
}

/// Assumed time on one GPU of a family that never ran, in seconds.
const UNKNOWN_S: f64 = 3600.0;

/// Number of steps into which the course of a training is divided for the cached curves.
const COURSE: f64 = 100.0;

/// Cached curves by family, batching and position in the course: its hundredth, or the epoch
/// if the profiles are known. The version is that of the family that they were computed from.
type Curves<'a> = BTreeMap<(&'a str, Batching, u32), (u64, Arc<[KindSpeedCurve]>)>;

/// Converts trainings to outlooks and learns from them.
pub(super) struct JobObserver<'a> {
    observation_source: ObservationSource,
    kinds: Vec<CurveBounds>,
    families: BTreeMap<&'a str, Family>,
    curves: Curves<'a>,
    /// Caches of the families.
    caches: BTreeMap<&'a str, CurveCache>,
}

impl<'a> JobObserver<'a> {
    pub(super) fn new(
        observation_source: ObservationSource,
        kinds: usize,
        nodes: &[ProblemNode],
    ) -> Self {
        let kinds = (0..kinds).map(|kind| {
            let of_kind = nodes.iter().filter(|node| usize::from(node.kind) == kind);
            let gpus = of_kind.map(|node| node.gpus);
            CurveBounds {
                node_gpus: gpus.clone().max().unwrap_or(0),
                gpus: gpus.sum(),
            }
        });
        Self {
            observation_source,
            kinds: kinds.collect(),
            families: BTreeMap::new(),
            curves: BTreeMap::new(),
            caches: BTreeMap::new(),
        }
    }

    /// Outlook of a job for the policy.
    pub(super) fn outlook(
        &mut self,
        training: &ReferenceTraining<'a>,
        batching: Batching,
    ) -> ScalingModel {
        match self.observation_source {
            ObservationSource::Oracle => match batching {
                Batching::Fixed { batch } => self.true_outlook(training, batch),
                Batching::Adaptive => self.true_adaptive_outlook(training),
            },
            ObservationSource::Learned(learning) => {
                self.learned_outlook(learning, training, batching)
            }
        }
    }

    /// Maximum number of GPUs of a job.
    pub(super) fn most_gpus(&self, training: &ReferenceTraining<'a>, batching: Batching) -> u32 {
        let most = training.rules.most_gpus(training, batching);
        let learning = match self.observation_source {
            ObservationSource::Learned(learning) => learning,
            ObservationSource::Oracle => return most,
        };
        if learning != Learning::WithoutExploration {
            return most;
        }
        let family = self.families.get(learning.family(training));
        let known = family.map_or(0, Family::largest_gpus);
        most.min(training.trace.gpus.max(known))
    }

    /// Current batch of a job.
    pub(super) fn batch(&self, training: &ReferenceTraining<'a>, batching: Batching) -> BatchSplit {
        let gpus = training.gpus();
        match (batching, self.observation_source) {
            (Batching::Fixed { batch }, _) => training.limits().split(batch, gpus),
            (Batching::Adaptive, ObservationSource::Oracle) => best_batch(training),
            (Batching::Adaptive, ObservationSource::Learned(learning)) => {
                let Some(family) = self.families.get(learning.family(training)) else {
                    return training.limits().first(gpus);
                };
                let done = training.share_done(training.application.declared_work());
                let (kind, shape) = learning.seen(training);
                family.batch(kind, shape, training.limits(), done)
            }
        }
    }

    /// Records the step time and the gradient noise of a training job.
    pub(super) fn watch(&mut self, training: &ReferenceTraining<'a>, slowdown: f64) {
        let ObservationSource::Learned(learning) = self.observation_source else {
            return;
        };
        if training.parts.is_empty() || training.restarting_s > 0.0 {
            return;
        }
        let application = training.application;
        let measured = &application.measured[usize::from(training.kind)];
        let Some(time) = measured.step_time(&training.placement(), training.batch.local) else {
            return;
        };
        let total = f64::from(training.batch.total(training.gpus()));
        let noise = application.noise(total, training.epoch.min(application.epochs - 1));
        let done = training.share_done(application.declared_work());
        let family = self
            .families
            .entry(learning.family(training))
            .or_insert_with(|| learning.new_family(training, self.kinds.len()));
        let time = StepTime {
            step_s: time.step_s * slowdown,
            sync_s: time.sync_s * slowdown,
        };
        let (kind, shape) = learning.seen(training);
        family.observe_step(kind, shape, training.batch.local, time);
        family.observe_noise(done, NoiseScale(noise.scale()));
    }

    fn learned_outlook(
        &mut self,
        learning: Learning,
        training: &ReferenceTraining<'a>,
        batching: Batching,
    ) -> ScalingModel {
        let application = training.application;
        let declared = application.declared_work();
        let work_left = (declared - training.progress).max(1.0);
        let name = learning.family(training);
        let family = self.families.get(name);
        let Some(family) = family.filter(|family| family.largest_gpus() > 0) else {
            let unknown = KindSpeedCurve {
                local: vec![declared / UNKNOWN_S],
                spread: Vec::new(),
            };
            return ScalingModel {
                work_done: training.progress,
                work_left,
                uncertainty: 1.0,
                curves: vec![unknown; self.kinds.len()].into(),
                largest_gpus: 0,
                loss: None,
            };
        };
        let done = training.share_done(declared);
        let course = (done * COURSE) as u32;
        let key = (name, batching, course);
        let kept = self.curves.get(&key);
        let curves = match kept {
            Some((version, curves)) if *version == family.version() => Arc::clone(curves),
            _ => {
                let done = f64::from(course) / COURSE;
                let cache = self.caches.entry(name).or_default();
                let curves: Arc<[KindSpeedCurve]> = (0_u16..)
                    .zip(&self.kinds)
                    .map(|(kind, &sizes)| {
                        learning.curve(family, cache, kind, sizes, done, batching)
                    })
                    .collect();
                self.curves
                    .insert(key, (family.version(), Arc::clone(&curves)));
                curves
            }
        };
        ScalingModel {
            work_done: training.progress,
            work_left,
            uncertainty: 0.1,
            curves,
            largest_gpus: family.largest_gpus(),
            loss: None,
        }
    }

    /// Outlook from the profiles: the user's batch size on packed shapes, work counted in the
    /// user's steps.
    fn true_outlook(&mut self, training: &ReferenceTraining<'a>, batch: u32) -> ScalingModel {
        let application = training.application;
        let key = (application.name.as_str(), Batching::Fixed { batch }, 0);
        let curves = self.curves.entry(key).or_insert_with(|| {
            let slowdown = training.rules.slowdown(&application.name);
            let curves = self.kinds.iter().zip(0..).map(|(&sizes, kind)| {
                let profiled = profiled(training, kind);
                slowed(fixed_batch_curve(profiled, batch, sizes), slowdown)
            });
            (0, curves.collect())
        });
        let batch = f64::from(batch);
        // The artefact counts the running epoch as done.
        let done = application.iterations(batch, training.epoch + 1);
        let all = application.iterations(batch, application.epochs);
        known(done, all - done, Arc::clone(&curves.1))
    }

    /// Outlook from the profiles: the best batch at every size, work counted in steps of the
    /// initial batch.
    fn true_adaptive_outlook(&mut self, training: &ReferenceTraining<'a>) -> ScalingModel {
        let application = training.application;
        let key = (
            application.name.as_str(),
            Batching::Adaptive,
            training.epoch,
        );
        let curves = self.curves.entry(key).or_insert_with(|| {
            let slowdown = training.rules.slowdown(&application.name);
            let curves = self.kinds.iter().zip(0..).map(|(&sizes, kind)| {
                let profiled = profiled(training, kind);
                slowed(adaptive_curve(profiled, training.epoch, sizes), slowdown)
            });
            (0, curves.collect())
        });
        let all = application.progress_until(application.epochs);
        known(
            training.progress,
            all - training.progress,
            Arc::clone(&curves.1),
        )
    }
}

fn profiled<'a>(training: &ReferenceTraining<'a>, kind: u16) -> ProfiledKind<'a> {
    ProfiledKind {
        application: training.application,
        rules: training.rules,
        kind,
    }
}

/// Outlook whose curves and work are exact.
fn known(work_done: f64, work_left: f64, curves: Arc<[KindSpeedCurve]>) -> ScalingModel {
    ScalingModel {
        work_done,
        work_left: work_left.max(1.0),
        uncertainty: 0.0,
        curves,
        largest_gpus: u32::MAX,
        loss: None,
    }
}

fn slowed(mut curve: KindSpeedCurve, slowdown: f64) -> KindSpeedCurve {
    let speeds = curve.local.iter_mut().chain(&mut curve.spread);
    speeds.for_each(|speed| *speed /= slowdown);
    curve
}

impl Learning {
    /// Name under which the measurements of a job are collected.
    fn family<'a>(self, training: &ReferenceTraining<'a>) -> &'a str {
        if self.is_per_job() {
            &training.trace.name
        } else {
            &training.application.name
        }
    }

    /// Model without measurements of a job's family, for the first `kinds` GPU kinds.
    fn new_family(self, training: &ReferenceTraining<'_>, kinds: usize) -> Family {
        let application = training.application;
        let mut limits = Vec::with_capacity(kinds);
        for (_, kind) in (0..kinds).zip(0..) {
            let mut of_kind = training.rules.limits(application, kind);
            if let (Self::SiaArtefact, Some(batch)) = (self, training.trace.batch()) {
                of_kind.max = of_kind.max.min(batch.max(of_kind.init));
            }
            limits.push(of_kind);
        }
        let family = Family::new(limits);
        if !self.is_per_job() {
            return family;
        }
        let measured = application.measured.iter().take(kinds);
        let speeds = measured.map(|of_kind| of_kind.speed_of_one_gpu().unwrap_or(1.0));
        family.with_kind_speeds(speeds.collect())
    }

    /// Kind and shape of a job's GPUs as its family records them.
    fn seen(self, training: &ReferenceTraining<'_>) -> (u16, PlacementShape) {
        let kind = if self == Self::WithoutKinds {
            0
        } else {
            training.kind
        };
        let nodes = if self == Self::WithoutPlacement {
            1
        } else {
            u32::try_from(training.parts.len()).unwrap_or(u32::MAX)
        };
        let gpus = training.gpus();
        (kind, PlacementShape { nodes, gpus })
    }

    fn curve(
        self,
        family: &Family,
        cache: &mut CurveCache,
        kind: u16,
        sizes: CurveBounds,
        share_done: f64,
        batching: Batching,
    ) -> KindSpeedCurve {
        if self != Self::WithoutPlacement {
            return family.curve(cache, kind, sizes, share_done, batching);
        }
        let one_node = CurveBounds {
            node_gpus: sizes.gpus,
            ..sizes
        };
        let mut local = family
            .curve(cache, kind, one_node, share_done, batching)
            .local;
        let spread = local.clone();
        local.truncate(sizes.node_gpus as usize);
        KindSpeedCurve { local, spread }
    }
}
