//! Changes of an object after its job was submitted. The number of workers and the priority are
//! passed on to Muster; other changes are impossible.

use super::document::{VERSION, document, refusal};
use super::status::JobStatus;
use crate::clock;
use crate::context::Context;
use crate::error::Error;
use crate::job::status::TrainingJob;
use crate::look::Look;
use crate::refused::Refused;
use muster_client::Client;
use muster_model::spec::JobSpec;
use muster_model::view::{JobChange, JobView};

const REFUSED: &str = "ChangeRefused";
const CHANGEABLE: &str = "spec.suspend, spec.replicas, spec.scale.workers and spec.priority";

/// Passes changes of the object on to its job, and returns what cannot be changed. A spec that has
/// not changed since the last comparison is ignored, so that changes made in Muster are kept.
///
/// # Errors
/// If Muster does not answer.
pub(super) async fn edit(
    object: &TrainingJob,
    context: &Context,
    look: &Look<'_, JobStatus>,
    client: &Client,
    job: JobView,
) -> Result<(JobView, Option<Refused>), Error> {
    if look.has_compared() {
        return Ok((job, None));
    }
    let document = document(object, context.known.operator(), &[VERSION]);
    let Ok(wanted) = serde_json::from_value::<JobSpec>(document) else {
        return Ok((job, Some(goes_on())));
    };
    let elsewhere = (!is_same_but_for_size(&wanted, &job.spec)).then(goes_on);
    let change = change(&wanted, &job.spec);
    if change == JobChange::default() || job.phase.is_terminal() {
        return Ok((job, elsewhere));
    }
    if let Some(refused) = was_refused(look) {
        return Ok((job, Some(refused)));
    }
    // The change was passed on for this generation; a difference is a later change in Muster.
    if look.before.observed_generation == look.generation {
        return Ok((job, elsewhere));
    }
    let asked = clock::monotonic();
    match client.edit(job.id, &change).await {
        Ok(job) => {
            tracing::info!(object = %object.name(), job.id = %job.id, "changed");
            context.known.note(client, &job, asked);
            Ok((job, elsewhere))
        }
        // The job has ended since, or is being cancelled.
        Err(error) if error.status() == Some(409) => Ok((job, elsewhere)),
        Err(error) => match refusal(&error) {
            Some(refused) => {
                let reason = REFUSED;
                Ok((job, Some(Refused { reason, ..refused })))
            }
            None => Err(Error::muster("the job was not changed")(error)),
        },
    }
}

fn goes_on() -> Refused {
    Refused::spec_changed("the job continues as it was submitted", CHANGEABLE)
}

fn change(wanted: &JobSpec, is: &JobSpec) -> JobChange {
    let (workers, priority) = (wanted.scale.workers, wanted.priority);
    JobChange {
        workers: (workers != is.scale.workers).then_some(workers),
        // Fixed in the object; they may have been changed in Muster.
        ps_shards: None,
        priority: (priority != is.priority).then_some(priority),
        edits: None,
    }
}

fn is_same_but_for_size(wanted: &JobSpec, is: &JobSpec) -> bool {
    let mut wanted = wanted.clone();
    (wanted.scale.workers, wanted.scale.ps_shards) = (is.scale.workers, is.scale.ps_shards);
    wanted.priority = is.priority;
    // Muster fills in the step that the object omits.
    if let (Some(from), Some(named)) = (&mut wanted.from, is.from) {
        from.step = from.step.or(named.step);
    }
    wanted == *is
}

/// Returns Muster's rejection of this generation, which a retry would repeat.
fn was_refused(look: &Look<'_, JobStatus>) -> Option<Refused> {
    let before = look.before;
    let of_this = |found: &&crate::condition::Condition| {
        found.kind == "Misconfigured" && found.status == "True" && found.reason == REFUSED
    };
    let said = before.conditions.iter().find(of_this);
    said.filter(|_| before.observed_generation == look.generation)
        .map(|said| Refused {
            reason: REFUSED,
            message: said.message.clone(),
        })
}
