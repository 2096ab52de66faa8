//! Training steps on a GPU in bf16, the engine compared with PyTorch's eager and compiled steps,
//! and the time to release and take back the GPU. Run by
//! `cargo bench -p muster-training --bench gpu [model ...] [turns=3]`.
//!
//! The sides alternate on the same GPU. `MUSTER_TORCH_PYTHON` names a Python with PyTorch and CUDA.
//! Without it only the engine is measured, and the output says so. Without a GPU the bench reports
//! this and ends, so `cargo bench` works everywhere. See docs/gpu.md.

#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use muster_compute::cuda::{ComputePrecision, CudaDevice, DeviceTrainer};
use muster_compute::model::{Batch, ExampleShape, ImageShape, Network, zoo};
use muster_compute::optimizer::{OptimizerConfig, UpdateRule};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Default number of runs per side.
const TURNS: usize = 3;
/// Number of suspensions per training.
const SUSPENSIONS: usize = 20;
/// Steps before the measurement, and measured steps, per run.
const STEPS: (usize, usize) = (10, 50);

/// Network of `peers/gpu_step.py`.
struct GpuModel {
    name: &'static str,
    network: Network,
    examples: usize,
    /// Floating-point operations of a step: 6 per weight and row, plus those of attention, half of
    /// which is masked.
    operations: f64,
}

fn models() -> Vec<GpuModel> {
    let photo = ImageShape {
        height: 224,
        width: 224,
        channels: 3,
    };
    let gpt = zoo::Gpt {
        dropout: 0.0,
        ..zoo::Gpt::gpt2_small()
    };
    let tokens = 8.0 * 1024.0;
    let attention = 12.0 * 12.0 * 768.0 * 1024.0 * tokens;
    vec![
        GpuModel {
            name: "resnet18",
            network: zoo::resnet(photo, 18, 1000).expect("a network"),
            examples: 256,
            // 1.82 GFLOPs forward in multiply-adds, times two, times three.
            operations: 256.0 * 1.82e9 * 2.0 * 3.0,
        },
        GpuModel {
            name: "lstm",
            network: zoo::lstm_language_model(128, 10_000, 1024, &[1024]).expect("a network"),
            examples: 128,
            operations: 128.0 * 128.0 * 6.0 * (8.0 * 1024.0 * 1024.0 + 10_000.0 * 1024.0),
        },
        GpuModel {
            name: "gpt2-small",
            network: zoo::gpt(gpt).expect("a network"),
            examples: 8,
            operations: 6.0 * 124.0e6 * tokens + attention,
        },
    ]
}

/// Pseudo-random integers, evenly distributed and the same in each run.
fn draws(below: u64) -> impl Iterator<Item = u64> {
    let mut state = 1_u64;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    })
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Measurements of one training of the engine, in milliseconds.
#[derive(Default)]
struct EngineTimes {
    steps: Vec<f64>,
    suspensions: Vec<f64>,
    /// Until the end of the first step.
    resumptions: Vec<f64>,
}

