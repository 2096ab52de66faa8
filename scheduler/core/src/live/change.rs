//! What would let a waiting job start: changes of the snapshot, and trials of them on the dense world.

use super::free::FreeNode;
use super::outlook::Sizing;
use super::pass::starts;
use super::place::could_ever_run;
use super::world::{World, dense_node};
use crate::estimate::Estimate;
use crate::plan::Action;
use crate::snapshot::{Finished, Job, Node, Snapshot};
use muster_model::id::{JobId, NodeId};
use muster_model::job::{AfterStop, Charge, Intent, JobPhase};
use muster_model::node::is_part;
use muster_model::wait::Change;
use uuid::Uuid;

/// So many times others may have to go before the job starts.
pub(crate) const WAVES: u32 = 2;

/// The snapshot after a change; the job then starts in the next round, or in the one after the tasks have gone that this one stops.
/// A wait is carried out as far as it is foreseen: those who are expected to end have ended, or its turn has come. `None` when the change names what is not there.
#[must_use]
pub fn apply_change(snapshot: &Snapshot, job: JobId, change: &Change) -> Option<Snapshot> {
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
            let added = added(*gpus, like(&changed.nodes, job.worker.gpus, job.pods));
            changed.nodes.push(added);
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

fn change_job(job: &mut Job, change: &Change) {
    match change {
        Change::LowerMinWorkers { to } => job.workers.min = *to,
        Change::LowerGpusPerWorker { to } => job.worker.gpus = *to,
        Change::RaisePriority { to } => job.priority = *to,
        Change::Resume => job.intent = Intent::Run,
        Change::RaiseQuota { .. }
        | Change::UncordonNode { .. }
        | Change::AddGpus { .. }
        | Change::EndJob { .. }
        | Change::Wait { .. } => {}
    }
}

/// The first node whose GPUs are such that a worker can have so many of them: nobody is told to add parts of GPUs for one that needs two, nor
/// nodes without pods for one that needs those.
fn like(nodes: &[Node], gpus_of_a_worker: u32, needs_pods: bool) -> Option<&Node> {
    let suits = |node: &&Node| {
        let whole = gpus_of_a_worker <= 1 || !is_part(&node.gpu_model);
        whole && (node.has_pods() || !needs_pods)
    };
    nodes.iter().find(suits).or(nodes.first())
}

/// A node like that one with so many GPUs. Where GPUs are added, CPU and memory come with them. Its name puts it behind all
/// others.
fn added(gpus: u32, like: Option<&Node>) -> Node {
    Node {
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
        gpu_memory_bytes: 0,
        cpu_milli: u64::MAX / 4,
        memory_bytes: u64::MAX / 4,
        pods: like.and_then(|node| node.pods),
    }
}

/// Whether the job starts after the change: at once or, where others must go for it, as soon as their tasks are gone.
pub(crate) fn would_start(world: &mut World<'_>, index: usize, change: &Change) -> bool {
    let waves = if change.makes_others_go() { WAVES } else { 0 };
    would_start_after(world, index, waves, |world| make(world, index, change))
}

/// Whether a job that never could start might after the change, as if nobody else were there: who holds what is not asked.
pub(crate) fn could_start(world: &mut World<'_>, index: usize, change: &Change) -> bool {
    tried(world, index, |world| {
        make(world, index, change) && could_ever_run(world, &world.jobs[index])
    })
}

/// Whether the job starts when something is done, which may refuse, and others have gone so many times. The world is as it was before,
/// whatever comes of it.
pub(crate) fn would_start_after<'a>(
    world: &mut World<'a>,
    index: usize,
    waves: u32,
    make: impl FnOnce(&mut World<'a>) -> bool,
) -> bool {
    tried(world, index, |world| {
        make(world) && starts_after(world, index, waves)
    })
}

/// What comes of a trial, which is undone.
fn tried<'a>(
    world: &mut World<'a>,
    index: usize,
    trial: impl FnOnce(&mut World<'a>) -> bool,
) -> bool {
    let (free, empty) = (world.free.clone(), world.empty.clone());
    let (nodes, tenants) = (world.problem.nodes.clone(), world.problem.tenants.clone());
    let (held, members) = (world.held.clone(), world.members.len());
    let (reserved, lendable) = (world.reserved.clone(), world.lendable.clone());
    world.journal = Some(Vec::new());
    world.remember(index);
    let would = trial(world);
    for (index, live, dense) in world.journal.take().into_iter().flatten().rev() {
        if let Some((member, dense)) = live.member.zip(dense) {
            world.problem.jobs[member] = dense;
        }
        world.jobs[index] = live;
    }
    (world.free, world.empty) = (free, empty);
    (world.problem.nodes, world.problem.tenants) = (nodes, tenants);
    world.held = held;
    (world.reserved, world.lendable) = (reserved, lendable);
    world.members.truncate(members);
    world.problem.jobs.truncate(members);
    would
}

fn starts_after(world: &mut World<'_>, index: usize, waves: u32) -> bool {
    for _ in 0..waves {
        if starts(world, index) {
            return true;
        }
        let leaving: Vec<usize> = (0..world.jobs.len())
            .filter(|&other| {
                let live = &world.jobs[other];
                live.state.phase() == JobPhase::Stopping
            })
            .collect();
        for other in leaving {
            world.release(other);
        }
        for other in 0..world.jobs.len() {
            world.part_with(other);
        }
    }
    starts(world, index)
}

/// Makes the change in the dense world, as [`apply_change`] makes it in the snapshot.
fn make(world: &mut World<'_>, index: usize, change: &Change) -> bool {
    match change {
        Change::LowerMinWorkers { .. } | Change::LowerGpusPerWorker { .. } => {
            let mut job = world.jobs[index].job.clone();
            change_job(&mut job, change);
            reshape(world, index, &job);
        }
        Change::RaiseQuota { by_gpus } => {
            let tenant = world.jobs[index].tenant as usize;
            let quota = &mut world.problem.tenants[tenant].gpu_quota;
            *quota = quota.map(|quota| quota.saturating_add(*by_gpus));
        }
        Change::UncordonNode { name } => {
            let found = world
                .snapshot
                .nodes
                .iter()
                .position(|node| node.name == *name);
            let Some(at) = found else { return false };
            let mut node = world.snapshot.nodes[at].clone();
            (node.drained, node.excluded) = (false, false);
            open(world, at, &node);
        }
        Change::AddGpus { gpus } => {
            let shape = &world.jobs[index].shape;
            let (per_worker, needs_pods) = (shape.worker.gpus, shape.pods);
            let node = added(*gpus, like(&world.snapshot.nodes, per_worker, needs_pods));
            let kind = world.kinds.index(&node);
            let at = (kind, 0);
            let place = u32::try_from(world.free.len()).unwrap_or(u32::MAX);
            world.free.push(FreeNode::empty(&node, place, at));
            world.empty.push(FreeNode::empty(&node, place, at));
            world.problem.nodes.push(dense_node(&node, at));
        }
        Change::RaisePriority { to } => {
            world.jobs[index].priority = *to;
            world.refresh(index);
        }
        Change::EndJob { job, .. } => return end(world, *job, AfterStop::Pause),
        Change::Wait { ended, .. } => {
            let mut ended = ended.iter();
            return ended.all(|&job| end(world, job, AfterStop::Succeed));
        }
        Change::Resume => return false,
    }
    true
}

/// Tells a running job to stop for good.
fn end(world: &mut World<'_>, job: JobId, then: AfterStop) -> bool {
    let Some(index) = world.jobs.iter().position(|live| live.job.id == job) else {
        return false;
    };
    if !world.jobs[index].standing.stays() {
        return false;
    }
    let why = String::new();
    world.stop(
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

fn reshape(world: &mut World<'_>, index: usize, job: &Job) {
    let policy = world.policy;
    let live = &mut world.jobs[index];
    live.shape.workers = job.workers;
    live.shape.worker = job.worker;
    live.estimate = Estimate::of(job, policy);
    live.sizing = Sizing::of(
        &live.estimate,
        &live.shape,
        job.progress.step,
        0,
        &world.kinds,
    );
    world.refresh(index);
}

/// Opens a node, less what tasks that have not gone yet hold of it.
fn open(world: &mut World<'_>, at: usize, node: &Node) {
    let place = (world.free[at].kind, world.free[at].rack);
    let index = world.free[at].index;
    let mut free = FreeNode::empty(node, index, place);
    for live in &world.jobs {
        for held in live.holdings.iter().filter(|held| held.node as usize == at) {
            free.hold(held);
            if !live.standing.stays() {
                free.release_later(held);
            }
        }
        let kept = live.destination.as_ref();
        let kept = kept.map_or_else(Vec::new, |placed| placed.holdings(&live.shape));
        kept.iter()
            .filter(|held| held.node as usize == at)
            .for_each(|held| free.keep(held));
        for held in live.leaving.iter().filter(|held| held.node as usize == at) {
            free.hold(held);
            free.release_later(held);
        }
    }
    world.free[at] = free;
    world.empty[at] = FreeNode::empty(node, index, place);
    world.problem.nodes[at] = dense_node(node, place);
}
