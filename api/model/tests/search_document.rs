//! Both forms of a search space are equivalent, and every mistake is named by field, value and
//! expectation.

use muster_model::study::{Domain, SearchSpec};
use serde_json::{Value, json};

fn document(parameters: Value) -> Value {
    json!({
        "objectives": [{"metric": "test_accuracy", "goal": "maximize"}],
        "parameters": parameters,
        "trials": 10,
    })
}

fn with(mut document: Value, field: &str, value: Value) -> Value {
    document[field] = value;
    document
}

fn read(document: Value) -> SearchSpec {
    serde_json::from_value(document).expect("a document")
}

fn rate() -> Value {
    json!([{"name": "rate", "type": "float", "low": 0.001, "high": 0.1, "log": true}])
}

/// Returns the first mistake as one line.
fn mistake(document: Value) -> String {
    let errors = read(document).space().expect_err("a mistake");
    errors[0].to_string()
}

#[test]
fn katib_and_optuna_forms_are_equivalent() {
    let optuna = json!([
        {"name": "rate", "type": "float", "low": 0.001, "high": 0.1, "log": true},
        {"name": "layers", "type": "int", "low": 1, "high": 9, "step": 2},
        {"name": "kind", "type": "categorical", "choices": ["sgd", "adam"]},
        {"name": "batch", "type": "categorical", "choices": [32, 64], "ordered": true},
    ]);
    let katib = json!([
        {"name": "rate", "parameterType": "double",
         "feasibleSpace": {"min": "0.001", "max": "0.1", "distribution": "logUniform"}},
        {"name": "layers", "parameterType": "int", "feasibleSpace": {"min": "1", "max": 9, "step": "2"}},
        {"name": "kind", "parameterType": "categorical", "feasibleSpace": {"list": ["sgd", "adam"]}},
        {"name": "batch", "parameterType": "discrete", "feasibleSpace": {"list": ["32", "64"]}},
    ]);
    let (a, b) = (
        read(document(optuna)).space(),
        read(document(katib)).space(),
    );
    assert_eq!(a.expect("valid"), b.expect("valid"));
}

#[test]
fn log_scale_applies_to_the_value() {
    let space = read(document(rate())).space().expect("valid");
    let domain = &space.dimensions[0].domain;
    assert!((domain.at(0.5) - 0.01).abs() < 1e-12);
    assert!((domain.unit(0.01) - 0.5).abs() < 1e-12);
    assert_eq!((domain.at(0.0), domain.at(1.0)), (0.001, 0.1));
}

#[test]
fn value_of_a_finite_domain_has_a_part_of_the_line() {
    let steps = Domain::Float {
        low: 0.0,
        high: 1.0,
        step: Some(0.3),
        log: false,
    };
    assert_eq!(steps.count(), Some(4));
    let middles: Vec<f64> = (0..4).map(|i| steps.unit(steps.nth(i))).collect();
    assert!(
        middles
            .iter()
            .zip([0.125, 0.375, 0.625, 0.875])
            .all(|(a, b)| (a - b).abs() < 1e-9),
        "{middles:?}"
    );
    for i in 0..4 {
        assert!(steps.contains(steps.nth(i)));
        assert_eq!(steps.at(steps.unit(steps.nth(i))), steps.nth(i));
    }
    assert!(!steps.contains(0.5));
}

/// Returns the mistake of a float with these fields.
fn mistake_of(fields: &Value) -> String {
    let mut parameter = json!({"name": "p", "type": "float"});
    for (key, value) in fields.as_object().expect("fields") {
        parameter[key] = value.clone();
    }
    mistake(document(json!([parameter])))
}

