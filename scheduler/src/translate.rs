//! Converts the store's rows to the core's snapshot. Decides nothing.

use crate::external_gpu_use::{NodeGpuUse, external_gpus, uses};
use muster_core::learn::{CourseNoise, Observation, ObservedBatch};
use muster_core::snapshot as core;
use muster_model::id::{TaskId, TenantId};
use muster_model::idle::Idleness;
use muster_model::job::JobState;
use muster_model::node::{DriverSuspend, GpuKind, ImageSupport, Node, least_capability};
use muster_model::pace::{Pace, Watch};
use muster_model::plan::RecordTime as _;
use muster_model::priority::PriorityClass;
use muster_model::spec::BatchRule;
use muster_model::task::Task;
use muster_model::tenant::TenantPreemption;
use muster_store::family::{FamilySpeeds, PlacedSpeed, RestartTotals, UpdateTime};
use muster_store::fault::FaultCharge;
use muster_store::plan as store;
use std::collections::{BTreeMap, BTreeSet};
use time::OffsetDateTime;

/// Snapshot for the core.
#[must_use]
pub fn snapshot(round: u64, loaded: store::Loaded) -> core::ClusterSnapshot {
    let (mut faults, mut freed) = (loaded.faults, loaded.freed);
    let uses = uses(&loaded.jobs);
    let keys = label_keys(&loaded.jobs);
    let known: BTreeSet<(TenantId, String)> = loaded
        .families
        .iter()
        .map(|family| (family.tenant, family.family.clone()))
        .collect();
    let caps = loaded.tenants.iter();
    let caps: BTreeMap<TenantId, TenantPreemption> =
        caps.map(|tenant| (tenant.id, tenant.preemption)).collect();
    let nodes = loaded.nodes.into_iter().map(|one| {
        let charges = faults.remove(&one.id).unwrap_or_default();
        let freed = freed.remove(&one.id).unwrap_or_default();
        let uses = uses.get(&one.id);
        node(one, &charges, &freed, (uses, &keys))
    });
    let mut snapshot = core::ClusterSnapshot {
        round,
        now_ms: unix_ms(loaded.now),
        nodes: nodes.collect(),
        tenants: loaded.tenants.into_iter().map(tenant).collect(),
        jobs: loaded
            .jobs
            .into_iter()
            .map(|one| job(one, &known, &caps))
            .collect(),
        left_out: loaded.left_out.into_iter().map(left_out).collect(),
        families: loaded.families.into_iter().map(family).collect(),
        history_gpu_s: loaded.history_gpu_s,
        priority_classes: loaded.priority_classes.into_iter().map(class).collect(),
    };
    snapshot.leave_pods_out_of_turns();
    snapshot.sort();
    snapshot
}

/// Drops the description, which decides nothing and would be stored with every round.
fn class(class: PriorityClass) -> PriorityClass {
    PriorityClass {
        description: String::new(),
        ..class
    }
}

/// Data of a job's tasks that is not in their rows.
struct TaskFacts {
    paces: BTreeMap<TaskId, Pace>,
    idle: BTreeMap<TaskId, Idleness>,
    guests: BTreeSet<TaskId>,
}

fn tasks(tasks: Vec<Task>, facts: &TaskFacts) -> Vec<core::SnapshotTask> {
    tasks.into_iter().map(|one| task(one, facts)).collect()
}

fn task(task: Task, facts: &TaskFacts) -> core::SnapshotTask {
    core::SnapshotTask {
        pace: facts.paces.get(&task.id).copied(),
        idle: facts.idle.get(&task.id).copied(),
        lane: u32::from(facts.guests.contains(&task.id)),
        id: task.id,
        role: task.role,
        node: task.node_id,
        gpus: task.gpus,
        state: task.state,
    }
}

