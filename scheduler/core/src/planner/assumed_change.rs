//! Changes that would let a waiting job start: applied to a snapshot, or tried on the dense state.

use super::cpu_only;
use super::forbidden_gpus::relaxed;
use super::free::FreeNode;
use super::passes::run_until_started;
use super::place::could_ever_run;
use super::round_state::{NodeIndex, RoundState, dense_node};
use super::scaling_model::JobScaling;
use crate::estimate::Estimate;
use crate::plan::Action;
use crate::snapshot::{ClusterSnapshot, Finished, SnapshotJob, SnapshotNode};
use muster_model::id::{JobId, NodeId};
use muster_model::job::{AfterStop, Charge, Intent, JobPhase};
use muster_model::node::is_part;
use muster_model::wait::Change;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Maximum number of times that other jobs leave before the job starts.
pub(crate) const WAVES: u32 = 2;

/// Returns the snapshot after a change; `None` if the change names an unknown object.
///
/// The job then starts in the next round, or in the one after the tasks stopped by that round have
/// ended. A wait is applied as far as it is foreseen: the named jobs have ended, or the time slice
/// has come.
#[must_use]
pub fn apply_change(
    snapshot: &ClusterSnapshot,
    job: JobId,
    change: &Change,
) -> Option<ClusterSnapshot> {
    let mut changed = snapshot.clone();
    let job = changed.jobs.iter_mut().find(|one| one.id == job)?;
    change_job(job, change);
    match change {
        Change::RaiseQuota { by_gpus } => {
            let tenant = job.tenant;
            let tenant = changed.tenants.iter_mut().find(|one| one.id == tenant)?;
            tenant.gpu_quota = tenant.gpu_quota.map(|quota| quota.saturating_add(*by_gpus));
        }
        Change::UncordonNode { name } => {
            let mut nodes = changed.nodes.iter_mut();
            let node = nodes.find(|node| node.name == *name)?;
            (node.drained, node.excluded) = (false, false);
            node.faults.clear();
        }
        Change::AddGpus { gpus } => {
            let job = job.clone();
            let node = further(&changed, &job, *gpus)?;
            changed.nodes.push(node);
            changed.sort();
        }
        Change::EndJob { job, .. } => {
            changed.jobs.iter_mut().find(|one| one.id == *job)?.intent = Intent::Pause;
        }
        Change::Wait { ended, .. } => {
            for id in ended {
                let job = changed.jobs.iter_mut().find(|one| one.id == *id)?;
                job.finished = Some(Finished {
                    step: job.progress.step,
                    reason: "as expected".to_owned(),
                });
            }
        }
        Change::LowerMinWorkers { .. }
        | Change::LowerGpusPerWorker { .. }
        | Change::AllowNodes { .. }
        | Change::RaisePriority { .. }
        | Change::Resume => {}
    }
    if let Change::Wait {
        until_unix_ms,
        ended,
    } = change
        && ended.is_empty()
    {
        changed.now_ms = changed.now_ms.max(*until_unix_ms);
    }
    Some(changed)
}

fn change_job(job: &mut SnapshotJob, change: &Change) {
    match change {
        Change::LowerMinWorkers { to } => job.workers.min = *to,
        Change::LowerGpusPerWorker { to } => job.worker.gpus = *to,
        Change::AllowNodes {
            constraint,
            gpu_model,
        } => job.constraints = relaxed(&job.constraints, *constraint, gpu_model),
        Change::RaisePriority { to, .. } => job.priority = *to,
        Change::Resume => job.intent = Intent::Run,
        Change::RaiseQuota { .. }
        | Change::UncordonNode { .. }
        | Change::AddGpus { .. }
        | Change::EndJob { .. }
        | Change::Wait { .. } => {}
    }
}

/// A further node for the job. It resembles the first node whose GPUs suit its workers, else the
/// first of all. Parts of GPUs do not suit a worker with several GPUs, and nodes without pods do
/// not suit a job that needs pods. Returns `None` if constraints, pods or image of the job exclude
/// all nodes: it is then unknown which nodes could be added.
fn further(snapshot: &ClusterSnapshot, job: &SnapshotJob, gpus: u32) -> Option<SnapshotNode> {
    let best = snapshot.best_gpu_class();
    let mut nodes = snapshot.nodes.iter().filter(|node| node.gpus > 0);
    let suits = nodes.find(|node| {
        let whole = job.worker.gpus <= 1 || !is_part(&node.gpu_model);
        let meets = job.constraints.unmet(&node.traits(), best).is_none();
        whole && meets && node.hosts(job.pods, job.image)
    });
    let may_be_any =
        snapshot.nodes.is_empty() || (job.constraints.is_empty() && !job.pods && !job.image);
    (suits.is_some() || may_be_any).then(|| added(gpus, suits.or(snapshot.nodes.first())))
}

