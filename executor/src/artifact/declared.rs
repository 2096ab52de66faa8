//! Checkpoints that the program of a task has declared and that are not recorded yet.
//!
//! A report with a path declares one. So does the pattern of the job's document: a file or folder
//! that has not changed for some seconds. Reports are read from the task's events, so those of
//! output lines and of requests have one order, together with the logged metrics.

use super::checkpoint_store::{CheckpointFile, CheckpointFolder, Declaration};
use crate::clock;
use crate::events::{EventPosition, EventTail};
use crate::folder::NodeTaskFolder;
use muster_model::assignment::{TaskLaunch, TaskReport};
use muster_model::file_pattern::{matches, number_in};
use muster_model::program_checkpoint::{MAX_PROGRAM_METRICS, RUNGS_FOLDER, is_program_path};
use muster_model::task::Outcome;
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// Time for which a file or folder must be unchanged.
const SETTLED_AFTER_MS: u64 = 5_000;
/// Maximum number of waiting checkpoints; the oldest are dropped.
const MAX_WAITING: usize = 1_000;
/// Maximum number of names of the checkpoint folder that are compared with the pattern.
const MAX_NAMES: usize = 10_000;
/// Bytes of events per read.
const BLOCK_BYTES: usize = 256 << 10;

/// Declared checkpoints of one task.
#[derive(Debug)]
pub(super) struct DeclaredCheckpoints {
    task: NodeTaskFolder,
    folder: CheckpointFolder,
    pattern: Option<String>,
    /// Metric that is kept in any case.
    best_metric: Option<String>,
    tail: EventTail,
    position: EventPosition,
    /// Newest value by name.
    metrics: BTreeMap<String, f64>,
    newest_step: u64,
    found: BTreeMap<String, FoundCheckpoint>,
    pub(super) waiting: VecDeque<Declaration>,
}

#[derive(Debug)]
struct FoundCheckpoint {
    files: Vec<CheckpointFile>,
    since_ms: u64,
    is_declared: bool,
}

