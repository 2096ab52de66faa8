//! Effect of a change: forecasts of the present without and with it, with the same random numbers.

use crate::cancel::Cancel;
use crate::forecast::{
    ForecastInterval, ForecastRunError, ForecastSettings, JobForecast, forecast,
};
use muster_core::policy::Policy;
use muster_core::snapshot::{
    ClusterSnapshot, PastDuration, Progress, SnapshotJob, SnapshotNode, SnapshotService,
    TrainingLength,
};
use muster_model::family::Family;
use muster_model::id::{JobId, NodeId, TenantId};
use muster_model::job::{Intent, JobState};
use muster_model::spec::JobSpec;
use serde::Serialize;
use uuid::Uuid;

/// Evidence of earlier jobs of a document: duration of a program without steps; steps and speed of
/// other jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DocumentHistory {
    pub lasts: Option<TrainingLength>,
    pub ran: Option<PastDuration>,
}

/// Assumed change of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum WhatIfChange {
    /// Adds nodes with `gpus` GPUs each, otherwise like the largest open node.
    AddNodes { nodes: u32, gpus: u32 },
    /// `None` removes the limit.
    Quota {
        tenant: String,
        gpu_quota: Option<u32>,
    },
    AddJob {
        tenant: String,
        spec: Box<JobSpec>,
        /// First step, if the job starts from another job's checkpoint.
        begins: u64,
        /// Evidence of earlier jobs of the document.
        past: DocumentHistory,
    },
}

/// Forecasts without and with the changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WhatIfComparison {
    /// Start of both forecasts, Unix time in milliseconds.
    pub now_ms: i64,
    pub tenants: Vec<TenantOutlook>,
    /// Existing jobs by submission, then the added jobs.
    pub jobs: Vec<JobOutlook>,
}

