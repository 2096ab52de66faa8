//! Tests of the operator's flags.

use clap::Parser as _;
use muster_operator::config::{OperatorArgs, OperatorCommand, OperatorRunArgs};
use muster_operator::nodes::{PlaceholderSettings, PlaceholderSettingsError};
use serde_json::json;

fn run(further: &[&str]) -> Result<OperatorRunArgs, clap::Error> {
    let given = ["muster-operator", "run", "--token", "x"];
    match OperatorArgs::try_parse_from(given.iter().chain(further))?.command {
        OperatorCommand::Run(run) => Ok(*run),
        OperatorCommand::Crds => panic!("it was told to run"),
    }
}

#[test]
fn operator_follows_all_objects_by_default() {
    let all = run(&[]).expect("right").scope();
    assert!(all.namespaces.is_empty() && all.tenants);
    let some = [
        "--namespace",
        "vision,speech",
        "--namespace",
        "text",
        "--tenants",
        "false",
    ];
    let some = run(&some).expect("right").scope();
    assert_eq!(some.namespaces, ["vision", "speech", "text"]);
    assert!(!some.tenants);
    for wrong in [
        ["--namespace", "Vision"],
        ["--namespace", "vision,"],
        ["--tenants", "some"],
    ] {
        assert!(run(&wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn placeholders_need_nodes_and_a_valid_file() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("placeholders.json");
    let pod = json!({ "spec": { "containers": [{ "name": "a", "image": "b:1" }] } });
    let pool = json!({ "gpus": 8, "parts": false, "pods": false, "part": "", "cpuMilli": 1, "memoryBytes": 1, "pod": pod });
    let right = json!({ "namespace": "muster", "group": "muster", "afterSeconds": 1, "most": 1, "pools": { "gpu": pool } });
    let write = |what: &serde_json::Value| {
        std::fs::write(&path, what.to_string()).expect("a file");
        PlaceholderSettings::read(&path)
    };
    assert_eq!(write(&right).expect("right").pools["gpu"].gpus, 8);
    let flags = ["--placeholders", path.to_str().expect("UTF-8")];
    let of = |further: &[&str]| {
        let given: Vec<&str> = flags.iter().chain(further).copied().collect();
        run(&given).expect("right").placeholders()
    };
    assert!(matches!(
        of(&[]),
        Err(PlaceholderSettingsError::WithoutNodes)
    ));
    assert!(of(&["--nodes", "true"]).expect("right").is_some());
    let none = run(&[]).expect("right").placeholders();
    assert!(none.expect("nothing is asked for").is_none());
    assert!(run(&["--pod-name", "a"]).is_err(), "it has a uid too");

    for (field, value, said) in [
        ("/mots", json!(1), "mots"),
        ("/pools/gpu/gpu", json!(1), "gpu"),
        ("/most", json!(-1), "-1"),
    ] {
        let mut wrong = right.clone();
        let (parent, name) = field.rsplit_once('/').expect("a path");
        wrong.pointer_mut(parent).expect("it is there")[name] = value;
        let error = write(&wrong).expect_err(field);
        let PlaceholderSettingsError::Malformed { source, .. } = error else {
            panic!("{error}");
        };
        assert!(source.to_string().contains(said), "{source}");
    }
    for (field, value, said) in [
        ("gpus", json!(0), "pools.gpu.gpus is 0; expected 1 or more"),
        (
            "pod",
            json!({}),
            "pools.gpu.pod.spec is absent; expected that of a pod",
        ),
    ] {
        let mut wrong = right.clone();
        wrong["pools"]["gpu"][field] = value;
        let error = write(&wrong).expect_err(field);
        assert!(error.to_string().contains(said), "{error}");
    }
    std::fs::remove_file(&path).expect("it was there");
    let gone = PlaceholderSettings::read(&path);
    assert!(matches!(
        gone,
        Err(PlaceholderSettingsError::Unreadable { .. })
    ));
}
