//! Steps of a reconciliation that are common to jobs and studies: the owner of the object, and the
//! write of its status. This module never decides the fate of a job or a study.

use crate::context::OperatorContext;
use crate::error::Error;
use crate::reconciliation::{Reconciliation, SubmittedStatus};
use crate::rejection::ObjectRejection;
use crate::resource::Object;
use crate::tenants::TenantLookup;
use kube::runtime::controller::Action;
use muster_client::Client;

/// Job or study that is submitted for an object and carries the object's uid. The reconcile flow
/// defines the order of the calls.
pub trait SubmissionSteps: SubmittedStatus {
    type View: Send;

    /// Finds the tenant's job or study that carries the object's uid.
    fn find(
        object: &Object<Self>,
        context: &OperatorContext,
        before: &Self,
        session: &TenantSession,
    ) -> impl Future<Output = Result<Option<Self::View>, Error>> + Send;

    /// Submits under the object's own key, and shows the result.
    fn submit(
        object: &Object<Self>,
        context: &OperatorContext,
        reconciliation: &Reconciliation<'_, Self>,
        session: &TenantSession,
    ) -> impl Future<Output = Result<Action, Error>> + Send;

    /// Carries out the object's spec, and shows the state.
    fn follow(
        object: &Object<Self>,
        context: &OperatorContext,
        reconciliation: &Reconciliation<'_, Self>,
        client: &Client,
        view: Self::View,
    ) -> impl Future<Output = Result<Action, Error>> + Send;

    /// Cancels the job or study of a deleted object. The finalizer stays until it has ended.
    fn end(
        object: &Object<Self>,
        context: &OperatorContext,
        reconciliation: &Reconciliation<'_, Self>,
        client: &Client,
        view: Option<Self::View>,
    ) -> impl Future<Output = Result<Action, Error>> + Send;
}

/// Tenant with a client that may act for it.
#[derive(Debug)]
pub struct TenantSession {
    pub tenant: String,
    pub client: Client,
}

/// Owner of an object.
#[derive(Debug)]
pub enum ObjectOwner<V> {
    /// Tenant, and the job or study that already exists for the object.
    Tenant(TenantSession, Option<V>),
    /// The tenant does not exist, so neither does a job or study.
    NoSuchTenant(String, ObjectRejection),
}

/// Returns the tenant that has the object's job or study, else the tenant of its namespace. The
/// status names the tenant, but any writer of the status could name another one. The name therefore
/// counts only if that tenant has something with the object's uid. `acted` is set to the tenant
/// whose token was used last.
///
/// # Errors
/// If Kubernetes' API or Muster does not answer.
pub async fn owner<S: SubmissionSteps>(
    object: &Object<S>,
    context: &OperatorContext,
    before: &S,
    acted: &mut Option<String>,
) -> Result<ObjectOwner<S::View>, Error> {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let own = context.tenants.of_namespace(namespace).await?;
    if let Some(named) = before.queue().filter(|named| *named != own)
        && let TenantLookup::Client(client) = context.tenants.client(named).await?
    {
        let session = act(named.to_owned(), client, acted);
        if let Some(view) = S::find(object, context, before, &session).await? {
            return Ok(ObjectOwner::Tenant(session, Some(view)));
        }
    }
    match context.tenants.client(&own).await? {
        TenantLookup::Client(client) => {
            let session = act(own, client, acted);
            let view = S::find(object, context, before, &session).await?;
            Ok(ObjectOwner::Tenant(session, view))
        }
        TenantLookup::NoSuchTenant(refused) => Ok(ObjectOwner::NoSuchTenant(own, refused)),
    }
}

fn act(tenant: String, client: Client, acted: &mut Option<String>) -> TenantSession {
    *acted = Some(tenant.clone());
    TenantSession { tenant, client }
}

/// Writes the status if it has changed, and publishes an event for a new phase.
///
/// # Errors
/// If Kubernetes' API rejects it.
pub async fn show<S: SubmittedStatus>(
    object: &Object<S>,
    context: &OperatorContext,
    reconciliation: &Reconciliation<'_, S>,
    status: S,
) -> Result<(), Error> {
    if *reconciliation.before == status {
        return Ok(());
    }
    context.write_status(object, &status).await?;
    if reconciliation.before.phase() != status.phase() {
        let bad = S::BAD.contains(&status.phase());
        let message = status.message().unwrap_or_default();
        context
            .publish_event(object, bad, status.phase(), message)
            .await;
    }
    Ok(())
}
