//! Shared state of all reconciliations, and their writes to objects: status, finalizers,
//! annotations and events.

use crate::backoff::Backoff;
use crate::clock;
use crate::error::Error;
use crate::job;
use crate::metrics::OperatorMetrics;
use crate::resource::{FINALIZER, MANAGER, Object, ObjectStatus, SUBMITTED};
use crate::status_throttle::StatusThrottle;
use crate::tenants::Tenants;
use crate::ttl_map::TtlMap;
use kube::Resource as _;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use serde_json::{Map, Value, json};
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Retry interval while the watch has an older version of the object than Kubernetes. As a rule the
/// newer version arrives earlier and triggers the reconciliation.
pub const STALE: Duration = Duration::from_secs(1);
/// Maximum size of an event's note in Kubernetes, in bytes.
const MAX_NOTE_BYTES: usize = 1024;
/// Number of remembered versions of an object. If the watch is further behind, one change of the
/// phase may be published twice.
const MAX_VERSIONS: usize = 16;

/// Shared state of all reconciliations.
pub struct OperatorContext {
    pub kubernetes: kube::Client,
    pub tenants: Tenants,
    pub jobs: job::OperatorJobs,
    pub backoff: Backoff,
    /// Throttle of status writes that may wait.
    pub status_throttle: StatusThrottle,
    pub metrics: OperatorMetrics,
    recorder: Recorder,
    last_writes: Mutex<TtlMap<LastStatusWrite>>,
}

/// Last status that the operator wrote for an object. The watch may deliver older versions of the
/// object after the write; their status must not count as the current one.
struct LastStatusWrite {
    /// Version of the reconciled object, then the versions that the operator's writes have created,
    /// the last write at the end. If versions are not numbers, only these versions are known to be
    /// older than the last write or equal to it.
    versions: Vec<Option<String>>,
    status: Value,
}

impl LastStatusWrite {
    /// Whether the version `seen` is older than the last write or equal to it. Older ones include
    /// versions that another writer created between the reconciled version and the write.
    fn hides(&self, seen: &Option<String>) -> bool {
        let newest = self.versions.last().and_then(version_number);
        let is_before = version_number(seen)
            .zip(newest)
            .is_some_and(|(seen, newest)| seen < newest);
        is_before || self.versions.contains(seen)
    }

    /// Records a write on the object that was seen in version `seen`; the write has created version
    /// `made`.
    fn next(
        before: Option<&Self>,
        seen: Option<String>,
        made: Option<String>,
        status: Value,
    ) -> Self {
        let own = before.filter(|before| before.hides(&seen));
        let mut versions = own.map_or_else(|| vec![seen], |before| before.versions.clone());
        versions.push(made);
        let surplus = versions.len().saturating_sub(MAX_VERSIONS);
        versions.drain(..surplus);
        Self { versions, status }
    }
}

fn version_number(version: &Option<String>) -> Option<u64> {
    version.as_ref()?.parse().ok()
}

/// Result of a change of an object's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataChange {
    Done,
    /// The object does not exist.
    Gone,
    /// The object is newer than the watch's copy, which will be updated. This is not an error:
    /// errors increase the back-off, and on a busy server this result is frequent.
    Stale,
}

impl OperatorContext {
    #[must_use]
    pub fn new(
        kubernetes: kube::Client,
        tenants: Tenants,
        name: String,
        metrics: OperatorMetrics,
    ) -> Self {
        let reporter = Reporter {
            controller: MANAGER.to_owned(),
            instance: None,
        };
        Self {
            recorder: Recorder::new(kubernetes.clone(), reporter),
            kubernetes,
            tenants,
            jobs: job::OperatorJobs::new(name),
            backoff: Backoff::default(),
            status_throttle: StatusThrottle::default(),
            metrics,
            last_writes: Mutex::default(),
        }
    }

    /// Returns the object's status, or a later one that the operator wrote after this version.
    pub fn before<S: ObjectStatus>(&self, object: &Object<S>) -> S {
        let last_writes = self
            .last_writes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        last_writes
            .get(&object.uid_text())
            .filter(|write| write.hides(&object.metadata.resource_version))
            .and_then(|write| serde_json::from_value(write.status.clone()).ok())
            .unwrap_or_else(|| object.own_status())
    }

    /// Returns the time until the last write for the object is at least `long` ago.
    pub fn until_unwritten<S: ObjectStatus>(&self, object: &Object<S>, long: Duration) -> Duration {
        let last_writes = self
            .last_writes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let since = last_writes.since(&object.uid_text());
        since.map_or(Duration::ZERO, |at| {
            long.saturating_sub(clock::monotonic().duration_since(at))
        })
    }

