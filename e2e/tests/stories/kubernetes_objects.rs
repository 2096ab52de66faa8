//! Custom resources in a real API server without Muster: they are served, explained and printed,
//! and errors in an object are reported by field on apply.

use muster_e2e::kubernetes::{Kubernetes, text};
use serde_json::Value;
use std::fmt::Write as _;

/// One valid object, and its invalid variants: path of a field, value, and expected output of
/// kubectl besides the path.
fn objects() -> (Value, Vec<[String; 3]>) {
    let text = include_str!("../../../api/operator/src/crd/objects.yaml");
    let objects: Value = serde_norway::from_str(text).expect("YAML");
    let wrong = serde_json::from_value(objects["wrong"].clone());
    (objects["right"].clone(), wrong.expect("rows of three"))
}

#[tokio::test]
async fn server_serves_custom_resources_and_names_wrong_fields() {
    let kubernetes = Kubernetes::start().await;
    kubernetes.define();
    for kind in ["trainingjobs", "studies", "tenants"] {
        let conditions = kubernetes.says(&[
            "get",
            "crd",
            &format!("{kind}.muster.dev"),
            "-o",
            "jsonpath={range .status.conditions[*]}{.type}={.status} {.reason};{end}",
        ]);
        assert!(conditions.contains("Established=True"), "{conditions}");
        assert!(
            !conditions.contains("NonStructuralSchema=True"),
            "{conditions}"
        );
    }
    is_explained(&kubernetes);
    is_shown(&kubernetes);
    takes_amounts_with_a_unit(&kubernetes);
    let mut missed = String::new();
    for [path, value, said] in &objects().1 {
        let document = with(path, value);
        let output = kubernetes.apply(&document, &["apply", "-f", "-"]);
        let words = text(&output);
        if output.status.success() || !is_named(&words, path, said) {
            writeln!(missed, "{path}: {value}: {words}").expect("a string takes all");
        }
    }
    assert!(missed.is_empty(), "{missed}");
    is_unknown(&kubernetes);
    let left = kubernetes.says(&["get", "mj", "-o", "name"]);
    assert_eq!(
        left, "trainingjob.muster.dev/right\n",
        "nothing wrong was kept"
    );
}

/// helm installs the definitions and stays the manager of their fields. docs/kubernetes.md gives
/// the command of an upgrade.
#[tokio::test]
async fn changed_definitions_can_be_applied_over_those_of_helm() {
    const UPGRADE: &str = "kubectl apply --server-side --force-conflicts -f charts/muster/crds";
    assert!(include_str!("../../../docs/kubernetes.md").contains(UPGRADE));
    let kubernetes = Kubernetes::start().await;
    let carried = without_rules(include_str!("../../../charts/muster/crds/muster.yaml"));
    let by_helm = [
        "apply",
        "--server-side",
        "--validate=false",
        "--field-manager=helm",
        "-f",
        "-",
    ];
    let output = kubernetes.apply(&carried, &by_helm);
    assert!(output.status.success(), "{}", text(&output));
    let about = "Stand-in for a description of the next release.";
    let next = carried.replace("Where the job stands.", about);
    assert_ne!(next, carried);
    let mut upgrade: Vec<&str> = UPGRADE.split(' ').skip(1).collect();
    upgrade.pop();
    upgrade.extend(["-", "--validate=false"]);
    let unforced: Vec<&str> = upgrade
        .iter()
        .copied()
        .filter(|word| *word != "--force-conflicts")
        .collect();
    let refused = kubernetes.apply(&next, &unforced);
    assert!(
        !refused.status.success() && text(&refused).contains("conflict"),
        "{}",
        text(&refused)
    );
    let output = kubernetes.apply(&next, &upgrade);
    assert!(output.status.success(), "{}", text(&output));
    let definition = kubernetes.says(&["get", "crd", "trainingjobs.muster.dev", "-o", "yaml"]);
    assert!(definition.contains(about), "{definition}");
}

