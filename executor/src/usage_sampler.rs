//! Usage sampler: measures what the node's tasks use of their GPUs or slots, if the scheduler
//! requests it. The scheduler decides by it whether two jobs can share a GPU.
//!
//! It has a thread of its own, because the driver may answer late, and never for a GPU that has
//! failed. The node loop and the session only exchange data with it. Suspended tasks are measured
//! too, because the memory that they keep is not free.

use crate::clock;
use crate::device::{self, GpuUsageByProcess, GpuUsageReader, ProcessGpuUsage};
use crate::process::{self, ProcessId, Stat};
use muster_model::id::TaskId;
use muster_model::node::Capacity;
use muster_model::packing::UsageReport;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

const SHORTEST_MS: u64 = 100;
/// Unit of times in `/proc`: USER_HZ, part of the kernel's interface.
const TICKS_PER_S: f64 = 100.0;

/// A running task, as the node loop passes it to the sampler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampledTask {
    pub task: TaskId,
    /// The task's processes are the descendants of its shim.
    pub shim: ProcessId,
    pub gpus: Vec<u32>,
    pub is_suspended: bool,
}

/// Handle shared by the sampling thread, the node loop and the session.
#[derive(Debug, Clone, Default)]
pub struct UsageSampler(Arc<SamplerState>);

#[derive(Debug, Default)]
struct SamplerState {
    /// Interval of measurements; 0 means none.
    every_ms: AtomicU64,
    /// The sampling thread; parked while no measurement is requested.
    measuring: OnceLock<Thread>,
    watched: Mutex<Vec<SampledTask>>,
    measured: Mutex<BTreeMap<TaskId, UsageReport>>,
}

/// State of a task at the previous measurement.
#[derive(Debug, Clone, Copy)]
struct LastSample {
    at_ms: u64,
    ticks: u64,
    was_suspended: bool,
    peak_bytes: Option<u64>,
}

/// Method of measurement on this node.
enum SamplingMethod {
    /// Number of cores per slot.
    Slots {
        cores: f64,
    },
    Gpus(Box<GpuUsageReader>),
}

impl UsageSampler {
    /// Starts the sampling thread, which measures while it is requested.
    pub fn run(&self, capacity: &Capacity) {
        let (sampler, has_cuda) = (self.clone(), device::has_cuda(capacity));
        let slots = u32::try_from(capacity.gpus.len()).unwrap_or(u32::MAX);
        let cores = f64::from(device::cores()) / f64::from(slots.max(1));
        let running = thread::Builder::new()
            .name("meter".to_owned())
            .spawn(move || {
                let mut method = None;
                let mut last_samples = BTreeMap::new();
                loop {
                    let every_ms = sampler.0.every_ms.load(Ordering::Relaxed);
                    if every_ms == 0 {
                        last_samples.clear();
                        thread::park();
                        continue;
                    }
                    let method = method.get_or_insert_with(|| {
                        if has_cuda {
                            SamplingMethod::Gpus(Box::new(GpuUsageReader::open()))
                        } else {
                            SamplingMethod::Slots { cores }
                        }
                    });
                    sampler.sample(method, &mut last_samples, clock::boottime_ms());
                    thread::sleep(Duration::from_millis(every_ms.max(SHORTEST_MS)));
                }
            });
        match running {
            Ok(running) => drop(self.0.measuring.set(running.thread().clone())),
            Err(error) => tracing::warn!(%error, "what tasks use is not measured"),
        }
    }

    /// Begins a session, in which the scheduler requests a measurement every `every_ms`; 0 means
    /// none.
    pub fn request(&self, every_ms: u64) {
        self.0.every_ms.store(every_ms, Ordering::Relaxed);
        if let Some(measuring) = self.0.measuring.get() {
            measuring.unpark();
        }
        lock(&self.0.measured).clear();
    }