    /// Writes the status by server-side apply, overriding other writers, and removes fields that
    /// others have added. The request includes the uid, so that a new object with the same name
    /// does not receive this status.
    ///
    /// # Errors
    /// If Kubernetes' API rejects it.
    pub async fn write_status<S: ObjectStatus>(
        &self,
        object: &Object<S>,
        status: &S,
    ) -> Result<(), Error> {
        let status = serde_json::to_value(status).expect("a status is JSON");
        let mut metadata = json!({ "name": object.name(), "uid": object.uid_text() });
        if let Some(namespace) = object.namespace() {
            metadata["namespace"] = namespace.into();
        }
        let apply = json!({
            "apiVersion": Object::<S>::api_version(&()),
            "kind": S::KIND,
            "metadata": metadata,
            "status": status,
        });
        let api = self.api(object);
        let written = api
            .patch_status(
                &object.name(),
                &PatchParams::apply(MANAGER).force(),
                &Patch::Apply(apply),
            )
            .await
            .map_err(Error::kubernetes("a status was not taken"))?;
        self.record_write(object, &status, written.metadata.resource_version);
        if let Some(foreign) = foreign_fields(&written.data["status"], &status) {
            let patch = json!({ "metadata": { "uid": object.uid_text() }, "status": foreign });
            let cleaned = api
                .patch_status(&object.name(), &merge_patch_params(), &Patch::Merge(patch))
                .await
                .map_err(Error::kubernetes("a status was not cleaned"))?;
            self.record_write(object, &status, cleaned.metadata.resource_version);
        }
        Ok(())
    }

    /// Records a write on the object that was seen in its present version; the write has created
    /// version `made`.
    fn record_write<S: ObjectStatus>(
        &self,
        object: &Object<S>,
        status: &Value,
        made: Option<String>,
    ) {
        let mut last_writes = self
            .last_writes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (uid, seen) = (object.uid_text(), object.metadata.resource_version.clone());
        let write = LastStatusWrite::next(last_writes.get(&uid), seen, made, status.clone());
        last_writes.insert(uid, write, clock::monotonic());
    }

    /// Adds the finalizer, and reports whether the object still exists. Nothing must be submitted
    /// for an object that was deleted while it waited, because nothing would cancel it.
    ///
    /// # Errors
    /// If Kubernetes' API rejects it.
    pub async fn add_finalizer<S: ObjectStatus>(
        &self,
        object: &Object<S>,
    ) -> Result<MetadataChange, Error> {
        let mut finalizers = object.finalizers().to_vec();
        finalizers.push(FINALIZER.to_owned());
        self.set_finalizers(object, &finalizers).await
    }

    /// Removes the finalizer of an object whose job or study has ended.
    ///
    /// # Errors
    /// If Kubernetes' API rejects it.
    pub async fn remove_finalizer<S: ObjectStatus>(
        &self,
        object: &Object<S>,
    ) -> Result<Action, Error> {
        let mut finalizers = object.finalizers().to_vec();
        finalizers.retain(|name| name != FINALIZER);
        if self.set_finalizers(object, &finalizers).await? == MetadataChange::Stale {
            return Ok(Action::requeue(STALE));
        }
        let mut last_writes = self
            .last_writes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        last_writes.remove(&object.uid_text());
        self.metrics.gone(&object.uid_text());
        Ok(Action::await_change())
    }

    /// Sets the annotation that something was submitted for the object, once.
    ///
    /// # Errors
    /// If Kubernetes' API rejects it.
    pub async fn mark_submitted<S: ObjectStatus>(&self, object: &Object<S>) -> Result<(), Error> {
        if object.was_submitted() {
            return Ok(());
        }
        let uid = object.uid_text();
        let patch = json!({ "metadata": { "uid": uid, "annotations": { SUBMITTED: uid } } });
        self.patch_metadata(object, &patch, "that it was submitted was not noted")
            .await
            .map(|_| ())
    }

    async fn set_finalizers<S: ObjectStatus>(
        &self,
        object: &Object<S>,
        finalizers: &[String],
    ) -> Result<MetadataChange, Error> {
        let patch = json!({ "metadata": {
            "resourceVersion": object.metadata.resource_version,
            "finalizers": finalizers,
        } });
        self.patch_metadata(object, &patch, "a finalizer was not changed")
            .await
    }

