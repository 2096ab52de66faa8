//! One look at a `TrainingJob`: what is missing is done, one step at a time, and what there is is shown.
//!
//! A job is submitted once for each object, whatever happens in between: it is looked for by the object's uid first, and submitted under
//! a key that is the object's own. So the operator may die between any two lines, and two of them may run.

use super::document::{VERSION, document, idempotency_key, label, refusal};
use super::edit::edit;
use super::status::JobStatus;
use crate::clock;
use crate::error::Error;
use crate::look::{Acting, Look, Owner, Submitted, owner, settled, show};
use crate::operator::{Changed, Context, STALE};
use crate::refused::Refused;
use crate::resource::TrainingJob;
use kube::runtime::controller::Action;
use muster_client::Client;
use muster_model::job::Intent;
use muster_model::view::JobView;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at a job that has not ended.
const LIVING: Duration = Duration::from_millis(700);
/// Between two writes of a status in which only the progress differs.
const PROGRESS: Duration = Duration::from_secs(2);
/// What was refused is tried again: a tenant may have come.
const REFUSED: Duration = Duration::from_secs(20);

/// # Errors
/// When Kubernetes or Muster does not answer; nothing is lost by it.
pub async fn reconcile(object: Arc<TrainingJob>, context: Arc<Context>) -> Result<Action, Error> {
    let mut acted = None;
    let done = look(&object, &context, &mut acted).await;
    settled(&object, &context, acted, done).await
}

async fn look(
    object: &TrainingJob,
    context: &Context,
    acted: &mut Option<String>,
) -> Result<Action, Error> {
    if object.is_being_deleted() && !object.has_finalizer() {
        return Ok(Action::await_change());
    }
    let before = context.before(object);
    let look = Look {
        before: &before,
        generation: object.metadata.generation,
        now: clock::now(),
    };
    let (acting, job) = match owner(object, context, &before, acted).await? {
        Owner::Tenant(acting, job) => (acting, job),
        Owner::NoSuchTenant(..) if object.is_being_deleted() => {
            return context.remove_finalizer(object).await;
        }
        Owner::NoSuchTenant(tenant, refused) => {
            let status = look.refused(Some(&tenant), &refused);
            show(object, context, &look, status).await?;
            return Ok(Action::requeue(REFUSED));
        }
    };
    let Acting { tenant, client } = &acting;
    if object.is_being_deleted() {
        return end(object, context, client, &look, job).await;
    }
    if !object.has_finalizer() {
        match context.add_finalizer(object).await? {
            Changed::Done => {}
            Changed::Gone => return Ok(Action::await_change()),
            Changed::Stale => return Ok(Action::requeue(STALE)),
        }
    }
    match job {
        Some(job) => follow(object, context, client, &look, job).await,
        // An id in the status alone proves nothing.
        None if object.was_submitted()
            || (before.job_id.is_some() && object.operator_wrote("jobId")) =>
        {
            context.mark_submitted(object).await?;
            if before.job_id.is_none() || !before.is_finished() {
                show(object, context, &look, look.removed()).await?;
            }
            Ok(Action::await_change())
        }
        None if object.wants_to_be_held() => {
            show(object, context, &look, look.held(tenant)).await?;
            Ok(Action::await_change())
        }
        None => submit(object, context, client, &look, tenant).await,
    }
}

impl Submitted for JobStatus {
    type View = JobView;

    /// An id that somebody else has written into the status is not taken for it.
    async fn find(
        object: &TrainingJob,
        context: &Context,
        before: &Self,
        acting: &Acting,
    ) -> Result<Option<JobView>, Error> {
        let uid = object.uid_text();
        let Acting { tenant, client } = acting;
        if let Some(id) = before.job_id {
            let job = context.known.job(tenant, client, id).await?;
            let is_its = |job: &JobView| job.labels.get(label::UID) == Some(&uid);
            if job.as_ref().is_some_and(is_its) {
                return Ok(job);
            }
        }
        context
            .known
            .by_uid(client, &uid)
            .await
            .map_err(Error::muster("a job was not looked for"))
    }
}

