//! The cluster in dense numbers while a round is made: what is free, where every job stands, and the problem that the policy sees.
//!
//! It is built once from a snapshot; starts and stops then change it in place, so that passes and trials cost what they change.

use super::cost;
use super::free::{FreeNode, Holding, Room, bits, first_bits};
use super::gang::{Placed, Shape, add};
use super::memory::Memory;
use super::moving;
use super::outlook::Sizing;
use super::resize::gone_workers;
use super::settle::{Settled, done_workers, once_gone, settle};
use super::standing::{Standing, gpus_of};
use super::turns;
use crate::estimate::Estimate;
use crate::plan::Action;
use crate::policies::{Promises, Share};
use crate::policy::Policy;
use crate::problem::{self, Demand, Part, Problem};
use crate::report::MoveReport;
use crate::snapshot::{Job, Node, Snapshot, Task};
use muster_model::id::{NodeId, StudyId, TaskId, TenantId};
use muster_model::job::JobState;
use muster_model::spec::Range;
use muster_model::task::Role;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

pub(crate) struct World<'a> {
    pub snapshot: &'a Snapshot,
    pub policy: &'a Policy,
    pub share: Box<dyn Share>,
    pub promises: Promises,
    pub now_ms: i64,
    pub free: Vec<FreeNode>,
    /// The same if nobody were there.
    pub empty: Vec<FreeNode>,
    /// In the snapshot's order.
    pub jobs: Vec<LiveJob<'a>>,
    pub problem: Problem,
    /// Those that jobs are trials of, by id.
    studies: Vec<StudyId>,
    /// The job of the snapshot that each job of the problem is.
    pub members: Vec<usize>,
    /// GPUs that every tenant's jobs hold now, those of stopping tasks included.
    pub held: Vec<u32>,
    /// Free GPUs that are kept for the first of those who wait for their turn.
    pub reserved: Option<(usize, BTreeMap<u32, u64>)>,
    /// What was changed since a trial began: the jobs as they were.
    pub journal: Option<Vec<(usize, LiveJob<'a>, Option<problem::Job>)>>,
    /// Moves that this round has begun, for the record.
    pub moves: Vec<MoveReport>,
}

/// A job during the round.
#[derive(Debug, Clone)]
pub(crate) struct LiveJob<'a> {
    pub job: &'a Job,
    pub tenant: u32,
    pub priority: i32,
    pub state: JobState,
    pub standing: Standing,
    pub not_before_ms: Option<i64>,
    /// What was decided of it so far, in order.
    pub actions: Vec<Action>,
    pub shape: Shape,
    pub estimate: Estimate,
    pub sizing: Sizing,
    pub placed_ms: Option<i64>,
    pub revision: u64,
    /// Of its unreleased tasks that stay.
    pub holdings: Vec<Holding>,
    /// Of those that a resize in place has told to leave.
    pub leaving: Vec<Holding>,
    /// Where it moves to: kept for it until it has stopped.
    pub destination: Option<Placed>,
    /// Of those that a resize of this very round has asked to join.
    pub joining: Vec<Holding>,
    /// Tasks that this very round has told to leave.
    pub told: Vec<TaskId>,
    /// Somebody has not gone or not come yet; nothing else is decided of it meanwhile.
    pub is_resizing: bool,
    /// Node of each of the job's tasks in the snapshot.
    pub places: Vec<u32>,
    /// Workers and shards of its newest revision.
    pub size: (u32, u32),
    /// Its place in the problem.
    pub member: Option<usize>,
}

