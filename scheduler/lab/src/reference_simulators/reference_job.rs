//! A job in the loop: its submission, its training and its result.

use super::application::Application;
use super::contestant::{Cluster, ContestError, Contestant};
use super::lower_bound::{Class, JobLowerBound};
use super::profiles::Profiles;
use super::rules::{SimulatorRules, TICK_S};
use super::training::ReferenceTraining;
use crate::run::JobRun;
use crate::trace::{TraceJob, TraceWork};
use muster_core::learn::{BatchSplit, Batching};

pub(super) struct ReferenceJob<'a> {
    pub trace: &'a TraceJob,
    pub tenant: u32,
    pub batching: Batching,
    pub training: ReferenceTraining<'a>,
    pub lower_bound: JobLowerBound,
    pub request_s: f64,
    /// Time of the first decision after the job reached Tiresias' service threshold.
    pub demoted_s: Option<f64>,
}

impl ReferenceJob<'_> {
    pub(super) fn outcome(&self, rules: SimulatorRules) -> JobRun {
        let training = &self.training;
        let submitted_s = self.trace.submitted_s;
        // A job can start at the next tick; the first tick is at `TICK_S`.
        let first_tick_s = (submitted_s / TICK_S).ceil().max(1.0) * TICK_S;
        let start_s = first_tick_s - submitted_s + rules.restart_s(&training.application.name);
        JobRun {
            name: self.trace.name.clone(),
            application: training.application.name.clone(),
            tenant: self.trace.tenant.clone(),
            submitted_s,
            started_s: training.started_s,
            finished_s: training.finished_s,
            restarts: training.restarts.unwrap_or(0),
            gpu_s: training.held_gpu_s,
            alone_s: self.lower_bound.alone_s + start_s,
            least_gpu_s: self.lower_bound.gpu_s,
            request_gpus: self.trace.gpus,
            request_s: self.request_s,
        }
    }
}

impl Contestant {
    pub(super) fn class(&self, batch: u32, gpus: u32) -> Class {
        match (self.adapts_batch, self.is_elastic) {
            (true, _) => Class::Adaptive,
            (false, true) => Class::Elastic { batch },
            (false, false) => Class::Rigid { batch, gpus },
        }
    }

    pub(super) fn batching(&self, batch: u32) -> Batching {
        if self.adapts_batch {
            Batching::Adaptive
        } else {
            Batching::Fixed { batch }
        }
    }
}

pub(super) fn training_of<'a>(
    profiles: &'a Profiles,
    cluster: &Cluster,
    trace: &TraceJob,
) -> Result<(&'a Application, u32), ContestError> {
    let TraceWork::Training { batch } = trace.work else {
        return Err(ContestError::NoTraining {
            job: trace.name.clone(),
        });
    };
    let application =
        profiles
            .applications
            .get(&trace.kind)
            .ok_or_else(|| ContestError::UnknownApplication {
                job: trace.name.clone(),
                application: trace.kind.clone(),
                known: profiles
                    .applications
                    .keys()
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(", "),
            })?;
    if trace.gpus > cluster.gpus() {
        return Err(ContestError::TooLarge {
            job: trace.name.clone(),
            gpus: trace.gpus,
            most: cluster.gpus(),
        });
    }
    Ok((application, batch))
}

pub(super) fn fresh<'a>(
    application: &'a Application,
    rules: SimulatorRules,
    kinds: usize,
    trace: &'a TraceJob,
) -> ReferenceTraining<'a> {
    ReferenceTraining {
        application,
        rules,
        trace,
        parts: Vec::new(),
        kind: 0,
        batch: BatchSplit {
            local: application.min_local,
            accumulated: 0,
        },
        restarting_s: 0.0,
        progress: 0.0,
        epoch: 0,
        finished_s: None,
        held_gpu_s: 0.0,
        held_s: vec![0.0; kinds],
        restarts: None,
        started_s: None,
        since_s: trace.submitted_s,
    }
}
