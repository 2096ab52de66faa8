//! What one look at a job's object and one at a study's have in common: what is known of the object, whose it is, how a look ends, and
//! how what was found is shown. It never decides what becomes of a job or a study.

use crate::condition::{Condition, Conditions, End};
use crate::error::Error;
use crate::operator::Context;
use crate::refused::Refused;
use crate::resource::{Object, Status};
use crate::tenants::Found;
use kube::runtime::controller::Action;
use muster_client::Client;
use time::OffsetDateTime;

/// Why nothing more will become of what was removed.
pub const REMOVED: &str = "Removed";

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
    /// The field in which the id of what was submitted stands.
    const ID: &'static str;

    /// Of an object that nothing was submitted for, since `spec.suspend` holds it.
    fn held(look: &Look<'_, Self>, tenant: &str) -> Self;
    /// Of an object that Muster will not take as it is.
    fn refused(look: &Look<'_, Self>, tenant: &str, refused: &Refused) -> Self;
    /// Of an object of which what was submitted was removed from Muster before it had ended.
    fn removed(look: &Look<'_, Self>) -> Self;

    fn phase(&self) -> &str;
    fn message(&self) -> Option<&str>;
    /// The tenant, by name.
    fn queue(&self) -> Option<&str>;
    /// Whether it names what was submitted.
    fn is_submitted(&self) -> bool;
    /// Nothing more will become of what was submitted.
    fn is_finished(&self) -> bool;
    fn observed_generation(&self) -> Option<i64>;
    fn conditions(&self) -> &[Condition];
}

impl<S: Shown> Look<'_, S> {
    #[must_use]
    pub fn conditions(&self) -> Conditions<'_> {
        Conditions::after(self.before.conditions(), self.generation, self.now)
    }

    /// Conditions of an object of which the job or study was removed, and a sentence on it.
    #[must_use]
    pub fn removal(&self, what: &str) -> (Vec<Condition>, String) {
        let message = format!("the {what} was removed from Muster");
        let mut conditions = self.conditions();
        conditions.set("Submitted", true, "Submitted", "");
        conditions.finished(Some(End::Failed), REMOVED, &message);
        (conditions.done(), message)
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

/// Something that is submitted for an object, and carries the object's uid. [`crate::course`] says in which order this is asked for.
pub trait Submitted: Shown {
    type View: Send;

    /// What carries the object's uid among what the tenant has.
    fn find(
        object: &Object<Self>,
        context: &Context,
        before: &Self,
        acting: &Acting,
    ) -> impl Future<Output = Result<Option<Self::View>, Error>> + Send;

    /// Submits it under the object's own key, and shows what came of it.
    fn submit(
        object: &Object<Self>,
        context: &Context,
        look: &Look<'_, Self>,
        acting: &Acting,
    ) -> impl Future<Output = Result<Action, Error>> + Send;

    /// Does to what was submitted what the object asks for, and shows it.
    fn follow(
        object: &Object<Self>,
        context: &Context,
        look: &Look<'_, Self>,
        client: &Client,
        view: Self::View,
    ) -> impl Future<Output = Result<Action, Error>> + Send;

    /// The object goes: what was submitted is cancelled, and the object stays until nothing runs any more.
    fn end(
        object: &Object<Self>,
        context: &Context,
        look: &Look<'_, Self>,
        client: &Client,
        view: Option<Self::View>,
    ) -> impl Future<Output = Result<Action, Error>> + Send;
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