impl DeclaredCheckpoints {
    pub(super) fn new(
        launch: &TaskLaunch,
        task: &NodeTaskFolder,
        folder: CheckpointFolder,
    ) -> Self {
        let policy = &launch.spec.checkpoint;
        let best = policy.keep_best.as_ref();
        Self {
            task: task.clone(),
            folder,
            pattern: policy.files.clone(),
            best_metric: best.and_then(|best| best.metric.clone()),
            tail: EventTail::default(),
            position: EventPosition::default(),
            metrics: BTreeMap::new(),
            newest_step: 0,
            found: BTreeMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Adds what was declared since the last look.
    pub(super) fn look(&mut self, has_ended: bool) {
        if let Err(error) = self.read_events() {
            let task = self.task.path().display();
            tracing::debug!(%task, %error, "the events of a task are not read");
        }
        if let Some(pattern) = self.pattern.clone() {
            self.find(&pattern, has_ended && self.has_ended_in_order());
        }
    }

    fn read_events(&mut self) -> io::Result<()> {
        let file = self.task.events();
        if !file.is_there() {
            return Ok(());
        }
        loop {
            let lines = self.tail.read(&file, self.position, BLOCK_BYTES, 0)?;
            for line in &lines.reports {
                self.hear(line);
            }
            self.position = lines.end;
            if lines.is_all {
                return Ok(());
            }
        }
    }

    fn hear(&mut self, line: &str) {
        if !line.contains("checkpoint_reported") && !line.contains("\"metrics\"") {
            return;
        }
        match serde_json::from_str(line) {
            Ok(TaskReport::Metrics { points }) => {
                for point in points {
                    self.newest_step = point.step;
                    let is_new = !self.metrics.contains_key(&point.name);
                    let is_wanted = Some(&point.name) == self.best_metric.as_ref();
                    if !is_new || is_wanted || self.metrics.len() < MAX_PROGRAM_METRICS - 1 {
                        self.metrics.insert(point.name, point.value);
                    }
                }
            }
            Ok(TaskReport::CheckpointReported {
                step,
                path: Some(path),
            }) if is_program_path(&path) => self.declare(step, path, false),
            _ => {}
        }
    }

    /// Adds a checkpoint. An earlier declaration of the path has lost its content.
    fn declare(&mut self, step: u64, path: String, is_found: bool) {
        self.waiting.retain(|waiting| waiting.path != path);
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Declaration {
            step,
            path,
            metrics: self.metrics.clone(),
            is_found,
            at_ms: clock::boottime_ms(),
            changes: 0,
        });
    }

    /// Declares what matches the pattern and has settled. After the program has ended in order,
    /// everything has.
    fn find(&mut self, pattern: &str, has_ended: bool) {
        let Ok(top) = self.folder.open() else {
            return;
        };
        let names = top.some_names(MAX_NAMES).unwrap_or_default().into_iter();
        let names = names.filter_map(|name| name.into_string().ok());
        let names: Vec<String> = names
            .filter(|name| name != RUNGS_FOLDER && matches(pattern, name) && is_program_path(name))
            .collect();
        let now_ms = clock::boottime_ms();
        self.found.retain(|name, _| names.contains(name));
        let mut settled = Vec::new();
        for name in names {
            // What cannot be read is looked at again.
            let Ok(files) = self.folder.files(&name) else {
                continue;
            };
            let found = self.found.entry(name.clone());
            let found = found.or_insert_with(|| FoundCheckpoint {
                files: files.clone(),
                since_ms: now_ms,
                is_declared: false,
            });
            if found.files != files {
                (found.files, found.since_ms, found.is_declared) = (files, now_ms, false);
            }
            let has_settled = has_ended || now_ms >= found.since_ms + SETTLED_AFTER_MS;
            if has_settled && !found.is_declared && !found.files.is_empty() {
                found.is_declared = true;
                settled.push((number_in(&name).unwrap_or(self.newest_step), name));
            }
        }
        settled.sort();
        for (step, name) in settled {
            self.declare(step, name, true);
        }
    }

    /// Whether the program has ended by itself or upon a request. A killed one may have left half a
    /// checkpoint.
    fn has_ended_in_order(&self) -> bool {
        let outcome = self.task.exit().read::<Outcome>().ok().flatten();
        matches!(
            outcome,
            Some(Outcome::Exited { code: 0, .. } | Outcome::Stopped { killed: false, .. })
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::test_launch;
    use crate::events;
    use muster_model::metric::MetricPoint;
    use std::fs;

    struct TestTask {
        place: tempfile::TempDir,
        declared: DeclaredCheckpoints,
    }

    impl TestTask {
        fn new(pattern: Option<&str>) -> Self {
            let place = tempfile::tempdir().expect("a folder");
            let task = NodeTaskFolder::at(place.path().join("task"));
            fs::create_dir_all(task.checkpoints()).expect("made");
            let mut launch = test_launch();
            launch.spec.checkpoint.files = pattern.map(str::to_owned);
            let folder = CheckpointFolder::OfTask(task.checkpoints());
            let declared = DeclaredCheckpoints::new(&launch, &task, folder);
            Self { place, declared }
        }

        fn folder(&self) -> NodeTaskFolder {
            NodeTaskFolder::at(self.place.path().join("task"))
        }

        fn tell(&self, report: TaskReport) {
            events::append(&self.folder().events(), &[report]).expect("written");
        }

        fn log(&self, step: u64, value: f64) {
            let point = MetricPoint {
                name: "val/f1".to_owned(),
                step,
                value,
                merged: None,
            };
            let points = vec![point];
            self.tell(TaskReport::Metrics { points });
        }

        fn report(&self, step: u64, path: &str) {
            let path = Some(path.to_owned());
            self.tell(TaskReport::CheckpointReported { step, path });
        }

        /// Steps, paths and metrics of what waits.
        fn waiting(&self) -> Vec<(u64, &str, Option<f64>)> {
            let waiting = self.declared.waiting.iter();
            waiting
                .map(|one| {
                    let f1 = one.metrics.get("val/f1").copied();
                    (one.step, one.path.as_str(), f1)
                })
                .collect()
        }
    }

    #[test]
    fn report_has_metrics_of_its_time_and_replaces_its_path() {
        let mut task = TestTask::new(None);
        task.log(1, 0.1);
        task.report(1, "last.pt");
        task.report(1, "step-1.pt");
        task.declared.look(false);
        task.log(2, 0.2);
        task.report(2, "last.pt");
        task.report(3, "../outside.pt");
        task.tell(TaskReport::CheckpointReported {
            step: 4,
            path: None,
        });
        task.declared.look(false);
        let expected = [(1, "step-1.pt", Some(0.1)), (2, "last.pt", Some(0.2))];
        assert_eq!(task.waiting(), expected);
    }

    #[test]
    fn match_of_the_pattern_waits_until_it_has_settled() {
        for (outcome, expected) in [
            (
                Outcome::Exited {
                    code: 0,
                    said: None,
                },
                1,
            ),
            (
                Outcome::Signalled {
                    signal: 9,
                    said: None,
                },
                0,
            ),
        ] {
            let mut task = TestTask::new(Some("step-*"));
            let folder = task.folder();
            fs::write(folder.checkpoints().join("step-5.pt"), "a").expect("written");
            fs::write(folder.checkpoints().join("other-5.pt"), "a").expect("written");
            task.declared.look(false);
            assert!(task.waiting().is_empty());
            folder.exit().write_atomically(&outcome).expect("written");
            task.declared.look(true);
            assert_eq!(task.waiting().len(), expected, "{outcome:?}");
            task.declared.look(true);
            assert_eq!(task.waiting().len(), expected, "it is declared once");
            let found = task.declared.found.get_mut("step-5.pt").expect("found");
            found.since_ms = found.since_ms.saturating_sub(SETTLED_AFTER_MS);
            task.declared.look(true);
            assert_eq!(task.waiting(), [(5, "step-5.pt", None)]);
        }
    }
}
