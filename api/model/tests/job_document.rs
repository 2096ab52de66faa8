//! The job document: examples are valid, unknown fields are refused, and every broken rule is
//! named.

use muster_model::spec::JobSpec;
use std::path::Path;

#[test]
fn every_example_is_valid_and_survives_a_round_trip() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("examples/ is there") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a readable example");
        // JSON is also YAML.
        let spec: JobSpec =
            serde_norway::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        spec.validate()
            .unwrap_or_else(|errors| panic!("{}: {errors:?}", path.display()));
        let again: JobSpec = serde_json::from_str(&serde_json::to_string(&spec).expect("JSON"))
            .expect("the same document");
        assert_eq!(again, spec);
        seen += 1;
    }
    assert!(seen >= 3);
}

#[test]
fn unknown_fields_are_refused_at_every_level() {
    for (at, wrong) in [
        ("", "surprise: 1"),
        (
            "engine.model",
            "engine: { model: { kind: mlp, hidden: [8], depth: 3 } }",
        ),
        (
            "engine.optimizer",
            "engine: { optimizer: { kind: sgd, learning_rate: 0.1, nesterow: true } }",
        ),
        (
            "exchange.consistency",
            "exchange: { consistency: { kind: ssp, staleness: 2, bound: 3 } }",
        ),
        (
            "exchange.consistency bsp",
            "exchange: { consistency: { kind: bsp, staleness: 2 } }",
        ),
        (
            "exchange.averaging",
            "exchange: { averaging: { kind: local_sgd, every: 4, momentum: 0.5 } }",
        ),
        (
            "exchange.compression",
            "exchange: { compression: { codec: { kind: one_bit }, density: 0.1 } }",
        ),
        (
            "exchange.compression.codec",
            "exchange: { compression: { codec: { kind: one_bit, bits: 2 } } }",
        ),
        (
            "exchange.compression none",
            "exchange: { compression: nothing }",
        ),
        (
            "scale.workers",
            "scale: { workers: { min: 1, max: 2, step: 1 } }",
        ),
        ("resources.worker", "resources: { worker: { gpu: 1 } }"),
        ("checkpoint", "checkpoint: { every_step: 5 }"),
        ("evaluate", "evaluate: { every_step: 5 }"),
        ("stop", "stop: { epochs: 1, epoch: 2 }"),
        (
            "engine.dataset",
            "engine: { dataset: { kind: text, path: a, length: 4, train_examples: 9, test_examples: 1, classes: 3 } }",
        ),
        (
            "engine.dataset known",
            "engine: { dataset: { name: mnist, path: a } }",
        ),
        (
            "a layer",
            "engine: { model: { kind: layers, layers: [ { kind: flatten, shape: [3] } ] } }",
        ),
        ("engine.schedule", "engine: { schedule: { warm_up: 3 } }"),
    ] {
        let document = merged(wrong);
        let read = serde_json::from_value::<JobSpec>(document);
        assert!(read.is_err(), "{at}: an unknown field was accepted");
    }
}

