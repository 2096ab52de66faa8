//! Parameters of a study have their fields in its job document; every misfit is named.

use muster_model::study::StudySpec;
use serde_json::{Value, json};

const EXAMPLE: &str = include_str!("study.yaml");

fn example() -> Value {
    let read: StudySpec = serde_norway::from_str(EXAMPLE).expect("the example");
    serde_json::to_value(read).expect("JSON")
}

fn mistake(document: Value) -> String {
    let study: StudySpec = serde_json::from_value(document).expect("a document");
    study.validate().expect_err("a mistake")[0].to_string()
}

#[test]
fn trials_of_examples_are_jobs_with_their_values() {
    let study: StudySpec = serde_norway::from_str(EXAMPLE).expect("the example");
    let space = study.validate().expect("valid");
    let point = vec![Some(0.01), Some(0.9), Some(2.0), Some(1.0)];
    let job = study.trial(&space, 7, &point, 99, 3).expect("a job");
    job.validate().expect("valid");
    let job = serde_json::to_value(job).expect("JSON");
    assert_eq!(job["name"], "fashion-asha-7");
    assert_eq!(job["engine"]["optimizer"]["learning_rate"], 0.01);
    assert_eq!(job["engine"]["model"]["hidden"], json!([256, 128]));
    assert_eq!(job["engine"]["batch"], 64);
    assert_eq!(job["engine"]["seed"], 99);
    assert_eq!(job["stop"]["epochs"], 3);
}

#[test]
fn parameter_without_a_job_field_is_named() {
    let mut document = example();
    document["search"]["parameters"][0]["field"] = json!("engine.optimiser.learning_rate");
    let text = mistake(document);
    assert!(
        text.starts_with("search.parameters[0] is 0.001 for \"engine.optimiser.learning_rate\"; "),
        "{text}"
    );
    assert!(text.contains("unknown field `optimiser`"), "{text}");

    let text = mistake(with_field(2, "engine.model.hidden[4]"));
    assert!(
        text.contains("for \"engine.model.hidden[4]\"") && text.contains("[4] is not there"),
        "{text}"
    );
}

#[test]
fn parameter_range_outside_its_field_is_named() {
    let mut document = example();
    document["search"]["parameters"][1]["high"] = json!(1.5);
    let text = mistake(document);
    assert!(
        text.starts_with("search.parameters[1] is 1.5 for \"engine.optimizer.momentum\"; "),
        "{text}"
    );
}

#[test]
fn study_error_is_named_by_its_field() {
    let mut document = example();
    document["search"]["parameters"][0]["low"] = json!(0.0);
    assert!(mistake(document).starts_with("search.parameters[0].low is 0; "));
    let mut document = example();
    document["job"]["name"] = json!("x");
    assert_eq!(
        mistake(document),
        "job.name is given; expected left out: the study says it for all its trials"
    );
    let mut document = example();
    document["job"]["retries"] = json!(1000);
    let text = mistake(document);
    assert!(
        text.starts_with("job is ") && text.contains("retries is 1000"),
        "{text}"
    );
    let mut document = example();
    document["name"] = json!("Fashion");
    assert!(mistake(document).starts_with("name is \"Fashion\"; "));
}

fn with_field(i: usize, field: &str) -> Value {
    let mut document = example();
    document["search"]["parameters"][i]["field"] = json!(field);
    document
}

#[test]
fn parameter_cannot_overwrite_a_field_of_the_study() {
    for (field, own) in [
        ("name", "name"),
        ("labels", "labels"),
        ("labels.team", "labels"),
        ("stop.epochs", "stop.epochs"),
        ("stop", "stop.epochs"),
    ] {
        assert_eq!(
            mistake(with_field(1, field)),
            format!(
                "search.parameters[1].field is {field:?}; expected another than {own}, which the study says for all its trials"
            )
        );
    }
}

#[test]
fn parameters_of_one_trial_cannot_share_a_field() {
    for field in [
        "engine.model.hidden",
        "engine.model.hidden[0]",
        "engine.model",
    ] {
        assert_eq!(
            mistake(with_field(3, field)),
            format!(
                "search.parameters[3].field is {field:?}; expected apart from \"engine.model.hidden\", where \"hidden\" goes, unless the two depend on different values of one parameter"
            )
        );
    }
    let text = mistake(with_field(3, "engine.model.hidden[00]"));
    assert!(
        text.contains("apart from \"engine.model.hidden\""),
        "{text}"
    );
    let mut document = example();
    document["search"]["parameters"][2]["field"] = json!("engine.model.hidden[0]");
    document["search"]["parameters"][2]["choices"] = json!([64, 128]);
    document["search"]["parameters"][3]["field"] = json!("engine.model.hidden[00]");
    document["job"]["engine"]["model"]["hidden"] = json!([1]);
    let text = mistake(document);
    assert!(text.contains("[00] is not there"), "{text}");
}

