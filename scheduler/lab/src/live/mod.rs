//! Rules `live`: runs a workload event by event through the live planner. Each tenant of the trace
//! is a tenant.
//!
//! A trace gives a job's duration on the requested GPUs and nothing about other sizes. A job
//! therefore runs at that size only, unless it is elastic. An elastic job may have up to twice as
//! many GPUs and follows Amdahl's law (see [`SERIAL_SHARE`]). The planner knows a job's steps, as
//! its document states them, and learns its speed while it runs.
//!
//! A job of Pollux' or Sia's workloads trains at its user's batch size, with the speeds of the
//! profiles (`live/profiled.rs`).

mod gpu_use;
mod profiled;

pub use profiled::rules;

use crate::reference_simulators::{Cluster, ContestError, NodeGroup, Profiles};
use crate::run::{AllocationSpan, JobRun, RunNode, SimulationRun};
use crate::trace::{TraceJob, TraceWork, Workload};
use muster_core::policies::name::PolicyName;
use muster_core::policy::{Packing, Policy, Slicing};
use muster_model::spec::{Consistency, Range};
use muster_sim::scenario::{
    Scenario, Sharing, SimJob, SimNode, SimTenant, SpeedFormula, TaskPlacement, TrueSpeed,
};
use muster_sim::simulation_record::SimulationRecord;
use muster_sim::{SimError, simulate_recorded};

/// Milliseconds from a start until all tasks train, as for small models on one machine. A large
/// model reads its checkpoint for longer.
pub const LAUNCH_MS: i64 = 1_000;

/// Milliseconds from a stop order until the checkpoint is written and the processes have exited,
/// for the same models.
const STOP_MS: i64 = 1_000;

/// Milliseconds between rounds without an event. The live interval is shorter, but a trace lasts
/// for months. Only growth waits for such a round, and every event decides on growth too.
pub const ROUND_MS: i64 = 300_000;

/// Same as [`ROUND_MS`] for policies that stop running jobs for jobs of equal priority. Their
/// shortest slice is a minute (Gandiva's quantum).
pub const TURN_MS: i64 = 60_000;

/// Same as [`ROUND_MS`] for profiled jobs: the interval of the published simulators.
pub const PROFILED_ROUND_MS: i64 = 60_000;

/// Same as [`ROUND_MS`] with time slicing. A slice and the trial of a pair take a minute. A pair is
/// formed again one round after its slice begins. A shorter interval would improve packing little
/// and slow the simulation down.
pub const SLICE_ROUND_MS: i64 = 10_000;

/// Milliseconds between reports of steps and of GPU use.
pub const SAMPLE_MS: i64 = 5_000;

/// Steps per second at the requested size; equals the planner's prior for a job of one worker.
const STEPS_PER_S: f64 = 10.0;

/// Share of a step's time at the requested size that more workers do not shorten: twice the workers
/// are 1.82 times as fast. An assumption, because traces contain no such values.
pub const SERIAL_SHARE: f64 = 0.1;

/// Maximum GPUs of an elastic job, as a multiple of the requested GPUs.
pub const MOST_TIMES: u32 = 2;

/// Settings of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LiveRunSettings {
    pub policy: PolicyName,
    /// Jobs may have other sizes than the requested one: up to twice the GPUs with Amdahl's law
    /// ([`SERIAL_SHARE`]), a profiled job from one GPU to the largest useful number.
    pub is_elastic: bool,
    /// The coordinators of profiled jobs choose the batch (`batch_rule: goodput`).
    pub chooses_batch: bool,
    /// Time slicing; `None` switches it off.
    pub slicing: Option<Slicing>,
    /// Time-sliced jobs of one GPU may share it. Their GPU use is drawn from their names
    /// (`live/gpu_use.rs`).
    pub packs: bool,
    /// Seconds from the order to stop a job until its GPUs are free.
    pub stop_s: f64,
    /// End of the run, in seconds from the start of the workload.
    pub until_s: f64,
}