#[test]
fn broken_rule_names_field_value_and_expectation() {
    for (wrong, field, value) in [
        ("name: Bad_Name", "name", "\"Bad_Name\""),
        ("name: ''", "name", "\"\""),
        ("priority: 101", "priority", "101"),
        ("engine: { batch: 0 }", "engine.batch", "0"),
        ("engine: { batch: 70000 }", "engine.batch", "70000"),
        (
            "engine: { dataset: { name: fashion-mnist, train_limit: 10 } }",
            "engine.dataset.train_limit",
            "10",
        ),
        (
            "engine: { dataset: { name: fashion-mnist, test_limit: 0 } }",
            "engine.dataset.test_limit",
            "0",
        ),
        (
            "engine: { model: { kind: cnn, channels: [], dense: [] } }",
            "engine.model.channels",
            "0 layers",
        ),
        (
            "engine: { model: { kind: mlp, hidden: [0] } }",
            "engine.model.hidden[0]",
            "0",
        ),
        (
            "engine: { optimizer: { kind: sgd, learning_rate: -1 } }",
            "engine.optimizer.learning_rate",
            "-1",
        ),
        (
            "engine: { optimizer: { kind: sgd, learning_rate: 1, momentum: 1 } }",
            "engine.optimizer.momentum",
            "1",
        ),
        (
            "exchange: { consistency: { kind: ssp, staleness: 0 } }",
            "exchange.consistency.staleness",
            "0",
        ),
        (
            "scale: { workers: { min: 0, max: 1 } }",
            "scale.workers.min",
            "0",
        ),
        (
            "scale: { workers: { min: 3, max: 2 } }",
            "scale.workers.max",
            "2",
        ),
        (
            "scale: { workers: { min: 1, max: 256 } }",
            "scale.workers.max",
            "256",
        ),
        (
            "scale: { workers: { min: 2, max: 6 }, power_of_two: true }",
            "scale.workers.max",
            "6",
        ),
        (
            "scale: { workers: { min: 3, max: 8 }, power_of_two: true }",
            "scale.workers.min",
            "3",
        ),
        (
            "scale: { ps_shards: { min: 1, max: 2000 } }",
            "scale.ps_shards.max",
            "2000",
        ),
        (
            "{ scale: { workers: { min: 1, max: 2 } }, resources: { worker: { gpus: 0 } } }",
            "scale.workers.max",
            "2",
        ),
        (
            "{ exclusive: true, resources: { worker: { gpus: 0 } } }",
            "exclusive",
            "true",
        ),
        (
            "resources: { worker: { gpus: 2 } }",
            "resources.worker.gpus",
            "2",
        ),
        (
            "resources: { ps_shard: { memory_bytes: 1 } }",
            "resources.ps_shard.memory_bytes",
            "1",
        ),
        (
            "checkpoint: { every_steps: 0 }",
            "checkpoint.every_steps",
            "0",
        ),
        (
            "checkpoint: { every_minutes: 0 }",
            "checkpoint.every_minutes",
            "0",
        ),
        ("checkpoint: { keep: 0 }", "checkpoint.keep", "0"),
        ("evaluate: { every_steps: 0 }", "evaluate.every_steps", "0"),
        ("stop: { epochs: 0 }", "stop.epochs", "0"),
        ("stop: { epochs: null }", "stop", "without an end"),
        (
            "stop: { target: { metric: test_accuracy, value: 1.5 } }",
            "stop.target.value",
            "1.5",
        ),
        (
            "stop: { target: { metric: val/f1, value: 0.5 } }",
            "stop.target.metric",
            "\"val/f1\"",
        ),
        (
            "stop: { target: { metric: test_loss, value: 0.5, goal: maximize } }",
            "stop.target.goal",
            "maximize",
        ),
        (
            "stop: { convergence: { relative_loss_drop: 1, epochs: 2 } }",
            "stop.convergence.relative_loss_drop",
            "1",
        ),
        ("retries: 101", "retries", "101"),
    ] {
        let spec: JobSpec =
            serde_json::from_value(merged(wrong)).unwrap_or_else(|e| panic!("{wrong}: {e}"));
        let errors = spec.validate().expect_err(wrong);
        let is_named = errors.iter().any(|error| {
            error.field == field && error.value == value && !error.expected.is_empty()
        });
        assert!(is_named, "{wrong}: {errors:?}");
        assert_eq!(errors.len(), 1, "{wrong} breaks one rule only: {errors:?}");
    }
}

fn layers(list: &str) -> String {
    format!("engine: {{ model: {{ kind: layers, layers: {list} }} }}")
}

fn text_at(path: &str) -> String {
    format!(
        "engine: {{ dataset: {{ kind: text, path: {path}, length: 4, train_examples: 999, test_examples: 1 }}, model: {{ kind: lstm, width: 4, hidden: [4] }} }}"
    )
}

