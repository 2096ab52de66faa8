//! The cluster in dense numbers while a round is made: what is free, where every job stands, and the problem that the policy sees.
//!
//! It is built once from a snapshot; starts and stops then change it in place, so that passes and trials cost what they change.

mod build;
mod dense;
mod index;

use super::free::{FreeNode, Holding, Room};
use super::gang::{Placed, Shape};
use super::outlook::{Kinds, Sizing};
use super::packing::{self, Seats};
use super::settle::once_gone;
use super::standing::{Standing, gpus_of};
use super::turns;
use crate::estimate::Estimate;
use crate::plan::Action;
use crate::policies::{Promises, Share};
use crate::policy::Policy;
use crate::problem::{self, Problem};
use crate::report::MoveReport;
use crate::snapshot::{Job, Snapshot};
pub(crate) use dense::dense_node;
use muster_model::id::{StudyId, TaskId};
use muster_model::job::JobState;
use muster_model::task::Role;
use std::cell::OnceCell;
use std::collections::BTreeMap;

pub(crate) struct World<'a> {
    pub snapshot: &'a Snapshot,
    pub policy: &'a Policy,
    pub share: Box<dyn Share>,
    pub promises: Promises,
    pub now_ms: i64,
    pub kinds: Kinds,
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
    /// Whether each job would fit if nobody else were there, once somebody has asked.
    pub could_run: OnceCell<Vec<bool>>,
    /// Free GPUs that are kept for the first of those who wait for their turn.
    pub reserved: Option<(usize, BTreeMap<u32, u64>)>,
    /// Those of them that jobs may borrow, as that turn is some time off.
    pub lendable: BTreeMap<u32, u64>,
    /// What was changed since a trial began: the jobs as they were.
    pub journal: Option<Vec<(usize, LiveJob<'a>, Option<problem::Job>)>>,
    /// Moves that this round has begun, for the record.
    pub moves: Vec<MoveReport>,
    /// GPUs that are a guest's once its host has left, by node.
    pub inherited: BTreeMap<u32, u64>,
    /// Who is on the GPUs that are shared, or may be.
    pub seats: Seats,
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
    /// The job whose GPU it shares as a guest. It holds no GPU itself then, and is no affair of the policy's, which knows whole GPUs.
    pub host: Option<usize>,
    /// The job that shares its GPU as a guest.
    pub guest: Option<usize>,
    /// GPUs that count against its tenant's quota beside those that it holds itself.
    pub shared: u32,
}

impl<'a> World<'a> {
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
        let step = live.job.progress.step;
        let workers = match &live.destination {
            Some(placed) => placed.size().0,
            None if live.standing.stays() => live.size.0,
            None => 0,
        };
        live.sizing = Sizing::of(&live.estimate, &live.shape, step, workers, &self.kinds);
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
        let lent = self.lend(placed.workers.iter().copied());
        let live = &mut self.jobs[index];
        live.take(Action::Start { tasks, why, lent }, now_ms);
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
        turns::take_back(self, index);
        if let Action::Stop { charge, .. } = &mut action {
            *charge = was_charged.max(*charge);
        }
        packing::leave(self, index);
        let now_ms = self.now_ms;
        let live = &mut self.jobs[index];
        live.take(action, now_ms);
        live.is_resizing = false;
        // What it comes back with is its owner's range again, however few it went on with.
        live.shape.workers = live.job.workers;
        for held in &live.holdings {
            self.free[held.node as usize].release_later(held);
        }
        let step = live.job.progress.step;
        live.sizing = Sizing::of(&live.estimate, &live.shape, step, 0, &self.kinds);
        self.refresh(index);
        self.keep_excluded();
    }

    /// In a trial: the tasks of a stopping job are gone.
    pub(crate) fn release(&mut self, index: usize) {
        self.remember(index);
        let (policy, now_ms) = (self.policy, self.now_ms);
        let live = &mut self.jobs[index];
        (live.state, live.not_before_ms) = once_gone(live, policy, now_ms);
        live.standing = Standing::of(&live.state, live.not_before_ms, now_ms);
        let holdings = std::mem::take(&mut live.holdings);
        self.held[live.tenant as usize] -= std::mem::take(&mut live.shared);
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
        let live = &self.jobs[index];
        self.held[live.tenant as usize] -= gpus_of(holdings);
        let destination = live.destination.as_ref();
        let kept = destination.map_or_else(Vec::new, |placed| placed.holdings(&live.shape));
        for held in holdings {
            let inherited = self.inherited.get(&held.node).copied().unwrap_or(0);
            let kept = kept.iter().filter(|kept| kept.node == held.node);
            let not_free = kept.fold(inherited, |gpus, kept| gpus | kept.gpus);
            self.free[held.node as usize].give_back_but(held, not_free);
        }
    }

    /// Takes GPUs out of those that may be borrowed. Whether any of them was one.
    pub(crate) fn lend(&mut self, gpus: impl Iterator<Item = (u32, u64)>) -> bool {
        let mut lent = false;
        for (node, gpus) in gpus {
            let Some(there) = self.lendable.get_mut(&node) else {
                continue;
            };
            lent |= *there & gpus != 0;
            *there &= !gpus;
            let kept = self.reserved.as_mut();
            if let Some(kept) = kept.and_then(|(_, kept)| kept.get_mut(&node)) {
                *kept &= !gpus;
            }
        }
        lent
    }

    /// What is free for a job that yields to the turn for which some of it is kept.
    pub(crate) fn with_lendable(&self, free: &[FreeNode]) -> Vec<FreeNode> {
        let mut free = free.to_vec();
        for (&node, gpus) in &self.lendable {
            free[node as usize].now |= gpus;
        }
        free
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
    /// GPUs that count against its tenant's quota.
    pub(crate) fn charged(&self) -> u32 {
        gpus_of(&self.holdings) + self.shared
    }

    /// What the owner of a job of that tenant may read of this one: others' names are theirs.
    pub(crate) fn named_to(&self, tenant: u32) -> &str {
        match self.tenant == tenant {
            true => &self.job.name,
            false => "another tenant's job",
        }
    }

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

pub(crate) fn room_of(job: &Job, role: Role) -> Room {
    match role {
        Role::Worker { .. } => Room::worker(&job.worker),
        Role::PsShard { .. } => Room::shard(&job.ps_shard),
    }
}

/// Unix milliseconds as seconds; they stay exact, far below 2^52.
pub(crate) fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

pub(crate) fn seconds_of(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
