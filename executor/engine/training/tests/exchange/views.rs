//! Views that change during training, in one process: results, and notifications of workers.

use muster_comm::assign::ParameterPiece;
use muster_comm::compress::{CodecConfig, Codecs};
use muster_comm::wire::metadata::{ConnectionPurpose, Hello, StepStats};
use muster_compute::optimizer::{OptimizerConfig, UpdateRule};
use muster_model::id::{JobId, TaskId};
use muster_model::spec::{Consistency, Rate};
use muster_training::checkpoint::Contents;
use muster_training::shard::{Identity, Recipe, ShardEnd, ShardExchange, ShardServer};
use muster_training::stop::StopFlag;
use muster_training::worker::{
    Reply, ReshardingResult, ShardAddress, ShardFailure, ShardSnapshot, Shards, first_view,
};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use uuid::Uuid;

const BLOCKS: [usize; 4] = [50_000, 120, 33_000, 10];
const BATCH: u32 = 12;

pub(super) fn size() -> usize {
    BLOCKS.iter().sum()
}

fn adam() -> OptimizerConfig {
    OptimizerConfig::new(UpdateRule::Adam {
        lr: 0.01,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
        decoupled: false,
    })
}

pub(super) fn worker(number: u32) -> TaskId {
    TaskId(Uuid::from_u128(0x100 + u128::from(number)))
}

pub(super) fn fresh() -> Contents {
    Contents {
        parameters: (0..size()).map(|i| (i % 97) as f32 / 97.0).collect(),
        state: vec![vec![0.0; size()]; 2],
        extras: Vec::new(),
    }
}

/// Gradients of the worker with this rank at one step.
pub(super) fn gradients(rank: usize, step: u64) -> Vec<f32> {
    let salt = rank as u64 * 31 + step * 17;
    (0..size() as u64)
        .map(|i| ((i * 2_654_435_761 + salt * 40_503) % 2_003) as f32 / 1_001.5 - 1.0)
        .collect()
}

pub(super) fn forever() -> bool {
    true
}

/// Started shards, by number.
pub(super) struct ShardCluster {
    consistency: Consistency,
    codecs: Option<Codecs>,
    shards: BTreeMap<u32, (ShardAddress, JoinHandle<ShardEnd>)>,
}

impl ShardCluster {
    pub(super) fn new(consistency: Consistency, codecs: Option<Codecs>) -> Self {
        Self {
            consistency,
            codecs,
            shards: BTreeMap::new(),
        }
    }

    pub(super) fn start(&mut self, number: u32) {
        let task_id = TaskId(Uuid::from_u128(0x200 + u128::from(number)));
        let identity = Identity {
            job_id: JobId(Uuid::nil()),
            task_id,
            secret: "s".repeat(64),
        };
        let recipe = self.recipe();
        let exchange = ShardExchange::new(task_id, recipe, self.consistency, BATCH);
        let shard = ShardServer::bind("127.0.0.1", identity, exchange).unwrap();
        let address = shard.address().to_string();
        let stop = StopFlag::new(Duration::from_secs(10));
        let serving = thread::spawn(move || shard.serve(&stop, &|_| {}).unwrap());
        self.shards.insert(number, ((task_id, address), serving));
    }

    pub(super) fn recipe(&self) -> Recipe {
        Recipe::weights(adam(), size(), 1).with_codecs(self.codecs.clone())
    }

    pub(super) fn addresses(&self, numbers: &[u32]) -> Vec<ShardAddress> {
        numbers
            .iter()
            .map(|number| self.shards[number].0.clone())
            .collect()
    }

    pub(super) fn end(&mut self, number: u32) -> ShardEnd {
        self.shards.remove(&number).unwrap().1.join().unwrap()
    }

    pub(super) fn join(&self, number: u32, shards: &[u32]) -> Shards {
        self.join_at(number, &self.addresses(shards))
    }

    pub(super) fn join_at(&self, number: u32, addresses: &[ShardAddress]) -> Shards {
        let hello = Hello {
            job_id: JobId(Uuid::nil()),
            secret: "s".repeat(64),
            task_id: worker(number),
            guest: match number {
                0 => ConnectionPurpose::Chief,
                _ => ConnectionPurpose::Worker,
            },
            to: None,
            says_held: false,
            plain_statistics: false,
        };
        let mut shards = Shards::join(addresses, size(), &hello).unwrap();
        if let Some(codecs) = self.codecs.clone() {
            let blocks = self.recipe().blocks;
            shards.compress(codecs, &blocks, 3).unwrap();
        }
        shards
    }

