//! State of a shard's workers and view, and the rules that need no waiting.

use super::clip::UnclippedSum;
use super::messages::{ConnectionId, Push};
use super::outbox::PartitionOutbox;
use super::partitions::PartitionedStep;
use super::replication::ReplicaSender;
use super::residuals::WorkerResiduals;
use super::tensors::Tensors;
use muster_comm::shard_codec::ShardCodec;
use muster_comm::wire::metadata::{NoisePart, StepStats};
use muster_comm::wire::view::{Departed, ReshardingReport, TaskSetView, ViewChange};
use muster_model::id::TaskId;
use muster_model::spec::Consistency;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLock};
use std::time::Instant;

/// State of a worker of the view at the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerStatus {
    Awaited,
    Joined,
    Left,
    Lost,
    /// The coordinator has removed it; the view continues without it.
    Dropped,
}

/// A worker of the view.
#[derive(Debug)]
pub(super) struct ShardMember {
    pub task: TaskId,
    pub standing: WorkerStatus,
    /// Next step of the worker.
    pub clock: u64,
    /// Its gradients of the present step; `None` after they are applied.
    pub push: Option<Push>,
    /// Newest step whose gradients another worker of its node pushed in a sum.
    pub covered: Option<u64>,
    /// Buffer of an applied push, until its connection takes it back.
    pub spare: Vec<f32>,
    /// Newest view under which it has pulled.
    pub entered: u64,
    /// Newest step that an answer has named to it.
    pub answered: u64,
    /// Number of updates in the parameters that it received last.
    pub read_at: u64,
    /// Partitions of its gradients of the present step that wait for those of the other workers.
    pub parts: Vec<Option<Vec<f32>>>,
    /// Receives partitions of parameters.
    pub outbox: Option<Arc<PartitionOutbox>>,
}

impl ShardMember {
    /// BSP: whether its gradients of the present step `version` have arrived, alone or in a sum.
    pub fn has_pushed(&self, version: u64) -> bool {
        self.push.is_some() || self.covered == Some(version)
    }
}

/// State of the tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TensorPhase {
    /// No content yet.
    Empty,
    Ready,
    /// Pieces are missing: from these shards, and from the tensors of the previous layout while
    /// `copying`.
    Moving {
        missing: BTreeSet<TaskId>,
        copying: bool,
    },
    /// This shard is not in the view and holds nothing from now on.
    Retired,
}

/// Source of answers to the last step of an earlier view.
#[derive(Debug)]
pub(super) struct FormerAnswers {
    /// The step after it.
    pub clock: u64,
    pub tensors: Arc<RwLock<Tensors>>,
    pub deltas: Option<Arc<Vec<u8>>>,
    pub owed: Vec<(TaskId, Vec<f32>)>,
}

/// Move of pieces from one layout to the next, for this shard.
#[derive(Debug, Clone)]
pub(super) struct PieceMove {
    pub view: Arc<TaskSetView>,
    pub old: Arc<RwLock<Tensors>>,
    pub new: Arc<RwLock<Tensors>>,
    pub updates: u64,
    pub began: Instant,
}

