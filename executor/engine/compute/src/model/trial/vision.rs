//! Tests of convolutions, pooling, batch normalisation, activations and joins of values.

use super::fixtures::{FixtureCase, cases};
use super::{OperationTrial, TRAIN, assert_close, image, network, sigmoid};
use crate::layer::matrix::WriteMode;
use crate::layer::{ActivationFunction, PassMode};
use crate::loss::LossFunction;
use crate::model::{
    BatchTargets, ConvOptions, ExampleShape, NetworkBuilder, SlidingWindow, ValueId,
};

/// Taps of a window that are on the image, as (tap, position).
fn taps(windows: SlidingWindow, image: [usize; 2], at: [usize; 2]) -> Vec<(usize, usize)> {
    let mut taps = Vec::new();
    for tap in 0..windows.kernel[0] * windows.kernel[1] {
        let place = [tap / windows.kernel[1], tap % windows.kernel[1]];
        let on = [0, 1].map(|side| {
            (at[side] * windows.stride[side] + place[side])
                .checked_sub(windows.padding[side])
                .filter(|&x| x < image[side])
        });
        if let [Some(row), Some(column)] = on {
            taps.push((tap, row * image[1] + column));
        }
    }
    taps
}

fn sides(windows: SlidingWindow, image: [usize; 2]) -> [usize; 2] {
    [0, 1].map(|side| {
        (image[side] + 2 * windows.padding[side] - windows.kernel[side]) / windows.stride[side] + 1
    })
}

fn positions([height, width]: [usize; 2]) -> impl Iterator<Item = [usize; 2]> {
    (0..height * width).map(move |i| [i / width, i % width])
}

/// Convolution, element by element. Parameters are weight and bias.
fn convolve(
    conv: ConvOptions,
    [height, width, channels]: [usize; 3],
    x: &[f64],
    params: &[f64],
) -> Vec<f64> {
    let mut out = Vec::new();
    let (inputs, outputs) = (channels / conv.groups, conv.channels / conv.groups);
    let weights = conv.windows.kernel[0] * conv.windows.kernel[1] * inputs * conv.channels;
    for image in x.chunks(height * width * channels) {
        for at in positions(sides(conv.windows, [height, width])) {
            for o in 0..conv.channels {
                let mut sum = if conv.bias { params[weights + o] } else { 0.0 };
                for (tap, position) in taps(conv.windows, [height, width], at) {
                    for i in 0..inputs {
                        let c = o / outputs * inputs + i;
                        sum += image[position * channels + c]
                            * params[(tap * inputs + i) * conv.channels + o];
                    }
                }
                out.push(if conv.relu { sum.max(0.0) } else { sum });
            }
        }
    }
    out
}

fn conv(shape: [usize; 3], conv: ConvOptions, examples: usize, seed: u64) -> OperationTrial {
    let network = network(image(shape), |builder, x| builder.conv("conv", x, conv));
    OperationTrial::new(network, examples, seed)
}

#[test]
fn convolution_equals_definition() {
    let oblong = SlidingWindow {
        kernel: [2, 5],
        stride: [2, 3],
        padding: [1, 2],
    };
    let cases = [
        (
            [5, 6, 3],
            ConvOptions::new(4, SlidingWindow::square(3).same()),
        ),
        (
            [8, 7, 1],
            ConvOptions::new(3, SlidingWindow::square(5)).relu(),
        ),
        (
            [7, 8, 3],
            ConvOptions::new(5, SlidingWindow::square(3).stride(2).padding(1)).without_bias(),
        ),
        (
            [11, 9, 2],
            ConvOptions::new(4, SlidingWindow::square(7).stride(2).padding(3))
                .without_bias()
                .relu(),
        ),
        ([6, 7, 4], ConvOptions::new(6, oblong).groups(2).relu()),
        (
            [4, 5, 6],
            ConvOptions::new(7, SlidingWindow::square(1)).relu(),
        ),
        (
            [5, 6, 3],
            ConvOptions::new(4, SlidingWindow::square(1).stride(2)),
        ),
        (
            [4, 5, 6],
            ConvOptions::new(9, SlidingWindow::square(1)).groups(3),
        ),
        (
            [6, 5, 5],
            ConvOptions::new(5, SlidingWindow::square(3).same())
                .groups(5)
                .relu(),
        ),
        (
            [6, 7, 43],
            ConvOptions::new(43, SlidingWindow::square(3).stride(2).padding(1))
                .groups(43)
                .without_bias(),
        ),
        (
            [5, 5, 3],
            ConvOptions::new(6, SlidingWindow::square(3).same()).groups(3),
        ),
        (
            [1, 1, 2],
            ConvOptions::new(3, SlidingWindow::square(5).same()),
        ),
    ];
    for (seed, (shape, what)) in cases.into_iter().enumerate() {
        // More examples than one group holds.
        let trial = conv(shape, what, 19, seed as u64);
        trial.check(&format!("{what:?}"), |inputs, params| {
            convolve(what, shape, &inputs[0], params)
        });
    }
}

