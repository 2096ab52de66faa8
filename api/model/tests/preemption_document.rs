//! The `preemption` part of the job document.

use muster_model::spec::{AllowedPreemption, JobSpec, Preemption, RequestSignal};

/// Reads a program's document with these further lines.
fn read(lines: &str) -> Result<JobSpec, serde_norway::Error> {
    serde_norway::from_str(&format!(
        "{{ version: muster/v1, name: a, command: {{ argv: [sh] }}, {lines} }}"
    ))
}

fn errors(lines: &str) -> Vec<String> {
    let errors = read(lines).expect("readable").validate();
    let errors = errors.expect_err("refused").into_iter();
    errors.map(|error| error.to_string()).collect()
}

#[test]
fn document_without_the_section_allows_restarts() {
    let spec = read("").expect("a document");
    assert_eq!(spec.preemption, Preemption::default());
    assert_eq!(spec.preemption.allowed, AllowedPreemption::Restart);
    let text = serde_json::to_string(&spec).expect("JSON");
    assert!(!text.contains("preemption"), "{text}");
}

#[test]
fn fields_are_read_and_written_again() {
    let section = "preemption: { allowed: never, min_runtime: 600, grace_s: 120 }";
    let spec = read(section).expect("a document");
    assert_eq!(spec.validate(), Ok(()));
    let expected = Preemption {
        allowed: AllowedPreemption::Never,
        min_runtime: 600,
        grace_s: Some(120),
        checkpoint_on_request: None,
    };
    assert_eq!(spec.preemption, expected);
    let text = serde_json::to_string(&spec).expect("JSON");
    assert_eq!(
        serde_json::from_str::<JobSpec>(&text).expect("the same"),
        spec
    );
}

#[test]
fn unknown_fields_and_values_are_refused() {
    for section in [
        "preemption: { allowed: sometimes }",
        "preemption: { grace: 5 }",
        "preemption: { min_runtime: -1 }",
        "preemption: { checkpoint_on_request: true }",
        "preemption: { checkpoint_on_request: { signal: TERM } }",
        "preemption: { checkpoint_on_request: { timeout: 5 } }",
    ] {
        assert!(read(section).is_err(), "{section}");
    }
}

#[test]
fn values_out_of_range_are_named() {
    let found = errors("preemption: { min_runtime: 604801, grace_s: 0 }");
    let expected = [
        "preemption.min_runtime is 604801; expected 0 to 604800 seconds",
        "preemption.grace_s is 0; expected 1 to 600 seconds",
    ];
    assert_eq!(found, expected);
    let found = errors("preemption: { grace_s: 601 }");
    assert_eq!(
        found,
        ["preemption.grace_s is 601; expected 1 to 600 seconds"]
    );
}

#[test]
fn job_that_cannot_be_suspended_may_not_ask_for_it() {
    let found = errors("exclusive: true, preemption: { allowed: suspend }");
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("preemption.allowed is suspend; expected never or restart"),
        "{found:?}"
    );
    let spec = read("preemption: { allowed: suspend }").expect("a document");
    assert_eq!(spec.validate(), Ok(()));
}

#[test]
fn request_for_a_checkpoint_is_read_with_its_defaults() {
    let request = |lines: &str| {
        let spec = read(&format!("preemption: {{ checkpoint_on_request: {lines} }}"));
        let spec = spec.expect("a document");
        assert_eq!(spec.validate(), Ok(()));
        let request = spec.preemption.checkpoint_on_request.expect("declared");
        (request.signal, request.timeout_s)
    };
    assert_eq!(request("{}"), (None, 60));
    let all = "{ signal: USR1, timeout_s: 3600 }";
    assert_eq!(request(all), (Some(RequestSignal::Usr1), 3_600));
    for seconds in [0, 3_601] {
        let section =
            format!("preemption: {{ checkpoint_on_request: {{ timeout_s: {seconds} }} }}");
        let expected = format!(
            "preemption.checkpoint_on_request.timeout_s is {seconds}; expected 1 to 3600 seconds"
        );
        assert_eq!(errors(&section), [expected]);
    }
}

#[test]
fn engine_job_refuses_requests_for_a_checkpoint() {
    let spec: JobSpec = serde_norway::from_str(
        "version: muster/v1
name: a
engine:
  model: { kind: mlp, hidden: [8] }
  dataset: { name: fashion-mnist }
  optimizer: { kind: sgd, learning_rate: 0.1 }
  batch: 64
stop: { epochs: 1 }
preemption: { checkpoint_on_request: {} }",
    )
    .expect("readable");
    let found = spec.validate().expect_err("refused");
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    let expected = "preemption.checkpoint_on_request is set; expected no value without command: the engine writes a checkpoint at every stop in order";
    assert_eq!(found, [expected]);
}