async fn submit(
    object: &TrainingJob,
    context: &Context,
    client: &Client,
    look: &Look<'_, JobStatus>,
    tenant: &str,
) -> Result<Action, Error> {
    let document = document(object, context.known.operator(), &[VERSION]);
    match client
        .submit(&document, Some(&idempotency_key(object)))
        .await
    {
        Ok(job) => {
            tracing::info!(object = %object.name(), job.id = %job.id, "submitted");
            show(object, context, look, look.of(&job, false, None)).await?;
            Ok(Action::requeue(LIVING))
        }
        Err(error) => match refusal(&error) {
            Some(refused) => {
                show(object, context, look, look.refused(Some(tenant), &refused)).await?;
                Ok(Action::requeue(REFUSED))
            }
            // Also a key that was sent with another document: the spec was changed while the answer was under way. By the next look
            // the job that was submitted first is found.
            None => Err(Error::muster("the job was not submitted")(error)),
        },
    }
}

/// Does to the job what the object asks for, and shows it.
async fn follow(
    object: &TrainingJob,
    context: &Context,
    client: &Client,
    look: &Look<'_, JobStatus>,
    job: JobView,
) -> Result<Action, Error> {
    context.mark_submitted(object).await?;
    let (job, changed) = edit(object, context, look, client, job).await?;
    let (job, suspended) = steer(object, context, look, client, job, changed.as_ref()).await?;
    let status = look.of(&job, suspended, changed.as_ref());
    let ended = job.phase.is_terminal();
    // Nobody looks again at what has ended.
    if ended || worth_writing(look.before, &status, context, object) {
        show(object, context, look, status).await?;
    }
    Ok(if ended {
        Action::await_change()
    } else {
        Action::requeue(LIVING)
    })
}

/// `spec.suspend` pauses; taken away, it resumes what it has paused, and nothing that somebody else has. That it pauses is written before
/// it does: whoever is killed in between would not know later that the pause was its own.
async fn steer(
    object: &TrainingJob,
    context: &Context,
    look: &Look<'_, JobStatus>,
    client: &Client,
    job: JobView,
    changed: Option<&Refused>,
) -> Result<(JobView, bool), Error> {
    let before = look.before.suspended;
    if job.phase.is_terminal() {
        return Ok((job, before));
    }
    let held = object.wants_to_be_held();
    let told = match (held, job.intent) {
        (true, Intent::Run | Intent::Suspend) => {
            if !before {
                show(object, context, look, look.of(&job, true, changed)).await?;
            }
            client.pause(job.id).await
        }
        (false, Intent::Pause) if before => client.resume(job.id).await,
        // By this operator, or by somebody else.
        (true, Intent::Pause) | (_, Intent::Cancel) => return Ok((job, before)),
        (false, Intent::Run | Intent::Suspend | Intent::Pause) => return Ok((job, false)),
    };
    match told {
        Ok(job) => {
            context.known.note(&job).await;
            Ok((job, held))
        }
        // It has ended meanwhile.
        Err(error) if error.status() == Some(409) => Ok((job, held || before)),
        Err(error) => Err(Error::muster("the job was not paused or resumed")(error)),
    }
}

/// The object goes: its job is cancelled, and the object stays until nothing runs any more.
async fn end(
    object: &TrainingJob,
    context: &Context,
    client: &Client,
    look: &Look<'_, JobStatus>,
    job: Option<JobView>,
) -> Result<Action, Error> {
    let Some(job) = job.filter(|job| !job.phase.is_terminal()) else {
        return context.remove_finalizer(object).await;
    };
    let job = if job.intent == Intent::Cancel {
        job
    } else {
        match client.cancel(job.id).await {
            Ok(job) => {
                context.known.note(&job).await;
                job
            }
            Err(error) if matches!(error.status(), Some(404 | 409)) => job,
            Err(error) => return Err(Error::muster("the job was not cancelled")(error)),
        }
    };
    let status = look.of(&job, look.before.suspended, None);
    if worth_writing(look.before, &status, context, object) {
        show(object, context, look, status).await?;
    }
    Ok(Action::requeue(LIVING))
}

/// Progress alone is written every other second; all else at once.
fn worth_writing(
    before: &JobStatus,
    now: &JobStatus,
    context: &Context,
    object: &TrainingJob,
) -> bool {
    before != now
        && (before.differs_in_more_than_progress(now) || context.wrote_before(object, PROGRESS))
}
