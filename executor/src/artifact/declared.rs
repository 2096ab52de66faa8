//! Checkpoints that the program of a task has declared and that are not recorded yet.
//!
//! A report with a path declares one. So does the pattern of the job's document: a file or folder
//! that has not changed for some seconds, and that was not there before the program. Reports are
//! read from the task's events, so those of output lines and of requests have one order, together
//! with the logged metrics.

use super::checkpoint_store::{CheckpointFolder, Declaration, DeclaredBy};
use super::walk::{FoundFile, modified};
use crate::clock;
use crate::command::COPIED_MARK;
use crate::events::{EventPosition, EventTail};
use crate::folder::NodeTaskFolder;
use crate::opener::FolderHandle;
use muster_model::assignment::{TaskLaunch, TaskReport};
use muster_model::file_pattern::{matches, number_in};
use muster_model::metric::{MetricPoint, is_name, is_stored};
use muster_model::program_checkpoint::{MAX_PROGRAM_METRICS, RUNGS_FOLDER, is_program_path};
use muster_model::task::Outcome;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::io;

/// Time for which a file or folder must be unchanged.
const SETTLED_AFTER_MS: u64 = 5_000;
/// Maximum number of waiting checkpoints; the oldest are dropped.
const MAX_WAITING: usize = 1_000;
/// Maximum number of names of the checkpoint folder that are compared with the pattern.
const MAX_NAMES: usize = 10_000;
/// Maximum number of files of all matches of the pattern together.
const MAX_FOUND_FILES: usize = 50_000;
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
    /// Newest reported step by path.
    reported: BTreeMap<String, u64>,
    found: BTreeMap<String, FoundCheckpoint>,
    /// Time of the newest write to the files of kept checkpoints, by path.
    kept: BTreeMap<String, (i64, i64)>,
    pub(super) waiting: VecDeque<Declaration>,
    /// Matches of the pattern whose step another checkpoint has. They are not registered.
    pub(super) clashing: Vec<Declaration>,
}

#[derive(Debug)]
struct FoundCheckpoint {
    files: Vec<FoundFile>,
    since_ms: u64,
    is_declared: bool,
    /// It has changed since it was found.
    has_changed: bool,
    /// Step with which it was declared.
    step: Option<u64>,
}

/// What pruning does with the files of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilesFate {
    Removed,
    /// The program has written the path again. Only the record and its object are removed.
    Rewritten,
    /// A declaration of the path waits, or the program is writing it.
    Undecided,
}

/// Times that separate files of the program from files that were there before it.
#[derive(Debug)]
struct ProgramStart {
    launched: Option<(i64, i64)>,
    /// End of the copy from another job.
    copied: Option<(i64, i64)>,
}

impl ProgramStart {
    fn of(task: &NodeTaskFolder, top: &FolderHandle) -> Self {
        let rungs = top.inner(OsStr::new(RUNGS_FOLDER));
        let began = rungs.and_then(|rungs| rungs.metadata(OsStr::new(COPIED_MARK)));
        Self {
            // The token is written directly before the start.
            launched: task.token().metadata().as_ref().map(modified),
            copied: began.ok().as_ref().map(modified),
        }
    }

