//! `muster suspend|continue|pause|resume|cancel|delete`: what a user wants of a job. The next round obeys.

use super::{NotFound, Session, UsageError, meant};
use crate::clock;
use crate::output::line;
use anyhow::bail;
use clap::Args;
use muster_client::JobQuery;
use muster_model::id::JobId;
use muster_model::job::{Intent, JobPhase};
use muster_model::view::JobView;
use time::OffsetDateTime;

#[derive(Debug, Args)]
pub struct OnJob {
    /// Names or ids. A name that several jobs have which have not ended is refused.
    #[arg(required = true)]
    jobs: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Delete {
    /// Names or ids. A name that several jobs have is refused.
    #[arg(required = true)]
    jobs: Vec<String>,
    /// Of several jobs of one name delete the newest.
    #[arg(long)]
    newest: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Suspend,
    Continue,
    Pause,
    Resume,
    Cancel,
}

impl Verb {
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

impl OnJob {
    /// # Errors
    /// At the first job for which the server refuses.
    pub async fn run(self, session: &Session, verb: Verb) -> anyhow::Result<()> {
        for named in &self.jobs {
            let before = meant::job(session, named, verb.as_str()).await?;
            let id = before.id;
            if verb == Verb::Continue && before.intent == Intent::Pause {
                bail!(UsageError(format!(
                    "job {} ({id}) is paused, not suspended: `muster resume` lets it run again",
                    before.name
                )));
            }
            let client = &session.client;
            let (job, done) = match verb {
                Verb::Suspend => (client.suspend(id).await?, "is being suspended"),
                Verb::Continue => (client.go_on(id).await?, "goes on"),
                Verb::Pause => (client.pause(id).await?, "pauses"),
                Verb::Resume => (client.resume(id).await?, "resumes"),
                Verb::Cancel => (client.cancel(id).await?, "is being cancelled"),
            };
            let done = unchanged(verb, before.phase, before.intent).unwrap_or_else(|| done.into());
            session
                .output
                .print(&job, |job| format!("job {} ({}) {done}", job.name, job.id))?;
        }
        Ok(())
    }
}

/// What is said of a job of this phase and intent that the verb leaves as it is.
fn unchanged(verb: Verb, phase: JobPhase, intent: Intent) -> Option<String> {
    if !matches!(verb, Verb::Continue | Verb::Resume) || intent != Intent::Run {
        return None;
    }
    let phase_word = phase.as_str();
    Some(match phase {
        JobPhase::Queued | JobPhase::Starting | JobPhase::Running => {
            format!("is already {phase_word}")
        }
        // The scheduler has taken it from its GPUs, or was told to let it run a moment ago.
        _ => format!("is {phase_word} and goes on by itself"),
    })
}

impl Delete {
    /// # Errors
    /// A name that several jobs have, or at the first job for which the server refuses.
    pub async fn run(self, session: &Session) -> anyhow::Result<()> {
        for named in &self.jobs {
            let job = self.choose(session, named).await?;
            session.client.delete(job.id).await?;
            line(&format!("job {} ({}) deleted", job.name, job.id))?;
        }
        Ok(())
    }

    /// What is deleted is gone, so a name must not mean another job the second time.
    async fn choose(&self, session: &Session, named: &str) -> anyhow::Result<JobView> {
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
            bail!(UsageError(several(named, &jobs, clock::now())));
        }
        match jobs.pop() {
            Some(job) => Ok(job),
            None => bail!(NotFound(format!("no job has the name or id {named:?}"))),
        }
    }
}

/// Which jobs have the name, newest first.
fn several(named: &str, jobs: &[JobView], now: OffsetDateTime) -> String {
    let head = format!(
        "{} jobs have the name {named:?}; nothing was deleted. Name one by its id, or take the newest with --newest:",
        jobs.len()
    );
    meant::listed(head, jobs, now)
}

#[cfg(test)]
mod tests {
    use super::{Verb, unchanged};
    use muster_model::job::{Intent, JobPhase};

    #[test]
    fn a_job_that_stays_as_it_is_does_not_go_on() {
        let said = |verb, phase, intent| unchanged(verb, phase, intent).unwrap_or_default();
        for verb in [Verb::Continue, Verb::Resume] {
            let running = said(verb, JobPhase::Running, Intent::Run);
            assert_eq!(running, "is already running");
        }
        let turned = said(Verb::Continue, JobPhase::Suspended, Intent::Run);
        assert_eq!(turned, "is suspended and goes on by itself");
        assert_eq!(
            said(Verb::Continue, JobPhase::Suspended, Intent::Suspend),
            ""
        );
        assert_eq!(said(Verb::Resume, JobPhase::Paused, Intent::Pause), "");
        assert_eq!(said(Verb::Pause, JobPhase::Running, Intent::Run), "");
    }
}
