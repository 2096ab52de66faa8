//! Progress lines of a program that cannot reach the server: lines of its output that begin with
//! `muster:`, such as `muster: step=10 loss=0.31`. They are treated and limited as values logged by
//! HTTP. `muster: checkpoint step=10 path=step-10.pt` reports a checkpoint; the path may be left
//! out. Other lines are searched for the patterns of `command.metrics`. A carriage return ends a
//! line too, as in progress bars.
//!
//! The task's shim reads each byte of the output once and in order, before it writes the end. So a
//! restart of the daemon repeats no line, and the last lines are not lost.

use super::message::{LogBatch, LoggedMetric, Malformed};
use super::run::MlflowRun;
use super::series::{ProgressSeries, TaskReportSummary};
use crate::clock;
use crate::events;
use crate::folder::NodeTaskFolder;
use crate::task_file::TaskFile;
use muster_model::artifact::PATH_RULE;
use muster_model::assignment::{TaskLaunch, TaskReport};
use muster_model::metric::{self, NAME_RULE};
use muster_model::program_checkpoint::is_program_path;
use muster_model::spec::OutputPatterns;
use muster_model::task::Role;

const PREFIX: &[u8] = b"muster:";
/// Maximum length of a line in bytes; longer ones are rejected.
const LONGEST: usize = 1 << 10;
/// Maximum number of values in a line.
const MOST_VALUES: usize = 32;

/// Maximum number of lines that are searched for patterns in a second.
const MOST_SEARCHED_PER_S: u32 = 1_000;

/// Reader of one task's output.
#[derive(Debug)]
pub(crate) struct MetricLineReader {
    events: TaskFile,
    run: MlflowRun,
    line: Vec<u8>,
    /// The line is longer than the kept part.
    is_longer: bool,
    /// Number of lines with the prefix that could not be read.
    wrong: u64,
    has_failed: bool,
    patterns: OutputPatterns,
    /// Newest step that a pattern has found.
    step: Option<u64>,
    /// Bound on lines that are searched, so that a program that prints much is not slowed down.
    searched: SearchedLines,
}

/// Number of lines that were searched in the current second.
#[derive(Debug, Default)]
struct SearchedLines {
    second: u64,
    lines: u32,
    has_skipped: bool,
    /// Values of a searched line could not be logged.
    has_lost: bool,
}