impl<'a> World<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, policy: &'a Policy, memory: &mut Memory) -> Self {
        let share = policy.share.share();
        let kinds = kinds(&snapshot.nodes);
        let free: Vec<FreeNode> = snapshot
            .nodes
            .iter()
            .map(|node| FreeNode::empty(node, kind_of(&kinds, node)))
            .collect();
        let mut world = Self {
            snapshot,
            policy,
            promises: share.promises(),
            share,
            now_ms: snapshot.now_ms,
            empty: free.clone(),
            free,
            jobs: Vec::with_capacity(snapshot.jobs.len()),
            problem: Problem {
                now_s: seconds(snapshot.now_ms),
                round_s: 1.0,
                kinds,
                ..Problem::default()
            },
            studies: studies(snapshot),
            members: Vec::new(),
            held: Vec::new(),
            reserved: None,
            journal: None,
            moves: Vec::new(),
        };
        world.problem.nodes = snapshot
            .nodes
            .iter()
            .zip(&world.free)
            .map(|(node, free)| dense_node(node, free.kind))
            .collect();
        let tenants = world.tenants();
        let nodes = NodeIndex::of(snapshot);
        memory.begin(policy);
        for settled in settle(snapshot, policy) {
            let tenant = tenants.find(&mut world, settled.job.tenant);
            world.add(settled, tenant, &nodes, memory);
        }
        memory.end();
        moving::expect(&mut world);
        world
    }

    fn tenants(&mut self) -> TenantIndex {
        let mut index: Vec<(TenantId, u32)> = (0_u32..)
            .zip(&self.snapshot.tenants)
            .map(|(place, tenant)| (tenant.id, place))
            .collect();
        index.sort_unstable();
        for tenant in &self.snapshot.tenants {
            self.problem.tenants.push(problem::Tenant {
                weight: tenant.weight,
                gpu_quota: tenant.gpu_quota,
                parent: None,
            });
            self.held.push(0);
        }
        TenantIndex(index)
    }

    fn add(&mut self, settled: Settled<'a>, tenant: u32, nodes: &NodeIndex, memory: &mut Memory) {
        let job = settled.job;
        let standing = Standing::of(&settled.state, settled.not_before_ms, self.now_ms);
        // What is left of a command some of whose workers are done is neither grown nor filled up: they would begin anew.
        let done = done_workers(job);
        let left = job.size().0.saturating_sub(done);
        let is_partly_done = standing.stays() && done > 0 && left > 0;
        let shape = Shape {
            workers: match is_partly_done {
                true => Range {
                    min: left,
                    max: left,
                },
                false => job.workers,
            },
            ps_shards: job.ps_shards,
            power_of_two: job.power_of_two,
            worker: job.worker,
            ps_shard: job.ps_shard,
        };
        let (leave, resized) = match settled.actions.last() {
            Some(Action::Resize { leave, .. }) => (leave.clone(), true),
            _ => (Vec::new(), false),
        };
        let stays = |task: &&Task| !leave.contains(&task.id);
        let kept = holdings(job, nodes, job.tasks.iter().filter(stays));
        let told = job.tasks.iter().filter(|task| !stays(task));
        let leaving = holdings(job, nodes, job.leaving.iter().chain(told));
        self.held[tenant as usize] += gpus_of(&kept) + gpus_of(&leaving);
        for (held, goes) in kept
            .iter()
            .map(|held| (held, !standing.stays()))
            .chain(leaving.iter().map(|held| (held, true)))
        {
            let node = &mut self.free[held.node as usize];
            node.hold(held);
            if goes && standing != Standing::Suspended {
                let gpus = self.snapshot.nodes[held.node as usize].gpus;
                node.release_later(held, first_bits(gpus));
            }
        }
        if standing == Standing::Suspended {
            for mut held in holdings(job, nodes, turns::goes_later(job, &settled.state)) {
                held.room.memory_bytes = 0;
                let gpus = self.snapshot.nodes[held.node as usize].gpus;
                self.free[held.node as usize].release_later(&held, first_bits(gpus));
            }
        }
        let (workers, shards) = job.size();
        let workers = if is_partly_done { left } else { workers };
        let size = (workers - gone_workers(job, &leave), shards);
        let places = job.tasks.iter().map(|task| nodes.find(task.node));
        let kinds = self.problem.kinds.len();
        let destination = moving::destination(job, &settled.state, |id| nodes.find(id));
        let present = match &destination {
            Some(placed) => placed.size().0,
            None if standing.stays() => size.0,
            None => 0,
        };
        let (estimate, sizing) = memory.recall(job, self.policy, &shape, present, kinds);
        let index = self.jobs.len();
        let is_member = standing.stays() || standing.waits();
        self.jobs.push(LiveJob {
            job,
            tenant,
            priority: job.priority,
            state: settled.state,
            standing,
            not_before_ms: settled.not_before_ms,
            actions: settled.actions,
            shape,
            estimate,
            sizing,
            placed_ms: if resized {
                Some(self.now_ms)
            } else {
                job.placed_ms
            },
            revision: job.revision + u64::from(resized),
            holdings: kept,
            is_resizing: standing == Standing::Running
                && (!leaving.is_empty() || job.is_resizing()),
            leaving,
            destination,
            joining: Vec::new(),
            told: leave,
            places: places.map(|node| node.unwrap_or(u32::MAX)).collect(),
            size,
            member: is_member.then_some(self.members.len()),
        });
        if is_member {
            let dense = self.dense(index);
            self.problem.jobs.push(dense);
            self.members.push(index);
        }
    }

    /// The job as the policy sees it.
    pub(crate) fn dense(&self, index: usize) -> problem::Job {
        let live = &self.jobs[index];
        let (job, shape) = (live.job, &live.shape);
        let present: Vec<Part> = match &live.destination {
            Some(placed) => parts(&placed.holdings(shape)),
            None if live.standing.stays() => parts(&live.holdings),
            None => Vec::new(),
        };
        let per_worker = shape.worker.gpus.max(1);
        let kind = present
            .first()
            .map_or(0, |part| self.free[part.node as usize].kind);
        let mut held_s = vec![0.0; self.problem.kinds.len()];
        if let Some(held_s) = held_s.get_mut(usize::from(kind)) {
            *held_s = job.trained_s;
        }
        problem::Job {
            tenant: live.tenant,
            priority: live.priority,
            submitted_s: seconds(job.submitted_ms),
            unit: unit(shape),
            min_gpus: shape.min_gpus(),
            max_gpus: shape.gpus(live.sizing.max_workers()),
            request_gpus: shape.min_gpus(),
            present,
            since_s: seconds(live.placed_ms.unwrap_or(job.submitted_ms)),
            fixed: false,
            attained_gpu_s: job.trained_s * f64::from(live.size.0 * per_worker),
            demoted_s: None,
            held_s,
            restarts: u32::try_from(live.revision.saturating_sub(1)).unwrap_or(u32::MAX),
            restart_s: if job.in_place {
                seconds_of(self.policy.in_place_cost_ms)
            } else {
                // What was measured of so few restarts may be luck: less than the policy says is not believed.
                let usual_s = seconds_of(self.policy.resize_cost_ms);
                cost::restart(live, self.policy).total_s().max(usual_s)
            },
            preemptible: true,
            trial: job.trial.and_then(|trial| {
                let study = self.studies.binary_search(&trial.study).ok()?;
                Some(problem::Trial {
                    study: u32::try_from(study).ok()?,
                    gain: trial.gain,
                })
            }),
            outlook: live.sizing.outlook.clone(),
        }
    }

    /// Lets the policy see a job that it did not see: one that stood still, and does no more.
    pub(crate) fn enlist(&mut self, index: usize) {
        assert!(
            self.journal.is_none(),
            "members are told apart by their places in a trial"
        );
        if self.jobs[index].member.is_some() {
            return;
        }
        // In the order of submission, as the next round will see them.
        let at = self.members.partition_point(|&other| other < index);
        self.members.insert(at, index);
        for (member, &other) in self.members.iter().enumerate().skip(at) {
            self.jobs[other].member = Some(member);
        }
        let live = &mut self.jobs[index];
        let (step, kinds) = (live.job.progress.step, self.problem.kinds.len());
        let workers = match &live.destination {
            Some(placed) => placed.size().0,
            None if live.standing.stays() => live.size.0,
            None => 0,
        };
        live.sizing = Sizing::of(&live.estimate, &live.shape, step, workers, kinds);
        let dense = self.dense(index);
        self.problem.jobs.insert(at, dense);
    }

    /// Starts a job on what was placed.
    pub(crate) fn start(&mut self, index: usize, placed: &Placed, why: String) {
        self.remember(index);
        let now_ms = self.now_ms;
        // A trial asks only whether there is a start; what it adds to the cluster has no name.
        let tasks = match &self.journal {
            Some(_) => Vec::new(),
            None => placed.tasks(&self.snapshot.nodes),
        };
        let live = &mut self.jobs[index];
        live.take(Action::Start { tasks, why }, now_ms);
        live.holdings = placed.holdings(&live.shape);
        live.size = placed.size();
        live.placed_ms = Some(now_ms);
        live.revision += 1;
        self.held[live.tenant as usize] += gpus_of(&live.holdings);
        for held in &live.holdings {
            self.free[held.node as usize].hold(held);
        }
        self.refresh(index);
    }

    /// Tells a running job to stop.
    pub(crate) fn stop(&mut self, index: usize, mut action: Action) {
        self.remember(index);
        let was_charged = self.uninvite(index);
        if let Action::Stop { charge_failure, .. } = &mut action {
            *charge_failure |= was_charged;
        }
        let now_ms = self.now_ms;
        let live = &mut self.jobs[index];
        live.take(action, now_ms);
        live.is_resizing = false;
        for held in &live.holdings {
            let gpus = self.problem.nodes[held.node as usize].gpus;
            self.free[held.node as usize].release_later(held, first_bits(gpus));
        }
        let (step, kinds) = (live.job.progress.step, self.problem.kinds.len());
        live.sizing = Sizing::of(&live.estimate, &live.shape, step, 0, kinds);
        self.refresh(index);
    }

    /// In a trial: the tasks of a stopping job are gone.
    pub(crate) fn release(&mut self, index: usize) {
        self.remember(index);
        let (policy, now_ms) = (self.policy, self.now_ms);
        let live = &mut self.jobs[index];
        (live.state, live.not_before_ms) = once_gone(live, policy, now_ms);
        live.standing = Standing::of(&live.state, live.not_before_ms, now_ms);
        let holdings = std::mem::take(&mut live.holdings);
        self.give_back(index, &holdings);
        self.part_with(index);
        if self.jobs[index].member.is_none() && self.jobs[index].standing.waits() {
            self.jobs[index].member = Some(self.members.len());
            let dense = self.dense(index);
            self.problem.jobs.push(dense);
            self.members.push(index);
        }
        self.refresh(index);
    }

    pub(crate) fn give_back(&mut self, index: usize, holdings: &[Holding]) {
        self.held[self.jobs[index].tenant as usize] -= gpus_of(holdings);
        for held in holdings {
            let gpus = self.problem.nodes[held.node as usize].gpus;
            self.free[held.node as usize].give_back(held, first_bits(gpus));
        }
    }

    /// Writes down how a job was, for the end of a trial.
    pub(crate) fn remember(&mut self, index: usize) {
        if let Some(journal) = &mut self.journal {
            let live = self.jobs[index].clone();
            let dense = live.member.map(|member| self.problem.jobs[member].clone());
            journal.push((index, live, dense));
        }
    }

    /// Brings the policy's view of a job up to date.
    pub(crate) fn refresh(&mut self, index: usize) {
        if let Some(member) = self.jobs[index].member {
            self.problem.jobs[member] = self.dense(index);
        }
    }

    /// Milliseconds since it was placed.
    pub(crate) fn ran_ms(&self, live: &LiveJob<'_>) -> u64 {
        let since_ms = live.placed_ms.unwrap_or(i64::MIN);
        u64::try_from(self.now_ms.saturating_sub(since_ms)).unwrap_or(0)
    }

    pub(crate) fn quota(&self, live: &LiveJob<'_>) -> Option<u32> {
        self.problem.tenants[live.tenant as usize].gpu_quota
    }
}

