//! One training step on one thread, the engine compared with PyTorch:
//! `cargo bench --bench peers [model ...]`.
//!
//! Both alternate after some steps each, so that other load affects both; medians of the CPU time
//! over all steps are compared. `MUSTER_TORCH_PYTHON` names a Python with PyTorch. Without it only
//! the engine is measured, and the output says so.

#[path = "peers/torch.rs"]
mod torch;

use muster_compute::model::{Batch, ImageShape, Network, zoo};
use muster_compute::optimizer::{OptimizerConfig, UpdateRule};
use muster_compute::pages;
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;

const ROUNDS: usize = 7;

/// Network of `peers/models.py`.
struct PeerModel {
    name: &'static str,
    network: Network,
    examples: usize,
    /// Steps per run.
    steps: usize,
    /// Goal for the ratio of PyTorch's time to the engine's.
    goal: f64,
}

fn models() -> Vec<PeerModel> {
    let fashion = ImageShape {
        height: 28,
        width: 28,
        channels: 1,
    };
    let gpt = zoo::Gpt {
        length: 128,
        vocabulary: 256,
        width: 256,
        blocks: 4,
        heads: 4,
        tied: false,
        dropout: 0.0,
    };
    let lstm = zoo::lstm_language_model(64, 256, 256, &[256]);
    let models = [
        ("mlp", zoo::mlp(fashion, &[1024, 1024], 10), 128, 12, 1.3),
        ("cnn", zoo::cnn(fashion, &[32, 64], &[128], 10), 128, 3, 1.6),
        ("lstm", lstm, 32, 4, 1.1),
        ("gpt", zoo::gpt(gpt), 8, 2, 1.2),
    ];
    let models = models.map(|(name, network, examples, steps, goal)| PeerModel {
        name,
        network: network.expect("these can be built"),
        examples,
        steps,
        goal,
    });
    models.into()
}

fn main() {
    let asked: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let mut torch = torch::Torch::start("torch_step.py");
    if torch.is_none() {
        println!("SKIPPED: PyTorch's side, since MUSTER_TORCH_PYTHON names no Python that has it");
    }
    println!("CPU time of a training step with momentum on one thread, medians of {ROUNDS} turns:");
    println!("model    ours ms   PyTorch ms   PyTorch/ours   goal");
    for model in models() {
        if asked.is_empty() || asked.iter().any(|name| name == model.name) {
            compare(&model, torch.as_mut());
        }
    }
}

fn compare(model: &PeerModel, mut torch: Option<&mut torch::Torch>) {
    let mut engine = EngineStep::new(model);
    engine.steps(3);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.extend(engine.steps(model.steps));
        if let Some(torch) = torch.as_deref_mut() {
            theirs.extend(steps_ms(torch, model));
        }
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let ratio = theirs / ours;
    println!(
        "{:<6} {ours:>9.2} {theirs:>12.2} {ratio:>14.2} {:>6.1}",
        model.name, model.goal
    );
}

/// Median in milliseconds; NaN of an empty list.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The engine's side: a network, its optimizer and one batch.
struct EngineStep<'a> {
    model: &'a PeerModel,
    workspace: muster_compute::model::Workspace,
    optimizer: OptimizerConfig,
    params: Vec<f32>,
    grads: Vec<f32>,
    state: Vec<f32>,
    inputs: Vec<f32>,
    targets: Vec<u32>,
    step: u64,
}

/// Value number `i` of the inputs and targets.
fn spread(i: usize) -> usize {
    (i * 7919 + i / 3) % 256
}

impl<'a> EngineStep<'a> {
    fn new(model: &'a PeerModel) -> Self {
        let network = &model.network;
        let params = network.init(1);
        let rule = serde_json::json!({ "kind": "sgd", "lr": 0.01, "momentum": 0.9 });
        let rule: UpdateRule = serde_json::from_value(rule).expect("a rule");
        let targets = model.examples * network.targets();
        let classes = network.outputs() / network.targets();
        let numbers = (0..model.examples * network.input().len()).map(spread);
        let inputs = match network.targets() {
            1 => numbers.map(|x| x as f32 / 256.0 - 0.5).collect(),
            _ => numbers.map(|x| x as f32).collect(),
        };
        Self {
            workspace: network.workspace(model.examples, 1),
            optimizer: OptimizerConfig::new(rule),
            grads: pages::zeros(params.len()),
            state: pages::zeros(params.len()),
            params,
            inputs,
            targets: (0..targets).map(|i| (spread(i) % classes) as u32).collect(),
            step: 0,
            model,
        }
    }

    /// Milliseconds of each step.
    fn steps(&mut self, steps: usize) -> Vec<f64> {
        let batch = Batch::classes(&self.inputs, &self.targets);
        let scale = 1.0 / self.targets.len() as f32;
        let mut times = Vec::new();
        for _ in 0..steps {
            let began = cpu_ms();
            let network = &self.model.network;
            network.loss_and_grad(&mut self.workspace, &self.params, &batch, &mut self.grads);
            self.optimizer.update(
                self.step,
                &mut self.params,
                &self.grads,
                &mut self.state,
                scale,
            );
            times.push(cpu_ms() - began);
            self.step += 1;
        }
        times
    }
}

/// CPU time of this thread in milliseconds.
fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

#[derive(Deserialize)]
struct PeerTimes {
    cpu_ns: Vec<u64>,
}

/// CPU milliseconds of each of PyTorch's steps.
fn steps_ms(torch: &mut torch::Torch, model: &PeerModel) -> Vec<f64> {
    let (name, steps) = (model.name, model.steps);
    let said: PeerTimes = torch.ask(&format!("run {name} {steps} momentum"));
    said.cpu_ns.iter().map(|ns| *ns as f64 / 1e6).collect()
}