/// Reason why a line was rejected.
#[derive(Debug, thiserror::Error)]
enum MetricLineError {
    #[error("it is longer than {LONGEST} bytes")]
    Long,
    #[error("it is no text")]
    NoText,
    #[error("{0:?} is not NAME=NUMBER")]
    Word(String),
    #[error("it has no step=NUMBER")]
    NoStep,
    #[error("it has more than {MOST_VALUES} values")]
    Many,
    #[error("{0:?} is no name of a metric: {NAME_RULE}")]
    Name(String),
    #[error("{0:?} is no path below MUSTER_CHECKPOINT_DIR: {PATH_RULE}")]
    Path(String),
    #[error(transparent)]
    Refused(#[from] Malformed),
    #[error("it could not be kept: {0}")]
    NotKept(#[from] std::io::Error),
}

impl MetricLineReader {
    /// Returns the reader of a command that has just started.
    pub(crate) fn new(launch: &TaskLaunch, folder: &NodeTaskFolder) -> Self {
        let is_first = launch.role == (Role::Worker { rank: 0 });
        let (workers, ps_shards) = (launch.workers, launch.ps_shards);
        let series = is_first.then(|| {
            ProgressSeries::new(
                launch.revision <= 1,
                workers,
                ps_shards,
                TaskReportSummary::default(),
            )
            .with_objectives(&launch.objectives)
        });
        Self {
            events: folder.events(),
            run: MlflowRun::new(series).following(launch, folder),
            line: Vec::new(),
            is_longer: false,
            wrong: 0,
            has_failed: false,
            patterns: patterns(launch, is_first),
            step: None,
            searched: SearchedLines::default(),
        }
    }

    /// Adds a piece of the output.
    pub(crate) fn feed(&mut self, mut output: &[u8]) {
        while let Some(end) = output.iter().position(|byte| b"\n\r".contains(byte)) {
            self.keep(&output[..end]);
            output = &output[end + 1..];
            self.end_line();
        }
        self.keep(output);
    }

    /// Handles the end of the output.
    pub(crate) fn end(mut self) {
        self.end_line();
        let mut told: Vec<TaskReport> = Vec::new();
        if self.wrong > 1 {
            told.push(TaskReport::Note {
                message: format!(
                    "{} lines of its output began with \"muster:\" and could not be taken",
                    self.wrong
                ),
            });
        }
        let events = self.events.clone();
        let flushed = self.run.flush(clock::boottime_ms(), true, |reports| {
            events::append(&events, reports)?;
            events::append(&events, &told)
        });
        if let Err(error) = flushed {
            self.complain(&error);
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        let kept = piece.len().min(LONGEST - self.line.len());
        self.line.extend_from_slice(&piece[..kept]);
        self.is_longer |= kept < piece.len();
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let is_longer = std::mem::take(&mut self.is_longer);
        if !line.trim_ascii_start().starts_with(PREFIX) {
            let text = if is_longer {
                without_cut_word(&line)
            } else {
                line.as_slice()
            };
            self.search(text);
            return;
        }
        let taken = if is_longer {
            Err(MetricLineError::Long)
        } else {
            self.take(&line)
        };
        match taken {
            Ok(()) => {}
            Err(MetricLineError::NotKept(error)) => self.complain(&error),
            Err(wrong) => self.tell(&line, &wrong),
        }
    }

    /// Logs the values that the patterns of the document find in a line.
    fn search(&mut self, line: &[u8]) {
        if self.patterns.is_empty() || !self.may_search() {
            return;
        }
        let text = String::from_utf8_lossy(line);
        let found = self.patterns.read(&text);
        self.step = found.step.or(self.step);
        let (step, timestamp_ms) = (self.step.unwrap_or(0), clock::unix_ms());
        let metrics = found.metrics.into_iter().map(|(name, value)| LoggedMetric {
            key: name.to_owned(),
            value,
            timestamp_ms,
            step,
        });
        let batch = LogBatch {
            metrics: metrics.collect(),
            ..LogBatch::default()
        };
        if batch.metrics.is_empty() {
            return;
        }
        match self.log(batch) {
            Err(MetricLineError::NotKept(error)) => self.complain(&error),
            Err(error) if !std::mem::replace(&mut self.searched.has_lost, true) => {
                self.note(format!("metrics of a line of output are lost: {error}"));
            }
            Err(_) | Ok(()) => {}
        }
    }

    /// Counts a line. Above the maximum of a second, lines are skipped, which is noted once.
    fn may_search(&mut self) -> bool {
        let second = clock::boottime_ms() / 1_000;
        let searched = &mut self.searched;
        if searched.second != second {
            (searched.second, searched.lines) = (second, 0);
        }
        searched.lines += 1;
        let may_search = searched.lines <= MOST_SEARCHED_PER_S;
        if !may_search && !std::mem::replace(&mut searched.has_skipped, true) {
            self.note(format!(
                "command.metrics: only {MOST_SEARCHED_PER_S} lines of output are searched in a second; others are skipped"
            ));
        }
        may_search
    }

    fn log(&mut self, batch: LogBatch) -> Result<(), MetricLineError> {
        let events = self.events.clone();
        self.run.log(batch, clock::boottime_ms(), |reports| {
            Ok::<(), MetricLineError>(events::append(&events, reports)?)
        })
    }

    fn take(&mut self, line: &[u8]) -> Result<(), MetricLineError> {
        if let Some(report) = checkpoint(line)? {
            return self.report_checkpoint(report);
        }
        let metrics = metrics(line, clock::unix_ms())?;
        let is_named = |metric: &LoggedMetric| metric::is_name(&metric.key);
        let (metrics, unnamed): (Vec<_>, Vec<_>) = metrics.into_iter().partition(is_named);
        self.log(LogBatch {
            metrics,
            ..LogBatch::default()
        })?;
        // The other values of the line count, because they did in earlier releases.
        match unnamed.into_iter().next() {
            Some(metric) => Err(MetricLineError::Name(metric.key)),
            None => Ok(()),
        }
    }

    /// Reports a checkpoint after the metrics that were logged before it, which are recorded with
    /// it.
    fn report_checkpoint(&mut self, report: TaskReport) -> Result<(), MetricLineError> {
        let events = self.events.clone();
        let flushed = self.run.flush(clock::boottime_ms(), true, |reports| {
            events::append(&events, &[reports, &[report]].concat())
        });
        Ok(flushed?)
    }

    /// Reports a rejected line once, so that a program's mistake does not fill its job's history.
    fn tell(&mut self, line: &[u8], wrong: &MetricLineError) {
        self.wrong += 1;
        if self.wrong > 1 {
            return;
        }
        let shown: String = String::from_utf8_lossy(line).chars().take(120).collect();
        let message = format!(
            "a line of its output could not be taken: {wrong} in {shown:?}; expected such as \"muster: step=10 loss=0.31\". Others like it are only counted"
        );
        self.note(message);
    }

    fn note(&mut self, message: String) {
        if let Err(error) = events::append(&self.events, &[TaskReport::Note { message }]) {
            self.complain(&error);
        }
    }

    fn complain(&mut self, error: &std::io::Error) {
        if !std::mem::replace(&mut self.has_failed, true) {
            eprintln!("what the task's output says of its progress is lost: {error}");
        }
    }
}

/// Returns the patterns of the document; none for other ranks, whose metrics do not count.
fn patterns(launch: &TaskLaunch, is_first: bool) -> OutputPatterns {
    let command = launch.spec.command.as_ref().filter(|_| is_first);
    let patterns = command.map(|command| OutputPatterns::new(&command.metrics));
    patterns.unwrap_or_default()
}

/// Returns the begin of a line that was cut, up to the last space, comma or brace. A number behind
/// it may be cut too.
fn without_cut_word(line: &[u8]) -> &[u8] {
    let mut bytes = line.iter();
    let end = bytes.rposition(|byte| byte.is_ascii_whitespace() || b",{}".contains(byte));
    &line[..end.unwrap_or(0)]
}

/// Returns the report of a line that reports a checkpoint; `None` for other lines. A path reaches
/// to the end of the line.
fn checkpoint(line: &[u8]) -> Result<Option<TaskReport>, MetricLineError> {
    let text = std::str::from_utf8(&line.trim_ascii()[PREFIX.len()..]);
    let text = text.map_err(|_| MetricLineError::NoText)?;
    let text = text.trim_ascii_start();
    let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
    if first != "checkpoint" {
        return Ok(None);
    }
    let rest = rest.trim_ascii();
    if rest.is_empty() {
        return Err(MetricLineError::NoStep);
    }
    let (word, path) = rest.split_once(' ').unwrap_or((rest, ""));
    let step = word
        .strip_prefix("step=")
        .and_then(|text| text.parse::<u64>().ok())
        // The store has signed integers.
        .filter(|step| i64::try_from(*step).is_ok());
    let step = step.ok_or_else(|| MetricLineError::Word(word.to_owned()))?;
    let path = match path.trim_ascii() {
        "" => None,
        path => {
            let wrong = || MetricLineError::Word(path.to_owned());
            let path = path.strip_prefix("path=").ok_or_else(wrong)?;
            if !is_program_path(path) {
                return Err(MetricLineError::Path(path.to_owned()));
            }
            Some(path.to_owned())
        }
    };
    Ok(Some(TaskReport::CheckpointReported { step, path }))
}

/// Returns the values of a line, with their step.
fn metrics(line: &[u8], timestamp_ms: i64) -> Result<Vec<LoggedMetric>, MetricLineError> {
    let text = std::str::from_utf8(&line.trim_ascii()[PREFIX.len()..]);
    let text = text.map_err(|_| MetricLineError::NoText)?;
    let mut step = None;
    let mut values: Vec<(&str, f64)> = Vec::new();
    for word in text.split_ascii_whitespace() {
        let wrong = || MetricLineError::Word(word.to_owned());
        let (name, value) = word.split_once('=').ok_or_else(wrong)?;
        if name.is_empty() {
            return Err(wrong());
        }
        if name == "step" {
            step = Some(value.parse::<u64>().map_err(|_| wrong())?);
            continue;
        }
        values.push((name, value.parse().map_err(|_| wrong())?));
        if values.len() > MOST_VALUES {
            return Err(MetricLineError::Many);
        }
    }
    let step = step.ok_or(MetricLineError::NoStep)?;
    if values.is_empty() {
        // A step without a value is a sign of life.
        values.push(("step", step as f64));
    }
    let metrics = values.into_iter().map(|(key, value)| LoggedMetric {
        key: key.to_owned(),
        value,
        timestamp_ms,
        step,
    });
    Ok(metrics.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(folder: &NodeTaskFolder) -> MetricLineReader {
        MetricLineReader {
            events: folder.events(),
            run: MlflowRun::new(Some(ProgressSeries::new(
                true,
                1,
                0,
                TaskReportSummary::default(),
            ))),
            line: Vec::new(),
            is_longer: false,
            wrong: 0,
            has_failed: false,
            patterns: OutputPatterns::default(),
            step: None,
            searched: SearchedLines::default(),
        }
    }

    fn told(output: &[&[u8]]) -> (Vec<(u64, f64)>, Vec<String>) {
        told_with(OutputPatterns::default(), output)
    }

    fn told_with(patterns: OutputPatterns, output: &[&[u8]]) -> (Vec<(u64, f64)>, Vec<String>) {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = NodeTaskFolder::at(folder.path());
        std::fs::create_dir_all(folder.path()).expect("a folder");
        let mut lines = MetricLineReader {
            patterns,
            ..reader(&folder)
        };
        output.iter().for_each(|piece| lines.feed(piece));
        lines.end();
        let mut reports = Vec::new();
        if folder.events().is_there() {
            events::each(&folder.events(), |report| reports.push(report.clone())).expect("reports");
        }
        let (mut samples, mut notes) = (Vec::new(), Vec::new());
        for report in reports {
            match report {
                TaskReport::Progress { sample } => samples.push((sample.step, sample.loss)),
                TaskReport::Note { message } => notes.push(message),
                _ => {}
            }
        }
        (samples, notes)
    }

    #[test]
    fn line_in_pieces_is_read() {
        let (samples, notes) = told(&[b"hello\nmus", b"ter: step=1", b"0 loss=0.5\nbye"]);
        assert_eq!((samples, notes), (vec![(10, 0.5)], Vec::new()));
        let (samples, _) = told(&[b"  muster: step=3 loss=1e-2 accuracy=0.9"]);
        assert_eq!(samples, [(3, 0.01)], "the last line needs no end");
    }

    fn patterns(pairs: &[(&str, &str)]) -> OutputPatterns {
        let owned = pairs
            .iter()
            .map(|(name, pattern)| ((*name).to_owned(), (*pattern).to_owned()));
        OutputPatterns::new(&owned.collect())
    }

    #[test]
    fn patterns_find_values_between_other_output() {
        let found = patterns(&[("loss", ""), ("step", "Batch ([0-9]+)")]);
        let output: &[&[u8]] = &[
            b"begin\nBatch 10 of 90, Lo",
            b"ss: 0.5\rBatch 20 of 90\rmuster: step=25 loss=0.25\n",
            b"\xffBatch 30\nloss=0.125",
        ];
        let (samples, notes) = told_with(found, output);
        assert_eq!(samples.first(), Some(&(10, 0.5)));
        assert_eq!(samples.last().map(|sample| sample.0), Some(30));
        assert_eq!(notes, Vec::<String>::new());
        let (samples, _) = told_with(patterns(&[("loss", "")]), &[b"loss: 1\n"]);
        assert_eq!(samples, [(0, 1.0)], "values without a step are counted");
    }

    #[test]
    fn cut_number_is_not_logged() {
        let mut line = b"loss: 0.5 ".to_vec();
        line.resize(LONGEST - "loss: 1".len(), b'.');
        line[LONGEST - "loss: 1".len() - 1] = b' ';
        line.extend(b"loss: 12\n");
        let (samples, _) = told_with(patterns(&[("loss", "")]), &[&line]);
        assert_eq!(samples, [(0, 0.5)]);
    }

    #[test]
    fn lost_values_are_noted_once() {
        let names: Vec<String> = (0..1_001).map(|number| format!("n{number}")).collect();
        let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "(1)")).collect();
        let (_, notes) = told_with(patterns(&pairs), &[b"1\n1\n1\n"]);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("are lost"), "{notes:?}");
    }

    #[test]
    fn searched_lines_are_bounded() {
        let output = b"loss: 1\n".repeat(3_000);
        let (_, notes) = told_with(patterns(&[("loss", "")]), &[&output]);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("1000 lines"), "{notes:?}");
    }