fn ours(gpu: &CudaDevice, model: &GpuModel, measured: &mut EngineTimes) {
    let network = &model.network;
    let rule = UpdateRule::Sgd {
        lr: 1e-3,
        momentum: 0.9,
        nesterov: false,
        weight_decay: 0.0,
    };
    let (optimizer, params) = (OptimizerConfig::new(rule), network.init(1));
    let mut resident = DeviceTrainer::new(
        gpu,
        network,
        optimizer,
        (model.examples, model.examples),
        &params,
    )
    .unwrap_or_else(|error| panic!("{}: {error}", model.name));
    let len = model.examples * network.input().len();
    let inputs: Vec<f32> = match network.input() {
        ExampleShape::Tokens { vocabulary, .. } => {
            let draws = draws(vocabulary as u64).take(len);
            draws.map(|token| token as f32).collect()
        }
        _ => draws(1 << 16)
            .take(len)
            .map(|x| x as f32 / 32_768.0 - 1.0)
            .collect(),
    };
    let targets = model.examples * network.targets();
    let classes = (network.outputs() / network.targets()) as u64;
    let classes: Vec<u32> = draws(classes)
        .skip(len)
        .take(targets)
        .map(|class| class as u32)
        .collect();
    let batch = Batch::classes(&inputs, &classes);
    let scale = 1.0 / targets as f32;
    // In pinned memory, like the batch of the other side.
    resident.stage_batch(&batch);
    for step in 0..STEPS.0 + STEPS.1 {
        let began = Instant::now();
        let loss = resident.step(scale).expect("a step");
        assert!(loss.loss_sum.is_finite(), "{} diverged", model.name);
        if step >= STEPS.0 {
            measured.steps.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    // The first suspension allocates pinned memory, which is kept.
    for turn in 0..=SUSPENSIONS {
        let began = Instant::now();
        resident.suspend().expect("it leaves");
        let left = began.elapsed().as_secs_f64() * 1e3;
        let began = Instant::now();
        resident.resume().expect("it comes back");
        resident.step(scale).expect("a step");
        if turn > 0 {
            measured.suspensions.push(left);
            let back = began.elapsed().as_secs_f64() * 1e3;
            measured.resumptions.push(back);
        }
    }
}

/// Milliseconds of each step, as the script prints them, or the reason why there are none.
fn torch(python: &str, model: &GpuModel, how: &str) -> Result<Vec<f64>, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/gpu_step.py");
    let said = Command::new(python)
        .arg(script)
        .args([model.name, how])
        .args([STEPS.0.to_string(), STEPS.1.to_string()])
        .output()
        .map_err(|error| error.to_string())?;
    if !said.status.success() {
        return Err(String::from_utf8_lossy(&said.stderr).into_owned());
    }
    let times = String::from_utf8_lossy(&said.stdout).into_owned();
    times
        .lines()
        .map(|line| line.parse().map_err(|_| format!("not a time: {line}")))
        .collect()
}

fn main() {
    let gpu = match CudaDevice::open(0, ComputePrecision::Bf16) {
        Ok(gpu) => gpu,
        Err(error) => {
            println!("no GPU is measured: {error}");
            return;
        }
    };
    let python = std::env::var("MUSTER_TORCH_PYTHON").ok();
    if python.is_none() {
        println!("MUSTER_TORCH_PYTHON names no Python with PyTorch: ours alone is measured");
    }
    let mut turns = TURNS;
    let mut asked = Vec::new();
    for argument in std::env::args().skip(1).filter(|a| !a.starts_with('-')) {
        match argument.strip_prefix("turns=").map(str::parse) {
            Some(Ok(number)) => turns = number,
            Some(Err(error)) => panic!("{argument}: {error}"),
            None => asked.push(argument),
        }
    }
    let (name, convolutions) = (gpu.name(), gpu.convolutions());
    println!("{name}, bf16, {convolutions}; milliseconds per step, medians");
    let limits = gpu.throughput().expect("what the GPU reaches");
    let (products, copies) = (limits.products / 1e12, limits.copies / 1e12);
    println!("products of 8192 × 8192 reach {products:.0} TFLOP/s, copies {copies:.2} TB/s");
    for model in models() {
        if !asked.is_empty() && !asked.iter().any(|name| name == model.name) {
            continue;
        }
        let (mut own, mut peers) = (EngineTimes::default(), [Vec::new(), Vec::new()]);
        for _ in 0..turns {
            ours(&gpu, &model, &mut own);
            let Some(python) = &python else { continue };
            for (how, times) in ["eager", "compiled"].into_iter().zip(&mut peers) {
                match torch(python, &model, how) {
                    Ok(found) => times.extend(found),
                    Err(error) => println!("{} {how}: {error}", model.name),
                }
            }
        }
        let [left, back] = [own.suspensions, own.resumptions].map(median);
        let own = median(own.steps);
        let rate = model.operations / own / 1e9;
        let share = 100.0 * rate / products;
        print!(
            "{:11} ours {own:8.2} ({rate:.0} TFLOP/s, {share:.0} %)",
            model.name
        );
        for (how, times) in ["eager", "compiled"].into_iter().zip(peers) {
            if !times.is_empty() {
                let theirs = median(times);
                print!("  {how} {theirs:8.2} ({:.2} × ours)", theirs / own);
            }
        }
        println!("  leaves in {left:.1}, is back with a step in {back:.1}");
    }
}
