//! What one look at a job's object and one at a study's have in common: what is known of the object, whose it is, how a look ends, and
//! how what was found is shown. It never decides what becomes of a job or a study.

use crate::condition::{Condition, Conditions};
use crate::error::Error;
use crate::operator::Context;
use crate::resource::{Object, Status};
use kube::runtime::controller::Action;
use time::OffsetDateTime;

/// What is known of the object at one look.
#[derive(Debug)]
pub struct Look<'a, S> {
    pub before: &'a S,
    pub generation: Option<i64>,
    pub now: OffsetDateTime,
}

/// A status of something that is submitted for an object.
pub trait Shown: Status {
    /// Phases of which the event is a warning.
    const BAD: &'static [&'static str];

    fn phase(&self) -> &str;
    fn message(&self) -> Option<&str>;
    /// The tenant, by name.
    fn queue(&self) -> Option<&str>;
    /// Whether it names what was submitted.
    fn is_submitted(&self) -> bool;
    fn observed_generation(&self) -> Option<i64>;
    fn conditions(&self) -> &[Condition];
}

impl<S: Shown> Look<'_, S> {
    #[must_use]
    pub fn conditions(&self) -> Conditions<'_> {
        Conditions::after(self.before.conditions(), self.generation, self.now)
    }

    /// What the spec says now is what it said when it was last compared, and was right then.
    #[must_use]
    pub fn has_compared(&self) -> bool {
        self.before.observed_generation() == self.generation
            && !holds(self.before.conditions(), "Misconfigured")
    }
}

/// Whether a condition is there, and true.
#[must_use]
pub fn holds(conditions: &[Condition], kind: &str) -> bool {
    conditions
        .iter()
        .any(|condition| condition.kind == kind && condition.status == "True")
}

/// Ends a look: a tenant's token that is no longer good for anything is forgotten, and after a success the next failure is the first again.
///
/// # Errors
/// Those of the look.
pub async fn settled<S: Shown>(
    object: &Object<S>,
    context: &Context,
    done: Result<Action, Error>,
) -> Result<Action, Error> {
    if let Err(Error::Muster { source, .. }) = &done
        && source.status() == Some(401)
        && let Some(tenant) = object.status.queue()
    {
        context.tenants.forget(tenant).await;
    }
    if done.is_ok() {
        context.backoff.succeeded(&object.uid_text());
    }
    done
}

/// The tenant of what was submitted for the object, else that of its namespace.
///
/// # Errors
/// When Kubernetes' API does not answer.
pub async fn tenant_of<S: Shown>(
    object: &Object<S>,
    context: &Context,
    before: &S,
) -> Result<String, Error> {
    match before.queue() {
        // Whose it is is settled when it is submitted.
        Some(tenant) if before.is_submitted() => Ok(tenant.to_owned()),
        _ => {
            let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
            context.tenants.of_namespace(namespace).await
        }
    }
}

/// Writes the status, if it is another, and tells of a new phase.
///
/// # Errors
/// When Kubernetes' API refuses it.
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
