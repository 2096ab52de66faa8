//! The controllers, and what their looks have in common: how a status is written, how a finalizer comes and goes, what is told as an event.

use crate::backoff::Backoff;
use crate::clock;
use crate::error::Error;
use crate::job;
use crate::job::status::JobStatus;
use crate::look::Submitted;
use crate::metrics::{self, Metrics};
use crate::nodes::{self, Placeholders};
use crate::pace::Pace;
use crate::recent::Recent;
use crate::resource::{FINALIZER, MANAGER, Object, SUBMITTED, Status, Tenant};
use crate::study::status::StudyStatus;
use crate::tenants::Tenants;
use crate::turns::{self, Turns};
use crate::{course, tenant};
use futures::future::{BoxFuture, ready};
use futures::{FutureExt as _, StreamExt as _};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::runtime::Controller;
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Map, Value, json};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Until the watch has shown what an object has become meanwhile; it looks again by itself then, and after this in any case.
pub const STALE: Duration = Duration::from_secs(1);
/// Characters of an error in the log.
const MOST_WORDS: usize = 500;
/// Longest note of an event that Kubernetes takes.
const MAX_NOTE_BYTES: usize = 1024;
/// Versions of an object that are told apart; a watch that is farther behind shows one phase twice.
const VERSIONS: usize = 16;

/// What every look needs.
pub struct Context {
    pub kubernetes: kube::Client,
    pub tenants: Tenants,
    pub known: job::Known,
    pub backoff: Backoff,
    /// Of statuses that can wait.
    pub pace: Pace,
    pub metrics: Metrics,
    recorder: Recorder,
    written: Mutex<Recent<Written>>,
}

/// The last status that was written of an object.
struct Written {
    /// Of the object at which was looked, and of what the writes since then have made of it: a look at one of these does not see the last of
    /// them yet, or sees just that. Where versions are no numbers it is known by this alone.
    versions: Vec<Option<String>>,
    status: Value,
}

impl Written {
    /// Whether the last write is no part of what was seen in this version, or just that is seen. Others may have changed the object between the
    /// version that was looked at and the one that the write has made, and the watch shows that too before it shows the write.
    fn hides(&self, seen: &Option<String>) -> bool {
        let number = |version: &Option<String>| version.as_ref()?.parse::<u64>().ok();
        let newest = self.versions.last().and_then(number);
        let is_before = number(seen)
            .zip(newest)
            .is_some_and(|(seen, newest)| seen < newest);
        is_before || self.versions.contains(seen)
    }

    /// Of an object that was seen in this version; the write has made the other of it.
    fn next(
        before: Option<&Self>,
        seen: Option<String>,
        made: Option<String>,
        status: Value,
    ) -> Self {
        let own = before.filter(|before| before.hides(&seen));
        let mut versions = own.map_or_else(|| vec![seen], |before| before.versions.clone());
        versions.push(made);
        let surplus = versions.len().saturating_sub(VERSIONS);
        versions.drain(..surplus);
        Self { versions, status }
    }
}

/// What came of a change of an object's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    Done,
    /// The object is not there.
    Gone,
    /// It is newer than what the watch has shown of it; that comes. No failure, or a busy server would have everybody wait longer and longer.
    Stale,
}

/// Which objects are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Whose jobs and studies; none named is all.
    pub namespaces: Vec<String>,
    pub tenants: bool,
    /// And how; not at all where this is `None`.
    pub nodes: Option<nodes::Settings>,
}

