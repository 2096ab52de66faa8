//! What some processes use of GPUs, by NVIDIA's management library. It names processes by the numbers of the machine, so in a container with
//! numbers of its own nothing is found, and nothing told.

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use std::collections::{BTreeMap, BTreeSet};

/// Of one process on one GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Used {
    /// `None` where the driver does not tell.
    pub memory_bytes: Option<u64>,
    /// Of the GPU's time since the look before.
    pub busy: f64,
}

/// By GPU and number of the process; a GPU that did not answer is not there.
pub type OfProcesses = BTreeMap<u32, BTreeMap<u32, Used>>;

pub struct Share {
    nvml: Option<Nvml>,
    /// Driver's time of the newest sample of each GPU, in microseconds.
    seen_us: BTreeMap<u32, u64>,
}

impl Share {
    #[must_use]
    pub fn open() -> Self {
        Self {
            nvml: Nvml::init().ok(),
            seen_us: BTreeMap::new(),
        }
    }

    /// Everybody on these GPUs. May take as long as the driver likes.
    pub fn look(&mut self, gpus: &BTreeSet<u32>) -> OfProcesses {
        let mut used = OfProcesses::new();
        for &gpu in gpus {
            if let Ok(Some(of_gpu)) = self.look_at(gpu) {
                used.insert(gpu, of_gpu);
            }
        }
        used
    }

    fn look_at(&mut self, gpu: u32) -> Result<Option<BTreeMap<u32, Used>>, NvmlError> {
        let mut used: BTreeMap<u32, Used> = BTreeMap::new();
        let Some(nvml) = &self.nvml else {
            return Ok(None);
        };
        let device = nvml.device_by_index(gpu)?;
        for process in device.running_compute_processes()? {
            let of = used.entry(process.pid).or_default();
            if let UsedGpuMemory::Used(bytes) = process.used_gpu_memory {
                *of.memory_bytes.get_or_insert(0) += bytes;
            }
        }
        let seen_us = self.seen_us.entry(gpu).or_insert(0);
        // None since the last look: nothing ran.
        let samples = match device.process_utilization_stats(*seen_us) {
            Err(NvmlError::NotFound) => Vec::new(),
            samples => samples?,
        };
        for sample in samples {
            used.entry(sample.pid).or_default().busy += f64::from(sample.sm_util) / 100.0;
            *seen_us = sample.timestamp.max(*seen_us);
        }
        Ok(Some(used))
    }
}
