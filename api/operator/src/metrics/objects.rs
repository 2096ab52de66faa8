//! Metrics of the followed objects, from the watches: number of objects by phase, and number whose
//! status refers to an older spec.

use crate::reconciliation::SubmittedStatus;
use crate::resource::{Object, ObjectStatus};
use crate::tenant::TenantObject;
use kube::runtime::reflector::Store;
use prometheus::{Registry, register_int_gauge_vec_with_registry};
use std::collections::BTreeMap;
use std::fmt;

/// Phases that the operator writes. Other writers of a status can set any text, which must not
/// become a label.
const PHASES: [&str; 16] = [
    "Held",
    "Misconfigured",
    "Queued",
    "Starting",
    "Running",
    "Suspended",
    "Stopping",
    "Paused",
    "Succeeded",
    "Failed",
    "Cancelled",
    "Created",
    "Closing",
    "Finished",
    READY,
    NEW,
];
/// Phase of a tenant that matches its object.
const READY: &str = "Ready";
/// Phase of an object without a status.
const NEW: &str = "New";
const OTHER: &str = "Other";

/// Object of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WatchedObject {
    pub kind: &'static str,
    pub uid: String,
    pub phase: &'static str,
    /// Whether the status refers to an older spec.
    pub is_outdated: bool,
}

/// Watch whose objects are counted.
pub(crate) struct ObjectWatch(Box<dyn Fn() -> Vec<WatchedObject> + Send>);

impl fmt::Debug for ObjectWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectWatch").finish_non_exhaustive()
    }
}

/// Watch of jobs or studies.
pub(crate) fn object_watch<S: SubmittedStatus>(there: Store<Object<S>>) -> ObjectWatch {
    ObjectWatch(Box::new(move || {
        let all = there.state();
        let all = all.iter().map(|object| {
            let status = &object.status;
            watched(object, status.phase(), status.observed_generation())
        });
        all.collect()
    }))
}

pub(crate) fn tenant_watch(there: Store<TenantObject>) -> ObjectWatch {
    ObjectWatch(Box::new(move || {
        let all = there.state();
        let all = all.iter().map(|object| {
            let status = &object.status;
            let phase = match (&status.tenant_id, &status.reason) {
                (_, Some(_)) => "Misconfigured",
                (Some(_), None) => READY,
                (None, None) => NEW,
            };
            watched(object, phase, status.observed_generation)
        });
        all.collect()
    }))
}

fn watched<S: ObjectStatus>(
    object: &Object<S>,
    phase: &str,
    observed: Option<i64>,
) -> WatchedObject {
    let phase = if phase.is_empty() { NEW } else { phase };
    let own = PHASES.iter().find(|own| **own == phase);
    WatchedObject {
        kind: S::KIND,
        uid: object.uid_text(),
        phase: own.copied().unwrap_or(OTHER),
        // A deleted object is not compared any more, although its generation has increased.
        is_outdated: !object.is_being_deleted() && observed != object.metadata.generation,
    }
}

pub(super) fn watched_objects(watches: &[ObjectWatch]) -> Vec<WatchedObject> {
    watches.iter().flat_map(|watch| (watch.0)()).collect()
}

pub(super) fn register_object_gauges(
    all: &[WatchedObject],
    present: &Registry,
) -> prometheus::Result<()> {
    let objects = register_int_gauge_vec_with_registry!(
        "muster_operator_objects",
        "Objects that are followed, by kind and phase; without a status they are New.",
        &["kind", "phase"],
        present
    )?;
    let outdated = register_int_gauge_vec_with_registry!(
        "muster_operator_objects_outdated",
        "Of these, those whose status does not speak of their spec as it is now.",
        &["kind"],
        present
    )?;
    let mut counts: BTreeMap<_, i64> = BTreeMap::new();
    for object in all {
        *counts.entry((object.kind, object.phase)).or_default() += 1;
        let outdated = outdated.with_label_values(&[object.kind]);
        outdated.add(object.is_outdated.into());
    }
    for ((kind, phase), count) in counts {
        objects.with_label_values(&[kind, phase]).set(count);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::status::TrainingJob;
    use crate::job::status::phase_name;
    use muster_model::job::JobPhase;
    use serde_json::json;

    fn of(status: &serde_json::Value) -> WatchedObject {
        let object: TrainingJob = serde_json::from_value(json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "spec": {}, "status": status,
            "metadata": { "name": "a", "namespace": "b", "uid": "c", "generation": 2 },
        }))
        .expect("an object");
        watched(
            &object,
            object.status.phase(),
            object.status.observed_generation,
        )
    }

    #[test]
    fn known_phases_are_counted_and_others_grouped() {
        for phase in JobPhase::ALL.map(phase_name) {
            assert_eq!(of(&json!({ "phase": phase })).phase, phase);
        }
        assert_eq!(of(&json!({})).phase, "New");
        assert_eq!(of(&json!({ "phase": "a\"} 1\nanother 2" })).phase, "Other");
    }

    #[test]
    fn status_of_an_older_generation_is_outdated() {
        assert!(of(&json!({})).is_outdated);
        assert!(of(&json!({ "observedGeneration": 1 })).is_outdated);
        assert!(!of(&json!({ "observedGeneration": 2 })).is_outdated);
    }
}
