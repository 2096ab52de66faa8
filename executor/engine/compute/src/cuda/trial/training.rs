//! Compares resident training with the CPU's passes and update rules. The queue executes as late as
//! possible and records.

use super::devices::OwnedBatch;
use super::{assert_gaps, norm};
use crate::cuda::emulator::DeferredQueue;
use crate::cuda::emulator::Emulator;
use crate::cuda::product::ElementType;
use crate::cuda::queue::{DeviceQueue, int};
use crate::cuda::session::DeviceSession;
use crate::cuda::trainer::DeviceTrainer;
use crate::cuda::update::FACTORS;
use crate::model::zoo::{NetworkLayer, TrainingObjective, layers};
use crate::model::{Batch, ConvOptions, ImageShape, Network, ParameterRole, SlidingWindow};
use crate::optimizer::{
    LearningRateDecay, LearningRateSchedule, OptimizerConfig, UpdateRule, clip_factor, square_norm,
};

/// Weights, biases and statistics, some of them with gaps between them in the aligned arenas and
/// some without.
fn network() -> Network {
    let input = ImageShape {
        height: 5,
        width: 4,
        channels: 2,
    };
    let list = [
        // A bias before a batch normalisation has only noise as gradient.
        NetworkLayer::Conv(ConvOptions::new(6, SlidingWindow::square(3).same()).without_bias()),
        NetworkLayer::BatchNorm { relu: true },
        NetworkLayer::Dense {
            width: 64,
            relu: true,
        },
    ];
    layers(input, &list, TrainingObjective::Classify { classes: 5 }).expect("a network")
}

fn rules() -> Vec<UpdateRule> {
    let (lr, weight_decay) = (0.05, 0.01);
    let sgd =
        [(0.0, false), (0.9, false), (0.9, true)].map(|(momentum, nesterov)| UpdateRule::Sgd {
            lr,
            momentum,
            nesterov,
            weight_decay,
        });
    let adagrad = UpdateRule::AdaGrad {
        lr,
        eps: 1e-3,
        weight_decay,
    };
    let lars = [0.0, 0.9].map(|momentum| UpdateRule::Lars {
        lr,
        momentum,
        weight_decay,
        trust: 0.02,
    });
    let rmsprop = [0.0, 0.9].map(|momentum| UpdateRule::RmsProp {
        lr,
        rho: 0.9,
        eps: 1e-3,
        momentum,
        weight_decay,
    });
    let adam = [false, true].map(|decoupled| UpdateRule::Adam {
        lr,
        beta1: 0.8,
        beta2: 0.99,
        eps: 1e-3,
        weight_decay,
        decoupled,
    });
    [&sgd[..], &[adagrad], &lars, &rmsprop, &adam].concat()
}

fn square_sum(values: &[f32]) -> f64 {
    values.iter().map(|x| f64::from(*x).powi(2)).sum()
}

/// Norm of the difference of two tensors.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    norm(a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)))
}

/// Number of a step's seven examples per pass, and the clipping limit.
#[derive(Debug, Clone, Copy)]
struct TrainingCase {
    at_once: usize,
    clip_norm: Option<f64>,
}

const STEPS: u64 = 7;

/// Trains on the CPU, tensor by tensor. Returns parameters, planes of the state, and the number of
/// steps that were clipped.
fn train(
    network: &Network,
    optimizer: &OptimizerConfig,
    scale: f32,
    how: TrainingCase,
) -> (Vec<f32>, Vec<Vec<f32>>, u64) {
    let examples = OwnedBatch::new(network);
    let mut params = network.init(3);
    let mut grads = vec![0.0; params.len()];
    let mut workspace = network.workspace(how.at_once, 1);
    let mut clipped = 0;
    let planes = optimizer.state_len_per_param();
    let mut states: Vec<Vec<f32>> = network
        .blocks()
        .iter()
        .map(|block| vec![0.0; block.len * planes])
        .collect();
    for step in 0..STEPS {
        network.loss_and_grad(&mut workspace, &params, &examples.batch(), &mut grads);
        let own = clip(network, &grads, scale, how.clip_norm);
        clipped += u64::from(own < scale);
        for (block, state) in network.blocks().iter().zip(&mut states) {
            let (params, grads) = (&mut params[block.range()], &grads[block.range()]);
            match (block.role, optimizer.rule) {
                (ParameterRole::Statistic, _) => crate::optimizer::follow(params, grads, scale),
                // Under LARS, biases and scales keep the plain learning rate.
                (ParameterRole::Bias, UpdateRule::Lars { .. }) => {
                    let half = params.len().min(state.len());
                    let (first, second) = state.split_at_mut(half);
                    optimizer.update_part(step, params, grads, [first, second], own, 1.0);
                }
                _ => optimizer.update(step, params, grads, state, own),
            }
        }
    }
    let planes = (0..planes).map(|number| {
        let blocks = network.blocks().iter().zip(&states);
        let parts = blocks.map(|(block, state)| &state[number * block.len..][..block.len]);
        parts.collect::<Vec<_>>().concat()
    });
    (params, planes.collect(), clipped)
}

