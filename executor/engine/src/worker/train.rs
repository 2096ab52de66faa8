//! The training loop of every worker.

use super::Reporter;
use super::batches::{self, Batches, Buffers};
use super::chief::Chief;
use super::link::Reply;
use super::progress::StepTimes;
use super::resume::{self, Start};
use super::shards::Shards;
use crate::assign::{Piece, assign};
use crate::checkpoint::{CheckpointError, JobFolder};
use crate::clock;
use crate::data::{Dataset, DatasetError, OrderError};
use crate::document;
use crate::log;
use crate::model::{BuildError, Draw, Network, Workspace};
use crate::stop::StopFlag;
use crate::wire::WireError;
use crate::wire::hello::{Hello, StepStats};
use muster_model::assignment::{TaskLaunch, TaskReport};
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Examples that go through the network at once; more run in parts, so that memory does not grow with the batch.
const MAX_PASS: usize = 256;

/// How often the addresses of the shards are looked for.
const PEERS_EVERY: Duration = Duration::from_millis(20);

/// How long a shard may refuse connections before it counts as lost.
const JOIN_PATIENCE: Duration = Duration::from_secs(5);

/// What a worker works with.
pub struct Surroundings<'a> {
    pub checkpoint_root: &'a Path,
    pub dataset_root: &'a Path,
    pub reporter: &'a dyn Reporter,
    pub stop: StopFlag,
    /// Addresses of all shards in the order of their index, once every one is known.
    pub peers: &'a (dyn Fn() -> Option<Vec<String>> + Sync),
    /// For the network's passes.
    pub threads: usize,
}

/// How a worker's life ended, when not by an error of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Training is over.
    Finished,
    /// Stopped in order, itself or by a peer that left in order.
    Interrupted,
    /// A shard or another worker went away without a word.
    PeerLost,
}

