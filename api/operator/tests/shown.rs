//! Tests of statuses and of submitted documents, without servers.

use muster_client::ClientError;
use muster_model::view::{JobView, Problem, StudyView};
use muster_operator::job::document::{document, idempotency_key, refusal};
use muster_operator::job::status::TrainingJob;
use muster_operator::job::status::{JobStatus, StatusDifference};
use muster_operator::reconciliation::{Reconciliation, SubmittedStatus as _};
use muster_operator::rejection::ObjectRejection;
use muster_operator::study::status::{StudyPause, StudyStatus};
use muster_operator::tenant::{self, TenantStatus};
use serde_json::{Value, json};
use time::OffsetDateTime;

fn reconciliation<S>(before: &S) -> Reconciliation<'_, S> {
    Reconciliation {
        before,
        generation: Some(3),
        now: OffsetDateTime::UNIX_EPOCH,
    }
}

fn job(further: &Value) -> JobView {
    let mut job = json!({
        "id": "01890000-0000-7000-8000-000000000001",
        "tenant": "vision",
        "name": "fashion",
        "labels": {},
        "priority": 0,
        "phase": "queued",
        "state": { "phase": "queued" },
        "intent": "run",
        "revision": 0,
        "failures": 0,
        "waiting": null,
        "workers": { "running": 0, "min": 2, "max": 8 },
        "ps_shards": { "running": 0, "min": 1, "max": 1 },
        "progress": null,
        "model_path": null,
        "failure": null,
        "resume_step": null,
        "submitted_by": "kubernetes",
        "submitted_at": "2026-01-01T00:00:00.123456Z",
        "started_at": null,
        "finished_at": null,
        "spec": { "version": "muster/v1", "name": "fashion", "command": { "argv": ["true"] } },
    });
    for (field, value) in further.as_object().expect("fields") {
        job[field] = value.clone();
    }
    serde_json::from_value(job).expect("a job")
}

fn progress(eta_s: f64) -> Value {
    json!({
        "step": 45, "total_steps": 100, "epoch": 0.5, "loss": 1.0, "accuracy": 0.5, "test_accuracy": null,
        "examples_per_s": 1.0, "steps_per_s": 1.0, "eta_s": eta_s, "sampled_at": null,
    })
}

fn condition<'a>(status: &'a JobStatus, kind: &str) -> (&'a str, &'a str, &'a str) {
    let found = status.conditions.iter().find(|one| one.kind == kind);
    let found = found.unwrap_or_else(|| panic!("no condition {kind}"));
    (&found.status, &found.reason, &found.message)
}

#[test]
fn waiting_job_shows_position_and_kueue_condition() {
    let waiting = json!({
        "reason": "WaitingForGpus",
        "message": "needs 2 GPUs, 1 are free; 3 jobs hold the others",
        "smallest_change": "lower scale.workers.min to 1",
        "position": 4,
        "detail": {
            "why": { "reason": "waiting_for_gpus", "needed_gpus": 2, "free_gpus": 1, "held_by": [] },
            "smallest_change": null,
            "position": 4,
        },
    });
    let before = JobStatus::default();
    let status = reconciliation(&before).of(&job(&json!({ "waiting": waiting })), false, None);
    assert_eq!(status.phase, "Queued");
    assert_eq!(status.position, Some(4));
    assert_eq!(status.workers.as_deref(), Some("0/2..8"));
    assert_eq!(status.queue.as_deref(), Some("vision"));
    assert_eq!(status.submitted_at.as_deref(), Some("2026-01-01T00:00:00Z"));
    let words = "needs 2 GPUs, 1 are free; 3 jobs hold the others; lower scale.workers.min to 1";
    assert_eq!(
        condition(&status, "Admitted"),
        ("False", "WaitingForGpus", words)
    );
    assert_eq!(condition(&status, "Finished").0, "False");
    assert_eq!(status.observed_generation, Some(3));
    assert!(status.conditions.iter().all(|one| !one.message.is_empty()));
}

fn running(eta_s: f64) -> JobStatus {
    let running =
        json!({ "phase": "running", "state": { "phase": "running" }, "progress": progress(eta_s) });
    reconciliation(&JobStatus::default()).of(&job(&running), false, None)
}

#[test]
fn running_job_shows_progress_and_remaining_time() {
    let before = JobStatus::default();
    let status = running(130.0);
    assert_eq!(status.progress.as_deref(), Some("45%"));
    assert_eq!(status.eta.as_deref(), Some("3m"));
    assert_eq!(condition(&status, "Admitted").0, "True");
    for (seconds, said) in [
        (0.0, "0s"),
        (41.0, "45s"),
        (59.9, "60s"),
        (3_599.0, "60m"),
        (7_500.0, "2h5m"),
        (2e5, "2d"),
    ] {
        assert_eq!(running(seconds).eta.as_deref(), Some(said), "{seconds}");
    }
    assert_eq!(status.news(&status), StatusDifference::None);
    assert_eq!(status.news(&running(10.0)), StatusDifference::Progress);
    assert_eq!(status.news(&before), StatusDifference::Change);
}

