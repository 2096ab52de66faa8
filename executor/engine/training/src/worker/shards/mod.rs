//! All PS shards as one. Each step goes to every shard in parallel, over its own connection, for
//! its own part of the arena. The module also contains the worker's side of a view change.
//!
//! - [`pull`]: entering a view.
//! - [`step`]: a step's gradients and the answers; [`local_aggregation`]: the summed step of a
//!   node's workers.
//! - [`partitions`]: a step in partitions during its computation; [`eager`]: eager steps under SSP.
//! - [`clip`]: the coordinator's clip factor.
//! - [`residuals`]: residuals of encoded gradients.
//! - [`coordinator`]: requests of the coordinator; [`view_sequence`]: the next view.
//! - [`snapshot`]: the shards' content for a checkpoint, which [`snapshot_stream`] may transfer
//!   later.
//! - [`failover`]: failover to replicas.

mod clip;
mod coordinator;
mod eager;
mod failover;
mod local_aggregation;
mod parallel;
mod partitions;
mod pull;
mod residuals;
mod snapshot;
mod snapshot_stream;
mod step;
mod view_sequence;

pub use coordinator::ReshardingResult;
pub use eager::Eager;
pub use partitions::{GradientSink, ParameterFetch, PartitionedPass};
pub use snapshot::{ShardSnapshot, known};
pub use snapshot_stream::{SnapshotStream, SnapshotStreamError};
pub use view_sequence::first_view;

use super::link::{Reply, ShardLink, ShardReply, ShardRoute, WorkerBufferPool};
use clip::Clipping;
use muster_comm::compress::{Codecs, Feedback, PlanError};
use muster_comm::partitions::{PartitionOrder, PartitionPlan};
use muster_comm::shard_codec::ShardCodec;
use muster_comm::wire::WireError;
use muster_comm::wire::metadata::{ConnectionPurpose, Hello, NoisePart, PushHead};
use muster_comm::wire::view::{Departed, TaskSetView, ViewChange};
use muster_compute::model::ParameterBlock;
use muster_model::id::TaskId;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Task id of a shard, and its address.
pub type ShardAddress = (TaskId, String);

/// Index of a shard, and its error.
pub type ShardFailure = (usize, WireError);

/// Encoder state of a worker.
#[derive(Debug)]
struct GradientEncoder {
    codecs: Codecs,
    blocks: Vec<ParameterBlock>,
    feedback: Feedback,
    /// Seed of the job; each rank derives its own.
    seed: u64,
}

/// Connections to every shard of the job.
#[derive(Debug)]
pub struct Shards {
    hello: Hello,
    /// Folder of the node's endpoints, if it has one.
    sockets: Option<PathBuf>,
    /// The present view; `None` before the first.
    view: Option<TaskSetView>,
    /// In the order of the view's shards, once there is a view.
    links: Vec<ShardLink>,
    /// The newest known view, if this worker has not entered it yet.
    next: Option<TaskSetView>,
    /// Whether a link still owes the answer of a push, because of a departed worker.
    owing: Vec<bool>,
    /// Step and head of the newest push.
    pushed: Option<(u64, PushHead)>,
    departed: Vec<Departed>,
    /// Shards that may be in the next view. The coordinator has joined them; another worker waits
    /// there for admission.
    prospects: Vec<ShardLink>,
    /// Coordinator: shards that have left the view, until they have handed over all pieces.
    retiring: Vec<ShardLink>,
    compression: Option<GradientEncoder>,
    /// The newest layout whose move was checked.
    audited: u64,
    parameters: usize,
    /// Targets per example.
    targets: u64,
    /// Whether each shard has a replica.
    copied: bool,
    /// Coordinator: set where steps are clipped.
    clipping: Option<Clipping>,
    /// This worker must send its residual before its next push.
    told_to_keep: bool,
    /// Coordinator: workers of the last announcement of residuals.
    keepers: Vec<TaskId>,
    /// Coordinator: time for which a snapshot waits for residuals.
    hears_within: Duration,
    /// The newest answers contain the pushes of all workers for steps before this one.
    slowest: u64,
    /// Coordinator: measurement of all shards together, until it is taken.
    noise: Option<NoisePart>,
    /// Next step by the newest answer.
    next_step: u64,
    /// Coordinator: the newest announced change, and its first step.
    announced: Option<(u64, ViewChange)>,
    /// Order of a step's partitions; `None` where a step goes as a whole.
    parts: Option<PartitionOrder>,
    /// Partitions of the layout with this number.
    plan: Option<(u64, PartitionPlan)>,
    spares: WorkerBufferPool,
    /// Coordinator: lost shards and the hosts of their promoted replicas, as far as reported.
    told_of: Vec<(TaskId, TaskId)>,
}

