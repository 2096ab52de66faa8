//! Scalars of TensorBoard: event files that a program writes below its output folder become metrics
//! of its job, as if it had logged them.
//!
//! Rank 0's files are read while the task runs and once at its end. The positions are in the task's
//! folder, so that a restarted daemon continues there.

mod claim;
mod event;
mod files;
mod record;
#[cfg(test)]
mod tests;

pub(super) use claim::ClaimedNames;

use super::message::{LogBatch, LogSource, LoggedMetric};
use super::tracked::{TrackedRuns, TrackedTask};
use crate::clock;
use crate::events;
use crate::folder::NodeTaskFolder;
use files::{EventFiles, MAX_BYTES_OF_FILE, MAX_NAMES};
use muster_model::assignment::{TaskLaunch, TaskReport};
use muster_model::id::TaskId;
use muster_model::task::Role;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Interval of passes over the event files of a running task.
const EVERY: Duration = Duration::from_secs(3);
/// Maximum number of bytes that one pass reads, and that all passes after the end read.
const MAX_BYTES: u64 = 8 << 20;
const MAX_LAST_BYTES: u64 = 32 << 20;
/// Maximum number of recorded names of other interfaces. Above it, each new name of an event file
/// is dropped.
const MAX_FOREIGN: usize = 4_000;
/// Key of `command.metrics` that is no metric.
const STEP: &str = "step";
/// Longest time over which values that are read together are spread.
const MAX_SPREAD_MS: u64 = 30_000;
/// Maximum number of parts in which the values of a pass are logged.
const MAX_PARTS: usize = 1_000;

/// Readers of the tasks.
#[derive(Debug, Clone, Default)]
pub(super) struct EventReaders(Arc<Mutex<BTreeMap<TaskId, Arc<Mutex<EventReader>>>>>);

#[derive(Debug, Default)]
struct EventReader {
    /// `None` before the first pass.
    files: Option<EventFiles>,
    /// Time at which values were logged last.
    logged_ms: u64,
}

impl EventReaders {
    pub(super) fn retain(&self, is_live: impl Fn(&TaskId) -> bool) {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|id, _| is_live(id));
    }

    fn of(&self, task: TaskId) -> Arc<Mutex<EventReader>> {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(readers.entry(task).or_default())
    }
}

/// Reads the event files of all running tasks until the daemon ends.
pub(super) async fn follow(runs: TrackedRuns, tasks: PathBuf) {
    loop {
        tokio::time::sleep(EVERY).await;
        for launch in runs.launches_of_programs() {
            let (runs, folder) = (runs.clone(), NodeTaskFolder::of(&tasks, launch.task_id));
            let reading = tokio::task::spawn_blocking(move || {
                // The end of a task reads its last values.
                if !folder.exit().is_there() {
                    runs.read_events(&launch, &folder, false);
                }
            });
            if let Err(error) = reading.await {
                tracing::error!(%error, "reading event files failed");
            }
        }
    }
}

impl TrackedRuns {
    /// Logs the next values of a task's event files; with `is_last` all of them.
    pub(super) fn read_events(&self, launch: &TaskLaunch, folder: &NodeTaskFolder, is_last: bool) {
        let is_first_rank = launch.role == (Role::Worker { rank: 0 });
        if !is_first_rank || launch.spec.command.is_none() {
            return;
        }
        let reader = self.readers().of(launch.task_id);
        let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        let task = (launch, folder);
        let read = if is_last {
            reader.read_to_end(self, task, MAX_LAST_BYTES)
        } else {
            let limits = (MAX_BYTES, MAX_BYTES_OF_FILE);
            reader.pass(self, task, limits).map(drop)
        };
        if let Err(error) = read {
            tracing::debug!(task.id = %launch.task_id, %error, "no event files");
        }
    }
}

/// Returns the names that event files of a task had first, as an earlier daemon has kept them.
pub(super) fn claimed_names(folder: &NodeTaskFolder) -> ClaimedNames {
    kept_files(folder).names
}

fn kept_files(folder: &NodeTaskFolder) -> EventFiles {
    let kept: Option<EventFiles> = folder.tensorboard().read().ok().flatten();
    kept.filter(EventFiles::is_bounded).unwrap_or_default()
}

/// Returns the state of a task's event files. Metrics that the document reads from the output are
/// not read from event files too.
fn first_files(launch: &TaskLaunch, folder: &NodeTaskFolder) -> EventFiles {
    let mut files = kept_files(folder);
    let commands = launch.spec.command.iter();
    let names = commands.flat_map(|command| command.metrics.keys());
    for name in names.filter(|name| name.as_str() != STEP) {
        files.foreign.claim(name);
    }
    files
}

/// How far one pass came.
#[derive(Debug, Clone, Copy)]
struct PassEnd {
    has_more: bool,
    bytes: u64,
}

impl EventReader {
    /// Reads and logs the rest, about `most_bytes`, which may all be of one file. A note reports
    /// that something is left.
    fn read_to_end(
        &mut self,
        runs: &TrackedRuns,
        task: (&TaskLaunch, &NodeTaskFolder),
        most_bytes: u64,
    ) -> std::io::Result<()> {
        let mut left = most_bytes;
        loop {
            let bytes = left.min(MAX_BYTES);
            let end = self.pass(runs, task, (bytes, bytes))?;
            if !end.has_more {
                return Ok(());
            }
            left = left.saturating_sub(end.bytes);
            if left == 0 || end.bytes == 0 {
                break;
            }
        }
        let note = format!(
            "the last metrics of its TensorBoard files are not read: at the end of a task, at most \
             {} MiB are read",
            most_bytes >> 20
        );
        let (launch, folder) = task;
        runs.with_task(launch, folder, |task| task.note(vec![note]));
        Ok(())
    }