/// Several tiles of rows per image, and groups of one example.
#[test]
fn large_image_is_convolved_in_tiles() {
    let (shape, what) = (
        [70, 61, 3],
        ConvOptions::new(2, SlidingWindow::square(5).padding(1)).relu(),
    );
    let trial = conv(shape, what, 2, 50);
    trial.check("tiles", |inputs, params| {
        convolve(what, shape, &inputs[0], params)
    });
}

fn hyper(case: &FixtureCase, name: &str) -> usize {
    case.number(name) as usize
}

#[test]
fn convolution_equals_pytorch() {
    for case in cases("conv2d") {
        let (input, shape) = case.tensor("input");
        let (weight, kernel) = case.tensor("weight");
        let windows = SlidingWindow::oblong(kernel[0], kernel[1])
            .stride(hyper(&case, "stride"))
            .padding(hyper(&case, "padding"));
        let what = ConvOptions::new(kernel[3], windows).groups(hyper(&case, "groups"));
        let mut trial = conv([shape[1], shape[2], shape[3]], what, shape[0], 0);
        trial.inputs = vec![input.to_vec()];
        trial.params = [weight, case.tensor("bias").0].concat();
        trial.d_output = case.tensor("d_output").0.to_vec();
        let outcome = trial.compare(&case, &["input"]);
        let (d_weight, d_bias) = outcome.grads.split_at(weight.len());
        case.assert_close("d_weight", d_weight);
        case.assert_close("d_bias", d_bias);
    }
}

#[derive(Debug, Clone, Copy)]
enum PoolingKind {
    Max,
    Average,
}

fn pooled(
    pool: PoolingKind,
    windows: SlidingWindow,
    [height, width, channels]: [usize; 3],
    x: &[f64],
) -> Vec<f64> {
    let mut out = Vec::new();
    for image in x.chunks(height * width * channels) {
        for at in positions(sides(windows, [height, width])) {
            let taps = taps(windows, [height, width], at);
            for c in 0..channels {
                let numbers = taps
                    .iter()
                    .map(|(_, position)| image[position * channels + c]);
                out.push(match pool {
                    PoolingKind::Max => numbers.fold(f64::NEG_INFINITY, f64::max),
                    PoolingKind::Average => numbers.sum::<f64>() / taps.len() as f64,
                });
            }
        }
    }
    out
}

fn pool(
    shape: [usize; 3],
    windows: SlidingWindow,
    pool: PoolingKind,
    examples: usize,
    seed: u64,
) -> OperationTrial {
    let network = network(image(shape), |builder, x| match pool {
        PoolingKind::Max => builder.max_pool("pool", x, windows),
        PoolingKind::Average => builder.average_pool("pool", x, windows),
    });
    OperationTrial::new(network, examples, seed)
}

#[test]
fn pooling_equals_definition() {
    let oblong = SlidingWindow {
        kernel: [3, 4],
        stride: [1, 3],
        padding: [1, 2],
    };
    let cases = [
        ([6, 4, 3], SlidingWindow::square(2).stride(2)),
        ([5, 7, 17], SlidingWindow::square(3).stride(2)),
        ([6, 7, 2], SlidingWindow::square(3).stride(2).padding(1)),
        ([5, 6, 9], oblong),
        ([60, 60, 20], SlidingWindow::square(3).stride(3)),
    ];
    for (seed, (shape, windows)) in cases.into_iter().enumerate() {
        for kind in [PoolingKind::Max, PoolingKind::Average] {
            let trial = pool(shape, windows, kind, 5, seed as u64);
            trial.check(&format!("{kind:?} {windows:?}"), |inputs, _| {
                pooled(kind, windows, shape, &inputs[0])
            });
        }
    }
    let shape = [5, 4, 6];
    let network = network(image(shape), |builder, x| {
        builder.global_average_pool("pool", x)
    });
    let windows = SlidingWindow::oblong(5, 4);
    let trial = OperationTrial::new(network, 3, 1);
    trial.check("global", |inputs, _| {
        pooled(PoolingKind::Average, windows, shape, &inputs[0])
    });
}