    /// Whether measurements are requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.every_ms.load(Ordering::Relaxed) > 0
    }

    /// Replaces the set of measured tasks.
    pub fn watch(&self, tasks: Vec<SampledTask>) {
        *lock(&self.0.watched) = tasks;
    }

    /// Returns and removes the measurements since the previous call.
    #[must_use]
    pub fn take(&self) -> BTreeMap<TaskId, UsageReport> {
        std::mem::take(&mut *lock(&self.0.measured))
    }

    fn sample(
        &self,
        method: &mut SamplingMethod,
        last_samples: &mut BTreeMap<TaskId, LastSample>,
        now_ms: u64,
    ) {
        let watched = lock(&self.0.watched).clone();
        last_samples.retain(|task, _| watched.iter().any(|one| one.task == *task));
        if watched.is_empty() {
            return;
        }
        // Without a lock: the call may not return.
        let on_gpus = match method {
            SamplingMethod::Slots { .. } => None,
            SamplingMethod::Gpus(reader) => {
                let gpus: BTreeSet<u32> = watched
                    .iter()
                    .flat_map(|one| one.gpus.iter().copied())
                    .collect();
                Some(reader.read(&gpus))
            }
        };
        let all = process::all();
        for one in &watched {
            let Some(shim) = all.iter().find(|stat| stat.id == one.shim) else {
                continue;
            };
            let tree = process::descendants_among(&all, one.shim.pid);
            let before = last_samples.get(&one.task).copied();
            let memory_bytes = match &on_gpus {
                Some(used) => gpu_memory(used, one, &tree, before),
                None => {
                    let resident = tree.iter().map(|stat| process::resident_bytes(stat.id.pid));
                    Some(resident.sum())
                }
            };
            // The shim has waited for ended processes of the task, so its time includes theirs.
            let ticks = tree.iter().chain([shim]).map(|stat| stat.cpu_ticks).sum();
            let last = LastSample {
                at_ms: now_ms,
                ticks,
                was_suspended: one.is_suspended,
                peak_bytes: before.and_then(|last| last.peak_bytes).max(memory_bytes),
            };
            last_samples.insert(one.task, last);
            // The busy share needs two measurements.
            let Some(before) = before else { continue };
            let busy = match (&*method, &on_gpus) {
                (SamplingMethod::Slots { cores }, _) => cpu_busy(*cores, one, before, last),
                (SamplingMethod::Gpus(_), used) => {
                    used.as_ref().map_or(0.0, |used| gpu_busy(used, one, &tree))
                }
            };
            let was_at_work = !one.is_suspended && !before.was_suspended;
            let report = UsageReport {
                memory_bytes,
                peak_bytes: last.peak_bytes,
                busy: if was_at_work { busy } else { 0.0 },
                over_ms: if was_at_work {
                    now_ms.saturating_sub(before.at_ms)
                } else {
                    0
                },
                stands: one.is_suspended,
            };
            let mut measured = lock(&self.0.measured);
            let untold = measured.get(&one.task).copied();
            measured.insert(one.task, added(untold, report));
        }
    }
}

/// Combines a measurement that no heartbeat has sent yet with a newer one.
fn added(untold: Option<UsageReport>, new: UsageReport) -> UsageReport {
    let Some(untold) = untold.filter(|untold| !untold.stands && !new.stands) else {
        return new;
    };
    let over_ms = untold.over_ms.saturating_add(new.over_ms);
    let busy_ms = untold.busy * untold.over_ms as f64 + new.busy * new.over_ms as f64;
    UsageReport {
        busy: busy_ms / (over_ms.max(1) as f64),
        over_ms,
        ..new
    }
}

/// Returns the task's GPU memory; `None` if the driver reports none of its processes, whose ids may
/// be of another namespace. For a suspended task that was visible before, the result is 0, because
/// its memory has left the GPU.
fn gpu_memory(
    used: &GpuUsageByProcess,
    one: &SampledTask,
    tree: &[Stat],
    before: Option<LastSample>,
) -> Option<u64> {
    let has_answered = one.gpus.iter().all(|gpu| used.contains_key(gpu));
    let of_task = of_task(used, one, tree).filter_map(|of| of.memory_bytes);
    let was_seen = before.is_some_and(|last| last.peak_bytes.is_some());
    let found = of_task.reduce(|sum, bytes| sum + bytes);
    let found = found.or((one.is_suspended && was_seen).then_some(0));
    found.filter(|_| has_answered)
}