#[derive(Debug)]
pub(super) struct ShardState {
    pub chief: Option<TaskId>,
    /// Set when the coordinator has gone; `true` if it left without a goodbye.
    pub chief_lost: Option<bool>,
    pub view: Option<Arc<TaskSetView>>,
    /// BSP: the coordinator was notified of workers lost in the present step and has not decided
    /// yet. Until then the step is not acknowledged to any worker, because the decision may begin a
    /// new view.
    pub awaits_decision: bool,
    /// Change that follows when the step before its first is complete.
    pub pending: Option<(u64, Arc<ViewChange>)>,
    pub phase: TensorPhase,
    pub finished: bool,
    /// Another shard left in the middle of a move.
    pub broken: bool,
    /// The coordinator lost its connection here and promoted the replica in another process.
    pub superseded: bool,
    /// Steps applied under BSP.
    pub version: u64,
    /// Optimizer updates applied: steps under BSP, pushes otherwise.
    pub updates: u64,
    /// In the order of ranks.
    pub members: Vec<ShardMember>,
    /// Workers after their handshake, with the number of their newest connection.
    pub connected: BTreeMap<TaskId, u64>,
    /// Connected workers that are not in the view and wait for admission.
    pub waiting: BTreeSet<TaskId>,
    pub connections: u64,
    pub former: Vec<FormerAnswers>,
    pub tensors: Arc<RwLock<Tensors>>,
    /// Codecs of pushes and answers in the present layout, if they are encoded.
    pub shard_codec: Option<Arc<ShardCodec>>,
    /// Encoded answer to the step that was completed last.
    pub deltas: Option<Arc<Vec<u8>>>,
    /// Memory of codes that were applied.
    pub spare_codes: Vec<Vec<u8>>,
    /// Counts of completed steps under BSP, of applied pushes otherwise. Each answer to the
    /// coordinator takes them.
    pub stats: StepStats,
    /// Slice number in which all workers suspend after the step that was completed last.
    pub hold: u64,
    pub moving: Option<PieceMove>,
    /// Whether this shard has sent its pieces away.
    pub handed_over: bool,
    pub tally: ReshardingReport,
    /// Newest noise measurement, until the coordinator has received it.
    pub noise: NoisePart,
    /// Sum of the present step, if it is complete and waits for the clip factor.
    pub sum: Option<UnclippedSum>,
    /// Residuals of workers, to or from a checkpoint.
    pub residuals: WorkerResiduals,
    /// Set where this shard has a replica.
    pub replica_sender: Option<ReplicaSender>,
    /// The present step, if it is in partitions.
    pub parted: Option<PartitionedStep>,
}

impl ShardState {
    pub fn new(tensors: Tensors) -> Self {
        Self {
            chief: None,
            chief_lost: None,
            view: None,
            awaits_decision: false,
            pending: None,
            phase: TensorPhase::Empty,
            finished: false,
            broken: false,
            superseded: false,
            version: 0,
            updates: 0,
            members: Vec::new(),
            connected: BTreeMap::new(),
            waiting: BTreeSet::new(),
            connections: 0,
            former: Vec::new(),
            tensors: Arc::new(RwLock::new(tensors)),
            shard_codec: None,
            deltas: None,
            spare_codes: Vec::new(),
            stats: StepStats::default(),
            hold: 0,
            moving: None,
            handed_over: true,
            tally: ReshardingReport {
                layout: 0,
                before: 0,
                after: 0,
                received: 0,
                took_us: 0,
            },
            noise: NoisePart::default(),
            sum: None,
            residuals: WorkerResiduals::default(),
            replica_sender: None,
            parted: None,
        }
    }

    /// Returns the number of the present view, 0 before the first.
    pub fn number(&self) -> u64 {
        self.view.as_ref().map_or(0, |view| view.number)
    }

    pub fn member(&mut self, task: TaskId) -> Option<&mut ShardMember> {
        self.members.iter_mut().find(|member| member.task == task)
    }

    pub fn is_chief(&self, task: TaskId) -> bool {
        self.chief == Some(task)
    }

    /// Whether this is the newest connection of its worker.
    pub fn is_seated(&self, connection_id: ConnectionId) -> bool {
        self.connected.get(&connection_id.task) == Some(&connection_id.connection)
    }

    /// Returns the connected workers that do not wait for admission.
    pub fn inside(&self) -> impl Iterator<Item = &TaskId> {
        let connected = self.connected.keys();
        connected.filter(|task| !self.waiting.contains(task))
    }

    /// Returns departed workers that the coordinator has not decided on.
    pub fn departed(&self) -> Vec<Departed> {
        self.members
            .iter()
            .filter(|member| matches!(member.standing, WorkerStatus::Left | WorkerStatus::Lost))
            .map(|member| Departed {
                task_id: member.task,
                in_order: member.standing == WorkerStatus::Left,
                never_came: false,
            })
            .collect()
    }

    /// Returns counted workers that have not connected yet.
    pub fn awaited(&self) -> impl Iterator<Item = Departed> {
        self.members
            .iter()
            .filter(|member| member.standing == WorkerStatus::Awaited)
            .map(|member| Departed {
                task_id: member.task,
                in_order: false,
                never_came: true,
            })
    }

    /// Returns memory for an answer: that of the previous one, if no worker is still sent it.
    pub fn take_deltas(&mut self) -> Vec<u8> {
        let before = self.deltas.take();
        before.and_then(Arc::into_inner).unwrap_or_default()
    }