/// A node like that one, with this number of GPUs and with CPU and memory for all tasks. Its name
/// sorts it behind all other nodes.
fn added(gpus: u32, like: Option<&SnapshotNode>) -> SnapshotNode {
    SnapshotNode {
        id: NodeId(Uuid::max()),
        name: "\u{10ffff}added".to_owned(),
        up: true,
        drained: false,
        rack: None,
        excluded: false,
        cordoned: false,
        faults: Vec::new(),
        gpus,
        taken: Vec::new(),
        gpu_model: like.map_or_else(|| "gpu".to_owned(), |node| node.gpu_model.clone()),
        seen_ms: None,
        freed: Vec::new(),
        cpu_slots: like.is_some_and(|node| node.cpu_slots),
        labels: like.map_or_else(BTreeMap::new, |node| node.labels.clone()),
        gpu_memory_bytes: like.map_or(0, |node| node.gpu_memory_bytes),
        compute_capability: like.and_then(|node| node.compute_capability),
        driver_suspend: like.is_some_and(|node| node.driver_suspend),
        cpu_milli: u64::MAX / 4,
        memory_bytes: u64::MAX / 4,
        pods: like.and_then(|node| node.pods),
        images: like.is_some_and(|node| node.images),
        speed: None,
    }
}

/// Whether the job starts after the change: at once, or once the tasks of leaving jobs have ended.
pub(crate) fn would_start(round: &mut RoundState<'_>, index: usize, change: &Change) -> bool {
    let waves = if change.makes_others_go() { WAVES } else { 0 };
    would_start_after(round, index, waves, |round| make(round, index, change))
}

/// Whether a job that could never start could start after the change on the empty cluster.
pub(crate) fn could_start(round: &mut RoundState<'_>, index: usize, change: &Change) -> bool {
    tried(round, index, |round| {
        make(round, index, change) && could_ever_run(round, &round.jobs[index])
    })
}

/// Whether the job starts after `make` and after other jobs have left `waves` times; `false` if
/// `make` fails. The state is restored afterwards.
pub(crate) fn would_start_after<'a>(
    round: &mut RoundState<'a>,
    index: usize,
    waves: u32,
    make: impl FnOnce(&mut RoundState<'a>) -> bool,
) -> bool {
    tried(round, index, |round| {
        make(round) && starts_after(round, index, waves)
    })
}

/// Runs a trial and undoes it. Returns the result of the trial.
fn tried<'a>(
    round: &mut RoundState<'a>,
    index: usize,
    trial: impl FnOnce(&mut RoundState<'a>) -> bool,
) -> bool {
    let (free, empty) = (round.free.clone(), round.empty.clone());
    let (nodes, tenants) = (round.problem.nodes.clone(), round.problem.tenants.clone());
    let (held, members) = (round.held.clone(), round.members.len());
    let (reserved, lendable) = (round.reserved.clone(), round.lendable.clone());
    let (kept, hidden) = (round.kept.clone(), round.hidden.clone());
    round.journal = Some(Vec::new());
    round.remember(index);
    let would = trial(round);
    for (index, live, dense) in round.journal.take().into_iter().flatten().rev() {
        if let Some((member, dense)) = live.member.zip(dense) {
            round.problem.jobs[member] = dense;
        }
        round.jobs[index] = live;
    }
    (round.free, round.empty) = (free, empty);
    (round.problem.nodes, round.problem.tenants) = (nodes, tenants);
    round.held = held;
    (round.reserved, round.lendable) = (reserved, lendable);
    (round.kept, round.hidden) = (kept, hidden);
    round.members.truncate(members);
    round.problem.jobs.truncate(members);
    would
}

fn starts_after(round: &mut RoundState<'_>, index: usize, waves: u32) -> bool {
    for _ in 0..waves {
        cpu_only::start_before_policy(round);
        if run_until_started(round, index) {
            return true;
        }
        let leaving: Vec<usize> = (0..round.jobs.len())
            .filter(|&other| {
                let live = &round.jobs[other];
                live.state.phase() == JobPhase::Stopping
            })
            .collect();
        for other in leaving {
            round.release(other);
        }
        for other in 0..round.jobs.len() {
            round.part_with(other);
        }
    }
    cpu_only::start_before_policy(round);
    run_until_started(round, index)
}