fn node(
    node: Node,
    charges: &[FaultCharge],
    freed: &[(u32, OffsetDateTime)],
    (uses, keys): (Option<&NodeGpuUse>, &BTreeSet<String>),
) -> core::SnapshotNode {
    let mut labels = node.labels();
    labels.retain(|key, _| keys.contains(key));
    let gpus = node.gpus();
    let gpu_memory_bytes = gpus.iter().map(|gpu| gpu.memory_bytes).min();
    let gpu_model = gpus
        .first()
        .map_or_else(String::new, |gpu| gpu.model.clone());
    let there = u32::try_from(gpus.len()).expect("a session admits at most 64 GPUs");
    core::SnapshotNode {
        excluded: node.excluded.is_some() && !node.is_unfit(),
        cordoned: node.is_cordoned() || node.is_unfit(),
        taken: external_gpus(there, node.taken(), uses),
        drained: node.is_to_be_empty(),
        rack: node.rack().map(str::to_owned),
        faults: charges
            .iter()
            .map(|charge| core::Fault {
                job: charge.of.map(|(job, _)| job),
                what: charge.fault,
                at_ms: unix_ms(charge.at),
            })
            .collect(),
        id: node.id,
        name: node.name,
        up: node.state == muster_model::node::NodeState::Up,
        seen_ms: Some(unix_ms(node.last_seen_at)),
        freed: freed
            .iter()
            .map(|&(gpu, at)| core::FreedGpu {
                gpu,
                at_ms: unix_ms(at),
            })
            .collect(),
        gpus: there,
        gpu_model,
        cpu_slots: gpus.iter().all(|gpu| gpu.kind == GpuKind::CpuSlot),
        labels,
        gpu_memory_bytes: gpu_memory_bytes.unwrap_or(0),
        compute_capability: least_capability(&gpus),
        driver_suspend: matches!(
            node.capacity.driver_suspend,
            Some(DriverSuspend::Able { .. })
        ),
        cpu_milli: node.capacity.cpu_milli,
        memory_bytes: node.capacity.memory_bytes,
        pods: node.capacity.pods,
        images: node.capacity.images == Some(ImageSupport::Able),
        speed: node.speed,
    }
}

/// Keys of labels that jobs refer to. Nodes may have many more labels, and every round is stored.
fn label_keys(jobs: &[store::LoadedJob]) -> BTreeSet<String> {
    let workers = jobs.iter().map(|loaded| &loaded.job.spec.resources.worker);
    let conditions = workers.flat_map(|worker| &worker.node_selector);
    conditions.map(|condition| condition.key.clone()).collect()
}

fn family(family: FamilySpeeds) -> core::SnapshotFamily {
    core::SnapshotFamily {
        restarts: restarts(family.restarts),
        tenant: family.tenant,
        family: family.family,
        speeds: observations(family.speeds, family.times),
        noises: family
            .noises
            .into_iter()
            .map(|(part, noise_scale)| CourseNoise { part, noise_scale })
            .collect(),
    }
}

fn observations(speeds: Vec<PlacedSpeed>, times: Vec<UpdateTime>) -> Vec<Observation> {
    let speeds = speeds.into_iter().map(observation);
    speeds.chain(times.into_iter().map(update)).collect()
}

/// Updates with one class of batches. Only jobs without shards choose their batch.
fn update(time: UpdateTime) -> Observation {
    Observation {
        gpu_kind: time.gpu_kind,
        workers: time.workers,
        ps_shards: 0,
        nodes: time.nodes,
        steps_per_s: 1.0 / time.update_s,
        samples: time.samples,
        batch: Some(ObservedBatch {
            // A cast of a float saturates.
            examples: time.batch.round() as u32,
            exchange_s: time.exchange_s,
        }),
    }
}

fn observation(speed: PlacedSpeed) -> Observation {
    Observation {
        gpu_kind: speed.gpu_kind,
        workers: speed.workers,
        ps_shards: speed.ps_shards,
        nodes: speed.nodes,
        steps_per_s: speed.steps_per_s,
        samples: speed.samples,
        batch: None,
    }
}

