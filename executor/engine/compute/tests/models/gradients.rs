//! Loss and gradients against an independent network in f64, written from the definitions one value
//! at a time.
//!
//! Difference quotients use the f64 network: its steps can be so small that no ReLU or pooling
//! window changes its decision.

use muster_compute::model::{self, ImageShape, Network, ParameterBlock, zoo};
use std::ops::Range;

#[derive(Debug, Clone)]
enum Architecture {
    Mlp {
        hidden: Vec<usize>,
    },
    Cnn {
        channels: Vec<usize>,
        dense: Vec<usize>,
    },
}

impl Architecture {
    fn network(&self, input: ImageShape, classes: usize) -> Network {
        let built = match self {
            Self::Mlp { hidden } => zoo::mlp(input, hidden, classes),
            Self::Cnn { channels, dense } => zoo::cnn(input, channels, dense, classes),
        };
        built.unwrap()
    }
}

struct ReferenceNetwork<'a> {
    architecture: &'a Architecture,
    blocks: &'a [ParameterBlock],
    input: ImageShape,
}

impl ReferenceNetwork<'_> {
    fn loss(&self, params: &[f64], images: &[f32], labels: &[u32]) -> f64 {
        let images = images.chunks(self.input.len()).zip(labels);
        images
            .map(|(image, label)| self.example(params, image, *label as usize))
            .sum()
    }

    fn block<'p>(&self, params: &'p [f64], name: &str) -> &'p [f64] {
        let block = self
            .blocks
            .iter()
            .find(|block| block.name == name)
            .expect(name);
        &params[block.offset..block.offset + block.len]
    }

    fn example(&self, params: &[f64], image: &[f32], label: usize) -> f64 {
        let mut values: Vec<f64> = image.iter().map(|x| f64::from(*x)).collect();
        let widths = match self.architecture {
            Architecture::Mlp { hidden } => hidden,
            Architecture::Cnn { channels, dense } => {
                let mut shape = self.input;
                for (index, &outputs) in channels.iter().enumerate() {
                    let weight = self.block(params, &format!("conv{}.weight", index + 1));
                    let bias = self.block(params, &format!("conv{}.bias", index + 1));
                    values = convolve(&values, shape, weight, bias);
                    shape.channels = outputs;
                    values = pool(&values, shape);
                    shape = ImageShape {
                        height: shape.height / 2,
                        width: shape.width / 2,
                        ..shape
                    };
                }
                dense
            }
        };
        for index in 1..=widths.len() {
            values = self.dense(params, &format!("dense{index}"), &values);
            values.iter_mut().for_each(|x| *x = x.max(0.0));
        }
        let scores = self.dense(params, "logits", &values);
        let sum: f64 = scores.iter().map(|x| x.exp()).sum();
        sum.ln() - scores[label]
    }

    fn dense(&self, params: &[f64], name: &str, values: &[f64]) -> Vec<f64> {
        let weight = self.block(params, &format!("{name}.weight"));
        let bias = self.block(params, &format!("{name}.bias"));
        let outputs = bias.iter().enumerate().map(|(j, shift)| {
            let products = values
                .iter()
                .enumerate()
                .map(|(i, x)| x * weight[i * bias.len() + j]);
            shift + products.sum::<f64>()
        });
        outputs.collect()
    }
}

/// 3×3, padding 1, bias, ReLU.
fn convolve(image: &[f64], shape: ImageShape, weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let ImageShape {
        height,
        width,
        channels,
    } = shape;
    let mut out = Vec::new();
    for (y, x) in (0..height * width).map(|position| (position / width, position % width)) {
        for (o, bias) in bias.iter().enumerate() {
            let mut sum = *bias;
            for (tap, c) in (0..9 * channels).map(|i| (i / channels, i % channels)) {
                let (row, column) = (y + tap / 3, x + tap % 3);
                if (1..=height).contains(&row) && (1..=width).contains(&column) {
                    sum += image[((row - 1) * width + column - 1) * channels + c]
                        * weight[(tap * channels + c) * bias_len(weight, channels) + o];
                }
            }
            out.push(sum.max(0.0));
        }
    }
    out
}

fn bias_len(weight: &[f64], channels: usize) -> usize {
    weight.len() / (9 * channels)
}

