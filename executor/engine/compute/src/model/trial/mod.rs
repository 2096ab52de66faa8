//! Tests of single operations on the CPU: against an independent definition in f64
//! ([`OperationTrial::check`]), and against values of PyTorch from fixtures
//! ([`OperationTrial::compare`]).

#[path = "../../../tests/fixtures/mod.rs"]
#[allow(unused_imports, reason = "only tests of whole networks use curves")]
mod fixtures;
mod sequence;
mod vision;

use super::builder::{NetworkBuilder, ValueId};
use super::error::BuildError;
use super::input::{ExampleShape, ImageShape};
use super::network::Network;
use crate::layer::matrix::WriteMode;
use crate::layer::{
    BackwardOperands, ForwardOperands, InputGradients, OperationInputs, PassContext, PassMode,
    ThreadScratch,
};
use crate::loss::LossFunction;

const TRAIN: PassMode = PassMode::Train { key: 7, first: 0 };

/// Last operation of a network, with random operands.
struct OperationTrial {
    network: Network,
    examples: usize,
    /// Inputs of the operation by position, each of `examples` × its length.
    inputs: Vec<Vec<f32>>,
    /// All parameters of the network.
    params: Vec<f32>,
    /// Gradient with respect to the output.
    d_output: Vec<f32>,
}

/// Results of both passes; `d_inputs` and `grads` are gradients with respect to the inputs and to
/// the parameters of the network.
#[derive(Debug, Clone, PartialEq)]
struct OperationResult {
    output: Vec<f32>,
    d_inputs: Vec<Vec<f32>>,
    grads: Vec<f32>,
}

fn image([height, width, channels]: [usize; 3]) -> ExampleShape {
    ImageShape {
        height,
        width,
        channels,
    }
    .into()
}

/// Network whose last operation is added by `last`.
fn network(
    input: ExampleShape,
    last: impl FnOnce(&mut NetworkBuilder, ValueId) -> Result<ValueId, BuildError>,
) -> Network {
    let mut builder = NetworkBuilder::new(input).unwrap();
    let x = builder.input();
    let last = last(&mut builder, x).unwrap();
    builder.end(last, LossFunction::CrossEntropy { classes: 2 })
}

/// Memory whose old content shows in the result if it is not overwritten.
fn dirty(len: usize) -> Vec<f32> {
    vec![f32::NAN; len]
}

/// The same numbers in f64.
fn exact(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Pseudorandom numbers in [-1, 1) that are the same in every run.
fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let stream = fixtures::NumberStream::new(&format!("trial {seed}"));
    stream.values(len, 0.0, 1.0)
}

impl OperationTrial {
    fn new(network: Network, examples: usize, seed: u64) -> Self {
        let node = network.nodes.last().expect("an operation");
        let inputs = node.inputs.iter().enumerate();
        let inputs = inputs.map(|(index, &value)| {
            numbers(seed + 10 + index as u64, examples * network.lens[value])
        });
        Self {
            inputs: inputs.collect(),
            params: numbers(seed + 1, network.parameter_count()),
            d_output: numbers(seed + 2, examples * network.outputs()),
            network,
            examples,
        }
    }

    /// Runs both passes on memory with old values, in a pool of `threads` threads. With
    /// `WriteMode::Add`, gradients of parameters are added to 1. The backward pass is left out if
    /// `mode` is `Evaluate`.
    fn run(&self, threads: usize, mode: PassMode, write: WriteMode) -> OperationResult {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build()
            .unwrap()
            .install(|| self.run_here(threads, mode, write))
    }

    fn run_here(&self, threads: usize, mode: PassMode, write: WriteMode) -> OperationResult {
        let node = self.network.nodes.last().expect("an operation");
        let kernel = node.op.kernel();
        let lens = &self.network.lens;
        // As if the inputs were the outputs of the first operations: input `i` is value `i + 1`.
        // Value 0, the network's input, is unused.
        let lens: Vec<usize> = std::iter::once(0)
            .chain(node.inputs.iter().map(|&value| lens[value]))
            .collect();
        let of: Vec<usize> = (1..lens.len()).collect();
        let inputs = OperationInputs {
            first: &[],
            values: &self.inputs,
            lens: &lens,
            of: &of,
            examples: self.examples,
        };
        let at = PassContext {
            examples: self.examples,
            threads,
            mode,
        };
        let mut lanes: Vec<ThreadScratch> = (0..threads)
            .map(|_| ThreadScratch::new(kernel.scratch()))
            .collect();
        let mut kept = dirty(self.examples * kernel.saved_size().numbers);
        let mut bytes = vec![99; self.examples * kernel.saved_size().bytes];
        let mut output = dirty(self.d_output.len());
        kernel.forward(ForwardOperands {
            at,
            params: &self.params,
            inputs,
            output: &mut output,
            numbers: &mut kept,
            bytes: &mut bytes,
            lanes: &mut lanes,
        });
        let mut d_inputs: Vec<_> = self.inputs.iter().map(|x| dirty(x.len())).collect();
        let mut grads = match write {
            WriteMode::Overwrite => dirty(self.params.len()),
            WriteMode::Add => vec![1.0; self.params.len()],
        };
        if mode != PassMode::Evaluate {
            kernel.backward(BackwardOperands {
                at,
                params: &self.params,
                inputs,
                output: &output,
                d_output: &mut self.d_output.clone(),
                d_inputs: InputGradients {
                    buffers: &mut d_inputs,
                    lens: &lens,
                    of: &of,
                    examples: self.examples,
                },
                grads: &mut grads,
                write,
                write_shared: write,
                numbers: &mut kept,
                bytes: &mut bytes,
                lanes: &mut lanes,
            });
        }
        OperationResult {
            output,
            d_inputs,
            grads,
        }
    }

