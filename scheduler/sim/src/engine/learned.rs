//! Measured speeds by GPU kind and placement, and durations of restarts, of each job and of its
//! family, as the store would keep them.
//!
//! A stretch between two events is one sample. The true speed of a placement and batch is constant,
//! so the mean over a family is the last measured speed.

use crate::scenario::{ChosenBatch, TaskPlacement};
use muster_core::learn::{CourseNoise, Observation, ObservedBatch};
use muster_core::snapshot::{Restarts, SnapshotFamily, SnapshotJob};
use muster_model::id::TenantId;
use muster_model::progress::course_part;
use std::collections::BTreeMap;

/// Largest weight of one measurement of a job, in samples, as in the store.
const MOST_SAMPLES: f64 = 200.0;

/// Measurements of the families so far, by tenant and key.
#[derive(Debug, Default)]
pub(super) struct LearnedFamilies(BTreeMap<(TenantId, String), LearnedFamily>);

#[derive(Debug, Default)]
struct LearnedFamily {
    speeds: Vec<Observation>,
    /// In examples, by part of the course.
    noises: BTreeMap<u32, f64>,
    restarts: Restarts,
}

impl LearnedFamilies {
    /// Records the samples of a job and of its family. Nothing is recorded for a job without a
    /// family.
    pub(super) fn observe(&mut self, job: &mut SnapshotJob, seen: &[Observation]) {
        if let Some(family) = self.of(job) {
            for seen in seen {
                add(&mut family.speeds, seen);
                add(&mut job.placed_speeds, seen);
            }
        }
    }

    /// Records the gradient noise of a job whose coordinator chooses the batch. The newest noise
    /// counts as much as all earlier ones.
    pub(super) fn noise(&mut self, job: &SnapshotJob) {
        let noise = job.adaptive.and_then(|adaptive| adaptive.noise);
        let (Some(noise), Some(steps)) = (noise, job.progress.max_steps) else {
            return;
        };
        let noise_scale = noise * f64::from(job.batch);
        let part = course_part(job.progress.step, steps);
        if let Some(family) = self.of(job) {
            let known = family.noises.entry(part).or_insert(noise_scale);
            *known = f64::midpoint(*known, noise_scale);
        }
    }

    /// Records a start or a stop of a job.
    pub(super) fn restarted(&mut self, job: &mut SnapshotJob, measured: &Restarts) {
        if let Some(family) = self.of(job) {
            family.restarts.add(measured);
        }
        job.restarts.get_or_insert_default().add(measured);
    }

    fn of(&mut self, job: &SnapshotJob) -> Option<&mut LearnedFamily> {
        let key = (job.tenant, job.family.clone()?);
        Some(self.0.entry(key).or_default())
    }

    /// Families in the order of a snapshot.
    pub(super) fn families(&self) -> Vec<SnapshotFamily> {
        let families = self.0.iter();
        let families = families.map(|((tenant, family), known)| SnapshotFamily {
            tenant: *tenant,
            family: family.clone(),
            speeds: known.speeds.clone(),
            noises: known
                .noises
                .iter()
                .map(|(&part, &noise_scale)| CourseNoise { part, noise_scale })
                .collect(),
            restarts: (known.restarts != Restarts::default()).then_some(known.restarts),
        });
        families.collect()
    }
}

/// One sample of a speed on a placement, in steps. With a chosen batch a second one follows, in
/// updates.
pub(super) fn samples(
    at: TaskPlacement<'_>,
    steps_per_s: f64,
    chosen: Option<ChosenBatch>,
) -> Vec<Observation> {
    let steps = Observation {
        gpu_kind: at.kind.to_owned(),
        workers: at.workers,
        ps_shards: at.ps_shards,
        nodes: at.nodes,
        steps_per_s,
        samples: 1.0,
        batch: None,
    };
    let updates = chosen.map(|chosen| Observation {
        steps_per_s: steps_per_s / (chosen.steps_per_s * chosen.batch.update_s),
        batch: Some(ObservedBatch {
            examples: chosen.batch.examples,
            exchange_s: chosen.batch.exchange_s,
        }),
        ..steps.clone()
    });
    std::iter::once(steps).chain(updates).collect()
}

fn add(known: &mut Vec<Observation>, seen: &Observation) {
    let place = |one: &Observation| {
        let examples = one.batch.map(|batch| batch.examples);
        (one.gpu_kind.clone(), one.size(), one.nodes, examples)
    };
    match known.binary_search_by_key(&place(seen), place) {
        Ok(index) => {
            let known = &mut known[index];
            known.steps_per_s = seen.steps_per_s;
            known.samples = (known.samples + 1.0).min(MOST_SAMPLES);
        }
        Err(index) => known.insert(index, seen.clone()),
    }
}