fn images(rest: &str) -> String {
    format!(
        "engine: {{ dataset: {{ kind: images, path: a, height: 8, width: 6, classes: 3, train_examples: 999, test_examples: 1, {rest} }} }}"
    )
}

#[test]
fn untrainable_network_is_refused_with_expectation() {
    let text = "dataset: { kind: text, path: a, length: 4, train_examples: 999, test_examples: 1 }";
    for (wrong, field, expected) in [
        (
            "engine: { model: { kind: cnn, channels: [2, 2, 2, 2, 2], dense: [] } }".to_owned(),
            "engine.model.channels",
            "at most 4 layers",
        ),
        (
            "engine: { model: { kind: resnet, depth: 20 } }".to_owned(),
            "engine.model.depth",
            "one of 18, 34, 50, 101, 152",
        ),
        (
            "engine: { model: { kind: vgg, depth: 16 } }".to_owned(),
            "engine.model.kind",
            "at least 32×32",
        ),
        (
            "engine: { model: { kind: gpt, width: 8, blocks: 1, heads: 2 } }".to_owned(),
            "engine.model.kind",
            "a text for gpt",
        ),
        (
            format!("engine: {{ {text}, model: {{ kind: cnn, channels: [2], dense: [] }} }}"),
            "engine.model.kind",
            "images with classes",
        ),
        (
            format!("engine: {{ {text}, model: {{ kind: gpt, width: 9, blocks: 1, heads: 2 }} }}"),
            "engine.model.heads",
            "a divisor of the width (9)",
        ),
        (layers("[]"), "engine.model.layers", "at least 1 layer"),
        (
            layers("[ { kind: global_average_pool }, { kind: conv, channels: 2 } ]"),
            "engine.model.layers[1]",
            "an image",
        ),
        (
            layers("[ { kind: average_pool, kernel: 28 }, { kind: max_pool } ]"),
            "engine.model.layers[1].kernel",
            "what fits into 1×1",
        ),
        (
            layers("[ { kind: residual, layers: [ { kind: conv, channels: 2 } ] } ]"),
            "engine.model.layers[0]",
            "two equal shapes",
        ),
        (
            layers("[ { kind: concat, branches: [ [], [ { kind: max_pool } ] ] } ]"),
            "engine.model.layers[0].branches[1]",
            "[28, 28, 1]",
        ),
        (
            layers("[ { kind: embedding, width: 2 } ]"),
            "engine.model.layers[0]",
            "tokens",
        ),
        (
            layers("[ { kind: dense, width: 1048576 }, { kind: dense, width: 4096 } ]"),
            "engine.model.layers[1]",
            "at most 2147483648 parameters",
        ),
        (
            text_at("../secret"),
            "engine.dataset.path",
            "below the data-set root",
        ),
        (
            text_at("/etc/passwd"),
            "engine.dataset.path",
            "below the data-set root",
        ),
        (
            text_at("a/./b"),
            "engine.dataset.path",
            "below the data-set root",
        ),
        (
            images("channels: 2"),
            "engine.dataset.channels",
            "1 (grey) or 3",
        ),
        (
            images("augment: [ { kind: crop, padding: 4 } ]"),
            "engine.dataset.augment[0].padding",
            "1 to 3",
        ),
        (
            images("normalise: { kind: given, mean: [0, 1], std: [1] }"),
            "engine.dataset.normalise.mean",
            "one for each of 3",
        ),
        (
            "engine: { optimizer: { kind: sgd, learning_rate: 1, nesterov: true } }".to_owned(),
            "engine.optimizer.nesterov",
            "false without momentum",
        ),
        (
            "engine: { optimizer: { kind: rmsprop, learning_rate: 1, epsilon: 0 } }".to_owned(),
            "engine.optimizer.epsilon",
            "1e-30 to 1",
        ),
        (
            "engine: { schedule: { warmup_steps: 5, decay: { kind: cosine, total_steps: 5 } } }"
                .to_owned(),
            "engine.schedule.decay.total_steps",
            "more than warmup_steps (5)",
        ),
        (
            "engine: { batch_rule: adascale }".to_owned(),
            "engine.batch_rule",
            "only all_reduce without averaging",
        ),
        (
            "{ engine: { batch_rule: adascale }, exchange: { topology: all_reduce, averaging: { kind: gossip, every: 2 } } }"
                .to_owned(),
            "engine.batch_rule",
            "only all_reduce without averaging",
        ),
        (
            "{ engine: { batch_rule: adascale }, exchange: { topology: all_reduce, compression: { codec: { kind: one_bit } } } }"
                .to_owned(),
            "engine.batch_rule",
            "exchange.compression none",
        ),
        (
            "{ engine: { batch_rule: adascale, optimizer: { kind: adam, learning_rate: 0.1 } }, exchange: { topology: all_reduce } }"
                .to_owned(),
            "engine.batch_rule",
            "engine.optimizer sgd",
        ),
        (
            "{ engine: { batch_rule: adascale, batch: 4096 }, exchange: { topology: all_reduce }, scale: { workers: { min: 2, max: 64 } } }"
                .to_owned(),
            "scale.workers.max",
            "(131072 with adascale) has at most 60000",
        ),
        (
            "{ engine: { batch_rule: goodput, max_batch: 256 } }".to_owned(),
            "engine.batch_rule",
            "only all_reduce without averaging",
        ),
        (
            "{ engine: { batch_rule: goodput }, exchange: { topology: all_reduce } }".to_owned(),
            "engine.max_batch",
            "more than engine.batch (128)",
        ),
        (
            "{ engine: { batch_rule: goodput, max_batch: 128 }, exchange: { topology: all_reduce } }"
                .to_owned(),
            "engine.max_batch",
            "more than engine.batch (128)",
        ),
        (
            "{ engine: { batch_rule: goodput, max_batch: 60001 }, exchange: { topology: all_reduce } }"
                .to_owned(),
            "engine.max_batch",
            "at most 60000 examples",
        ),
        (
            "engine: { max_batch: 256 }".to_owned(),
            "engine.max_batch",
            "left out, or batch_rule goodput",
        ),
        (
            "engine: { accumulate: 0 }".to_owned(),
            "engine.accumulate",
            "1 to 1024",
        ),
        (hogwild("hogwild_threads: 65", ""), "engine.hogwild_threads", "1 to 64"),
        (
            hogwild("hogwild_threads: 4", "exchange: { topology: all_reduce, averaging: { kind: gossip, every: 2 } }"),
            "engine.hogwild_threads",
            "without averaging",
        ),
        (
            hogwild("hogwild_threads: 4", "scale: { workers: { min: 1, max: 2 } }"),
            "engine.hogwild_threads",
            "scale.workers 1 to 1",
        ),
        (
            hogwild("hogwild_threads: 4, optimizer: { kind: sgd, learning_rate: 0.1, momentum: 0.9 }", ""),
            "engine.hogwild_threads",
            "without momentum",
        ),
        (
            hogwild("hogwild_threads: 4, optimizer: { kind: adam, learning_rate: 0.1 }", ""),
            "engine.hogwild_threads",
            "engine.optimizer sgd",
        ),
        (
            hogwild("hogwild_threads: 4, clip_norm: 1", ""),
            "engine.hogwild_threads",
            "no clip_norm",
        ),
    ] {
        let spec: JobSpec =
            serde_json::from_value(merged(&wrong)).unwrap_or_else(|e| panic!("{wrong}: {e}"));
        let errors = spec.validate().expect_err(&wrong);
        let errors: Vec<_> = errors
            .iter()
            .filter(|error| !error.expected.contains("not yet supported"))
            .collect();
        assert!(
            errors.len() == 1 && errors[0].field == field && errors[0].expected.contains(expected),
            "{wrong}: {errors:?}"
        );
    }
}

