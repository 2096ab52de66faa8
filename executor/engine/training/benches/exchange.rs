//! Cost of the parameter exchange relative to the limits of this machine, as ratios measured in one
//! run:
//!
//! * frames, and push and pull between one worker and one PS shard including the update, compared
//!   with the same bytes through plain TCP;
//! * push and pull of two workers with two shards, plain and encoded, over TCP and through shared
//!   memory;
//! * training steps over connections with limited rates: whole steps compared with parts, in order
//!   of readiness and of need;
//! * training steps of workers without shards over such connections, with an update at the end and
//!   in priority order;
//! * stall of training by a checkpoint: the shards' state read at once, compared with a snapshot
//!   that is read in the background;
//! * training steps of workers that share their node's connection, without and with local
//!   aggregation;
//! * examples per second of a worker with a shard, compared with the same model in a plain loop.
//!
//! The two sides of a ratio alternate, so that other load affects both; medians are compared.

#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

#[path = "exchange/among.rs"]
mod among;
#[path = "exchange/drawn.rs"]
mod drawn;
#[path = "exchange/limited.rs"]
mod limited;
#[path = "exchange/node.rs"]
mod node;
#[path = "shared/noise.rs"]
mod noise;
#[path = "exchange/there_and_back.rs"]
mod there_and_back;

use muster_comm::assign::ParameterPiece;
use muster_comm::compress::{CodecConfig, Codecs, HalfFormat, Rounding};
use muster_comm::wire::metadata::{ConnectionPurpose, Hello, StepStats};
use muster_compute::data::{GlobalBatches, slice};
use muster_compute::model::Batch;
use muster_compute::optimizer::OptimizerConfig;
use muster_compute::pages;
use muster_model::assignment::{Peer, Peers, TaskLaunch, TaskReport};
use muster_model::id::{JobId, NodeId, TaskId, TenantId};
use muster_model::place::Place;
use muster_model::spec::{self, Consistency, JobSpec};
use muster_model::task::Role;
use muster_training::checkpoint::Contents;
use muster_training::document;
use muster_training::shard::{Identity, Recipe, ShardExchange, ShardServer};
use muster_training::stop::StopFlag;
use muster_training::worker::{
    self, Reply, Reporter, ShardAddress, Shards, WorkerContext, first_view,
};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Megabytes of parameters of two workers and two shards.
const PAIRS_MB: usize = 100;
const SECRET: &str = "0123456789abcdef";
const WORKER: TaskId = TaskId(Uuid::from_u128(1));
const SHARD: TaskId = TaskId(Uuid::from_u128(2));

fn main() {
    if std::env::args().any(|argument| argument == "wire") {
        there_and_back::say(&there_and_back::rows());
        return;
    }
    if std::env::args().any(|argument| argument == "codecs") {
        say_compressed(&compressed_rows());
        return;
    }
    if std::env::args().any(|argument| argument == "near") {
        say_near(&near_rows());
        return;
    }
    if std::env::args().any(|argument| argument == "limited") {
        say_limited(&limited::rows());
        return;
    }
    if std::env::args().any(|argument| argument == "among") {
        among::say(&among::rows());
        return;
    }
    if std::env::args().any(|argument| argument == "drawn") {
        drawn::say(&drawn::rows());
        return;
    }
    if std::env::args().any(|argument| argument == "node") {
        node::say(&node::rows());
        return;
    }
    // The log lines of the tasks use standard output too, so the tables are printed after all runs.
    let exchanged = there_and_back::rows();
    let data = tempfile::tempdir().expect("a folder for the data set");
    noise::write_images(&data.path().join("fashion-mnist"));
    let mlp = serde_json::json!({ "kind": "mlp", "hidden": [128] });
    let cnn = serde_json::json!({ "kind": "cnn", "channels": [16, 32], "dense": [128] });
    let training = [
        training_row("MLP 128", &job(&mlp, 600), data.path()),
        training_row("CNN 16-32, dense 128", &job(&cnn, 60), data.path()),
    ];
    let in_nodes = node::rows();
    let compressed = compressed_rows();
    let near = near_rows();
    say_limited(&limited::rows());
    among::say(&among::rows());
    drawn::say(&drawn::rows());
    say_compressed(&compressed);
    say_near(&near);
    there_and_back::say(&exchanged);
    node::say(&in_nodes);
    println!();
    println!("training, one worker and one shard, one thread each");
    println!(
        "{:>24} {:>14} {:>14} {:>7}",
        "model", "bare ex/s", "worker ex/s", "ratio"
    );
    println!("{}", training.join("\n"));
}

