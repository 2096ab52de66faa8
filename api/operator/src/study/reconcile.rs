//! Steps of the reconciliation of a `Study`; [`crate::reconcile_flow`] defines their order.

use super::status::{StudyPause, StudyStatus};
use crate::context::OperatorContext;
use crate::error::Error;
use crate::job::document::{document, idempotency_key, label, refusal};
use crate::reconcile_flow::REFUSED;
use crate::reconciliation::{Reconciliation, SubmittedStatus as _};
use crate::rejection::ObjectRejection;
use crate::study::status::StudyObject;
use crate::submission::{SubmissionSteps, TenantSession, show};
use kube::runtime::controller::Action;
use muster_client::{Client, ClientError};
use muster_model::id::StudyId;
use muster_model::study::{StudyPhase, StudySpec};
use muster_model::view::StudyView;
use std::time::Duration;

/// Reconcile interval of an unfinished study.
const LIVING: Duration = Duration::from_secs(1);
const FIXED: [(&str, &str); 2] = [("version", "muster/v1"), ("kind", "study")];
const PAGE: u32 = 100;

impl SubmissionSteps for StudyStatus {
    type View = StudyView;

    /// An id in the status counts only if that study has the object's uid, because other writers
    /// can set the status.
    async fn find(
        object: &StudyObject,
        _: &OperatorContext,
        before: &Self,
        TenantSession { client, .. }: &TenantSession,
    ) -> Result<Option<StudyView>, Error> {
        let uid = object.uid_text();
        let found = match before.study_id {
            Some(id) => by_id(client, id).await,
            None => Ok(None),
        };
        let found = match found {
            Ok(Some(study)) if is_of(&study, &uid) => Ok(Some(study)),
            Ok(_) => by_uid(client, &object.name(), &uid).await,
            Err(error) => Err(error),
        };
        found.map_err(Error::muster("a study was not looked for"))
    }

    async fn submit(
        object: &StudyObject,
        context: &OperatorContext,
        reconciliation: &Reconciliation<'_, Self>,
        TenantSession { tenant, client }: &TenantSession,
    ) -> Result<Action, Error> {
        let document = document(object, context.jobs.operator(), &FIXED);
        match client
            .create_study(&document, Some(&idempotency_key(object)))
            .await
        {
            Ok(study) => {
                tracing::info!(object = %object.name(), study.id = %study.id, "created");
                show(
                    object,
                    context,
                    reconciliation,
                    reconciliation.of(&study, StudyPause::None, None),
                )
                .await?;
                Ok(Action::requeue(LIVING))
            }
            Err(error) => match refusal(&error) {
                Some(refused) => {
                    let status = Self::refused(reconciliation, tenant, &refused);
                    show(object, context, reconciliation, status).await?;
                    Ok(Action::requeue(REFUSED))
                }
                None => Err(Error::muster("the study was not created")(error)),
            },
        }
    }

    async fn follow(
        object: &StudyObject,
        context: &OperatorContext,
        reconciliation: &Reconciliation<'_, Self>,
        client: &Client,
        study: StudyView,
    ) -> Result<Action, Error> {
        let changed = changed(object, context, reconciliation, &study);
        let (study, pause) = steer(
            object,
            context,
            reconciliation,
            client,
            study,
            changed.as_ref(),
        )
        .await?;
        let over = study.phase.is_over();
        show(
            object,
            context,
            reconciliation,
            reconciliation.of(&study, pause, changed.as_ref()),
        )
        .await?;
        Ok(if over {
            Action::await_change()
        } else {
            Action::requeue(LIVING)
        })
    }

    async fn end(
        object: &StudyObject,
        context: &OperatorContext,
        reconciliation: &Reconciliation<'_, Self>,
        client: &Client,
        study: Option<StudyView>,
    ) -> Result<Action, Error> {
        let Some(study) = study.filter(|study| !study.phase.is_over()) else {
            return context.remove_finalizer(object).await;
        };
        let study = match client.cancel_study(study.id).await {
            Ok(study) => study,
            Err(error) if matches!(error.status(), Some(404 | 409)) => study,
            Err(error) => return Err(Error::muster("the study was not cancelled")(error)),
        };
        let status = reconciliation.of(&study, reconciliation.before.pause(), None);
        show(object, context, reconciliation, status).await?;
        Ok(Action::requeue(LIVING))
    }
}

async fn by_id(client: &Client, id: StudyId) -> Result<Option<StudyView>, ClientError> {
    match client.study(id).await {
        Err(error) if error.status() == Some(404) => Ok(None),
        found => found.map(Some),
    }
}

fn is_of(study: &StudyView, uid: &str) -> bool {
    study.labels.get(label::UID).is_some_and(|of| of == uid)
}

async fn by_uid(client: &Client, name: &str, uid: &str) -> Result<Option<StudyView>, ClientError> {
    let mut after = None;
    loop {
        let page = client.studies(Some(name), PAGE, after.as_deref()).await?;
        let mut items = page.items.into_iter();
        let found = items.find(|study| is_of(study, uid));
        if found.is_some() || page.next.is_none() {
            return Ok(found);
        }
        after = page.next;
    }
}

/// Whether the spec differs from the created study. Newer servers reject such a change of the
/// object.
fn changed(
    object: &StudyObject,
    context: &OperatorContext,
    reconciliation: &Reconciliation<'_, StudyStatus>,
    study: &StudyView,
) -> Option<ObjectRejection> {
    if reconciliation.has_compared() {
        return None;
    }
    let document = document(object, context.jobs.operator(), &FIXED);
    let same =
        serde_json::from_value::<StudySpec>(document).is_ok_and(|spec| spec == study.document);
    (!same).then(|| {
        ObjectRejection::spec_changed("the study continues as it was created", "spec.suspend")
    })
}

/// Carries out `spec.suspend`: pauses the study, and resumes only a pause of its own. The scheduler
/// carries out requests later and the phase does not show pending ones, so a request is remembered
/// and sent once. The pause is recorded in the status before it is requested; an operator that is
/// killed in between would not recognise its own pause later.
async fn steer(
    object: &StudyObject,
    context: &OperatorContext,
    reconciliation: &Reconciliation<'_, StudyStatus>,
    client: &Client,
    study: StudyView,
    changed: Option<&ObjectRejection>,
) -> Result<(StudyView, StudyPause), Error> {
    let before = reconciliation.before.pause();
    let held = object.wants_to_be_held();
    // Another user has resumed a study that was seen paused.
    let resumed = reconciliation.before.is_paused() && study.phase == StudyPhase::Running;
    let told = match (held, study.phase) {
        (true, StudyPhase::Created | StudyPhase::Running) => {
            if before == StudyPause::Ordered && !resumed {
                return Ok((study, before));
            }
            let wanted = reconciliation.of(&study, StudyPause::Wanted, changed);
            show(object, context, reconciliation, wanted).await?;
            client.pause_study(study.id).await
        }
        (false, StudyPhase::Created | StudyPhase::Running | StudyPhase::Paused)
            if before != StudyPause::None =>
        {
            client.resume_study(study.id).await
        }
        (false, _) => return Ok((study, StudyPause::None)),
        (true, _) => return Ok((study, before)),
    };
    match told {
        Ok(study) if held => Ok((study, StudyPause::Ordered)),
        Ok(study) => Ok((study, StudyPause::None)),
        // The study has ended since.
        Err(error) if error.status() == Some(409) => Ok((study, before)),
        Err(error) => Err(Error::muster("the study was not paused or resumed")(error)),
    }
}
