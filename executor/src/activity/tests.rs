//! Measurements of real processes.

use super::*;
use crate::config::ExecutorSettings;
use crate::process::ProcessId;
use crate::session::Endpoints;
use muster_model::assignment::TaskReport;
use muster_model::idle::IdleReport;
use muster_model::place::Place;
use std::process::{Child, Command, Stdio};
use uuid::Uuid;

/// A shim with its program, and the folder of the task.
struct Program {
    shim: Child,
    folder: tempfile::TempDir,
    watched: WatchedProgram,
}

impl Program {
    /// Starts a script. Its output goes to the log of the task.
    fn start(number: u128, script: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = fs::File::create(folder.path().join(log::CURRENT)).expect("created");
        // The outer shell acts as the shim.
        let script = format!("sh -c '{script}' & wait");
        let mut command = Command::new("sh");
        let command = command
            .args(["-c", &script])
            .stdout(log)
            .stdin(Stdio::null());
        let shim = command.spawn().expect("a shell");
        let pid = i32::try_from(shim.id()).expect("a number");
        let program = loop {
            if let Some(found) = process::descendants(pid).first() {
                break found.id;
            }
            thread::sleep(Duration::from_millis(10));
        };
        let watched = WatchedProgram {
            task: TaskId(Uuid::from_u128(number)),
            folder: NodeTaskFolder::at(folder.path()),
            shim: ProcessId::of(pid).expect("it runs"),
            program,
            gpus: vec![0],
            is_suspended: false,
            is_interactive: true,
            first_ms: 2_000,
        };
        Self {
            shim,
            folder,
            watched,
        }
    }

    /// Returns the newest report of the task.
    fn reported(&self) -> Option<Option<IdleReport>> {
        let mut last = None;
        let file = NodeTaskFolder::at(self.folder.path()).events();
        events::each(&file, |report| match report {
            TaskReport::Activity { idle } => last = Some(*idle),
            other => panic!("{other:?}"),
        })
        .expect("read");
        last
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        for stat in process::descendants(self.watched.shim.pid) {
            let _ = stat.id.signal(rustix::process::Signal::KILL);
        }
        let _ = self.shim.wait();
    }
}

fn sources() -> ActivitySources {
    let settings = ExecutorSettings {
        scheduler_url: Some("http://127.0.0.1:1".to_owned()),
        join_token: Some("secret".to_owned()),
        data_dir: Some("/data".into()),
        checkpoint_root: Some(Place::Folder("/checkpoints".into())),
        dataset_root: Some("/datasets".into()),
        ..ExecutorSettings::default()
    };
    let config = settings.resolve().expect("valid");
    ActivitySources {
        runs: TrackedRuns::default(),
        sessions: RemoteSessions::new(&config, Endpoints::new(&config), ""),
        has_gpus: false,
    }
}

#[test]
fn sleeping_program_is_idle_and_working_ones_are_not() {
    let sleeps = Program::start(1, "sleep 60");
    let polls = Program::start(2, "while :; do sleep 0.5; done");
    let spins = Program::start(3, "while :; do :; done");
    let prints = Program::start(4, "while :; do echo x; sleep 0.2; done");
    let programs = [&sleeps, &polls, &spins, &prints];
    let watched: Vec<_> = programs.iter().map(|one| one.watched.clone()).collect();
    let (sources, mut known) = (sources(), BTreeMap::new());
    let start_ms = clock::boottime_ms();
    while clock::boottime_ms() < start_ms + 4_500 {
        sample(&watched, &mut known, &sources, None, clock::boottime_ms());
        thread::sleep(Duration::from_millis(1_000));
    }
    let idle = sleeps.reported().flatten().expect("idle");
    assert!(
        idle.idle_ms >= 2_000 && idle.output_ms.is_none(),
        "{idle:?}"
    );
    assert!(polls.reported().flatten().is_some(), "it only polls");
    assert_eq!(spins.reported().flatten(), None);
    assert_eq!(prints.reported().flatten(), None);
}

