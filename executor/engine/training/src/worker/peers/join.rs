//! Joining the group of workers: listen, join the membership, and allocate the memory of the sums.

use super::AllReduce;
use super::ahead;
use super::averaging::Averaging;
use super::buckets::{Cut, buckets};
use super::coded::Coded;
use super::gpus::{Gpus, OFFER};
use super::pace::Pace;
use super::replica::Replica;
use super::seat::{Seat, attend, preside};
use crate::document;
use crate::worker::clip::OwnClip;
use crate::worker::error::WorkerError;
use crate::worker::head::HEAD;
use crate::worker::noise::Noise;
use crate::worker::train::{Ending, STALL, Surroundings};
use muster_comm::collective::{Algorithm, Choice, Group};
use muster_comm::fabric::{Credentials, FabricError, Options, Port};
use muster_comm::log;
use muster_comm::wire::hello::StepStats;
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
        around: &'a Surroundings<'a>,
    ) -> Result<Result<Self, Ending>, WorkerError> {
        let me = Credentials {
            job_id: launch.job_id,
            secret: launch.secret.clone(),
            id: launch.task_id,
            attempt: std::process::id(),
        };
        let gpus = Gpus::wanted(&launch.spec.exchange, around.device);
        let port = Port::bind(around.listen_host, Some(around.sockets), me.clone())?
            .saying(gpus.as_ref().map(Gpus::summing));
        let silence = Duration::from_secs(launch.spec.exchange.hung_after_s.into());
        let seat = match rank {
            0 => preside(launch, me, around)?,
            _ => {
                let address = port.member().address.to_string();
                around.reporter.report(&TaskReport::Listening { address })?;
                attend(launch, &me, silence, around)?
            }
        };
        let seat = match seat {
            Ok(seat) => seat,
            Err(ending) => return Ok(Err(ending)),
        };
        let len = network.parameter_count();
        let averaging = launch.spec.exchange.averaging;
        let optimizer = document::optimizer(launch.spec.engine());
        let arenas = if averaging.is_some_and(Averaging::averages_state) {
            1 + optimizer.state_len_per_param()
        } else {
            1
        };
        let options = Options {
            silence,
            stall: STALL,
            ..Options::default()
        };
        let by_need = ahead::by_need(launch, network);
        let room = by_need.as_ref().map_or(0, |by_need| {
            let ranges = by_need.ranges();
            log::line(format_args!(
                "gradients go by need, in {} ranges",
                ranges.count()
            ));
            ranges.arena()
        });
        let group = Group::start(
            port,
            seat.coordinator(),
            room.max(HEAD + (arenas * len).max(OFFER)),
            choice(launch.spec.exchange.algorithm),
            matches!(seat, Seat::Chief(_)),
            options,
        );
        let group = match group {
            Ok(group) => group,
            Err(FabricError::NoView(_)) => return Ok(Err(seat.ending(around))),
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
        let coded = codecs.map(|codecs| Coded::new(codecs, network.blocks(), seed));
        let spare = if buckets.len() > 1 || by_need.is_some() || averaging.is_some() {
            len
        } else {
            0
        };
        Ok(Ok(Self {
            around,
            group,
            seat,
            replica: Replica::new(optimizer, network.blocks(), around.threads)
                .clipping(OwnClip::of_sum(&launch.spec)),
            buckets,
            by_need,
            gradients: vec![0.0; spare],
            sums: vec![0.0; spare],
            coded: coded.transpose()?,
            clip_own,
            gpus,
            cut: Cut {
                workers: Vec::new(),
                batch: launch.spec.engine().batch as usize,
                targets: launch.spec.engine().targets_per_example(),
            },
            noise: Noise::default(),
            pace: pace(launch.spec.engine()),
            me: launch.task_id,
            step: 0,
            averaging: averaging
                .map(|method| Averaging::new(method, launch.spec.engine().seed, len)),
            round: StepStats::default(),
            noticed: None,
            unsaid: Vec::new(),
            dealt: None,
            hold: 0,
            held: 0,
        }))
    }
}

/// Returns the progress state of jobs whose batch grows with the workers.
fn pace(engine: &Engine) -> Option<Pace> {
    match engine.batch_rule {
        BatchRule::Constant => None,
        BatchRule::AdaScale => Some(Pace::at(0, engine.batch as usize)),
    }
}

/// Within a node every algorithm reads sums directly from shared memory, like the hierarchical one.
/// So that name only selects the ring between nodes.
fn choice(algorithm: spec::Algorithm) -> Choice {
    Choice::Named(match algorithm {
        // Used where GPUs do not sum.
        spec::Algorithm::Auto | spec::Algorithm::Nccl => return Choice::Fastest,
        spec::Algorithm::Ring | spec::Algorithm::Hierarchical => Algorithm::Ring,
        spec::Algorithm::Tree => Algorithm::Tree,
        spec::Algorithm::HalvingDoubling => Algorithm::HalvingDoubling,
        spec::Algorithm::Butterfly => Algorithm::Butterfly,
    })
}
