//! Networks as ONNX: ONNX Runtime computes the same losses as the engine with the same parameters.
//!
//! Requires a python3 with onnxruntime and numpy: `MUSTER_ONNX_PYTHON`, or the one in PATH
//! (`scripts/ensure-onnxruntime` installs them).

use muster_compute::model::{
    Batch, BatchTargets, BuildError, ImageShape, Network, RandomKey,
    zoo::{self, Gpt},
};
use muster_model::export::{Listed, onnx_head};
use muster_model::spec::JobSpec;
use muster_training::document;
use serde_json::{Value, json};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

const EXAMPLES: usize = 3;

const SCRIPT: &str = "
import sys, numpy, onnxruntime
folder, numbers = sys.argv[1], int(sys.argv[2])
onnxruntime.set_default_logger_severity(3)
session = onnxruntime.InferenceSession(folder + '/model.onnx', providers=['CPUExecutionProvider'])
inputs = numpy.fromfile(folder + '/input', dtype=numpy.float32).reshape(-1, numbers)
session.run(['output'], {'input': inputs})[0].astype(numpy.float32).tofile(folder + '/output')
";

fn python() -> String {
    let python = std::env::var("MUSTER_ONNX_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let probe = Command::new(&python)
        .args(["-c", "import numpy, onnxruntime"])
        .output();
    assert!(
        probe.is_ok_and(|output| output.status.success()),
        "{python} has no onnxruntime and numpy; scripts/ensure-onnxruntime gets one that has, for MUSTER_ONNX_PYTHON"
    );
    python
}

/// Pseudo-random values from −1 to 1, the same on every machine.
fn noise(count: usize, salt: u64) -> Vec<f32> {
    let mut state = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let values = (0..count).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    });
    values.collect()
}

/// Parameters as after training: none is 0 or 1 by chance, and variances are positive.
fn parameters(network: &Network) -> Vec<f32> {
    let mut out = network.init(3);
    for block in network.blocks() {
        let shift = noise(block.len, block.offset as u64 + 1);
        let positive = block.name.contains("variance");
        for (value, shift) in out[block.range()].iter_mut().zip(shift) {
            *value += if positive { shift.abs() } else { 0.02 * shift };
        }
    }
    out
}

fn model(network: &Network, parameters: &[f32]) -> Vec<u8> {
    let mut out = muster_compute::onnx::graph(network);
    for block in network.blocks() {
        out.extend(onnx_head(&Listed {
            name: block.name.clone(),
            shape: block.shape.iter().map(|&side| side as u64).collect(),
        }));
        out.extend_from_slice(bytemuck::cast_slice(&parameters[block.range()]));
    }
    out
}

/// Sum of the losses of the examples in double precision: for classes over their positions, for
/// values their mean.
fn loss(network: &Network, output: &[f32], targets: BatchTargets<'_>) -> f64 {
    let rows = output.chunks(network.outputs());
    match targets {
        BatchTargets::Values(values) => rows
            .zip(values.chunks(network.outputs()))
            .map(|(row, values)| {
                let squares = row
                    .iter()
                    .zip(values)
                    .map(|(a, b)| f64::from(a - b).powi(2));
                squares.sum::<f64>() / row.len() as f64
            })
            .sum(),
        BatchTargets::Classes(classes) => {
            let positions = network.targets();
            let scores = output.chunks(network.outputs() / positions);
            let losses = scores.zip(classes).map(|(scores, &class)| {
                let largest = f64::from(scores.iter().copied().fold(f32::MIN, f32::max));
                let sum: f64 = scores.iter().map(|&x| (f64::from(x) - largest).exp()).sum();
                largest + sum.ln() - f64::from(scores[class as usize])
            });
            losses.sum()
        }
    }
}

fn agrees(name: &str, network: &Network, vocabulary: Option<u32>, python: &str, folder: &Path) {
    let parameters = parameters(network);
    let numbers = network.input().len();
    let mut inputs = noise(EXAMPLES * numbers, 9);
    if let Some(vocabulary) = vocabulary {
        for input in &mut inputs {
            *input = ((*input + 1.0) * 0.499 * vocabulary as f32).floor();
        }
    }
    let classes = network.outputs() / network.targets();
    let labels: Vec<u32> = (0..EXAMPLES * network.targets())
        .map(|i| (i * 7 % classes) as u32)
        .collect();
    let values = noise(EXAMPLES * network.outputs(), 11);
    let targets = if network.wants_classes() {
        BatchTargets::Classes(&labels)
    } else {
        BatchTargets::Values(&values)
    };
    // Each example by itself: an error in one example would be small in the sum of all.
    let mut workspace = network.workspace(1, 1);
    let part =
        |len: usize, example: usize| example * len / EXAMPLES..(example + 1) * len / EXAMPLES;
    let ours: Vec<f64> = (0..EXAMPLES)
        .map(|example| {
            let batch = Batch {
                inputs: &inputs[part(inputs.len(), example)],
                targets: one(targets, |len| part(len, example)),
                draw: RandomKey::default(),
            };
            network
                .evaluate(&mut workspace, &parameters, &batch)
                .loss_sum
        })
        .collect();

    fs::write(folder.join("model.onnx"), model(network, &parameters)).unwrap();
    fs::write(folder.join("input"), bytemuck::cast_slice(&inputs)).unwrap();
    let run = Command::new(python)
        .args(["-c", SCRIPT])
        .arg(folder)
        .arg(numbers.to_string())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{name}: {errors}");
    let output = fs::read(folder.join("output")).unwrap();
    let output: Vec<f32> = bytemuck::pod_collect_to_vec(&output);
    assert_eq!(output.len(), EXAMPLES * network.outputs(), "{name}");
    for (example, ours) in ours.into_iter().enumerate() {
        let output = &output[part(output.len(), example)];
        let theirs = loss(network, output, one(targets, |len| part(len, example)));
        assert!(
            (ours - theirs).abs() <= 2e-4 * ours.abs().max(1.0),
            "{name}: our loss of example {example} is {ours}, that of ONNX Runtime's output {theirs}"
        );
        println!("{name}: {ours} and {theirs}");
    }
}

