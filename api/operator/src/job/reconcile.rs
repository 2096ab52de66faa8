//! Steps of the reconciliation of a `TrainingJob`; [`crate::reconcile_flow`] defines their order.

use super::document::{VERSION, document, idempotency_key, label, refusal};
use super::edit::edit;
use super::status::{JobStatus, StatusDifference};
use crate::clock;
use crate::context::OperatorContext;
use crate::error::Error;
use crate::job::status::TrainingJob;
use crate::reconcile_flow::REFUSED;
use crate::reconciliation::{Reconciliation, SubmittedStatus as _};
use crate::rejection::ObjectRejection;
use crate::submission::{SubmissionSteps, TenantSession, show};
use kube::runtime::controller::Action;
use muster_client::Client;
use muster_model::job::Intent;
use muster_model::view::JobView;
use std::time::Duration;

/// Reconcile interval of an unfinished job without events.
const LIVING: Duration = Duration::from_secs(5);
/// Minimum time between two writes of a status that differ only in progress.
const PROGRESS: Duration = Duration::from_secs(2);
/// Minimum time between two writes of a status that differ also in queue position.
const PLACE: Duration = Duration::from_secs(1);

impl SubmissionSteps for JobStatus {
    type View = JobView;

    /// An id in the status counts only if that job has the object's uid, because other writers can
    /// set the status.
    async fn find(
        object: &TrainingJob,
        context: &OperatorContext,
        before: &Self,
        session: &TenantSession,
    ) -> Result<Option<JobView>, Error> {
        let uid = object.uid_text();
        let TenantSession { tenant, client } = session;
        if let Some(id) = before.job_id {
            let job = context.jobs.job(tenant, client, id).await?;
            if job
                .as_ref()
                .is_some_and(|job: &JobView| job.labels.get(label::UID) == Some(&uid))
            {
                return Ok(job);
            }
        }
        context
            .jobs
            .by_uid(client, &uid)
            .await
            .map_err(Error::muster("a job was not looked for"))
    }

    async fn submit(
        object: &TrainingJob,
        context: &OperatorContext,
        reconciliation: &Reconciliation<'_, Self>,
        TenantSession { tenant, client }: &TenantSession,
    ) -> Result<Action, Error> {
        let document = document(object, context.jobs.operator(), &[VERSION]);
        let asked = clock::monotonic();
        match client
            .submit(&document, Some(&idempotency_key(object)))
            .await
        {
            Ok(job) => {
                tracing::info!(object = %object.name(), job.id = %job.id, "submitted");
                context.jobs.note(client, &job, asked);
                show(
                    object,
                    context,
                    reconciliation,
                    reconciliation.of(&job, false, None),
                )
                .await?;
                Ok(Action::requeue(LIVING))
            }
            Err(error) => match refusal(&error) {
                Some(refused) => {
                    show(
                        object,
                        context,
                        reconciliation,
                        Self::refused(reconciliation, tenant, &refused),
                    )
                    .await?;
                    Ok(Action::requeue(REFUSED))
                }
                // Also for a key that was used with another document: the spec was changed before
                // the answer arrived. The next reconciliation finds the job that was submitted
                // first.
                None => Err(Error::muster("the job was not submitted")(error)),
            },
        }
    }

    async fn follow(
        object: &TrainingJob,
        context: &OperatorContext,
        reconciliation: &Reconciliation<'_, Self>,
        client: &Client,
        job: JobView,
    ) -> Result<Action, Error> {
        let (job, changed) = edit(object, context, reconciliation, client, job).await?;
        let (job, suspended) = steer(
            object,
            context,
            reconciliation,
            client,
            job,
            changed.as_ref(),
        )
        .await?;
        let status = reconciliation.of(&job, suspended, changed.as_ref());
        if job.phase.is_terminal() {
            show(object, context, reconciliation, status).await?;
            return Ok(Action::await_change());
        }
        show_in_turn(object, context, reconciliation, status).await
    }