fn say_compressed(rows: &[String]) {
    println!("\npush + pull, 2 workers and 2 shards, {PAIRS_MB} MB each way, SGD");
    println!(
        "{:>12} {:>10} {:>12} {:>14} {:>14} {:>10}",
        "wire MB/s", "codec", "ms a step", "GB/s a worker", "times plain", "CPU ms"
    );
    println!("{}", rows.join("\n"));
}

fn say_near(rows: &[String]) {
    println!(
        "\npush + pull, 2 workers and 2 shards of one node, {PAIRS_MB} MB each way, SGD, as shares of plain TCP"
    );
    println!(
        "{:>16} {:>12} {:>14} {:>10} {:>10} {:>10}",
        "through", "ms a step", "GB/s a worker", "rate", "CPU ms", "CPU"
    );
    println!("{}", rows.join("\n"));
}

fn say_limited(rows: &[String]) {
    println!(
        "\ntraining steps of 2 workers with 1 shard over limited wires, MLP 3 x 1024, 11.6 MB"
    );
    println!(
        "{:>10} {:>10} {:>10} {:>10} {:>12} {:>12}",
        "MB/s", "at once ms", "as ready", "by need", "vs at once", "vs as ready"
    );
    println!("{}", rows.join("\n"));
}

/// Steps with 1 Gbit/s in each direction per worker, and over plain loopback.
fn compressed_rows() -> Vec<String> {
    [(125e6, 6), (f64::INFINITY, 12)]
        .into_iter()
        .flat_map(|(rate, rounds)| compressed_over(rate, rounds))
        .collect()
}

/// Steps of two workers with two shards, each a thread with its connections; plain and encoded
/// alternate.
fn compressed_over(rate: f64, rounds: usize) -> Vec<String> {
    let codecs = [
        ("plain", None),
        ("one_bit", Some(CodecConfig::OneBit {})),
        (
            "bf16",
            Some(CodecConfig::Half {
                format: HalfFormat::Bf16,
                rounding: Rounding::Nearest,
                feedback: true,
            }),
        ),
    ];
    let mut pairs: Vec<WorkerPair> = codecs
        .iter()
        .map(|(_, codec)| WorkerPair::start(*codec, rate))
        .collect();
    let (seconds, cpu) = by_turns(&mut pairs, rounds);
    let bytes = 2.0 * (PAIRS_MB << 20) as f64;
    let rows = codecs.iter().zip(seconds.iter().zip(cpu));
    let rows = rows.map(|((name, _), (took, cpu))| {
        format!(
            "{:>12.0} {name:>10} {:>12.1} {:>14.2} {:>14.2} {:>10.1}",
            rate / 1e6,
            took * 1e3,
            bytes / took / 1e9,
            seconds[0] / took,
            cpu * 1e3
        )
    });
    rows.collect()
}

/// The same steps over TCP and through shared memory, alternating.
fn near_rows() -> Vec<String> {
    let bf16 = CodecConfig::Half {
        format: HalfFormat::Bf16,
        rounding: Rounding::Nearest,
        feedback: true,
    };
    let folder = tempfile::tempdir().expect("a folder to meet in");
    let meet = Some(folder.path());
    let ways = [
        ("TCP", None, None),
        ("memory", None, meet),
        ("TCP, bf16", Some(bf16), None),
        ("memory, bf16", Some(bf16), meet),
    ];
    let mut pairs: Vec<WorkerPair> = ways
        .iter()
        .map(|(_, codec, sockets)| WorkerPair::meet(*codec, f64::INFINITY, *sockets))
        .collect();
    for (pair, (_, _, sockets)) in pairs.iter().zip(&ways) {
        let near = pair.workers.iter().map(Shards::near);
        assert_eq!(near.sum::<usize>(), if sockets.is_some() { 4 } else { 0 });
    }
    let (seconds, cpu) = by_turns(&mut pairs, 24);
    let bytes = 2.0 * (PAIRS_MB << 20) as f64;
    let rows = (0..ways.len()).map(|at| {
        let (name, took, cpu_s) = (ways[at].0, seconds[at], cpu[at]);
        format!(
            "{name:>16} {:>12.1} {:>14.2} {:>10.2} {:>10.1} {:>10.2}",
            took * 1e3,
            bytes / took / 1e9,
            seconds[0] / took,
            cpu_s * 1e3,
            cpu_s / cpu[0]
        )
    });
    rows.collect()
}