#[test]
fn suspended_program_is_not_idle() {
    let mut sleeps = Program::start(1, "sleep 60");
    let (sources, mut known) = (sources(), BTreeMap::new());
    for at_ms in [0, 1_000, 2_000] {
        sample(&[sleeps.watched.clone()], &mut known, &sources, None, at_ms);
    }
    assert!(sleeps.reported().flatten().is_some());
    sleeps.watched.is_suspended = true;
    sample(&[sleeps.watched.clone()], &mut known, &sources, None, 3_000);
    assert_eq!(sleeps.reported(), Some(None), "active again");
}

#[test]
fn process_of_the_executor_is_preparation() {
    let own = i32::try_from(std::process::id()).expect("a number");
    assert!(is_own(own));
    let sleeps = Program::start(1, "sleep 60");
    assert!(!is_own(sleeps.watched.program.pid));
}

#[test]
fn use_of_gpus_is_that_of_the_driver() {
    use crate::device::ProcessGpuUsage;
    let program = Program::start(1, "sleep 60");
    let one = WatchedProgram {
        gpus: vec![0, 1],
        ..program.watched.clone()
    };
    let tree = process::descendants(one.shim.pid);
    let own = u32::try_from(tree[0].id.pid).expect("a number");
    let of = |pid: u32, busy: f64| {
        let memory_bytes = None;
        BTreeMap::from([(pid, ProcessGpuUsage { memory_bytes, busy })])
    };
    let unused = GpuUse::Quiet(GpuEvidence::Unused);
    let unknown = GpuUse::Quiet(GpuEvidence::Unknown);
    for (of_processes, of_gpus, expected) in [
        (
            vec![(0, of(own, 0.5)), (1, of(1, 0.0))],
            vec![],
            GpuUse::Busy,
        ),
        (vec![(0, of(own, 0.0)), (1, of(1, 0.5))], vec![], unused),
        // The ids are of another namespace.
        (vec![(0, of(1, 0.0)), (1, of(1, 0.5))], vec![], GpuUse::Busy),
        // The driver does not answer.
        (vec![(0, of(own, 0.0))], vec![], unknown),
        (vec![], vec![], unknown),
        // The driver lists no process of another namespace.
        (
            vec![(0, BTreeMap::new()), (1, BTreeMap::new())],
            vec![],
            unknown,
        ),
        (
            vec![(0, of(own, 0.0)), (1, BTreeMap::new())],
            vec![],
            unknown,
        ),
        (
            vec![(0, of(own, 0.0)), (1, BTreeMap::new())],
            vec![(1, 0.1)],
            GpuUse::Busy,
        ),
        (vec![(0, BTreeMap::new())], vec![(0, 0.0), (1, 0.0)], unused),
    ] {
        let used = GpuReading {
            of_processes: of_processes.into_iter().collect(),
            of_gpus: of_gpus.into_iter().collect(),
        };
        assert_eq!(gpu_use(Some(&used), &one, &tree), expected, "{used:?}");
    }
    let absent = GpuUse::Quiet(GpuEvidence::Absent);
    assert_eq!(gpu_use(None, &one, &tree), absent);
}

#[test]
fn late_driver_leaves_the_use_of_gpus_unknown() {
    let sleeps = Program::start(1, "sleep 60");
    let (sources, mut known) = (sources(), BTreeMap::new());
    // The thread blocks until the test ends.
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let mut thread = GpuReadingThread::start(move || {
        move |_: BTreeSet<u32>| {
            let _ = held.recv();
            GpuReading::default()
        }
    });
    for at_ms in [0, 1_000, 2_000] {
        let watched = [sleeps.watched.clone()];
        sample(&watched, &mut known, &sources, Some(&mut thread), at_ms);
    }
    let idle = sleeps.reported().flatten().expect("idle");
    assert_eq!(idle.gpu, GpuEvidence::Unknown);
    drop(hold);
}