    #[test]
    fn checkpoint_line_reports_its_step() {
        let step = |line: &str| checkpoint(line.as_bytes()).map_err(|error| error.to_string());
        let report = |step, path: Option<&str>| {
            let path = path.map(str::to_owned);
            Ok(Some(TaskReport::CheckpointReported { step, path }))
        };
        assert_eq!(step("muster: checkpoint step=12"), report(12, None));
        assert_eq!(
            step("muster: checkpoint step=12 path=a b/c.pt "),
            report(12, Some("a b/c.pt"))
        );
        assert_eq!(step("muster: step=12 loss=1"), Ok(None));
        let refused = |line: &str| step(line).expect_err("refused");
        assert_eq!(refused("muster: checkpoint"), "it has no step=NUMBER");
        let expected = "\"step=x\" is not NAME=NUMBER";
        assert_eq!(refused("muster: checkpoint step=x"), expected);
        let large = "step=9223372036854775808";
        let expected = format!("{large:?} is not NAME=NUMBER");
        assert_eq!(refused(&format!("muster: checkpoint {large}")), expected);
        let expected = "\"loss=1\" is not NAME=NUMBER";
        assert_eq!(refused("muster: checkpoint step=1 loss=1"), expected);
        let outside = refused("muster: checkpoint step=1 path=../a");
        assert!(outside.starts_with("\"../a\" is no path"), "{outside}");
    }