    /// Reads and logs once, at most `limits` bytes in all and of each file.
    fn pass(
        &mut self,
        runs: &TrackedRuns,
        (launch, folder): (&TaskLaunch, &NodeTaskFolder),
        limits: (u64, u64),
    ) -> std::io::Result<PassEnd> {
        let now_ms = clock::boottime_ms();
        let state = folder.tensorboard();
        let files = self.files.get_or_insert_with(|| {
            self.logged_ms = now_ms;
            first_files(launch, folder)
        });
        let pass = files.read(&folder.output(), limits)?;
        let end = PassEnd {
            has_more: pass.has_more,
            bytes: pass.bytes,
        };
        if !pass.has_moved && pass.notes.is_empty() {
            return Ok(end);
        }
        let mut notes = pass.notes;
        let values = counted(files, pass.values, folder, &mut notes, || {
            runs.logged_names(launch.task_id)
        });
        let from_ms = self.logged_ms.max(now_ms.saturating_sub(MAX_SPREAD_MS));
        if !values.is_empty() || !notes.is_empty() {
            let has_values = !values.is_empty();
            runs.with_task(launch, folder, |task| {
                task.run.claimed_by_events.clone_from(&files.names);
                task.log_events(values, from_ms.min(now_ms), now_ms);
                task.note(notes);
            });
            if has_values {
                self.logged_ms = now_ms;
            }
        }
        if pass.has_moved
            && let Err(error) = state.write_atomically(files)
        {
            tracing::warn!(task.id = %launch.task_id, %error, "positions in event files are not kept");
        }
        Ok(end)
    }
}

/// Returns the values of names that no other interface has logged first, and claims new names.
fn counted(
    files: &mut EventFiles,
    values: Vec<LoggedMetric>,
    folder: &NodeTaskFolder,
    notes: &mut Vec<String>,
    logged_names: impl FnOnce() -> BTreeSet<String>,
) -> Vec<LoggedMetric> {
    let is_full = files.foreign.len() >= MAX_FOREIGN;
    if !is_full && !values.iter().all(|value| files.has_seen(&value.key)) {
        let mut others = logged_names();
        // Lines of the output are reported by the task's shim.
        let read = events::each(&folder.events(), |report| {
            if let TaskReport::Metrics { points } = report {
                others.extend(points.iter().map(|point| point.name.clone()));
            }
        });
        if let Err(error) = read {
            tracing::warn!(%error, "names of a task's metrics cannot be read");
        }
        let others = others.iter();
        for name in others.filter(|name| !files.names.contains(name)) {
            files.foreign.claim(name);
        }
    }
    let mut taken = Vec::new();
    for value in values {
        if !files.names.contains(&value.key) {
            if is_full {
                continue;
            }
            if files.foreign.covers(&value.key) {
                files.foreign.claim(&value.key);
                continue;
            }
            if files.names.len() >= MAX_NAMES {
                notes.push(format!(
                    "metrics of TensorBoard beyond {MAX_NAMES} names are dropped"
                ));
                files.foreign.claim(&value.key);
                continue;
            }
            files.names.claim(&value.key);
        }
        taken.push(value);
    }
    notes.dedup();
    taken
}

impl TrackedTask {
    /// Logs values as if they had been logged between two times. A writer collects values for
    /// minutes, and the curve would otherwise get one averaged point of them.
    fn log_events(&mut self, values: Vec<LoggedMetric>, from_ms: u64, now_ms: u64) {
        let parts = parts(values);
        let count = parts.len() as u64;
        for (index, metrics) in parts.into_iter().enumerate() {
            let at_ms = from_ms + (now_ms - from_ms) * (index as u64 + 1) / count;
            let batch = LogBatch {
                metrics,
                source: LogSource::EventFiles,
                ..LogBatch::default()
            };
            if let Err(error) = self.log_at(batch, at_ms)
                && self.logged.is_new(&error.message)
            {
                tracing::warn!(task.id = %self.launch.task_id, error = error.message, "values of event files are lost");
            }
        }
    }

    fn note(&mut self, messages: Vec<String>) {
        for message in messages {
            let is_new = self.logged.is_new(&message);
            let note = [TaskReport::Note { message }];
            if is_new && let Err(error) = events::append(&self.folder.events(), &note) {
                tracing::warn!(task.id = %self.launch.task_id, %error, "an event is lost");
            }
        }
    }
}

/// Groups values of one step, and joins groups above [`MAX_PARTS`].
fn parts(values: Vec<LoggedMetric>) -> Vec<Vec<LoggedMetric>> {
    let steps = values.chunk_by(|one, other| one.step == other.step);
    let per_part = steps.count().div_ceil(MAX_PARTS).max(1);
    let mut parts: Vec<Vec<LoggedMetric>> = Vec::new();
    let (mut steps_of_part, mut step) = (per_part, None);
    for value in values {
        if step != Some(value.step) {
            step = Some(value.step);
            steps_of_part += 1;
            if steps_of_part > per_part {
                steps_of_part = 1;
                parts.push(Vec::new());
            }
        }
        if let Some(part) = parts.last_mut() {
            part.push(value);
        }
    }
    parts
}
