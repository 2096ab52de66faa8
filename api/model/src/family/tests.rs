use super::*;
use serde_json::json;

fn engine() -> Value {
    json!({
        "version": "muster/v1", "name": "first",
        "engine": {"model": {"kind": "resnet", "depth": 18}, "dataset": {"name": "mnist", "train_limit": 1000},
                   "optimizer": {"kind": "sgd", "learning_rate": 0.1}, "batch": 64, "seed": 1},
        "scale": {"workers": {"min": 1, "max": 4}}, "stop": {"epochs": 3}
    })
}

fn program() -> Value {
    json!({
        "version": "muster/v1", "name": "speech",
        "command": {"argv": ["python3", "-u", "train.py", "--lr", "0.1"]},
        "pod": {"image": "registry.example.com/trainer:3"}
    })
}

fn family(document: &Value) -> Family {
    let spec = serde_json::from_value(document.clone()).expect("the document is right");
    Family::of(&spec).expect("it trains something")
}

#[test]
fn family_ignores_what_leaves_steps_equal() {
    let first = family(&engine());
    let mut other = engine();
    other["name"] = json!("second");
    other["engine"]["seed"] = json!(2);
    other["engine"]["optimizer"]["learning_rate"] = json!(0.5);
    other["engine"]["dataset"]["train_limit"] = json!(2000);
    other["scale"]["workers"]["max"] = json!(8);
    other["stop"]["epochs"] = json!(9);
    other["exchange"] = json!({"topology": "parameter_server", "hung_after_s": 30});
    assert_eq!(family(&other), first);
    assert_eq!(first.title(), "resnet 18 on mnist, batch 64");
}

#[test]
fn family_differs_where_steps_differ() {
    let first = family(&engine()).key();
    for (part, field, value) in [
        ("engine", "batch", json!(128)),
        ("engine", "max_batch", json!(512)),
        ("engine", "precision", json!("bf16")),
        ("engine", "model", json!({"kind": "resnet", "depth": 34})),
        ("engine", "dataset", json!({"name": "fashion-mnist"})),
        ("resources", "worker", json!({"gpus": 2})),
        ("exchange", "topology", json!("all_reduce")),
    ] {
        let mut other = engine();
        other[part][field] = value;
        assert_ne!(family(&other).key(), first, "{part}.{field}");
    }
}

#[test]
fn program_family_needs_name_image_arguments() {
    let first = family(&program());
    assert_eq!(
        first.title(),
        "speech: python3 train.py in registry.example.com/trainer:3"
    );
    for (pointer, value) in [
        ("/name", json!("vision")),
        ("/command/argv/4", json!("0.2")),
        ("/pod/image", json!("registry.example.com/trainer:4")),
    ] {
        let mut other = program();
        *other.pointer_mut(pointer).expect("the field is there") = value;
        assert_ne!(family(&other), first, "{pointer}");
    }
    let mut shortened: JobSpec = serde_json::from_value(program()).expect("right");
    shortened.command.as_mut().expect("a program").argv.clear();
    assert_eq!(Family::of(&shortened), None);
}

/// The key is stored, so another key for the same text would forget what was learned.
#[test]
fn family_key_is_stable_between_releases() {
    assert_eq!(family(&program()).key(), "943f05b68be9c38f8f1355f23ae6bb11");
    assert_eq!(
        family(&program()).text(),
        r#"program {"argv":["python3","-u","train.py","--lr","0.1"],"gpus":1,"image":"registry.example.com/trainer:3","name":"speech","parameter_servers":0}"#
    );
}