    #[test]
    fn checkpoint_line_follows_metrics_logged_before_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = NodeTaskFolder::at(folder.path());
        let mut lines = reader(&folder);
        lines.feed(b"muster: step=1 val/f1=0.5\nmuster: step=2 val/f1=0.7\n");
        lines.feed(b"muster: checkpoint step=2 path=a.pt\n");
        let mut newest = None;
        events::each(&folder.events(), |report| match report {
            TaskReport::Metrics { points } => newest = points.last().map(|point| point.value),
            TaskReport::CheckpointReported { .. } => assert_eq!(newest.take(), Some(0.7)),
            _ => {}
        })
        .expect("reports");
        assert_eq!(newest, None, "the checkpoint is reported");
    }

    #[test]
    fn invalid_name_costs_only_its_value() {
        let (samples, notes) = told(&[b"muster: step=1 acc@1=0.5 loss=4\n"]);
        assert_eq!(samples, [(1, 4.0)]);
        assert!(notes[0].contains("\"acc@1\" is no name"), "{notes:?}");
    }

    #[test]
    fn frequent_lines_are_averaged() {
        let (samples, _) =
            told(&[b"muster: step=1 loss=4\nmuster: step=2 loss=1\nmuster: step=3 loss=3\n"]);
        assert_eq!(samples.first(), Some(&(1, 4.0)));
        assert_eq!(samples.last().map(|(step, _)| *step), Some(3));
    }

    #[test]
    fn malformed_lines_are_noted_once_and_counted() {
        let long = [b"muster: ".as_slice(), &[b'x'; 2_000], b"\n"].concat();
        let (samples, notes) = told(&[
            b"muster: loss=1\nmuster: step=x\nmuster: step=1 loss\nmuster: \xff\n",
            &long,
            b"muster is not muster:\nmuster: step=7 loss=1\n",
        ]);
        assert_eq!(samples, [(7, 1.0)]);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("no step=NUMBER"), "{notes:?}");
        assert!(notes[1].starts_with("5 lines"), "{notes:?}");
    }
}