    async fn end(
        object: &TrainingJob,
        context: &OperatorContext,
        reconciliation: &Reconciliation<'_, Self>,
        client: &Client,
        job: Option<JobView>,
    ) -> Result<Action, Error> {
        let Some(job) = job.filter(|job| !job.phase.is_terminal()) else {
            return context.remove_finalizer(object).await;
        };
        let job = if job.intent == Intent::Cancel {
            job
        } else {
            let asked = clock::monotonic();
            match client.cancel(job.id).await {
                Ok(job) => {
                    context.jobs.note(client, &job, asked);
                    job
                }
                Err(error) if matches!(error.status(), Some(404 | 409)) => job,
                Err(error) => return Err(Error::muster("the job was not cancelled")(error)),
            }
        };
        let status = reconciliation.of(&job, reconciliation.before.suspended, None);
        show_in_turn(object, context, reconciliation, status).await
    }
}

/// Carries out `spec.suspend`: pauses the job, and resumes only a pause of its own. The pause is
/// recorded in the status before it is requested; an operator that is killed in between would not
/// recognise its own pause later.
async fn steer(
    object: &TrainingJob,
    context: &OperatorContext,
    reconciliation: &Reconciliation<'_, JobStatus>,
    client: &Client,
    job: JobView,
    changed: Option<&ObjectRejection>,
) -> Result<(JobView, bool), Error> {
    let before = reconciliation.before.suspended;
    if job.phase.is_terminal() {
        return Ok((job, before));
    }
    let held = object.wants_to_be_held();
    let mut asked = clock::monotonic();
    let told = match (held, job.intent) {
        (true, Intent::Run | Intent::Suspend) => {
            if !before {
                show(
                    object,
                    context,
                    reconciliation,
                    reconciliation.of(&job, true, changed),
                )
                .await?;
                asked = clock::monotonic();
            }
            client.pause(job.id).await
        }
        (false, Intent::Pause) if before => client.resume(job.id).await,
        // The pause is this operator's or another user's.
        (true, Intent::Pause) | (_, Intent::Cancel) => return Ok((job, before)),
        (false, Intent::Run | Intent::Suspend | Intent::Pause) => return Ok((job, false)),
    };
    match told {
        Ok(job) => {
            context.jobs.note(client, &job, asked);
            Ok((job, held))
        }
        // The job has ended since.
        Err(error) if error.status() == Some(409) => Ok((job, held || before)),
        Err(error) => Err(Error::muster("the job was not paused or resumed")(error)),
    }
}

/// Writes changes at once, and progress and queue position at the rate of the throttle.
async fn show_in_turn(
    object: &TrainingJob,
    context: &OperatorContext,
    reconciliation: &Reconciliation<'_, JobStatus>,
    status: JobStatus,
) -> Result<Action, Error> {
    let apart = match status.news(reconciliation.before) {
        StatusDifference::None => return Ok(Action::requeue(LIVING)),
        StatusDifference::Change => {
            show(object, context, reconciliation, status).await?;
            return Ok(Action::requeue(LIVING));
        }
        StatusDifference::Place => PLACE,
        StatusDifference::Progress => PROGRESS,
    };
    let mut wait = context.until_unwritten(object, apart);
    let now = clock::monotonic();
    if wait.is_zero() {
        wait = context.status_throttle.reserve(&object.uid_text(), now);
    }
    if !wait.is_zero() {
        // The reserved time is kept; this reconciliation also finds changes without an event.
        return Ok(Action::requeue(wait.min(LIVING)));
    }
    let shown = show(object, context, reconciliation, status).await;
    let took = clock::monotonic().duration_since(now);
    match shown {
        Ok(()) => context.status_throttle.took(took),
        Err(_) => context.status_throttle.failed(took),
    }
    shown.map(|()| Action::requeue(LIVING))
}