    /// Compares the operation with `definition`, a function of the inputs and all parameters that
    /// returns the output. Checks:
    ///
    /// - the output;
    /// - the gradients with respect to inputs and parameters, by difference quotients of
    ///   `definition`;
    /// - equal bits for several numbers of threads;
    /// - the addition to gradients of parameters.
    fn check(
        &self,
        what: &str,
        definition: impl Fn(&[Vec<f64>], &[f64]) -> Vec<f64>,
    ) -> OperationResult {
        let outcome = self.run(1, TRAIN, WriteMode::Overwrite);
        for threads in [2, 3] {
            let other = self.run(threads, TRAIN, WriteMode::Overwrite);
            assert_eq!(bits(&outcome), bits(&other), "{what} on {threads} threads");
        }
        let mut inputs: Vec<Vec<f64>> = self.inputs.iter().map(|x| exact(x)).collect();
        let mut params = exact(&self.params);
        let expected = definition(&inputs, &params);
        assert_close(&outcome.output, &expected, &format!("{what}: output"));
        let loss = |inputs: &[Vec<f64>], params: &[f64]| -> f64 {
            let output = definition(inputs, params);
            let products = output.iter().zip(&self.d_output);
            products.map(|(y, d)| y * f64::from(*d)).sum()
        };
        const H: f64 = 1e-6;
        // Each probe evaluates the whole definition.
        let probes = if inputs[0].len() > 10_000 { 20 } else { 100 };
        for index in 0..inputs.len() {
            let step = inputs[index].len().div_ceil(probes);
            let places: Vec<usize> = (0..inputs[index].len()).step_by(step).collect();
            let quotients = places.iter().map(|&i| {
                let kept = inputs[index][i];
                let [above, below] = [H, -H].map(|by| {
                    inputs[index][i] = kept + by;
                    loss(&inputs, &params)
                });
                inputs[index][i] = kept;
                (above - below) / (2.0 * H)
            });
            let quotients: Vec<f64> = quotients.collect();
            let found: Vec<f32> = places.iter().map(|&i| outcome.d_inputs[index][i]).collect();
            assert_close(
                &found,
                &quotients,
                &format!("{what}: gradient of input {index}"),
            );
        }
        let range = self
            .network
            .nodes
            .last()
            .expect("one")
            .op
            .kernel()
            .parameters();
        let places: Vec<usize> = range
            .clone()
            .step_by(range.len().div_ceil(probes).max(1))
            .filter(|i| {
                let mut blocks = self.network.blocks().iter();
                blocks.any(|block| block.range().contains(i) && !block.is_statistic())
            })
            .collect();
        let mut quotients = Vec::new();
        for &i in &places {
            let kept = params[i];
            params[i] = kept + H;
            let above = loss(&inputs, &params);
            params[i] = kept - H;
            let below = loss(&inputs, &params);
            params[i] = kept;
            quotients.push((above - below) / (2.0 * H));
        }
        let found: Vec<f32> = places.iter().map(|&i| outcome.grads[i]).collect();
        assert_close(
            &found,
            &quotients,
            &format!("{what}: gradient of parameters"),
        );
        let added = self.run(2, TRAIN, WriteMode::Add);
        for i in range {
            let (grad, added) = (outcome.grads[i], added.grads[i]);
            assert!(
                (grad + 1.0 - added).abs() <= 1e-5 * (1.0 + grad.abs()),
                "{what}: added to {i}"
            );
        }
        outcome
    }

    /// Compares output and gradients of inputs with a fixture. `names` are the inputs' names in the
    /// fixture, by position; the gradient of `x` is there as `d_x`.
    fn compare(&self, case: &fixtures::FixtureCase, names: &[&str]) -> OperationResult {
        let outcome = self.run(2, TRAIN, WriteMode::Overwrite);
        case.assert_close("output", &outcome.output);
        for (name, d_input) in names.iter().zip(&outcome.d_inputs) {
            case.assert_close(&format!("d_{name}"), d_input);
        }
        outcome
    }
}

/// Bits of all results.
fn bits(outcome: &OperationResult) -> Vec<u32> {
    let gradients = outcome.d_inputs.iter().flatten().chain(&outcome.grads);
    outcome
        .output
        .iter()
        .chain(gradients)
        .map(|x| x.to_bits())
        .collect()
}

/// Fails if a value is off by more than 2e-5 of the largest expected magnitude (at least 1).
fn assert_close(actual: &[f32], expected: &[f64], what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1.0_f64, |max, x| max.max(x.abs()));
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        let close = (f64::from(*a) - e).abs() <= 2e-5 * scale;
        assert!(close, "{what}: [{i}] is {a}, should be {e}");
    }
}