#[test]
fn bad_range_is_named() {
    let cases = [
        (
            json!({"low": 2.0, "high": 1.0}),
            "parameters[0].low is 2; expected at most high (1)",
        ),
        (
            json!({"low": 0.0, "high": 1.0, "log": true}),
            "parameters[0].low is 0; expected above 0, because log asks for the log scale",
        ),
        (
            json!({"high": 1.0}),
            "parameters[0].low is missing; expected a finite number",
        ),
        (
            json!({"type": "int", "low": 0.5, "high": 2.0}),
            "parameters[0].low is 0.5; expected a whole number",
        ),
        (
            json!({"low": 0.0, "high": 1.0, "step": 0.0}),
            "parameters[0].step is 0; expected above 0, at most the range, and whole for an int",
        ),
        (
            json!({"low": 0.1, "high": 1.0, "step": 0.1, "log": true}),
            "parameters[0].step is 0.1; expected left out: with the log scale values have no equal steps",
        ),
        (
            json!({"low": 0.0, "high": 1e300, "step": 1e-5}),
            "parameters[0].step is 0.00001; expected larger: at most 10^15 steps from low to high",
        ),
        (
            json!({"low": -1.7e308, "high": 1.7e308}),
            "parameters[0].high is HIGH; expected a finite distance from low",
        ),
        (
            json!({"feasibleSpace": {"min": "-1.7e308", "max": "1.7e308"}}),
            "parameters[0].feasibleSpace.max is HIGH; expected a finite distance from feasibleSpace.min",
        ),
        (
            json!({"type": "discrete", "choices": ["1", 2, 1]}),
            "parameters[0].choices[2] is 1; expected a choice that does not stand there already",
        ),
        (
            json!({"type": "discrete", "choices": [2, "1.0", "1"]}),
            "parameters[0].choices[2] is \"1\"; expected a choice that does not stand there already",
        ),
        (
            json!({"type": "categorical"}),
            "parameters[0].choices is 0 choices; expected 1 to 1000 choices",
        ),
        (
            json!({"type": "categorical", "choices": [1, 2, 1]}),
            "parameters[0].choices[2] is 1; expected a choice that does not stand there already",
        ),
        (
            json!({"feasibleSpace": {"min": "a", "max": "2"}}),
            "parameters[0].feasibleSpace.min is \"a\"; expected a number",
        ),
        (
            json!({"low": 1.0, "feasibleSpace": {"min": "1", "max": "2"}}),
            "parameters[0].feasibleSpace is given beside low, high, step, log or choices; expected one of the two ways to write a range",
        ),
        (
            json!({"feasibleSpace": {"min": "1", "max": "2", "distribution": "normal"}}),
            "parameters[0].feasibleSpace.distribution is \"normal\"; expected uniform or logUniform",
        ),
    ];
    for (fields, expected) in cases {
        let expected = expected.replace("HIGH", &1.7e308.to_string());
        assert_eq!(mistake_of(&fields), expected);
    }
}

#[test]
fn bad_name_or_condition_is_named() {
    let a = json!({"name": "a", "type": "categorical", "choices": ["x", "y"]});
    let child =
        |when: Value| json!([a, {"name": "b", "type": "int", "low": 0, "high": 3, "when": when}]);
    assert_eq!(
        mistake(document(json!([a, a]))),
        "parameters[1].name is \"a\"; expected a name that no other parameter has"
    );
    assert_eq!(
        mistake(document(child(json!({"parameter": "c", "is": ["x"]})))),
        "parameters[1].when.parameter is \"c\"; expected the name of a categorical parameter that stands before this one"
    );
    assert_eq!(
        mistake(document(child(json!({"parameter": "a", "is": ["z"]})))),
        "parameters[1].when.is is [\"z\"]; expected one or more of the choices of \"a\""
    );
    assert_eq!(
        mistake(document(json!([]))),
        "parameters is 0 parameters; expected 1 to 128 parameters"
    );
}

fn grid(parameters: Value) -> Value {
    with(document(parameters), "searcher", json!({"kind": "grid"}))
}

fn axis(name: &str) -> Value {
    json!({"name": name, "type": "int", "low": 1, "high": 1000})
}

#[test]
fn grid_must_be_finite_and_small() {
    assert_eq!(
        mistake(grid(
            json!([{"name": "a", "type": "float", "low": 0, "high": 1}])
        )),
        "parameters[0].step is missing; expected a step, because a grid needs finitely many values of each parameter (or another searcher)"
    );
    assert_eq!(
        mistake(grid(json!([axis("a"), axis("b"), axis("c")]))),
        "searcher is a grid of 1000000000 points; expected a grid of at most 1000000 points: larger steps, fewer parameters, or another searcher"
    );
}

fn with_constraints(texts: Value) -> Value {
    with(document(rate()), "constraints", texts)
}

