//! Finds the job that a changing verb names. The change may destroy work, so an ambiguous name is
//! refused: of several open jobs none is chosen.

use super::{CliSession, NotFound, UsageError};
use crate::clock;
use crate::output::age;
use anyhow::bail;
use muster_client::JobQuery;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::view::JobView;
use serde_json::{Value, json};
use time::OffsetDateTime;

/// Number of digits from which on the end of an id names a job.
const SHORT_ID_MIN: usize = 4;

/// Returns the job of this id, or the open job of this name. If all jobs of the name have ended, it
/// returns the newest one, and the server refuses the change. If no job has the name, it returns
/// the job whose id ends so.
///
/// # Errors
/// [`UsageError`] if several jobs of the name are open or several ids end so, [`NotFound`], or the
/// reason why the server was not reached.
pub async fn job(session: &CliSession, named: &str, verb: &str) -> anyhow::Result<JobView> {
    if let Ok(id) = named.parse::<JobId>() {
        return session.job_of_id(id).await;
    }
    // An open job may be older than hundreds of ended jobs of the same name.
    let phases = JobPhase::ALL.into_iter();
    let open = of_name(session, named, phases.filter(|phase| !phase.is_terminal())).await?;
    if open.len() > 1 {
        let head = format!(
            "{} jobs that have not ended have the name {named:?}; none was asked to {verb}. Name one by its id:",
            open.len()
        );
        bail!(UsageError(listed(head, &open, clock::now())));
    }
    if let Some(job) = open.into_iter().next() {
        return Ok(job);
    }
    let ended = of_name(session, named, []).await?;
    match ended.into_iter().next() {
        Some(newest) => Ok(newest),
        None => by_short_id(session, named).await,
    }
}

/// Returns the job whose id ends with these hexadecimal digits.
///
/// # Errors
/// [`UsageError`] if several ids end so, [`NotFound`], or the reason why the server was not
/// reached.
pub async fn by_short_id(session: &CliSession, named: &str) -> anyhow::Result<JobView> {
    let digits = named.replace('-', "").to_ascii_lowercase();
    let is_short_id = (SHORT_ID_MIN..=32).contains(&digits.len())
        && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let mut jobs = if is_short_id {
        let query = JobQuery {
            short_id: Some(digits),
            ..JobQuery::default()
        };
        session.client.jobs(&query).await?.items
    } else {
        Vec::new()
    };
    if jobs.len() > 1 {
        let head = format!("{} jobs have an id that ends with {named}:", jobs.len());
        bail!(UsageError(listed(head, &jobs, clock::now())));
    }
    match jobs.pop() {
        Some(job) => Ok(job),
        None => bail!(NotFound(format!("no job has the name or id {named:?}"))),
    }
}

/// Enters jobs into `after` of a document, each as `JOB`, `JOB:success` or `JOB:end`.
///
/// # Errors
/// [`NotFound`], [`UsageError`] for another condition, or the reason why the server was not
/// reached.
pub async fn enter_after(
    session: &CliSession,
    document: &mut Value,
    named: &[String],
) -> anyhow::Result<()> {
    if named.is_empty() {
        return Ok(());
    }
    let Some(fields) = document.as_object_mut() else {
        bail!(UsageError("the document is no map of fields".to_owned()));
    };
    let after = fields.entry("after").or_insert_with(|| json!([]));
    if after.is_null() {
        *after = json!([]);
    }
    let Some(after) = after.as_array_mut() else {
        let problem = format!("after is {after}; expected a list of jobs");
        bail!(UsageError(problem));
    };
    for text in named {
        let (job, on) = text.rsplit_once(':').unwrap_or((text, "success"));
        if !matches!(on, "success" | "end") {
            let problem = format!("--after {text}: expected JOB, JOB:success or JOB:end");
            bail!(UsageError(problem));
        }
        let id = session.job(job).await?.id;
        after.push(json!({ "job": id, "on": on }));
    }
    Ok(())
}

/// Returns the newest 500 jobs of this name, newest first, in one of these phases; in any phase if
/// none is given.
async fn of_name(
    session: &CliSession,
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

/// Appends a line per job to a text.
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
