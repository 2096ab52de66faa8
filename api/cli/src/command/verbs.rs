//! `muster suspend|continue|pause|resume|cancel|delete`: changes of jobs that the user names. All
//! but `delete` set the job's intent, which the next round applies.

use super::{CliSession, NotFound, UsageError, resolve_job};
use crate::clock;
use crate::output::{counted, line, prompt};
use anyhow::bail;
use clap::Args;
use muster_client::JobQuery;
use muster_model::id::JobId;
use muster_model::job::{Intent, JobPhase};
use muster_model::view::JobView;
use std::io::IsTerminal as _;
use time::OffsetDateTime;

/// Maximum number of jobs that labels select.
const SELECTED: u32 = 500;

#[derive(Debug, Args)]
pub struct JobVerbArgs {
    /// Ids or names of jobs. A name of several open jobs is refused.
    #[arg(required_unless_present = "label")]
    jobs: Vec<String>,
    /// All open jobs with this label, after a confirmation; may be repeated to require several.
    #[arg(short, long, value_name = "KEY=VALUE", conflicts_with = "jobs")]
    label: Vec<String>,
    /// Do not ask for a confirmation.
    #[arg(short, long, requires = "label")]
    yes: bool,
}

#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// Ids or names of jobs. A name of several jobs is refused.
    #[arg(required = true)]
    jobs: Vec<String>,
    /// Delete the newest of several jobs of one name.
    #[arg(long)]
    newest: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobVerb {
    Suspend,
    Continue,
    Pause,
    Resume,
    Cancel,
}

impl JobVerb {
    fn as_str(self) -> &'static str {
        match self {
            Self::Suspend => "suspend",
            Self::Continue => "continue",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
        }
    }
}

impl JobVerbArgs {
    /// # Errors
    /// If the server refuses; the first refusal ends the command.
    pub async fn run(self, session: &CliSession, verb: JobVerb) -> anyhow::Result<()> {
        let jobs = self.selected(session, verb).await?;
        if self.label.is_empty() {
            for job in jobs {
                ask(session, &job, verb).await?;
            }
            return Ok(());
        }
        // One refusal, such as that of a job that has ended meanwhile, must not spare the others.
        let (all, mut refused) = (jobs.len(), 0);
        for job in jobs {
            if let Err(error) = ask(session, &job, verb).await {
                refused += 1;
                note!("muster: job {} ({}): {error:#}", job.name, job.id);
            }
        }
        if refused > 0 {
            bail!("{refused} of {all} jobs were not changed");
        }
        Ok(())
    }
}

/// Asks for the change of one job, and prints the result.
async fn ask(session: &CliSession, before: &JobView, verb: JobVerb) -> anyhow::Result<()> {
    let id = before.id;
    if verb == JobVerb::Continue && before.intent == Intent::Pause {
        bail!(UsageError(format!(
            "job {} ({id}) is paused, not suspended: `muster resume` lets it run again",
            before.name
        )));
    }
    let client = &session.client;
    let (job, done) = match verb {
        JobVerb::Suspend => (client.suspend(id).await?, "is being suspended"),
        JobVerb::Continue => (client.go_on(id).await?, "continues"),
        JobVerb::Pause => (client.pause(id).await?, "pauses"),
        JobVerb::Resume => (client.resume(id).await?, "resumes"),
        JobVerb::Cancel => (client.cancel(id).await?, "is being cancelled"),
    };
    let done = unchanged(verb, before.phase, before.intent).unwrap_or_else(|| done.into());
    session
        .output
        .print(&job, |job| format!("job {} ({}) {done}", job.name, job.id))
}

impl JobVerbArgs {
    async fn selected(&self, session: &CliSession, verb: JobVerb) -> anyhow::Result<Vec<JobView>> {
        let mut jobs = Vec::new();
        for named in &self.jobs {
            jobs.push(resolve_job::job(session, named, verb.as_str()).await?);
        }
        if self.label.is_empty() {
            return Ok(jobs);
        }
        let open = JobPhase::ALL.into_iter();
        let query = JobQuery {
            phases: open.filter(|phase| !phase.is_terminal()).collect(),
            labels: self.label.clone(),
            limit: Some(SELECTED),
            ..JobQuery::default()
        };
        let page = session.client.jobs(&query).await?;
        if page.next.is_some() {
            bail!(UsageError(format!(
                "more than {SELECTED} open jobs have these labels; name a label of fewer jobs"
            )));
        }
        if page.items.is_empty() {
            bail!(NotFound("no open job has these labels".to_owned()));
        }
        if !self.yes {
            confirm(&page.items, verb)?;
        }
        Ok(page.items)
    }
}

