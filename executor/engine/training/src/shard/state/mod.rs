//! State of a shard: its workers, its view, and the present step. Nothing here waits.

mod connected;
mod encoding;
mod ending;
mod member;
mod open_step;
mod owed_answers;
mod phase;
mod piece_move;
mod report;
mod residuals;

pub use connected::ConnectedWorkers;
pub use encoding::ShardEncoding;
pub use ending::Ending;
pub use member::{ShardMember, WorkerStatus};
pub use open_step::{OpenStep, PartitionNorms, PartitionedStep, UnclippedSum};
pub use owed_answers::{FormerAnswers, OwedAnswers};
pub use phase::{IncomingPieces, ShardPhase};
pub use piece_move::PieceMove;
pub use report::StepReport;
pub use residuals::WorkerResiduals;

use super::messages::RequestRefusal;
use super::replication::ReplicaSender;
use super::tensors::Tensors;
use muster_comm::wire::view::{Departed, ReshardingReport, TaskSetView, ViewChange};
use muster_model::id::TaskId;
use std::sync::{Arc, RwLock};

/// A view change that follows when the step before its first is complete.
#[derive(Debug, Clone)]
pub struct PendingChange {
    /// First step of the view.
    pub from: u64,
    pub change: Arc<ViewChange>,
}

/// State of a shard, under the lock of its exchange.
#[derive(Debug)]
pub struct ShardState {
    pub connected: ConnectedWorkers,
    pub ending: Ending,
    pub view: Option<Arc<TaskSetView>>,
    pub pending: Option<PendingChange>,
    /// Workers of the view, in the order of ranks.
    pub members: Vec<ShardMember>,
    /// BSP: the coordinator was notified of workers lost in the present step and has not decided
    /// yet. Until then the step is not acknowledged to any worker, because the decision may begin a
    /// new view.
    pub awaits_decision: bool,
    /// Steps applied under BSP.
    pub version: u64,
    /// Optimizer updates applied: steps under BSP, pushes otherwise.
    pub updates: u64,
    pub step: OpenStep,
    pub report: StepReport,
    pub owed: OwedAnswers,
    pub phase: ShardPhase,
    pub tensors: Arc<RwLock<Tensors>>,
    pub encoding: ShardEncoding,
    /// Whether this shard has sent its pieces of the newest move away.
    pub handed_over: bool,
    /// Result of the newest move.
    pub tally: ReshardingReport,
    /// Residuals of workers, to or from a checkpoint.
    pub residuals: WorkerResiduals,
    /// Set where this shard has a replica.
    pub replica_sender: Option<ReplicaSender>,
}

impl ShardState {
    pub fn new(tensors: Tensors) -> Self {
        Self {
            connected: ConnectedWorkers::default(),
            ending: Ending::default(),
            view: None,
            pending: None,
            members: Vec::new(),
            awaits_decision: false,
            version: 0,
            updates: 0,
            step: OpenStep::default(),
            report: StepReport::default(),
            owed: OwedAnswers::default(),
            phase: ShardPhase::Empty,
            tensors: Arc::new(RwLock::new(tensors)),
            encoding: ShardEncoding::default(),
            handed_over: true,
            tally: tally_of(0),
            residuals: WorkerResiduals::default(),
            replica_sender: None,
        }
    }

    /// Returns the number of the present view, 0 before the first.
    pub fn number(&self) -> u64 {
        self.view.as_ref().map_or(0, |view| view.number)
    }

    /// Checks that view `known` is the present one.
    ///
    /// # Errors
    /// [`RequestRefusal::StaleView`].
    pub fn check_view(&self, known: u64) -> Result<(), RequestRefusal> {
        let present = self.number();
        if known == present {
            Ok(())
        } else {
            Err(RequestRefusal::StaleView { known, present })
        }
    }

    /// Returns the layout of the present view, 0 before the first.
    pub fn layout(&self) -> u64 {
        self.view.as_ref().map_or(0, |view| view.layout)
    }

    /// Returns the view that the coordinator has announced.
    pub fn next_view(&self) -> Option<&TaskSetView> {
        self.pending.as_ref().map(|pending| &pending.change.view)
    }

