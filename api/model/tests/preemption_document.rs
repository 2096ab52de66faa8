//! The `preemption` part of the job document.

use muster_model::spec::{AllowedPreemption, JobSpec, Preemption};

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
