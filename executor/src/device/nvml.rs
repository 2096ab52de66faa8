//! GPUs by NVIDIA's management library, which comes with the driver and is looked for at run time.

use muster_model::node::{Gpu, GpuKind};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// All of them, in the order of their place on the bus, or in words why there are none to see.
pub(super) fn gpus() -> Result<Vec<Gpu>, String> {
    let nvml = Nvml::init().map_err(|error| format!("NVML cannot be used: {error}"))?;
    list(&nvml).map_err(|error| format!("NVML does not tell the GPUs: {error}"))
}

/// A GPU that does not answer fails the whole list: leaving it out would shift the indices of those after it.
fn list(nvml: &Nvml) -> Result<Vec<Gpu>, NvmlError> {
    (0..nvml.device_count()?)
        .map(|index| {
            let device = nvml.device_by_index(index)?;
            Ok(Gpu {
                index,
                kind: GpuKind::Cuda,
                model: device.name()?,
                memory_bytes: device.memory_info()?.total,
            })
        })
        .collect()
}
