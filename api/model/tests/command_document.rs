//! Documents with a user's program: what they may contain, and what only the built-in engine has.

use muster_model::spec::JobSpec;

const RIGHT: &str = "
version: muster/v1
name: a-command
command:
  argv: [python3, train.py]
  env: { LR: '0.1' }
  files: { train.py: 'print(1)' }
scale: { workers: { min: 2, max: 2 } }
";

fn read(change: &str) -> Result<JobSpec, serde_json::Error> {
    let mut document: serde_json::Value = serde_norway::from_str(RIGHT).expect("YAML");
    let change: serde_json::Value = serde_norway::from_str(change).expect("YAML");
    merge(&mut document, change);
    serde_json::from_value(document)
}

fn merge(under: &mut serde_json::Value, over: serde_json::Value) {
    match (under, over) {
        (serde_json::Value::Object(under), serde_json::Value::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key).or_insert(serde_json::Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}

#[test]
fn command_has_no_shards_steps_or_resize_in_place() {
    let spec = read("{}").expect("a document");
    assert_eq!(spec.validate(), Ok(()));
    assert_eq!((spec.ps_shards().min, spec.ps_shards().max), (0, 0));
    assert_eq!((spec.max_steps(), spec.resizes_in_place()), (None, false));
    let elastic = read("command: { elastic: torchrun }").expect("a document");
    assert!(elastic.resizes_in_place(), "by its launcher");
    let spec = read("command: { steps: 40, parameter_servers: 2 }").expect("a document");
    assert_eq!(spec.validate(), Ok(()));
    assert_eq!((spec.ps_shards().min, spec.ps_shards().max), (2, 2));
    assert_eq!(spec.max_steps(), Some(40));
    let again = serde_json::to_string(&spec).expect("JSON");
    assert_eq!(
        serde_json::from_str::<JobSpec>(&again).expect("the same"),
        spec
    );
}

#[test]
fn every_broken_rule_names_its_field() {
    let engine = "engine: { model: { kind: mlp, hidden: [8] }, dataset: { name: mnist }, optimizer: { kind: sgd, learning_rate: 1 }, batch: 8 }";
    let large = format!(
        "command: {{ files: {{ big.bin: '{}' }} }}",
        "x".repeat(65_600)
    );
    let everywhere = format!(
        "command: {{ files: {{ a: '{}' }}, parameter_servers: 64 }}",
        "x".repeat(60_000)
    );
    for (wrong, field) in [
        (engine, "command"),
        ("command: null", "engine"),
        ("command: { argv: [] }", "command.argv"),
        ("command: { argv: [''] }", "command.argv[0]"),
        ("command: { env: { RANK: '3' } }", "command.env.RANK"),
        (
            "command: { env: { MUSTER_X: '3' } }",
            "command.env.MUSTER_X",
        ),
        ("command: { env: { 'a=b': '3' } }", "command.env.a=b"),
        ("command: { files: { ../x: '3' } }", "command.files.../x"),
        (
            "command: { files: { /etc/x: '3' } }",
            "command.files./etc/x",
        ),
        ("command: { files: { a: '', a/b: '' } }", "command.files.a"),
        (large.as_str(), "command.files"),
        (r#"command: { files: { a: "x\0y" } }"#, "command.files.a"),
        (everywhere.as_str(), "command"),
        ("command: { working_dir: /srv }", "command.files"),
        ("command: { steps: 0 }", "command.steps"),
        (
            "command: { parameter_servers: 65 }",
            "command.parameter_servers",
        ),
        (
            "command: { elastic: torchrun, parameter_servers: 1 }",
            "command.parameter_servers",
        ),
        (
            "command: { elastic: torchrun, env: { PET_NNODES: '2' } }",
            "command.env.PET_NNODES",
        ),
        ("stop: { steps: 5 }", "stop"),
        ("checkpoint: { every_steps: 5 }", "checkpoint.every_steps"),
        (
            "checkpoint: { every_minutes: 1 }",
            "checkpoint.every_minutes",
        ),
        (
            "checkpoint: { keep_every_steps: 5 }",
            "checkpoint.keep_every_steps",
        ),
        ("checkpoint: { keep: 0 }", "checkpoint.keep"),
        ("checkpoint: { files: a/* }", "checkpoint.files"),
        ("checkpoint: { files: .muster-rungs }", "checkpoint.files"),
        (
            "checkpoint: { keep_best: { goal: maximize } }",
            "checkpoint.keep_best.metric",
        ),
        (
            "checkpoint: { keep_best: { metric: val/f1 } }",
            "checkpoint.keep_best.goal",
        ),
        (
            "checkpoint: { keep_best: { metric: val/f1, goal: maximize, by: loss } }",
            "checkpoint.keep_best.by",
        ),
        ("evaluate: { every_steps: 5 }", "evaluate"),
        ("exchange: { topology: all_reduce }", "exchange"),
        (
            "scale: { ps_shards: { min: 1, max: 1 } }",
            "scale.ps_shards",
        ),
        (
            "scale: { workers: { min: 0, max: 2 } }",
            "scale.workers.min",
        ),
        (
            "resources: { worker: { gpus: 17 } }",
            "resources.worker.gpus",
        ),
        (
            "{ scale: { workers: { min: 1, max: 2 } }, resources: { worker: { gpus: 0 } } }",
            "scale.workers.max",
        ),
        (
            "resources: { worker: { gpus: 0, gpu_kinds: [H100] } }",
            "resources.worker.gpu_kinds",
        ),
        (
            "resources: { worker: { gpus: 0, gpu_memory_bytes: 40Gi } }",
            "resources.worker.gpu_memory_bytes",
        ),
        (
            "resources: { worker: { gpus: 0, compute_capability: 8.0 } }",
            "resources.worker.compute_capability",
        ),
        (
            "resources: { worker: { gpus: 0, memory_bytes: 0 } }",
            "resources.worker.memory_bytes",
        ),
        (
            "{ exclusive: true, resources: { worker: { gpus: 0 } } }",
            "exclusive",
        ),
        (
            "{ preemption: { allowed: suspend }, resources: { worker: { gpus: 0 } } }",
            "preemption.allowed",
        ),
    ] {
        let spec = read(wrong).unwrap_or_else(|error| panic!("{wrong}: {error}"));
        let errors = spec.validate().expect_err(wrong);
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, [field], "{wrong}: {errors:?}");
    }
}

#[test]
fn command_without_gpus_is_bounded_by_memory() {
    let spec = read(
        "resources: { worker: { gpus: 0, cpu_milli: 2000, exclude_nodes: [a] } }
scale: { workers: { min: 2, max: 2 } }",
    )
    .expect("a document");
    spec.validate().expect("a valid document");
    let demand = spec.resources.worker.demand();
    assert_eq!((demand.cpu_milli, demand.memory_bytes), (2_000, 1 << 30));
    assert!(spec.resources.worker.node_constraints().no_gpus);
}

#[test]
fn unknown_field_of_a_command_is_refused() {
    assert!(read("command: { shell: true }").is_err());
}

#[test]
fn command_title_is_the_program_and_its_script() {
    let spec = read("command: { argv: [python3, -u, train.py, --lr, '0.1'] }").expect("a document");
    assert_eq!(spec.command.expect("a command").title(), "python3 train.py");
}

#[test]
fn unquoted_values_are_accepted_where_unambiguous() {
    let spec = read(
        "command: { argv: [sleep, 5], env: { A: 1, B: -2 }, check: [test, 1] }
resources: { worker: { memory_bytes: 2Gi }, ps_shard: { memory_bytes: 500M } }",
    )
    .expect("a document");
    let command = spec.command.as_ref().expect("a command");
    assert_eq!(command.argv, ["sleep", "5"]);
    assert_eq!(
        (command.env["A"].as_str(), command.env["B"].as_str()),
        ("1", "-2")
    );
    assert_eq!(command.check, ["test", "1"]);
    assert_eq!(spec.resources.worker.memory_bytes, Some(2 << 30));
    assert_eq!(spec.resources.ps_shard.memory_bytes, 500_000_000);
    let again: JobSpec =
        serde_json::from_value(serde_json::to_value(&spec).expect("JSON")).expect("it was");
    assert_eq!(again, spec);
    for (wrong, what) in [
        ("command: { argv: [sleep, 1.10] }", "in quotes"),
        ("command: { env: { A: true } }", "in quotes"),
        ("resources: { worker: { memory_bytes: 2.5 } }", "16Gi"),
        ("resources: { worker: { memory_bytes: much } }", "16Gi"),
        ("resources: { worker: { memory_bytes: -1 } }", "16Gi"),
    ] {
        let error = read(wrong).expect_err(wrong).to_string();
        assert!(error.contains(what), "{wrong}: {error}");
    }
}

#[test]
fn command_refuses_limits_of_the_engine() {
    let spec = read("stop: { wall_minutes: 30 }").expect("a document");
    assert_eq!(spec.validate(), Ok(()));
    for (wrong, field) in [
        ("stop: { wall_minutes: 0 }", "stop.wall_minutes"),
        ("stop: { wall_minutes: 5, epochs: 1 }", "stop"),
    ] {
        let errors = read(wrong).expect("a document").validate();
        let errors = errors.expect_err(wrong);
        assert_eq!(errors[0].field, field, "{wrong}");
    }
}

/// A target ends the program; its metric is one of evaluations or any that the program logs.
#[test]
fn command_may_end_at_a_target_of_any_metric() {
    for right in [
        "{ metric: val/f1, value: 0.9, goal: maximize }",
        "{ metric: regret, value: -2, goal: minimize }",
        "{ metric: test_accuracy, value: 0.9 }",
        "{ metric: test_loss, value: 0.1, goal: minimize }",
    ] {
        let text = format!("stop: {{ target: {right} }}");
        let spec = read(&text).expect("a document");
        assert_eq!(spec.validate(), Ok(()), "{right}");
        let again: JobSpec =
            serde_json::from_value(serde_json::to_value(&spec).expect("JSON")).expect("a document");
        assert_eq!(again, spec);
    }
    for (wrong, field, value) in [
        (
            "{ metric: val/f1, value: 0.9 }",
            "stop.target.goal",
            "missing",
        ),
        (
            "{ metric: acc@1, value: 1, goal: maximize }",
            "stop.target.metric",
            "\"acc@1\"",
        ),
        (
            "{ metric: test_accuracy, value: 0.9, goal: minimize }",
            "stop.target.goal",
            "minimize",
        ),
    ] {
        let spec = read(&format!("stop: {{ target: {wrong} }}")).expect("a document");
        let errors = spec.validate().expect_err(wrong);
        let [error] = errors.as_slice() else {
            panic!("{wrong}: {errors:?}");
        };
        assert_eq!(
            (error.field.as_str(), error.value.as_str()),
            (field, value),
            "{wrong}"
        );
    }
}

#[test]
fn secrets_are_variables_of_their_names_or_files() {
    let change = "command: { secrets: [{ name: HF_TOKEN }, { name: wandb-key, env: WANDB_API_KEY }, { name: HF_TOKEN, file: .netrc }] }";
    let spec = read(change).expect("a document");
    assert_eq!(spec.validate(), Ok(()));
    let command = spec.command.as_ref().expect("a command");
    let variables: Vec<Option<&str>> = command
        .secrets
        .iter()
        .map(muster_model::spec::SecretRef::variable)
        .collect();
    assert_eq!(variables, [Some("HF_TOKEN"), Some("WANDB_API_KEY"), None]);
}

#[test]
fn every_wrong_secret_names_its_field() {
    let many = (0..65).map(|number| format!("{{ name: A{number} }}"));
    let many = many.collect::<Vec<_>>().join(", ");
    for (wrong, field) in [
        (many.as_str(), "command.secrets"),
        ("{ name: a/b, env: A }", "command.secrets[0].name"),
        ("{ name: '', file: a }", "command.secrets[0].name"),
        ("{ name: wandb-key }", "command.secrets[0].name"),
        ("{ name: RANK }", "command.secrets[0].name"),
        ("{ name: a, env: MUSTER_X }", "command.secrets[0].env"),
        ("{ name: a, env: 'A=B' }", "command.secrets[0].env"),
        // `env` of the document sets it.
        ("{ name: LR }", "command.secrets[0].name"),
        ("{ name: a, env: LR }", "command.secrets[0].env"),
        ("{ name: a, env: A, file: a }", "command.secrets[0]"),
        ("{ name: A }, { name: b, env: A }", "command.secrets[1]"),
        (
            "{ name: a, file: x }, { name: b, file: x }",
            "command.secrets[1]",
        ),
        ("{ name: a, file: ../x }", "command.secrets[0].file"),
        ("{ name: a, file: .. }", "command.secrets[0].file"),
        ("{ name: a, file: '' }", "command.secrets[0].file"),
    ] {
        let change = format!("command: {{ secrets: [{wrong}] }}");
        let spec = read(&change).expect("a document");
        let errors = spec.validate().expect_err(wrong);
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, [field], "{wrong}");
    }
}