/// Definitions without CEL rules, which that server does not support and refuses in a server-side
/// apply.
fn without_rules(definitions: &str) -> String {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("x-kubernetes-validations");
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let documents = definitions.split("---\n").skip(1).map(|document| {
        let mut document: Value = serde_norway::from_str(document).expect("YAML");
        strip(&mut document);
        format!("---\n{}", serde_norway::to_string(&document).expect("YAML"))
    });
    documents.collect()
}

fn takes_amounts_with_a_unit(kubernetes: &Kubernetes) {
    let document =
        with("spec.resources.worker.memory_bytes", "400Gi").replace("name: wrong", "name: large");
    let output = kubernetes.apply(&document, &["apply", "-f", "-"]);
    assert!(output.status.success(), "{}", text(&output));
    let memory = [
        "get",
        "mj",
        "large",
        "-o",
        "jsonpath={.spec.resources.worker.memory_bytes}",
    ];
    assert_eq!(kubernetes.says(&memory), "400Gi");
    let shown = kubernetes.kubectl(&["delete", "mj", "large"]).output();
    assert!(shown.is_ok_and(|output| output.status.success()));
}

/// A rule over several fields names their common parent.
fn is_named(words: &str, path: &str, said: &str) -> bool {
    let parent = path.rsplit_once('.').map_or(path, |(parent, _)| parent);
    let field = if said == "oneOf" { parent } else { path };
    words.contains(said) && (said.contains("spec") || words.contains(field))
}

/// Unknown fields in an otherwise valid object.
fn is_unknown(kubernetes: &Kubernetes) {
    for (path, value) in [
        ("spec.epochs", "3"),
        ("spec.engine.bacth", "3"),
        ("spec.scale.workers.maximum", "3"),
    ] {
        let output = kubernetes.apply(&with(path, value), &["apply", "-f", "-"]);
        let words = text(&output);
        let field = path.rsplit('.').next().expect("a field");
        assert!(
            !output.status.success() && words.contains(field),
            "{path}: {words}"
        );
    }
}

fn is_explained(kubernetes: &Kubernetes) {
    // The server updates its schema some time after it serves a kind.
    for _ in 0..300 {
        let output = kubernetes.kubectl(&["explain", "mj.spec"]).output();
        if output.is_ok_and(|output| output.status.success()) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let words = kubernetes.says(&["explain", "mj.spec.engine.batch"]);
    assert!(
        words.contains("Examples per step over all workers together"),
        "{words}"
    );
    let words = kubernetes.says(&["explain", "studies.spec.search.trials"]);
    assert!(words.contains("1 to 100,000"), "{words}");
    let words = kubernetes.says(&["explain", "tenants.spec.quota.gpus"]);
    assert!(words.contains("GPUs"), "{words}");
    let words = kubernetes.says(&["explain", "--recursive", "mj"]);
    for field in [
        "conditions",
        "position",
        "suspend",
        "learning_rate",
        "ps_shards",
    ] {
        assert!(words.contains(field), "{field} is not in {words}");
    }
}

fn is_shown(kubernetes: &Kubernetes) {
    kubernetes.applied(&objects().0.to_string());
    let table = kubernetes.says(&["get", "mj"]);
    let head = table.lines().next().expect("a head");
    let columns: Vec<&str> = head.split_whitespace().collect();
    let expected = [
        "NAME", "PHASE", "QUEUE", "POS", "WORKERS", "PS", "PROGRESS", "ETA", "AGE",
    ];
    assert_eq!(columns, expected);
    let wide = kubernetes.says(&["get", "mj", "-o", "wide"]);
    assert!(
        wide.lines()
            .next()
            .is_some_and(|head| head.contains("REASON")),
        "{wide}"
    );
    let all = kubernetes.says(&["get", "muster"]);
    assert!(all.contains("right"), "the category: {all}");
}

/// The valid object with another value at a path.
fn with(path: &str, value: &str) -> String {
    let mut object = objects().0;
    object["metadata"]["name"] = "wrong".into();
    let mut at = &mut object;
    for field in path.split('.') {
        at = at
            .as_object_mut()
            .expect("an object")
            .entry(field)
            .or_insert_with(|| serde_json::json!({}));
    }
    *at = serde_norway::from_str(value).expect("YAML");
    serde_norway::to_string(&object).expect("YAML")
}
