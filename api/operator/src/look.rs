//! What one look at a job's object and one at a study's have in common: what is known of the object, whose it is, how a look ends, and
//! how what was found is shown. It never decides what becomes of a job or a study.

use crate::condition::{Condition, Conditions};
use crate::error::Error;
use crate::operator::Context;
use crate::refused::Refused;
use crate::resource::{Object, Status};
use crate::tenants::Found;
use kube::runtime::controller::Action;
use muster_client::Client;
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

/// Something that is submitted for an object, and carries the object's uid.
pub trait Submitted: Shown {
    type View: Send;

    /// What carries the object's uid among what the tenant has.
    fn find(
        object: &Object<Self>,
        context: &Context,
        before: &Self,
        acting: &Acting,
    ) -> impl Future<Output = Result<Option<Self::View>, Error>> + Send;
}

/// A tenant, and who may act for it.
#[derive(Debug)]
pub struct Acting {
    pub tenant: String,
    pub client: Client,
}

/// Whose an object is.
#[derive(Debug)]
pub enum Owner<V> {
    /// With what there is for the object already.
    Tenant(Acting, Option<V>),
    /// Nothing can be there.
    NoSuchTenant(String, Refused),
}

/// The tenant that has what was submitted for the object, else the one of its namespace. Which one has it stands in the status, but
/// whoever may write there could name any tenant: it is believed where something of this object's uid is found. `acted` becomes the
/// tenant that was spoken for last.
///
/// # Errors
/// When Kubernetes' API or Muster does not answer.
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

/// Ends a look: the token of the tenant that was spoken for last is forgotten where it was good for nothing, and after a success the
/// next failure is the first again.
///
/// # Errors
/// Those of the look.
pub async fn settled<S: Shown>(
    object: &Object<S>,
    context: &Context,
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
