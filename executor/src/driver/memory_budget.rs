//! GPU memory of a task, and free memory: NVML reports that of GPUs, the kernel and the task's
//! cgroups that of the host.

use super::DriverError;
use super::memory_reservation::{MemoryReservation, MemoryReservations, ReservedMemory};
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes per GPU.
pub(super) type GpuBytes = BTreeMap<u32, u64>;

/// Mount point of cgroup v2 on all current distributions.
const MOUNT: &str = "/sys/fs/cgroup";

pub(super) trait MemoryBudget {
    /// Returns the memory of these processes on each GPU of the task.
    ///
    /// # Errors
    /// If it cannot be read.
    fn on_gpus(&self, processes: &[i32]) -> Result<GpuBytes, DriverError>;
    /// Reserves `needed` bytes of the host for these processes, or returns the free bytes.
    ///
    /// # Errors
    /// If the free memory cannot be read.
    fn reserve_host(
        &self,
        processes: &[i32],
        needed: u64,
    ) -> Result<Result<MemoryReservation, u64>, DriverError>;
    /// Reserves memory on each GPU so that the spared part stays free, or returns the first GPU
    /// without room and its free bytes.
    ///
    /// # Errors
    /// If the free memory cannot be read.
    fn reserve_gpus(
        &self,
        needed: &GpuBytes,
        spared: f64,
    ) -> Result<Result<MemoryReservation, (u32, u64)>, DriverError>;
}

/// Memory of this machine and of the task's GPUs.
pub(super) struct Machine {
    nvml: Nvml,
    /// GPUs of the task.
    gpus: Vec<u32>,
    reservations: MemoryReservations,
}

impl Machine {
    /// # Errors
    /// If NVML is not available.
    pub(super) fn new(
        gpus: Vec<u32>,
        reservations: MemoryReservations,
    ) -> Result<Self, DriverError> {
        let nvml = Nvml::init().map_err(DriverError::Nvml)?;
        Ok(Self {
            nvml,
            gpus,
            reservations,
        })
    }
}

impl MemoryBudget for Machine {
    fn on_gpus(&self, processes: &[i32]) -> Result<GpuBytes, DriverError> {
        let mut bytes = GpuBytes::new();
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
            // In a container NVML may report process ids of another namespace: then all used memory
            // counts as the task's.
            let known = if own.is_empty() {
                None
            } else {
                own.into_iter().sum()
            };
            let used = match known {
                Some(bytes) => bytes,
                None => device.memory_info().map_err(DriverError::Nvml)?.used,
            };
            bytes.insert(gpu, used);
        }
        Ok(bytes)
    }

    fn reserve_host(
        &self,
        processes: &[i32],
        needed: u64,
    ) -> Result<Result<MemoryReservation, u64>, DriverError> {
        let mut cgroups: Vec<PathBuf> = processes.iter().filter_map(|pid| cgroup(*pid)).collect();
        cgroups.sort_unstable();
        cgroups.dedup();
        self.reservations.reserve(|others| {
            let reserved: u64 = others.iter().map(|one| one.host).sum();
            let mut free = available()?.saturating_sub(reserved);
            for cgroup in &cgroups {
                free = free.min(left(cgroup, others).unwrap_or(u64::MAX));
            }
            Ok(if free < needed {
                Err(free)
            } else {
                Ok(ReservedMemory {
                    host: needed,
                    cgroups: cgroups.clone(),
                    gpus: GpuBytes::new(),
                })
            })
        })
    }

    fn reserve_gpus(
        &self,
        needed: &GpuBytes,
        spared: f64,
    ) -> Result<Result<MemoryReservation, (u32, u64)>, DriverError> {
        self.reservations.reserve(|others| {
            for (&gpu, &needed) in needed {
                let device = self.nvml.device_by_index(gpu).map_err(DriverError::Nvml)?;
                let memory = device.memory_info().map_err(DriverError::Nvml)?;
                let left = (memory.total as f64 * spared) as u64;
                let reserved: u64 = others.iter().filter_map(|one| one.gpus.get(&gpu)).sum();
                let free = memory.free.saturating_sub(reserved);
                if free < needed.saturating_add(left) {
                    return Ok(Err((gpu, free)));
                }
            }
            Ok(Ok(ReservedMemory {
                gpus: needed.clone(),
                ..ReservedMemory::default()
            }))
        })
    }
}

