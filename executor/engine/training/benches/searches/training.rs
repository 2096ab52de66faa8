//! Trainings in this process, epoch by epoch, from the job document, each with its cost.
//!
//! A training depends on its document only. One that two studies request is trained once, and both
//! are charged the same. Results are stored in the file that `MUSTER_SEARCHES_RESULTS` names, and
//! the next run does not train them again.

use muster_compute::data::{DatasetSplits, Examples, GlobalBatches};
use muster_compute::model::{Batch, BatchTargets, Network, ParameterRole, RandomKey, Workspace};
use muster_compute::optimizer::OptimizerConfig;
use muster_model::spec::{Engine, JobSpec};
use muster_training::document;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Result and cost of one more epoch.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct EpochResult {
    /// Accuracy on the first half of the test images, which searches use.
    pub accuracy: f64,
    /// Accuracy on the other half, which no search uses.
    pub held_out: f64,
    /// CPU seconds of the thread, for the epoch and the first half.
    pub seconds: f64,
}

/// All trainings of this run, and stored results.
pub struct Trainings {
    datasets: PathBuf,
    loaded: BTreeMap<String, Rc<DatasetSplits>>,
    known: BTreeMap<String, Vec<EpochResult>>,
    open: BTreeMap<String, NetworkTraining>,
    kept: Option<PathBuf>,
}

/// One line of the result file.
#[derive(Serialize, Deserialize)]
struct ResultLine {
    engine: String,
    number: usize,
    epoch: EpochResult,
}

impl Trainings {
    pub fn new(datasets: &Path) -> Self {
        let kept = std::env::var_os("MUSTER_SEARCHES_RESULTS").map(PathBuf::from);
        let text = kept
            .as_ref()
            .and_then(|path| std::fs::read_to_string(path).ok());
        let mut known: BTreeMap<String, Vec<EpochResult>> = BTreeMap::new();
        for line in text.unwrap_or_default().lines() {
            let line: ResultLine = serde_json::from_str(line).expect("a result of an earlier run");
            let curve = known.entry(line.engine).or_default();
            if curve.len() == line.number {
                curve.push(line.epoch);
            }
        }
        Self {
            datasets: datasets.to_owned(),
            loaded: BTreeMap::new(),
            known,
            open: BTreeMap::new(),
            kept,
        }
    }

    /// Result and cost of the job's epoch `number`, counted from 0.
    pub fn epoch(&mut self, job: &JobSpec, number: usize) -> EpochResult {
        let key = serde_json::to_string(job.engine()).expect("a document is JSON");
        if let Some(epoch) = self.known.get(&key).and_then(|curve| curve.get(number)) {
            return *epoch;
        }
        let mut training = match self.open.remove(&key) {
            Some(training) => training,
            None => NetworkTraining::new(job.engine(), self.dataset(job.engine())),
        };
        while self.known.get(&key).map_or(0, Vec::len) <= number {
            let (at, epoch) = training.epoch();
            let curve = self.known.entry(key.clone()).or_default();
            // A training that was started again repeats known epochs first.
            if curve.len() == at {
                curve.push(epoch);
                self.keep(&key, at, epoch);
            }
        }
        let epoch = self.known[&key][number];
        self.open.insert(key, training);
        epoch
    }

    /// Frees the state of all trainings; their results stay known.
    pub fn rest(&mut self) {
        self.open.clear();
    }

    fn keep(&self, key: &str, number: usize, epoch: EpochResult) {
        let Some(path) = &self.kept else { return };
        let line = ResultLine {
            engine: key.to_owned(),
            number,
            epoch,
        };
        let line = serde_json::to_string(&line).expect("JSON");
        let file = OpenOptions::new().create(true).append(true).open(path);
        writeln!(file.expect("a file"), "{line}").expect("room on the disk");
    }

    fn dataset(&mut self, engine: &Engine) -> Rc<DatasetSplits> {
        let key = serde_json::to_string(&engine.dataset).expect("JSON");
        let loaded = self.loaded.entry(key).or_insert_with(|| {
            let data = document::dataset(engine, &self.datasets);
            Rc::new(data.expect("scripts/ensure-dataset fashion-mnist brings it"))
        });
        loaded.clone()
    }
}