    /// Applies a merge patch. `failure` describes an error.
    async fn patch_metadata<S: ObjectStatus>(
        &self,
        object: &Object<S>,
        patch: &Value,
        failure: &'static str,
    ) -> Result<MetadataChange, Error> {
        let api = self.api(object);
        match api
            .patch(&object.name(), &merge_patch_params(), &Patch::Merge(patch))
            .await
        {
            Ok(_) => Ok(MetadataChange::Done),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(MetadataChange::Gone),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(MetadataChange::Stale),
            Err(error) => Err(Error::kubernetes(failure)(error)),
        }
    }

    /// Publishes an event on the object. A lost event does no harm, because the status has the same
    /// information.
    pub async fn publish_event<S: ObjectStatus>(
        &self,
        object: &Object<S>,
        bad: bool,
        reason: &str,
        message: &str,
    ) {
        let event = Event {
            type_: if bad {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: reason.to_owned(),
            note: Some(event_note(message)).filter(|note| !note.is_empty()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &object.object_ref(&())).await {
            tracing::debug!(%error, "an event was not told");
        }
    }

    fn api<S: ObjectStatus>(&self, object: &Object<S>) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<Object<S>>(&());
        match object.namespace() {
            Some(namespace) => Api::namespaced_with(self.kubernetes.clone(), &namespace, &resource),
            None => Api::all_with(self.kubernetes.clone(), &resource),
        }
    }
}

impl Debug for OperatorContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OperatorContext").finish_non_exhaustive()
    }
}

/// Returns parameters that set the operator as the field manager of a merge patch, as server-side
/// apply does.
fn merge_patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Returns the message, shortened with an ellipsis to the size limit of events.
fn event_note(message: &str) -> String {
    const ELLIPSIS: &str = "…";
    if message.len() <= MAX_NOTE_BYTES {
        return message.to_owned();
    }
    let end = message.floor_char_boundary(MAX_NOTE_BYTES - ELLIPSIS.len());
    format!("{}{ELLIPSIS}", &message[..end])
}

/// Returns a merge patch that removes the fields of `found` that `wanted` lacks; `None` if there
/// are none.
fn foreign_fields(found: &Value, wanted: &Value) -> Option<Map<String, Value>> {
    let foreign: Map<String, Value> = found
        .as_object()?
        .keys()
        .filter(|field| wanted.get(field.as_str()).is_none())
        .map(|field| (field.clone(), Value::Null))
        .collect();
    (!foreign.is_empty()).then_some(foreign)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: impl ToString) -> Option<String> {
        Some(text.to_string())
    }

    /// Two phases may be shown for one version of an object. The watch then delivers the result of
    /// the first write, followed by the second.
    #[test]
    fn watched_own_writes_do_not_hide_later_writes() {
        let first = LastStatusWrite::next(None, version(1), version(2), json!("first"));
        let second = LastStatusWrite::next(Some(&first), version(1), version(3), json!("second"));
        for own in 1..=3 {
            assert!(second.hides(&version(own)), "{own}");
        }
        // Another writer has changed the object, so its state counts.
        assert!(!second.hides(&version(4)));
        let third = LastStatusWrite::next(Some(&second), version(4), version(5), json!("third"));
        assert_eq!(third.versions, [version(4), version(5)]);
        let mut last = third;
        for made in 6..100 {
            last =
                LastStatusWrite::next(Some(&last), version(made - 1), version(made), json!(made));
        }
        assert_eq!(last.versions.len(), MAX_VERSIONS);
        assert!(last.hides(&version(99)));
    }

    #[test]
    fn long_event_message_is_cut_with_an_ellipsis() {
        let longest = "x".repeat(MAX_NOTE_BYTES);
        assert_eq!(event_note(&longest), longest);
        let cut = event_note(&"ü".repeat(MAX_NOTE_BYTES));
        assert!(
            cut.len() <= MAX_NOTE_BYTES && cut.len() > MAX_NOTE_BYTES - 4,
            "{}",
            cut.len()
        );
        assert!(cut.ends_with("ü…"), "{cut}");
    }

    #[test]
    fn foreign_change_before_own_write_does_not_undo_it() {
        let write = LastStatusWrite::next(None, version("9"), version("11"), json!("own"));
        assert!(write.hides(&version("10")), "as numbers: 10 is before 11");
        assert!(!write.hides(&version("12")));
        let next = LastStatusWrite::next(Some(&write), version("10"), version("13"), json!("next"));
        assert!(next.hides(&version("11")) && next.hides(&version("12")));
        // Where versions are not numbers, an unknown version counts as newer and foreign.
        let words = LastStatusWrite::next(None, version("b"), version("d"), json!("own"));
        assert!(words.hides(&version("b")) && words.hides(&version("d")));
        assert!(!words.hides(&version("a")) && !words.hides(&version("c")) && !words.hides(&None));
    }
}
