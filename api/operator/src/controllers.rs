//! Controllers of the custom resources and of nodes.

use crate::context::OperatorContext;
use crate::error::{Error, log_retry};
use crate::job::status::JobStatus;
use crate::metrics;
use crate::nodes::{self, Placeholders};
use crate::reconcile_flow;
use crate::resource::{Object, ObjectStatus};
use crate::study::status::StudyStatus;
use crate::submission::SubmissionSteps;
use crate::tenant::{self, TenantObject};
use crate::work_queue::{self, WorkQueue};
use futures::future::{BoxFuture, ready};
use futures::{FutureExt as _, StreamExt as _};
use kube::api::Api;
use kube::core::NamespaceResourceScope;
use kube::runtime::Controller;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use std::sync::Arc;

/// Objects to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Namespaces of jobs and studies; empty for all.
    pub namespaces: Vec<String>,
    pub tenants: bool,
    /// Settings for following nodes; `None` to ignore nodes.
    pub nodes: Option<nodes::NodeSettings>,
}

/// Runs until the process ends.
pub async fn run(context: Arc<OperatorContext>, scope: &Scope, placeholders: Option<Placeholders>) {
    let mut following: Vec<BoxFuture<'static, ()>> = Vec::new();
    for (namespace, jobs) in scope.of::<JobStatus>(&context.kubernetes) {
        let jobs = Controller::new(jobs, watcher::Config::default());
        let (objects, metrics) = (jobs.store(), context.metrics.clone());
        let changed = context.jobs.change_notifier().subscribe(namespace);
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
        let tenants = Api::<TenantObject>::all(context.kubernetes.clone());
        let tenants = Controller::new(tenants, watcher::Config::default());
        let watch = metrics::tenant_watch(tenants.store());
        context.metrics.add_watch(watch);
        let queue = WorkQueue::of(tenants.store());
        let tenants = tenants
            .with_config(work_queue::settings())
            .run(
                move |object, context| {
                    queue
                        .clone()
                        .run(object, false, |object| tenant::reconcile(object, context))
                },
                again,
                Arc::clone(&context),
            )
            .for_each(|done| async { log_retry("Tenant", done) });
        following.push(tenants.boxed());
    }
    if let Some(settings) = &scope.nodes {
        following.push(nodes::run(context, settings.clone(), placeholders).boxed());
    }
    futures::future::join_all(following).await;
}

/// Reconciles the objects of a controller through the work queue until the process ends.
fn follow<S: SubmissionSteps>(
    controller: Controller<Object<S>>,
    context: &Arc<OperatorContext>,
) -> BoxFuture<'static, ()> {
    let objects = controller.store();
    let unblocked = context
        .tenants
        .created()
        .flat_map(move |tenant| futures::stream::iter(wait_for_tenant(&objects.state(), &tenant)));
    let controller = controller.reconcile_on(unblocked);
    context
        .metrics
        .add_watch(metrics::object_watch(controller.store()));
    let queue = WorkQueue::of(controller.store());
    controller
        .with_config(work_queue::settings())
        .run(
            move |object: Arc<Object<S>>, context: Arc<OperatorContext>| {
                let is_new = !object.is_being_deleted() && !context.before(&object).is_submitted();
                queue.clone().run(object, is_new, |object| {
                    reconcile_flow::reconcile::<S>(object, context)
                })
            },
            again,
            Arc::clone(context),
        )
        .for_each(|done| async { log_retry(S::KIND, done) })
        .boxed()
}

/// Returns the objects that were rejected because Muster had no such tenant.
#[must_use]
pub fn wait_for_tenant<S: SubmissionSteps>(
    objects: &[Arc<Object<S>>],
    tenant: &str,
) -> Vec<ObjectRef<Object<S>>> {
    let waiting = objects.iter().filter(|object: &&Arc<Object<S>>| {
        let status = object.own_status();
        status.queue() == Some(tenant) && !status.is_submitted()
    });
    waiting
        .map(|object| ObjectRef::from_obj(&**object))
        .collect()
}

impl Scope {
    fn of<S: ObjectStatus<Scope = NamespaceResourceScope>>(
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

fn again<S: ObjectStatus>(
    object: Arc<Object<S>>,
    _: &Error,
    context: Arc<OperatorContext>,
) -> Action {
    Action::requeue(context.backoff.failed(&object.uid_text()))
}
