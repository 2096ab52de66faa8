//! Simulation loop: every minute the jobs advance, then the policy decides.

use super::contestant::{Cluster, ContestError, Contestant};
use super::lower_bound::{Class, lower_bound};
use super::observation::JobObserver;
use super::profiles::Profiles;
use super::reference_job::{ReferenceJob, fresh, training_of};
use super::rules::{SimulatorRules, TICK_S};
use crate::run::{AllocationSpan, RunNode, SimulationRun};
use crate::trace::Workload;
use muster_core::policies::tiresias::DEMOTED_GPU_S;
use muster_core::problem::{
    Demand, NodeAllocation, ProblemJob, ProblemNode, ProblemTenant, SchedulingProblem,
};
use std::collections::BTreeMap;

/// Progress of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulationProgress {
    pub now_s: f64,
    pub finished: usize,
    pub jobs: usize,
}

/// Settings that are equal for all contestants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReferenceSettings {
    pub rules: SimulatorRules,
    /// Share of speed that a job on several nodes loses if it meets another such job on a node.
    pub interference: f64,
    /// End of the run, in seconds from the start of the workload.
    pub until_s: f64,
}

impl ReferenceSettings {
    /// Longer than any published run. A job without an end by then is starving.
    pub const UNTIL_S: f64 = 3.0e6;
}

/// Runs a workload under a policy to the end of its last job. `watch` returns seconds of any clock.
/// `tell` receives the progress of every tick.
///
/// # Errors
/// [`ContestError`] if the profiles do not know an application or a GPU kind.
pub fn run(
    profiles: &Profiles,
    workload: &Workload,
    cluster: &Cluster,
    settings: &ReferenceSettings,
    contestant: &Contestant,
    watch: &mut dyn FnMut() -> f64,
    tell: &mut dyn FnMut(SimulationProgress),
) -> Result<SimulationRun, ContestError> {
    let mut ticking = Ticking::new(profiles, workload, cluster, settings.rules, contestant)?;
    while ticking.finished < workload.jobs.len() && ticking.now_s < settings.until_s {
        ticking.advance(settings.interference);
        ticking.decide(watch);
        tell(SimulationProgress {
            now_s: ticking.now_s,
            finished: ticking.finished,
            jobs: workload.jobs.len(),
        });
    }
    Ok(ticking.into_run(workload, cluster))
}

struct Ticking<'a> {
    contestant: &'a Contestant,
    rules: SimulatorRules,
    now_s: f64,
    nodes: Vec<ProblemNode>,
    kinds: Vec<String>,
    tenants: Vec<&'a str>,
    /// In the order of the workload.
    jobs: Vec<ReferenceJob<'a>>,
    /// Submitted jobs that have not finished, in order of submission.
    active: Vec<usize>,
    finished: usize,
    observer: JobObserver<'a>,
    history_gpu_s: Vec<f64>,
    spans: Vec<AllocationSpan>,
    decision_s: Vec<f64>,
}

