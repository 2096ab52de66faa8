//! `muster wait`: waits until a job has ended; the exit code gives its result.

use super::CliSession;
use crate::output::duration_s;
use clap::Args;
use futures::StreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use muster_client::{ClientError, StreamItem};
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::progress::measures;
use muster_model::view::JobView;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

/// Exit codes of `muster wait`; 0 means that the job has succeeded.
const FAILED: u8 = 10;
const CANCELLED: u8 = 11;
const TIMED_OUT: u8 = 12;

#[derive(Debug, Args)]
pub struct WaitArgs {
    /// Id of the job, or name (its newest job).
    job: String,
    /// Give up after this number of seconds.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

impl WaitArgs {
    /// # Errors
    /// If the job does not exist, or the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<ExitCode> {
        let job = session.job(&self.job).await?;
        until_ended(session, job.id, self.timeout.map(Duration::from_secs)).await
    }
}

/// Waits until the job has ended, with a progress bar on a terminal, and prints its result. Returns
/// the exit code of its phase, or `TIMED_OUT` after `timeout`.
///
/// # Errors
/// If the server refuses.
pub async fn until_ended(
    session: &CliSession,
    id: JobId,
    timeout: Option<Duration>,
) -> anyhow::Result<ExitCode> {
    let bar = bar();
    let ended = follow(session, id, &bar);
    let job = match timeout {
        None => ended.await?,
        Some(timeout) => match tokio::time::timeout(timeout, ended).await {
            Ok(job) => job?,
            Err(_) => {
                bar.abandon();
                note!(
                    "muster: the job has not ended within {} s",
                    timeout.as_secs()
                );
                return Ok(ExitCode::from(TIMED_OUT));
            }
        },
    };
    bar.finish_and_clear();
    session.output.print(&job, ending)?;
    Ok(exit_code(job.phase))
}

/// Returns the exit code of a job that has ended.
pub fn exit_code(phase: JobPhase) -> ExitCode {
    match phase {
        JobPhase::Succeeded => ExitCode::SUCCESS,
        JobPhase::Cancelled => ExitCode::from(CANCELLED),
        _ => ExitCode::from(FAILED),
    }
}

/// Draws the job until it has ended, and returns it then.
async fn follow(session: &CliSession, id: JobId, bar: &ProgressBar) -> anyhow::Result<JobView> {
    let mut stream = session.client.watch_job(id, None);
    loop {
        let job = read(session, id).await?;
        draw(bar, &job);
        if job.phase.is_terminal() {
            return Ok(job);
        }
        // The job is read again after every change of its state. It is also read after every
        // (re)connect, because the stream does not report earlier changes. Between these reads,
        // samples move the bar.
        loop {
            match stream.next().await.transpose()? {
                Some(StreamItem::Progress(series)) => {
                    if let Some(newest) = series.samples.last() {
                        bar.set_position(newest.sample.step);
                        bar.set_message(format!("loss {:.4}", newest.sample.loss));
                    }
                }
                Some(StreamItem::Event(event))
                    if matches!(event.event, Event::JobStateChanged { .. }) =>
                {
                    break;
                }
                Some(StreamItem::Opened(_)) => break,
                Some(_) => {}
                None => break,
            }
        }
    }
}

/// Reads the job. Retries while the server restarts.
///
/// # Errors
/// If the server refuses, or does not answer for half a minute.
pub async fn read(session: &CliSession, id: JobId) -> Result<JobView, ClientError> {
    const PAUSE: Duration = Duration::from_millis(500);
    /// Together half a minute. A longer outage is reported to the user.
    const ATTEMPTS: u32 = 60;
    let mut failed = 0;
    loop {
        match session.client.job(id).await {
            Err(error) if error.is_transient() && failed < ATTEMPTS => {
                failed += 1;
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// Shows the job's phase and steps.
pub fn draw(bar: &ProgressBar, job: &JobView) {
    bar.set_prefix(format!(
        "{} {}",
        job.name,
        super::job_table::phase_and_reason(job)
    ));
    if let Some(progress) = &job.progress {
        if let Some(total) = progress.total_steps {
            bar.set_length(total);
        }
        bar.set_position(progress.step);
    }
    bar.tick();
}

/// Returns the phase, and for a waiting job the reason and what would help.
#[must_use]
pub fn phase_line(job: &JobView) -> String {
    let mut line = job.phase.as_str().to_owned();
    if let Some(waiting) = &job.waiting {
        line = format!("{line}: {}", waiting.message);
        if let Some(helps) = &waiting.smallest_change {
            line = format!("{line}; what would help: {helps}");
        }
    }
    line
}

/// Returns the line that reports how the job has ended, with its duration and last evaluation.
#[must_use]
pub fn ending(job: &JobView) -> String {
    let progress = job.progress.as_ref();
    let measured = progress.and_then(|progress| {
        let (loss, accuracy) = (progress.test_loss, progress.test_accuracy);
        // The loss is reported only if the job measures no accuracy.
        let loss = loss.filter(|_| accuracy.is_none());
        Some(format!(
            ", {}",
            measures(progress.evaluated_on?, loss, accuracy)
        ))
    });
    let measured = measured.unwrap_or_default();
    let took = match (job.started_at, job.finished_at) {
        (Some(started), Some(finished)) => format!(
            " after {}",
            duration_s((finished - started).as_seconds_f64())
        ),
        _ => String::new(),
    };
    match &job.failure {
        Some(failure) => format!("job {} failed{took}: {failure}", job.name),
        None => format!("job {} {}{took}{measured}", job.name, job.phase.as_str()),
    }
}

/// Returns a progress bar, which is hidden unless stderr is a terminal.
pub fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {msg} ends in {eta}")
        .expect("the template is right");
    ProgressBar::new(0).with_style(style)
}