#[test]
fn pooling_equals_pytorch() {
    let mut compared = 0;
    for (operation, kind) in [
        ("max_pool", PoolingKind::Max),
        ("average_pool", PoolingKind::Average),
    ] {
        for case in cases(operation) {
            let padding = hyper(&case, "padding");
            // The engine never counts the padding, which is optional in PyTorch.
            if case.hyper["count_include_pad"] == true && padding > 0 {
                continue;
            }
            let (input, shape) = case.tensor("input");
            let windows = SlidingWindow::square(hyper(&case, "kernel"))
                .stride(hyper(&case, "stride"))
                .padding(padding);
            let mut trial = pool([shape[1], shape[2], shape[3]], windows, kind, shape[0], 0);
            trial.inputs = vec![input.to_vec()];
            trial.d_output = case.tensor("d_output").0.to_vec();
            trial.compare(&case, &["input"]);
            compared += 1;
        }
    }
    for case in cases("global_average_pool") {
        let (input, shape) = case.tensor("input");
        let network = network(image([shape[1], shape[2], shape[3]]), |builder, x| {
            builder.global_average_pool("pool", x)
        });
        let mut trial = OperationTrial::new(network, shape[0], 0);
        trial.inputs = vec![input.to_vec()];
        trial.d_output = case.tensor("d_output").0.to_vec();
        trial.compare(&case, &["input"]);
        compared += 1;
    }
    assert_eq!(compared, 9);
}

#[test]
fn nan_wins_in_a_max_pool() {
    let mut trial = pool([2, 2, 1], SlidingWindow::square(2), PoolingKind::Max, 1, 0);
    for at in 0..4 {
        trial.inputs[0] = vec![1.0; 4];
        trial.inputs[0][at] = f32::NAN;
        assert!(trial.run(1, TRAIN, WriteMode::Overwrite).output[0].is_nan());
    }
}

/// Batch normalisation. Parameters are scale, shift, mean and variance.
fn normalised(channels: usize, relu: bool, x: &[f64], params: &[f64]) -> Vec<f64> {
    let rows = x.len() / channels;
    let (mean, variance) = moments(channels, x);
    (0..rows * channels)
        .map(|i| {
            let c = i % channels;
            let unit = (x[i] - mean[c]) / (variance[c] + 1e-5).sqrt();
            let y = unit * params[c] + params[channels + c];
            if relu { y.max(0.0) } else { y }
        })
        .collect()
}

/// Mean and biased variance per channel.
fn moments(channels: usize, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let rows = (x.len() / channels) as f64;
    let column = |c: usize| x.iter().skip(c).step_by(channels);
    let mean: Vec<f64> = (0..channels)
        .map(|c| column(c).sum::<f64>() / rows)
        .collect();
    let variance = (0..channels)
        .map(|c: usize| column(c).map(|x| (x - mean[c]).powi(2)).sum::<f64>() / rows)
        .collect();
    (mean, variance)
}

#[test]
fn batch_norm_equals_definition() {
    // The last case has several chunks.
    for (shape, relu, examples) in [
        ([3, 4, 5], false, 7),
        ([2, 3, 9], true, 11),
        ([40, 41, 3], true, 29),
    ] {
        let channels = shape[2];
        let network = network(image(shape), |builder, x| {
            builder.batch_norm("norm", x, relu)
        });
        let mut trial = OperationTrial::new(network, examples, 3);
        trial.inputs[0].iter_mut().for_each(|x| *x = 3.0 * *x + 1.0);
        let outcome = trial.check("batch_norm", |inputs, params| {
            normalised(channels, relu, &inputs[0], params)
        });
        // A step with the gradients of the statistics moves them by a tenth towards the batch's
        // mean and unbiased variance.
        let exact: Vec<f64> = trial.inputs[0].iter().map(|x| f64::from(*x)).collect();
        let rows = (exact.len() / channels) as f64;
        let (mean, variance) = moments(channels, &exact);
        let batch = mean
            .into_iter()
            .chain(variance.iter().map(|v| v * rows / (rows - 1.0)));
        let moved: Vec<f64> = batch
            .zip(&trial.params[2 * channels..])
            .map(|(batch, present)| examples as f64 * 0.1 * (f64::from(*present) - batch))
            .collect();
        assert_close(&outcome.grads[2 * channels..], &moved, "statistics");
    }
}