    /// Whether all files were there before the program.
    fn is_after(&self, files: &[FoundFile]) -> bool {
        files.iter().all(|file| {
            let modified = file.stamp.modified;
            self.launched.is_some_and(|at| modified < at)
                || self.copied.is_some_and(|at| modified <= at)
        })
    }
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
            reported: BTreeMap::new(),
            found: BTreeMap::new(),
            kept: BTreeMap::new(),
            waiting: VecDeque::new(),
            clashing: Vec::new(),
        }
    }

    /// Adds what was declared since the last look.
    pub(super) fn look(&mut self, has_ended: bool) {
        if let Err(error) = self.read_events() {
            let task = self.task.path().display();
            tracing::debug!(%task, %error, "the events of a task are not read");
        }
        // A killed or failed program may have left half a checkpoint.
        let is_over = has_ended || self.task.exit().is_there();
        if let Some(pattern) = self.pattern.clone()
            && (!is_over || self.has_ended_in_order())
        {
            self.find(&pattern, has_ended);
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
                    self.take_metric(point);
                }
            }
            Ok(TaskReport::CheckpointReported {
                step,
                path: Some(path),
            }) if is_step(step) && is_program_path(&path) => {
                if self.reported.len() < MAX_NAMES || self.reported.contains_key(&path) {
                    self.reported.insert(path.clone(), step);
                }
                self.declare(step, path, DeclaredBy::Report);
            }
            _ => {}
        }
    }

    fn take_metric(&mut self, point: MetricPoint) {
        if is_step(point.step) {
            self.newest_step = point.step;
        }
        if !is_name(&point.name) || !is_stored(point.value) {
            return;
        }
        let is_new = !self.metrics.contains_key(&point.name);
        let is_wanted = Some(&point.name) == self.best_metric.as_ref();
        if !is_new || is_wanted || self.metrics.len() < MAX_PROGRAM_METRICS - 1 {
            self.metrics.insert(point.name, point.value);
        }
    }

    /// Adds a checkpoint. The file was overwritten, so an earlier declaration of this path is
    /// dropped.
    fn declare(&mut self, step: u64, path: String, by: DeclaredBy) {
        self.waiting.retain(|waiting| waiting.path != path);
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
        }
        let declaration = self.declaration(step, path, by);
        self.waiting.push_back(declaration);
    }

    fn declaration(&self, step: u64, path: String, by: DeclaredBy) -> Declaration {
        Declaration {
            step,
            path,
            metrics: self.metrics.clone(),
            by,
            at_ms: clock::boottime_ms(),
            changes: 0,
        }
    }

    /// Records the state in which a checkpoint was kept. A match of the pattern in this state is
    /// not declared again.
    pub(super) fn set_kept(&mut self, kept: &Declaration, files: Vec<FoundFile>) {
        let newest_write = files.iter().map(|file| file.stamp.modified).max();
        if let Some(at) = newest_write
            && (self.kept.len() < MAX_NAMES || self.kept.contains_key(&kept.path))
        {
            self.kept.insert(kept.path.clone(), at);
        }
        if self.pattern.is_none() {
            return;
        }
        let found = FoundCheckpoint {
            files,
            since_ms: clock::boottime_ms(),
            is_declared: true,
            has_changed: false,
            step: Some(kept.step),
        };
        self.found.insert(kept.path.clone(), found);
    }

    /// Returns what pruning does with the files of a path.
    pub(super) fn fate_of(&self, path: &str) -> FilesFate {
        let mut waiting = self.waiting.iter();
        let mut found = self.found.iter();
        if waiting.any(|waiting| overlap(&waiting.path, path))
            || found.any(|(name, found)| !found.is_declared && overlap(name, path))
        {
            return FilesFate::Undecided;
        }
        let Some(written) = self.folder.newest_write(path) else {
            return FilesFate::Removed;
        };
        // Checkpoints of this task are known, so a record without a time is of an earlier start.
        let launched = self.task.token().metadata().as_ref().map(modified);
        let recorded = self.kept.get(path).copied().or(launched);
        if recorded.is_some_and(|recorded| written > recorded) {
            return FilesFate::Rewritten;
        }
        FilesFate::Removed
    }

    /// Declares the settled matches of the pattern. After the program has ended in order, all
    /// matches are settled.
    fn find(&mut self, pattern: &str, has_ended: bool) {
        let Ok(top) = self.folder.open() else {
            return;
        };
        let names = top.some_names(MAX_NAMES).unwrap_or_default().into_iter();
        let names = names.filter_map(|name| name.into_string().ok());
        let names: BTreeSet<String> = names
            .filter(|name| name != RUNGS_FOLDER && matches(pattern, name) && is_program_path(name))
            .collect();
        let start = ProgramStart::of(&self.task, &top);
        self.found.retain(|name, _| names.contains(name));
        let mut newest_first: Vec<String> = names.into_iter().collect();
        newest_first.sort_by_key(|name| Reverse(number_in(name)));
        let (mut settled, mut file_count) = (Vec::new(), 0);
        for name in newest_first {
            // The next look reads it again.
            let Ok(files) = self.folder.files(&name) else {
                continue;
            };
            file_count += files.len();
            if file_count > MAX_FOUND_FILES {
                self.found.remove(&name);
                continue;
            }
            if self.has_settled(&name, files, (&start, has_ended)) {
                // If two matches have one step, the match with a number in its name comes first.
                settled.push((self.step_of(&name), number_in(&name).is_none(), name));
            }
        }
        settled.sort();
        for (step, _, name) in settled {
            self.declare_match(step, name);
        }
    }

    /// Records the present state of a match. Returns whether it is to be declared.
    fn has_settled(
        &mut self,
        name: &str,
        files: Vec<FoundFile>,
        (start, has_ended): (&ProgramStart, bool),
    ) -> bool {
        let now_ms = clock::boottime_ms();
        // A report of the path has a step and metrics, and is kept first.
        let mut waiting = self.waiting.iter();
        let is_reported = waiting.any(|waiting| waiting.path == name && !waiting.is_found());
        let found = self.found.entry(name.to_owned());
        let found = found.or_insert_with(|| FoundCheckpoint {
            is_declared: start.is_after(&files),
            files: files.clone(),
            since_ms: now_ms,
            has_changed: false,
            step: None,
        });
        if found.files != files {
            *found = FoundCheckpoint {
                files,
                since_ms: now_ms,
                is_declared: false,
                has_changed: true,
                step: None,
            };
        }
        let is_unchanged = has_ended || now_ms >= found.since_ms + SETTLED_AFTER_MS;
        is_unchanged && !is_reported && !found.is_declared && !found.files.is_empty()
    }

    /// Returns the step of a match: the reported step, the number in its name, or the newest step.
    fn step_of(&self, name: &str) -> u64 {
        let reported = self.reported.get(name).copied();
        let step = reported.or_else(|| number_in(name).filter(|step| is_step(*step)));
        step.unwrap_or(self.newest_step)
    }

    fn declare_match(&mut self, step: u64, name: String) {
        let mut others = self.found.iter().filter(|(other, _)| **other != name);
        let mut reported = self.reported.iter().filter(|(other, _)| **other != name);
        let is_taken = others.any(|(_, other)| other.step == Some(step))
            || reported.any(|(_, other)| *other == step);
        let Some(found) = self.found.get_mut(&name) else {
            return;
        };
        found.is_declared = true;
        let by = DeclaredBy::Pattern {
            has_changed: found.has_changed,
        };
        if is_taken {
            if self.clashing.len() < MAX_WAITING {
                self.clashing.push(self.declaration(step, name, by));
            }
            return;
        }
        found.step = Some(step);
        self.declare(step, name, by);
    }

    /// Whether the program has ended by itself or upon a request. A killed program may have left
    /// half a checkpoint.
    fn has_ended_in_order(&self) -> bool {
        let outcome = self.task.exit().read::<Outcome>().ok().flatten();
        matches!(
            outcome,
            Some(Outcome::Exited { code: 0, .. } | Outcome::Stopped { killed: false, .. })
        )
    }
}

