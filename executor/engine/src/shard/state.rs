//! What a shard knows of its workers and of the view, and the rules that need no waiting.

use super::clip::Sum;
use super::follower::Follower;
use super::held::Held;
use super::outbox::Outbox;
use super::parts::Parted;
use super::tensors::Tensors;
use super::words::{Push, Seat};
use crate::squeeze::Squeeze;
use crate::wire::hello::{NoisePart, StepStats};
use crate::wire::view::{Change, Departed, Tally, View};
use muster_model::id::TaskId;
use muster_model::spec::Consistency;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLock};
use std::time::Instant;

/// How a worker of the view stands to the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Awaited,
    Joined,
    Left,
    Lost,
    /// The chief has decided that the view goes on without it.
    Dropped,
}

/// A worker of the view.
#[derive(Debug)]
pub(super) struct Member {
    pub task: TaskId,
    pub standing: Standing,
    /// Its next step.
    pub clock: u64,
    /// Its gradients of the present step; empty again as soon as they are applied.
    pub push: Option<Push>,
    /// The newest step of which its gradients came together with those of another worker of its node.
    pub covered: Option<u64>,
    /// The buffer of an applied push, until its connection takes it back.
    pub spare: Vec<f32>,
    /// The newest view under which it has asked for parameters.
    pub entered: u64,
    /// The newest step that it was told to go on with.
    pub answered: u64,
    /// Updates that the parameters had which it was given last.
    pub read_at: u64,
    /// Of its gradients of the present step, the parts that are in and wait for the others'.
    pub parts: Vec<Option<Vec<f32>>>,
    /// Where parts of parameters go.
    pub outbox: Option<Arc<Outbox>>,
}

impl Member {
    /// BSP: whether its gradients of the present step, which is `version`, are here, alone or with others'.
    pub fn has_pushed(&self, version: u64) -> bool {
        self.push.is_some() || self.covered == Some(version)
    }
}

/// What the tensors are worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing yet.
    Empty,
    Ready,
    /// Pieces are on their way: from these shards, and from the tensors of the layout before while `copying`.
    Moving {
        missing: BTreeSet<TaskId>,
        copying: bool,
    },
    /// This shard is not in the view: it holds nothing from now on.
    Retired,
}

/// Where the last step of an earlier view is still answered from.
#[derive(Debug)]
pub(super) struct Former {
    /// The step that followed it.
    pub clock: u64,
    pub tensors: Arc<RwLock<Tensors>>,
    pub deltas: Option<Arc<Vec<u8>>>,
    pub owed: Vec<(TaskId, Vec<f32>)>,
}

/// From one layout to the next, as this shard must carry it out.
#[derive(Debug, Clone)]
pub(super) struct Move {
    pub view: Arc<View>,
    pub old: Arc<RwLock<Tensors>>,
    pub new: Arc<RwLock<Tensors>>,
    pub updates: u64,
    pub began: Instant,
}

#[derive(Debug)]
pub(super) struct State {
    pub chief: Option<TaskId>,
    /// Set when the chief has gone; whether without a word.
    pub chief_lost: Option<bool>,
    pub view: Option<Arc<View>>,
    /// BSP: the chief was told who has departed in the present step, and has not said yet how it goes on. Until then nobody is past the step: a
    /// view may follow that everyone who is answered has to hear of.
    pub awaits_decision: bool,
    /// Follows once the step before its first is complete.
    pub pending: Option<(u64, Arc<Change>)>,
    pub phase: Phase,
    pub finished: bool,
    /// A peer shard went away in the middle of a move.
    pub broken: bool,
    /// The chief has made another process this shard, as it lost the way here.
    pub superseded: bool,
    /// Steps applied under BSP.
    pub version: u64,
    /// Optimizer updates applied: steps under BSP, pushes otherwise.
    pub updates: u64,
    /// In the order of ranks.
    pub members: Vec<Member>,
    /// Every greeted worker, with the number of its newest connection.
    pub connected: BTreeMap<TaskId, u64>,
    /// Those of them who are not of the view and wait to be.
    pub waiting: BTreeSet<TaskId>,
    pub connections: u64,
    pub former: Vec<Former>,
    pub tensors: Arc<RwLock<Tensors>>,
    /// How pushes and answers are encoded in the present layout, if they are.
    pub squeeze: Option<Arc<Squeeze>>,
    /// The answer of the step that was completed last, where answers are encoded.
    pub deltas: Option<Arc<Vec<u8>>>,
    /// Memory of codes that are applied.
    pub spare_codes: Vec<Vec<u8>>,
    /// Of completed steps under BSP, of applied pushes otherwise; the chief takes it with each answer.
    pub stats: StepStats,
    /// The turn in which all stand still after the step that was completed last.
    pub hold: u64,
    pub moving: Option<Move>,
    /// Whether its own pieces have been handed over.
    pub handed_over: bool,
    pub tally: Tally,
    /// Of the newest step in which it was measured, until the chief has it.
    pub noise: NoisePart,
    /// Of the present step, where it is complete and waits for the chief's word.
    pub sum: Option<Sum>,
    /// What workers hold back, where it is in a checkpoint or comes from one.
    pub held: Held,
    /// Where this shard is to have a copy elsewhere.
    pub follower: Option<Follower>,
    /// The present step, where it comes in parts.
    pub parted: Option<Parted>,
}