/// Means over a tenant's jobs with a predicted end in both cases, in seconds from submission.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TenantOutlook {
    pub tenant: String,
    pub jobs: u32,
    /// Until the first start, over jobs that have not started; `None` without such jobs.
    pub wait_s: Option<BeforeAfter>,
    pub jct_s: Option<BeforeAfter>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BeforeAfter {
    pub before: f64,
    pub after: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobOutlook {
    pub job: JobId,
    pub name: String,
    pub tenant: String,
    /// `None` for an added job.
    pub before: Option<JobForecast>,
    pub after: JobForecast,
}

/// Error of a planning question.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    #[error("there is no tenant {name}")]
    NoSuchTenant { name: String },
    #[error("there is no node to take for a model of the added ones")]
    NoNode,
    #[error(transparent)]
    Run(#[from] ForecastRunError),
}

/// Forecasts the snapshot without and with the changes. Polls `cancel` between simulated rounds.
///
/// # Errors
/// [`WhatIfError`].
pub fn what_if(
    snapshot: &ClusterSnapshot,
    changes: &[WhatIfChange],
    policy: &Policy,
    settings: &ForecastSettings,
    cancel: &Cancel,
) -> Result<WhatIfComparison, WhatIfError> {
    let mut changed = snapshot.clone();
    for (number, change) in (0_u64..).zip(changes) {
        carry_out(&mut changed, change, number)?;
    }
    changed.sort();
    let before = forecast(snapshot, &[], policy, settings, cancel)?;
    let after = forecast(&changed, &[], policy, settings, cancel)?;
    let jobs: Vec<JobOutlook> = changed
        .jobs
        .iter()
        .zip(after)
        .map(|(job, after)| JobOutlook {
            job: job.id,
            name: job.name.clone(),
            tenant: tenant_name(snapshot, job.tenant),
            before: before.iter().find(|one| one.job == job.id).cloned(),
            after,
        })
        .collect();
    let tenants = changed
        .tenants
        .iter()
        .map(|tenant| outlook(&tenant.name, &jobs, &changed))
        .filter(|outlook| outlook.jobs > 0);
    Ok(WhatIfComparison {
        now_ms: snapshot.now_ms,
        tenants: tenants.collect(),
        jobs,
    })
}

/// Name of the tenant; its id if the snapshot does not contain it.
fn tenant_name(snapshot: &ClusterSnapshot, id: TenantId) -> String {
    let found = snapshot.tenants.iter().find(|tenant| tenant.id == id);
    found.map_or_else(|| id.to_string(), |tenant| tenant.name.clone())
}

fn carry_out(
    snapshot: &mut ClusterSnapshot,
    change: &WhatIfChange,
    number: u64,
) -> Result<(), WhatIfError> {
    match change {
        WhatIfChange::AddNodes { nodes, gpus } => {
            let open = snapshot.nodes.iter().filter(|node| node.is_open());
            let model = open.max_by_key(|node| node.gpus).cloned();
            let model = model.ok_or(WhatIfError::NoNode)?;
            snapshot.nodes.extend((0..*nodes).map(|index| SnapshotNode {
                id: NodeId(Uuid::from_u64_pair(u64::MAX - number, u64::from(index))),
                name: format!("added-{number}-{index}"),
                gpus: *gpus,
                taken: Vec::new(),
                speed: None,
                ..model.clone()
            }));
        }
        WhatIfChange::Quota { tenant, gpu_quota } => {
            let id = tenant_id(snapshot, tenant)?;
            let mut tenants = snapshot.tenants.iter_mut();
            if let Some(found) = tenants.find(|one| one.id == id) {
                found.gpu_quota = *gpu_quota;
            }
        }
        WhatIfChange::AddJob {
            tenant,
            spec,
            begins,
            past,
        } => {
            let id = tenant_id(snapshot, tenant)?;
            let job = JobId(Uuid::from_u64_pair(u64::MAX - number, 0));
            let mut job = submitted(job, id, spec, snapshot.now_ms);
            job.progress.step = *begins;
            job.lasts = past.lasts.or(job.lasts);
            job.ran = past.ran;
            snapshot.jobs.push(job);
        }
    }
    Ok(())
}

fn tenant_id(snapshot: &ClusterSnapshot, name: &str) -> Result<TenantId, WhatIfError> {
    let found = snapshot.tenants.iter().find(|tenant| tenant.name == name);
    found
        .map(|tenant| tenant.id)
        .ok_or_else(|| WhatIfError::NoSuchTenant {
            name: name.to_owned(),
        })
}

/// Job as a round sees it directly after its submission.
fn submitted(id: JobId, tenant: TenantId, spec: &JobSpec, now_ms: i64) -> SnapshotJob {
    SnapshotJob {
        id,
        tenant,
        name: spec.name.clone(),
        priority: spec.priority(),
        priority_class: spec.priority_class.clone(),
        submitted_ms: now_ms,
        intent: Intent::Run,
        state: JobState::Queued,
        revision: 0,
        failures: 0,
        put_off: 0,
        retries: spec.retries,
        suspends: spec.suspends(),
        exclusive: spec.is_exclusive(),
        preemption: spec.preemption,
        reported: None,
        answer_ms: None,
        lost_s: 0.0,
        lent: false,
        trial: None,
        asked: None,
        turned_ms: None,
        not_before_ms: None,
        after: Vec::new(),
        array_limit: None,
        workers: spec.scale.workers,
        ps_shards: spec.ps_shards(),
        worker: spec.resources.worker.demand(),
        constraints: spec.resources.worker.node_constraints(),
        ps_shard: spec.resources.ps_shard,
        pods: spec.pod.needs_pods(),
        image: spec.pod.image.is_some(),
        consistency: spec.exchange.consistency,
        batch: spec.batch(),
        // Forecasts use the speed only.
        adaptive: None,
        tasks: Vec::new(),
        leaving: Vec::new(),
        in_place: spec.resizes_in_place(),
        replicated: spec.exchange.shard_replicas > 0,
        command: spec.command.as_ref().map(|command| command.ends),
        limit_s: spec.limit_s(),
        finished: None,
        failed: None,
        unfit: Vec::new(),
        progress: Progress {
            step: 0,
            steps_per_epoch: spec.steps_per_epoch(),
            max_steps: spec.max_steps(),
            convergence: spec.stop.convergence,
            epoch_losses: Vec::new(),
        },
        speeds: Vec::new(),
        placed_speeds: Vec::new(),
        family: Family::of(spec).map(|family| family.key()),
        trained_s: 0.0,
        service: Some(SnapshotService::default()),
        lasts: spec
            .longest_s()
            .map(|longest_s| TrainingLength::at_most(longest_s, 0.0)),
        ran: None,
        placed_ms: None,
        running_ms: None,
        power_of_two: spec.scale.power_of_two,
        restarts: None,
        waiting: None,
        watch: None,
        measured: None,
    }
}

fn outlook(tenant: &str, jobs: &[JobOutlook], snapshot: &ClusterSnapshot) -> TenantOutlook {
    let own: Vec<&JobOutlook> = jobs.iter().filter(|job| job.tenant == tenant).collect();
    TenantOutlook {
        tenant: tenant.to_owned(),
        jobs: u32::try_from(own.len()).unwrap_or(u32::MAX),
        wait_s: mean_s(&own, snapshot, |one| one.start),
        jct_s: mean_s(&own, snapshot, |one| one.finish),
    }
}

/// Mean time from submission to an event, over the jobs that have it before and after.
fn mean_s(
    jobs: &[&JobOutlook],
    snapshot: &ClusterSnapshot,
    event: fn(&JobForecast) -> Option<ForecastInterval>,
) -> Option<BeforeAfter> {
    let pairs = jobs.iter().filter_map(|one| {
        let job = snapshot.jobs.iter().find(|job| job.id == one.job)?;
        Some(BeforeAfter {
            before: since_s(job, event(one.before.as_ref()?)?),
            after: since_s(job, event(&one.after)?),
        })
    });
    let pairs: Vec<BeforeAfter> = pairs.collect();
    let count = pairs.len() as f64;
    (!pairs.is_empty()).then(|| BeforeAfter {
        before: pairs.iter().map(|pair| pair.before).sum::<f64>() / count,
        after: pairs.iter().map(|pair| pair.after).sum::<f64>() / count,
    })
}

/// Median of an event, in seconds from the job's submission.
fn since_s(job: &SnapshotJob, event: ForecastInterval) -> f64 {
    (event.p50_ms - job.submitted_ms) as f64 / 1000.0
}

impl JobOutlook {
    /// Milliseconds by which the changes move the expected end; positive is later.
    #[must_use]
    pub fn moved_ms(&self) -> Option<i64> {
        Some(self.after.finish?.p50_ms - self.before.as_ref()?.finish?.p50_ms)
    }

    /// Whether the changes add at least 0.5 stops of this job, on average over the runs.
    #[must_use]
    pub fn is_displaced(&self) -> bool {
        let before = self.before.as_ref();
        before.is_some_and(|before| self.after.stops >= before.stops + 0.5)
    }
}