    pub fn member(&mut self, task: TaskId) -> Option<&mut ShardMember> {
        self.members.iter_mut().find(|member| member.task == task)
    }

    pub fn has_member(&self, task: TaskId) -> bool {
        self.members.iter().any(|member| member.task == task)
    }

    pub fn is_chief(&self, task: TaskId) -> bool {
        self.connected.chief == Some(task)
    }

    /// Returns the first status of a worker in a new view: joined if it is connected, else awaited.
    pub fn standing_in_new_view(&self, task: TaskId) -> WorkerStatus {
        if self.connected.contains(task) {
            WorkerStatus::Joined
        } else {
            WorkerStatus::Awaited
        }
    }

    /// Returns the number of workers of the view with this status.
    pub fn count(&self, standing: WorkerStatus) -> usize {
        let members = self.members.iter();
        members.filter(|member| member.standing == standing).count()
    }

    /// Returns departed workers that the coordinator has not decided on.
    pub fn departed(&self) -> Vec<Departed> {
        self.members
            .iter()
            .filter(|member| member.is_departed())
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

    /// BSP: whether a worker has departed without pushing the present step.
    pub fn cannot_complete(&self) -> bool {
        let is_open = self.step.sum().is_none();
        is_open
            && self
                .members
                .iter()
                .any(|member| member.is_departed() && !member.has_pushed(self.version))
    }

    /// BSP: whether all counted workers but the slowest `backup` have pushed. The coordinator,
    /// which is first, is always waited for, because snapshots and view changes depend on its
    /// steps. Its decision is waited for as well, if it was asked for one.
    pub fn can_complete(&self, backup: u32) -> bool {
        let counted = self.members.iter().filter(|member| member.is_counted());
        let mut pushed = counted.map(|member| member.has_pushed(self.version));
        let chief_pushed = pushed.next() == Some(true);
        let missing = pushed.filter(|&has_pushed| !has_pushed).count();
        chief_pushed && missing <= backup as usize && !self.awaits_decision
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

    /// Whether another worker has pushed this worker's gradients of `clock`.
    pub fn is_covered(&mut self, task: TaskId, clock: u64) -> bool {
        self.member(task)
            .is_some_and(|member| member.covered == Some(clock))
    }

    /// Records that the step `clock` contains the gradients of these workers. Returns `false`
    /// without a change if it contains some of them already, or one of them is not in the view.
    pub fn cover(&mut self, others: &[TaskId], clock: u64) -> bool {
        for &task in others {
            let member = self.member(task);
            if !member.is_some_and(|member| member.clock == clock && member.push.is_none()) {
                return false;
            }
        }
        self.owed
            .forget_if(|former, task| former <= clock && others.contains(&task));
        for &task in others {
            let member = self.member(task).expect("it was just looked at");
            member.covered = Some(clock);
            member.clock = clock + 1;
        }
        true
    }

    /// Counts an applied step.
    pub fn completed(&mut self) {
        self.updates += 1;
        self.version += 1;
        self.residuals.forget_before(self.version);
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
                .map(|member| (member.task, member.take_spare()))
                .collect();
            self.owed.add(FormerAnswers {
                clock: from,
                tensors: Arc::clone(&self.tensors),
                deltas: self.encoding.deltas.clone(),
                owed,
            });
            self.owed
                .forget_if(|former, task| former == from && change.gone.contains(&task));
        }
        for &task in &change.view.workers {
            let at = before.iter().position(|member| member.task == task);
            let mut member = match at {
                Some(at) => before.swap_remove(at),
                None => ShardMember::new(task, self.standing_in_new_view(task), from),
            };
            member.clock = from;
            self.connected.waiting.remove(&task);
            self.members.push(member);
        }
        self.version = from;
        self.view = Some(Arc::new(change.view.clone()));
    }
}

/// Returns the report of a move to `layout` that has not begun.
pub fn tally_of(layout: u64) -> ReshardingReport {
    ReshardingReport {
        layout,
        before: 0,
        after: 0,
        received: 0,
        took_us: 0,
    }
}
