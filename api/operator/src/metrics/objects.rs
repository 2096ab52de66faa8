//! Metrics of the followed objects, from the watches: number of objects by phase, and number whose
//! status refers to an older spec.

use crate::look::Shown;
use crate::resource::{Object, Status};
use crate::tenant::Tenant;
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
pub(super) struct Looked {
    pub kind: &'static str,
    pub uid: String,
    pub phase: &'static str,
    /// Whether the status refers to an older spec.
    pub is_outdated: bool,
}

/// Watch whose objects are counted.
pub(crate) struct Seen(Box<dyn Fn() -> Vec<Looked> + Send>);

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen").finish_non_exhaustive()
    }
}

/// Watch of jobs or studies.
pub(crate) fn seen<S: Shown>(there: Store<Object<S>>) -> Seen {
    Seen(Box::new(move || {
        let all = there.state();
        let all = all.iter().map(|object| {
            let status = &object.status;
            looked(object, status.phase(), status.observed_generation())
        });
        all.collect()
    }))
}

pub(crate) fn seen_tenants(there: Store<Tenant>) -> Seen {
    Seen(Box::new(move || {
        let all = there.state();
        let all = all.iter().map(|object| {
            let status = &object.status;
            let phase = match (&status.tenant_id, &status.reason) {
                (_, Some(_)) => "Misconfigured",
                (Some(_), None) => READY,
                (None, None) => NEW,
            };
            looked(object, phase, status.observed_generation)
        });
        all.collect()
    }))
}

fn looked<S: Status>(object: &Object<S>, phase: &str, observed: Option<i64>) -> Looked {
    let phase = if phase.is_empty() { NEW } else { phase };
    let own = PHASES.iter().find(|own| **own == phase);
    Looked {
        kind: S::KIND,
        uid: object.uid_text(),
        phase: own.copied().unwrap_or(OTHER),
        // A deleted object is not compared any more, although its generation has increased.
        is_outdated: !object.is_being_deleted() && observed != object.metadata.generation,
    }
}

pub(super) fn looked_at(seen: &[Seen]) -> Vec<Looked> {
    seen.iter().flat_map(|seen| (seen.0)()).collect()
}

pub(super) fn tell(all: &[Looked], present: &Registry) -> prometheus::Result<()> {
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

    fn of(status: &serde_json::Value) -> Looked {
        let object: TrainingJob = serde_json::from_value(json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "spec": {}, "status": status,
            "metadata": { "name": "a", "namespace": "b", "uid": "c", "generation": 2 },
        }))
        .expect("an object");
        looked(
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
