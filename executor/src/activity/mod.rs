//! Activity monitor: measures every few seconds whether the running programs of the node are idle,
//! and appends a report to a task's events when that changes. While a task is idle, it repeats the
//! report.
//!
//! A program is idle while it prints nothing, logs no metric, and uses neither CPU nor GPU. For an
//! interactive job, data of a remote session is activity too. A task is not idle while it is
//! suspended or its environment is being prepared. The monitor has its own thread. A second thread
//! reads the GPUs, because their driver may answer late.

mod gpu_thread;
mod measure;

use crate::clock;
use crate::device::GpuUsageReader;
use crate::events;
use crate::folder::NodeTaskFolder;
use crate::log;
use crate::log_once::LogOnce;
use crate::process::{self, Stat};
use crate::remote::RemoteSessions;
use crate::tracking::TrackedRuns;
use crate::watched_program::{SHORTEST_EVERY_MS, WatchedProgram};
use gpu_thread::{GpuReading, GpuReadingThread};
use measure::{GpuUse, LastReport, OutputMark, Signals, TaskActivity};
use muster_model::id::TaskId;
use muster_model::idle::GpuEvidence;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// Longest interval of measurements.
const LONGEST_EVERY_MS: u64 = 5_000;
/// Maximum time for which a measurement waits for the driver of the GPUs.
const GPU_WAIT: Duration = Duration::from_secs(2);
/// Age of a process below which no earlier daemon has reported it.
const NEW_BELOW_MS: u64 = 10_000;
const MS_PER_TICK: u64 = 10;
/// File name of the executor, which is the task's process until the program replaces it.
const OWN_NAME: &str = "muster-executor";

/// Handle shared by the monitor's thread and the node loop.
#[derive(Debug, Clone, Default)]
pub struct ActivityMonitor(Arc<MonitorState>);

#[derive(Debug, Default)]
struct MonitorState {
    watched: Mutex<Vec<WatchedProgram>>,
    /// The monitor's thread; parked while there is no program. Unset if nothing is measured.
    thread: OnceLock<Thread>,
}

/// Sources of a measurement beside `/proc`.
#[derive(Debug)]
pub struct ActivitySources {
    pub runs: TrackedRuns,
    pub sessions: RemoteSessions,
    /// Whether the node's devices are GPUs.
    pub has_gpus: bool,
}

/// State of a task in the monitor.
#[derive(Debug)]
struct KnownProgram {
    activity: TaskActivity,
    logged: LogOnce,
}

impl ActivityMonitor {
    /// Starts the monitor's thread.
    pub fn run(&self, sources: ActivitySources) {
        let monitor = self.clone();
        let running = thread::Builder::new()
            .name("activity".to_owned())
            .spawn(move || monitor.serve(&sources));
        match running {
            Ok(running) => drop(self.0.thread.set(running.thread().clone())),
            Err(error) => tracing::warn!(%error, "idleness of programs is not measured"),
        }
    }

    /// Whether programs are measured on this node.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.0.thread.get().is_some()
    }

    /// Replaces the set of measured programs.
    pub fn watch(&self, programs: Vec<WatchedProgram>) {
        let has_any = !programs.is_empty();
        *self.watched() = programs;
        if let Some(thread) = self.0.thread.get().filter(|_| has_any) {
            thread.unpark();
        }
    }

    fn watched(&self) -> MutexGuard<'_, Vec<WatchedProgram>> {
        let watched = &self.0.watched;
        watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, sources: &ActivitySources) {
        let mut thread = None;
        let mut known = BTreeMap::new();
        loop {
            let watched = self.watched().clone();
            if watched.is_empty() {
                known.clear();
                sources.sessions.keep_use_of(&BTreeSet::new());
                thread::park();
                continue;
            }
            let gpus = sources
                .has_gpus
                .then(|| thread.get_or_insert_with(start_gpu_thread));
            sample(&watched, &mut known, sources, gpus, clock::boottime_ms());
            let every_ms = watched.iter().map(|one| one.first_ms / 4).min();
            let every_ms = every_ms.unwrap_or(LONGEST_EVERY_MS);
            let every_ms = every_ms.clamp(SHORTEST_EVERY_MS, LONGEST_EVERY_MS);
            let until_ms = clock::boottime_ms() + every_ms;
            // `unpark` of a new task may end a sleep early.
            while let Some(left_ms @ 1..) = until_ms.checked_sub(clock::boottime_ms()) {
                thread::sleep(Duration::from_millis(left_ms));
            }
        }
    }
}

/// Starts the thread that reads the GPUs.
fn start_gpu_thread() -> GpuReadingThread {
    GpuReadingThread::start(|| {
        let mut reader = GpuUsageReader::open();
        move |gpus: BTreeSet<u32>| gpu_thread::read(&mut reader, &gpus)
    })
}