impl LiveJob<'_> {
    /// Takes a decision and moves the state along.
    ///
    /// # Panics
    /// When the state does not allow it: the planner is then wrong, and nothing of its plan may be carried out.
    pub(crate) fn take(&mut self, action: Action, now_ms: i64) {
        if let Some(event) = action.event() {
            let state = std::mem::replace(&mut self.state, JobState::Queued);
            self.state = state
                .apply(event)
                .unwrap_or_else(|refused| panic!("job {}: {refused}", self.job.id));
        }
        self.standing = Standing::of(&self.state, self.not_before_ms, now_ms);
        self.actions.push(action);
    }
}

/// One worker with its part of the shards of the smallest gang.
fn unit(shape: &Shape) -> Demand {
    let (workers, shards) = (
        u64::from(shape.workers.min.max(1)),
        u64::from(shape.ps_shards.min),
    );
    let part = |of_shard: u64| of_shard.saturating_mul(shards).div_ceil(workers);
    Demand {
        gpus: shape.worker.gpus.max(1),
        cpu_milli: shape
            .worker
            .cpu_milli
            .saturating_add(part(shape.ps_shard.cpu_milli)),
        memory_bytes: shape
            .worker
            .memory_bytes
            .saturating_add(part(shape.ps_shard.memory_bytes)),
    }
}

