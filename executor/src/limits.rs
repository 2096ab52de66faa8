//! Memory and CPU limits of a task by cgroup v2, if this executor may divide a cgroup. Otherwise it
//! logs that once and tasks run without limits: a missing permission of the node never fails a
//! task.

use muster_model::assignment::TaskLaunch;
use muster_model::node::Capacity;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Mount point of cgroup v2 on all current distributions.
const MOUNT: &str = "/sys/fs/cgroup";
/// Period of `cpu.max`.
const PERIOD_US: u64 = 100_000;

/// CPU and memory of a task; 0 means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskLimits {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

impl TaskLimits {
    /// Returns the amounts that the document states. What it leaves out is the share of the task's
    /// GPUs or slots in the node.
    #[must_use]
    pub fn of(launch: &TaskLaunch, capacity: &Capacity) -> Self {
        let (held, all) = (launch.gpus.len() as u64, capacity.gpus.len() as u64);
        let share = |stated: u64, of_node: u64| match stated {
            0 if held > 0 && all > 0 => of_node * held.min(all) / all,
            stated => stated,
        };
        Self {
            cpu_milli: share(launch.cpu_milli, capacity.cpu_milli),
            memory_bytes: share(launch.memory_bytes, capacity.memory_bytes),
        }
    }
}

/// A cgroup whose memory and CPU are divided among the tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupLimits {
    root: Option<PathBuf>,
}

impl CgroupLimits {
    /// Prepares the configured cgroup, or the executor's own, and logs if none is usable.
    #[must_use]
    pub fn discover(configured: Option<&Path>) -> Self {
        let prepared = match configured {
            Some(root) => enable(root).map(|()| root.to_owned()),
            None => own(),
        };
        match prepared {
            Ok(root) => Self { root: Some(root) },
            Err(error) => {
                tracing::warn!(%error, "tasks run without memory and CPU limits: no cgroup v2 that may be divided");
                Self::none()
            }
        }
    }

    #[must_use]
    pub fn none() -> Self {
        Self { root: None }
    }

    /// Creates a cgroup with the limits and returns its path; `None` if that fails.
    #[must_use]
    pub fn make(&self, name: &str, limits: TaskLimits) -> Option<PathBuf> {
        let folder = self.root.as_ref()?.join(format!("task-{name}"));
        match limit(&folder, limits) {
            Ok(()) => Some(folder),
            Err(error) => {
                tracing::warn!(task.id = name, %error, "the task runs without limits");
                None
            }
        }
    }

    /// Removes the cgroup of an ended task, if its shim has not done so.
    pub fn remove(&self, name: &str) {
        if let Some(root) = &self.root {
            let _ = fs::remove_dir(root.join(format!("task-{name}")));
        }
    }
}

fn limit(folder: &Path, limits: TaskLimits) -> io::Result<()> {
    let TaskLimits {
        cpu_milli,
        memory_bytes,
    } = limits;
    fs::create_dir_all(folder)?;
    if memory_bytes > 0 {
        fs::write(folder.join("memory.max"), memory_bytes.to_string())?;
    }
    if cpu_milli > 0 {
        let quota_us = cpu_milli * (PERIOD_US / 1_000);
        fs::write(folder.join("cpu.max"), format!("{quota_us} {PERIOD_US}"))?;
    }
    Ok(())
}

/// Returns the executor's own cgroup, prepared for division. Only a cgroup without processes can be
/// divided, so the executor moves into a leaf. It does so only if it is the only process, as under
/// systemd with `Delegate=yes`, and never moves other processes.
fn own() -> io::Result<PathBuf> {
    let mount = Path::new(MOUNT);
    if !mount.join("cgroup.controllers").exists() {
        return Err(io::Error::other(
            "cgroup v2 is not mounted at its usual place",
        ));
    }
    let text = fs::read_to_string("/proc/self/cgroup")?;
    let path = text
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .unwrap_or("");
    let own = mount.join(path);
    let mine = std::process::id().to_string();
    let processes = fs::read_to_string(own.join("cgroup.procs"))?;
    if processes.lines().any(|pid| pid != mine) {
        return Err(io::Error::other(
            "the executor's cgroup holds other processes too",
        ));
    }
    let leaf = own.join("executor");
    fs::create_dir_all(&leaf)?;
    fs::write(leaf.join("cgroup.procs"), mine)?;
    enable(&own)?;
    Ok(own)
}

fn enable(root: &Path) -> io::Result<()> {
    fs::write(root.join("cgroup.subtree_control"), "+memory +cpu")
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::node::{Gpu, GpuKind};

    #[test]
    fn limits_are_written_as_the_kernel_reads_them() {
        let root = tempfile::tempdir().expect("folder");
        let limits = CgroupLimits::discover(Some(root.path()));
        let made = limits
            .make(
                "a",
                TaskLimits {
                    cpu_milli: 1_500,
                    memory_bytes: 1 << 30,
                },
            )
            .expect("made");
        assert_eq!(
            fs::read_to_string(made.join("memory.max")).expect("written"),
            "1073741824"
        );
        assert_eq!(
            fs::read_to_string(made.join("cpu.max")).expect("written"),
            "150000 100000"
        );
        let free = limits.make("b", TaskLimits::default()).expect("made");
        assert!(!free.join("memory.max").exists() && !free.join("cpu.max").exists());
    }

    #[test]
    fn unstated_amounts_are_the_share_of_the_gpus() {
        let launch = |gpus: &[u32], stated: u64| -> TaskLaunch {
            let id = "00000000-0000-7000-8000-000000000001";
            serde_json::from_value(serde_json::json!({
                "task_id": id, "job_id": id, "tenant_id": id, "revision": 1, "role": { "kind": "worker", "rank": 0 },
                "workers": 1, "ps_shards": 0, "gpus": gpus, "cpu_milli": stated, "memory_bytes": stated, "secret": "00",
                "spec": { "version": "muster/v1", "name": "x", "command": { "argv": ["true"] } },
                "resume_step": null, "trained_s": 0.0, "grace_ms": 0,
            }))
            .expect("a launch")
        };
        let gpu = |index| Gpu {
            index,
            kind: GpuKind::CpuSlot,
            model: "cpu".to_owned(),
            memory_bytes: 0,
            compute_capability: None,
        };
        let capacity = Capacity {
            gpus: (0..4).map(gpu).collect(),
            cpu_milli: 64_000,
            memory_bytes: 256 << 30,
            rack: None,
            labels: std::collections::BTreeMap::new(),
            driver_suspend: None,
            pods: None,
            isolation: None,
            images: None,
        };
        let limits = TaskLimits::of(&launch(&[1, 2], 0), &capacity);
        assert_eq!((limits.cpu_milli, limits.memory_bytes), (32_000, 128 << 30));
        let limits = TaskLimits::of(&launch(&[1], 500), &capacity);
        assert_eq!((limits.cpu_milli, limits.memory_bytes), (500, 500));
        let limits = TaskLimits::of(&launch(&[], 0), &capacity);
        assert_eq!(limits, TaskLimits::default());
    }

    #[test]
    fn missing_permission_means_no_limits_and_no_error() {
        let root = tempfile::tempdir().expect("folder");
        let limits = CgroupLimits::discover(Some(&root.path().join("missing")));
        assert_eq!(limits.make("a", TaskLimits::default()), None);
    }
}