/// Shows the jobs and asks whether to continue.
fn confirm(jobs: &[JobView], verb: JobVerb) -> Result<(), UsageError> {
    let verb = verb.as_str();
    let number = counted(u32::try_from(jobs.len()).unwrap_or(u32::MAX), "job");
    let mut text = format!("{number} would be asked to {verb}:");
    for job in jobs {
        text.push_str(&format!("\n  {}  {}", job.id, job.name));
    }
    if !std::io::stdin().is_terminal() {
        return Err(UsageError(format!("{text}\n--yes confirms it")));
    }
    prompt(&format!("{text}\n{verb} them? [y/N] "));
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    match (read, answer.trim()) {
        (Ok(_), "y" | "Y" | "yes") => Ok(()),
        _ => Err(UsageError("nothing was changed".to_owned())),
    }
}

/// Returns the text for a job that the verb does not change.
fn unchanged(verb: JobVerb, phase: JobPhase, intent: Intent) -> Option<String> {
    if !matches!(verb, JobVerb::Continue | JobVerb::Resume) || intent != Intent::Run {
        return None;
    }
    let phase_word = phase.as_str();
    Some(match phase {
        JobPhase::Queued | JobPhase::Starting | JobPhase::Running => {
            format!("is already {phase_word}")
        }
        // The scheduler has suspended or stopped it, or an earlier command already lets it run.
        _ => format!("is {phase_word} and continues by itself"),
    })
}

impl DeleteArgs {
    /// # Errors
    /// If several jobs have the name, or the server refuses; the first refusal ends the command.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        for named in &self.jobs {
            let job = self.choose(session, named).await?;
            session.client.delete(job.id).await?;
            line(&format!("job {} ({}) deleted", job.name, job.id))?;
        }
        Ok(())
    }

    /// Returns the job to delete. A deletion is final, so a repeated command must not delete
    /// another job of the name.
    async fn choose(&self, session: &CliSession, named: &str) -> anyhow::Result<JobView> {
        if self.newest || named.parse::<JobId>().is_ok() {
            return session.job(named).await;
        }
        let query = JobQuery {
            name: Some(named.to_owned()),
            limit: Some(500),
            ..JobQuery::default()
        };
        let mut jobs = session.client.jobs(&query).await?.items;
        if jobs.len() > 1 {
            bail!(UsageError(ambiguous_name(named, &jobs, clock::now())));
        }
        match jobs.pop() {
            Some(job) => Ok(job),
            None => resolve_job::by_short_id(session, named).await,
        }
    }
}

/// Returns the error message that lists the jobs of the name, newest first.
fn ambiguous_name(named: &str, jobs: &[JobView], now: OffsetDateTime) -> String {
    let head = format!(
        "{} jobs have the name {named:?}; nothing was deleted. Name one by its id, or take the newest with --newest:",
        jobs.len()
    );
    resolve_job::listed(head, jobs, now)
}

#[cfg(test)]
mod tests {
    use super::{JobVerb, unchanged};
    use muster_model::job::{Intent, JobPhase};

    fn unchanged_text(verb: JobVerb, phase: JobPhase, intent: Intent) -> String {
        unchanged(verb, phase, intent).unwrap_or_default()
    }

    #[test]
    fn unchanged_job_is_not_reported_as_continued() {
        for verb in [JobVerb::Continue, JobVerb::Resume] {
            let running = unchanged_text(verb, JobPhase::Running, Intent::Run);
            assert_eq!(running, "is already running");
        }
        let time_sliced = unchanged_text(JobVerb::Continue, JobPhase::Suspended, Intent::Run);
        assert_eq!(time_sliced, "is suspended and continues by itself");
        assert_eq!(
            unchanged_text(JobVerb::Continue, JobPhase::Suspended, Intent::Suspend),
            ""
        );
        assert_eq!(
            unchanged_text(JobVerb::Resume, JobPhase::Paused, Intent::Pause),
            ""
        );
        assert_eq!(
            unchanged_text(JobVerb::Pause, JobPhase::Running, Intent::Run),
            ""
        );
    }
}