/// Whether two paths are the same, or the files of one are below the other.
pub(super) fn overlap(one: &str, other: &str) -> bool {
    is_within(one, other) || is_within(other, one)
}

fn is_within(path: &str, folder: &str) -> bool {
    let rest = path.strip_prefix(folder);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether the scheduler can record a step.
fn is_step(step: u64) -> bool {
    i64::try_from(step).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::test_launch;
    use crate::events;
    use std::fs;
    use std::time::SystemTime;

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

        /// Ends the program in order, and looks.
        fn end_in_order(&mut self) {
            let outcome = Outcome::Exited {
                code: 0,
                said: None,
            };
            let exit = self.folder().exit();
            exit.write_atomically(&outcome).expect("written");
            self.declared.look(true);
        }

        /// Steps, paths and metrics of the waiting checkpoints.
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
            let found = task.declared.found.get_mut("step-5.pt").expect("found");
            found.since_ms = found.since_ms.saturating_sub(SETTLED_AFTER_MS);
            task.declared.look(true);
            assert_eq!(task.waiting().len(), expected, "it is declared once");
        }
    }

    #[test]
    fn file_from_before_the_program_is_declared_after_change() {
        let mut task = TestTask::new(Some("step-*"));
        let path = task.folder().checkpoints().join("step-5.pt");
        fs::write(&path, "a").expect("written");
        let file = fs::File::options().write(true).open(&path);
        let touched = file.expect("open").set_modified(SystemTime::UNIX_EPOCH);
        touched.expect("set");
        task.folder().token().write_private("x").expect("written");
        task.end_in_order();
        assert!(task.waiting().is_empty());
        fs::write(&path, "ab").expect("written");
        task.declared.look(true);
        assert_eq!(task.waiting(), [(5, "step-5.pt", None)]);
        let by = task.declared.waiting[0].by;
        assert_eq!(by, DeclaredBy::Pattern { has_changed: true });
    }

    #[test]
    fn match_does_not_replace_a_report_or_another_match() {
        let mut task = TestTask::new(Some("*-*"));
        let folder = task.folder().checkpoints();
        for name in ["a-5", "b-5", "c-7"] {
            fs::write(folder.join(name), "a").expect("written");
        }
        task.report(3, "c-7");
        task.end_in_order();
        let expected = [(3, "c-7", None), (5, "a-5", None)];
        assert_eq!(task.waiting(), expected);
        assert_eq!(task.declared.clashing[0].path, "b-5");
        for done in std::mem::take(&mut task.declared.waiting) {
            let files = task.declared.folder.files(&done.path).expect("there");
            task.declared.set_kept(&done, files);
        }
        task.declared.look(true);
        assert!(task.waiting().is_empty());
        fs::write(folder.join("c-7"), "ab").expect("written");
        task.declared.look(true);
        assert_eq!(task.waiting(), [(3, "c-7", None)], "its step is reported");
    }

    #[test]
    fn pruning_spares_files_that_the_program_has_rewritten() {
        let mut task = TestTask::new(None);
        let path = task.folder().checkpoints().join("last.pt");
        fs::write(&path, "a").expect("written");
        task.report(1, "last.pt");
        task.declared.look(false);
        assert_eq!(task.declared.fate_of("last.pt"), FilesFate::Undecided);
        let done = task.declared.waiting.pop_front().expect("declared");
        let file = fs::File::options().write(true).open(&path);
        let touched = file.expect("open").set_modified(SystemTime::UNIX_EPOCH);
        touched.expect("set");
        let files = task.declared.folder.files("last.pt").expect("there");
        task.declared.set_kept(&done, files);
        assert_eq!(task.declared.fate_of("last.pt"), FilesFate::Removed);
        fs::write(&path, "b").expect("written");
        assert_eq!(task.declared.fate_of("last.pt"), FilesFate::Rewritten);
        assert_eq!(task.declared.fate_of("missing.pt"), FilesFate::Removed);
    }

    #[test]
    fn step_and_metric_that_cannot_be_recorded_are_dropped() {
        let mut task = TestTask::new(Some("*"));
        let name = "x-9223372036854775808";
        fs::write(task.folder().checkpoints().join(name), "a").expect("written");
        task.report(u64::MAX, "a");
        task.log(u64::MAX, 0.5);
        task.log(4, 0.25);
        task.log(5, 1e301);
        task.end_in_order();
        assert_eq!(task.waiting(), [(4, name, Some(0.25))]);
    }
}
