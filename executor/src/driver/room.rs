//! How much a task has on its GPUs, and where there is room for it: the host's memory as the kernel and the task's cgroups tell of it, the
//! GPUs' as NVML does.

use super::DriverError;
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes by GPU.
pub(super) type Bytes = BTreeMap<u32, u64>;

/// Where cgroup v2 is mounted on every current distribution.
const MOUNT: &str = "/sys/fs/cgroup";

pub(super) trait Room {
    /// What these processes have on each of the task's GPUs.
    ///
    /// # Errors
    /// If nobody can tell.
    fn on_gpus(&self, processes: &[i32]) -> Result<Bytes, DriverError>;
    /// How much more these processes may have on the host.
    ///
    /// # Errors
    /// If nobody can tell.
    fn on_host(&self, processes: &[i32]) -> Result<u64, DriverError>;
    /// The first GPU that has not so much free beside the spared part of it, and what it has.
    ///
    /// # Errors
    /// If nobody can tell.
    fn lacking(&self, needed: &Bytes, spared: f64) -> Result<Option<(u32, u64)>, DriverError>;
}

/// This machine's.
pub(super) struct Machine {
    nvml: Nvml,
    /// The task's.
    gpus: Vec<u32>,
}

impl Machine {
    /// # Errors
    /// If there is no NVML.
    pub(super) fn new(gpus: Vec<u32>) -> Result<Self, DriverError> {
        let nvml = Nvml::init().map_err(DriverError::Nvml)?;
        Ok(Self { nvml, gpus })
    }
}

impl Room for Machine {
    fn on_gpus(&self, processes: &[i32]) -> Result<Bytes, DriverError> {
        let mut bytes = Bytes::new();
        for &gpu in &self.gpus {
            let device = self.nvml.device_by_index(gpu).map_err(DriverError::Nvml)?;
            let all = device
                .running_compute_processes()
                .map_err(DriverError::Nvml)?;
            let own = all
                .iter()
                .filter(|one| i32::try_from(one.pid).is_ok_and(|pid| processes.contains(&pid)));
            let own: Vec<Option<u64>> = own
                .map(|one| match one.used_gpu_memory {
                    UsedGpuMemory::Used(bytes) => Some(bytes),
                    UsedGpuMemory::Unavailable => None,
                })
                .collect();
            // In a container NVML may know other numbers than we do: then all that is there counts as the task's.
            let known = match own.is_empty() {
                true => None,
                false => own.into_iter().sum(),
            };
            let used = match known {
                Some(bytes) => bytes,
                None => device.memory_info().map_err(DriverError::Nvml)?.used,
            };
            bytes.insert(gpu, used);
        }
        Ok(bytes)
    }

    fn on_host(&self, processes: &[i32]) -> Result<u64, DriverError> {
        let path = Path::new("/proc/meminfo");
        let text = read(path)?;
        let available = number(&text, "MemAvailable:").map(|kib| kib * 1_024);
        let mut free = available.ok_or_else(|| DriverError::Unreadable {
            path: path.to_owned(),
        })?;
        for pid in processes {
            if let Some(allowed) = allowed(*pid) {
                free = free.min(allowed);
            }
        }
        Ok(free)
    }

    fn lacking(&self, needed: &Bytes, spared: f64) -> Result<Option<(u32, u64)>, DriverError> {
        for (&gpu, &needed) in needed {
            let device = self.nvml.device_by_index(gpu).map_err(DriverError::Nvml)?;
            let memory = device.memory_info().map_err(DriverError::Nvml)?;
            let left = (memory.total as f64 * spared) as u64;
            if memory.free < needed.saturating_add(left) {
                return Ok(Some((gpu, memory.free)));
            }
        }
        Ok(None)
    }
}

/// What the cgroups of a process let it have besides; `None`: they set no limit.
fn allowed(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    left(&Path::new(MOUNT).join(path))
}

/// Of a cgroup and all above it. Pages of files are given back before anybody is killed, so they count as free.
fn left(cgroup: &Path) -> Option<u64> {
    let of_one = |folder: &Path| {
        let whole: u64 = value(&folder.join("memory.max"))?;
        let used: u64 = value(&folder.join("memory.current"))?;
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let files = ["active_file", "inactive_file"];
        let files: u64 = files.iter().filter_map(|name| number(&stat, name)).sum();
        Some(whole.saturating_sub(used.saturating_sub(files)))
    };
    cgroup.ancestors().filter_map(of_one).min()
}

fn value(path: &PathBuf) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number behind a name at the beginning of a line.
fn number(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let mut line = lines.find(|words| words.clone().next() == Some(name))?;
    line.nth(1)?.parse().ok()
}

fn read(path: &Path) -> Result<String, DriverError> {
    fs::read_to_string(path).map_err(|_| DriverError::Unreadable {
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_cgroup_counts_and_pages_of_files_are_no_obstacle() {
        let root = tempfile::tempdir().expect("a folder");
        let inner = root.path().join("task");
        fs::create_dir(&inner).expect("made");
        let write = |folder: &Path, name: &str, text: &str| {
            fs::write(folder.join(name), text).expect("written");
        };
        assert_eq!(left(&inner), None, "no limits");
        write(root.path(), "memory.max", "1000\n");
        write(root.path(), "memory.current", "900\n");
        write(
            root.path(),
            "memory.stat",
            "anon 1\nactive_file 200\ninactive_file 300\nfile 999\n",
        );
        assert_eq!(left(&inner), Some(600));
        write(&inner, "memory.max", "max\n");
        write(&inner, "memory.current", "50\n");
        assert_eq!(left(&inner), Some(600));
        write(&inner, "memory.max", "70\n");
        assert_eq!(left(&inner), Some(20));
    }
}
