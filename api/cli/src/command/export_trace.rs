//! `muster export-trace`: exports the cluster's history as a job trace, for simulation like the
//! published ones.

use super::CliSession;
use super::simulation_args::write;
use crate::output::line;
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _};
use muster_client::{Client, JobQuery};
use muster_lab::trace::common::{self, HistoryJob};
use muster_model::view::{JobView, TaskView};
use std::path::PathBuf;
use time::OffsetDateTime;

/// Number of jobs whose tasks are requested in parallel.
const AT_ONCE: usize = 8;

#[derive(Debug, Args)]
pub struct ExportTraceArgs {
    /// File to write [default: standard output].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl ExportTraceArgs {
    /// # Errors
    /// If the server refuses, or the file cannot be written.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let mut jobs = session.client.all_jobs(&JobQuery::default()).await?;
        jobs.sort_by_key(|job| (job.submitted_at, job.id));
        let first = jobs.first().map(|job| job.submitted_at);
        let origin = first.unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let history: Vec<HistoryJob> = futures::stream::iter(&jobs)
            .map(|job| past(&session.client, job, origin))
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        let text = common::write(&history);
        match &self.out {
            Some(path) => write(path, &text),
            None => line(text.trim_end()),
        }
    }
}

async fn past(
    client: &Client,
    job: &JobView,
    origin: OffsetDateTime,
) -> anyhow::Result<HistoryJob> {
    let tasks = match job.started_at {
        Some(_) => client.tasks(job.id).await?,
        None => Vec::new(),
    };
    let since = |at: OffsetDateTime| (at - origin).as_seconds_f64();
    Ok(HistoryJob {
        id: job.id.to_string(),
        tenant: job.tenant.clone(),
        submitted_s: since(job.submitted_at),
        gpus: first_gpus(&tasks).unwrap_or(job.spec.scale.workers.min * gpus_per_worker(job)),
        status: job.phase.as_str().to_owned(),
        kind: kind(job),
        started_s: job.started_at.map(since),
        finished_s: job.finished_at.map(since),
        gpu_kinds: job.spec.resources.worker.gpu_kinds.clone(),
    })
}

/// Returns the number of GPUs of the oldest known revision.
fn first_gpus(tasks: &[TaskView]) -> Option<u32> {
    let first = tasks.iter().map(|task| task.revision).min()?;
    let gpus = tasks
        .iter()
        .filter(|task| task.revision == first)
        .map(|task| task.gpus.len())
        .sum::<usize>();
    u32::try_from(gpus).ok()
}

fn gpus_per_worker(job: &JobView) -> u32 {
    job.spec.resources.worker.gpus
}

/// Returns the kind of a job: network and data set, or the program of a command.
fn kind(job: &JobView) -> String {
    match (&job.spec.engine, &job.spec.command) {
        (Some(engine), _) => format!("{}/{}", engine.model.kind(), engine.dataset.title()),
        (None, Some(command)) => format!("command/{}", command.title()),
        (None, None) => "unknown".to_owned(),
    }
}