/// Factor of all gradients except statistics.
fn clip(network: &Network, grads: &[f32], scale: f32, norm: Option<f64>) -> f32 {
    let Some(limit) = norm else { return scale };
    let blocks = network.blocks().iter();
    let of_gradients = blocks.filter(|block| !block.is_statistic());
    let parts: Vec<(&[f32], f32)> = of_gradients
        .map(|block| (&grads[block.range()], scale))
        .collect();
    let factor = clip_factor(limit, square_norm(&parts, 1).sqrt());
    (f64::from(scale) * factor) as f32
}

fn resident(
    network: &Network,
    optimizer: &OptimizerConfig,
    params: &[f32],
    how: TrainingCase,
) -> DeviceTrainer {
    let queue = Box::new(DeferredQueue::new(Emulator::new(ElementType::F32)));
    let planes = optimizer.state_len_per_param();
    let session = DeviceSession::new(network, queue, ElementType::F32, (how.at_once, 7), planes)
        .expect("room");
    let resident = DeviceTrainer::with(session, network, optimizer.clone(), params).expect("room");
    resident.clipping(how.clip_norm)
}

/// Steps in one part and in several with a smaller last one, each recorded once; with and without
/// clipping.
#[test]
fn update_rules_equal_cpu_across_suspend() {
    let network = network();
    let schedule = LearningRateSchedule {
        warmup_steps: 2,
        decay: LearningRateDecay::Step {
            every_steps: 1,
            factor: 0.9,
        },
    };
    for (at_once, clip_norm, written_down) in [(7, None, 1), (3, None, 3), (3, Some(0.05), 3)] {
        let how = TrainingCase { at_once, clip_norm };
        for rule in rules() {
            let optimizer = OptimizerConfig { rule, schedule };
            is_the_cpus(&network, &optimizer, how, written_down);
        }
    }
}

fn is_the_cpus(
    network: &Network,
    optimizer: &OptimizerConfig,
    how: TrainingCase,
    written_down: usize,
) {
    let what = format!("{:?}, {how:?}", optimizer.rule);
    let scale = 1.0 / 7.0;
    let (expected, planes, clipped) = train(network, optimizer, scale, how);
    let clips = how.clip_norm.is_some();
    assert_eq!(clipped > 1, clips, "{what}: there is something to clip");
    let params = network.init(3);
    let mut resident = resident(network, optimizer, &params, how);
    let examples = OwnedBatch::new(network);
    let other: Vec<f32> = examples.batch().inputs.iter().map(|x| -2.0 * x).collect();
    let mut workspace = network.workspace(how.at_once, 1);
    let mut grads = vec![0.0; params.len()];
    let first = network.loss_and_grad(&mut workspace, &params, &examples.batch(), &mut grads);
    for step in 0..STEPS {
        if step == 4 {
            assert_eq!(resident.recorded.len(), written_down, "{what}");
            resident.suspend().expect("suspended");
            resident.suspend().expect("nothing to do");
            resident.resume().expect("resumed");
        }
        resident.stage_batch(&examples.batch());
        resident.begin(scale);
        // Another batch is copied during the step.
        resident.stage_batch(&Batch {
            inputs: &other,
            ..examples.batch()
        });
        let loss = resident.wait().expect("a step");
        assert!(loss.loss_sum.is_finite());
        if step == 0 {
            let off = (loss.loss_sum - first.loss_sum).abs() / first.loss_sum;
            assert!(off < 1e-5, "{what}: {loss:?}, not {first:?}");
            assert_eq!(loss.correct, first.correct, "{what}");
        }
    }
    assert_eq!(resident.steps(), STEPS);
    assert_gaps(resident.session());
    let mut found = resident.parameters().expect("parameters");
    let mut state = vec![vec![0.0; found.len()]; planes.len()];
    resident.read(&mut found, &mut state).expect("a state");
    for (expected, found) in planes.iter().zip(&state) {
        let size = norm(expected.iter().map(|x| f64::from(*x)));
        let apart = distance(expected, found);
        assert!(apart < 2e-3 * size, "{what}: {apart} of {size} off");
    }
    for block in network.blocks() {
        let (expected, before) = (&expected[block.range()], &params[block.range()]);
        let [apart, moved] = [&found[block.range()], before].map(|other| distance(expected, other));
        assert!(moved > 0.0, "{what} moves {}", block.name);
        let share = apart / moved;
        assert!(share < 2e-3, "{what}: {} is {share} off", block.name);
    }
}