/// Returns the memory that is available without an out-of-memory kill.
fn available() -> Result<u64, DriverError> {
    let path = Path::new("/proc/meminfo");
    let text = fs::read_to_string(path).ok();
    let kib = text.and_then(|text| number(&text, "MemAvailable:"));
    let bytes = kib.map(|kib| kib * 1_024);
    bytes.ok_or_else(|| DriverError::Unreadable {
        path: path.to_owned(),
    })
}

fn cgroup(pid: i32) -> Option<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(MOUNT).join(path))
}

/// Returns the memory that a cgroup and its ancestors still permit; `None` without a limit. The
/// kernel reclaims file pages before it kills a process, so they count as free.
fn left(cgroup: &Path, others: &[ReservedMemory]) -> Option<u64> {
    cgroup
        .ancestors()
        .filter_map(|folder| left_in_one(folder, others))
        .min()
}

fn left_in_one(cgroup: &Path, others: &[ReservedMemory]) -> Option<u64> {
    let whole: u64 = value(&cgroup.join("memory.max"))?;
    let used: u64 = value(&cgroup.join("memory.current"))?;
    let stat = fs::read_to_string(cgroup.join("memory.stat")).unwrap_or_default();
    let files = ["active_file", "inactive_file"];
    let files: u64 = files.iter().filter_map(|name| number(&stat, name)).sum();
    let inside = others
        .iter()
        .filter(|one| one.cgroups.iter().any(|inner| inner.starts_with(cgroup)));
    let reserved: u64 = inside.map(|one| one.host).sum();
    Some(
        whole
            .saturating_sub(used.saturating_sub(files))
            .saturating_sub(reserved),
    )
}

fn value(path: &PathBuf) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the number after a name at the start of a line.
fn number(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let mut line = lines.find(|words| words.clone().next() == Some(name))?;
    line.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        fs::write(folder.join(name), text).expect("written");
    }

    fn reserved(host: u64, cgroup: PathBuf) -> ReservedMemory {
        ReservedMemory {
            host,
            cgroups: vec![cgroup],
            gpus: GpuBytes::new(),
        }
    }

    #[test]
    fn tightest_cgroup_counts_and_file_pages_are_free() {
        let root = tempfile::tempdir().expect("a folder");
        let inner = root.path().join("task");
        fs::create_dir(&inner).expect("made");
        assert_eq!(left(&inner, &[]), None, "no limits");
        write(root.path(), "memory.max", "1000\n");
        write(root.path(), "memory.current", "900\n");
        write(
            root.path(),
            "memory.stat",
            "anon 1\nactive_file 200\ninactive_file 300\nfile 999\n",
        );
        assert_eq!(left(&inner, &[]), Some(600));
        write(&inner, "memory.max", "max\n");
        write(&inner, "memory.current", "50\n");
        assert_eq!(left(&inner, &[]), Some(600));
        write(&inner, "memory.max", "70\n");
        assert_eq!(left(&inner, &[]), Some(20));
        // A neighbour's reservation counts against the common ancestor only.
        let neighbour = reserved(590, root.path().join("other"));
        assert_eq!(left(&inner, std::slice::from_ref(&neighbour)), Some(10));
        let stranger = reserved(590, root.path().with_extension("elsewhere"));
        assert_eq!(left(&inner, &[stranger]), Some(20));
        assert_eq!(left(&inner, &[reserved(15, inner.clone())]), Some(5));
    }
}
