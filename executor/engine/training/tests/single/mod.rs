//! One PS shard and its only worker in this process, without a model or data: SGD with a rate of 1,
//! initial parameters of 1.

use muster_comm::assign::ParameterPiece;
use muster_comm::wire::metadata::{ConnectionPurpose, Hello};
use muster_compute::optimizer::{OptimizerConfig, UpdateRule};
use muster_model::id::{JobId, TaskId};
use muster_model::spec::Consistency;
use muster_training::checkpoint::Contents;
use muster_training::shard::{Identity, Recipe, ShardExchange, ShardServer};
use muster_training::worker::{ShardAddress, Shards, first_view};
use uuid::Uuid;

pub const WORKER: TaskId = TaskId(Uuid::from_u128(1));
pub const SHARD: TaskId = TaskId(Uuid::from_u128(2));

pub fn hello() -> Hello {
    Hello {
        job_id: JobId(Uuid::nil()),
        secret: "a".repeat(64),
        task_id: WORKER,
        guest: ConnectionPurpose::Chief,
        to: None,
        says_held: false,
        plain_statistics: false,
    }
}

/// A listening shard of a network with `size` parameters.
pub fn bound(size: usize, change: impl FnOnce(Recipe) -> Recipe) -> ShardServer {
    let sgd = OptimizerConfig::new(UpdateRule::Sgd {
        lr: 1.0,
        momentum: 0.0,
        nesterov: false,
        weight_decay: 0.0,
    });
    let identity = Identity {
        job_id: JobId(Uuid::nil()),
        task_id: SHARD,
        secret: "a".repeat(64),
    };
    let recipe = change(Recipe::weights(sgd, size, 1));
    let exchange = ShardExchange::new(SHARD, recipe, Consistency::default(), 1);
    ShardServer::bind("127.0.0.1", identity, exchange).unwrap()
}

/// The coordinator sends all parameters of a job of these workers to the shard at `address`.
pub fn begin(shards: &mut Shards, address: &ShardAddress, size: usize, workers: Vec<TaskId>) {
    let contents = Contents {
        parameters: vec![1.0; size],
        ..Contents::default()
    };
    let all = ParameterPiece {
        offset: 0,
        len: size,
    };
    let view = first_view(1, workers, std::slice::from_ref(address), &[all]);
    shards.begin(view, 0, 0, &contents).unwrap();
}
