//! Shards and workers over loopback in one process, without models or data.
#![allow(dead_code, reason = "each test file uses its part of it")]

use muster_comm::assign::ParameterPiece;
use muster_comm::compress::{CodecConfig, Codecs};
use muster_comm::wire::metadata::{ConnectionPurpose, Hello, StepStats};
use muster_compute::optimizer::{OptimizerConfig, UpdateRule};
use muster_model::id::{JobId, TaskId};
use muster_model::spec::Consistency;
use muster_training::checkpoint::Contents;
use muster_training::shard::{Identity, Recipe, ShardEnd, ShardExchange, ShardServer};
use muster_training::stop::StopFlag;
use muster_training::worker::{Reply, ShardAddress, Shards, first_view};
use std::ops::Range;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use uuid::Uuid;

pub const BLOCKS: [usize; 5] = [40_000, 300, 17_000, 10, 1];
pub const BATCH: u32 = 8;

pub struct LoopbackJob {
    pub addresses: Vec<ShardAddress>,
    pub blocks: Vec<ParameterPiece>,
    pub workers: u32,
    pub consistency: Consistency,
    pub optimizer: OptimizerConfig,
    pub clip_norm: Option<f64>,
    pub codecs: Option<Codecs>,
    /// Whether shards that are started later are replicated.
    pub replicated: bool,
    pub stop: StopFlag,
    pub shards: Vec<JoinHandle<ShardEnd>>,
}

pub fn worker(number: u32) -> TaskId {
    TaskId(Uuid::from_u128(0x100 + u128::from(number)))
}

pub fn shard(number: u32) -> TaskId {
    TaskId(Uuid::from_u128(0x200 + u128::from(number)))
}

pub fn hello(number: u32) -> Hello {
    Hello {
        job_id: JobId(Uuid::nil()),
        secret: "s".repeat(64),
        task_id: worker(number),
        guest: if number == 0 {
            ConnectionPurpose::Chief
        } else {
            ConnectionPurpose::Worker
        },
        to: None,
        says_held: true,
        plain_statistics: false,
    }
}

/// Waits for admission or for the barrier of a view change. Returns the next step and the
/// parameters.
pub fn enter(shards: &mut Shards) -> (u64, Vec<f32>) {
    let mut parameters = vec![0.0; size()];
    loop {
        let reply = shards.pull(&mut parameters, &forever, &forever).unwrap();
        shards.follow().unwrap();
        match reply {
            Reply::Parameters { clock, .. } => return (clock, parameters),
            Reply::Moved => {}
            other => panic!("{other:?}"),
        }
    }
}

pub fn adam() -> OptimizerConfig {
    OptimizerConfig::new(UpdateRule::Adam {
        lr: 0.01,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
        decoupled: false,
    })
}

impl LoopbackJob {
    pub fn start(workers: u32, ps_shards: usize, consistency: Consistency) -> Self {
        Self::start_with(workers, ps_shards, consistency, adam())
    }

    pub fn start_with(
        workers: u32,
        ps_shards: usize,
        consistency: Consistency,
        optimizer: OptimizerConfig,
    ) -> Self {
        Self::start_clipping(workers, ps_shards, consistency, optimizer, None)
    }

    pub fn start_clipping(
        workers: u32,
        ps_shards: usize,
        consistency: Consistency,
        optimizer: OptimizerConfig,
        clip_norm: Option<f64>,
    ) -> Self {
        let job = Self::silent(workers, consistency, optimizer, clip_norm);
        job.with_shards(ps_shards)
    }

    pub fn start_encoded(workers: u32, ps_shards: usize, codec: CodecConfig) -> Self {
        Self::start_encoded_with(workers, ps_shards, codec, Consistency::default(), adam())
    }

    pub fn start_encoded_with(
        workers: u32,
        ps_shards: usize,
        codec: CodecConfig,
        consistency: Consistency,
        optimizer: OptimizerConfig,
    ) -> Self {
        let mut job = Self::silent(workers, consistency, optimizer, None);
        job.codecs = Some(Codecs::uniform(codec));
        job.with_shards(ps_shards)
    }

    fn silent(
        workers: u32,
        consistency: Consistency,
        optimizer: OptimizerConfig,
        clip_norm: Option<f64>,
    ) -> Self {
        let mut offset = 0;
        let blocks: Vec<ParameterPiece> = BLOCKS
            .iter()
            .map(|&len| {
                offset += len;
                ParameterPiece {
                    offset: offset - len,
                    len,
                }
            })
            .collect();
        Self {
            addresses: Vec::new(),
            blocks,
            workers,
            consistency,
            optimizer,
            clip_norm,
            codecs: None,
            replicated: false,
            stop: StopFlag::new(Duration::from_secs(10)),
            shards: Vec::new(),
        }
    }

    fn with_shards(mut self, ps_shards: usize) -> Self {
        for index in 0..ps_shards {
            let address = self.start_shard(index as u32);
            self.addresses.push(address);
        }
        self
    }

    fn recipe(&self) -> Recipe {
        Recipe::weights(self.optimizer.clone(), size(), 1).with_codecs(self.codecs.clone())
    }

