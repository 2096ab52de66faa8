//! Which job a verb that changes something means by a name. What it does may cost work, so a name never means one job this time and
//! another the next: of several that have not ended none is taken.

use super::{NotFound, Session, UsageError};
use crate::clock;
use crate::output::age;
use anyhow::bail;
use muster_client::JobQuery;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::view::JobView;
use time::OffsetDateTime;

/// The job of this id, or else the one of this name that has not ended; where all have, the newest of them, for the server to refuse.
///
/// # Errors
/// [`UsageError`] where several have not ended, [`NotFound`], or why the server could not be asked.
pub async fn job(session: &Session, named: &str, verb: &str) -> anyhow::Result<JobView> {
    if let Ok(id) = named.parse::<JobId>() {
        return session.job_of_id(id).await;
    }
    // Of a name that is used day after day, one that is open may be older than hundreds that have ended.
    let phases = JobPhase::ALL.into_iter();
    let open = of_name(session, named, phases.filter(|phase| !phase.is_terminal())).await?;
    if open.len() > 1 {
        let head = format!(
            "{} jobs that have not ended have the name {named:?}; none was told to {verb}. Name one by its id:",
            open.len()
        );
        bail!(UsageError(listed(head, &open, clock::now())));
    }
    if let Some(job) = open.into_iter().next() {
        return Ok(job);
    }
    let ended = of_name(session, named, []).await?;
    let newest = ended.into_iter().next();
    newest.ok_or_else(|| NotFound(format!("no job has the name or id {named:?}")).into())
}

/// Newest first, in one of these phases, or in any where none is named; the newest 500.
async fn of_name(
    session: &Session,
    name: &str,
    phases: impl IntoIterator<Item = JobPhase>,
) -> anyhow::Result<Vec<JobView>> {
    let query = JobQuery {
        phases: phases.into_iter().collect(),
        name: Some(name.to_owned()),
        limit: Some(500),
        ..JobQuery::default()
    };
    Ok(session.client.jobs(&query).await?.items)
}

/// The jobs, a line each, after what is to be said of them.
pub fn listed<'a>(
    mut text: String,
    jobs: impl IntoIterator<Item = &'a JobView>,
    now: OffsetDateTime,
) -> String {
    for job in jobs {
        let submitted = age(job.submitted_at, now);
        let phase = job.phase.as_str();
        text.push_str(&format!(
            "\n  {}  {phase}, submitted {submitted} ago",
            job.id
        ));
    }
    text
}