impl Shards {
    /// Joins every shard; `parameters` is the number of parameters of the whole network.
    ///
    /// # Errors
    /// The index of the shard that could not be joined, and the cause.
    pub fn join(
        addresses: &[ShardAddress],
        parameters: usize,
        hello: &Hello,
    ) -> Result<Self, ShardFailure> {
        Self::join_near(addresses, parameters, hello, None)
    }

    /// Like [`Self::join`]. Shares memory with the shards that listen in the folder `sockets`, if
    /// set.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn join_near(
        addresses: &[ShardAddress],
        parameters: usize,
        hello: &Hello,
        sockets: Option<&Path>,
    ) -> Result<Self, ShardFailure> {
        let mut links = Vec::with_capacity(addresses.len());
        for (index, (shard, address)) in addresses.iter().enumerate() {
            let route = ShardRoute {
                address,
                hosts: vec![*shard],
                sockets,
            };
            links.push(ShardLink::join(*shard, &route, hello).map_err(|error| (index, error))?);
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
            hears_within: residuals::HEARD_WITHIN,
            slowest: 0,
            noise: None,
            next_step: 0,
            announced: None,
            parts: None,
            plan: None,
            spares: WorkerBufferPool::default(),
            told_of: Vec::new(),
        })
    }

    /// Sets the number of targets per example, over which gradients are summed.
    #[must_use]
    pub fn with_targets(self, targets: u64) -> Self {
        Self { targets, ..self }
    }

    /// Sets whether each shard has a replica, which replaces it when it is lost.
    #[must_use]
    pub fn with_copies(self, copied: bool) -> Self {
        Self { copied, ..self }
    }

    /// Encodes pushes from now on, and under BSP also the answers.
    ///
    /// # Errors
    /// When a codec's settings are outside their range.
    pub fn compress(
        &mut self,
        codecs: Codecs,
        blocks: &[ParameterBlock],
        seed: u64,
    ) -> Result<(), PlanError> {
        self.compression = Some(GradientEncoder {
            feedback: ShardCodec::feedback(&codecs, blocks)?,
            codecs,
            blocks: blocks.to_vec(),
            seed,
        });
        Ok(())
    }

    /// Takes codecs and order of partitions from another set of connections.
    pub(super) fn go_like(&mut self, before: Self) {
        self.compression = before.compression;
        self.parts = before.parts;
    }

    /// Returns this worker's residual.
    #[must_use]
    pub fn feedback(&self) -> Option<&Feedback> {
        self.compression
            .as_ref()
            .map(|compression| &compression.feedback)
    }

    /// Creates the codecs of the links for the present view.
    fn create_codecs(&mut self) {
        let (Some(compression), Some(view)) = (&self.compression, &self.view) else {
            return;
        };
        for link in &mut self.links {
            let pieces = view.pieces(link.shard);
            let shard_codec = ShardCodec::new(&compression.codecs, &compression.blocks, pieces);
            link.shard_codec = Some(shard_codec.expect("the codecs were tried"));
        }
    }

    /// Returns the step before which the newest answers contain the pushes of all workers.
    #[must_use]
    pub fn slowest(&self) -> u64 {
        self.slowest
    }

    /// Coordinator: returns the shards' noise measurement since the last call.
    pub fn take_noise(&mut self) -> Option<NoisePart> {
        self.noise.take()
    }

    /// Returns the present view.
    #[must_use]
    pub fn view(&self) -> Option<&TaskSetView> {
        self.view.as_ref()
    }

    /// Returns the newest known view.
    #[must_use]
    pub fn newest(&self) -> Option<&TaskSetView> {
        self.next.as_ref().or(self.view.as_ref())
    }

    /// Returns the number of shards that share memory with this worker.
    #[must_use]
    pub fn near(&self) -> usize {
        let links = self.links.iter();
        links.filter(|link| link.is_shared_memory()).count()
    }

    /// Returns this worker's rank in the present view.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        self.view.as_ref()?.rank(self.hello.task_id)
    }

    /// Coordinator: returns the departed workers after [`Reply::Gone`].
    #[must_use]
    pub fn departed(&self) -> &[Departed] {
        &self.departed
    }

    /// Enters the newest known view. `None` if there is no new one; otherwise whether it contains
    /// this worker. If it does not, this worker has left all shards in order.
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
                    let route = ShardRoute {
                        address: &holder.address,
                        hosts: view.hosts(holder),
                        sockets: self.sockets.as_deref(),
                    };
                    ShardLink::join(holder.task_id, &route, &self.hello)
                        .map_err(|error| (index, error))?
                }
            });
        }
        for (index, mut link) in self.links.drain(..).enumerate() {
            if self.hello.guest == ConnectionPurpose::Chief {
                link.ask_tally().map_err(|error| (index, error))?;
                self.retiring.push(link);
            } else if link.is_asked {
                // A shard of a later view, which may know by now that this worker is admitted. A
                // second connection could not join.
                self.prospects.push(link);
            } else {
                // A shard that is gone needs no goodbye.
                let _ = link.goodbye();
            }
        }
        self.links = links;
        self.owing = vec![false; self.links.len()];
        self.view = Some(view);
        self.create_codecs();
        Ok(Some(true))
    }

    fn heard(&mut self, view: TaskSetView) {
        let known = self.next.as_ref().or(self.view.as_ref());
        if known.is_none_or(|known| view.number > known.number) {
            self.next = Some(view);
        }
    }

    /// Combines the shards' replies into the most severe one.
    fn together(&mut self, all: Vec<ShardReply>) -> Reply {
        self.departed.clear();
        if let Some(slowest) = all.iter().map(|answer| answer.slowest).min() {
            self.slowest = slowest;
        }
        // Only measurements of the same step count: after a departure shards may complete a step
        // with different pushes.
        let mut noise = all
            .first()
            .map_or(NoisePart::default(), |answer| answer.noise);
        all.iter()
            .skip(1)
            .for_each(|answer| noise.join(answer.noise));
        if noise.pushes > 1 && all.iter().all(|answer| answer.noise.pushes == noise.pushes) {
            self.noise = Some(noise);
        }
        // A promoted replica may not know the slice number that the others name.
        let held = all
            .iter()
            .map(|answer| match answer.reply {
                Reply::Parameters { stats, .. } => stats.hold,
                _ => 0,
            })
            .max()
            .unwrap_or(0);
        let mut worst: Option<Reply> = None;
        for answer in all {
            self.told_to_keep |= answer.keeps;
            if let Some(view) = answer.view {
                self.heard(view);
            }
            for departed in answer.departed {
                if !self.departed.contains(&departed) {
                    self.departed.push(departed);
                }
            }
            // The first of equal replies, so that the counts are those of shard 0; and the newest
            // step, if some shards are ahead.
            match (&mut worst, answer.reply) {
                (Some(Reply::Parameters { clock, .. }), Reply::Parameters { clock: other, .. }) => {
                    *clock = other.max(*clock)
                }
                (Some(worst), reply) if severity(&reply) <= severity(worst) => {}
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

fn severity(reply: &Reply) -> u8 {
    match reply {
        Reply::Parameters { .. } => 0,
        // Answered before the replies are combined.
        Reply::Norm { .. } | Reply::Absent => 0,
        Reply::Moved => 1,
        Reply::Finished => 2,
        Reply::Interrupted { lost: false, .. } => 3,
        Reply::Interrupted { lost: true, .. } => 4,
        Reply::Gone => 5,
        Reply::GaveUp => 6,
    }
}

fn take(links: &mut Vec<ShardLink>, shard: TaskId) -> Option<ShardLink> {
    let at = links.iter().position(|link| link.shard == shard)?;
    Some(links.remove(at))
}