/// Runs until the process ends.
pub async fn run(context: Arc<Context>, scope: &Scope, placeholders: Option<Placeholders>) {
    let mut following: Vec<BoxFuture<'static, ()>> = Vec::new();
    for (namespace, jobs) in scope.of::<JobStatus>(&context.kubernetes) {
        let jobs = Controller::new(jobs, watcher::Config::default());
        let (objects, metrics) = (jobs.store(), context.metrics.clone());
        let changed = context.known.wakes().of(namespace);
        let changed = changed.filter(move |object| {
            // A job may outlive its object.
            let object = objects.get(object);
            if let Some(object) = &object {
                metrics.changed(object.uid_text());
            }
            ready(object.is_some())
        });
        following.push(follow(jobs.reconcile_on(changed), &context));
    }
    for (_, studies) in scope.of::<StudyStatus>(&context.kubernetes) {
        let studies = Controller::new(studies, watcher::Config::default());
        following.push(follow(studies, &context));
    }
    if scope.tenants {
        let tenants = Api::<Tenant>::all(context.kubernetes.clone());
        let tenants = Controller::new(tenants, watcher::Config::default());
        let seen = metrics::seen_tenants(tenants.store());
        context.metrics.sees(seen);
        let turns = Turns::of(tenants.store());
        let look = move |object, context| {
            let look = |object| tenant::reconcile(object, context);
            turns.clone().look(object, false, look)
        };
        let tenants = tenants
            .with_config(turns::settings())
            .run(look, again, Arc::clone(&context))
            .for_each(|done| async { told("Tenant", done) });
        following.push(tenants.boxed());
    }
    if let Some(settings) = &scope.nodes {
        following.push(nodes::run(context, settings.clone(), placeholders).boxed());
    }
    futures::future::join_all(following).await;
}

/// Looks at each object of the controller, in turn, until the process ends.
fn follow<S: Submitted>(
    controller: Controller<Object<S>>,
    context: &Arc<Context>,
) -> BoxFuture<'static, ()> {
    let objects = controller.store();
    let unblocked = context
        .tenants
        .created()
        .flat_map(move |tenant| futures::stream::iter(wait_for_tenant(&objects.state(), &tenant)));
    let controller = controller.reconcile_on(unblocked);
    context.metrics.sees(metrics::seen(controller.store()));
    let turns = Turns::of(controller.store());
    let look = move |object: Arc<Object<S>>, context: Arc<Context>| {
        let is_new = !object.is_being_deleted() && !context.before(&object).is_submitted();
        let look = |object| course::reconcile::<S>(object, context);
        turns.clone().look(object, is_new, look)
    };
    controller
        .with_config(turns::settings())
        .run(look, again, Arc::clone(context))
        .for_each(|done| async { told(S::KIND, done) })
        .boxed()
}

/// Objects that were refused because Muster had no such tenant.
#[must_use]
pub fn wait_for_tenant<S: Submitted>(
    objects: &[Arc<Object<S>>],
    tenant: &str,
) -> Vec<ObjectRef<Object<S>>> {
    let waits = |object: &&Arc<Object<S>>| {
        let status = object.own_status();
        status.queue() == Some(tenant) && !status.is_submitted()
    };
    let waiting = objects.iter().filter(waits);
    waiting
        .map(|object| ObjectRef::from_obj(&**object))
        .collect()
}

impl Scope {
    fn of<S: Status<Scope = NamespaceResourceScope>>(
        &self,
        client: &kube::Client,
    ) -> Vec<(Option<String>, Api<Object<S>>)> {
        if self.namespaces.is_empty() {
            return vec![(None, Api::all(client.clone()))];
        }
        let named = self.namespaces.iter();
        named
            .map(|namespace| {
                let objects = Api::namespaced(client.clone(), namespace);
                (Some(namespace.clone()), objects)
            })
            .collect()
    }
}

fn again<S: Status>(object: Arc<Object<S>>, _: &Error, context: Arc<Context>) -> Action {
    Action::requeue(context.backoff.failed(&object.uid_text()))
}

/// Says in the log what is tried again.
pub(crate) fn told<T, E: std::error::Error>(kind: &str, done: Result<T, E>) {
    if let Err(error) = done {
        let mut words = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_words = cause.to_string();
            // Others' errors repeat the inner one's words.
            if !words.contains(&cause_words) {
                words = format!("{words}: {cause_words}");
            }
            source = cause.source();
        }
        let words: String = words.chars().take(MOST_WORDS).collect();
        tracing::warn!(kind, error = words, "will be tried again");
    }
}