#[test]
fn batch_norm_equals_pytorch() {
    for case in cases("batch_norm") {
        let (input, shape) = case.tensor("input");
        let channels = *shape.last().unwrap();
        let kind = match *shape {
            [_, height, width, channels] => image([height, width, channels]),
            _ => ExampleShape::Row { columns: channels },
        };
        let network = network(kind, |builder, x| builder.batch_norm("norm", x, false));
        let mut trial = OperationTrial::new(network, shape[0], 0);
        trial.inputs = vec![input.to_vec()];
        trial.params = ["weight", "bias", "running_mean", "running_variance"]
            .map(|name| case.tensor(name).0)
            .concat();
        trial.d_output = case.tensor("d_output").0.to_vec();
        if case.hyper["training"] == false {
            let outcome = trial.run(2, PassMode::Evaluate, WriteMode::Overwrite);
            case.assert_close("output", &outcome.output);
            continue;
        }
        let outcome = trial.compare(&case, &["input"]);
        case.assert_close("d_weight", &outcome.grads[..channels]);
        case.assert_close("d_bias", &outcome.grads[channels..2 * channels]);
        let after: Vec<f32> = trial.params[2 * channels..]
            .iter()
            .zip(&outcome.grads[2 * channels..])
            .map(|(present, grad)| present - grad / shape[0] as f32)
            .collect();
        case.assert_close("new_running_mean", &after[..channels]);
        case.assert_close("new_running_variance", &after[channels..]);
    }
}

