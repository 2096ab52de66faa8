//! Training steps over connections with limited rates: whole steps, parts in order of readiness,
//! parts in order of need.
//!
//! Loopback has no bottleneck. Each worker's connection therefore passes a relay that limits the
//! bytes per second in each direction. Like a network card, it buffers at most a tenth of a
//! megabyte.

use super::{SECRET, median, sgd, start_exchange};
use muster_comm::assign::ParameterPiece;
use muster_comm::partitions::PartitionOrder;
use muster_comm::wire::metadata::{ConnectionPurpose, Hello, StepStats};
use muster_compute::model::{Batch, ImageShape, Network, Workspace, zoo};
use muster_model::id::{JobId, TaskId};
use muster_model::spec::Consistency;
use muster_training::checkpoint::Contents;
use muster_training::document;
use muster_training::shard::{Recipe, ShardExchange};
use muster_training::worker::{
    GradientSink, ParameterFetch, PartitionedPass, Reply, ShardAddress, Shards, first_view,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use uuid::Uuid;

const WORKERS: usize = 2;
/// Examples per worker and step.
const EXAMPLES: usize = 128;
const ROUNDS: usize = 14;
/// Bytes per second in each direction per worker; the last is plain loopback.
pub const RATES: [f64; 4] = [50e6, 100e6, 200e6, f64::INFINITY];
pub const INPUT: ImageShape = ImageShape {
    height: 28,
    width: 28,
    channels: 1,
};

/// One row per rate: milliseconds per step, and the gain of parts.
pub fn rows() -> Vec<String> {
    RATES.into_iter().map(row).collect()
}

fn row(rate: f64) -> String {
    let ways = [
        None,
        Some(PartitionOrder::AsReady),
        Some(PartitionOrder::ByNeed),
    ];
    let mut jobs: Vec<Vec<LimitedWorker>> = ways.iter().map(|way| start(*way, rate)).collect();
    let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); jobs.len()];
    for round in 0..ROUNDS {
        for (job, seconds) in jobs.iter_mut().zip(&mut seconds) {
            let began = Instant::now();
            thread::scope(|scope| {
                job.iter_mut()
                    .for_each(|worker| drop(scope.spawn(|| worker.step())));
            });
            if round >= 3 {
                seconds.push(began.elapsed().as_secs_f64());
            }
        }
    }
    let models: Vec<&[f32]> = jobs
        .iter()
        .map(|job| job[0].pass.parameters.as_slice())
        .collect();
    assert!(
        models.iter().all(|model| *model == models[0]),
        "the same model to the bit"
    );
    let [whole, ready, need] = [0, 1, 2].map(|way| median(seconds[way].clone()) * 1e3);
    format!(
        "{:>10.0} {whole:>10.1} {ready:>10.1} {need:>10.1} {:>12.2} {:>12.2}",
        rate / 1e6,
        whole / need,
        ready / need
    )
}

pub fn task(number: usize) -> TaskId {
    TaskId(Uuid::from_u128(number as u128))
}

/// Both workers of a job with one shard, each over a connection of its own.
fn start(way: Option<PartitionOrder>, rate: f64) -> Vec<LimitedWorker> {
    let network = zoo::mlp(INPUT, &[1024, 1024, 1024], 10).expect("a network");
    let size = network.parameter_count();
    let recipe = Recipe::weights(document::constant(&sgd()), size, 1);
    let batch = (WORKERS * EXAMPLES) as u32;
    let exchange = ShardExchange::new(task(10), recipe, Consistency::default(), batch);
    let exchange = exchange.sending(way.unwrap_or_default());
    let address = start_exchange(task(10), exchange, None);
    let mut joined: Vec<(Shards, Vec<ShardAddress>)> = (0..WORKERS)
        .map(|rank| {
            let reached = if rate.is_finite() {
                relay(&address, &LimitedWire::of(rate))
            } else {
                address.clone()
            };
            let addresses = vec![(task(10), reached)];
            let hello = Hello {
                job_id: JobId(Uuid::nil()),
                secret: SECRET.to_owned(),
                task_id: task(rank),
                guest: match rank {
                    0 => ConnectionPurpose::Chief,
                    _ => ConnectionPurpose::Worker,
                },
                to: None,
                says_held: false,
                plain_statistics: false,
            };
            let shards = Shards::join(&addresses, size, &hello).expect("a shard");
            (shards.in_parts(way), addresses)
        })
        .collect();
    let blocks: Vec<ParameterPiece> = network
        .blocks()
        .iter()
        .map(|block| ParameterPiece {
            offset: block.offset,
            len: block.len,
        })
        .collect();
    let parameters = network.init(1);
    let contents = Contents {
        parameters: parameters.clone(),
        ..Contents::default()
    };
    let members = (0..WORKERS).map(task).collect();
    let view = first_view(1, members, &joined[0].1, &blocks);
    joined[0].0.begin(view, 0, 0, &contents).expect("content");
    let mut own = vec![0.0; size];
    let pulled = joined[1].0.pull(&mut own, &|| true, &|| true);
    assert!(matches!(pulled, Ok(Reply::Parameters { .. })));
    joined[1].0.follow().expect("a view");
    let workers = joined.into_iter().enumerate();
    workers
        .map(|(rank, (shards, _))| LimitedWorker {
            shards,
            step: 0,
            pass: Passes::new(network.clone(), rank, parameters.clone(), EXAMPLES),
        })
        .collect()
}

