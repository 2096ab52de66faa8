//! `muster logs`: prints the output of a job's tasks, also after their end.

use super::{CliSession, NotFound};
use crate::output::Out;
use clap::Args;
use futures::StreamExt as _;
use muster_client::{Messages, StreamItem};
use muster_model::view::{LogEnd, TaskView};
use std::io::Write as _;

#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Id of the job, or name (its newest job).
    job: String,
    /// Continue to print new output, through all starts of the job, until it has ended.
    #[arg(short, long)]
    follow: bool,
    /// Task to print, such as `worker-0` or `ps-1`.
    #[arg(short, long, default_value = "worker-0")]
    task: String,
    /// Task of this earlier revision of the job.
    #[arg(long)]
    revision: Option<u64>,
    /// Print only this number of bytes at the end.
    #[arg(long, value_name = "BYTES")]
    tail: Option<u64>,
}

fn has_revision(tasks: &[TaskView], revision: u64) -> bool {
    tasks.iter().any(|task| task.revision == revision)
}

/// Prints output until no more can follow. The start of another task in this place, after a restart
/// or a resize, is reported on stderr.
async fn follow(mut stream: Messages, place: &str) -> anyhow::Result<()> {
    let mut out = Out;
    while let Some(item) = stream.next().await {
        match item? {
            StreamItem::Log(piece) => {
                out.write_all(piece.text.as_bytes())?;
                out.flush()?;
            }
            StreamItem::TaskEnd(end) => note!("{}", next_begins(&end, place)),
            StreamItem::End(_) => break,
            _ => {}
        }
    }
    Ok(())
}

fn next_begins(end: &LogEnd, place: &str) -> String {
    format!("muster: {}; the next {place} begins:", end.reason)
}

impl LogsArgs {
    /// # Errors
    /// If the job or task does not exist, or the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let job = session.job(&self.job).await?;
        let tasks = session.client.tasks(job.id).await?;
        if self.follow && self.revision.is_none() && tasks.is_empty() {
            let stream = session.client.follow_place(job.id, &self.task, None);
            return follow(stream, &self.task).await;
        }
        let task = self.choose(&tasks).ok_or_else(|| {
            if let Some(revision) = self
                .revision
                .filter(|wanted| !has_revision(&tasks, *wanted))
            {
                let newest = tasks.iter().map(|task| task.revision).max();
                let newest = newest.map_or_else(
                    || "it has none yet".to_owned(),
                    |newest| format!("its newest with tasks is {newest}"),
                );
                let name = &job.name;
                return NotFound(format!("job {name} has no revision {revision}; {newest}"));
            }
            let mut names: Vec<_> = tasks
                .iter()
                .map(|task| format!("{} (revision {})", task.name, task.revision))
                .collect();
            names.dedup();
            let has = if names.is_empty() {
                "none yet".to_owned()
            } else {
                names.join(", ")
            };
            NotFound(format!(
                "job {} has no task {}; it has {has}",
                job.name, self.task
            ))
        })?;
        let mut out = Out;
        let mut offset = None;
        loop {
            let page = session
                .client
                .logs(job.id, task.id, offset, self.tail)
                .await?;
            out.write_all(page.text.as_bytes())?;
            offset = Some(page.next_offset);
            if page.at_end {
                break;
            }
        }
        out.flush()?;
        if !self.follow {
            return Ok(());
        }
        let stream = match self.revision {
            // The task belongs to an earlier start, so no other task follows.
            Some(_) => session.client.follow_logs(job.id, task.id, offset),
            None => {
                let from = offset.map(|offset| (task.id, offset));
                session.client.follow_place(job.id, &self.task, from)
            }
        };
        follow(stream, &self.task).await
    }

    /// Returns the task of this name in the given revision, or in the newest one.
    fn choose<'a>(&self, tasks: &'a [TaskView]) -> Option<&'a TaskView> {
        tasks
            .iter()
            .filter(|task| task.name == self.task)
            .filter(|task| {
                self.revision
                    .is_none_or(|revision| task.revision == revision)
            })
            .max_by_key(|task| task.revision)
    }
}