impl Context {
    #[must_use]
    pub fn new(kubernetes: kube::Client, tenants: Tenants, name: String, metrics: Metrics) -> Self {
        let reporter = Reporter {
            controller: MANAGER.to_owned(),
            instance: None,
        };
        Self {
            recorder: Recorder::new(kubernetes.clone(), reporter),
            kubernetes,
            tenants,
            known: job::Known::new(name),
            backoff: Backoff::default(),
            pace: Pace::default(),
            metrics,
            written: Mutex::default(),
        }
    }

    /// The object's status, or the one that was written after this state of the object was seen.
    pub fn before<S: Status>(&self, object: &Object<S>) -> S {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written
            .get(&object.uid_text())
            .filter(|written| written.hides(&object.metadata.resource_version))
            .and_then(|written| serde_json::from_value(written.status.clone()).ok())
            .unwrap_or_else(|| object.own_status())
    }

    /// How long it still is until nothing was written of the object for so long.
    pub fn until_unwritten<S: Status>(&self, object: &Object<S>, long: Duration) -> Duration {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let since = written.since(&object.uid_text());
        since.map_or(Duration::ZERO, |at| {
            long.saturating_sub(clock::monotonic().duration_since(at))
        })
    }

    /// By server-side apply, whoever else has written to it. What others have added to it is taken away. The uid goes along, so that
    /// another object that has got the name meanwhile is not shown what became of this one.
    ///
    /// # Errors
    /// When Kubernetes' API refuses it.
    pub async fn write_status<S: Status>(
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
        self.note(object, &status, written.metadata.resource_version);
        if let Some(foreign) = foreign(&written.data["status"], &status) {
            let patch = json!({ "metadata": { "uid": object.uid_text() }, "status": foreign });
            let cleaned = api
                .patch_status(&object.name(), &own_patch(), &Patch::Merge(patch))
                .await
                .map_err(Error::kubernetes("a status was not cleaned"))?;
            self.note(object, &status, cleaned.metadata.resource_version);
        }
        Ok(())
    }

    fn note<S: Status>(&self, object: &Object<S>, status: &Value, made: Option<String>) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let (uid, seen) = (object.uid_text(), object.metadata.resource_version.clone());
        let note = Written::next(written.get(&uid), seen, made, status.clone());
        written.insert(uid, note, clock::monotonic());
    }

    /// Whether the object is still there to have it. What was deleted while it waited for this look must get nothing submitted: nobody
    /// would be told to cancel that.
    ///
    /// # Errors
    /// When Kubernetes' API refuses it.
    pub async fn add_finalizer<S: Status>(&self, object: &Object<S>) -> Result<Changed, Error> {
        let mut finalizers = object.finalizers().to_vec();
        finalizers.push(FINALIZER.to_owned());
        self.set_finalizers(object, &finalizers).await
    }

    /// Nothing is left of the object in Muster that would need it.
    ///
    /// # Errors
    /// When Kubernetes' API refuses it.
    pub async fn remove_finalizer<S: Status>(&self, object: &Object<S>) -> Result<Action, Error> {
        let mut finalizers = object.finalizers().to_vec();
        finalizers.retain(|name| name != FINALIZER);
        if self.set_finalizers(object, &finalizers).await? == Changed::Stale {
            return Ok(Action::requeue(STALE));
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.remove(&object.uid_text());
        self.metrics.gone(&object.uid_text());
        Ok(Action::await_change())
    }

    /// Notes on the object that something was submitted for it, once.
    ///
    /// # Errors
    /// When Kubernetes' API refuses it.
    pub async fn mark_submitted<S: Status>(&self, object: &Object<S>) -> Result<(), Error> {
        if object.was_submitted() {
            return Ok(());
        }
        let uid = object.uid_text();
        let patch = json!({ "metadata": { "uid": uid, "annotations": { SUBMITTED: uid } } });
        self.change(object, &patch, "that it was submitted was not noted")
            .await
            .map(|_| ())
    }

    async fn set_finalizers<S: Status>(
        &self,
        object: &Object<S>,
        finalizers: &[String],
    ) -> Result<Changed, Error> {
        let patch = json!({ "metadata": {
            "resourceVersion": object.metadata.resource_version,
            "finalizers": finalizers,
        } });
        self.change(object, &patch, "a finalizer was not changed")
            .await
    }

    async fn change<S: Status>(
        &self,
        object: &Object<S>,
        patch: &Value,
        tried: &'static str,
    ) -> Result<Changed, Error> {
        let api = self.api(object);
        match api
            .patch(&object.name(), &own_patch(), &Patch::Merge(patch))
            .await
        {
            Ok(_) => Ok(Changed::Done),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Changed::Gone),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Changed::Stale),
            Err(error) => Err(Error::kubernetes(tried)(error)),
        }
    }

    /// An event on the object. One that is lost is no harm: the status says the same.
    pub async fn tell<S: Status>(
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
            note: Some(note(message)).filter(|note| !note.is_empty()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &object.object_ref(&())).await {
            tracing::debug!(%error, "an event was not told");
        }
    }

    fn api<S: Status>(&self, object: &Object<S>) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<Object<S>>(&());
        match object.namespace() {
            Some(namespace) => Api::namespaced_with(self.kubernetes.clone(), &namespace, &resource),
            None => Api::all_with(self.kubernetes.clone(), &resource),
        }
    }
}