/// Medians of the wall seconds and of the CPU seconds of a step of each pair.
fn by_turns(pairs: &mut [WorkerPair], rounds: usize) -> (Vec<f64>, Vec<f64>) {
    let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); pairs.len()];
    let mut cpu: Vec<Vec<f64>> = vec![Vec::new(); pairs.len()];
    for round in 0..rounds {
        for (at, pair) in pairs.iter_mut().enumerate() {
            let (began, before) = (Instant::now(), process_cpu());
            pair.step();
            if round >= rounds / 4 {
                seconds[at].push(began.elapsed().as_secs_f64());
                cpu[at].push(process_cpu() - before);
            }
        }
    }
    let [seconds, cpu] = [seconds, cpu].map(|all| all.into_iter().map(median).collect());
    (seconds, cpu)
}

/// CPU seconds of all threads of this process.
fn process_cpu() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// Two workers with two shards.
struct WorkerPair {
    workers: Vec<Shards>,
    gradients: Vec<f32>,
    parameters: Vec<Vec<f32>>,
    step: u64,
}

impl WorkerPair {
    /// Starts a pair. Each worker has a connection with `rate` bytes per second in each direction,
    /// half of it per shard.
    fn start(codec: Option<CodecConfig>, rate: f64) -> Self {
        Self::meet(codec, rate, None)
    }

    /// Starts a pair, with shared memory if `sockets` is a folder.
    fn meet(codec: Option<CodecConfig>, rate: f64, sockets: Option<&Path>) -> Self {
        Self::of(PAIRS_MB, &sgd(), codec, rate, sockets)
    }

    /// Starts a pair with `megabytes` of parameters.
    fn of(
        megabytes: usize,
        optimizer: &spec::Optimizer,
        codec: Option<CodecConfig>,
        rate: f64,
        sockets: Option<&Path>,
    ) -> Self {
        let size = (megabytes << 20) / 4;
        let codecs = codec.map(|codec| Codecs {
            codec,
            dense_below: 1_024,
            layers: Vec::new(),
        });
        let optimizer = document::constant(optimizer);
        let planes = optimizer.state_len_per_param();
        let recipe = Recipe::weights(optimizer, size, 1).with_codecs(codecs.clone());
        let addresses: Vec<ShardAddress> = [10, 11]
            .map(|shard| {
                let (shard, recipe) = (limited::task(shard), recipe.clone());
                let exchange = ShardExchange::new(shard, recipe, Consistency::default(), 2);
                (shard, start_exchange(shard, exchange, sockets))
            })
            .into();
        let mut workers: Vec<Shards> = [
            (0, ConnectionPurpose::Chief),
            (1, ConnectionPurpose::Worker),
        ]
        .map(|(worker, guest)| {
            let hello = Hello {
                job_id: JobId(Uuid::nil()),
                secret: SECRET.to_owned(),
                task_id: limited::task(worker),
                guest,
                to: None,
                says_held: false,
                plain_statistics: false,
            };
            let reached = addresses.iter().map(|(shard, address)| {
                if rate.is_finite() {
                    (
                        *shard,
                        limited::relay(address, &limited::LimitedWire::of(rate / 2.0)),
                    )
                } else {
                    (*shard, address.clone())
                }
            });
            let reached: Vec<ShardAddress> = reached.collect();
            let joined = Shards::join_near(&reached, size, &hello, sockets);
            let mut shards = joined.expect("a shard");
            if let Some(codecs) = codecs.clone() {
                let made = shards.compress(codecs, &recipe.blocks, 1);
                made.expect("codecs");
            }
            shards
        })
        .into();
        let all = ParameterPiece {
            offset: 0,
            len: size,
        };
        let view = first_view(1, [0, 1].map(limited::task).into(), &addresses, &[all]);
        let contents = Contents {
            parameters: vec![0.0; size],
            state: vec![vec![0.0; size]; planes],
            extras: Vec::new(),
        };
        workers[0].begin(view, 0, 0, &contents).expect("content");
        let mut parameters = vec![pages::zeros(size), pages::zeros(size)];
        let pulled = workers[1].pull(&mut parameters[1], &|| true, &|| true);
        assert!(matches!(pulled, Ok(Reply::Parameters { .. })));
        workers[1].follow().expect("a view");
        let mut gradients = pages::zeros(size);
        for (i, gradient) in gradients.iter_mut().enumerate() {
            *gradient = ((i * 7_919) % 2_003) as f32 / 1_001.5 - 1.0;
        }
        Self {
            workers,
            gradients,
            parameters,
            step: 0,
        }
    }