#[test]
fn exchange_options_that_conflict_are_named() {
    for (wrong, field, value) in [
        (
            "exchange: { algorithm: ring }",
            "exchange.algorithm",
            "ring",
        ),
        (
            "exchange: { algorithm: nccl }",
            "exchange.algorithm",
            "nccl",
        ),
        (
            "exchange: { topology: all_reduce, algorithm: nccl, averaging: { kind: local_sgd, every: 2 } }",
            "exchange.algorithm",
            "nccl",
        ),
        (
            "exchange: { topology: all_reduce, algorithm: nccl, compression: { codec: { kind: one_bit } } }",
            "exchange.algorithm",
            "nccl",
        ),
        (
            "{ engine: { batch_rule: adascale }, exchange: { topology: all_reduce, algorithm: nccl } }",
            "exchange.algorithm",
            "nccl",
        ),
        (
            "exchange: { topology: all_reduce, consistency: { kind: asp } }",
            "exchange.consistency",
            "asp",
        ),
        (
            "{ exchange: { topology: all_reduce }, scale: { ps_shards: { min: 1, max: 1 } } }",
            "scale.ps_shards",
            "1 to 1",
        ),
        (
            "scale: { ps_shards: { min: 0, max: 0 } }",
            "scale.ps_shards.min",
            "0",
        ),
        (
            "{ exchange: { shard_replicas: 1 }, scale: { ps_shards: { min: 1, max: 1 } } }",
            "exchange.shard_replicas",
            "1",
        ),
        (
            "exchange: { topology: all_reduce, shard_replicas: 1 }",
            "exchange.shard_replicas",
            "1",
        ),
        (
            "exchange: { topology: all_reduce, local_aggregation: true }",
            "exchange.local_aggregation",
            "true",
        ),
        (
            "exchange: { consistency: { kind: asp }, local_aggregation: true }",
            "exchange.local_aggregation",
            "true",
        ),
        (
            "exchange: { compression: { codec: { kind: one_bit } }, local_aggregation: true }",
            "exchange.local_aggregation",
            "true",
        ),
        (
            "exchange: { consistency: { kind: bsp, backup: 1 } }",
            "exchange.consistency.backup",
            "1",
        ),
        (
            "exchange: { topology: all_reduce, averaging: { kind: easgd, every: 0, rho: 0.5 } }",
            "exchange.averaging.every",
            "0",
        ),
        (
            "exchange: { topology: all_reduce, averaging: { kind: fedavg, every: 1, share: 0 } }",
            "exchange.averaging.share",
            "0",
        ),
        (
            "exchange: { topology: all_reduce, averaging: { kind: local_sgd, every: 2 }, compression: { codec: { kind: one_bit } } }",
            "exchange.compression",
            "with a codec",
        ),
        (
            "exchange: { topology: all_reduce, averaging: { kind: fedavg, every: 1, share: 1, alpha: 0 } }",
            "exchange.averaging.alpha",
            "0",
        ),
        (
            "exchange: { topology: all_reduce, hung_after_s: 1 }",
            "exchange.hung_after_s",
            "1",
        ),
        (
            "exchange: { hung_after_s: 20 }",
            "exchange.hung_after_s",
            "20",
        ),
        (
            "exchange: { compression: { codec: { kind: qsgd, bits: 9 } } }",
            "exchange.compression.codec.bits",
            "9",
        ),
        (
            "exchange: { compression: { codec: { kind: none }, layers: [ { blocks: 'a*b*', codec: { kind: none } } ] } }",
            "exchange.compression.layers[0].blocks",
            "\"a*b*\"",
        ),
    ] {
        let spec: JobSpec =
            serde_json::from_value(merged(wrong)).unwrap_or_else(|e| panic!("{wrong}: {e}"));
        let errors = spec.validate().expect_err(wrong);
        let named: Vec<_> = errors
            .iter()
            .filter(|error| !error.expected.contains("not yet supported"))
            .collect();
        assert!(
            named.len() == 1 && named[0].field == field && named[0].value == value,
            "{wrong}: {errors:?}"
        );
    }
}