fn normal_density(x: f64) -> f64 {
    (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

fn activation(function: ActivationFunction, x: f64) -> f64 {
    match function {
        ActivationFunction::Relu => x.max(0.0),
        ActivationFunction::LeakyRelu { slope } => x.max(f64::from(slope) * x),
        // Φ by Simpson's rule.
        ActivationFunction::Gelu => {
            let (steps, mut sum) = (200, 0.0);
            let h = x / f64::from(steps);
            for i in 0..steps {
                let t = f64::from(i) * h;
                let [a, b, c] = [t, t + h / 2.0, t + h].map(normal_density);
                sum += h / 6.0 * (a + 4.0 * b + c);
            }
            x * (0.5 + sum)
        }
        ActivationFunction::GeluTanh => {
            let root = (2.0 / std::f64::consts::PI).sqrt();
            0.5 * x * (1.0 + (root * (x + 0.044715 * x.powi(3))).tanh())
        }
        ActivationFunction::Sigmoid => sigmoid(x),
        ActivationFunction::Tanh => x.tanh(),
        ActivationFunction::Silu => x * sigmoid(x),
    }
}

const FUNCTIONS: [(&str, ActivationFunction); 6] = [
    ("relu", ActivationFunction::Relu),
    ("gelu", ActivationFunction::Gelu),
    ("gelu_tanh", ActivationFunction::GeluTanh),
    ("sigmoid", ActivationFunction::Sigmoid),
    ("tanh", ActivationFunction::Tanh),
    ("silu", ActivationFunction::Silu),
];

#[test]
fn activations_equal_definitions() {
    let leaky = ("leaky_relu", ActivationFunction::LeakyRelu { slope: 0.1 });
    for (name, function) in FUNCTIONS.into_iter().chain([leaky]) {
        let network = network(ExampleShape::Row { columns: 37 }, |builder, x| {
            builder.activate(name, x, function)
        });
        let mut trial = OperationTrial::new(network, 3000, 4);
        trial.inputs[0].iter_mut().for_each(|x| *x *= 4.0);
        let outcome = trial.run(1, TRAIN, WriteMode::Overwrite);
        let other = trial.run(3, TRAIN, WriteMode::Overwrite);
        assert_eq!(outcome, other, "{name}");
        trial.examples = 5;
        trial.inputs[0].truncate(5 * 37);
        trial.d_output.truncate(5 * 37);
        trial.check(name, |inputs, _| {
            inputs[0].iter().map(|x| activation(function, *x)).collect()
        });
    }
}

#[test]
fn activations_equal_pytorch() {
    let cases = cases("activation");
    assert_eq!(cases.len(), FUNCTIONS.len());
    for case in cases {
        let (_, name) = case.name.split_once('/').unwrap();
        let (_, function) = FUNCTIONS
            .into_iter()
            .find(|(known, _)| *known == name)
            .expect(name);
        let (input, _) = case.tensor("input");
        let columns = input.len();
        let network = network(ExampleShape::Row { columns }, |builder, x| {
            builder.activate(name, x, function)
        });
        let mut trial = OperationTrial::new(network, 1, 0);
        trial.inputs = vec![input.to_vec()];
        trial.d_output = case.tensor("d_output").0.to_vec();
        trial.compare(&case, &["input"]);
    }
}

/// Different values with these numbers of channels, computed from one image.
fn branches(builder: &mut NetworkBuilder, x: ValueId, channels: &[usize]) -> Vec<ValueId> {
    let branches = channels.iter().enumerate().map(|(index, &channels)| {
        let conv = ConvOptions::new(channels, SlidingWindow::square(1));
        builder.conv(&format!("branch{index}"), x, conv).unwrap()
    });
    branches.collect()
}

#[test]
fn residual_is_a_sum() {
    for relu in [false, true] {
        let network = network(image([13, 6, 2]), |builder, x| {
            let parts = branches(builder, x, &[5, 5]);
            builder.add("add", parts[0], parts[1], relu)
        });
        OperationTrial::new(network, 300, 6).check("add", |inputs, _| {
            let sums = inputs[0].iter().zip(&inputs[1]).map(|(a, b)| a + b);
            sums.map(|sum| if relu { sum.max(0.0) } else { sum })
                .collect()
        });
    }
}

#[test]
fn concatenation_joins_channels() {
    let channels = [3, 1, 4];
    let network = network(image([3, 2, 2]), |builder, x| {
        let parts = branches(builder, x, &channels);
        builder.concat("concat", &parts)
    });
    OperationTrial::new(network, 4, 7).check("concat", |inputs, _| {
        let rows = (0..4 * 6).flat_map(|row| (0..3).map(move |part| (row, part)));
        rows.flat_map(|(row, part)| inputs[part][row * channels[part]..][..channels[part]].to_vec())
            .collect()
    });
}

#[test]
fn upsampling_repeats_positions() {
    let (height, width, channels, factor) = (3, 4, 2, 3);
    let network = network(image([height, width, channels]), |builder, x| {
        builder.upsample("up", x, factor)
    });
    OperationTrial::new(network, 5, 8).check("upsample", |inputs, _| {
        let mut out = Vec::new();
        for image in inputs[0].chunks(height * width * channels) {
            for [y, x] in positions([height * factor, width * factor]) {
                let at = (y / factor * width + x / factor) * channels;
                out.extend_from_slice(&image[at..at + channels]);
            }
        }
        out
    });
}

#[test]
fn reshape_keeps_the_order_of_elements() {
    let network = network(ExampleShape::Row { columns: 12 }, |builder, x| {
        let x = builder.reshape("image", x, &[2, 3, 2])?;
        assert_eq!(builder.shape(x), [2, 3, 2]);
        Ok(x)
    });
    OperationTrial::new(network, 5, 9).check("reshape", |inputs, _| inputs[0].clone());
}

#[test]
fn losses_equal_pytorch() {
    let mut compared = 0;
    for (operation, given) in [
        ("mse", "predicted"),
        ("bce_with_logits", "predicted"),
        ("cross_entropy", "scores"),
    ] {
        for case in cases(operation) {
            let (input, shape) = case.tensor(given);
            let outputs = shape[1];
            let (loss, targets, means) = match operation {
                "mse" => (
                    LossFunction::Squared { outputs },
                    BatchTargets::Values(case.tensor("target").0),
                    input.len(),
                ),
                "bce_with_logits" => (
                    LossFunction::Binary { outputs },
                    BatchTargets::Values(case.tensor("target").0),
                    input.len(),
                ),
                _ => (
                    LossFunction::CrossEntropy { classes: outputs },
                    BatchTargets::Classes(case.whole("labels").0),
                    shape[0],
                ),
            };
            // PyTorch averages over all targets; the engine sums over examples the means over an
            // example's targets.
            let per_example = means / shape[0];
            let factor = match case.hyper["reduction"].as_str() {
                Some("mean") => 1.0 / shape[0] as f32,
                _ => per_example as f32,
            };
            let mut d_input = vec![f32::NAN; input.len()];
            let found = loss.of(input, targets, Some(&mut d_input));
            d_input.iter_mut().for_each(|d| *d *= factor);
            case.assert_close("output", &[found.loss_sum as f32 * factor]);
            case.assert_close(&format!("d_{given}"), &d_input);
            compared += 1;
        }
    }
    assert_eq!(compared, 8);
}
