//! Conversion of a job document's networks and data sets into those of the engine; accepted
//! documents can be built.

use muster_compute::cuda::ComputePrecision;
use muster_compute::data::BatchTargetsMut;
use muster_compute::model::{ParameterRole, RandomKey};
use muster_model::spec::{Engine, JobSpec};
use muster_training::document;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn job(model: Value, dataset: Value) -> JobSpec {
    serde_json::from_value(json!({
        "version": "muster/v1", "name": "a-job",
        "engine": {
            "model": model, "dataset": dataset, "optimizer": { "kind": "sgd", "learning_rate": 0.1 }, "batch": 4,
        },
        "stop": { "steps": 1 },
    }))
    .unwrap_or_else(|error| panic!("{model}: {error}"))
}

fn images(side: u32, channels: u32) -> Value {
    json!({ "kind": "images", "path": "i", "height": side, "width": side, "channels": channels, "classes": 10,
        "train_examples": 8, "test_examples": 4 })
}

fn text(length: u32) -> Value {
    json!({ "kind": "text", "path": "t", "length": length, "train_examples": 8, "test_examples": 4 })
}

fn rows(columns: u32, learn: Value) -> Value {
    json!({ "kind": "csv", "path": "r.csv", "target": "y", "columns": columns, "learn": learn,
        "train_examples": 8, "test_examples": 4 })
}

/// Number of parameters of the accepted document's network, without running statistics.
fn parameters(model: &Value, dataset: &Value) -> usize {
    let spec = job(model.clone(), dataset.clone());
    if let Err(errors) = spec.validate() {
        panic!("{model} on {dataset}: {errors:?}");
    }
    let network = document::network(spec.engine()).unwrap_or_else(|e| panic!("{model}: {e}"));
    let trained = network
        .blocks()
        .iter()
        .filter(|b| b.role != ParameterRole::Statistic);
    trained.map(|block| block.len).sum()
}

#[test]
fn every_kind_of_network_can_be_built() {
    let values = json!({ "kind": "values", "values": 1 });
    for (model, dataset, expected) in [
        (
            json!({ "kind": "mlp", "hidden": [8] }),
            rows(3, values),
            3 * 8 + 8 + 8 + 1,
        ),
        (
            json!({ "kind": "cnn", "channels": [2], "dense": [] }),
            images(4, 1),
            9 * 2 + 2 + 8 * 10 + 10,
        ),
        (
            json!({ "kind": "lenet5" }),
            json!({ "name": "mnist" }),
            61_706,
        ),
        (json!({ "kind": "alexnet" }), images(224, 3), 57_044_810),
        (
            json!({ "kind": "vgg", "depth": 11 }),
            images(32, 3),
            28_144_010,
        ),
        (json!({ "kind": "googlenet" }), images(32, 3), 5_610_154),
        (
            json!({ "kind": "resnet", "depth": 18 }),
            images(32, 3),
            11_173_962,
        ),
        (
            json!({ "kind": "densenet", "variant": "bc100" }),
            images(32, 3),
            769_162,
        ),
        (
            json!({ "kind": "autoencoder", "channels": [4], "code": 3 }),
            images(4, 1),
            (9 * 4 + 4) + (16 * 3 + 3) + (3 * 16 + 16) + (36 + 1),
        ),
        (
            json!({ "kind": "gpt", "width": 8, "blocks": 1, "heads": 2 }),
            text(6),
            256 * 8 + 6 * 8 + (12 * 64 + 13 * 8) + 2 * 8,
        ),
        (
            json!({ "kind": "lstm", "width": 4, "hidden": [5] }),
            text(6),
            256 * 4 + (4 * 5 * 9 + 20) + 5 * 256 + 256,
        ),
        (
            json!({ "kind": "gru", "width": 4, "hidden": [5] }),
            text(6),
            256 * 4 + (3 * 5 * 9 + 30) + 5 * 256 + 256,
        ),
    ] {
        assert_eq!(parameters(&model, &dataset), expected, "{model}");
    }
}

