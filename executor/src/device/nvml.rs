//! GPUs according to NVIDIA's management library, which is part of the driver and loaded at run
//! time.

use muster_model::compute_capability::ComputeCapability;
use muster_model::node::{Gpu, GpuKind};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// Returns all GPUs in the order of the PCI bus, or the reason why none is visible.
pub(super) fn gpus() -> Result<Vec<Gpu>, String> {
    let nvml = Nvml::init().map_err(|error| format!("NVML cannot be used: {error}"))?;
    list(&nvml).map_err(|error| format!("NVML does not tell the GPUs: {error}"))
}

/// Lists all GPUs. One GPU without an answer fails the list: omitting it would shift later indexes.
fn list(nvml: &Nvml) -> Result<Vec<Gpu>, NvmlError> {
    (0..nvml.device_count()?)
        .map(|index| {
            let device = nvml.device_by_index(index)?;
            Ok(Gpu {
                index,
                kind: GpuKind::Cuda,
                model: device.name()?,
                memory_bytes: device.memory_info()?.total,
                compute_capability: capability(&device),
            })
        })
        .collect()
}

/// Returns the compute capability; `None` if the driver does not report it.
fn capability(device: &Device<'_>) -> Option<ComputeCapability> {
    let found = device.cuda_compute_capability().ok()?;
    let (major, minor) = (found.major.try_into().ok()?, found.minor.try_into().ok()?);
    ComputeCapability::new(major, minor)
}