fn left_out(left_out: store::JobsOutsideWindow) -> core::QueueRemainder {
    core::QueueRemainder {
        tenant: left_out.tenant,
        considered: left_out.considered,
        jobs: left_out.jobs,
        untold: left_out.untold,
    }
}

fn tenant(tenant: muster_model::tenant::Tenant) -> core::SnapshotTenant {
    core::SnapshotTenant {
        id: tenant.id,
        name: tenant.name,
        gpu_quota: tenant.gpu_quota,
        weight: tenant.weight,
    }
}

/// Translates a job. Its family is named only if it is in `families`. `caps` are those of tenants
/// on preemption.
fn job(
    loaded: store::LoadedJob,
    families: &BTreeSet<(TenantId, String)>,
    caps: &BTreeMap<TenantId, TenantPreemption>,
) -> core::SnapshotJob {
    let progress = progress(&loaded);
    let has_sampled = loaded.has_sampled;
    let adaptive = adaptive(&loaded);
    let job = loaded.job;
    let family = loaded
        .family
        .map(|family| (job.tenant_id, family))
        .filter(|family| families.contains(family))
        .map(|(_, family)| family);
    let ps_shards = job.spec.ps_shards();
    let facts = TaskFacts {
        paces: loaded.paces,
        idle: loaded.idle_tasks,
        guests: loaded.guests,
    };
    let translated = core::SnapshotJob {
        id: job.id,
        tenant: job.tenant_id,
        name: job.spec.name.clone(),
        priority: job.spec.priority(),
        priority_class: job.spec.priority_class.clone(),
        submitted_ms: unix_ms(job.submitted_at),
        intent: job.intent,
        state: job.state,
        revision: job.revision,
        failures: job.failures,
        put_off: loaded.put_off,
        retries: job.spec.retries,
        not_before_ms: job.not_before.map(unix_ms),
        after: job.spec.after.iter().map(|after| after.job).collect(),
        array_limit: job.spec.array.as_ref().map(|array| array.parallel),
        workers: job.spec.scale.workers,
        ps_shards,
        power_of_two: job.spec.scale.power_of_two,
        worker: job.spec.resources.worker.demand(),
        constraints: job.spec.resources.worker.node_constraints(),
        ps_shard: job.spec.resources.ps_shard,
        pods: job.spec.pod.needs_pods(),
        image: job.spec.pod.image.is_some(),
        consistency: job.spec.exchange.consistency,
        batch: job.spec.batch(),
        adaptive,
        in_place: job.spec.resizes_in_place(),
        replicated: job.spec.exchange.shard_replicas > 0,
        suspends: job.spec.suspends(),
        exclusive: job.spec.is_exclusive(),
        preemption: caps
            .get(&job.tenant_id)
            .map_or(job.spec.preemption, |caps| caps.cap(&job.spec)),
        reported: loaded.reported.map(|(step, at)| core::ReportedCheckpoint {
            step,
            at_ms: unix_ms(at),
        }),
        answer_ms: loaded.answer_ms,
        lost_s: loaded.lost_s,
        lent: loaded.lent,
        trial: loaded
            .trial
            .map(|(study, gain)| core::StudyMembership { study, gain }),
        asked: loaded.asked.map(|(by, at)| core::IntentOrigin {
            by: by.map(|by| by.to_string()),
            at_ms: unix_ms(at),
        }),
        turned_ms: loaded.turned_at.map(unix_ms),
        command: job.spec.command.as_ref().map(|command| command.ends),
        limit_s: job.spec.limit_s(),
        watch: Some(Watch {
            straggler_ms: job.spec.straggler_ms(),
            hang_ms: job.spec.hang_ms(),
            verdicts: loaded.verdicts,
            suspects: loaded.suspects,
            restarts_idle: job.spec.restarts_idle(),
            idle_limit_ms: job.spec.idle_limit_ms(),
            idle: loaded.idle,
        }),
        tasks: tasks(loaded.tasks, &facts),
        leaving: tasks(loaded.leaving, &facts),
        finished: loaded.finished.map(|finished| core::Finished {
            step: finished.step,
            reason: finished.reason,
        }),
        failed: loaded.failed.map(|failed| core::FailedReport {
            message: failed.message,
            retryable: failed.retryable,
            lacks: failed.lacks,
        }),
        unfit: loaded.unfit,
        progress,
        speeds: loaded
            .speeds
            .into_iter()
            .map(|point| core::SpeedPoint {
                workers: point.workers,
                ps_shards: point.ps_shards,
                steps_per_s: point.steps_per_s,
                samples: point.samples,
            })
            .collect(),
        placed_speeds: observations(loaded.placed_speeds, loaded.update_times),
        family,
        measured: loaded.measured.map(Box::new),
        trained_s: loaded.trained_s,
        service: Some(core::SnapshotService {
            gpu_s: loaded.attained_gpu_s,
            demoted_ms: loaded.demoted_at.map(unix_ms),
        }),
        lasts: job
            .spec
            .longest_s()
            .map(|longest_s| core::TrainingLength::at_most(longest_s, loaded.trained_s)),
        ran: None,
        placed_ms: loaded.placed_at.map(unix_ms),
        running_ms: loaded.running_since.map(unix_ms),
        restarts: restarts(loaded.restarts),
        waiting: job.waiting,
    };
    begun_anew(translated, has_sampled)
}

