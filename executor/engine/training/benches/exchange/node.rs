//! Training steps of workers that share their node's connection to the shard, without and with
//! local aggregation.

use super::limited::{LimitedWire, relay};
use super::{job, median, noise, run_worker, start_shard};
use muster_model::assignment::TaskReport;
use muster_model::id::TaskId;
use muster_model::spec::JobSpec;
use muster_training::document;
use std::path::Path;
use std::thread;
use uuid::Uuid;

const WORKERS: u32 = 4;
const STEPS: u64 = 40;
/// Bytes per second in each direction of the node.
const RATES: [f64; 2] = [125e6, 500e6];
/// Number of steps that do not count: in the first step of the first view workers push alone, and
/// the first steps include loading.
const SKIPPED: usize = 2;

/// One row per rate: milliseconds per step, and the gain of local aggregation.
pub fn rows() -> Vec<String> {
    let data = tempfile::tempdir().expect("a folder for the data set");
    noise::write_images(&data.path().join("fashion-mnist"));
    let model = serde_json::json!({ "kind": "mlp", "hidden": [1024, 1024, 1024] });
    RATES
        .into_iter()
        .map(|rate| {
            let [alone, together] = [false, true].map(|together| {
                let mut job = job(&model, STEPS);
                job.exchange.local_aggregation = together;
                trained(&job, data.path(), rate)
            });
            format!(
                "{:>10.0} {alone:>10.1} {together:>12.1} {:>8.2}",
                rate / 1e6,
                alone / together
            )
        })
        .collect()
}

pub fn say(rows: &[String]) {
    println!(
        "\ntraining steps of {WORKERS} workers on one node, whose wire to the PS shard they share, MLP 3 x 1024, 11.6 MB"
    );
    println!(
        "{:>10} {:>10} {:>12} {:>8}",
        "MB/s", "each ms", "added up ms", "ratio"
    );
    println!("{}", rows.join("\n"));
}

/// Milliseconds per step, as the coordinator reports them.
fn trained(job: &JobSpec, data: &Path, rate: f64) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let network = document::network(job.engine()).expect("the network");
    let optimizer = document::optimizer(job.engine());
    let address = start_shard(optimizer, network.parameter_count(), job.engine().batch);
    let wire = LimitedWire::of(rate);
    let workers: Vec<TaskId> = (0..WORKERS)
        .map(|rank| TaskId(Uuid::from_u128(0x100 + u128::from(rank))))
        .collect();
    let reports = thread::scope(|scope| {
        let running: Vec<_> = (0..WORKERS)
            .map(|rank| {
                let reached = relay(&address, &wire);
                let (who, places) = ((&*workers, rank), (folder.path(), data));
                scope.spawn(move || run_worker(job, who, reached, places))
            })
            .collect();
        let all = running.into_iter().map(|worker| worker.join());
        let all: Vec<Vec<TaskReport>> = all.map(|one| one.expect("a worker")).collect();
        all
    });
    let of_a_step = reports[0].iter().filter_map(|report| match report {
        TaskReport::Progress { sample } => Some(1e3 / sample.steps_per_s),
        _ => None,
    });
    median(of_a_step.skip(SKIPPED).collect())
}
