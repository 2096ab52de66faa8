//! All PS shards as one: each step goes to every shard at the same time, each over its own connection and into its own part of
//! the arena; and the worker's side of a change of the view.
//!
//! [`pull`] is how a worker comes in under a view, [`step`] a step's gradients and what comes back, [`together`] the same of several workers of a node, [`parts`] in parts while it is computed, [`clip`] the chief's word in between where norms are clipped, [`held`] what workers
//! hold back of encoded gradients, [`eager`] a step ahead of its answer under SSP, [`lead`] what only the chief asks of them, [`snapshot`] what they hold, for a checkpoint, which [`draw`] may bring later, [`succession`] which view follows which.

mod at_once;
mod clip;
mod draw;
mod eager;
mod held;
mod lead;
mod parts;
mod pull;
mod rescue;
mod snapshot;
mod step;
mod succession;
mod together;

pub use draw::{Draw, DrawError};
pub use eager::Eager;
pub use lead::Moved;
pub use parts::{Fetch, Pass, Ready};
pub use snapshot::{Snapshot, known};
pub use succession::first_view;

use super::link::{Link, Reply, Spares, Told, Way};
use crate::compress::{Codecs, Feedback, PlanError};
use crate::model::Block;
use crate::parts::{Order, Plan};
use crate::squeeze::Squeeze;
use crate::wire::WireError;
use crate::wire::hello::{Guest, Hello, NoisePart, PushHead};
use crate::wire::view::{Change, Departed, View};
use clip::Clipping;
use muster_model::id::TaskId;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A shard of the job, where it is reached.
pub type Address = (TaskId, String);

/// The index of a shard, and what went wrong with it.
pub type ShardFailure = (usize, WireError);

/// What a worker encodes with.
#[derive(Debug)]
struct Compression {
    codecs: Codecs,
    blocks: Vec<Block>,
    feedback: Feedback,
    /// Of the job; each rank's randomness is its own.
    seed: u64,
}

/// Connections to every shard of the job.
#[derive(Debug)]
pub struct Shards {
    hello: Hello,
    /// Where tasks of this node meet, if they do.
    sockets: Option<PathBuf>,
    /// The view that is worked by; `None` before the first.
    view: Option<View>,
    /// In the order of the view's shards, once there is one.
    links: Vec<Link>,
    /// Newest that was heard of and is not worked by yet.
    next: Option<View>,
    /// Which links still owe the answer of a push that somebody's departure holds up.
    owing: Vec<bool>,
    /// The newest push: its step, and what goes with it.
    pushed: Option<(u64, PushHead)>,
    departed: Vec<Departed>,
    /// Shards that may be in the next view. The chief has approached them; another worker waits there to be taken in.
    prospects: Vec<Link>,
    /// Chief: shards that are not in the view any more, until all they held has been handed over.
    retiring: Vec<Link>,
    compression: Option<Compression>,
    /// The newest layout whose move was looked at.
    audited: u64,
    parameters: usize,
    /// Of each example.
    targets: u64,
    /// Whether each shard has a copy with another one.
    copied: bool,
    /// Chief: where steps are clipped.
    clipping: Option<Clipping>,
    /// Before its next push this worker is to hand over what it holds back.
    told_to_keep: bool,
    /// Chief: who was told to, when that was said last.
    keepers: Vec<TaskId>,
    /// Chief: how long a snapshot waits to hear what others hold back.
    hears_within: Duration,
    /// By the newest answers: pushes of all workers for steps before this one are in them.
    slowest: u64,
    /// Chief: what all shards together have measured, until it is asked for.
    noise: Option<NoisePart>,
    /// The step that comes next by the newest answer.
    next_step: u64,
    /// Chief: the newest change it told, and its first step.
    announced: Option<(u64, Change)>,
    /// In which order parts of a step go, where they do not go at once.
    parts: Option<Order>,
    /// How the layout of this number is cut into parts.
    plan: Option<(u64, Plan)>,
    spares: Spares,
    /// Chief: of lost shards, in whose process they live on, as far as it was said.
    told_of: Vec<(TaskId, TaskId)>,
}