fn pool(image: &[f64], shape: ImageShape) -> Vec<f64> {
    let ImageShape {
        height,
        width,
        channels,
    } = shape;
    let mut out = Vec::new();
    for (y, x) in (0..height / 2).flat_map(|y| (0..width / 2).map(move |x| (2 * y, 2 * x))) {
        for c in 0..channels {
            let places = [(y, x), (y, x + 1), (y + 1, x), (y + 1, x + 1)];
            let values = places.map(|(y, x)| image[(y * width + x) * channels + c]);
            out.push(values.into_iter().fold(f64::NEG_INFINITY, f64::max));
        }
    }
    out
}

fn cnn(channels: &[usize], dense: &[usize]) -> Architecture {
    Architecture::Cnn {
        channels: channels.to_vec(),
        dense: dense.to_vec(),
    }
}

fn mlp(hidden: &[usize]) -> Architecture {
    let hidden = hidden.to_vec();
    Architecture::Mlp { hidden }
}

fn shape(height: usize, width: usize, channels: usize) -> ImageShape {
    ImageShape {
        height,
        width,
        channels,
    }
}

/// Architectures and inputs that reach every layer: first and later ones, even and odd sides, one
/// channel and several.
fn cases() -> Vec<(Architecture, ImageShape, usize)> {
    vec![
        (mlp(&[]), shape(3, 2, 1), 3),
        (mlp(&[5]), shape(1, 7, 1), 2),
        (mlp(&[6, 9, 4]), shape(4, 2, 3), 5),
        (cnn(&[3], &[]), shape(4, 4, 1), 3),
        (cnn(&[2], &[5]), shape(5, 7, 3), 4),
        (cnn(&[4, 3], &[6, 5]), shape(8, 6, 1), 3),
        (cnn(&[8, 5, 9], &[4]), shape(11, 9, 2), 10),
    ]
}

/// Reproducible values in [-1, 1).
fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let numbers = (0..len).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    });
    numbers.collect()
}

struct GradientBatch {
    params: Vec<f32>,
    images: Vec<f32>,
    labels: Vec<u32>,
}

impl GradientBatch {
    fn examples(&self) -> model::Batch<'_> {
        model::Batch::classes(&self.images, &self.labels)
    }
}

/// Biases are set too: the initial values of 0 could hide an error in them.
fn batch(network: &Network, seed: u64, examples: usize) -> GradientBatch {
    let mut params = network.init(seed);
    for block in network
        .blocks()
        .iter()
        .filter(|block| block.name.ends_with("bias"))
    {
        let bias = numbers(seed + block.offset as u64, block.len);
        params[block.range()]
            .iter_mut()
            .zip(bias)
            .for_each(|(p, b)| *p = 0.2 * b);
    }
    let images = numbers(seed + 100, examples * network.input().len());
    let labels = (0..examples)
        .map(|i| ((i * 7 + 3) % network.outputs()) as u32)
        .collect();
    GradientBatch {
        params,
        images,
        labels,
    }
}

fn step(
    network: &Network,
    batch: &GradientBatch,
    max_batch: usize,
    threads: usize,
) -> (f64, usize, Vec<f32>) {
    let mut workspace = network.workspace(max_batch, threads);
    let mut grads = vec![f32::NAN; network.parameter_count()];
    let loss = network.loss_and_grad(&mut workspace, &batch.params, &batch.examples(), &mut grads);
    (loss.loss_sum, loss.correct, grads)
}

fn assert_close(actual: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    let scale = expected.iter().fold(1.0_f32, |max, x| max.max(x.abs()));
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!(
            (a - e).abs() <= tolerance * scale,
            "{what}: [{i}] is {a}, should be {e}"
        );
    }
}

#[test]
fn every_gradient_is_the_difference_quotient() {
    for (case, (architecture, input, classes)) in cases().into_iter().enumerate() {
        let network = architecture.network(input, classes);
        // More than one of the convolution's groups of 16, and not a multiple.
        let batch = batch(&network, case as u64 + 1, 19);
        let (loss, _, grads) = step(&network, &batch, 19, 1);
        let reference = ReferenceNetwork {
            architecture: &architecture,
            blocks: network.blocks(),
            input,
        };
        let mut params: Vec<f64> = batch.params.iter().map(|p| f64::from(*p)).collect();
        let expected = reference.loss(&params, &batch.images, &batch.labels);
        assert!(
            (loss - expected).abs() < 1e-5 * expected,
            "{architecture:?}: loss {loss}, should be {expected}"
        );
        for block in network.blocks() {
            // Every parameter of small blocks, about 40 of large ones.
            let mut probed = (Vec::new(), Vec::new());
            for i in block.range().step_by(block.len.div_ceil(40)) {
                const H: f64 = 1e-6;
                let kept = params[i];
                params[i] = kept + H;
                let above = reference.loss(&params, &batch.images, &batch.labels);
                params[i] = kept - H;
                let below = reference.loss(&params, &batch.images, &batch.labels);
                params[i] = kept;
                probed.0.push(grads[i]);
                probed.1.push(((above - below) / (2.0 * H)) as f32);
            }
            assert_close(
                &probed.0,
                &probed.1,
                2e-5,
                &format!("{architecture:?} {}", block.name),
            );
            assert!(
                probed.1.iter().any(|d| *d != 0.0),
                "{architecture:?} {} is not reached",
                block.name
            );
        }
    }
}