fn waiting(reason: &str, message: &str, position: u32) -> JobStatus {
    let waiting = json!({
        "reason": reason, "message": message, "smallest_change": null, "position": position,
        "detail": {
            "why": { "reason": "not_considered" }, "smallest_change": null, "position": position,
        },
    });
    reconciliation(&JobStatus::default()).of(&job(&json!({ "waiting": waiting })), false, None)
}

/// Each round changes the positions of all waiting jobs, and the figures of their reasons.
#[test]
fn position_ranks_between_change_and_progress() {
    let first = waiting("WaitingForGpus", "needs 2 GPUs, 1 are free", 4);
    let moved = waiting("WaitingForGpus", "needs 2 GPUs, 0 are free", 3);
    assert_eq!(moved.news(&first), StatusDifference::Place);
    let other = waiting("WaitingForQuota", "needs 2 GPUs, 1 are free", 4);
    assert_eq!(other.news(&first), StatusDifference::Change);
    assert!(
        StatusDifference::Progress < StatusDifference::Place
            && StatusDifference::Place < StatusDifference::Change
    );
}

#[test]
fn failed_job_shows_its_reason_and_paused_job_its_hold() {
    let before = JobStatus::default();
    let failed = json!({ "phase": "failed", "state": { "phase": "failed", "reason": "code 3" }, "failure": "code 3" });
    let status = reconciliation(&before).of(&job(&failed), false, None);
    assert_eq!(condition(&status, "Finished"), ("True", "Failed", "code 3"));
    assert_eq!(condition(&status, "Admitted").0, "False");
    assert!(status.is_finished());
    let paused = json!({ "phase": "paused", "state": { "phase": "paused" }, "intent": "pause" });
    let status = reconciliation(&before).of(&job(&paused), true, None);
    assert_eq!(condition(&status, "Suspended").0, "True");
    assert!(status.suspended && !status.is_finished());
    assert_eq!(status.reason.as_deref(), Some("Suspended"));
    let message = status.message.unwrap_or_default();
    assert!(message.contains("spec.suspend"), "{message}");
}

fn has_condition(status: &JobStatus, kind: &str) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|condition| condition.kind == kind && condition.status == "True")
}

/// `kubectl wait` waits for one condition, so success and failure need separate ones.
#[test]
fn ended_job_is_either_complete_or_failed() {
    let before = JobStatus::default();
    for (phase, complete, failed) in [
        ("running", false, false),
        ("succeeded", true, false),
        ("failed", false, true),
        ("cancelled", false, true),
    ] {
        let state = if phase == "failed" {
            json!({ "phase": phase, "reason": "code 3" })
        } else {
            json!({ "phase": phase })
        };
        let status = reconciliation(&before).of(
            &job(&json!({ "phase": phase, "state": state })),
            false,
            None,
        );
        assert_eq!(
            (
                has_condition(&status, "Complete"),
                has_condition(&status, "Failed")
            ),
            (complete, failed),
            "{phase}"
        );
        assert_eq!(
            has_condition(&status, "Finished"),
            complete || failed,
            "{phase}"
        );
    }
    let removed = JobStatus::removed(&reconciliation(&before));
    assert!(has_condition(&removed, "Failed") && !has_condition(&removed, "Complete"));
}

/// Kubernetes drops fields of a status that the definition lacks, and rejects fields of another
/// type.
#[test]
fn definitions_have_every_field_of_every_status() {
    let before = JobStatus::default();
    let changed = ObjectRejection::spec_changed("it goes on", "spec.suspend");
    let everything = json!({
        "phase": "failed", "state": { "phase": "failed", "reason": "code 3" }, "failure": "code 3", "progress": progress(1.0),
        "model_path": "a/b", "started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:00:00Z",
    });
    let of = reconciliation(&before).of(&job(&everything), true, Some(&changed));
    is_known("TrainingJob", &of);
    is_known(
        "TrainingJob",
        &JobStatus::held(&reconciliation(&before), "a"),
    );
    is_known(
        "TrainingJob",
        &JobStatus::refused(&reconciliation(&before), "a", &changed),
    );
    is_known("TrainingJob", &JobStatus::removed(&reconciliation(&of)));

    let before = StudyStatus::default();
    let of = reconciliation(&before).of(&study(), StudyPause::Ordered, Some(&changed));
    assert_eq!(of.best.as_deref(), Some("#0 0.5000"));
    is_known("Study", &of);
    is_known("Study", &StudyStatus::held(&reconciliation(&before), "a"));
    is_known(
        "Study",
        &StudyStatus::refused(&reconciliation(&before), "a", &changed),
    );
    is_known("Study", &StudyStatus::removed(&reconciliation(&of)));

    for refused in [None, Some(&changed)] {
        let id = "01890000-0000-7000-8000-000000000001".parse().ok();
        let before = TenantStatus::default();
        let status =
            tenant::status::status(&before, Some(1), id, refused, OffsetDateTime::UNIX_EPOCH);
        assert!(status.tenant_id.is_some());
        is_known("Tenant", &status);
    }
}