pub(crate) fn dense_node(node: &Node, kind: u16) -> problem::Node {
    problem::Node {
        kind,
        gpus: if node.is_open() { node.gpus } else { 0 },
        cpu_milli: node.cpu_milli,
        memory_bytes: node.memory_bytes,
        rack: 0,
    }
}

/// GPUs of every node on which it holds any.
fn parts(holdings: &[Holding]) -> Vec<Part> {
    let with_gpus = holdings.iter().filter(|held| held.gpus != 0);
    with_gpus
        .map(|held| Part {
            node: held.node,
            gpus: held.gpus.count_ones(),
        })
        .collect()
}

/// What those of these tasks hold that are not gone.
fn holdings<'t>(
    job: &Job,
    nodes: &NodeIndex,
    tasks: impl Iterator<Item = &'t Task>,
) -> Vec<Holding> {
    let mut holdings = Vec::new();
    for task in tasks.filter(|task| !task.state.is_released()) {
        let Some(node) = nodes.find(task.node) else {
            continue;
        };
        add(
            &mut holdings,
            Holding {
                node,
                gpus: match task.state.holds_gpus() {
                    true => bits(&task.gpus),
                    false => 0,
                },
                room: held_room(job, task),
            },
        );
    }
    holdings
}

/// Who stands still keeps memory and uses no CPU.
fn held_room(job: &Job, task: &Task) -> Room {
    let room = room_of(job, task.role);
    match task.state.holds_gpus() {
        true => room,
        false => Room {
            cpu_milli: 0,
            ..room
        },
    }
}

