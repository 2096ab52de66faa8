//! Training steps of workers without shards over connections with limited rates, and through shared
//! memory. Compares three ways: buckets during the backward pass with one update at the end; ranges
//! in priority order with an early next step; the same in the order of the backward pass.

use super::limited::{INPUT, LimitedWire, Passes, RATES, relay};
use super::{SECRET, median, sgd};
use muster_comm::collective::{AlgorithmChoice, CollectiveGroup, Reduced};
use muster_comm::fabric::{
    Coordinator, Credentials, FabricOptions, Gathering, GroupView, MemberReport, PeerPort,
};
use muster_comm::partitions::PartitionOrder;
use muster_compute::model::{Network, zoo};
use muster_compute::optimizer::OptimizerConfig;
use muster_model::id::{JobId, TaskId};
use muster_training::document;
use muster_training::worker::{
    GradientRanges, GradientSink, MeanScale, ParameterFetch, PartitionedPass, PriorityAllReduce,
    PriorityStepWork, RangeSum, StepMetadata,
};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Instant;
use uuid::Uuid;

const WORKERS: usize = 2;
const ROUNDS: usize = 14;
/// Examples per worker and step. With these, a step computes for about as long as its gradients
/// travel over the faster connections.
const EXAMPLES: [usize; 2] = [128, 512];
/// Gradients per bucket without priority order.
const BUCKET: usize = 1 << 20;

#[derive(Clone, Copy)]
enum StepSchedule {
    /// The update and the next step wait for all sums.
    Buckets,
    Ahead(PartitionOrder),
}

/// One row per rate and number of examples: milliseconds per step, and the gain of the priority
/// order.
pub fn rows() -> Vec<String> {
    let rows = EXAMPLES.into_iter();
    let rows = rows.flat_map(|examples| {
        let wires = RATES.map(Some).into_iter().chain([None]);
        wires.map(move |wire| row(examples, wire))
    });
    rows.collect()
}

pub fn say(rows: &[String]) {
    println!(
        "\ntraining steps of 2 workers among themselves over limited wires, MLP 3 x 1024, 11.6 MB"
    );
    println!(
        "{:>10} {:>10} {:>10} {:>10} {:>10} {:>12} {:>12}",
        "examples", "MB/s", "buckets ms", "as ready", "by need", "vs buckets", "vs as ready"
    );
    println!("{}", rows.join("\n"));
}

fn row(examples: usize, wire: Option<f64>) -> String {
    let ways = [
        StepSchedule::Buckets,
        StepSchedule::Ahead(PartitionOrder::AsReady),
        StepSchedule::Ahead(PartitionOrder::ByNeed),
    ];
    let mut jobs: Vec<Vec<GroupWorker>> =
        ways.iter().map(|way| start(*way, examples, wire)).collect();
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
    let models = jobs.iter().flatten();
    let mut models = models.map(|worker| worker.work.passes.parameters.as_slice());
    let first = models.next().expect("a worker");
    assert!(
        models.all(|model| model == first),
        "the same model to the bit"
    );
    let [buckets, ready, need] = [0, 1, 2].map(|way| median(seconds[way].clone()) * 1e3);
    let wire = wire.map_or("memory".to_owned(), |rate| format!("{:.0}", rate / 1e6));
    format!(
        "{examples:>10} {wire:>10} {buckets:>10.1} {ready:>10.1} {need:>10.1} {:>12.2} {:>12.2}",
        buckets / need,
        ready / need
    )
}

/// Both workers of a job. The second one reaches the first over a connection with this number of
/// bytes per second in each direction; `None`: shared memory.
fn start(way: StepSchedule, examples: usize, wire: Option<f64>) -> Vec<GroupWorker> {
    let network = zoo::mlp(INPUT, &[1024, 1024, 1024], 10).expect("a network");
    let server = Arc::new(BenchCoordinator {
        gathering: Mutex::new(Gathering::new(WORKERS)),
        formed: Condvar::new(),
        wire,
    });
    thread::scope(|scope| {
        let joining: Vec<_> = (0..WORKERS)
            .map(|number| {
                let (server, network) = (Arc::clone(&server), network.clone());
                scope.spawn(move || GroupWorker::join(server, number, network, way, examples))
            })
            .collect();
        let joined = joining.into_iter().map(|worker| worker.join());
        joined.map(|worker| worker.expect("a worker")).collect()
    })
}

struct BenchCoordinator {
    gathering: Mutex<Gathering>,
    formed: Condvar,
    wire: Option<f64>,
}

