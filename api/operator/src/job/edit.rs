//! Changes of an object after its job was submitted. The number of workers and the priority are
//! passed on to Muster; other changes are impossible.

use super::document::{VERSION, document, refusal};
use super::status::JobStatus;
use crate::clock;
use crate::context::OperatorContext;
use crate::error::Error;
use crate::job::status::TrainingJob;
use crate::reconciliation::Reconciliation;
use crate::rejection::ObjectRejection;
use muster_client::Client;
use muster_model::priority::NO_PRIORITY;
use muster_model::spec::JobSpec;
use muster_model::view::{JobChange, JobView};

const REFUSED: &str = "ChangeRefused";
/// Fields of a submitted object that can be changed.
pub(crate) const CHANGEABLE: &str =
    "spec.suspend, spec.replicas, spec.scale.workers, spec.priority and spec.priority_class";

/// Passes changes of the object on to its job, and returns what cannot be changed. A spec that has
/// not changed since the last comparison is ignored, so that changes made in Muster are kept.
///
/// # Errors
/// If Muster does not answer.
pub(super) async fn edit(
    object: &TrainingJob,
    context: &OperatorContext,
    reconciliation: &Reconciliation<'_, JobStatus>,
    client: &Client,
    job: JobView,
) -> Result<(JobView, Option<ObjectRejection>), Error> {
    if reconciliation.has_compared() {
        return Ok((job, None));
    }
    let document = document(object, context.jobs.operator(), &[VERSION]);
    let Ok(wanted) = serde_json::from_value::<JobSpec>(document) else {
        return Ok((job, Some(goes_on())));
    };
    let elsewhere = (!is_same_but_for_size(&wanted, &job.spec)).then(goes_on);
    let change = change(&wanted, &job.spec);
    if change == JobChange::default() || job.phase.is_terminal() {
        return Ok((job, elsewhere));
    }
    if let Some(refused) = was_refused(reconciliation) {
        return Ok((job, Some(refused)));
    }
    // The change was passed on for this generation; a difference is a later change in Muster.
    if reconciliation.before.observed_generation == reconciliation.generation {
        return Ok((job, elsewhere));
    }
    let asked = clock::monotonic();
    match client.edit(job.id, &change).await {
        Ok(job) => {
            tracing::info!(object = %object.name(), job.id = %job.id, "changed");
            context.jobs.note(client, &job, asked);
            Ok((job, elsewhere))
        }
        // The job has ended since, or is being cancelled.
        Err(error) if error.status() == Some(409) => Ok((job, elsewhere)),
        Err(error) => match refusal(&error) {
            Some(refused) => {
                let reason = REFUSED;
                Ok((job, Some(ObjectRejection { reason, ..refused })))
            }
            None => Err(Error::muster("the job was not changed")(error)),
        },
    }
}

fn goes_on() -> ObjectRejection {
    ObjectRejection::spec_changed("the job continues as it was submitted", CHANGEABLE)
}

fn change(wanted: &JobSpec, is: &JobSpec) -> JobChange {
    let workers = wanted.scale.workers;
    let class = wanted.priority_class.as_ref();
    let class = class.filter(|class| is.priority_class.as_ref() != Some(class));
    // Muster has filled in the default of the class, or 0 without one.
    let priority = match (wanted.priority, &wanted.priority_class) {
        (None, Some(_)) => None,
        (number, _) => Some(number.unwrap_or(NO_PRIORITY)),
    };
    JobChange {
        workers: (workers != is.scale.workers).then_some(workers),
        // Fixed in the object; they may have been changed in Muster.
        ps_shards: None,
        priority: priority.filter(|number| class.is_some() || *number != is.priority()),
        priority_class: class.cloned(),
        edits: None,
    }
}

fn is_same_but_for_size(wanted: &JobSpec, is: &JobSpec) -> bool {
    let mut wanted = wanted.clone();
    (wanted.scale.workers, wanted.scale.ps_shards) = (is.scale.workers, is.scale.ps_shards);
    wanted.priority = is.priority;
    if wanted.priority_class.is_some() {
        wanted.priority_class.clone_from(&is.priority_class);
    }
    // Muster fills in the step that the object omits.
    if let (Some(from), Some(named)) = (&mut wanted.from, is.from) {
        from.step = from.step.or(named.step);
    }
    wanted == *is
}

/// Returns Muster's rejection of this generation, which a retry would repeat.
fn was_refused(reconciliation: &Reconciliation<'_, JobStatus>) -> Option<ObjectRejection> {
    let before = reconciliation.before;
    let said = before
        .conditions
        .iter()
        .find(|found: &&crate::condition::StatusCondition| {
            found.kind == "Misconfigured" && found.status == "True" && found.reason == REFUSED
        });
    said.filter(|_| before.observed_generation == reconciliation.generation)
        .map(|said| ObjectRejection {
            reason: REFUSED,
            message: said.message.clone(),
        })
}