/// Document whose parameters `shallow` and `deep` belong to branches; `deep` to that of this kind.
fn two_branches(deep: &str) -> Value {
    let mut document = example();
    let parameters = &mut document["search"]["parameters"];
    parameters[0] = json!({"name": "kind", "field": "engine.optimizer", "type": "categorical",
        "choices": [{"kind": "sgd", "learning_rate": 0.1}, {"kind": "adam", "learning_rate": 0.1}]});
    parameters[1] = json!({"name": "depth", "field": "retries", "type": "categorical", "choices": [1, 2],
        "when": {"parameter": "kind", "is": [{"kind": "sgd", "learning_rate": 0.1}]}});
    parameters[2] = json!({"name": "shallow", "field": "engine.model.hidden", "type": "categorical",
        "choices": [[64], [128]], "when": {"parameter": "depth", "is": [1]}});
    parameters[3] = json!({"name": "deep", "field": "engine.model.hidden[0]", "type": "int", "low": 8, "high": 16,
        "when": {"parameter": "kind", "is": [{"kind": deep, "learning_rate": 0.1}]}});
    document["job"]["engine"]["model"]["hidden"] = json!([32, 32]);
    document["job"]["engine"]["batch"] = json!(32);
    document["job"]["engine"]
        .as_object_mut()
        .expect("fields")
        .remove("optimizer");
    document
}

/// Both widths are written to one field, and no trial has both.
#[test]
fn parameters_of_exclusive_branches_may_share_a_field() {
    let study: StudySpec = serde_json::from_value(two_branches("adam")).expect("a document");
    study.validate().expect("valid");
    assert!(mistake(two_branches("sgd")).starts_with("search.parameters[3].field is "));
}

/// A study whose trials run a program with its budget in a variable.
fn program() -> Value {
    let mut document = example();
    document["search"]["budget"]["field"] = json!("command.env.EPOCHS");
    document["search"]["parameters"] = json!([
        {"name": "rate", "field": "command.env.RATE", "type": "float", "low": 0.001, "high": 0.5, "log": true},
        {"name": "width", "field": "command.argv[2]", "type": "int", "low": 8, "high": 64},
    ]);
    document["job"] = json!({"command": {"argv": ["python", "train.py", "WIDTH"]}});
    document
}

#[test]
fn trial_of_a_command_gets_values_and_budget_as_text() {
    let study: StudySpec = serde_json::from_value(program()).expect("a document");
    let space = study.validate().expect("valid");
    let job = study.trial(&space, 0, &[Some(0.25), Some(16.0)], 9, 3);
    let command = job.expect("a job").command.expect("a command");
    assert_eq!(command.argv, ["python", "train.py", "16"]);
    assert_eq!(command.env["EPOCHS"], "3");
    assert_eq!(command.env["RATE"], "0.25");
}

#[test]
fn budget_alone_decides_trial_length() {
    let mut document = example();
    document["job"]["stop"]["epochs"] = json!(5);
    assert_eq!(
        mistake(document),
        "job.stop.epochs is given; expected left out: search.budget says how far trials train"
    );
    let mut document = program();
    document["search"]["parameters"][0]["field"] = json!("command.env.EPOCHS");
    let text = mistake(document);
    assert!(
        text.contains("another than command.env.EPOCHS, which the study says"),
        "{text}"
    );
    for field in ["retries", "name", "command"] {
        let mut document = program();
        document["search"]["budget"]["field"] = json!(field);
        let text = mistake(document);
        assert!(
            text.starts_with(&format!("search.budget.field is {field}; ")),
            "{text}"
        );
    }
    let mut document = program();
    document["search"]["budget"] = json!({"max": 9});
    assert!(mistake(document).starts_with("search.budget.field is missing; "));
    let mut document = example();
    document["search"]["budget"]["field"] = json!("command.env.EPOCHS");
    assert!(
        mistake(document)
            .starts_with("search.budget.field is command.env.EPOCHS; expected left out")
    );
}

#[test]
fn study_examples_are_valid() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/studies");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("examples/studies is there") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        let study: StudySpec = serde_norway::from_str(&text).expect("a study");
        if let Err(errors) = study.validate() {
            panic!("{}: {errors:?}", path.display());
        }
        seen += 1;
    }
    assert!(seen >= 3);
}

#[test]
fn objective_is_a_job_metric_or_any_name_without_job() {
    let mut document = example();
    document["search"]["objectives"][0]["metric"] = json!("f1");
    let text = mistake(document.clone());
    assert!(
        text.starts_with("search.objectives[0].metric is \"f1\"; "),
        "{text}"
    );
    document.as_object_mut().expect("fields").remove("job");
    let study: StudySpec = serde_json::from_value(document).expect("a document");
    study.validate().expect("valid");
}

/// An engine logs only its curve; a program logs anything.
#[test]
fn objective_of_a_program_is_any_metric_that_it_logs() {
    let with = |mut document: Value, name: &str| {
        document["search"]["objectives"][0]["metric"] = json!(name);
        document
    };
    for name in ["val/f1", "val_loss", "test_accuracy", "Größe: 1"] {
        let study: StudySpec = serde_json::from_value(with(program(), name)).expect("a document");
        study.validate().expect("valid");
    }
    for name in ["acc@1", "a,b", ""] {
        let text = mistake(with(program(), name));
        let start = format!("search.objectives[0].metric is {name:?}; ");
        assert!(
            text.starts_with(&start) && text.contains("1 to 250 bytes"),
            "{text}"
        );
    }
    let text = mistake(with(example(), "val/f1"));
    assert!(
        text.contains("other metrics need a job with command"),
        "{text}"
    );
    let mut document = with(program(), "val/f1");
    let objective = document["search"]["objectives"][0].as_object_mut();
    objective.expect("fields").remove("goal");
    let read = serde_json::from_value::<StudySpec>(document);
    assert!(read.expect_err("refused").to_string().contains("goal"));
}
