//! `muster logs`: prints the output of a job's tasks, also after their end.

use super::log_printer::{LogPrinter, last_lines, merge};
use super::replay::age;
use super::{CliSession, NotFound, wait};
use crate::clock;
use clap::Args;
use futures::StreamExt as _;
use futures::stream::select_all;
use muster_client::{LogPart, StreamItem};
use muster_model::job::JobPhase;
use muster_model::view::{JobView, LogEnd, TaskView};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

/// Maximum size of the end of a log that one answer contains.
const TAIL_BYTES: u64 = 1 << 20;
/// Number of last lines of the task that failed.
const FAILED_LINES: usize = 20;

#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Id of the job, or name (its newest job).
    job: String,
    /// Continue to print new output, through all starts of the job, until it has ended. The exit
    /// code is then that of `muster wait`.
    #[arg(short, long)]
    follow: bool,
    /// Task to print, such as `worker-0` or `ps-1`; may be repeated.
    #[arg(short, long, default_value = "worker-0")]
    task: Vec<String>,
    /// Print all tasks, in the order of time. Each line begins with its task.
    #[arg(short, long, conflicts_with = "task")]
    all: bool,
    /// Tasks of this earlier revision of the job.
    #[arg(long)]
    revision: Option<u64>,
    /// Print only this number of lines at the end of each task.
    #[arg(long, value_name = "LINES")]
    tail: Option<usize>,
    /// Print only output of the last time, such as 90s, 30m, 12h or 7d.
    #[arg(long, value_name = "AGE", value_parser = age)]
    since: Option<Duration>,
    /// Begin each line with the time (UTC) at which the scheduler received it.
    #[arg(long)]
    timestamps: bool,
}

/// Output of a task that has been read.
struct ReadLog {
    text: String,
    next_offset: u64,
}