fn is_known(kind: &str, status: &impl serde::Serialize) {
    let definitions = muster_operator::crd::all();
    let definition = definitions
        .iter()
        .find(|one| one["spec"]["names"]["kind"] == kind)
        .expect("a definition");
    let known = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
        ["properties"];
    let status = serde_json::to_value(status).expect("JSON");
    for (name, value) in status.as_object().expect("fields") {
        assert!(known[name].is_object(), "{kind}.{name}");
        let right = match known[name]["type"].as_str().expect("a type") {
            "string" => value.is_string(),
            "integer" => value.is_u64() || value.is_i64(),
            "boolean" => value.is_boolean(),
            _ => value.is_array(),
        };
        assert!(right, "{kind}.{name} is {value}");
    }
}

fn study() -> StudyView {
    let trial = json!({
        "number": 0, "state": "completed", "parameters": {}, "seed": 1, "budget": 1, "rung": 0, "from": null, "job_id": null,
        "job_phase": null, "outcome": { "step": 1, "values": [0.5], "at": "2026-01-01T00:00:00Z" }, "rungs": [], "curve": [],
        "best": true, "failure": null, "created_at": "2026-01-01T00:00:00Z", "ended_at": null,
    });
    let view = json!({
        "id": "01890000-0000-7000-8000-000000000002", "tenant": "vision", "name": "widths", "labels": {}, "phase": "finished",
        "trials": {
            "limit": 2, "created": 2, "running": 0, "waiting": 0, "stopping": 0, "completed": 2, "stopped": 0, "failed": 0, "best": 1,
        },
        "best": [trial], "events": 3, "created_by": "kubernetes", "created_at": "2026-01-01T00:00:00Z",
        "finished_at": "2026-01-01T00:00:00Z",
        "document": {
            "version": "muster/v1", "kind": "study", "name": "widths",
            "search": {
                "objectives": [{ "metric": "loss", "goal": "minimize" }],
                "parameters": [{ "name": "width", "type": "int", "low": 1, "high": 8 }],
                "searcher": { "kind": "random" },
                "trials": 2,
            },
        },
    });
    serde_json::from_value(view).expect("a study")
}

fn object(spec: &Value) -> TrainingJob {
    serde_json::from_value(json!({
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": { "name": "fashion", "namespace": "vision", "uid": "u-1" },
        "spec": spec,
        "status": { "phase": 7 },
    }))
    .expect("an object, whatever its status is")
}

#[test]
fn document_is_the_spec_with_name_and_labels() {
    let object = object(
        &json!({ "suspend": true, "labels": { "team": "a", "muster.dev/uid": "forged" }, "command": { "argv": ["true"] } }),
    );
    let document = document(&object, "here", &[("version", "muster/v1")]);
    assert_eq!(
        document,
        json!({
            "version": "muster/v1",
            "name": "fashion",
            "labels": { "team": "a", "muster.dev/operator": "here", "muster.dev/namespace": "vision", "muster.dev/uid": "u-1" },
            "command": { "argv": ["true"] },
        })
    );
    assert_eq!(idempotency_key(&object), "kubernetes/vision/fashion/u-1");
}

fn problem(status: u16, errors: Value) -> ClientError {
    let body =
        json!({ "type": "urn:x", "title": "t", "status": status, "detail": "d", "errors": errors });
    ClientError::Problem(Box::new(
        serde_json::from_value::<Problem>(body).expect("a problem"),
    ))
}

#[test]
fn permanent_rejections_differ_from_transient_errors() {
    let errors = json!([
        { "field": "engine.batch", "value": "0", "expected": "1 to 65536" },
        { "field": "name", "value": "\"a.b\"", "expected": "no dots" },
    ]);
    let refused = refusal(&problem(422, errors)).expect("it would be refused again");
    assert_eq!(
        refused.message,
        "spec.engine.batch is 0; expected 1 to 65536; metadata.name is \"a.b\"; expected no dots"
    );
    for status in [401, 404, 409, 429, 503] {
        assert!(refusal(&problem(status, json!([]))).is_none(), "{status}");
    }
}
