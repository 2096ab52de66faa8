//! Which job a verb that changes something means by a name. What it does may cost work, so a name never means one job this time and
//! another the next: of several that have not ended none is taken.

use super::{NotFound, Session, UsageError};
use crate::clock;
use crate::output::age;
use anyhow::bail;
use muster_client::JobQuery;
use muster_model::id::JobId;
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
    let query = JobQuery {
        name: Some(named.to_owned()),
        limit: Some(500),
        ..JobQuery::default()
    };
    let jobs = session.client.jobs(&query).await?.items;
    let open: Vec<&JobView> = open(&jobs).collect();
    if open.len() > 1 {
        let head = format!(
            "{} jobs that have not ended have the name {named:?}; none was told to {verb}. Name one by its id:",
            open.len()
        );
        bail!(UsageError(listed(head, open, clock::now())));
    }
    match open.first().copied().or(jobs.first()) {
        Some(job) => Ok(job.clone()),
        None => bail!(NotFound(format!("no job has the name or id {named:?}"))),
    }
}

fn open(jobs: &[JobView]) -> impl Iterator<Item = &JobView> {
    jobs.iter().filter(|job| !job.phase.is_terminal())
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