    /// Starts a shard that is not in any view yet.
    pub fn start_shard(&mut self, index: u32) -> ShardAddress {
        let me = shard(index);
        let identity = Identity {
            job_id: JobId(Uuid::nil()),
            task_id: me,
            secret: "s".repeat(64),
        };
        let recipe = self.recipe();
        let mut exchange = ShardExchange::new(me, recipe, self.consistency, BATCH)
            .clipped(self.clip_norm.is_some());
        if self.replicated {
            exchange = exchange.with_replication(identity.clone());
        }
        let shard = ShardServer::bind("127.0.0.1", identity, exchange).unwrap();
        let address = shard.address().to_string();
        let stop = self.stop.clone();
        self.shards
            .push(thread::spawn(move || shard.serve(&stop, &|_| {}).unwrap()));
        (me, address)
    }

    pub fn join(&self, rank: u32) -> Shards {
        let joined = Shards::join(&self.addresses, size(), &hello(rank)).unwrap();
        let mut joined = joined.with_clip_norm(self.clip_norm);
        if let Some(codecs) = self.codecs.clone() {
            joined.compress(codecs, &self.recipe().blocks, 3).unwrap();
        }
        joined
    }

    /// All workers, with shards filled at `step`.
    pub fn joined(&self, step: u64) -> Vec<Shards> {
        let planes = self.optimizer.state_len_per_param();
        let contents = Contents {
            state: vec![vec![0.0; size()]; planes],
            ..fresh()
        };
        self.filled(step, step, &contents)
    }

    pub fn filled(&self, step: u64, updates: u64, contents: &Contents) -> Vec<Shards> {
        let mut all: Vec<Shards> = (0..self.workers).map(|rank| self.join(rank)).collect();
        let workers = (0..self.workers).map(worker).collect();
        let view = first_view(1, workers, &self.addresses, &self.blocks);
        all[0].begin(view, step, updates, contents).unwrap();
        for follower in &mut all[1..] {
            assert_eq!(enter(follower).0, step);
        }
        all
    }

    pub fn ends(self) -> Vec<ShardEnd> {
        self.shards
            .into_iter()
            .map(|shard| shard.join().unwrap())
            .collect()
    }
}

pub fn size() -> usize {
    BLOCKS.iter().sum()
}

pub fn fresh() -> Contents {
    Contents {
        parameters: (0..size()).map(|i| (i % 97) as f32 / 97.0).collect(),
        state: vec![vec![0.0; size()]; 2],
        extras: Vec::new(),
    }
}

/// Gradients of one worker at one step; different for each.
pub fn gradients(rank: u32, step: u64) -> Vec<f32> {
    let salt = u64::from(rank) * 31 + step * 17;
    (0..size() as u64)
        .map(|i| ((i * 2_654_435_761 + salt * 40_503) % 2_003) as f32 / 1_001.5 - 1.0)
        .collect()
}

pub fn stats(rank: u32) -> StepStats {
    StepStats {
        loss_sum: f64::from(rank) + 0.5,
        correct: 1,
        examples: 2,
        dropped: 0,
        hold: 0,
    }
}

pub fn forever() -> bool {
    true
}

/// Does BSP steps of one worker. Returns its parameters and the counts of the last step.
fn train_one(mut shards: Shards, rank: u32, steps: Range<u64>) -> (Shards, Vec<f32>, StepStats) {
    let mut parameters = vec![0.0; size()];
    let mut counted = StepStats::default();
    for step in steps {
        let reply = shards.push_pull(
            step,
            stats(rank),
            &gradients(rank, step),
            &mut parameters,
            &forever,
        );
        let Reply::Parameters { clock, stats } = reply.unwrap() else {
            panic!("{step} was not answered with parameters");
        };
        assert_eq!(clock, step + 1);
        counted = stats;
    }
    (shards, parameters, counted)
}

/// `steps` BSP steps of every worker, from `step` on. Returns the workers, the coordinator's
/// parameters and the counts of the last step.
pub fn train(workers: Vec<Shards>, step: u64, steps: u64) -> (Vec<Shards>, Vec<f32>, StepStats) {
    let trained: Vec<(Shards, Vec<f32>, StepStats)> = thread::scope(|scope| {
        let running: Vec<_> = (0..)
            .zip(workers)
            .map(|(rank, shards)| scope.spawn(move || train_one(shards, rank, step..step + steps)))
            .collect();
        running
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect()
    });
    for (_, parameters, _) in &trained[1..] {
        assert_eq!(
            parameters, &trained[0].1,
            "every worker has the same parameters"
        );
    }
    let (parameters, counted) = (trained[0].1.clone(), trained[0].2);
    (
        trained.into_iter().map(|(shards, ..)| shards).collect(),
        parameters,
        counted,
    )
}

/// The same without shards, connections or threads: gradients added in the order of ranks, one
/// update over the whole arena.
pub fn reference(workers: u32, steps: std::ops::Range<u64>) -> (Vec<f32>, Vec<f32>) {
    let mut parameters = fresh().parameters;
    let mut state = vec![0.0; size() * 2];
    for step in steps {
        let mut sum = gradients(0, step);
        for rank in 1..workers {
            for (sum, value) in sum.iter_mut().zip(gradients(rank, step)) {
                *sum += value;
            }
        }
        adam().update(step, &mut parameters, &sum, &mut state, 1.0 / BATCH as f32);
    }
    (parameters, state)
}