impl<'a> Ticking<'a> {
    fn new(
        profiles: &'a Profiles,
        workload: &'a Workload,
        cluster: &Cluster,
        rules: SimulatorRules,
        contestant: &'a Contestant,
    ) -> Result<Self, ContestError> {
        let nodes = cluster.nodes(profiles)?;
        let mut tenants: Vec<&str> = Vec::new();
        let mut lower_bounds = BTreeMap::new();
        let mut jobs = Vec::with_capacity(workload.jobs.len());
        for trace in &workload.jobs {
            let known = tenants.iter().position(|name| *name == trace.tenant);
            let tenant = known.unwrap_or_else(|| {
                tenants.push(&trace.tenant);
                tenants.len() - 1
            });
            let tenant = u32::try_from(tenant).unwrap_or(u32::MAX);
            let (application, batch) = training_of(profiles, cluster, trace)?;
            let requested = Class::Rigid {
                batch,
                gpus: trace.gpus,
            };
            let classes = [requested, contestant.class(batch, trace.gpus)];
            let [at_request, of_class] = classes.map(|class| {
                *lower_bounds
                    .entry((application.name.as_str(), class))
                    .or_insert_with(|| lower_bound(application, rules, &nodes, class))
            });
            jobs.push(ReferenceJob {
                trace,
                tenant,
                batching: contestant.batching(batch),
                lower_bound: of_class,
                request_s: at_request.alone_s,
                demoted_s: None,
                training: fresh(application, rules, profiles.kinds.len(), trace),
            });
        }
        Ok(Self {
            contestant,
            rules,
            now_s: 0.0,
            observer: JobObserver::new(contestant.observation_source, profiles.kinds.len(), &nodes),
            nodes,
            kinds: profiles.kinds.clone(),
            tenants,
            jobs,
            active: Vec::new(),
            finished: 0,
            history_gpu_s: Vec::new(),
            spans: Vec::new(),
            decision_s: Vec::new(),
        })
    }

    /// Trains all jobs for a tick, advances the clock and adds new jobs.
    fn advance(&mut self, interference: f64) {
        let crowded = self.crowded(interference);
        let Self { jobs, observer, .. } = self;
        for (&index, slowed) in self.active.iter().zip(crowded) {
            let ReferenceJob {
                training, batching, ..
            } = &mut jobs[index];
            let factor = if slowed { interference } else { 0.0 };
            training.advance(self.now_s, TICK_S, factor, |training| {
                observer.batch(training, *batching)
            });
            observer.watch(training, self.rules.slowdown(&training.application.name));
        }
        self.now_s += TICK_S;
        for &index in &self.active {
            let training = &mut self.jobs[index].training;
            let Some(end_s) = training.finished_s else {
                continue;
            };
            self.finished += 1;
            self.history_gpu_s.push(training.held_gpu_s);
            let parts = std::mem::take(&mut training.parts);
            record(&mut self.spans, index, &parts, training.since_s, end_s);
        }
        let jobs = &self.jobs;
        self.active = (0..jobs.len())
            .filter(|&index| {
                jobs[index].trace.submitted_s <= self.now_s
                    && jobs[index].training.finished_s.is_none()
            })
            .collect();
        // A stable sort: jobs of one instant keep the order of the workload.
        self.active.sort_by(|&a, &b| {
            jobs[a]
                .trace
                .submitted_s
                .total_cmp(&jobs[b].trace.submitted_s)
        });
    }

    /// For each active job, whether it spans several nodes and shares one with another such job.
    fn crowded(&self, interference: f64) -> Vec<bool> {
        let mut guests = vec![0_u32; self.nodes.len()];
        if interference > 0.0 {
            let trainings = self.active.iter().map(|&index| &self.jobs[index].training);
            for training in trainings.filter(|training| training.spans_nodes()) {
                for part in &training.parts {
                    guests[part.node as usize] += 1;
                }
            }
        }
        let crowded = self.active.iter().map(|&index| {
            let training = &self.jobs[index].training;
            let mut parts = training.parts.iter();
            training.spans_nodes() && parts.any(|part| guests[part.node as usize] > 1)
        });
        crowded.collect()
    }

    fn decide(&mut self, watch: &mut dyn FnMut() -> f64) {
        let began_s = watch();
        let problem = self.problem();
        let decision = self.contestant.share.allocate(&problem);
        self.decision_s.push(watch() - began_s);
        for (position, parts) in decision.parts.into_iter().enumerate() {
            let Some(parts) = parts else { continue };
            let index = self.active[position];
            let kind = parts
                .first()
                .map(|part| self.nodes[part.node as usize].kind);
            let ReferenceJob {
                training, batching, ..
            } = &mut self.jobs[index];
            if parts == training.parts {
                continue;
            }
            record(
                &mut self.spans,
                index,
                &training.parts,
                training.since_s,
                self.now_s,
            );
            training.reallocate(self.now_s, parts, kind.unwrap_or(training.kind));
            if !training.parts.is_empty() {
                training.batch = self.observer.batch(training, *batching);
            }
        }
    }