impl Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

/// Names the operator as the manager of what a merge patch sets, as server-side apply does.
fn own_patch() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// The message, or as much of it as an event holds and an ellipsis.
fn note(message: &str) -> String {
    const ELLIPSIS: &str = "…";
    if message.len() <= MAX_NOTE_BYTES {
        return message.to_owned();
    }
    let end = message.floor_char_boundary(MAX_NOTE_BYTES - ELLIPSIS.len());
    format!("{}{ELLIPSIS}", &message[..end])
}

/// Fields that are there and should not be, each to become null.
fn foreign(there: &Value, wanted: &Value) -> Option<Map<String, Value>> {
    let foreign: Map<String, Value> = there
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

    /// Two phases may be shown of one state of an object; then the watch shows what the first write made of it, and after it the second.
    #[test]
    fn what_the_watch_brings_of_own_writes_hides_no_later_one() {
        let version = |number: usize| Some(number.to_string());
        let first = Written::next(None, version(1), version(2), json!("first"));
        let second = Written::next(Some(&first), version(1), version(3), json!("second"));
        for own in 1..=3 {
            assert!(second.hides(&version(own)), "{own}");
        }
        // Somebody else has changed the object: what it is counts.
        assert!(!second.hides(&version(4)));
        let third = Written::next(Some(&second), version(4), version(5), json!("third"));
        assert_eq!(third.versions, [version(4), version(5)]);
        let mut last = third;
        for made in 6..100 {
            last = Written::next(Some(&last), version(made - 1), version(made), json!(made));
        }
        assert_eq!(last.versions.len(), VERSIONS);
        assert!(last.hides(&version(99)));
    }

    #[test]
    fn a_long_message_is_cut_visibly_at_kubernetes_limit() {
        let longest = "x".repeat(MAX_NOTE_BYTES);
        assert_eq!(note(&longest), longest);
        let cut = note(&"ü".repeat(MAX_NOTE_BYTES));
        assert!(
            cut.len() <= MAX_NOTE_BYTES && cut.len() > MAX_NOTE_BYTES - 4,
            "{}",
            cut.len()
        );
        assert!(cut.ends_with("ü…"), "{cut}");
    }

    #[test]
    fn what_somebody_else_changed_before_an_own_write_does_not_show_it_undone() {
        let version = |text: &str| Some(text.to_owned());
        let write = Written::next(None, version("9"), version("11"), json!("own"));
        assert!(write.hides(&version("10")), "as numbers: 10 is before 11");
        assert!(!write.hides(&version("12")));
        let next = Written::next(Some(&write), version("10"), version("13"), json!("next"));
        assert!(next.hides(&version("11")) && next.hides(&version("12")));
        // Where they are none, what is not known as own is somebody else's, and newer.
        let words = Written::next(None, version("b"), version("d"), json!("own"));
        assert!(words.hides(&version("b")) && words.hides(&version("d")));
        assert!(!words.hides(&version("a")) && !words.hides(&version("c")) && !words.hides(&None));
    }
}