    /// BSP: whether a worker has departed without pushing the present step.
    pub fn cannot_complete(&self) -> bool {
        let is_open = self.sum.is_none();
        is_open
            && self.members.iter().any(|member| {
                matches!(member.standing, WorkerStatus::Left | WorkerStatus::Lost)
                    && !member.has_pushed(self.version)
            })
    }

    /// BSP: whether all counted workers but the slowest `backup` have pushed. The coordinator,
    /// which is first, is always waited for, because snapshots and view changes depend on its
    /// steps. Its decision is waited for as well, if it was asked for one.
    pub fn can_complete(&self, backup: u32) -> bool {
        let counted = || {
            self.members
                .iter()
                .filter(|member| member.standing != WorkerStatus::Dropped)
        };
        let has_pushed = |member: &&ShardMember| member.has_pushed(self.version);
        let pushed = counted().filter(has_pushed).count();
        let chief_pushed = counted().next().is_some_and(|member| has_pushed(&member));
        let all_pushed = chief_pushed && pushed + backup as usize >= counted().count();
        all_pushed && !self.awaits_decision
    }

    /// SSP and ASP: whether no worker of the present view pushes under it any more. A worker that
    /// has not connected enters the next view.
    pub fn all_entered(&self, number: u64) -> bool {
        self.members
            .iter()
            .all(|member| member.entered >= number || member.standing != WorkerStatus::Joined)
    }

    /// Returns the step of the slowest worker that still counts.
    pub fn slowest(&self) -> u64 {
        self.members
            .iter()
            .filter(|member| {
                matches!(
                    member.standing,
                    WorkerStatus::Joined | WorkerStatus::Awaited
                )
            })
            .map(|member| member.clock)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Returns the step at which training continues: under BSP the version, otherwise the
    /// coordinator's clock.
    pub fn next_step(&self, consistency: Consistency) -> u64 {
        match consistency {
            Consistency::Bsp { .. } => self.version,
            Consistency::Ssp { .. } | Consistency::Asp { .. } => self
                .members
                .first()
                .map_or(self.version, |chief| chief.clock),
        }
    }

    /// Forgets pending answers to the last step of earlier views for which `is_settled` is true.
    pub fn forget_owed(&mut self, is_settled: impl Fn(&FormerAnswers, TaskId) -> bool) {
        for former in &mut self.former {
            let mut owed = std::mem::take(&mut former.owed);
            owed.retain(|(task, _)| !is_settled(former, *task));
            former.owed = owed;
        }
        self.former.retain(|former| !former.owed.is_empty());
    }

    /// Makes `change` the present view from step `from` on. Workers that have pushed the previous
    /// step and wait are still owed its answer; with `also_awaited` also those that have not
    /// connected yet. A worker that is new in the view was waiting for admission.
    pub fn install(
        &mut self,
        from: u64,
        change: &ViewChange,
        owes_answers: bool,
        also_awaited: bool,
    ) {
        let mut before = std::mem::take(&mut self.members);
        if owes_answers {
            let owed = before
                .iter_mut()
                .filter(|member| {
                    let waits = member.clock == from && member.answered < from;
                    waits
                        && match member.standing {
                            WorkerStatus::Joined => true,
                            WorkerStatus::Awaited => also_awaited,
                            WorkerStatus::Left | WorkerStatus::Lost | WorkerStatus::Dropped => {
                                false
                            }
                        }
                })
                .map(|member| (member.task, std::mem::take(&mut member.spare)))
                .collect();
            self.former.push(FormerAnswers {
                clock: from,
                tensors: Arc::clone(&self.tensors),
                deltas: self.deltas.clone(),
                owed,
            });
            self.forget_owed(|former, task| former.clock == from && change.gone.contains(&task));
        }
        for &task in &change.view.workers {
            let at = before.iter().position(|member| member.task == task);
            let mut member = match at {
                Some(at) => before.swap_remove(at),
                None => ShardMember {
                    task,
                    standing: if self.connected.contains_key(&task) {
                        WorkerStatus::Joined
                    } else {
                        WorkerStatus::Awaited
                    },
                    clock: from,
                    push: None,
                    covered: None,
                    spare: Vec::new(),
                    entered: 0,
                    answered: 0,
                    read_at: 0,
                    parts: Vec::new(),
                    outbox: None,
                },
            };
            member.clock = from;
            self.waiting.remove(&task);
            self.members.push(member);
        }
        self.version = from;
        self.view = Some(Arc::new(change.view.clone()));
    }
}