/// As on the host, a NaN norm must not give plausible parameters.
#[test]
fn clip_kernel_equals_cpu_factor() {
    let mut queue = Emulator::new(ElementType::F32);
    let squares = [0.0, 1e-12, 0.5, 16.0, 1e30, f64::INFINITY, f64::NAN];
    for (square, limit, scale) in squares
        .into_iter()
        .flat_map(|square| [(square, 0.7_f64, 0.25_f32), (square, 3.0, 1.0)])
    {
        let [at, told] = [8, 4 * FACTORS].map(|bytes| queue.allocate(bytes).expect("room"));
        queue.upload(&square.to_le_bytes(), at);
        let mut factors = [0.0_f32; FACTORS];
        factors[3] = scale;
        queue.upload(bytemuck::cast_slice(&factors), told);
        queue.launch("clip", 1, 32, &[at.into(), told.into(), limit.into()]);
        queue.download(told, bytemuck::cast_slice_mut(&mut factors));
        let norm = f64::from(scale) * square.sqrt();
        let expected = (f64::from(scale) * clip_factor(limit, norm)) as f32;
        let (found, what) = (factors[12], format!("{square} to {limit} by {scale}"));
        let is_right = (found - expected).abs() <= 1e-6 * expected.abs();
        assert!(
            is_right || found.is_nan() && expected.is_nan(),
            "{what}: {found}"
        );
        assert_eq!(factors[3], scale, "{what}: statistics are not clipped");
    }
}

/// Fewer blocks than groups of eight, with and without a second tensor, at aligned and unaligned
/// addresses.
#[test]
fn squares_are_summed_at_any_alignment() {
    const BLOCKS: usize = 2;
    let mut queue = Emulator::new(ElementType::F32);
    let values: Vec<f32> = (0..9_001)
        .map(|i| ((i * 7_919) % 1_003) as f32 / 501.5 - 1.0)
        .collect();
    let at = queue.allocate(4 * values.len()).expect("room");
    queue.upload(bytemuck::cast_slice(&values), at);
    let sums = queue.allocate(2 * 8 * BLOCKS).expect("room");
    for (first, count) in [(0, 9_001), (1, 9_000), (3, 11), (4, 8)] {
        for p in [0, at] {
            let of_g = sums + 8 * BLOCKS as u64;
            let g = at + 4 * first as u64;
            let arguments = [p.into(), g.into(), int(count), sums.into(), of_g.into()];
            queue.launch("squares", BLOCKS, 256, &arguments);
            let mut found = [0.0_f64; 2 * BLOCKS];
            queue.download(sums, bytemuck::cast_slice_mut(&mut found));
            let [of_p, of_g] = [&found[..BLOCKS], &found[BLOCKS..]].map(|f| f.iter().sum::<f64>());
            let what = format!("{count} from {first}");
            let expected = square_sum(&values[first..][..count]);
            assert!((of_g / expected - 1.0).abs() < 1e-12, "{what}: {of_g}");
            let expected = if p == 0 {
                0.0
            } else {
                square_sum(&values[..count])
            };
            assert!(
                (of_p - expected).abs() <= 1e-12 * expected,
                "{what}: {of_p}"
            );
        }
    }
}

/// Makes steps with the mean gradient of the seven examples.
fn advance(resident: &mut DeviceTrainer, examples: &OwnedBatch, steps: usize) {
    for _ in 0..steps {
        resident.stage_batch(&examples.batch());
        resident.step(1.0 / 7.0).expect("a step");
    }
}

/// Returns the parameters and the planes of the state, of `len` elements each.
fn read(resident: &mut DeviceTrainer, len: usize, planes: usize) -> Vec<Vec<f32>> {
    let mut all = vec![vec![f32::NAN; len]; 1 + planes];
    let (parameters, state) = all.split_first_mut().expect("parameters");
    resident.read(parameters, state).expect("a state");
    all
}

/// A training that continues from a state read on the device, or while memory is released, has the
/// same bits. An evaluation between two steps does not change them.
#[test]
fn training_continues_from_a_read_state() {
    let network = network();
    let examples = OwnedBatch::new(&network);
    for rule in rules() {
        let optimizer = OptimizerConfig::new(rule);
        let params = network.init(3);
        let [len, planes] = [params.len(), optimizer.state_len_per_param()];
        let how = TrainingCase {
            at_once: 4,
            clip_norm: Some(0.2),
        };
        let mut straight = resident(&network, &optimizer, &params, how);
        advance(&mut straight, &examples, 4);

        let mut first = resident(&network, &optimizer, &params, how);
        advance(&mut first, &examples, 2);
        let evaluate = |resident: &mut DeviceTrainer| {
            let parts = network.parts_of(3, &examples.batch());
            resident.evaluate(parts).expect("a loss")
        };
        let loss = evaluate(&mut first);
        let kept = read(&mut first, len, planes);
        first.suspend().expect("suspended");
        assert_eq!(read(&mut first, len, planes), kept, "{rule:?}");

        let mut second = resident(&network, &optimizer, &network.init(4), how);
        advance(&mut second, &examples, 1);
        second.fill(2, &kept[0], &kept[1..]).expect("filled");
        assert_eq!(evaluate(&mut second), loss);
        let mut workspace = network.workspace(3, 1);
        let expected = network.evaluate(&mut workspace, &kept[0], &examples.batch());
        assert!((loss.loss_sum - expected.loss_sum).abs() < 1e-4 * expected.loss_sum);
        advance(&mut second, &examples, 2);
        assert_eq!(second.steps(), 4);
        let expected = read(&mut straight, len, planes);
        assert_eq!(read(&mut second, len, planes), expected, "{rule:?}");
        assert_gaps(second.session());
    }
}