impl State {
    pub fn new(tensors: Tensors) -> Self {
        Self {
            chief: None,
            chief_lost: None,
            view: None,
            awaits_decision: false,
            pending: None,
            phase: Phase::Empty,
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
            squeeze: None,
            deltas: None,
            spare_codes: Vec::new(),
            stats: StepStats::default(),
            hold: 0,
            moving: None,
            handed_over: true,
            tally: Tally {
                layout: 0,
                before: 0,
                after: 0,
                received: 0,
                took_us: 0,
            },
            noise: NoisePart::default(),
            sum: None,
            held: Held::default(),
            follower: None,
            parted: None,
        }
    }

    /// Of the view that holds, 0 before the first.
    pub fn number(&self) -> u64 {
        self.view.as_ref().map_or(0, |view| view.number)
    }

    pub fn member(&mut self, task: TaskId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.task == task)
    }

    pub fn is_chief(&self, task: TaskId) -> bool {
        self.chief == Some(task)
    }

    /// Whether a worker still comes by this connection, and not by a newer one.
    pub fn is_seated(&self, seat: Seat) -> bool {
        self.connected.get(&seat.task) == Some(&seat.connection)
    }

    /// Who is connected and does not wait to be taken in.
    pub fn inside(&self) -> impl Iterator<Item = &TaskId> {
        let connected = self.connected.keys();
        connected.filter(|task| !self.waiting.contains(task))
    }

    /// Who went away and has not been decided on.
    pub fn departed(&self) -> Vec<Departed> {
        self.members
            .iter()
            .filter(|member| matches!(member.standing, Standing::Left | Standing::Lost))
            .map(|member| Departed {
                task_id: member.task,
                in_order: member.standing == Standing::Left,
                never_came: false,
            })
            .collect()
    }

    /// Who has not come yet and counts.
    pub fn awaited(&self) -> impl Iterator<Item = Departed> {
        self.members
            .iter()
            .filter(|member| member.standing == Standing::Awaited)
            .map(|member| Departed {
                task_id: member.task,
                in_order: false,
                never_came: true,
            })
    }

    /// Memory for an answer: that of the one before, where nobody is sent it any more.
    pub fn take_deltas(&mut self) -> Vec<u8> {
        let before = self.deltas.take();
        before.and_then(Arc::into_inner).unwrap_or_default()
    }

    /// BSP: some worker has departed without having pushed the present step.
    pub fn cannot_complete(&self) -> bool {
        let is_open = self.sum.is_none();
        is_open
            && self.members.iter().any(|member| {
                matches!(member.standing, Standing::Left | Standing::Lost)
                    && !member.has_pushed(self.version)
            })
    }

    /// BSP: every worker that counts has pushed but for the slowest `backup`. The chief, who is first, is always waited for: snapshots
    /// and changes of the view hang on its steps. So is its word, where it was asked for one.
    pub fn can_complete(&self, backup: u32) -> bool {
        let counted = || {
            self.members
                .iter()
                .filter(|member| member.standing != Standing::Dropped)
        };
        let has_pushed = |member: &&Member| member.has_pushed(self.version);
        let pushed = counted().filter(has_pushed).count();
        let chief_pushed = counted().next().is_some_and(|member| has_pushed(&member));
        let all_pushed = chief_pushed && pushed + backup as usize >= counted().count();
        all_pushed && !self.awaits_decision
    }

    /// SSP and ASP: nobody of the present view pushes under it any more. Whoever has not come yet comes in under the next one.
    pub fn all_entered(&self, number: u64) -> bool {
        self.members
            .iter()
            .all(|member| member.entered >= number || member.standing != Standing::Joined)
    }

    /// The step of the slowest that still counts.
    pub fn slowest(&self) -> u64 {
        self.members
            .iter()
            .filter(|member| matches!(member.standing, Standing::Joined | Standing::Awaited))
            .map(|member| member.clock)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// The step that training continues from: BSP, the version; otherwise the chief's clock.
    pub fn next_step(&self, consistency: Consistency) -> u64 {
        match consistency {
            Consistency::Bsp { .. } => self.version,
            Consistency::Ssp { .. } | Consistency::Asp { .. } => self
                .members
                .first()
                .map_or(self.version, |chief| chief.clock),
        }
    }

    /// Nobody owes these the answer of a former view's last step any more.
    pub fn forget_owed(&mut self, is_settled: impl Fn(&Former, TaskId) -> bool) {
        for former in &mut self.former {
            let mut owed = std::mem::take(&mut former.owed);
            owed.retain(|(task, _)| !is_settled(former, *task));
            former.owed = owed;
        }
        self.former.retain(|former| !former.owed.is_empty());
    }

    /// Makes `change` the view that holds from step `from` on. Answers of the step before are owed to those who have pushed it and wait,
    /// and with `also_awaited` to those who may yet come with it. The members who stay keep their clocks' order; whoever is new was a
    /// guest.
    pub fn install(&mut self, from: u64, change: &Change, owes_answers: bool, also_awaited: bool) {
        let mut before = std::mem::take(&mut self.members);
        if owes_answers {
            let owed = before
                .iter_mut()
                .filter(|member| {
                    let waits = member.clock == from && member.answered < from;
                    waits
                        && match member.standing {
                            Standing::Joined => true,
                            Standing::Awaited => also_awaited,
                            Standing::Left | Standing::Lost | Standing::Dropped => false,
                        }
                })
                .map(|member| (member.task, std::mem::take(&mut member.spare)))
                .collect();
            self.former.push(Former {
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
                None => Member {
                    task,
                    standing: match self.connected.contains_key(&task) {
                        true => Standing::Joined,
                        false => Standing::Awaited,
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