pub(crate) fn room_of(job: &Job, role: Role) -> Room {
    match role {
        Role::Worker { .. } => Room::worker(&job.worker),
        Role::PsShard { .. } => Room::shard(&job.ps_shard),
    }
}

/// The GPU models of the cluster, each once.
fn kinds(nodes: &[Node]) -> Vec<String> {
    let mut kinds: Vec<&str> = nodes.iter().map(|node| node.gpu_model.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.into_iter().map(str::to_owned).collect()
}

pub(crate) fn kind_of(kinds: &[String], node: &Node) -> u16 {
    let found = kinds.binary_search_by(|kind| kind.as_str().cmp(&node.gpu_model));
    u16::try_from(found.unwrap_or(0)).unwrap_or(0)
}

/// Unix milliseconds as seconds; they stay exact, far below 2^52.
pub(crate) fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

pub(crate) fn seconds_of(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// Nodes by id.
struct NodeIndex(HashMap<NodeId, u32, BuildHasherDefault<IdHasher>>);

impl NodeIndex {
    fn of(snapshot: &Snapshot) -> Self {
        let ids = snapshot.nodes.iter().map(|node| node.id);
        Self(ids.zip(0..).collect())
    }

    fn find(&self, id: NodeId) -> Option<u32> {
        self.0.get(&id).copied()
    }
}

/// Ids are random already: their words multiplied into one (Fibonacci hashing) are spread enough, and the same in every round.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let word = word
                .iter()
                .fold(0, |word, &byte| word << 8 | u64::from(byte));
            self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_usize(&mut self, number: usize) {
        // The length of the id, which is the same for all.
        self.0 ^= number as u64;
    }
}

fn studies(snapshot: &Snapshot) -> Vec<StudyId> {
    let trials = snapshot.jobs.iter().filter_map(|job| job.trial);
    let studies: BTreeSet<StudyId> = trials.map(|trial| trial.study).collect();
    studies.into_iter().collect()
}

/// Tenants by id; one that the snapshot does not name has no quota.
struct TenantIndex(Vec<(TenantId, u32)>);

impl TenantIndex {
    fn find(&self, world: &mut World<'_>, id: TenantId) -> u32 {
        if let Ok(at) = self.0.binary_search_by_key(&id, |&(id, _)| id) {
            return self.0[at].1;
        }
        let known = self.0.len();
        if world.problem.tenants.len() == known {
            world.problem.tenants.push(problem::Tenant {
                weight: 1.0,
                gpu_quota: None,
                parent: None,
            });
            world.held.push(0);
        }
        u32::try_from(known).unwrap_or(u32::MAX)
    }
}