/// Until a restarted program reports a step, the newest report is of an earlier start. The job then
/// continues from its last checkpoint.
fn begun_anew(mut job: core::SnapshotJob, has_sampled: bool) -> core::SnapshotJob {
    let is_at_work = match job.state {
        JobState::Running | JobState::Suspended => has_sampled,
        JobState::Starting
        | JobState::Stopping { .. }
        | JobState::Queued
        | JobState::Paused
        | JobState::Succeeded
        | JobState::Failed { .. }
        | JobState::Cancelled => false,
    };
    if !is_at_work {
        job.progress.step = job.resumable_step();
    }
    job
}

/// The engine measures noise in examples; the core uses batches.
fn adaptive(loaded: &store::LoadedJob) -> Option<core::Adaptive> {
    let engine = loaded.job.spec.engine.as_ref()?;
    let max_batch = match engine.batch_rule {
        BatchRule::Constant => return None,
        BatchRule::AdaScale => None,
        // Documents with this rule have a largest batch.
        BatchRule::Goodput => Some(engine.max_batch.unwrap_or(engine.batch)),
    };
    let newest = loaded.latest.as_ref();
    let examples = newest.and_then(|sample| sample.noise_scale);
    let noise = examples.map(|examples| examples / f64::from(engine.batch.max(1)));
    Some(core::Adaptive { noise, max_batch })
}

/// `None` without measurements.
fn restarts(restarts: RestartTotals) -> Option<core::Restarts> {
    (restarts != RestartTotals::default()).then_some(core::Restarts {
        stops: restarts.stops,
        stop_s: restarts.stop_s,
        starts: restarts.starts,
        start_s: restarts.start_s,
        resumed: restarts.resumed,
        lost_steps: restarts.lost_steps,
    })
}

fn progress(loaded: &store::LoadedJob) -> core::Progress {
    let spec = &loaded.job.spec;
    let sampled = loaded.latest.as_ref().map_or(0, |sample| sample.step);
    core::Progress {
        step: sampled.max(loaded.resume_step.unwrap_or(0)),
        steps_per_epoch: spec.steps_per_epoch(),
        max_steps: spec.max_steps(),
        convergence: spec.stop.convergence,
        epoch_losses: loaded.epoch_losses.clone(),
    }
}

/// Milliseconds since 1970.
#[must_use]
pub fn unix_ms(at: OffsetDateTime) -> i64 {
    i64::try_from(at.unix_timestamp_nanos() / 1_000_000).expect("dates of this era fit")
}

/// Date of a Unix time in milliseconds.
///
/// # Panics
/// For dates thousands of years from now.
#[must_use]
pub fn date(unix_ms: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_ms(unix_ms)
}