#[test]
fn bad_constraint_is_named() {
    for (given, expected) in [
        ("rate", "<=, >=, < or > before \"\""),
        (
            "rate < width",
            "a number or a parameter's name, not \"width\"",
        ),
        ("(rate < 1", "a closing bracket before \"< 1\""),
        ("rate < 1 2", "the end of the constraint before \"2\""),
        ("rate < 1e", "a number, not \"1e\""),
        ("rate < 1e999", "a number, not \"1e999\""),
    ] {
        assert_eq!(
            mistake(with_constraints(json!([given]))),
            format!("constraints[0] is {given:?}; expected {expected}")
        );
    }
    let deep = format!("{}rate{} < 1", "(".repeat(50), ")".repeat(50));
    assert!(
        mistake(with_constraints(json!([&deep]))).ends_with("at most 32 nested brackets and signs")
    );
}

fn sum(terms: usize) -> String {
    format!("rate{} < 1000", "+1".repeat(terms))
}

/// Searches are stored as JSON, whose parsers limit nesting. Each constraint is evaluated for each
/// candidate.
#[test]
fn long_constraint_is_flat_and_longer_ones_are_refused() {
    let space = read(with_constraints(json!([sum(490)]))).space();
    let space = space.expect("valid");
    let saved = serde_json::to_string(&space).expect("serialisable");
    let loaded: muster_model::study::Space = serde_json::from_str(&saved).expect("readable");
    assert_eq!(loaded, space);
    assert!(loaded.allows(&[Some(0.1)]));

    assert_eq!(
        mistake(with_constraints(json!(["rate < 1", sum(200_000)]))),
        "constraints[1] is 400011 bytes; expected at most 1000 bytes"
    );
    assert_eq!(
        mistake(with_constraints(json!(vec!["rate < 1"; 129]))),
        "constraints is 129 constraints; expected at most 128 constraints"
    );
}

#[test]
fn constraint_applies_only_with_its_parameters() {
    let spec = read(with(
        document(json!([
            {"name": "kind", "type": "categorical", "choices": ["x", "y"]},
            {"name": "width", "type": "int", "low": 1, "high": 100},
            {"name": "depth", "type": "int", "low": 1, "high": 100, "when": {"parameter": "kind", "is": ["y"]}},
        ])),
        "constraints",
        json!(["width * (depth + 1) - 2 <= 100 / 2"]),
    ));
    let space = spec.space().expect("valid");
    assert!(space.allows(&[Some(1.0), Some(13.0), Some(3.0)]));
    assert!(!space.allows(&[Some(1.0), Some(14.0), Some(3.0)]));
    assert!(space.allows(&[Some(0.0), Some(100.0), None]));
}

fn mistake_of_stopper(stopper: Value) -> String {
    mistake(with(
        with(document(rate()), "stopper", stopper),
        "budget",
        json!({"max": 10}),
    ))
}

#[test]
fn searcher_or_stopper_names_its_requirements() {
    assert_eq!(
        mistake_of_stopper(json!({"kind": "asha", "min": 11})),
        "stopper.min is 11; expected 1 to 10"
    );
    assert_eq!(
        mistake_of_stopper(json!({"kind": "asha", "eta": 1})),
        "stopper.eta is 1; expected 2 to 16"
    );
    assert_eq!(
        mistake_of_stopper(json!({"kind": "hyper_drive"})),
        "objectives[0].target is missing; expected the value to reach, because hyper_drive asks how likely it is reached"
    );
    assert_eq!(
        mistake_of_stopper(json!({"kind": "pbt", "population": 4, "interval": 2})),
        "searcher is one that learns; expected random or sobol: with pbt it only draws the first population"
    );
    let two = json!([{"metric": "a", "goal": "minimize"}, {"metric": "b", "goal": "minimize"}]);
    let gp = with(
        with(document(rate()), "objectives", two),
        "searcher",
        json!({"kind": "gp"}),
    );
    assert_eq!(
        mistake(gp),
        "objectives is several; expected one objective with gp; tpe and evolution seek a Pareto front"
    );
}

#[test]
fn unknown_fields_are_refused() {
    for wrong in [
        with(document(rate()), "colour", json!("red")),
        document(json!([{"name": "a", "type": "int", "low": 1, "high": 2, "hihg": 3}])),
        with(
            document(rate()),
            "stopper",
            json!({"kind": "asha", "grace": 1}),
        ),
        with(
            document(rate()),
            "searcher",
            json!({"kind": "random", "startup": 1}),
        ),
    ] {
        let read = serde_json::from_value::<SearchSpec>(wrong.clone());
        assert!(read.is_err(), "{wrong}");
    }
}