pub fn parameters(job: &JobSpec) -> usize {
    network(job.engine()).parameter_count()
}

/// One network in training.
struct NetworkTraining {
    data: Rc<DatasetSplits>,
    network: Network,
    optimizer: OptimizerConfig,
    seed: u64,
    batches: GlobalBatches,
    parameters: Vec<f32>,
    /// Optimizer state, one list per block.
    state: Vec<Vec<f32>>,
    done: usize,
}

impl NetworkTraining {
    fn new(engine: &Engine, data: Rc<DatasetSplits>) -> Self {
        let network = network(engine);
        let optimizer = document::optimizer(engine);
        let planes = optimizer.state_len_per_param();
        let blocks = network.blocks().iter();
        let state = blocks.map(|block| vec![0.0; block.len * planes]).collect();
        let batches = GlobalBatches::new(engine.seed, data.train.len(), engine.batch as usize);
        Self {
            parameters: network.init(engine.seed),
            batches: batches.expect("a batch is smaller than the data"),
            seed: engine.seed,
            data,
            network,
            optimizer,
            state,
            done: 0,
        }
    }

    /// Trains one more epoch. Returns its number and its result.
    fn epoch(&mut self) -> (usize, EpochResult) {
        let mut workspace = self.network.workspace(self.batches.batch(), 1);
        let before = cpu_seconds();
        let steps = self.batches.steps_per_epoch();
        let first = self.done as u64 * steps;
        for step in first..first + steps {
            self.step(&mut workspace, step);
        }
        let half = self.data.test.len() as u32 / 2;
        let accuracy = self.right(&mut workspace, 0..half);
        let seconds = cpu_seconds() - before;
        let held_out = self.right(&mut workspace, half..2 * half);
        self.done += 1;
        let epoch = EpochResult {
            accuracy,
            held_out,
            seconds,
        };
        (self.done - 1, epoch)
    }

    fn step(&mut self, workspace: &mut Workspace, step: u64) {
        let indices = self.batches.indices(step).to_vec();
        let (images, labels) = load(&self.data.train, &indices, self.data.input.len());
        let batch = Batch {
            inputs: &images,
            targets: BatchTargets::Classes(&labels),
            draw: RandomKey {
                seed: self.seed,
                step,
                first: 0,
            },
        };
        let mut gradients = vec![0.0; self.parameters.len()];
        self.network
            .loss_and_grad(workspace, &self.parameters, &batch, &mut gradients);
        let scale = 1.0 / indices.len() as f32;
        for (block, state) in self.network.blocks().iter().zip(&mut self.state) {
            let parameters = &mut self.parameters[block.range()];
            let gradients = &gradients[block.range()];
            if block.role == ParameterRole::Statistic {
                parameters
                    .iter_mut()
                    .zip(gradients)
                    .for_each(|(p, g)| *p -= g * scale);
            } else {
                self.optimizer
                    .update(step, parameters, gradients, state, scale);
            }
        }
    }

    /// Fraction of these test images that the network classifies correctly.
    fn right(&self, workspace: &mut Workspace, of: std::ops::Range<u32>) -> f64 {
        let indices: Vec<u32> = of.collect();
        let (images, labels) = load(&self.data.test, &indices, self.data.input.len());
        let batch = Batch::classes(&images, &labels);
        let loss = self.network.evaluate(workspace, &self.parameters, &batch);
        loss.correct as f64 / indices.len() as f64
    }
}

fn network(engine: &Engine) -> Network {
    document::network(engine).expect("the study's check has built it")
}

fn load(examples: &Examples, indices: &[u32], each: usize) -> (Vec<f32>, Vec<u32>) {
    let (mut images, mut labels) = (vec![0.0; indices.len() * each], vec![0; indices.len()]);
    examples.fill(indices, &mut images, &mut labels);
    (images, labels)
}

/// CPU time of this thread, so that other load of the machine does not count.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
