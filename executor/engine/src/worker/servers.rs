//! The exchange by parameter servers: gradients go to the PS shards, which hold parameters and optimizer state.

use super::error::WorkerError;
use super::exchange::{Answer, Exchange, Trouble};
use super::model::Model;
use super::progress::StepTimes;
use super::resume::Start;
use super::shards::{Shards, Snapshot};
use super::train::{Ending, Surroundings};
use crate::assign::{Piece, assign};
use crate::checkpoint::Layout;
use crate::clock;
use crate::model::Network;
use crate::wire::WireError;
use crate::wire::hello::Hello;
use muster_model::assignment::{Peers, TaskLaunch};
use std::thread;
use std::time::Duration;

/// How often the addresses of the shards are looked for.
const PEERS_EVERY: Duration = Duration::from_millis(20);

/// How long a shard may refuse connections before it counts as lost.
const JOIN_PATIENCE: Duration = Duration::from_secs(5);

/// A worker among PS shards.
pub(super) struct Servers<'a> {
    shards: Shards,
    around: &'a Surroundings<'a>,
    layout: Layout,
    gradients: Vec<f32>,
}

impl<'a> Servers<'a> {
    /// Waits for the shards' addresses and joins them all. The ending when it is told to stop before, or a shard is lost.
    ///
    /// # Errors
    /// When a shard refuses this worker.
    pub fn join(
        launch: &TaskLaunch,
        rank: u32,
        network: &Network,
        around: &'a Surroundings<'a>,
    ) -> Result<Result<Self, Ending>, WorkerError> {
        let addresses = loop {
            if around.stop.is_set() {
                return Ok(Err(Ending::Interrupted));
            }
            match (around.peers)().and_then(addresses) {
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
                Ok(shards) => {
                    return Ok(Ok(Self {
                        shards,
                        around,
                        layout: Layout {
                            workers: launch.workers,
                            ps_shards: launch.ps_shards,
                        },
                        gradients: vec![0.0; network.parameter_count()],
                    }));
                }
                Err(_) if around.stop.is_set() => return Ok(Err(Ending::Interrupted)),
                // A shard that was joined is not joined twice: only a first one that cannot be reached at all is tried again.
                Err((0, WireError::Io { .. })) if began.elapsed() < JOIN_PATIENCE => {
                    thread::sleep(PEERS_EVERY)
                }
                Err(failure) => return Trouble::from(failure).ending().map(Err),
            }
        }
    }
}

impl Exchange for Servers<'_> {
    fn begin(&mut self, model: &mut Model, start: &Start) -> Result<(), Trouble> {
        self.shards
            .init(start.step, start.updates, &start.contents)?;
        model.parameters.copy_from_slice(&start.contents.parameters);
        Ok(())
    }

    fn receive(&mut self, model: &mut Model) -> Result<Answer, Trouble> {
        let stop = &self.around.stop;
        let reply = self
            .shards
            .pull(&mut model.parameters, &|| !stop.is_set())?;
        Ok(reply.into())
    }

    fn step(&mut self, model: &mut Model, step: u64) -> Result<(Answer, StepTimes), Trouble> {
        let (stats, mut times) = model.gradient(step, &mut self.gradients, &mut |_, _| {});
        let began = clock::now();
        let stop = &self.around.stop;
        let reply =
            self.shards
                .push_pull(step, stats, &self.gradients, &mut model.parameters, &|| {
                    !stop.must_hurry()
                })?;
        times.exchange = began.elapsed();
        Ok((reply.into(), times))
    }

    fn snapshot(&mut self, _: &Model) -> Result<Snapshot, Trouble> {
        Ok(self.shards.snapshot()?)
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn done(self: Box<Self>) {
        self.shards.done();
    }

    fn goodbye(self: Box<Self>) {
        self.shards.goodbye();
    }
}

/// Of all PS shards in the order of their index, once every one is known.
fn addresses(peers: Peers) -> Option<Vec<String>> {
    peers
        .ps_shards
        .into_iter()
        .map(|shard| shard.address)
        .collect()
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