impl LiveRunSettings {
    /// Small models need a second for their checkpoint and the exits of their processes.
    pub const STOP_S: f64 = STOP_MS as f64 / 1e3;

    /// Eleven years: traces last for months, and some of their jobs for weeks.
    pub const UNTIL_S: f64 = 3.5e8;

    fn round_ms(&self, is_profiled: bool) -> i64 {
        if self.slicing.is_some() {
            SLICE_ROUND_MS
        } else if is_profiled {
            PROFILED_ROUND_MS
        } else if self.policy.policy().capabilities().takes_turns {
            TURN_MS
        } else {
            ROUND_MS
        }
    }
}

/// The rules do not support the workload, or the planner broke a rule.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    #[error(
        "job {job} does not say how long it runs on how many GPUs; the live rules take jobs with a GPU and a duration"
    )]
    NoLength { job: String },
    #[error(
        "job {job} uses no GPUs; the live rules simulate jobs with GPUs: leave it out of the workload"
    )]
    NoGpus { job: String },
    #[error(
        "job {job} says how many steps it does and not how long it runs; the live rules take durations"
    )]
    Steps { job: String },
    #[error("job {job} trains a profiled application: its length is in the profiles (--profiles)")]
    NoProfiles { job: String },
    #[error("job {job} asks for {gpus} GPUs, the cluster has {most}")]
    TooLarge { job: String, gpus: u32, most: u32 },
    #[error(
        "the cluster has GPUs of several kinds, and job {job} says how long it runs on one; profiled workloads (--profiles) take several kinds"
    )]
    Kinds { job: String },
    #[error(transparent)]
    Profiles(#[from] ContestError),
    #[error("simulate the workload")]
    Simulate(#[from] SimError),
}

/// Returns the first `most` jobs with a GPU and a known length, and the number of jobs before them
/// that were left out. Traces of clusters contain jobs that never ran.
#[must_use]
pub fn sample(workload: Workload, most: usize) -> (Workload, usize) {
    let Workload { name, jobs } = workload;
    let mut left_out = 0;
    let mut kept = Vec::new();
    for job in jobs {
        if kept.len() == most {
            break;
        }
        if job.gpus > 0 && job.work != TraceWork::Unknown {
            kept.push(job);
        } else {
            left_out += 1;
        }
    }
    (Workload { name, jobs: kept }, left_out)
}

/// Runs a workload to the end of its last job. Workloads of Pollux and Sia need `profiles`. `watch`
/// returns seconds of any clock. `tell` receives the number of ended jobs.
///
/// # Errors
/// [`LiveError`].
pub fn run(
    profiles: Option<&Profiles>,
    workload: &Workload,
    cluster: &Cluster,
    settings: &LiveRunSettings,
    watch: &mut dyn FnMut() -> f64,
    tell: &mut dyn FnMut(usize),
) -> Result<SimulationRun, LiveError> {
    let nodes = nodes(profiles, cluster);
    let mut tenants: Vec<&str> = workload.jobs.iter().map(|job| &*job.tenant).collect();
    tenants.sort_unstable();
    tenants.dedup();
    let mut jobs = Vec::with_capacity(workload.jobs.len());
    for job in &workload.jobs {
        // Always present, because `tenants` lists all of them.
        let tenant = tenants.binary_search(&&*job.tenant).unwrap_or(0);
        jobs.push(match job.work {
            TraceWork::Training { .. } => {
                profiled::sim_job(profiles, cluster, job, tenant, settings)?
            }
            _ => sim_job(job, length_s(cluster, job)?, tenant, settings),
        });
    }
    let is_profiled = jobs.iter().any(|job| job.family.is_some());
    let sharing = settings.packs.then(|| Sharing {
        gpu_memory_bytes: gpu_use::MEMORY_BYTES,
        sample_ms: SAMPLE_MS,
        uses: workload
            .jobs
            .iter()
            .map(|job| gpu_use::drawn(&job.name))
            .collect(),
    });
    let scenario = Scenario {
        nodes: nodes
            .iter()
            .map(|node| SimNode {
                name: node.name.clone(),
                gpus: node.gpus,
                gpu_model: node.kind.clone(),
                rack: None,
                speed: 1.0,
            })
            .collect(),
        tenants: tenants
            .into_iter()
            .map(|name| SimTenant {
                name: name.to_owned(),
                gpu_quota: None,
            })
            .collect(),
        jobs,
        incidents: Vec::new(),
        launch_ms: LAUNCH_MS,
        across_racks: 1.0,
        suspend_ms: 100,
        stop_ms: ms(settings.stop_s),
        sharing,
        round_ms: settings.round_ms(is_profiled),
        until_ms: ms(settings.until_s),
    };
    let policy = Policy {
        // The reasons of waiting jobs are not read here; each costs trial rounds and changes no
        // decision.
        explained_jobs: 0,
        slicing: settings.slicing,
        packing: settings.packs.then(Packing::default),
        ..Policy::named(settings.policy)
    };
    let record = simulate_recorded(&scenario, &policy, watch, tell)?;
    Ok(into_run(workload, settings, &scenario, nodes, record))
}

fn nodes(profiles: Option<&Profiles>, cluster: &Cluster) -> Vec<RunNode> {
    let of_group = cluster.groups.iter().flat_map(|group| {
        let kind = kind(profiles, group).to_owned();
        let gpus = group.gpus;
        (0..group.nodes).map(move |number| RunNode {
            // The planner orders nodes by name, and pictures use that order.
            name: format!("{kind}-{number:05}"),
            kind: kind.clone(),
            gpus,
        })
    });
    of_group.collect()
}

/// GPU kind of a group; without a name that of the profiles.
fn kind<'a>(profiles: Option<&'a Profiles>, group: &'a NodeGroup) -> &'a str {
    let profiled = profiles.and_then(|profiles| profiles.kinds.first());
    let named = group.kind.as_ref().or(profiled);
    named.map_or("gpu", String::as_str)
}

/// Seconds for which the job trains on the requested GPUs.
fn length_s(cluster: &Cluster, job: &TraceJob) -> Result<f64, LiveError> {
    if cluster.groups.len() > 1 {
        return Err(LiveError::Kinds {
            job: job.name.clone(),
        });
    }
    let most = cluster.gpus();
    if job.gpus == 0 {
        return Err(LiveError::NoGpus {
            job: job.name.clone(),
        });
    }
    if job.gpus > most {
        return Err(LiveError::TooLarge {
            job: job.name.clone(),
            gpus: job.gpus,
            most,
        });
    }
    match job.work {
        TraceWork::Seconds { seconds } => Ok(seconds),
        TraceWork::Steps { .. } => Err(LiveError::Steps {
            job: job.name.clone(),
        }),
        TraceWork::Training { .. } | TraceWork::Unknown => Err(LiveError::NoLength {
            job: job.name.clone(),
        }),
    }
}

fn sim_job(job: &TraceJob, length_s: f64, tenant: usize, settings: &LiveRunSettings) -> SimJob {
    let times = if settings.is_elastic { MOST_TIMES } else { 1 };
    // Only jobs of one task share a GPU. Without packing they have no shard either, so that the
    // runs are comparable.
    let ps_shards = match settings.slicing {
        Some(_) if job.gpus == 1 && times == 1 => Range::NONE,
        _ => Range { min: 1, max: 1 },
    };
    let step_s = 1.0 / STEPS_PER_S;
    SimJob {
        name: job.name.clone(),
        tenant,
        priority: 0,
        submitted_ms: ms(job.submitted_s),
        workers: Range {
            min: job.gpus,
            max: job.gpus.saturating_mul(times),
        },
        ps_shards,
        gpus_per_worker: 1,
        retries: 0,
        in_place: false,
        consistency: Consistency::default(),
        batch: job.gpus,
        // Lengths are years at most.
        steps: ((length_s * STEPS_PER_S).round() as u64).max(1),
        checkpoint_steps: 1,
        launch_ms: None,
        family: None,
        speed: TrueSpeed::Formula(SpeedFormula {
            parallel_s: (1.0 - SERIAL_SHARE) * step_s * f64::from(job.gpus),
            serial_s: SERIAL_SHARE * step_s,
            exchange_s: 0.0,
            per_worker_s: 0.0,
            useful_workers: u32::MAX,
        }),
    }
}

fn into_run(
    workload: &Workload,
    settings: &LiveRunSettings,
    scenario: &Scenario,
    nodes: Vec<RunNode>,
    record: SimulationRecord,
) -> SimulationRun {
    let mut gpu_s = vec![0.0; workload.jobs.len()];
    let mut spans = Vec::with_capacity(record.holds.len());
    for hold in &record.holds {
        gpu_s[hold.job] += f64::from(hold.gpus) * seconds(hold.to_ms - hold.from_ms);
        spans.push(AllocationSpan {
            job: u32::try_from(hold.job).unwrap_or(u32::MAX),
            node: hold.node,
            gpus: hold.gpus,
            from_s: seconds(hold.from_ms),
            to_s: seconds(hold.to_ms),
        });
    }
    let outcomes = record.outcome.jobs.iter().zip(&scenario.jobs).zip(gpu_s);
    let jobs = workload.jobs.iter().zip(outcomes);
    let jobs = jobs.map(|(trace, ((outcome, job), gpu_s))| {
        let request_s = takes_s(job, trace.gpus, settings);
        JobRun {
            name: trace.name.clone(),
            application: trace.kind.clone(),
            tenant: trace.tenant.clone(),
            submitted_s: seconds(job.submitted_ms),
            started_s: outcome.sizes.first().map(|&(at_ms, ..)| seconds(at_ms)),
            finished_s: outcome
                .jct_ms
                .map(|jct_ms| seconds(job.submitted_ms + jct_ms)),
            restarts: u32::try_from(outcome.restarts).unwrap_or(u32::MAX),
            gpu_s,
            alone_s: takes_s(job, job.workers.max, settings),
            // By Amdahl's law the smallest size needs the fewest GPU-seconds.
            least_gpu_s: request_s * f64::from(trace.gpus),
            request_gpus: trace.gpus,
            request_s,
        }
    });
    SimulationRun {
        policy: settings.policy.as_str().to_owned(),
        workload: workload.name.clone(),
        nodes,
        jobs: jobs.collect(),
        spans,
        decision_s: record.decision_s,
        end_s: seconds(record.outcome.makespan_ms),
    }
}

/// Seconds for which the job runs on `workers` workers of the fastest kind, with start and stop.
fn takes_s(job: &SimJob, workers: u32, settings: &LiveRunSettings) -> f64 {
    let on = |kind: &str| {
        let at = TaskPlacement {
            kind,
            nodes: 1,
            workers,
            ps_shards: 1,
        };
        job.speed.seconds(at, job.steps as f64)
    };
    let trains_s = match &job.speed {
        TrueSpeed::Formula(_) => on(""),
        TrueSpeed::Table(table) => fastest(table.by_kind.keys(), on),
        TrueSpeed::Goodput(table) => fastest(table.by_kind.keys(), on),
    };
    let launch_ms = job.launch_ms.unwrap_or(LAUNCH_MS);
    seconds(ms(trains_s) + launch_ms + ms(settings.stop_s))
}

fn fastest<'k>(kinds: impl Iterator<Item = &'k String>, seconds_on: impl Fn(&str) -> f64) -> f64 {
    kinds
        .map(|kind| seconds_on(kind))
        .fold(f64::INFINITY, f64::min)
}

/// Times of traces are years at most, far inside an i64 of milliseconds.
fn ms(s: f64) -> i64 {
    (s * 1000.0).round() as i64
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

#[cfg(test)]
mod tests;