#[test]
fn a_list_has_every_layer() {
    let conv = json!({ "kind": "conv", "channels": 4, "kernel": [3, 1], "stride": 2, "groups": 2, "bias": false });
    let list = json!({ "kind": "layers", "layers": [
        { "kind": "conv", "channels": 4, "relu": true },
        conv,
        { "kind": "batch_norm", "relu": true },
        { "kind": "residual", "layers": [
            { "kind": "conv", "channels": 6 }, { "kind": "activation", "function": "gelu" },
        ], "shortcut": [{ "kind": "conv", "channels": 6, "kernel": 1 }], "relu": true },
        { "kind": "concat", "branches": [[], [{ "kind": "max_pool", "kernel": 3, "stride": 1, "padding": 1 }]] },
        { "kind": "upsample", "factor": 2 },
        { "kind": "average_pool" },
        { "kind": "conv_pool", "channels": 5 },
        { "kind": "dropout", "share": 0.5 },
        { "kind": "reshape", "shape": [12, 15] },
        { "kind": "positions" },
        { "kind": "layer_norm" },
        { "kind": "attention", "heads": 3 },
        { "kind": "lstm", "hidden": 4 },
        { "kind": "gru", "hidden": 3 },
        { "kind": "project", "width": 2 },
        { "kind": "flatten" },
        { "kind": "dense", "width": 7, "relu": true },
    ]});
    // 28×28 becomes 14×14 after the second layer, and 6×6 after average pooling; twice 14, pooled,
    // is 7×7·5.
    let known = json!({ "name": "fashion-mnist" });
    let mut list = list;
    list["layers"][9] = json!({ "kind": "reshape", "shape": [35, 7] });
    list["layers"][12]["heads"] = json!(7);
    assert!(parameters(&list, &known) > 1000);
    let tokens = json!({ "kind": "layers", "layers": [
        { "kind": "embedding", "width": 8 },
        { "kind": "residual", "layers": [{ "kind": "layer_norm" }, { "kind": "attention", "heads": 2 }] },
        { "kind": "global_average_pool" },
    ]});
    let spec = job(tokens, text(6));
    assert!(
        spec.validate().is_err(),
        "no positions are left of the text"
    );
}

/// Layers of every kind, with valid and invalid settings.
fn layers() -> Vec<Value> {
    let sides = [0, 1, 2, 3, 5];
    let mut list = vec![
        json!({ "kind": "conv_pool", "channels": 2 }),
        json!({ "kind": "global_average_pool" }),
        json!({ "kind": "positions" }),
        json!({ "kind": "layer_norm" }),
        json!({ "kind": "batch_norm" }),
        json!({ "kind": "embedding", "width": 3 }),
        json!({ "kind": "flatten" }),
        json!({ "kind": "dense", "width": 4 }),
        json!({ "kind": "upsample", "factor": 2 }),
        json!({ "kind": "lstm", "hidden": 2 }),
        json!({ "kind": "gru", "hidden": 2 }),
        json!({ "kind": "project", "width": 6 }),
        json!({ "kind": "concat", "branches": [[], [{ "kind": "global_average_pool" }]] }),
        json!({ "kind": "residual", "layers": [{ "kind": "project", "width": 6 }] }),
    ];
    for a in sides {
        list.push(json!({ "kind": "attention", "heads": a }));
        list.push(json!({ "kind": "reshape", "shape": [a, 2] }));
        for b in sides {
            list.push(json!({ "kind": "conv", "channels": 2, "kernel": a, "stride": b }));
            list.push(
                json!({ "kind": "conv", "channels": a, "kernel": 2, "padding": b, "groups": 2 }),
            );
            for kind in ["max_pool", "average_pool"] {
                list.push(json!({ "kind": kind, "kernel": a, "padding": b, "stride": 2 }));
            }
        }
    }
    list
}

/// Checks that validation and builder agree on a list of layers. Returns whether they accept it.
fn is_accepted(list: Vec<Value>, dataset: &Value) -> bool {
    let model = json!({ "kind": "layers", "layers": list });
    let spec = job(model.clone(), dataset.clone());
    let (valid, built) = (spec.validate(), document::network(spec.engine()));
    // The builder does not know the number of targets of the data.
    let targets = if spec.engine().dataset.is_text() {
        4
    } else {
        1
    };
    let fits = built
        .as_ref()
        .is_ok_and(|network| network.targets() == targets);
    assert_eq!(
        valid.is_ok(),
        fits,
        "{model} on {dataset}: {valid:?}, {:?}",
        built.err()
    );
    valid.is_ok()
}

/// The document's validation and the builder are separate. The builder must build every list that
/// the validation accepts. For single layers on small inputs, the validation must not refuse what
/// the builder builds.
#[test]
fn validation_and_builder_agree_on_layers() {
    let layers = layers();
    let mut results = Vec::new();
    let classes = json!({ "kind": "classes", "classes": 3 });
    for dataset in [images(3, 1), images(2, 3), rows(6, classes)] {
        for first in &layers {
            results.push(is_accepted(vec![first.clone()], &dataset));
            for second in &layers {
                let list = vec![first.clone(), second.clone()];
                results.push(is_accepted(list, &dataset));
            }
        }
    }
    for first in &layers {
        for second in &layers {
            let embedding = json!({ "kind": "embedding", "width": 6 });
            let list = vec![embedding, first.clone(), second.clone()];
            results.push(is_accepted(list, &text(4)));
        }
    }
    let accepted = results.iter().filter(|is_accepted| **is_accepted).count();
    let refused = results.len() - accepted;
    assert!(
        accepted > 1000 && refused > 1000,
        "{accepted} and {refused}"
    );
}

