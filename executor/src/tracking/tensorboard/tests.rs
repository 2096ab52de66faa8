//! Event files of the libraries tensorboardX 2.6 and tensorboard 2.21 (`testdata`), and of a writer
//! of these tests.

use super::event::{Event, Summary, SummaryValue};
use super::record::tests::framed;
use super::*;
use crate::command::test_launch;
use prost::Message as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;

const SIMPLE: &[u8] = include_bytes!("testdata/tensorboardX.tfevents");
const TENSORS: &[u8] = include_bytes!("testdata/tensorboard.tfevents");

/// A task with an output folder.
struct Site {
    place: tempfile::TempDir,
    launch: TaskLaunch,
    runs: TrackedRuns,
}

impl Site {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(place.path().join("task/output")).expect("made");
        Self {
            place,
            launch: test_launch(),
            runs: TrackedRuns::default(),
        }
    }

    fn folder(&self) -> NodeTaskFolder {
        NodeTaskFolder::at(self.place.path().join("task"))
    }

    fn path(&self, name: &str) -> PathBuf {
        let path = self.folder().output().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        path
    }

    fn append(&self, name: &str, bytes: &[u8]) {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(self.path(name));
        file.expect("opened").write_all(bytes).expect("written");
    }

    fn read(&self) {
        self.runs.read_events(&self.launch, &self.folder(), false);
    }

    fn log(&self, key: &str, step: u64) {
        self.runs.with_task(&self.launch, &self.folder(), |task| {
            let metrics = vec![logged(key, 7.0, step)];
            let batch = LogBatch {
                metrics,
                ..LogBatch::default()
            };
            task.log(batch).expect("logged");
        });
    }

    /// Ends the task, and returns its reports.
    fn reports(&self) -> Vec<TaskReport> {
        self.runs.finish(&self.launch, &self.folder());
        let mut reports = Vec::new();
        if self.folder().events().is_there() {
            let read = events::each(&self.folder().events(), |report| {
                reports.push(report.clone())
            });
            read.expect("read");
        }
        reports
    }

    /// Returns the points of the task's metrics as `name`, `step`, `value`, in their order.
    fn points(&self) -> Vec<(String, u64, f64)> {
        points_of(&self.reports())
    }
}

fn points_of(reports: &[TaskReport]) -> Vec<(String, u64, f64)> {
    let points = reports.iter().filter_map(|report| match report {
        TaskReport::Metrics { points } => Some(points),
        _ => None,
    });
    let points = points.flatten();
    let mut points: Vec<_> = points
        .map(|point| (point.name.clone(), point.step, point.value))
        .collect();
    points.sort_by_key(|point| (point.0.clone(), point.1));
    points
}

fn notes_of(reports: &[TaskReport]) -> Vec<&str> {
    let notes = reports.iter().filter_map(|report| match report {
        TaskReport::Note { message } => Some(message.as_str()),
        _ => None,
    });
    notes.collect()
}

fn logged(key: &str, value: f64, step: u64) -> LoggedMetric {
    LoggedMetric {
        key: key.to_owned(),
        value,
        timestamp_ms: 0,
        step,
    }
}

fn record(tag: &str, step: i64, value: f32) -> Vec<u8> {
    let value = SummaryValue {
        tag: tag.to_owned(),
        simple_value: Some(value),
        tensor: None,
        metadata: None,
    };
    let event = Event {
        wall_time: 1e9,
        step,
        summary: Some(Summary {
            values: vec![value],
        }),
    };
    framed(&event.encode_to_vec())
}

fn steps(points: &[(String, u64, f64)], name: &str) -> Vec<(u64, f64)> {
    let points = points.iter().filter(|point| point.0 == name);
    points.map(|point| (point.1, point.2)).collect()
}

