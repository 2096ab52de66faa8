//! The `pod` part of a job document.

use muster_model::spec::JobSpec;

const RIGHT: &str = "
version: muster/v1
name: own-image
command: { argv: [python3, train.py] }
pod:
  image: registry.example.com:5000/vision/trainer@sha256:0123
  pull_secrets: [vision-registry]
  secret_env: { WANDB_API_KEY: { secret: wandb, key: api-key } }
  volumes:
    - { kind: claim, name: imagenet, path: /data, read_only: true, sub_path: train/small }
    - { kind: secret, name: wandb, path: /etc/wandb }
    - { kind: config_map, name: settings, path: /etc/settings }
    - { kind: scratch, path: /scratch, bytes: 100Gi }
    - { kind: memory, path: /dev/shm, bytes: 8Gi }
";

fn read(pod: &str) -> Result<JobSpec, String> {
    let mut document: serde_json::Value = serde_norway::from_str(RIGHT).expect("YAML");
    let pod: serde_json::Value = serde_norway::from_str(pod).expect("YAML");
    for (field, value) in pod.as_object().expect("fields") {
        document["pod"][field] = value.clone();
    }
    serde_json::from_value(document).map_err(|error| error.to_string())
}

fn broken(pod: &str) -> Vec<String> {
    let spec = read(pod).expect("a document");
    let errors = spec.validate().err().unwrap_or_default();
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn pod_document_survives_a_round_trip() {
    let spec = read("{}").expect("a document");
    assert_eq!(spec.validate(), Ok(()));
    assert_eq!(spec.pod.volumes[4].path(), "/dev/shm");
    let text = serde_json::to_string(&spec).expect("JSON");
    assert!(
        text.contains(&format!("\"bytes\":{}", 8_u64 << 30)),
        "{text}"
    );
    let again: JobSpec = serde_json::from_str(&text).expect("the same");
    assert_eq!(again, spec);
}

/// Executors of earlier releases do not know the field.
#[test]
fn document_without_pod_is_written_without_it() {
    let text = "{ version: muster/v1, name: x, command: { argv: ['true'] } }";
    let spec: JobSpec = serde_norway::from_str(text).expect("a document");
    assert!(spec.pod.is_empty());
    let text = serde_json::to_string(&spec).expect("JSON");
    assert!(!text.contains("pod"), "{text}");
}

#[test]
fn every_broken_rule_names_its_field() {
    for (pod, field) in [
        ("{ image: '' }", "pod.image is \"\""),
        ("{ image: 'a b' }", "pod.image is \"a b\""),
        ("{ image: '-x' }", "pod.image"),
        ("{ pull_secrets: [A] }", "pod.pull_secrets[0] is \"A\""),
        (
            "{ secret_env: { 1A: { secret: a, key: b } } }",
            "pod.secret_env.1A",
        ),
        (
            "{ secret_env: { RANK: { secret: a, key: b } } }",
            "pod.secret_env.RANK is \"RANK\"; expected left out",
        ),
        (
            "{ secret_env: { MUSTER_X: { secret: a, key: b } } }",
            "pod.secret_env.MUSTER_X",
        ),
        (
            "{ secret_env: { NVIDIA_VISIBLE_DEVICES: { secret: a, key: b } } }",
            "pod.secret_env.NVIDIA_VISIBLE_DEVICES",
        ),
        (
            "{ secret_env: { A: { secret: a/b, key: b } } }",
            "pod.secret_env.A.secret",
        ),
        (
            "{ secret_env: { A: { secret: a, key: ../b } } }",
            "pod.secret_env.A.key",
        ),
        (
            "{ volumes: [{ kind: scratch, path: relative, bytes: 1 }] }",
            "pod.volumes[0].path is \"relative\"",
        ),
        (
            "{ volumes: [{ kind: scratch, path: /, bytes: 1 }] }",
            "pod.volumes[0].path",
        ),
        (
            "{ volumes: [{ kind: scratch, path: /a/../b, bytes: 1 }] }",
            "pod.volumes[0].path",
        ),
        (
            "{ volumes: [{ kind: scratch, path: '/a:b', bytes: 1 }] }",
            "pod.volumes[0].path",
        ),
        (
            "{ volumes: [{ kind: scratch, path: /a/, bytes: 1 }] }",
            "pod.volumes[0].path",
        ),
        (
            "{ volumes: [{ kind: memory, path: /a, bytes: 0 }] }",
            "pod.volumes[0].bytes is 0",
        ),
        (
            "{ volumes: [{ kind: claim, name: a_b, path: /a }] }",
            "pod.volumes[0].name",
        ),
        (
            "{ volumes: [{ kind: claim, name: a, path: /a, sub_path: ../b }] }",
            "pod.volumes[0].sub_path",
        ),
        (
            "{ volumes: [{ kind: claim, name: a, path: /a }, { kind: secret, name: b, path: /a }] }",
            "pod.volumes[1].path is \"/a\"; expected a path that no other volume has",
        ),
    ] {
        let broken = broken(pod);
        assert!(
            broken.len() == 1 && broken[0].starts_with(field),
            "{pod}: {broken:?}"
        );
    }
    let many = format!("{{ pull_secrets: [{}] }}", ["a"; 17].join(", "));
    assert!(broken(&many)[0].starts_with("pod.pull_secrets is 17 secrets; expected at most 16"));
}

#[test]
fn unknown_fields_and_kinds_are_refused() {
    for (pod, said) in [
        ("{ images: a }", "unknown field `images`"),
        (
            "{ volumes: [{ kind: host, path: /a }] }",
            "unknown variant `host`",
        ),
        (
            "{ volumes: [{ kind: secret, name: a, path: /a, bytes: 1 }] }",
            "unknown field `bytes`",
        ),
        (
            "{ volumes: [{ kind: scratch, path: /a }] }",
            "missing field `bytes`",
        ),
        (
            "{ secret_env: { A: { name: a, key: b } } }",
            "unknown field `name`",
        ),
    ] {
        let error = read(pod).expect_err(pod);
        assert!(error.contains(said), "{pod}: {error}");
    }
}

#[test]
fn engine_job_may_have_volumes_but_no_image() {
    let engine = "
version: muster/v1
name: built-in
engine: { model: { kind: mlp, hidden: [8] }, dataset: { name: mnist }, optimizer: { kind: sgd, learning_rate: 1 }, batch: 8 }
stop: { steps: 1 }
pod: { volumes: [{ kind: claim, name: imagenet, path: /data }] }
";
    let mut spec: JobSpec = serde_norway::from_str(engine).expect("a document");
    assert_eq!(spec.validate(), Ok(()));
    spec.pod.image = Some("r.io/x".to_owned());
    let errors = spec.validate().expect_err("it has an image");
    assert!(
        errors[0].to_string().contains("left out with engine"),
        "{errors:?}"
    );
}

/// Nodes whose tasks are processes honour an image and empty folders.
#[test]
fn only_cluster_objects_need_pods() {
    let needs = |pod: &str| {
        let text =
            format!("{{ version: muster/v1, name: x, command: {{ argv: [x] }}, pod: {pod} }}");
        let spec: JobSpec = serde_norway::from_str(&text).expect("a document");
        spec.pod.needs_pods()
    };
    for pod in [
        "{}",
        "{ image: r.io/x }",
        "{ image: x, volumes: [{ kind: memory, path: /dev/shm, bytes: 1 }, { kind: scratch, path: /s, bytes: 1 }] }",
    ] {
        assert!(!needs(pod), "{pod}");
    }
    for pod in [
        "{ volumes: [{ kind: memory, path: /dev/shm, bytes: 1 }] }",
        "{ image: x, volumes: [{ kind: claim, name: c, path: /c }] }",
        "{ image: x, volumes: [{ kind: config_map, name: c, path: /c }] }",
        "{ image: x, pull_secrets: [a] }",
        "{ image: x, secret_env: { A: { secret: a, key: k } } }",
    ] {
        assert!(needs(pod), "{pod}");
    }
}