impl LogsArgs {
    /// # Errors
    /// If the job or a task does not exist, or the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<ExitCode> {
        let job = session.job(&self.job).await?;
        let tasks = session.client.tasks(job.id).await?;
        let chosen = self.choose(&job, &tasks)?;
        let names: Vec<String> = if chosen.is_empty() {
            self.task.clone()
        } else {
            chosen.iter().map(|task| task.name.clone()).collect()
        };
        let mut printer = LogPrinter::new(&names, self.timestamps);
        let ends = self.print(session, &chosen, &printer).await?;
        if !self.follow {
            if let Some(task) = failed_task(&job, &tasks, &names) {
                let task = &task.name;
                note!("muster: {task} failed: muster logs -t {task} {}", job.name);
            }
            return Ok(ExitCode::SUCCESS);
        }
        self.follow(session, &job, &names, &ends, &mut printer)
            .await?;
        if self.revision.is_some() {
            return Ok(ExitCode::SUCCESS);
        }
        let job = wait::read(session, job.id).await?;
        if !job.phase.is_terminal() {
            return Ok(ExitCode::SUCCESS);
        }
        print_failed(session, &job, &names).await?;
        note!("muster: {}", wait::ending(&job));
        Ok(wait::exit_code(job.phase))
    }

    /// Prints what the tasks have printed so far. Returns where each of them is read on.
    async fn print(
        &self,
        session: &CliSession,
        chosen: &[&TaskView],
        printer: &LogPrinter,
    ) -> anyhow::Result<BTreeMap<String, u64>> {
        let mut ends = BTreeMap::new();
        if let [task] = chosen {
            let read = self.read(session, task, self.timestamps).await?;
            printer.text(&task.name, &read.text)?;
            ends.insert(task.name.clone(), read.next_offset);
            return Ok(ends);
        }
        let mut logs = Vec::new();
        for task in chosen {
            let read = self.read(session, task, true).await?;
            ends.insert(task.name.clone(), read.next_offset);
            logs.push(read.text);
        }
        for (index, line) in merge(&logs) {
            let line = if self.timestamps {
                line
            } else {
                line.split_once(' ').map_or(line, |(_, line)| line)
            };
            printer.text(&chosen[index].name, &format!("{line}\n"))?;
        }
        Ok(ends)
    }

    async fn read(
        &self,
        session: &CliSession,
        task: &TaskView,
        has_times: bool,
    ) -> anyhow::Result<ReadLog> {
        let since = self.since.map(|age| LogPart::Since(clock::now() - age));
        if let (Some(lines), None) = (self.tail, since) {
            let end = LogPart::Tail(TAIL_BYTES);
            let page = session
                .client
                .logs(task.job_id, task.id, end, has_times)
                .await?;
            if page.offset == 0 || page.text.lines().count() > lines {
                return Ok(ReadLog {
                    text: last_lines(&page.text, lines).to_owned(),
                    next_offset: page.next_offset,
                });
            }
        }
        let mut part = since.unwrap_or(LogPart::From(0));
        let mut text = String::new();
        loop {
            let page = session
                .client
                .logs(task.job_id, task.id, part, has_times)
                .await?;
            text.push_str(&page.text);
            part = LogPart::From(page.next_offset);
            if page.at_end {
                let lines = self.tail.unwrap_or(usize::MAX);
                return Ok(ReadLog {
                    text: last_lines(&text, lines).to_owned(),
                    next_offset: page.next_offset,
                });
            }
        }
    }

    /// Prints new output until no more can follow. The start of another task in a place, after a
    /// restart or a resize, is reported on stderr.
    async fn follow(
        &self,
        session: &CliSession,
        job: &JobView,
        names: &[String],
        ends: &BTreeMap<String, u64>,
        printer: &mut LogPrinter,
    ) -> anyhow::Result<()> {
        let tasks = session.client.tasks(job.id).await?;
        let streams = names.iter().map(|name| {
            let task = self.newest(&tasks, name);
            let from = task.and_then(|task| Some((task.id, *ends.get(name)?)));
            let stream = match (self.revision, from) {
                // The task belongs to an earlier start, so no other task follows.
                (Some(_), Some((task, offset))) => {
                    session.client.follow_logs(job.id, task, Some(offset))
                }
                _ => session.client.follow_place(job.id, name, from),
            };
            stream.map(move |item| (name, item)).boxed()
        });
        let mut streams = select_all(streams.collect::<Vec<_>>());
        while let Some((name, item)) = streams.next().await {
            match item? {
                StreamItem::Log(piece) => printer.piece(&piece)?,
                StreamItem::TaskEnd(end) => {
                    printer.end(name)?;
                    note!("{}", next_begins(&end, name));
                }
                StreamItem::End(_) => printer.end(name)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the tasks to print; none if the job has none yet and may get some.
    fn choose<'a>(
        &self,
        job: &JobView,
        tasks: &'a [TaskView],
    ) -> anyhow::Result<Vec<&'a TaskView>> {
        if self.follow && self.revision.is_none() && tasks.is_empty() {
            return Ok(Vec::new());
        }
        if self.all {
            let newest = tasks.iter().map(|task| task.revision).max();
            let revision = self.revision.or(newest);
            let mut of_revision: Vec<&TaskView> = tasks
                .iter()
                .filter(|task| Some(task.revision) == revision)
                .collect();
            of_revision.sort_by_key(|task| task.role);
            if !of_revision.is_empty() {
                return Ok(of_revision);
            }
        }
        let found = self.task.iter().map(|name| {
            let task = self.newest(tasks, name);
            task.ok_or_else(|| self.missing(job, tasks, name).into())
        });
        found.collect()
    }

    fn missing(&self, job: &JobView, tasks: &[TaskView], wanted: &str) -> NotFound {
        let revision = self
            .revision
            .filter(|revision| tasks.iter().all(|task| task.revision != *revision));
        if let Some(revision) = revision {
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
            "job {} has no task {wanted}; it has {has}",
            job.name
        ))
    }

    /// Returns the task of this name in the given revision, or in the newest one.
    fn newest<'a>(&self, tasks: &'a [TaskView], name: &str) -> Option<&'a TaskView> {
        tasks
            .iter()
            .filter(|task| task.name == name)
            .filter(|task| {
                self.revision
                    .is_none_or(|revision| task.revision == revision)
            })
            .max_by_key(|task| task.revision)
    }
}

fn next_begins(end: &LogEnd, place: &str) -> String {
    format!("muster: {}; the next {place} begins:", end.reason)
}

/// Returns the newest task that the job's failure begins with, unless it is among the printed ones.
fn failed_task<'a>(
    job: &JobView,
    tasks: &'a [TaskView],
    printed: &[String],
) -> Option<&'a TaskView> {
    let failure = job
        .failure
        .as_deref()
        .filter(|_| job.phase == JobPhase::Failed)?;
    let name = failure.split(' ').next()?;
    let named = tasks.iter().filter(|task| task.name == name);
    let newest = named.max_by_key(|task| task.revision)?;
    (!printed.contains(&newest.name)).then_some(newest)
}

/// Prints the last lines of the task that failed to stderr, if another one was printed.
pub(super) async fn print_failed(
    session: &CliSession,
    job: &JobView,
    printed: &[String],
) -> anyhow::Result<()> {
    let tasks = session.client.tasks(job.id).await?;
    let Some(task) = failed_task(job, &tasks, printed) else {
        return Ok(());
    };
    let end = LogPart::Tail(64 << 10);
    let page = session.client.logs(job.id, task.id, end, false).await?;
    note!("muster: last lines of {}:", task.name);
    note!("{}", last_lines(&page.text, FAILED_LINES).trim_end());
    Ok(())
}