#[test]
fn scalars_of_both_libraries_are_metrics() {
    let site = Site::new();
    site.append("events.out.tfevents.1.vm", SIMPLE);
    site.append("eval/events.out.tfevents.2.vm", TENSORS);
    site.append("other.bin", b"no event file");
    let reports = site.reports();
    let points = points_of(&reports);
    let names: BTreeSet<&str> = points.iter().map(|point| point.0.as_str()).collect();
    let expected = ["acc_1", "eval/half", "eval/loss", "eval/val", "train/loss"];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), expected);
    let halves = [(1, 1.0), (2, 0.5)];
    assert_eq!(steps(&points, "eval/loss")[..2], halves);
    assert_eq!(steps(&points, "train/loss")[..2], [(1, 2.0), (2, 1.0)]);
    assert_eq!(steps(&points, "eval/half"), [(2, 1.5)]);
    assert_eq!(notes_of(&reports), [""; 0]);
}

#[test]
fn every_prefix_of_a_file_continues() {
    let whole = Site::new();
    whole.append("events.out.tfevents.1", TENSORS);
    let expected = whole.points();
    assert_eq!(expected.len(), 11);
    for cut in (0..TENSORS.len()).step_by(37) {
        let site = Site::new();
        site.append("events.out.tfevents.1", &TENSORS[..cut]);
        site.read();
        site.append("events.out.tfevents.1", &TENSORS[cut..]);
        site.read();
        assert_eq!(site.points(), expected, "cut at byte {cut}");
    }
}

#[test]
fn next_daemon_continues_at_the_position() {
    let mut site = Site::new();
    site.append("events.out.tfevents.1", &record("f1", 1, 0.5));
    site.read();
    site.append("events.out.tfevents.1", &record("f1", 2, 0.75));
    site.runs = TrackedRuns::default();
    assert_eq!(steps(&site.points(), "f1"), [(1, 0.5), (2, 0.75)]);
}

#[test]
fn claims_outlive_the_daemon() {
    let mut site = Site::new();
    site.append("events.out.tfevents.1", &record("lr", 1, 0.5));
    site.read();
    site.runs = TrackedRuns::default();
    // A request comes before the first pass.
    site.log("lr", 2);
    assert_eq!(steps(&site.points(), "lr"), [(1, 0.5)]);
}

#[test]
fn metrics_of_the_output_are_not_read_from_files() {
    let mut site = Site::new();
    let command = site.launch.spec.command.as_mut().expect("a command");
    command.metrics.insert("loss".to_owned(), String::new());
    let own = ["train/loss", "loss", "lr"].map(|tag| record(tag, 1, 0.5));
    site.append("events.out.tfevents.1", &own.concat());
    let points = site.points();
    let names: BTreeSet<&str> = points.iter().map(|point| point.0.as_str()).collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["lr"]);
}

#[test]
fn end_of_a_task_notes_what_is_left() {
    let site = Site::new();
    let records: Vec<Vec<u8>> = (1..=8).map(|step| record("f1", step, 0.5)).collect();
    site.append("events.out.tfevents.1", &records.concat());
    let reader = site.runs.readers().of(site.launch.task_id);
    let read = |most_bytes| {
        let folder = site.folder();
        let task = (&site.launch, &folder);
        let mut reader = reader.lock().expect("free");
        reader
            .read_to_end(&site.runs, task, most_bytes)
            .expect("read");
        let mut notes = 0;
        let count =
            |report: &TaskReport| notes += u32::from(matches!(report, TaskReport::Note { .. }));
        events::each(&folder.events(), count).expect("read");
        notes
    };
    assert_eq!(read(4 * 64), 1, "four records are read, four are left");
    assert_eq!(read(4 * 64), 1, "nothing is left");
    assert_eq!(steps(&site.points(), "f1").len(), 8);
}

#[test]
fn broken_record_ends_its_file_with_one_event() {
    let site = Site::new();
    let mut bytes = record("f1", 1, 0.5);
    bytes.extend(record("f1", 2, 0.5));
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    bytes.extend(record("f1", 3, 0.5));
    site.append("a/events.out.tfevents.1", &bytes);
    site.append("b/events.out.tfevents.1", &record("f1", 1, 0.5));
    site.read();
    site.append("a/events.out.tfevents.1", &record("f1", 4, 0.5));
    let reports = site.reports();
    let points = points_of(&reports);
    assert_eq!(steps(&points, "a/f1"), [(1, 0.5)]);
    assert_eq!(steps(&points, "b/f1"), [(1, 0.5)]);
    let notes = notes_of(&reports);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("wrong checksum"), "{notes:?}");
}

