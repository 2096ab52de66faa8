//! Tests on a GPU that the crate's own tests run on an emulated one. Run by
//! `cargo test -p muster-compute --test gpu -- --ignored`. They fail, and are not skipped, if no
//! GPU can be used. See docs/gpu.md.

mod devices;

use devices::{DeviceCase, EXAMPLES, OwnedBatch};
use muster_compute as engine;
use muster_compute::cuda::{ComputePrecision, CudaDevice, Device, DeviceTrainer};
use muster_compute::model::Network;
use muster_compute::model::zoo::{self, Gpt};
use muster_compute::optimizer::{OptimizerConfig, UpdateRule, clip_factor, square_norm};

fn gpu(precision: ComputePrecision) -> CudaDevice {
    CudaDevice::open(0, precision).unwrap_or_else(|error| panic!("these tests need a GPU: {error}"))
}

fn norm(numbers: impl Iterator<Item = f32>) -> f64 {
    numbers
        .map(|x| f64::from(x) * f64::from(x))
        .sum::<f64>()
        .sqrt()
}

/// Maximum relative distance from the CPU's result, of the whole gradient and of the loss. ReLU and
/// pooling may decide differently if two values are close, which matters in small networks.
fn tolerances(precision: ComputePrecision) -> [f64; 2] {
    match precision {
        ComputePrecision::F32 => [1e-4, 1e-5],
        ComputePrecision::Tf32 => [3e-2, 3e-3],
        ComputePrecision::Bf16 => [2e-1, 3e-2],
    }
}

fn check(cases: &[DeviceCase], gpu: CudaDevice, precision: ComputePrecision) {
    let device = Device::Cuda(gpu);
    println!("on {device}");
    let [tolerance, loss_tolerance] = tolerances(precision);
    for (what, network) in cases {
        let examples = OwnedBatch::new(network);
        let batch = examples.batch();
        let params = devices::parameters(network);
        for max_batch in [EXAMPLES, 3] {
            // In the same parts, because each part has its own batch statistics.
            let mut expected = vec![0.0; params.len()];
            let mut cpu = network.workspace(max_batch, 1);
            let loss = network.loss_and_grad(&mut cpu, &params, &batch, &mut expected);
            let what = format!("{what}, {precision:?}, {max_batch} at a time");
            let mut workspace = network
                .workspace_on(&device, max_batch, 1)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut runs = Vec::new();
            for _ in 0..2 {
                let mut grads = vec![f32::NAN; params.len()];
                let mut told = vec![false; params.len()];
                let found = network.loss_and_grad_telling(
                    &mut workspace,
                    &params,
                    &batch,
                    &mut grads,
                    &mut |range, grads| {
                        let is_whole = grads[range.clone()].iter().all(|g| g.is_finite());
                        assert!(is_whole, "{what}: {range:?}");
                        told[range].fill(true);
                    },
                );
                assert!(told.iter().all(|told| *told), "{what}: all are told");
                let apart = (found.loss_sum - loss.loss_sum).abs() / loss.loss_sum.abs();
                assert!(apart < loss_tolerance, "{what}: {found:?}, not {loss:?}");
                runs.push(grads);
            }
            let bits = runs
                .iter()
                .map(|run| run.iter().map(|g| g.to_bits()).collect());
            let bits: Vec<Vec<u32>> = bits.collect();
            assert_eq!(bits[0], bits[1], "{what}: the same bits again");
            let differences = expected.iter().zip(&runs[0]).map(|(e, f)| e - f);
            let apart = norm(differences) / norm(expected.iter().copied());
            assert!(apart < tolerance, "{what}: the gradient is {apart} off");
        }
    }
}

fn check_all(cases: Vec<DeviceCase>) {
    for precision in [
        ComputePrecision::F32,
        ComputePrecision::Tf32,
        ComputePrecision::Bf16,
    ] {
        check(&cases, gpu(precision), precision);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn dense_layers_and_losses_are_the_cpus() {
    check_all(devices::dense_layers_and_losses());
}

#[test]
#[ignore = "needs a GPU"]
fn activations_are_the_cpus() {
    check_all(devices::activations());
}

#[test]
#[ignore = "needs a GPU"]
fn convolutions_are_the_cpus() {
    check_all(devices::convolutions());
}

/// As without cuDNN.
#[test]
#[ignore = "needs a GPU"]
fn convolutions_as_products_are_the_cpus() {
    let cases = devices::convolutions();
    for precision in [
        ComputePrecision::F32,
        ComputePrecision::Tf32,
        ComputePrecision::Bf16,
    ] {
        check(&cases, gpu(precision).without_cudnn(), precision);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn pooling_and_what_changes_images_are_the_cpus() {
    check_all(devices::pooling_and_what_changes_images());
}

#[test]
#[ignore = "needs a GPU"]
fn sequences_are_the_cpus() {
    check_all(devices::sequences());
}

fn small_gpt() -> Network {
    let gpt = Gpt {
        length: 64,
        vocabulary: 97,
        width: 64,
        blocks: 3,
        heads: 4,
        tied: true,
        dropout: 0.1,
    };
    zoo::gpt(gpt).expect("a network")
}

/// Repeated CUDA graphs give the same results as single steps, also after the GPU memory was
/// released; for whole batches, parts of three, three and one, and with clipping.
#[test]
#[ignore = "needs a GPU"]
fn training_stays_on_the_gpu() {
    for (at_once, clip_norm) in [(EXAMPLES, None), (3, None), (3, Some(0.5))] {
        follow(at_once, clip_norm);
    }
}

fn follow(at_once: usize, clip_norm: Option<f64>) {
    let network = small_gpt();
    // An Adam update hardly depends on the length of the gradient.
    let rule = match clip_norm {
        None => UpdateRule::Adam {
            lr: 1e-3,
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-6,
            weight_decay: 0.01,
            decoupled: true,
        },
        Some(_) => UpdateRule::Sgd {
            lr: 0.1,
            momentum: 0.9,
            nesterov: false,
            weight_decay: 0.0,
        },
    };
    let optimizer = OptimizerConfig::new(rule);
    let examples = OwnedBatch::new(&network);
    let scale = 1.0 / EXAMPLES as f32;
    let mut params = network.init(3);
    let gpu = gpu(ComputePrecision::F32);
    let room = (at_once, EXAMPLES);
    let mut resident = DeviceTrainer::new(&gpu, &network, optimizer.clone(), room, &params)
        .unwrap_or_else(|error| panic!("{error}"))
        .clipping(clip_norm);
    let mut workspace = network.workspace(at_once, 8);
    let mut grads = vec![0.0; params.len()];
    let mut state = vec![0.0; params.len() * optimizer.state_len_per_param()];
    for step in 0..12 {
        if step == 7 {
            resident.suspend().expect("suspended");
            resident.resume().expect("resumed");
        }
        let expected =
            network.loss_and_grad(&mut workspace, &params, &examples.batch(), &mut grads);
        let factor = clip_norm.map_or(1.0, |limit| {
            clip_factor(limit, square_norm(&[(&grads[..], scale)], 1).sqrt())
        });
        assert!(factor < 1.0 || clip_norm.is_none(), "nothing to clip");
        let own = (f64::from(scale) * factor) as f32;
        optimizer.update(step, &mut params, &grads, &mut state, own);
        resident.stage_batch(&examples.batch());
        let found = resident.step(scale).expect("a step");
        let apart = (found.loss_sum - expected.loss_sum).abs() / expected.loss_sum;
        let what = format!("{at_once} at once, to {clip_norm:?}, step {step}");
        assert!(apart < 1e-3, "{what}: {found:?}, not {expected:?}");
    }
}