    fn step(&mut self) {
        let (gradients, step) = (&self.gradients, self.step);
        thread::scope(|scope| {
            for (worker, parameters) in self.workers.iter_mut().zip(&mut self.parameters) {
                scope.spawn(move || {
                    let stats = StepStats::default();
                    let reply = worker.push_pull(step, stats, gradients, parameters, &|| true);
                    assert!(matches!(reply, Ok(Reply::Parameters { .. })));
                });
            }
        });
        self.step += 1;
    }
}

fn sgd() -> spec::Optimizer {
    spec::Optimizer::Sgd {
        learning_rate: 0.1,
        momentum: 0.0,
        nesterov: false,
        weight_decay: 0.0,
    }
}

/// Address of a shard that serves until its worker leaves.
fn start_shard(optimizer: OptimizerConfig, size: usize, batch: u32) -> String {
    start_with(SHARD, Recipe::weights(optimizer, size, 1), batch)
}

fn start_with(task_id: TaskId, recipe: Recipe, batch: u32) -> String {
    let exchange = ShardExchange::new(task_id, recipe, Consistency::default(), batch);
    start_exchange(task_id, exchange, None)
}

fn start_exchange(task_id: TaskId, exchange: ShardExchange, sockets: Option<&Path>) -> String {
    let identity = Identity {
        job_id: JobId(Uuid::nil()),
        task_id,
        secret: SECRET.to_owned(),
    };
    let mut shard = ShardServer::bind("127.0.0.1", identity, exchange).expect("a free port");
    if let Some(sockets) = sockets {
        shard = shard.near(sockets);
    }
    let address = shard.address().to_string();
    thread::spawn(move || shard.serve(&StopFlag::new(Duration::from_secs(1)), &|_| {}));
    address
}

fn job(model: &serde_json::Value, steps: u64) -> JobSpec {
    serde_json::from_value(serde_json::json!({
        "version": "muster/v1",
        "name": "bench",
        "engine": {
            "model": model,
            "dataset": { "name": "fashion-mnist" },
            "optimizer": { "kind": "adam", "learning_rate": 0.001 },
            "batch": 64,
        },
        "checkpoint": { "every_minutes": null },
        "stop": { "steps": steps },
    }))
    .expect("a job document")
}

fn training_row(name: &str, job: &JobSpec, data: &Path) -> String {
    let steps = job.stop.steps.expect("a number of steps");
    let (mut bare, mut inside) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        bare.push(bare_loop(job, data, steps));
        inside.push(in_worker(job, data));
    }
    let (bare, inside) = (median(bare), median(inside));
    format!(
        "{name:>24} {bare:>14.0} {inside:>14.0} {:>7.3}",
        inside / bare
    )
}

