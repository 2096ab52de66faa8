//! Reconcile flow of TrainingJob and Study: takes the next missing step and shows the current
//! state.
//!
//! Each object is submitted at most once. The flow first searches for the object's uid, and submits
//! under an idempotency key of the object. The operator may therefore be killed between any two
//! steps, and two operators may run.

use crate::clock;
use crate::context::{MetadataChange, OperatorContext, STALE};
use crate::error::Error;
use crate::reconciliation::{Reconciliation, SubmittedStatus};
use crate::resource::Object;
use crate::submission::{ObjectOwner, SubmissionSteps, TenantSession, owner, show};
use kube::runtime::controller::Action;
use std::sync::Arc;
use std::time::Duration;

/// Retry interval of a rejected object; the missing tenant may exist by then.
pub const REFUSED: Duration = Duration::from_secs(20);

/// Reconciles an object once.
///
/// # Errors
/// If Kubernetes or Muster does not answer; the next reconciliation continues.
pub async fn reconcile<S: SubmissionSteps>(
    object: Arc<Object<S>>,
    context: Arc<OperatorContext>,
) -> Result<Action, Error> {
    let mut acted = None;
    let began = clock::monotonic();
    let done = advance(&object, &context, &mut acted).await;
    context.metrics.reconciled(S::KIND, began, &done);
    if done.is_ok() {
        context.metrics.shown(&object.uid_text(), began);
    }
    settled(&object, &context, acted, done).await
}

async fn advance<S: SubmissionSteps>(
    object: &Object<S>,
    context: &OperatorContext,
    acted: &mut Option<String>,
) -> Result<Action, Error> {
    if object.is_being_deleted() && !object.has_finalizer() {
        return Ok(Action::await_change());
    }
    let before = context.before(object);
    let reconciliation = Reconciliation {
        before: &before,
        generation: object.metadata.generation,
        now: clock::now(),
    };
    let (session, there) = match owner(object, context, &before, acted).await? {
        ObjectOwner::Tenant(session, there) => (session, there),
        ObjectOwner::NoSuchTenant(..) if object.is_being_deleted() => {
            return context.remove_finalizer(object).await;
        }
        ObjectOwner::NoSuchTenant(tenant, refused) => {
            let status = S::refused(&reconciliation, &tenant, &refused);
            show(object, context, &reconciliation, status).await?;
            return Ok(Action::requeue(REFUSED));
        }
    };
    let TenantSession { tenant, client } = &session;
    if object.is_being_deleted() {
        return S::end(object, context, &reconciliation, client, there).await;
    }
    if !object.has_finalizer() {
        match context.add_finalizer(object).await? {
            MetadataChange::Done => {}
            MetadataChange::Gone => return Ok(Action::await_change()),
            MetadataChange::Stale => return Ok(Action::requeue(STALE)),
        }
    }
    match there {
        Some(there) => {
            context.mark_submitted(object).await?;
            S::follow(object, context, &reconciliation, client, there).await
        }
        // An id in the status alone proves nothing.
        None if object.was_submitted()
            || (before.is_submitted() && object.operator_wrote(S::ID)) =>
        {
            context.mark_submitted(object).await?;
            if !before.is_submitted() || !before.is_finished() {
                show(
                    object,
                    context,
                    &reconciliation,
                    S::removed(&reconciliation),
                )
                .await?;
            }
            Ok(Action::await_change())
        }
        None if object.wants_to_be_held() => {
            show(
                object,
                context,
                &reconciliation,
                S::held(&reconciliation, tenant),
            )
            .await?;
            Ok(Action::await_change())
        }
        None => S::submit(object, context, &reconciliation, &session).await,
    }
}

/// Ends a reconciliation. Discards the token of the tenant used last if Muster has rejected it, and
/// resets the back-off after a success.
///
/// # Errors
/// Those of the reconciliation.
async fn settled<S: SubmittedStatus>(
    object: &Object<S>,
    context: &OperatorContext,
    acted: Option<String>,
    done: Result<Action, Error>,
) -> Result<Action, Error> {
    if let Err(Error::Muster { source, .. }) = &done
        && source.status() == Some(401)
        && let Some(tenant) = acted
    {
        context.tenants.forget(&tenant).await;
    }
    if done.is_ok() {
        context.backoff.succeeded(&object.uid_text());
    }
    done
}