fn engine(dataset: Value) -> Engine {
    job(json!({ "kind": "mlp", "hidden": [2] }), dataset)
        .engine()
        .clone()
}

/// Returns the inputs of the eight training examples.
fn inputs(dataset: &Value, root: &Path) -> Vec<f32> {
    let data = document::dataset(&engine(dataset.clone()), root).unwrap();
    let (mut inputs, mut classes) = (vec![0.0; 16], vec![0; 8]);
    let indices: Vec<u32> = (0..8).collect();
    data.train.fill(
        &indices,
        &mut inputs,
        BatchTargetsMut::Classes(&mut classes),
    );
    inputs
}

#[test]
fn a_table_is_scaled_as_the_document_says() {
    let root = tempfile::tempdir().unwrap();
    let lines: String = (0..12)
        .map(|i| format!("{},{},{}\n", i, 100 - 2 * i, i % 2))
        .collect();
    fs::write(root.path().join("r.csv"), format!("a,b,y\n{lines}")).unwrap();
    let mut dataset = rows(2, json!({ "kind": "classes", "classes": 2 }));
    dataset["normalise"] = json!({ "kind": "none" });
    let plain = inputs(&dataset, root.path());
    assert!(plain.chunks(2).all(|row| row[1] == 100.0 - 2.0 * row[0]));
    dataset["normalise"] = json!({ "kind": "given", "mean": [1.0, 50.0], "std": [2.0] });
    let given = inputs(&dataset, root.path());
    for (given, plain) in given.chunks(2).zip(plain.chunks(2)) {
        assert_eq!(given, [(plain[0] - 1.0) / 2.0, (plain[1] - 50.0) / 2.0]);
    }
    dataset["normalise"] = json!({ "kind": "min_max" });
    let scaled = inputs(&dataset, root.path());
    for at in 0..2 {
        let column = scaled.iter().skip(at).step_by(2).copied();
        assert_eq!(column.clone().fold(f32::INFINITY, f32::min), 0.0);
        assert_eq!(column.fold(0.0, f32::max), 1.0);
    }
    dataset.as_object_mut().unwrap().remove("normalise");
    let measured = inputs(&dataset, root.path());
    let mean: f32 = measured.iter().step_by(2).sum::<f32>() / 8.0;
    assert!(mean.abs() < 1e-6, "{mean}");
}

fn augmentation_changes(examples: &muster_compute::data::Examples) -> bool {
    let mut inputs = vec![0.0; 64];
    examples.fill_inputs(&[0, 1, 2, 3], &mut inputs);
    let before = inputs.clone();
    examples.augment(
        &mut inputs,
        RandomKey {
            seed: 1,
            step: 2,
            first: 3,
        },
    );
    inputs != before
}

#[test]
fn only_training_images_are_augmented() {
    let root = tempfile::tempdir().unwrap();
    let mut bytes = b"\x93NUMPY\x01\x00v\x00".to_vec();
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (12, 4, 4, 1), }";
    bytes.extend(format!("{header:<117}\n").bytes());
    bytes.extend((0..12 * 16).map(|i| i as u8));
    fs::create_dir(root.path().join("a")).unwrap();
    fs::write(root.path().join("a/x.npy"), bytes).unwrap();
    let mut bytes = b"\x93NUMPY\x01\x00v\x00".to_vec();
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (12,), }";
    bytes.extend(format!("{header:<117}\n").bytes());
    bytes.extend((0..12).map(|i| i % 2));
    fs::write(root.path().join("a/y.npy"), bytes).unwrap();
    let dataset = json!({ "kind": "arrays", "path": "a",
        "input": { "kind": "image", "height": 4, "width": 4, "channels": 1 },
        "learn": { "kind": "classes", "classes": 2 }, "train_examples": 8, "test_examples": 4,
        "normalise": { "kind": "min_max" }, "augment": [{ "kind": "crop", "padding": 2 }] });
    let data = document::dataset(&engine(dataset), root.path()).unwrap();
    assert!(augmentation_changes(&data.train) && !augmentation_changes(&data.test));
}

/// Precision of a job whose document names this one, on a node with TF32.
fn precision_of(named: Option<&str>) -> ComputePrecision {
    let mut engine = serde_json::to_value(engine(images(4, 1))).unwrap();
    if let Some(named) = named {
        engine["precision"] = named.into();
    }
    let engine: Engine = serde_json::from_value(engine).unwrap();
    document::precision(&engine, ComputePrecision::Tf32)
}

#[test]
fn the_documents_precision_comes_before_the_nodes() {
    assert_eq!(precision_of(None), ComputePrecision::Tf32);
    for (text, expected) in [
        ("f32", ComputePrecision::F32),
        ("tf32", ComputePrecision::Tf32),
        ("bf16", ComputePrecision::Bf16),
    ] {
        assert_eq!(precision_of(Some(text)), expected);
    }
}