    pub(super) fn lead(&self, workers: &[u32], shards: &[u32]) -> Shards {
        let mut chief = self.join(0, shards);
        let mut offset = 0;
        let blocks: Vec<ParameterPiece> = BLOCKS
            .iter()
            .map(|&len| {
                offset += len;
                let offset = offset - len;
                ParameterPiece { offset, len }
            })
            .collect();
        let workers = workers.iter().copied().map(worker).collect();
        let view = first_view(1, workers, &self.addresses(shards), &blocks);
        chief.begin(view, 0, 0, &fresh()).unwrap();
        chief
    }
}

/// Pulls until parameters arrive. Returns the next step; `None` if the worker is not in the view.
pub(super) fn enter(shards: &mut Shards, parameters: &mut [f32]) -> Option<u64> {
    loop {
        let reply = shards.pull(parameters, &forever, &forever).unwrap();
        if shards.follow().unwrap() == Some(false) {
            return None;
        }
        match reply {
            Reply::Parameters { clock, .. } => return Some(clock),
            Reply::Moved => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Runs a follower: trains until it leaves the view or training has finished. Returns the step
/// after its last one, and its parameters.
fn follow(mut shards: Shards) -> (u64, Vec<f32>) {
    let mut parameters = vec![0.0; size()];
    let mut step = enter(&mut shards, &mut parameters).unwrap();
    loop {
        let gradients = gradients(shards.rank().unwrap(), step);
        let stats = StepStats::default();
        let reply = shards.push_pull(step, stats, &gradients, &mut parameters, &forever);
        let reply = reply.unwrap();
        if let Reply::Parameters { clock, .. } = reply {
            step = clock;
        }
        let is_out = shards.follow().unwrap() == Some(false);
        match reply {
            Reply::Finished => return (step, parameters),
            _ if is_out => return (step, parameters),
            Reply::Parameters { .. } => {}
            Reply::Moved => match enter(&mut shards, &mut parameters) {
                Some(next) => step = next,
                None => return (step, parameters),
            },
            other => panic!("{other:?}"),
        }
    }
}

/// Workers and shards from one step on.
struct ViewStage {
    from: u64,
    workers: &'static [u32],
    shards: &'static [u32],
}

struct ViewRun {
    snapshot: ShardSnapshot,
    /// The coordinator's parameters at the end.
    parameters: Vec<f32>,
    moved: Vec<ReshardingResult>,
    /// Results of [`follow`] by worker.
    followers: BTreeMap<u32, (u64, Vec<f32>)>,
    ends: Vec<ShardEnd>,
}

/// Starts a thread that trains as another worker.
fn follower(shards: Shards) -> JoinHandle<(u64, Vec<f32>)> {
    thread::spawn(move || follow(shards))
}

/// Trains `steps` steps through all stages, the first of which begins at 0.
fn run(
    consistency: Consistency,
    codecs: Option<Codecs>,
    stages: &[ViewStage],
    steps: u64,
) -> ViewRun {
    let mut cluster = ShardCluster::new(consistency, codecs);
    let first = &stages[0];
    first.shards.iter().for_each(|&shard| cluster.start(shard));
    let mut chief = cluster.lead(first.workers, first.shards);
    let mut followers: BTreeMap<u32, JoinHandle<(u64, Vec<f32>)>> = BTreeMap::new();
    for &number in &first.workers[1..] {
        followers.insert(number, follower(cluster.join(number, first.shards)));
    }
    let mut parameters = fresh().parameters;
    let mut moved = Vec::new();
    let bsp = consistency.is_bulk_synchronous();
    let mut step = 0;
    while step < steps {
        // Under BSP a view is announced before the push of the step before its first one.
        let lead = u64::from(bsp);
        if let Some(stage) = stages
            .iter()
            .find(|stage| stage.from == step + lead && step > 0)
        {
            for &shard in stage.shards {
                if !cluster.shards.contains_key(&shard) {
                    cluster.start(shard);
                }
            }
            let addresses = cluster.addresses(stage.shards);
            let new: Vec<u32> = stage.workers[1..]
                .iter()
                .copied()
                .filter(|number| !followers.contains_key(number))
                .collect();
            for &number in &new {
                followers.insert(number, follower(cluster.join(number, stage.shards)));
            }
            chief.approach(&addresses).unwrap();
            let new: Vec<TaskId> = new.into_iter().map(worker).collect();
            while !chief.are_waiting(&new, &addresses).unwrap() {
                thread::sleep(Duration::from_millis(1));
            }
            let workers = stage.workers.iter().copied().map(worker).collect();
            chief
                .change(2, workers, &addresses, stage.from, Vec::new())
                .unwrap();
            if !bsp {
                chief.follow().unwrap();
                assert_eq!(enter(&mut chief, &mut parameters), Some(step));
                moved.extend(chief.audit().unwrap());
            }
        }
        let gradients = gradients(0, step);
        let reply = chief.push_pull(
            step,
            StepStats::default(),
            &gradients,
            &mut parameters,
            &forever,
        );
        let Reply::Parameters { clock, .. } = reply.unwrap() else {
            panic!("step {step} was not answered with parameters");
        };
        chief.follow().unwrap();
        step = clock;
        if bsp {
            moved.extend(chief.audit().unwrap());
        }
    }
    let snapshot = chief.snapshot(Contents::default()).unwrap();
    chief.done();
    let followers = followers
        .into_iter()
        .map(|(number, thread)| (number, thread.join().unwrap()))
        .collect();
    let numbers: Vec<u32> = cluster.shards.keys().copied().collect();
    let ends = numbers
        .into_iter()
        .map(|number| cluster.end(number))
        .collect();
    ViewRun {
        snapshot,
        parameters,
        moved,
        followers,
        ends,
    }
}

/// 2, 6 and 3 workers on 1, 3 and 2 shards: the same bits as one process with the same gradients,
/// and every moved piece is unchanged. The first shard is one of those that leave.
#[test]
fn bsp_with_view_changes_has_the_bits_of_a_plain_loop() {
    let stages = [
        ViewStage {
            from: 0,
            workers: &[0, 1],
            shards: &[0],
        },
        ViewStage {
            from: 5,
            workers: &[0, 1, 2, 3, 4, 5],
            shards: &[0, 1, 2],
        },
        ViewStage {
            from: 9,
            workers: &[0, 4, 2],
            shards: &[2, 1],
        },
        ViewStage {
            from: 12,
            workers: &[0, 4, 7, 2],
            shards: &[2, 1],
        },
    ];
    let steps = 15;
    let run = run(Consistency::default(), None, &stages, steps);
    let mut parameters = fresh().parameters;
    let mut state = vec![0.0; size() * 2];
    for step in 0..steps {
        let stage = stages
            .iter()
            .rev()
            .find(|stage| stage.from <= step)
            .unwrap();
        let mut sum = gradients(0, step);
        for rank in 1..stage.workers.len() {
            for (sum, value) in sum.iter_mut().zip(gradients(rank, step)) {
                *sum += value;
            }
        }
        adam().update(step, &mut parameters, &sum, &mut state, 1.0 / BATCH as f32);
    }
    assert_eq!(run.snapshot.version(), Some(steps));
    assert_eq!(run.snapshot.updates, steps);
    assert!(run.snapshot.contents.parameters == parameters);
    assert!(run.snapshot.contents.state.concat() == state);
    assert_eq!(
        run.ends,
        [ShardEnd::Stopped, ShardEnd::Finished, ShardEnd::Finished]
    );
    // Leaving workers have the parameters of their last step, and the remaining ones those of all
    // others.
    for (number, ended) in [(1, 9), (3, 9), (5, 9), (2, steps), (4, steps), (7, steps)] {
        let (step, of) = &run.followers[&number];
        assert_eq!(*step, ended, "worker {number}");
        assert_eq!(*of == parameters, ended == steps, "worker {number}");
    }
    assert_eq!(run.moved.len(), 2, "the last view moves nothing");
    for moved in &run.moved {
        assert_eq!(moved.before, moved.after);
        assert_ne!(moved.before, 0);
    }
    // Two thirds moved to the new shards. The first shard's third moved to the remaining ones.
    // There are three values per parameter.
    for (moved, expected) in run.moved.iter().zip([0.64..0.68, 0.32..0.36]) {
        let share = moved.numbers as f64 / (3 * size()) as f64;
        assert!(expected.contains(&share), "{:?}", run.moved);
    }
}

/// Without a common step there is a common barrier: all workers continue from the coordinator's
/// step, no state is lost, and earlier pushes are in it.
#[test]
fn ssp_and_asp_change_views_at_a_barrier() {
    let rate = Rate::Constant;
    let ssp = Consistency::Ssp {
        staleness: 2,
        eager: false,
        rate,
    };
    for consistency in [ssp, Consistency::Asp { rate }] {
        let stages = [
            ViewStage {
                from: 0,
                workers: &[0, 1],
                shards: &[0],
            },
            ViewStage {
                from: 10,
                workers: &[0, 1, 2, 3],
                shards: &[0, 1, 2],
            },
            ViewStage {
                from: 20,
                workers: &[0, 3],
                shards: &[1, 2],
            },
        ];
        let run = run(consistency, None, &stages, 30);
        assert_eq!(run.snapshot.version(), Some(30));
        assert!(
            run.snapshot.updates >= 60 || consistency == Consistency::Asp { rate },
            "{}",
            run.snapshot.updates
        );
        assert_eq!(
            run.ends,
            [ShardEnd::Stopped, ShardEnd::Finished, ShardEnd::Finished]
        );
        assert_eq!(run.moved.len(), 2);
        assert!(
            run.moved
                .iter()
                .all(|moved| moved.before == moved.after && moved.before != 0)
        );
        assert!(
            run.snapshot
                .contents
                .parameters
                .iter()
                .all(|value| value.is_finite())
        );
    }
}

/// With encoded gradients and answers all workers, including new ones, have the same parameters,
/// also in every run. They are close to the shards' parameters.
#[test]
fn encoded_answers_keep_workers_equal_across_views() {
    let stages = [
        ViewStage {
            from: 0,
            workers: &[0, 1],
            shards: &[0],
        },
        ViewStage {
            from: 5,
            workers: &[0, 1, 2, 3],
            shards: &[0, 1, 2],
        },
        ViewStage {
            from: 9,
            workers: &[0, 3, 2],
            shards: &[2, 1],
        },
    ];
    let codecs = [
        CodecConfig::OneBit {},
        CodecConfig::TopK {
            density: 0.05,
            sampled: false,
        },
    ];
    for codec in codecs {
        let codecs = Codecs {
            codec,
            dense_below: 500,
            layers: Vec::new(),
        };
        let runs = [(); 2].map(|()| run(Consistency::default(), Some(codecs.clone()), &stages, 15));
        for number in [2, 3] {
            let (step, parameters) = &runs[0].followers[&number];
            assert_eq!(*step, 15);
            assert!(*parameters == runs[0].parameters, "worker {number}");
        }
        assert!(runs[0].parameters == runs[1].parameters);
        assert!(runs[0].snapshot == runs[1].snapshot);
        let held = &runs[0].snapshot.contents.parameters;
        let furthest = held
            .iter()
            .zip(&runs[0].parameters)
            .map(|(held, known)| (held - known).abs())
            .fold(0.0, f32::max);
        assert!(furthest > 0.0 && furthest < 0.1, "{furthest}");
        assert!(
            runs[0]
                .moved
                .iter()
                .all(|moved| moved.before == moved.after)
        );
    }
}

/// A worker that never connected does not block the others after the task set has changed.
#[test]
fn worker_that_never_connected_is_not_waited_for() {
    let rate = Rate::Constant;
    for consistency in [Consistency::default(), Consistency::Asp { rate }] {
        let mut cluster = ShardCluster::new(consistency, None);
        cluster.start(0);
        let mut chief = cluster.lead(&[0, 1], &[0]);
        let addresses = cluster.addresses(&[0]);
        let bsp = consistency.is_bulk_synchronous();
        let mut parameters = vec![0.0; size()];
        let from = u64::from(bsp);
        let alone = vec![worker(0)];
        chief
            .change(2, alone, &addresses, from, Vec::new())
            .unwrap();
        if !bsp {
            chief.follow().unwrap();
            assert_eq!(enter(&mut chief, &mut parameters), Some(0));
        }
        let stats = StepStats::default();
        let reply = chief.push_pull(0, stats, &gradients(0, 0), &mut parameters, &forever);
        assert!(matches!(reply, Ok(Reply::Parameters { clock: 1, .. })));
        chief.done();
        assert_eq!(cluster.end(0), ShardEnd::Finished);
    }
}

/// Pushes the gradients of step 0.
fn push_first(
    shards: &mut Shards,
    rank: usize,
    parameters: &mut [f32],
) -> Result<Reply, ShardFailure> {
    let own = gradients(rank, 0);
    shards.push_pull(0, StepStats::default(), &own, parameters, &forever)
}

/// A worker connects and pushes after the coordinator was notified that it is missing: the step is
/// not acknowledged before the coordinator has announced the next view.
#[test]
fn worker_that_connects_during_the_decision_waits_for_it() {
    let mut cluster = ShardCluster::new(Consistency::default(), None);
    cluster.start(0);
    let mut chief = cluster.lead(&[0, 1, 2], &[0]);
    let mut other = cluster.join(1, &[0]);
    let mut parameters = vec![0.0; size()];
    assert_eq!(enter(&mut other, &mut parameters), Some(0));
    let reply = push_first(&mut chief, 0, &mut parameters).unwrap();
    assert_eq!(reply, Reply::Gone);
    let departed: Vec<TaskId> = chief.departed().iter().map(|gone| gone.task_id).collect();
    assert_eq!(departed, [worker(2)]);
    thread::scope(|scope| {
        let pushing = scope.spawn(|| {
            let mut parameters = vec![0.0; size()];
            push_first(&mut other, 1, &mut parameters).unwrap()
        });
        let mut late = cluster.join(2, &[0]);
        let mut of_late = vec![0.0; size()];
        assert_eq!(enter(&mut late, &mut of_late), Some(0));
        let too_late = scope.spawn(move || push_first(&mut late, 2, &mut of_late));
        // Long enough for both to be answered, if they are.
        thread::sleep(Duration::from_millis(200));
        let left = vec![worker(0), worker(1)];
        let addresses = cluster.addresses(&[0]);
        chief.change(1, left, &addresses, 1, departed).unwrap();
        let own = gradients(0, 0);
        let reply = chief.resume(&own, &mut parameters, &forever).unwrap();
        assert!(matches!(reply, Reply::Parameters { clock: 1, .. }));
        let reply = pushing.join().unwrap();
        assert!(matches!(reply, Reply::Parameters { clock: 1, .. }));
        assert_eq!(too_late.join().unwrap().unwrap(), Reply::Moved);
    });
    for shards in [&mut chief, &mut other] {
        assert_eq!(shards.follow().unwrap(), Some(true));
        assert_eq!(shards.view().unwrap().number, 2);
    }
}

#[test]
fn worker_admitted_while_it_gives_up_waiting_is_a_member() {
    let mut cluster = ShardCluster::new(Consistency::default(), None);
    cluster.start(0);
    cluster.start(1);
    let mut guest = cluster.join(1, &[0, 1]);
    let mut parameters = vec![0.0; size()];
    let (has_given_up, chief) = (AtomicBool::new(false), Mutex::new(None));
    // At one shard it stops waiting, and is admitted before it polls the other one.
    let pulled = guest.pull(&mut parameters, &forever, &|| {
        if !has_given_up.swap(true, Ordering::Relaxed) {
            return false;
        }
        let led = cluster.lead(&[0, 1], &[0, 1]);
        *chief.lock().unwrap() = Some(led);
        true
    });
    assert_eq!(pulled.unwrap(), Reply::Moved);
    assert_eq!(guest.follow().unwrap(), Some(true));
    assert_eq!(enter(&mut guest, &mut parameters), Some(0));
    assert_eq!(parameters, fresh().parameters);
    let chief: Option<Shards> = chief.into_inner().unwrap();
    chief.expect("it has begun").done();
    assert_eq!(cluster.end(0), ShardEnd::Finished);
    assert_eq!(cluster.end(1), ShardEnd::Finished);
}