struct LimitedWorker {
    shards: Shards,
    step: u64,
    pass: Passes,
}

impl LimitedWorker {
    fn step(&mut self) {
        let pass = &mut self.pass;
        let reply = if self.shards.goes_in_parts() {
            self.shards.exchange(self.step, pass, &|| true)
        } else {
            let stats = pass.compute(&mut |_, _| {});
            let (gradients, parameters) = (&pass.gradients, &mut pass.parameters);
            self.shards
                .push_pull(self.step, stats, gradients, parameters, &|| true)
        };
        assert!(matches!(reply, Ok(Reply::Parameters { .. })));
        self.step += 1;
    }
}

/// Computes the same examples in each step; the learning result does not matter.
pub struct Passes {
    network: Network,
    workspace: Workspace,
    images: Vec<f32>,
    labels: Vec<u32>,
    gradients: Vec<f32>,
    pub parameters: Vec<f32>,
    is_begun: bool,
}

impl Passes {
    pub fn new(network: Network, rank: usize, parameters: Vec<f32>, examples: usize) -> Self {
        let images = (0..examples * INPUT.len())
            .map(|i| ((i * 7_919 + rank * 31) % 2_003) as f32 / 1_001.5 - 1.0);
        Self {
            workspace: network.workspace(examples, 1),
            images: images.collect(),
            labels: (0..examples as u32).map(|i| i % 10).collect(),
            gradients: vec![0.0; parameters.len()],
            parameters,
            network,
            is_begun: false,
        }
    }

    pub fn examples(&self) -> usize {
        self.labels.len()
    }
}

impl PartitionedPass for Passes {
    fn compute(&mut self, ready: GradientSink<'_>) -> StepStats {
        self.network.loss_and_grad_after(
            std::mem::take(&mut self.is_begun),
            &mut self.workspace,
            &self.parameters,
            &Batch::classes(&self.images, &self.labels),
            &mut self.gradients,
            ready,
        );
        StepStats {
            examples: self.examples() as u64,
            ..StepStats::default()
        }
    }

    fn go_ahead(&mut self, fetch: ParameterFetch<'_>) {
        self.is_begun = self.network.begin_fetching(
            &mut self.workspace,
            &mut self.parameters,
            &Batch::classes(&self.images, &self.labels),
            fetch,
        );
    }

    fn parameters(&mut self) -> &mut [f32] {
        &mut self.parameters
    }
}

/// Shared limit of all connections over it, in bytes per second and direction.
pub struct LimitedWire {
    rate: f64,
    /// Forward and backward direction.
    free_at: [Mutex<Instant>; 2],
}

impl LimitedWire {
    pub fn of(rate: f64) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            rate,
            free_at: [Mutex::new(now), Mutex::new(now)],
        })
    }

    /// Waits until `bytes` have passed; a token bucket with a capacity of one millisecond.
    fn take(&self, way: usize, bytes: usize) {
        let now = Instant::now();
        let until = {
            let mut free_at = self.free_at[way].lock().expect("no wire panics");
            *free_at = (*free_at).max(now - Duration::from_millis(1))
                + Duration::from_secs_f64(bytes as f64 / self.rate);
            *free_at
        };
        if let Some(wait) = until.checked_duration_since(now) {
            thread::sleep(wait);
        }
    }
}

/// Gives a connection small buffers, so that it follows the limit.
fn limit_buffers(stream: &TcpStream) {
    let socket = socket2::SockRef::from(stream);
    socket
        .set_recv_buffer_size(64 << 10)
        .expect("a small buffer");
    socket
        .set_send_buffer_size(64 << 10)
        .expect("a small buffer");
    stream.set_nodelay(true).expect("no delay");
}

/// Address at which clients reach `target` over the limited connection.
pub fn relay(target: &str, wire: &Arc<LimitedWire>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address").to_string();

    // Accepted connections inherit the buffer size of the listener.
    socket2::SockRef::from(&listener)
        .set_recv_buffer_size(64 << 10)
        .expect("a small buffer");
    let (target, wire) = (target.to_owned(), Arc::clone(wire));
    thread::spawn(move || {
        for guest in listener.incoming() {
            let guest = guest.expect("a guest");
            let host = TcpStream::connect(&target).expect("the target");
            [&guest, &host].into_iter().for_each(limit_buffers);
            let back = (
                host.try_clone().expect("a handle"),
                guest.try_clone().expect("a handle"),
            );
            let [there, same] = [Arc::clone(&wire), Arc::clone(&wire)];
            thread::spawn(move || pass(back.0, back.1, &same, 1));
            thread::spawn(move || pass(guest, host, &there, 0));
        }
    });
    address
}

fn pass(mut from: TcpStream, mut to: TcpStream, wire: &LimitedWire, way: usize) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        wire.take(way, count);
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}