#[test]
fn nccl_accepts_accumulate_and_clip_norm() {
    let right = "{ engine: { accumulate: 4, clip_norm: 1.0 }, exchange: { topology: all_reduce, algorithm: nccl } }";
    let spec: JobSpec = serde_json::from_value(merged(right)).expect("a document");
    assert_eq!(spec.validate(), Ok(()));
}

fn read(change: &str) -> JobSpec {
    serde_json::from_value(merged(change)).expect("a document")
}

#[test]
fn all_reduce_job_has_no_shards_by_default() {
    let servers = read("priority: 0");
    assert_eq!((servers.ps_shards().min, servers.ps_shards().max), (1, 1));
    let peers = read("exchange: { topology: all_reduce }");
    assert_eq!((peers.ps_shards().min, peers.ps_shards().max), (0, 0));
    let twice = "{ exchange: { topology: all_reduce }, scale: { ps_shards: { min: 0, max: 0 } } }";
    assert_eq!(read(twice).ps_shards(), peers.ps_shards());
}

#[test]
fn documents_of_earlier_releases_keep_their_meaning() {
    let old = "
exchange: { topology: parameter_server, consistency: { kind: bsp }, compression: none }
scale: { workers: { min: 1, max: 1 }, ps_shards: { min: 1, max: 1 } }";
    let read: JobSpec = serde_json::from_value(merged(old)).expect("an old document");
    let plain: JobSpec = serde_json::from_value(merged("priority: 0")).expect("a document");
    assert_eq!(read.exchange, plain.exchange);
    let json = serde_json::to_string(&plain.exchange).expect("JSON");
    assert_eq!(
        json,
        r#"{"topology":"parameter_server","consistency":{"kind":"bsp"},"compression":"none"}"#
    );
}

