//! Joining the group of workers: listen, join the membership, and allocate the memory of the sums.

use super::AllReduce;
use super::averaging::AveragingState;
use super::batch_choice::BatchChoice;
use super::buckets::{BatchDivision, buckets};
use super::coded::EncodedAllReduce;
use super::gpus::{GpuSums, OFFER};
use super::membership_role::{MembershipRole, join, serve};
use super::overlap;
use super::replica::Replica;
use super::scale_invariant::ScaleInvariantProgress;
use crate::document;
use crate::worker::clip::OwnClip;
use crate::worker::context::{ExitReason, STALL, WorkerContext};
use crate::worker::error::WorkerError;
use crate::worker::head::HEAD;
use crate::worker::noise::GradientNoise;
use muster_comm::collective::{AlgorithmChoice, AllReduceAlgorithm, CollectiveGroup};
use muster_comm::fabric::{Credentials, FabricError, FabricOptions, PeerPort};
use muster_comm::log;
use muster_comm::wire::metadata::StepStats;
use muster_compute::model::Network;
use muster_model::assignment::{TaskLaunch, TaskReport};
use muster_model::spec::{self, BatchRule, Engine};
use std::time::Duration;

impl<'a> AllReduce<'a> {
    /// Waits for the other workers. Returns the ending if the task must stop first, or the
    /// coordinator is lost.
    ///
    /// # Errors
    /// When the task cannot listen or is refused.
    pub fn join(
        launch: &TaskLaunch,
        rank: u32,
        network: &Network,
        ctx: &'a WorkerContext<'a>,
    ) -> Result<Result<Self, ExitReason>, WorkerError> {
        let me = Credentials {
            job_id: launch.job_id,
            secret: launch.secret.clone(),
            id: launch.task_id,
            attempt: std::process::id(),
        };
        let gpus = GpuSums::wanted(&launch.spec.exchange, ctx.device);
        let port = PeerPort::bind(ctx.listen_host, Some(ctx.sockets), me.clone())?
            .saying(gpus.as_ref().map(GpuSums::summing));
        let silence = Duration::from_secs(launch.spec.exchange.hung_after_s.into());
        let role = match rank {
            0 => serve(launch, me, ctx)?,
            _ => {
                let address = port.member().address.to_string();
                ctx.reporter.report(&TaskReport::Listening { address })?;
                join(launch, &me, silence, ctx)?
            }
        };
        let role = match role {
            Ok(role) => role,
            Err(ending) => return Ok(Err(ending)),
        };
        let len = network.parameter_count();
        let averaging = launch.spec.exchange.averaging;
        let optimizer = document::optimizer(launch.spec.engine());
        let arenas = if averaging.is_some_and(AveragingState::averages_state) {
            1 + optimizer.state_len_per_param()
        } else {
            1
        };
        let options = FabricOptions {
            silence,
            stall: STALL,
            ..FabricOptions::default()
        };
        let by_need = overlap::by_need(launch, network);
        let room = by_need.as_ref().map_or(0, |by_need| {
            let ranges = by_need.ranges();
            log::line(format_args!(
                "gradients go by need, in {} ranges",
                ranges.count()
            ));
            ranges.arena()
        });
        let group = CollectiveGroup::start(
            port,
            role.coordinator(),
            room.max(HEAD + (arenas * len).max(OFFER)),
            choice(launch.spec.exchange.algorithm),
            matches!(role, MembershipRole::Chief(_)),
            options,
        );
        let group = match group {
            Ok(group) => group,
            Err(FabricError::NoView(_)) => return Ok(Err(role.ending(ctx))),
            Err(error) => return Err(error.into()),
        };
        let clip_own = OwnClip::of(&launch.spec);
        // The norm of all gradients is known only when the last are computed.
        let buckets = match clip_own {
            Some(_) => std::iter::once(0..len).collect(),
            None => buckets(network.blocks()),
        };
        let codecs = launch.spec.exchange.compression.codecs();
        let seed = launch.spec.engine().seed;
        let coded = codecs.map(|codecs| EncodedAllReduce::new(codecs, network.blocks(), seed));
        let spare = if buckets.len() > 1 || by_need.is_some() || averaging.is_some() {
            len
        } else {
            0
        };
        Ok(Ok(Self {
            ctx,
            group,
            role,
            replica: Replica::new(optimizer, network.blocks(), ctx.threads)
                .clipping(OwnClip::of_sum(&launch.spec)),
            buckets,
            by_need,
            gradients: vec![0.0; spare],
            sums: vec![0.0; spare],
            coded: coded.transpose()?,
            clip_own,
            gpus,
            cut: BatchDivision {
                workers: Vec::new(),
                batch: launch.spec.engine().batch as usize,
                targets: launch.spec.engine().targets_per_example(),
            },
            noise: GradientNoise::default(),
            pace: pace(launch.spec.engine()),
            choice: choice_of_batch(launch.spec.engine()).filter(|_| rank == 0),
            me: launch.task_id,
            step: 0,
            averaging: averaging
                .map(|method| AveragingState::new(method, launch.spec.engine().seed, len)),
            round: StepStats::default(),
            noticed: None,
            residual: Vec::new(),
            dealt: None,
            hold: 0,
            held: 0,
        }))
    }
}

/// Returns the progress state of jobs whose size of updates changes.
fn pace(engine: &Engine) -> Option<ScaleInvariantProgress> {
    let pace = ScaleInvariantProgress::at(0, engine.batch as usize);
    match engine.batch_rule {
        BatchRule::Constant => None,
        BatchRule::AdaScale => Some(pace),
        BatchRule::Goodput => Some(pace.up_to(largest_batch(engine))),
    }
}

/// Returns the choice of jobs whose coordinator chooses the size of updates.
fn choice_of_batch(engine: &Engine) -> Option<BatchChoice> {
    let is_chosen = engine.batch_rule == BatchRule::Goodput;
    is_chosen.then(|| BatchChoice::new(engine.batch as usize, largest_batch(engine)))
}

fn largest_batch(engine: &Engine) -> usize {
    engine.max_batch.unwrap_or(0).max(engine.batch) as usize
}

/// Within a node every algorithm reads sums directly from shared memory, like the hierarchical one.
/// So that name only selects the ring between nodes.
fn choice(algorithm: spec::Algorithm) -> AlgorithmChoice {
    AlgorithmChoice::Named(match algorithm {
        // Used where GPUs do not sum.
        spec::Algorithm::Auto | spec::Algorithm::Nccl => return AlgorithmChoice::Fastest,
        spec::Algorithm::Ring | spec::Algorithm::Hierarchical => AllReduceAlgorithm::Ring,
        spec::Algorithm::Tree => AllReduceAlgorithm::Tree,
        spec::Algorithm::HalvingDoubling => AllReduceAlgorithm::HalvingDoubling,
        spec::Algorithm::Butterfly => AllReduceAlgorithm::Butterfly,
    })
}