/// Why a worker cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("could not load the data set")]
    Dataset(#[from] DatasetError),
    #[error("could not cut the data set into batches")]
    Batches(#[from] OrderError),
    #[error("could not build the network")]
    Network(#[from] BuildError),
    #[error("step {step} was checkpointed before, but no sound checkpoint is on the disk")]
    NothingToResume { step: u64 },
    #[error("the checkpoint of step {step} is of another job document")]
    OtherJob { step: u64 },
    #[error("training diverged: the loss of step {step} is not finite")]
    Diverged { step: u64 },
    #[error("could not handle a checkpoint")]
    Checkpoint(#[from] CheckpointError),
    #[error("PS shard {index} refused this worker")]
    Refused {
        index: usize,
        #[source]
        source: WireError,
    },
    #[error("could not keep a report")]
    Report(#[from] io::Error),
}

impl WorkerError {
    /// Whether a restart may help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Dataset(_)
            | Self::Batches(_)
            | Self::Network(_)
            | Self::NothingToResume { .. }
            | Self::OtherJob { .. }
            | Self::Diverged { .. } => false,
            Self::Checkpoint(error) => {
                matches!(
                    error,
                    CheckpointError::Io { .. } | CheckpointError::Fenced { .. }
                )
            }
            Self::Refused { .. } | Self::Report(_) => true,
        }
    }
}

/// The computing part of a worker.
pub(super) struct Model {
    pub network: Network,
    pub data: Dataset,
    pub batches: Batches,
    workspace: Workspace,
    pub parameters: Vec<f32>,
    pub gradients: Vec<f32>,
}

/// Trains until it is over or cannot go on.
///
/// # Errors
/// [`WorkerError`]; [`WorkerError::is_retryable`] says whether a restart may help.
pub fn run(
    launch: &TaskLaunch,
    rank: u32,
    around: &Surroundings<'_>,
) -> Result<Ending, WorkerError> {
    let mut model = Model::load(launch, rank, around)?;
    let folder = JobFolder::new(
        around.checkpoint_root,
        launch.tenant_id,
        launch.job_id,
        launch.revision,
    );
    let start = match rank {
        0 => {
            let planes = document::state_planes(&launch.spec.engine.optimizer).len();
            Some(resume::start(
                launch,
                &folder,
                &model.network,
                planes,
                around.reporter,
            )?)
        }
        _ => None,
    };
    let joined = match join(launch, rank, &model.network, around)? {
        Joined::Shards(shards) => shards,
        Joined::Told => {
            if let Some(start) = start {
                around
                    .reporter
                    .report(&TaskReport::Interrupted { step: start.step })?;
            }
            return Ok(Ending::Interrupted);
        }
        Joined::Lost => return Ok(Ending::PeerLost),
    };
    match start {
        Some(start) => lead(launch, &mut model, joined, folder, start, around),
        None => follow(&mut model, joined, around),
    }
}

/// Rank 0: fills the shards, then trains as chief.
fn lead(
    launch: &TaskLaunch,
    model: &mut Model,
    mut shards: Shards,
    folder: JobFolder,
    start: Start,
    around: &Surroundings<'_>,
) -> Result<Ending, WorkerError> {
    if let Err(lost) = shards.init(start.step, start.updates, &start.contents) {
        return shard_failed(lost);
    }
    model.parameters.copy_from_slice(&start.contents.parameters);
    let mut step = start.step;
    let mut chief = Chief::new(launch, folder, model, start, around);
    chief.ready(step)?;
    if let Some(reason) = chief.over(step) {
        return chief.finish(model, shards, reason);
    }
    loop {
        if around.stop.is_set() {
            return chief.leave(shards, false);
        }
        let (stats, mut times) = model.gradient(step);
        let reply = exchange(model, &mut shards, step, stats, &mut times, around);
        match reply {
            Ok(Reply::Parameters { clock, stats }) => {
                if !stats.loss_sum.is_finite() {
                    return Err(WorkerError::Diverged { step });
                }
                step = clock;
                match chief.after_step(model, &mut shards, step, stats, times) {
                    Ok(None) => {}
                    Ok(Some(reason)) => return chief.finish(model, shards, reason),
                    Err(Trouble::Shard(lost)) => return shard_failed(lost),
                    Err(Trouble::Own(error)) => return Err(error),
                }
            }
            Ok(Reply::Interrupted { lost, .. }) => return chief.leave(shards, lost),
            Ok(Reply::Finished) => return Ok(Ending::Finished),
            Ok(Reply::GaveUp) => return Ok(Ending::PeerLost),
            Err(lost) => return shard_failed(lost),
        }
    }
}

/// Every other rank.
fn follow(
    model: &mut Model,
    mut shards: Shards,
    around: &Surroundings<'_>,
) -> Result<Ending, WorkerError> {
    let stop = &around.stop;
    let mut step = match shards.pull(&mut model.parameters, &|| !stop.is_set()) {
        Ok(Reply::Parameters { clock, .. }) => clock,
        other => return followed(other, shards),
    };
    log::line(format_args!("training from step {step}"));
    loop {
        if stop.is_set() {
            log::line(format_args!("stopped in order after step {step}"));
            shards.goodbye();
            return Ok(Ending::Interrupted);
        }
        let (stats, mut times) = model.gradient(step);
        match exchange(model, &mut shards, step, stats, &mut times, around) {
            Ok(Reply::Parameters { clock, .. }) => step = clock,
            other => return followed(other, shards),
        }
    }
}

fn followed(
    reply: Result<Reply, (usize, WireError)>,
    shards: Shards,
) -> Result<Ending, WorkerError> {
    let ending = match reply {
        Ok(Reply::Finished) => Ending::Finished,
        Ok(Reply::Interrupted { lost: false, .. } | Reply::GaveUp) => Ending::Interrupted,
        Ok(Reply::Interrupted { lost: true, .. } | Reply::Parameters { .. }) => Ending::PeerLost,
        Err(lost) => return shard_failed(lost),
    };
    shards.goodbye();
    Ok(ending)
}

fn exchange(
    model: &mut Model,
    shards: &mut Shards,
    step: u64,
    stats: StepStats,
    times: &mut StepTimes,
    around: &Surroundings<'_>,
) -> Result<Reply, (usize, WireError)> {
    let began = clock::now();
    let patience = || !around.stop.must_hurry();
    let reply = shards.push_pull(
        step,
        stats,
        &model.gradients,
        &mut model.parameters,
        &patience,
    );
    times.exchange = began.elapsed();
    reply
}

/// What may go wrong in the chief's duties.
pub(super) enum Trouble {
    Shard((usize, WireError)),
    Own(WorkerError),
}

impl<E: Into<WorkerError>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Own(error.into())
    }
}

/// A shard that refuses is an error of this task; one that is gone is a lost peer.
pub(super) fn shard_failed((index, error): (usize, WireError)) -> Result<Ending, WorkerError> {
    match error {
        WireError::Refused(_) | WireError::Frame(_) | WireError::PayloadLength { .. } => {
            Err(WorkerError::Refused {
                index,
                source: error,
            })
        }
        error => {
            log::line(format_args!(
                "lost PS shard {index}: {}",
                log::chain(&error)
            ));
            Ok(Ending::PeerLost)
        }
    }
}