    fn problem(&mut self) -> SchedulingProblem {
        let mut jobs = Vec::with_capacity(self.active.len());
        for &index in &self.active {
            let entry = &mut self.jobs[index];
            if entry.training.held_gpu_s >= DEMOTED_GPU_S {
                entry.demoted_s.get_or_insert(self.now_s);
            }
            let training = &entry.training;
            let restarting = self.rules.holds_restarting() && training.restarting_s > 0.0;
            jobs.push(ProblemJob {
                tenant: entry.tenant,
                priority: 0,
                submitted_s: entry.trace.submitted_s,
                unit: Demand::GPU,
                min_gpus: 1,
                max_gpus: self.observer.most_gpus(training, entry.batching),
                request_gpus: entry.trace.gpus,
                present: training.parts.clone(),
                since_s: training.since_s,
                fixed: restarting && !training.parts.is_empty(),
                attained_gpu_s: training.held_gpu_s,
                demoted_s: entry.demoted_s,
                held_s: training.held_s.clone(),
                restarts: training.restarts.unwrap_or(0),
                restart_s: self.rules.restart_s(&training.application.name),
                restart_cost_factor: 1.0,
                at_risk_s: 0.0,
                preemptible: true,
                trial: None,
                outlook: self.observer.outlook(training, entry.batching),
            });
        }
        SchedulingProblem {
            node_sets: [].into(),
            now_s: self.now_s,
            round_s: TICK_S,
            kinds: self.kinds.clone(),
            nodes: self.nodes.clone(),
            tenants: vec![
                ProblemTenant {
                    weight: 1.0,
                    gpu_quota: None,
                    parent: None,
                };
                self.tenants.len()
            ],
            jobs,
            history_gpu_s: self.history_gpu_s.clone(),
        }
    }

    fn into_run(mut self, workload: &Workload, cluster: &Cluster) -> SimulationRun {
        for (index, entry) in self.jobs.iter().enumerate() {
            let training = &entry.training;
            record(
                &mut self.spans,
                index,
                &training.parts,
                training.since_s,
                self.now_s,
            );
        }
        let last_s = self
            .jobs
            .iter()
            .filter_map(|entry| entry.training.finished_s);
        let end_s = last_s.fold(0.0, f64::max);
        SimulationRun {
            policy: self.contestant.name.clone(),
            workload: workload.name.clone(),
            nodes: run_nodes(cluster, &self.kinds),
            jobs: self
                .jobs
                .iter()
                .map(|entry| entry.outcome(self.rules))
                .collect(),
            spans: self.spans,
            decision_s: self.decision_s,
            end_s: if self.finished < self.jobs.len() {
                self.now_s
            } else {
                end_s
            },
        }
    }
}

fn record(
    spans: &mut Vec<AllocationSpan>,
    job: usize,
    parts: &[NodeAllocation],
    from_s: f64,
    to_s: f64,
) {
    let job = u32::try_from(job).unwrap_or(u32::MAX);
    spans.extend(parts.iter().map(|part| AllocationSpan {
        job,
        node: part.node,
        gpus: part.gpus,
        from_s,
        to_s,
    }));
}

fn run_nodes(cluster: &Cluster, kinds: &[String]) -> Vec<RunNode> {
    let mut nodes = Vec::new();
    for group in &cluster.groups {
        let kind = group.kind.clone().unwrap_or_else(|| kinds[0].clone());
        nodes.extend((0..group.nodes).map(|number| RunNode {
            name: format!("{kind}-{number}"),
            kind: kind.clone(),
            gpus: group.gpus,
        }));
    }
    nodes
}
