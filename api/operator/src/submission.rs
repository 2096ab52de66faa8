//! Steps of a reconciliation that are common to jobs and studies: the owner of the object, and the
//! write of its status. This module never decides the fate of a job or a study.

use crate::context::Context;
use crate::error::Error;
use crate::look::{Look, Shown};
use crate::refused::Refused;
use crate::resource::Object;
use crate::tenants::Found;
use kube::runtime::controller::Action;
use muster_client::Client;

/// Job or study that is submitted for an object and carries the object's uid. The reconcile flow
/// defines the order of the calls.
pub trait Submitted: Shown {
    type View: Send;

    /// Finds the tenant's job or study that carries the object's uid.
    fn find(
        object: &Object<Self>,
        context: &Context,
        before: &Self,
        acting: &Acting,
    ) -> impl Future<Output = Result<Option<Self::View>, Error>> + Send;

    /// Submits under the object's own key, and shows the result.
    fn submit(
        object: &Object<Self>,
        context: &Context,
        look: &Look<'_, Self>,
        acting: &Acting,
    ) -> impl Future<Output = Result<Action, Error>> + Send;

    /// Carries out the object's spec, and shows the state.
    fn follow(
        object: &Object<Self>,
        context: &Context,
        look: &Look<'_, Self>,
        client: &Client,
        view: Self::View,
    ) -> impl Future<Output = Result<Action, Error>> + Send;

    /// Cancels the job or study of a deleted object. The finalizer stays until it has ended.
    fn end(
        object: &Object<Self>,
        context: &Context,
        look: &Look<'_, Self>,
        client: &Client,
        view: Option<Self::View>,
    ) -> impl Future<Output = Result<Action, Error>> + Send;
}

/// Tenant with a client that may act for it.
#[derive(Debug)]
pub struct Acting {
    pub tenant: String,
    pub client: Client,
}

/// Owner of an object.
#[derive(Debug)]
pub enum Owner<V> {
    /// Tenant, and the job or study that already exists for the object.
    Tenant(Acting, Option<V>),
    /// The tenant does not exist, so neither does a job or study.
    NoSuchTenant(String, Refused),
}

/// Returns the tenant that has the object's job or study, else the tenant of its namespace. The
/// status names the tenant, but any writer of the status could name another one. The name therefore
/// counts only if that tenant has something with the object's uid. `acted` is set to the tenant
/// whose token was used last.
///
/// # Errors
/// If Kubernetes' API or Muster does not answer.
pub async fn owner<S: Submitted>(
    object: &Object<S>,
    context: &Context,
    before: &S,
    acted: &mut Option<String>,
) -> Result<Owner<S::View>, Error> {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let own = context.tenants.of_namespace(namespace).await?;
    if let Some(named) = before.queue().filter(|named| *named != own)
        && let Found::Client(client) = context.tenants.client(named).await?
    {
        let acting = act(named.to_owned(), client, acted);
        if let Some(view) = S::find(object, context, before, &acting).await? {
            return Ok(Owner::Tenant(acting, Some(view)));
        }
    }
    match context.tenants.client(&own).await? {
        Found::Client(client) => {
            let acting = act(own, client, acted);
            let view = S::find(object, context, before, &acting).await?;
            Ok(Owner::Tenant(acting, view))
        }
        Found::NoSuchTenant(refused) => Ok(Owner::NoSuchTenant(own, refused)),
    }
}

fn act(tenant: String, client: Client, acted: &mut Option<String>) -> Acting {
    *acted = Some(tenant.clone());
    Acting { tenant, client }
}

/// Writes the status if it has changed, and publishes an event for a new phase.
///
/// # Errors
/// If Kubernetes' API rejects it.
pub async fn show<S: Shown>(
    object: &Object<S>,
    context: &Context,
    look: &Look<'_, S>,
    status: S,
) -> Result<(), Error> {
    if *look.before == status {
        return Ok(());
    }
    context.write_status(object, &status).await?;
    if look.before.phase() != status.phase() {
        let bad = S::BAD.contains(&status.phase());
        let message = status.message().unwrap_or_default();
        context.tell(object, bad, status.phase(), message).await;
    }
    Ok(())
}