enum Joined {
    Shards(Shards),
    Told,
    Lost,
}

fn join(
    launch: &TaskLaunch,
    rank: u32,
    network: &Network,
    around: &Surroundings<'_>,
) -> Result<Joined, WorkerError> {
    let addresses = loop {
        if around.stop.is_set() {
            return Ok(Joined::Told);
        }
        match (around.peers)() {
            Some(addresses) if addresses.len() == launch.ps_shards as usize => break addresses,
            _ => thread::sleep(PEERS_EVERY),
        }
    };
    let hello = Hello {
        job_id: launch.job_id,
        revision: launch.revision,
        secret: launch.secret.clone(),
        rank,
        workers: launch.workers,
        shard: 0,
        ps_shards: launch.ps_shards,
        parameters: 0,
    };
    let began = clock::now();
    loop {
        match Shards::join(&addresses, assignment(network, launch.ps_shards), &hello) {
            Ok(shards) => return Ok(Joined::Shards(shards)),
            Err(_) if around.stop.is_set() => return Ok(Joined::Told),
            // A shard that was joined is not joined twice: only a first one that cannot be reached at all is tried again.
            Err((0, WireError::Io { .. })) if began.elapsed() < JOIN_PATIENCE => {
                thread::sleep(PEERS_EVERY)
            }
            Err(failure) => {
                return match shard_failed(failure)? {
                    Ending::PeerLost => Ok(Joined::Lost),
                    _ => Ok(Joined::Told),
                };
            }
        }
    }
}

/// Which shard holds what, of this network.
#[must_use]
pub(crate) fn assignment(network: &Network, ps_shards: u32) -> Vec<Vec<Piece>> {
    let blocks: Vec<Piece> = network
        .blocks()
        .iter()
        .map(|block| Piece {
            offset: block.offset,
            len: block.len,
        })
        .collect();
    assign(&blocks, ps_shards as usize)
}

impl Model {
    fn load(
        launch: &TaskLaunch,
        rank: u32,
        around: &Surroundings<'_>,
    ) -> Result<Self, WorkerError> {
        let engine = &launch.spec.engine;
        let network = document::network(engine)?;
        let data = document::dataset(engine, around.dataset_root)?;
        let batch = engine.batch as usize;
        let global = batches::global(engine.seed, data.train.len(), batch)?;
        let rank = rank as usize;
        let workers = launch.workers as usize;
        let batches = Batches::new(global, engine.seed, rank, workers, |examples| {
            Buffers::new(&network, &data, examples)
        });
        let largest_pass = batches.examples().clamp(1, MAX_PASS);
        log::line(format_args!(
            "{} training and {} test examples, {} parameters, batch {batch} of which {} here",
            data.train.len(),
            data.test.len(),
            network.parameter_count(),
            batches.examples(),
        ));
        Ok(Self {
            workspace: network.workspace(largest_pass, around.threads),
            parameters: vec![0.0; network.parameter_count()],
            gradients: vec![0.0; network.parameter_count()],
            network,
            data,
            batches,
        })
    }

    /// Computes the gradients of this worker's part of `step`, summed over its examples.
    fn gradient(&mut self, step: u64) -> (StepStats, StepTimes) {
        let began = clock::now();
        let batch = self.batches.load(&self.data.train, step);
        let loaded = clock::now();
        let loss = self.network.loss_and_grad(
            &mut self.workspace,
            &self.parameters,
            &batch,
            &mut self.gradients,
        );
        let stats = StepStats {
            loss_sum: loss.loss_sum,
            correct: loss.correct as u64,
            examples: self.batches.examples() as u64,
        };
        let times = StepTimes {
            data: loaded - began,
            compute: loaded.elapsed(),
            exchange: Duration::ZERO,
        };
        (stats, times)
    }

    /// One pass over the test split with the present parameters: mean loss and share classified rightly.
    pub fn evaluate(&mut self) -> (f64, f64) {
        let part = self.workspace.max_batch();
        let mut buffers = Buffers::new(&self.network, &self.data, part);
        let indices: Vec<u32> = (0..self.data.test.len() as u32).collect();
        let (mut loss_sum, mut correct) = (0.0, 0);
        for indices in indices.chunks(part) {
            let batch = buffers.load(&self.data.test, indices, Draw::default());
            let loss = self
                .network
                .evaluate(&mut self.workspace, &self.parameters, &batch);
            loss_sum += loss.loss_sum;
            correct += loss.correct;
        }
        let examples = self.data.test.len().max(1) as f64;
        (loss_sum / examples, correct as f64 / examples)
    }
}