/// Applies a change to the dense state, as [`apply_change`] does to the snapshot.
fn make(round: &mut RoundState<'_>, index: usize, change: &Change) -> bool {
    match change {
        Change::LowerMinWorkers { .. }
        | Change::LowerGpusPerWorker { .. }
        | Change::AllowNodes { .. } => {
            let mut job = round.jobs[index].job.clone();
            change_job(&mut job, change);
            reshape(round, index, &job);
        }
        Change::RaiseQuota { by_gpus } => {
            let tenant = round.jobs[index].tenant as usize;
            let quota = &mut round.problem.tenants[tenant].gpu_quota;
            *quota = quota.map(|quota| quota.saturating_add(*by_gpus));
        }
        Change::UncordonNode { name } => {
            let found = round
                .snapshot
                .nodes
                .iter()
                .position(|node| node.name == *name);
            let Some(at) = found else { return false };
            let mut node = round.snapshot.nodes[at].clone();
            (node.drained, node.excluded) = (false, false);
            open(round, at, &node);
        }
        Change::AddGpus { gpus } => {
            let Some(node) = further(round.snapshot, round.jobs[index].job, *gpus) else {
                return false;
            };
            let kind = round.kinds.index(&node);
            let at = (kind, 0);
            let place = u32::try_from(round.free.len()).unwrap_or(u32::MAX);
            round.free.push(FreeNode::empty(&node, place, at));
            round.empty.push(FreeNode::empty(&node, place, at));
            round.problem.nodes.push(dense_node(&node, at));
        }
        Change::RaisePriority { to, .. } => {
            round.jobs[index].priority = *to;
            round.refresh(index);
        }
        Change::EndJob { job, .. } => return end(round, *job, AfterStop::Pause),
        Change::Wait { ended, .. } => {
            let mut ended = ended.iter();
            return ended.all(|&job| end(round, job, AfterStop::Succeed));
        }
        Change::Resume => return false,
    }
    true
}

/// Stops a running job for good.
fn end(round: &mut RoundState<'_>, job: JobId, then: AfterStop) -> bool {
    let Some(index) = round.jobs.iter().position(|live| live.job.id == job) else {
        return false;
    };
    if !round.jobs[index].scheduling_state.stays() {
        return false;
    }
    let why = String::new();
    round.stop(
        index,
        Action::Stop {
            then,
            why,
            charge: Charge::None,
            not_before_ms: None,
        },
    );
    true
}

fn reshape(round: &mut RoundState<'_>, index: usize, job: &SnapshotJob) {
    let policy = round.policy;
    let nodes = NodeIndex::of(round.snapshot);
    let nodes = round
        .node_sets
        .of(job, round.snapshot, (&nodes, &round.kinds));
    round.problem.node_sets = round.node_sets.sets.clone().into();
    let live = &mut round.jobs[index];
    live.shape.nodes = nodes;
    live.shape.workers = job.workers;
    live.shape.worker = job.worker;
    live.estimate = Estimate::of(job, round.learned.evidence(job), policy);
    live.sizing = JobScaling::of(
        &live.estimate,
        &live.shape,
        job.progress.step,
        0,
        &round.kinds,
    );
    round.refresh(index);
}

/// Opens a node; resources of tasks that have not ended yet stay held.
fn open(round: &mut RoundState<'_>, at: usize, node: &SnapshotNode) {
    let place = (round.free[at].kind, round.free[at].rack);
    let index = round.free[at].index;
    let mut free = FreeNode::empty(node, index, place);
    for live in &round.jobs {
        for held in live.holdings.iter().filter(|held| held.node as usize == at) {
            free.hold(held);
            if !live.scheduling_state.stays() {
                free.release_later(held);
            }
        }
        for held in live.leaving.iter().filter(|held| held.node as usize == at) {
            free.hold(held);
            free.release_later(held);
        }
    }
    // Destinations may be on GPUs of other jobs, so they are reserved last.
    for live in &round.jobs {
        let kept = live.destination.as_ref();
        let kept = kept.map_or_else(Vec::new, |placed| placed.holdings(&live.shape));
        kept.iter()
            .filter(|held| held.node as usize == at)
            .for_each(|held| free.keep(held));
    }
    round.free[at] = free;
    round.empty[at] = FreeNode::empty(node, index, place);
    round.problem.nodes[at] = dense_node(node, place);
}