impl Shards {
    /// Greets every shard; `parameters` are the whole network's.
    ///
    /// # Errors
    /// The index of the shard that could not be joined, and why.
    pub fn join(
        addresses: &[Address],
        parameters: usize,
        hello: &Hello,
    ) -> Result<Self, ShardFailure> {
        Self::join_near(addresses, parameters, hello, None)
    }

    /// The same; with those shards that listen in the folder `sockets`, if one is given, it shares memory.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn join_near(
        addresses: &[Address],
        parameters: usize,
        hello: &Hello,
        sockets: Option<&Path>,
    ) -> Result<Self, ShardFailure> {
        let mut links = Vec::with_capacity(addresses.len());
        for (index, (shard, address)) in addresses.iter().enumerate() {
            let way = Way {
                address,
                hosts: vec![*shard],
                sockets,
            };
            links.push(Link::join(*shard, &way, hello).map_err(|error| (index, error))?);
        }
        Ok(Self {
            hello: hello.clone(),
            sockets: sockets.map(Path::to_owned),
            view: None,
            owing: vec![false; links.len()],
            links,
            next: None,
            pushed: None,
            departed: Vec::new(),
            prospects: Vec::new(),
            retiring: Vec::new(),
            audited: 1,
            compression: None,
            parameters,
            targets: 1,
            copied: false,
            clipping: None,
            told_to_keep: false,
            keepers: Vec::new(),
            hears_within: held::HEARD_WITHIN,
            slowest: 0,
            noise: None,
            next_step: 0,
            announced: None,
            parts: None,
            plan: None,
            spares: Spares::default(),
            told_of: Vec::new(),
        })
    }

    /// Each example has so many targets, over which gradients are summed.
    #[must_use]
    pub fn with_targets(self, targets: u64) -> Self {
        Self { targets, ..self }
    }

    /// Whether each shard has a copy with another one, which goes on as it when it is lost.
    #[must_use]
    pub fn with_copies(self, copied: bool) -> Self {
        Self { copied, ..self }
    }

    /// Pushes are encoded from now on, and under BSP the answers.
    ///
    /// # Errors
    /// When a codec's settings lie outside their range.
    pub fn compress(
        &mut self,
        codecs: Codecs,
        blocks: &[Block],
        seed: u64,
    ) -> Result<(), PlanError> {
        self.compression = Some(Compression {
            feedback: Squeeze::feedback(&codecs, blocks)?,
            codecs,
            blocks: blocks.to_vec(),
            seed,
        });
        Ok(())
    }

    /// Takes over how another set of connections encoded, and whether its steps went in parts.
    pub(super) fn go_like(&mut self, before: Self) {
        self.compression = before.compression;
        self.parts = before.parts;
    }

    /// What this worker has not sent yet, by the names that checkpoints know it by.
    #[must_use]
    pub fn feedback(&self) -> Option<&Feedback> {
        self.compression
            .as_ref()
            .map(|compression| &compression.feedback)
    }

    /// Makes what links encode with, for the view.
    fn squeeze(&mut self) {
        let (Some(compression), Some(view)) = (&self.compression, &self.view) else {
            return;
        };
        for link in &mut self.links {
            let pieces = view.pieces(link.shard);
            let squeeze = Squeeze::new(&compression.codecs, &compression.blocks, pieces);
            link.squeeze = Some(squeeze.expect("the codecs were tried"));
        }
    }

    /// All workers' pushes for steps before this one are in the newest answers.
    #[must_use]
    pub fn slowest(&self) -> u64 {
        self.slowest
    }

    /// Chief: what the shards have measured since it was last asked for.
    pub fn take_noise(&mut self) -> Option<NoisePart> {
        self.noise.take()
    }

    /// The view that is worked by.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// The newest view that was heard of.
    #[must_use]
    pub fn newest(&self) -> Option<&View> {
        self.next.as_ref().or(self.view.as_ref())
    }

    /// With how many shards it shares memory.
    #[must_use]
    pub fn near(&self) -> usize {
        let links = self.links.iter();
        links.filter(|link| link.is_shared_memory()).count()
    }

    /// This worker's rank in the one that is worked by.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        self.view.as_ref()?.rank(self.hello.task_id)
    }

    /// Chief: who went away, after [`Reply::Gone`].
    #[must_use]
    pub fn departed(&self) -> &[Departed] {
        &self.departed
    }

    /// Works by the newest view that was heard of, if there is one. `None` when there is none; otherwise whether this worker is in
    /// it. If not, it has said goodbye to all.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn follow(&mut self) -> Result<Option<bool>, ShardFailure> {
        let Some(view) = self.next.take() else {
            return Ok(None);
        };
        if view.rank(self.hello.task_id).is_none() {
            for link in self.links.drain(..) {
                let _ = link.goodbye();
            }
            self.view = Some(view);
            return Ok(Some(false));
        }
        let mut links = Vec::with_capacity(view.shards.len());
        for (index, holder) in view.shards.iter().enumerate() {
            let known = take(&mut self.links, holder.task_id)
                .or_else(|| take(&mut self.prospects, holder.task_id));
            links.push(match known {
                Some(link) => link,
                None => {
                    let way = Way {
                        address: &holder.address,
                        hosts: view.hosts(holder),
                        sockets: self.sockets.as_deref(),
                    };
                    Link::join(holder.task_id, &way, &self.hello).map_err(|error| (index, error))?
                }
            });
        }
        for (index, mut link) in self.links.drain(..).enumerate() {
            if self.hello.guest == Guest::Chief {
                link.ask_tally().map_err(|error| (index, error))?;
                self.retiring.push(link);
            } else if link.is_asked {
                // A shard of a view to come, which may know by now that this worker is in: it could not come in twice.
                self.prospects.push(link);
            } else {
                // A shard that is gone already needs no goodbye.
                let _ = link.goodbye();
            }
        }
        self.links = links;
        self.owing = vec![false; self.links.len()];
        self.view = Some(view);
        self.squeeze();
        Ok(Some(true))
    }

    fn heard(&mut self, view: View) {
        let known = self.next.as_ref().or(self.view.as_ref());
        if known.is_none_or(|known| view.number > known.number) {
            self.next = Some(view);
        }
    }

    /// What the shards' replies mean together: the worst of them.
    fn together(&mut self, all: Vec<Told>) -> Reply {
        let rank = |reply: &Reply| match reply {
            Reply::Parameters { .. } => 0,
            // Answered before anybody asks what it means.
            Reply::Norm { .. } | Reply::Absent => 0,
            Reply::Moved => 1,
            Reply::Finished => 2,
            Reply::Interrupted { lost: false, .. } => 3,
            Reply::Interrupted { lost: true, .. } => 4,
            Reply::Gone => 5,
            Reply::GaveUp => 6,
        };
        self.departed.clear();
        if let Some(slowest) = all.iter().map(|told| told.slowest).min() {
            self.slowest = slowest;
        }
        // All of one step, or nothing: shards complete the same step with the same pushes but where somebody has just gone.
        let mut noise = all.first().map_or(NoisePart::default(), |told| told.noise);
        all.iter().skip(1).for_each(|told| noise.join(told.noise));
        if noise.pushes > 1 && all.iter().all(|told| told.noise.pushes == noise.pushes) {
            self.noise = Some(noise);
        }
        // A shard that went on from its copy may not know the turn that the others name.
        let named = |told: &Told| match told.reply {
            Reply::Parameters { stats, .. } => stats.hold,
            _ => 0,
        };
        let held = all.iter().map(named).max().unwrap_or(0);
        let mut worst: Option<Reply> = None;
        for told in all {
            self.told_to_keep |= told.keeps;
            if let Some(view) = told.view {
                self.heard(view);
            }
            for departed in told.departed {
                if !self.departed.contains(&departed) {
                    self.departed.push(departed);
                }
            }
            // The first of equals, so that the counts are those of shard 0; and the newest step, where some shards are further.
            match (&mut worst, told.reply) {
                (Some(Reply::Parameters { clock, .. }), Reply::Parameters { clock: other, .. }) => {
                    *clock = other.max(*clock)
                }
                (Some(worst), reply) if rank(&reply) <= rank(worst) => {}
                (worst, reply) => *worst = Some(reply),
            }
        }
        if let Some(Reply::Parameters { clock, stats }) = &mut worst {
            self.next_step = *clock;
            stats.hold = held;
        }
        worst.expect("a job has a shard")
    }
}

fn take(links: &mut Vec<Link>, shard: TaskId) -> Option<Link> {
    let at = links.iter().position(|link| link.shard == shard)?;
    Some(links.remove(at))
}