impl Coordinator for BenchCoordinator {
    fn next_view(&self, report: MemberReport) -> Result<GroupView, String> {
        let (id, left) = (report.member.id, report.view);
        let mut gathering = self.gathering.lock().expect("no member panics");
        gathering.report(report)?;
        if gathering.next_view().is_some() {
            self.formed.notify_all();
        }
        while gathering.view().number <= left {
            gathering = self.formed.wait(gathering).expect("no member panics");
        }
        let mut view = gathering.view().clone();
        let rank = view.rank_of(id).ok_or("it is not in the view")?;
        for member in &mut view.members[..rank] {
            if let Some(rate) = self.wire.filter(|rate| rate.is_finite()) {
                let relayed = relay(&member.address.to_string(), &LimitedWire::of(rate));
                member.address = relayed.parse().expect("an address");
            }
        }
        Ok(view)
    }
}

struct GroupWorker {
    group: CollectiveGroup,
    by_need: PriorityAllReduce,
    work: Working,
    optimizer: OptimizerConfig,
    updates: u64,
}

impl GroupWorker {
    fn join(
        server: Arc<BenchCoordinator>,
        number: usize,
        network: Network,
        way: StepSchedule,
        examples: usize,
    ) -> Self {
        let credentials = Credentials {
            job_id: JobId(Uuid::nil()),
            secret: SECRET.to_owned(),
            id: TaskId(Uuid::from_u128(number as u128)),
            attempt: 1,
        };
        let folder = std::env::temp_dir();
        let shares = server.wire.is_none();
        let port = PeerPort::bind("127.0.0.1", shares.then_some(&*folder), credentials);
        let port = port.expect("a port");
        let options = FabricOptions {
            shared_memory: shares,
            ..FabricOptions::default()
        };
        let size = network.parameter_count();
        let (ranges, order) = match way {
            StepSchedule::Buckets => (GradientRanges::of(size, BUCKET), PartitionOrder::AsReady),
            StepSchedule::Ahead(order) => (GradientRanges::new(size), order),
        };
        let floats = ranges.arena();
        let group = CollectiveGroup::start(
            port,
            server,
            floats,
            AlgorithmChoice::Fastest,
            false,
            options,
        );
        let parameters = network.init(1);
        Self {
            group: group.expect("a view"),
            by_need: PriorityAllReduce::new(ranges, order),
            work: Working {
                passes: Passes::new(network, number, parameters, examples),
                goes_ahead: matches!(way, StepSchedule::Ahead(_)),
            },
            optimizer: document::constant(&sgd()),
            updates: 0,
        }
    }

    fn step(&mut self) {
        let (optimizer, step) = (&self.optimizer, self.updates);
        let (mut sums, at_the_end) = (Vec::new(), !self.work.goes_ahead);
        let mean = Mean(WORKERS * self.work.passes.examples());
        let outcome = self.by_need.exchange(
            &mut self.group,
            &mut self.work,
            &mean,
            &mut |parameters: &mut [f32], summed: &[RangeSum]| {
                if !at_the_end {
                    return update(optimizer, step, parameters, summed);
                }
                sums.extend(summed.iter().map(|sum| RangeSum {
                    range: sum.range.clone(),
                    scale: sum.scale,
                    floats: sum.floats.clone(),
                }));
            },
        );
        outcome.ended.expect("nobody dies");
        update(optimizer, step, &mut self.work.passes.parameters, &sums);
        self.updates += 1;
    }
}

fn update(optimizer: &OptimizerConfig, step: u64, parameters: &mut [f32], sums: &[RangeSum]) {
    for sum in sums {
        let range = &mut parameters[sum.range.clone()];
        optimizer.update(step, range, &sum.floats, &mut [], sum.scale);
    }
}

struct Mean(usize);

impl MeanScale for Mean {
    fn of_sum(&self, _: &CollectiveGroup, _: Reduced) -> f32 {
        1.0 / self.0 as f32
    }

    fn of_own(&self, _: &StepMetadata) -> f32 {
        unreachable!("nobody dies")
    }
}

struct Working {
    passes: Passes,
    goes_ahead: bool,
}

impl PriorityStepWork for Working {
    fn compute(&mut self, ready: GradientSink<'_>) -> StepMetadata {
        StepMetadata {
            stats: self.passes.compute(ready),
            ..StepMetadata::default()
        }
    }

    fn go_ahead(&mut self, fetch: ParameterFetch<'_>) {
        if self.goes_ahead {
            self.passes.go_ahead(fetch);
        }
    }

    fn parameters(&mut self) -> &mut [f32] {
        self.passes.parameters()
    }
}