/// Examples per second of batch, gradient and update in one loop.
fn bare_loop(job: &JobSpec, data: &Path, steps: u64) -> f64 {
    let engine = job.engine();
    let network = document::network(engine).expect("the network");
    let data = document::dataset(engine, data).expect("the data set");
    let optimizer = document::optimizer(engine);
    let batch = engine.batch as usize;
    let mut batches = GlobalBatches::new(engine.seed, data.train.len(), batch).expect("a batch");
    let mut workspace = network.workspace(batch, 1);
    let mut parameters = network.init(engine.seed);
    let mut gradients = vec![0.0; parameters.len()];
    let mut state = vec![0.0; parameters.len() * optimizer.state_len_per_param()];
    let (mut images, mut labels) = (vec![0.0; batch * data.input.len()], vec![0; batch]);
    let began = Instant::now();
    for step in 0..steps {
        let indices = &batches.indices(step)[slice(batch, 0, 1)];
        data.train.fill(indices, &mut images, &mut labels);
        network.loss_and_grad(
            &mut workspace,
            &parameters,
            &Batch::classes(&images, &labels),
            &mut gradients,
        );
        optimizer.update(
            step,
            &mut parameters,
            &gradients,
            &mut state,
            1.0 / batch as f32,
        );
    }
    (steps * batch as u64) as f64 / began.elapsed().as_secs_f64()
}

#[derive(Default)]
struct ReportLog(Mutex<Vec<TaskReport>>);

impl Reporter for ReportLog {
    fn report(&self, report: &TaskReport) -> io::Result<()> {
        self.0
            .lock()
            .expect("no reporter panics")
            .push(report.clone());
        Ok(())
    }
}

/// Examples per second of a complete worker, from its own progress samples.
fn in_worker(job: &JobSpec, data: &Path) -> f64 {
    let checkpoints = tempfile::tempdir().expect("a folder for checkpoints");
    let network = document::network(job.engine()).expect("the network");
    let optimizer = document::optimizer(job.engine());
    let address = start_shard(optimizer, network.parameter_count(), job.engine().batch);
    let reports = run_worker(job, (&[WORKER], 0), address, (checkpoints.path(), data));
    let (mut examples, mut seconds, mut before) = (0.0, 0.0, 0);
    for report in reports {
        if let TaskReport::Progress { sample } = report {
            let steps = (sample.step - before) as f64;
            before = sample.step;
            examples += steps * f64::from(job.engine().batch);
            seconds += steps / sample.steps_per_s;
        }
    }
    examples / seconds
}

/// Reports of a worker of a whole training: the one with this rank, with a shard at `address`.
/// Workers with the same `folder` are on one node.
fn run_worker(
    job: &JobSpec,
    (workers, rank): (&[TaskId], u32),
    address: String,
    (folder, data): (&Path, &Path),
) -> Vec<TaskReport> {
    let launch = TaskLaunch {
        task_id: workers[rank as usize],
        job_id: JobId(Uuid::nil()),
        tenant_id: TenantId(Uuid::nil()),
        tenant_number: None,
        revision: 1,
        role: Role::Worker { rank },
        workers: workers.len() as u32,
        ps_shards: 1,
        gpus: Vec::new(),
        cpu_milli: 0,
        memory_bytes: 0,
        secret: SECRET.to_owned(),
        spec: job.clone(),
        resume_step: None,
        trained_s: 0.0,
        grace_ms: 1_000,
        service_account: None,
        objectives: std::collections::BTreeSet::new(),
        finished_rung: None,
    };
    let kept = ReportLog::default();
    let peers = Peers {
        revision: 1,
        workers: workers.iter().map(|&worker| peer(worker, None)).collect(),
        ps_shards: vec![peer(SHARD, Some(address))],
        ..Peers::default()
    };
    let ctx = WorkerContext {
        device: &muster_compute::cuda::Device::Cpu,
        checkpoint_root: &Place::Folder(folder.to_owned()),
        dataset_root: data,
        reporter: &kept,
        stop: StopFlag::new(Duration::from_secs(1)),
        peers: Arc::new(move || Some(peers.clone())),
        listen_host: "127.0.0.1",
        folder,
        sockets: folder,
        threads: 1,
    };
    worker::run(&launch, rank, &ctx).expect("training");
    kept.0.into_inner().expect("no reporter panics")
}

fn peer(task_id: TaskId, address: Option<String>) -> Peer {
    Peer {
        task_id,
        node_id: NodeId(Uuid::nil()),
        address,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