#[test]
fn large_engine_documents_of_many_tasks_are_refused() {
    let labels: Vec<String> = (0..64)
        .map(|number| format!("label-{number}: {}", "x".repeat(250)))
        .collect();
    let read = |shards: u32| -> JobSpec {
        let scale = format!(
            "{{ labels: {{ {} }}, scale: {{ ps_shards: {{ min: 1, max: {shards} }} }} }}",
            labels.join(", ")
        );
        serde_json::from_value(merged(&scale)).expect("a document")
    };
    assert_eq!(read(64).validate(), Ok(()));
    let errors = read(1024).validate().expect_err("each task has its own");
    let [error] = errors.as_slice() else {
        panic!("{errors:?}");
    };
    assert_eq!(error.field, "engine");
    assert!(error.value.contains("each of 1025 tasks"), "{error}");
    assert!(error.expected.contains("16777216 bytes"), "{error}");
}

/// A valid job whose threads share parameters, with one mistake in `engine` or `more`.
fn hogwild(engine: &str, more: &str) -> String {
    let exchange = if more.contains("exchange") {
        ""
    } else {
        "exchange: { topology: all_reduce }, "
    };
    format!("{{ engine: {{ {engine} }}, {exchange}{more} }}")
}

/// Merges `change` into a valid document. An object with a `kind` is replaced as a whole.
fn merged(change: &str) -> serde_json::Value {
    let right = "
version: muster/v1
name: a-job
engine:
  model: { kind: mlp, hidden: [8] }
  dataset: { name: fashion-mnist }
  optimizer: { kind: sgd, learning_rate: 0.1 }
  batch: 128
stop: { epochs: 1 }
";
    let mut document: serde_json::Value = serde_norway::from_str(right).expect("YAML");
    merge(&mut document, serde_norway::from_str(change).expect("YAML"));
    document
}

fn merge(under: &mut serde_json::Value, over: serde_json::Value) {
    match (under, over) {
        (serde_json::Value::Object(under), serde_json::Value::Object(over))
            if !over.contains_key("kind") =>
        {
            for (key, value) in over {
                merge(under.entry(key).or_insert(serde_json::Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}
