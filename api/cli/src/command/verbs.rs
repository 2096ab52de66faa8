//! `muster suspend|continue|pause|resume|cancel|delete`: what a user wants of a job. The next round obeys.

use super::Session;
use crate::output::line;
use clap::Args;

#[derive(Debug, Args)]
pub struct OnJob {
    /// Names (the newest of each) or ids.
    #[arg(required = true)]
    jobs: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
pub enum Verb {
    Suspend,
    Continue,
    Pause,
    Resume,
    Cancel,
}

impl OnJob {
    /// # Errors
    /// At the first job for which the server refuses.
    pub async fn run(self, session: &Session, verb: Verb) -> anyhow::Result<()> {
        for named in &self.jobs {
            let job = session.job(named).await?;
            let (job, done) = match verb {
                Verb::Suspend => (session.client.suspend(job.id).await?, "is being suspended"),
                Verb::Continue => (session.client.go_on(job.id).await?, "goes on"),
                Verb::Pause => (session.client.pause(job.id).await?, "pauses"),
                Verb::Resume => (session.client.resume(job.id).await?, "resumes"),
                Verb::Cancel => (session.client.cancel(job.id).await?, "is being cancelled"),
            };
            session
                .output
                .print(&job, |job| format!("job {} ({}) {done}", job.name, job.id))?;
        }
        Ok(())
    }

    /// # Errors
    /// At the first job for which the server refuses.
    pub async fn delete(self, session: &Session) -> anyhow::Result<()> {
        for named in &self.jobs {
            let job = session.job(named).await?;
            session.client.delete(job.id).await?;
            line(&format!("job {} ({}) deleted", job.name, job.id))?;
        }
        Ok(())
    }
}