fn gpu_busy(used: &GpuUsageByProcess, one: &SampledTask, tree: &[Stat]) -> f64 {
    let busy: f64 = of_task(used, one, tree).map(|of| of.busy).sum();
    busy / one.gpus.len().max(1) as f64
}

fn of_task<'u>(
    used: &'u GpuUsageByProcess,
    one: &SampledTask,
    tree: &[Stat],
) -> impl Iterator<Item = &'u ProcessGpuUsage> {
    let of_gpus = one.gpus.iter().filter_map(|gpu| used.get(gpu));
    let pids = tree.iter().map(|stat| stat.id.pid);
    let pids: BTreeSet<u32> = pids.filter_map(|pid| u32::try_from(pid).ok()).collect();
    let found = of_gpus.flat_map(|of| of.iter().filter(|(pid, _)| pids.contains(pid)));
    found.map(|(_, of)| of).collect::<Vec<_>>().into_iter()
}

fn cpu_busy(cores: f64, one: &SampledTask, before: LastSample, now: LastSample) -> f64 {
    let used_s = now.ticks.saturating_sub(before.ticks) as f64 / TICKS_PER_S;
    let over_s = now.at_ms.saturating_sub(before.at_ms).max(1) as f64 / 1_000.0;
    used_s / over_s / (cores * one.gpus.len().max(1) as f64)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};
    use uuid::Uuid;

    const SLOT: fn() -> SamplingMethod = || SamplingMethod::Slots { cores: 1.0 };

    fn shell(script: &str) -> Child {
        // The outer shell acts as the shim, the inner one as the task.
        let script = format!("sh -c '{script}' & wait");
        let mut command = Command::new("sh");
        let command = command.args(["-c", &script]).stdout(Stdio::null());
        let shim = command.spawn().expect("a shell");
        let id = i32::try_from(shim.id()).expect("a number");
        while process::descendants(id).is_empty() {
            thread::sleep(Duration::from_millis(10));
        }
        shim
    }

    fn watched(number: u128, shim: &Child, is_suspended: bool) -> SampledTask {
        SampledTask {
            task: TaskId(Uuid::from_u128(number)),
            shim: ProcessId::of(i32::try_from(shim.id()).expect("a number")).expect("it runs"),
            gpus: vec![0],
            is_suspended,
        }
    }

    fn used_ticks(shim: &Child) -> u64 {
        let tree = process::descendants(i32::try_from(shim.id()).expect("a number"));
        tree.iter().map(|stat| stat.cpu_ticks).sum()
    }

    fn end(mut shim: Child) {
        for stat in process::descendants(i32::try_from(shim.id()).expect("a number")) {
            let _ = stat.id.signal(rustix::process::Signal::KILL);
        }
        shim.wait().expect("it ended");
    }

    #[test]
    fn busy_process_differs_from_a_waiting_one() {
        let (works, waits) = (shell("while :; do :; done"), shell("sleep 60"));
        let sampler = UsageSampler::default();
        let (mut method, mut last_samples) = (SLOT(), BTreeMap::new());
        let start_ms = clock::boottime_ms();
        sampler.watch(vec![watched(1, &works, false), watched(2, &waits, false)]);
        sampler.sample(&mut method, &mut last_samples, start_ms);
        assert!(sampler.take().is_empty(), "a share of time needs two looks");
        // Waits until the task has used the processor, however busy the machine is.
        let before = used_ticks(&works);
        while used_ticks(&works) < before + 10 {
            thread::sleep(Duration::from_millis(10));
        }
        sampler.sample(&mut method, &mut last_samples, clock::boottime_ms() + 1);
        let told = sampler.take();
        let of = |number| told[&TaskId(Uuid::from_u128(number))];
        assert!(of(1).busy > of(2).busy, "{told:?}");
        assert!(of(2).memory_bytes > Some(100 << 10), "{told:?}");
        assert!(of(1).over_ms > 0 && of(1).peak_bytes >= of(1).memory_bytes);
        assert!(sampler.take().is_empty(), "told once");
        end(works);
        end(waits);
    }

    fn stat(pid: i32) -> Stat {
        Stat {
            id: ProcessId {
                pid,
                start_ticks: 1,
            },
            state: 'S',
            parent: 1,
            session: 1,
            threads: 1,
            cpu_ticks: 0,
        }
    }

    fn task_on(gpus: &[u32], is_suspended: bool) -> SampledTask {
        SampledTask {
            task: TaskId(Uuid::from_u128(1)),
            shim: ProcessId {
                pid: 6,
                start_ticks: 1,
            },
            gpus: gpus.to_vec(),
            is_suspended,
        }
    }

    #[test]
    fn gpu_use_is_that_of_the_driver() {
        let of_gpu = [(7, Some(10), 0.25), (8, Some(5), 0.5), (9, Some(90), 0.1)];
        let of_gpu = BTreeMap::from(
            of_gpu.map(|(pid, memory_bytes, busy)| (pid, ProcessGpuUsage { memory_bytes, busy })),
        );
        let driver = GpuUsageByProcess::from([(0, of_gpu), (1, BTreeMap::new())]);
        let tree = [stat(7), stat(8)];
        let seen = Some(LastSample {
            at_ms: 0,
            ticks: 0,
            was_suspended: false,
            peak_bytes: Some(15),
        });
        for (gpus, stands, tree, before, expected) in [
            (&[0][..], false, &tree[..], None, Some(15)),
            (&[0, 1], false, &tree, None, Some(15)),
            (&[1], false, &tree, None, None),
            (&[1], true, &tree, None, None),
            (&[1], true, &tree, seen, Some(0)),
            (&[1], false, &tree, seen, None),
            (&[2], true, &tree, seen, None),
            (&[0, 2], false, &tree, None, None),
            (&[0], false, &[stat(6)], None, None),
        ] {
            let found = gpu_memory(&driver, &task_on(gpus, stands), tree, before);
            assert_eq!(found, expected, "{gpus:?} {stands} {before:?}");
        }
        assert_eq!(gpu_busy(&driver, &task_on(&[0], false), &tree), 0.75);
        assert_eq!(gpu_busy(&driver, &task_on(&[0, 1], false), &tree), 0.375);
    }

    #[test]
    fn suspended_task_reports_memory_and_no_time() {
        let shim = shell("sleep 60");
        let sampler = UsageSampler::default();
        let (mut method, mut last_samples) = (SLOT(), BTreeMap::new());
        for (at_ms, stands) in [(0, false), (1_000, true), (2_000, true), (3_000, false)] {
            sampler.watch(vec![watched(1, &shim, stands)]);
            sampler.sample(&mut method, &mut last_samples, at_ms);
            let told = sampler.take();
            let told = told.values().next();
            assert_eq!(told.map(|told| told.stands), (at_ms > 0).then_some(stands));
            assert_eq!(
                told.map_or(0, |told| told.over_ms),
                0,
                "at work at both looks"
            );
            assert!(told.is_none_or(|told| told.memory_bytes > Some(0)));
        }
        sampler.sample(&mut method, &mut last_samples, 4_000);
        sampler.sample(&mut method, &mut last_samples, 6_000);
        let told = sampler.take();
        assert_eq!(told.values().next().map(|told| told.over_ms), Some(3_000));
        sampler.watch(Vec::new());
        sampler.sample(&mut method, &mut last_samples, 7_000);
        assert!(last_samples.is_empty(), "nobody is remembered who is gone");
        end(shim);
    }
}