#[test]
fn slices_add_up_to_the_batch() {
    for (architecture, input, classes) in cases() {
        let network = architecture.network(input, classes);
        let whole = batch(&network, 5, 37);
        let (loss, correct, grads) = step(&network, &whole, 64, 1);
        let mut sum = (0.0, 0, vec![0.0; grads.len()]);
        for (start, end) in [(0, 10), (10, 10), (10, 27), (27, 37)] {
            let slice = GradientBatch {
                params: whole.params.clone(),
                images: whole.images[start * input.len()..end * input.len()].to_vec(),
                labels: whole.labels[start..end].to_vec(),
            };
            let (loss, correct, grads) = step(&network, &slice, 64, 1);
            sum.0 += loss;
            sum.1 += correct;
            sum.2.iter_mut().zip(&grads).for_each(|(sum, g)| *sum += g);
        }
        assert!((loss - sum.0).abs() < 1e-6 * loss);
        assert_eq!(correct, sum.1);
        assert_close(&sum.2, &grads, 1e-5, "sum of the slices");
    }
}

#[test]
fn a_batch_larger_than_the_workspace_runs_in_parts() {
    for (architecture, input, classes) in cases() {
        let network = architecture.network(input, classes);
        let batch = batch(&network, 6, 37);
        let (loss, correct, grads) = step(&network, &batch, 64, 1);
        let parts = step(&network, &batch, 8, 1);
        assert!((loss - parts.0).abs() < 1e-6 * loss);
        assert_eq!(correct, parts.1);
        assert_close(&parts.2, &grads, 1e-5, "in parts");
        let mut workspace = network.workspace(8, 1);
        let evaluated = network.evaluate(&mut workspace, &batch.params, &batch.examples());
        assert_eq!((evaluated.loss_sum, evaluated.correct), (parts.0, parts.1));
    }
}

/// The second run uses the workspace of the first one after another batch, so remains in it would
/// show.
#[test]
fn a_repeated_step_has_the_same_bits_on_any_number_of_threads() {
    let mut cases = cases();
    cases.push((cnn(&[16, 32], &[64]), shape(28, 28, 1), 10));
    for (architecture, input, classes) in cases {
        let network = architecture.network(input, classes);
        let (batch, other) = (batch(&network, 7, 75), batch(&network, 8, 50));
        let expected = step(&network, &batch, 80, 1);
        for threads in [1, 2, 3] {
            let mut workspace = network.workspace(80, threads);
            let mut grads = vec![0.0; network.parameter_count()];
            network.loss_and_grad(&mut workspace, &other.params, &other.examples(), &mut grads);
            let loss =
                network.loss_and_grad(&mut workspace, &batch.params, &batch.examples(), &mut grads);
            assert_eq!(
                loss.loss_sum.to_bits(),
                expected.0.to_bits(),
                "{threads} threads"
            );
            let same = grads
                .iter()
                .zip(&expected.2)
                .all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{architecture:?} on {threads} threads");
        }
    }
}

/// A network that sends gradients during its computation relies on each reported range being final.
#[test]
fn gradient_ranges_are_reported_last_layer_first_and_final() {
    for (architecture, input, classes) in cases() {
        let network = architecture.network(input, classes);
        let batch = batch(&network, 9, 21);
        let (_, _, expected) = step(&network, &batch, 8, 1);
        let mut told: Vec<(Range<usize>, Vec<f32>)> = Vec::new();
        let mut grads = vec![f32::NAN; network.parameter_count()];
        network.loss_and_grad_telling(
            &mut network.workspace(8, 1),
            &batch.params,
            &batch.examples(),
            &mut grads,
            &mut |range, grads| told.push((range.clone(), grads[range].to_vec())),
        );
        let mut end = network.parameter_count();
        for (range, grads) in told {
            assert_eq!(range.end, end, "{architecture:?}");
            assert_eq!(grads, expected[range.clone()], "{architecture:?} {range:?}");
            end = range.start;
        }
        assert_eq!(end, 0, "{architecture:?}");
    }
}