#[test]
fn metric_counts_once_if_the_program_logs_it_too() {
    let site = Site::new();
    site.log("loss", 1);
    // Lines of the output are in the task's reports only.
    let line = muster_model::metric::MetricPoint {
        name: "f1".to_owned(),
        step: 1,
        value: 7.0,
        merged: None,
    };
    let line = [TaskReport::Metrics { points: vec![line] }];
    events::append(&site.folder().events(), &line).expect("written");
    let own = ["loss", "f1", "train/loss", "lr", "val_loss"].map(|tag| record(tag, 1, 0.5));
    site.append("events.out.tfevents.1", &own.concat());
    site.read();
    // The event file was first, also for another name of the same quantity.
    for name in ["lr", "val/loss", "loss"] {
        site.log(name, 2);
    }
    let points = site.points();
    assert_eq!(steps(&points, "loss"), [(1, 7.0), (2, 7.0)]);
    assert_eq!(steps(&points, "f1"), [(1, 7.0)]);
    assert_eq!(steps(&points, "lr"), [(1, 0.5)]);
    assert_eq!(steps(&points, "val_loss"), [(1, 0.5)]);
    for other in ["train/loss", "val/loss"] {
        assert_eq!(steps(&points, other), [], "{other}");
    }
}

#[test]
fn collected_losses_become_a_curve() {
    let site = Site::new();
    site.read();
    let reader = site.runs.readers().of(site.launch.task_id);
    // The writer has collected the values of ten seconds.
    reader.lock().expect("free").logged_ms -= 10_000;
    let many: Vec<Vec<u8>> = (2..=50).map(|step| record("loss", step, 1.0)).collect();
    site.append("events.out.tfevents.1", &many.concat());
    site.read();
    let reports = site.reports();
    let samples = reports
        .iter()
        .filter(|report| matches!(report, TaskReport::Progress { .. }));
    let samples = samples.count();
    assert!(samples >= 40, "{samples}");
}

#[test]
fn only_rank_0_is_read() {
    let mut site = Site::new();
    site.launch.role = Role::Worker { rank: 1 };
    site.append("events.out.tfevents.1", SIMPLE);
    assert_eq!(site.points(), []);
}

#[test]
fn links_are_not_followed() {
    let site = Site::new();
    let other = site.place.path().join("events.out.tfevents.other");
    fs::write(&other, SIMPLE).expect("written");
    symlink(&other, site.path("events.out.tfevents.1")).expect("linked");
    assert_eq!(site.points(), []);
}

#[test]
fn files_names_and_values_are_bounded() {
    let site = Site::new();
    for number in 0..101 {
        let name = format!("{number:03}/events.out.tfevents.1");
        site.append(&name, &record("f1", 1, 0.5));
    }
    let names: Vec<Vec<u8>> = (0..600).map(|n| record(&format!("n{n}"), 1, 0.5)).collect();
    site.append("000/events.out.tfevents.1", &names.concat());
    let long = "x".repeat(300);
    let odd = [
        record(&long, 1, 0.5),
        record("", 1, 0.5),
        record("nan", 1, f32::NAN),
    ];
    site.append("001/events.out.tfevents.1", &odd.concat());
    let reports = site.reports();
    let points = points_of(&reports);
    let names: BTreeSet<&str> = points.iter().map(|point| point.0.as_str()).collect();
    // One of the 500 names has no point, because its only value is NaN.
    assert!((499..=500).contains(&names.len()), "{}", names.len());
    let notes = notes_of(&reports);
    for part in ["more than 100 event files", "500 names", "above 250 bytes"] {
        let count = notes.iter().filter(|note| note.contains(part)).count();
        assert_eq!(count, 1, "{part}: {notes:?}");
    }
}

#[test]
fn parts_keep_steps_together() {
    let values = [1, 1, 2, 3, 3, 3].map(|step| logged("f1", 0.5, step));
    let sizes: Vec<usize> = parts(values.into()).iter().map(Vec::len).collect();
    assert_eq!(sizes, [2, 1, 3]);
    let many = (0..2_500).map(|step| logged("f1", 0.5, step)).collect();
    assert_eq!(parts(many).len(), 834);
    assert!(parts(Vec::new()).is_empty());
}
