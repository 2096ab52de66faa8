//! Devices that this node offers: the GPUs that the driver reports, or CPU slots in their place.

mod cpu;
mod health;
mod nvml;
mod share;

pub use health::GpuHealthMonitor;
pub use share::{GpuUsageByProcess, GpuUsageReader, ProcessGpuUsage};

use muster_model::node::{Capacity, Gpu, GpuKind};
use std::num::NonZero;

/// Settings of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapacitySettings<'a> {
    /// Number of CPU slots, even if there are GPUs.
    pub cpu_slots: Option<u32>,
    /// Model name of CPU slots; `cpu` if `None`.
    pub cpu_slot_model: Option<&'a str>,
    pub cpu_milli: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// Number and name of the extended resource as which Kubernetes counts GPUs; the driver is not
    /// queried.
    pub counted: Option<(u32, &'a str)>,
}

/// Returns the node's capacity; called once at the start of the daemon.
#[must_use]
pub fn discover(wanted: CapacitySettings<'_>) -> Capacity {
    let cores = cores();
    let memory_bytes = wanted.memory_bytes.unwrap_or_else(cpu::memory_bytes);
    let model = wanted.cpu_slot_model.unwrap_or("cpu");
    let gpus = match (wanted.counted, wanted.cpu_slots) {
        (Some((count, resource)), _) => counted(count, resource),
        (None, Some(slots)) => cpu::slots(slots, memory_bytes, model),
        (None, None) => match nvml::gpus() {
            Ok(gpus) if !gpus.is_empty() => gpus,
            Ok(_) => cpu::slots(cores, memory_bytes, model),
            Err(reason) => {
                tracing::info!(reason, "no GPUs: offering a CPU slot per core");
                cpu::slots(cores, memory_bytes, model)
            }
        },
    };
    Capacity {
        gpus,
        cpu_milli: wanted.cpu_milli.unwrap_or(u64::from(cores) * 1_000),
        memory_bytes,
        rack: None,
        labels: std::collections::BTreeMap::new(),
        driver_suspend: None,
        pods: None,
        isolation: None,
        images: None,
    }
}

/// Returns the number of cores that this process may use, within its container's limits.
#[must_use]
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| {
        u32::try_from(NonZero::get(count)).unwrap_or(u32::MAX)
    })
}

/// Returns GPUs that Kubernetes counts. Their memory is unknown here and reported as 0; the labels
/// of the node may contain it.
fn counted(count: u32, resource: &str) -> Vec<Gpu> {
    (0..count)
        .map(|index| Gpu {
            index,
            kind: GpuKind::Cuda,
            model: resource.to_owned(),
            memory_bytes: 0,
            compute_capability: None,
        })
        .collect()
}

/// Whether the node's devices are GPUs.
#[must_use]
pub fn has_cuda(capacity: &Capacity) -> bool {
    capacity
        .gpus
        .iter()
        .any(|Gpu { kind, .. }| *kind == GpuKind::Cuda)
}