/// Measures all programs once, and appends the reports that are due.
fn sample(
    watched: &[WatchedProgram],
    known: &mut BTreeMap<TaskId, KnownProgram>,
    sources: &ActivitySources,
    gpus: Option<&mut GpuReadingThread>,
    now_ms: u64,
) {
    let ids: BTreeSet<TaskId> = watched.iter().map(|one| one.task).collect();
    known.retain(|task, _| ids.contains(task));
    sources.sessions.keep_use_of(&ids);
    let all = process::all();
    let mut quiet = Vec::new();
    for one in watched {
        let tree = processes(one, &all, sources);
        let new = signals(one, &tree, sources);
        let Some(program) = known.get_mut(&one.task) else {
            let age_ms = now_ms.saturating_sub(one.program.start_ticks * MS_PER_TICK);
            let last_report = if age_ms < NEW_BELOW_MS {
                LastReport::Active
            } else {
                LastReport::Unknown
            };
            let activity = TaskActivity::new(new, now_ms, last_report);
            let logged = LogOnce::default();
            known.insert(one.task, KnownProgram { activity, logged });
            continue;
        };
        if program.activity.take(new, now_ms) {
            quiet.push((one, tree));
        }
    }
    // Only GPUs of tasks that look idle are read, and each once.
    let wanted = quiet.iter().flat_map(|(one, _)| one.gpus.iter().copied());
    let wanted: BTreeSet<u32> = wanted.collect();
    let used = gpus
        .filter(|_| !wanted.is_empty())
        .map(|thread| thread.read(wanted, GPU_WAIT));
    for (one, tree) in &quiet {
        if let Some(program) = known.get_mut(&one.task) {
            let of_task = gpu_use(used.as_ref(), one, tree);
            program.activity.take_gpu(of_task);
        }
    }
    for one in watched {
        if let Some(program) = known.get_mut(&one.task) {
            program.report(one);
        }
    }
}

impl KnownProgram {
    /// Appends the report that is due. It stays due if that fails.
    fn report(&mut self, one: &WatchedProgram) {
        let Some(report) = self.activity.due(one.first_ms) else {
            return;
        };
        match events::append(&one.folder.events(), std::slice::from_ref(&report)) {
            Ok(()) => self.activity.told(&report),
            Err(error) if self.logged.is_new(&error.to_string()) => {
                tracing::warn!(task.id = %one.task, %error, "idleness of a task is not reported");
            }
            Err(_) => {}
        }
    }
}

/// Returns the processes of a task without its shim, and those of its remote sessions if it is
/// interactive.
fn processes(one: &WatchedProgram, all: &[Stat], sources: &ActivitySources) -> Vec<Stat> {
    let mut tree = process::descendants_among(all, one.shim.pid);
    if one.is_interactive {
        for helper in sources.sessions.helpers_of(one.task) {
            tree.extend(process::descendants_among(all, helper));
        }
    }
    tree
}

fn signals(one: &WatchedProgram, tree: &[Stat], sources: &ActivitySources) -> Signals {
    let session_ms = sources.sessions.used_ms(one.task);
    Signals {
        is_at_work: !one.is_suspended && !is_own(one.program.pid),
        cpu_ticks: tree.iter().map(|stat| stat.cpu_ticks).sum(),
        output: output(&one.folder),
        metric_ms: sources.runs.last_metric_ms(one.task),
        session_ms: session_ms.filter(|_| one.is_interactive),
    }
}

/// Whether the process still prepares the task: the program has not replaced the executor.
fn is_own(pid: i32) -> bool {
    let path = format!("/proc/{pid}/exe");
    let program = fs::read_link(&path).unwrap_or_default();
    let name = program.file_name().unwrap_or_default();
    // An image may have the executor under another name.
    let own = file_of("/proc/self/exe");
    name.to_string_lossy().starts_with(OWN_NAME) || own.is_some() && own == file_of(&path)
}

/// Returns device and number of a file.
fn file_of(path: &str) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn output(folder: &NodeTaskFolder) -> OutputMark {
    let found = fs::symlink_metadata(folder.path().join(log::CURRENT));
    found.map_or_else(
        |_| OutputMark::default(),
        |found| OutputMark {
            changed_s: found.mtime(),
            changed_ns: found.mtime_nsec(),
            bytes: found.len(),
        },
    )
}

/// Returns the use of the task's GPUs. If the driver names none of the task's processes, every use
/// of its GPUs counts: the ids may be of another namespace. For a GPU without a listed process, the
/// use of the whole GPU counts. If that is missing too, the use is unknown.
fn gpu_use(used: Option<&GpuReading>, one: &WatchedProgram, tree: &[Stat]) -> GpuUse {
    let Some(used) = used.filter(|_| !one.gpus.is_empty()) else {
        return GpuUse::Quiet(GpuEvidence::Absent);
    };
    let (mut is_busy, mut is_unknown) = (false, false);
    let mut processes: Vec<(&u32, &_)> = Vec::new();
    for gpu in &one.gpus {
        match (used.of_processes.get(gpu), used.of_gpus.get(gpu)) {
            (Some(of_gpu), _) if !of_gpu.is_empty() => processes.extend(of_gpu),
            (_, Some(busy)) => is_busy |= *busy > 0.0,
            _ => is_unknown = true,
        }
    }
    let pids = tree.iter().map(|stat| stat.id.pid);
    let own: BTreeSet<u32> = pids.filter_map(|pid| u32::try_from(pid).ok()).collect();
    let is_named = processes.iter().any(|(pid, _)| own.contains(pid));
    let mut counted = processes
        .iter()
        .filter(|(pid, _)| !is_named || own.contains(pid));
    if is_busy || counted.any(|(_, of)| of.busy > 0.0) {
        GpuUse::Busy
    } else if is_unknown {
        GpuUse::Quiet(GpuEvidence::Unknown)
    } else {
        GpuUse::Quiet(GpuEvidence::Unused)
    }
}

#[cfg(test)]
mod tests;