/// Targets in the range that `part` computes from their number.
fn one<'a>(targets: BatchTargets<'a>, part: impl Fn(usize) -> Range<usize>) -> BatchTargets<'a> {
    match targets {
        BatchTargets::Values(values) => BatchTargets::Values(&values[part(values.len())]),
        BatchTargets::Classes(classes) => BatchTargets::Classes(&classes[part(classes.len())]),
    }
}

/// Builds a list of layers as a document describes it, for images of 28 x 28.
fn listed(layers: &Value) -> Result<Network, BuildError> {
    let document = json!({
        "version": "muster/v1",
        "name": "listed",
        "engine": {
            "model": { "kind": "layers", "layers": layers },
            "dataset": { "name": "fashion-mnist" },
            "optimizer": { "kind": "adam", "learning_rate": 0.001 },
            "batch": 8
        },
        "stop": { "epochs": 1 }
    });
    let spec: JobSpec = serde_json::from_value(document).unwrap();
    assert_eq!(spec.validate(), Ok(()));
    document::network(spec.engine())
}

fn image(side: usize, channels: usize) -> ImageShape {
    ImageShape {
        height: side,
        width: side,
        channels,
    }
}

fn gpt(tied: bool) -> Gpt {
    Gpt {
        length: 12,
        vocabulary: 40,
        width: 24,
        blocks: 2,
        heads: 3,
        tied,
        dropout: 0.1,
    }
}

#[test]
fn onnx_runtime_computes_the_same_losses() {
    let python = python();
    let convolutions = json!([
        { "kind": "conv", "channels": 6, "kernel": [3, 5], "padding": 2, "relu": true },
        { "kind": "conv", "channels": 6, "groups": 6 },
        { "kind": "conv", "channels": 4, "kernel": [3, 1], "stride": 2, "groups": 2, "bias": false },
        { "kind": "batch_norm", "relu": true },
        { "kind": "residual", "layers": [
            { "kind": "conv", "channels": 6 }, { "kind": "activation", "function": "gelu" },
        ], "shortcut": [{ "kind": "conv", "channels": 6, "kernel": 1 }], "relu": true },
        { "kind": "concat", "branches": [[], [{ "kind": "max_pool", "kernel": 3, "stride": 1, "padding": 1 }]] },
        { "kind": "activation", "function": "tanh" },
        { "kind": "upsample", "factor": 2 },
        { "kind": "average_pool", "kernel": 3, "stride": 2, "padding": 1 },
        { "kind": "conv_pool", "channels": 5 },
        { "kind": "activation", "function": "sigmoid" },
        { "kind": "global_average_pool" },
        { "kind": "dense", "width": 7, "relu": true },
    ]);
    let positions = json!([
        { "kind": "conv", "channels": 3, "stride": 4 },
        { "kind": "flatten" },
        { "kind": "reshape", "shape": [21, 7] },
        { "kind": "positions" },
        { "kind": "layer_norm" },
        { "kind": "attention", "heads": 7 },
        { "kind": "dropout", "share": 0.5 },
        { "kind": "lstm", "hidden": 4 },
        { "kind": "gru", "hidden": 3 },
        { "kind": "project", "width": 2 },
        { "kind": "flatten" },
    ]);
    let networks = [
        ("mlp", zoo::mlp(image(9, 1), &[16, 8], 5), None),
        ("cnn", zoo::cnn(image(14, 2), &[4, 8], &[16], 5), None),
        ("lenet5", zoo::lenet5(image(28, 1), 10), None),
        ("alexnet", zoo::alexnet(image(63, 3), 7), None),
        ("vgg 11", zoo::vgg(image(32, 3), 11, false, 7), None),
        (
            "vgg 13, normalised",
            zoo::vgg(image(32, 3), 13, true, 7),
            None,
        ),
        ("convolutions", listed(&convolutions), None),
        ("positions", listed(&positions), None),
        ("resnet 18", zoo::resnet(image(32, 3), 18, 7), None),
        ("googlenet", zoo::googlenet(image(64, 3), 7), None),
        ("densenet", zoo::densenet_small(image(32, 3), 7), None),
        (
            "autoencoder",
            zoo::autoencoder(image(16, 1), &[4, 8], 12),
            None,
        ),
        (
            "lstm",
            zoo::lstm_language_model(11, 30, 12, &[16, 8]),
            Some(30),
        ),
        ("gru", zoo::gru_language_model(11, 30, 12, &[16]), Some(30)),
        ("gpt", zoo::gpt(gpt(false)), Some(40)),
        ("tied gpt", zoo::gpt(gpt(true)), Some(40)),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (name, network, vocabulary) in networks {
        let network = network.unwrap_or_else(|error| panic!("{name}: {error}"));
        agrees(name, &network, vocabulary, &python, folder.path());
    }
}
