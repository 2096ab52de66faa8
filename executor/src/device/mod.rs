//! What this node offers: its GPUs as the driver tells of them, or CPU slots that stand for them.

mod cpu;
mod health;
mod nvml;
mod share;

pub use health::Health;
pub use share::{OfProcesses, Share, Used};

use muster_model::node::{Capacity, Gpu, GpuKind};
use std::num::NonZero;

/// What was asked for in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted<'a> {
    /// So many CPU slots, GPUs or not.
    pub cpu_slots: Option<u32>,
    pub cpu_milli: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// So many of what Kubernetes calls so, whatever the driver says.
    pub counted: Option<(u32, &'a str)>,
}

/// Looks once, when the daemon starts.
#[must_use]
pub fn discover(wanted: Wanted<'_>) -> Capacity {
    let cores = cores();
    let memory_bytes = wanted.memory_bytes.unwrap_or_else(cpu::memory_bytes);
    let gpus = match (wanted.counted, wanted.cpu_slots) {
        (Some((count, resource)), _) => counted(count, resource),
        (None, Some(slots)) => cpu::slots(slots, memory_bytes),
        (None, None) => match nvml::gpus() {
            Ok(gpus) if !gpus.is_empty() => gpus,
            Ok(_) => cpu::slots(cores, memory_bytes),
            Err(reason) => {
                tracing::info!(reason, "no GPUs: offering a CPU slot per core");
                cpu::slots(cores, memory_bytes)
            }
        },
    };
    Capacity {
        gpus,
        cpu_milli: wanted.cpu_milli.unwrap_or(u64::from(cores) * 1_000),
        memory_bytes,
        rack: None,
        driver_suspend: None,
        pods: None,
    }
}

/// Cores that this process may use, container limits included.
#[must_use]
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| {
        u32::try_from(NonZero::get(count)).unwrap_or(u32::MAX)
    })
}

/// Nobody has looked at them, so their memory is 0: whoever knows the node's labels knows more.
fn counted(count: u32, resource: &str) -> Vec<Gpu> {
    let gpu = |index| Gpu {
        index,
        kind: GpuKind::Cuda,
        model: resource.to_owned(),
        memory_bytes: 0,
    };
    (0..count).map(gpu).collect()
}

/// Whether the node's devices are real GPUs.
#[must_use]
pub fn has_cuda(capacity: &Capacity) -> bool {
    capacity
        .gpus
        .iter()
        .any(|Gpu { kind, .. }| *kind == GpuKind::Cuda)
}
