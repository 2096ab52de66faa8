//! Memory and CPU limits of a task by cgroup v2, if this executor may divide a cgroup. Otherwise it
//! logs that once and tasks run without limits: a missing permission of the node never fails a
//! task.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Mount point of cgroup v2 on all current distributions.
const MOUNT: &str = "/sys/fs/cgroup";
/// Period of `cpu.max`.
const PERIOD_US: u64 = 100_000;

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

    /// Creates a cgroup with the limits (0 means none) and returns its path; `None` if that fails.
    #[must_use]
    pub fn make(&self, name: &str, memory_bytes: u64, cpu_milli: u64) -> Option<PathBuf> {
        let folder = self.root.as_ref()?.join(format!("task-{name}"));
        match limit(&folder, memory_bytes, cpu_milli) {
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

fn limit(folder: &Path, memory_bytes: u64, cpu_milli: u64) -> io::Result<()> {
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

    #[test]
    fn limits_are_written_as_the_kernel_reads_them() {
        let root = tempfile::tempdir().expect("folder");
        let limits = CgroupLimits::discover(Some(root.path()));
        let made = limits.make("a", 1 << 30, 1_500).expect("made");
        assert_eq!(
            fs::read_to_string(made.join("memory.max")).expect("written"),
            "1073741824"
        );
        assert_eq!(
            fs::read_to_string(made.join("cpu.max")).expect("written"),
            "150000 100000"
        );
        let free = limits.make("b", 0, 0).expect("made");
        assert!(!free.join("memory.max").exists() && !free.join("cpu.max").exists());
    }

    #[test]
    fn missing_permission_means_no_limits_and_no_error() {
        let root = tempfile::tempdir().expect("folder");
        let limits = CgroupLimits::discover(Some(&root.path().join("missing")));
        assert_eq!(limits.make("a", 1, 1), None);
    }
}
