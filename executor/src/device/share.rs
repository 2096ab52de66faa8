//! GPU use of processes according to NVIDIA's management library. It identifies processes by the
//! machine's ids, so in a container with a PID namespace it lists no process.

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use std::collections::{BTreeMap, BTreeSet};

/// Use of one GPU by one process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessGpuUsage {
    /// `None` if the driver does not report it.
    pub memory_bytes: Option<u64>,
    /// Busy time of the GPU since the previous measurement, as a share.
    pub busy: f64,
}

/// Use by GPU and process id; a GPU without an answer is absent.
pub type GpuUsageByProcess = BTreeMap<u32, BTreeMap<u32, ProcessGpuUsage>>;

pub struct GpuUsageReader {
    nvml: Option<Nvml>,
    /// Driver's time of the newest sample of each GPU, in microseconds.
    seen_us: BTreeMap<u32, u64>,
}

impl GpuUsageReader {
    #[must_use]
    pub fn open() -> Self {
        Self {
            nvml: Nvml::init().ok(),
            seen_us: BTreeMap::new(),
        }
    }

    /// Returns the use of these GPUs by all processes. May block without a limit in the driver.
    pub fn read(&mut self, gpus: &BTreeSet<u32>) -> GpuUsageByProcess {
        let mut used = GpuUsageByProcess::new();
        for &gpu in gpus {
            if let Ok(Some(of_gpu)) = self.read_gpu(gpu) {
                used.insert(gpu, of_gpu);
            }
        }
        used
    }

    /// Returns the share of time in which each of these GPUs was busy, over at most the last
    /// second. A GPU without an answer is absent. May block without a limit in the driver.
    #[must_use]
    pub fn busy(&self, gpus: &BTreeSet<u32>) -> BTreeMap<u32, f64> {
        let mut busy = BTreeMap::new();
        let Some(nvml) = &self.nvml else {
            return busy;
        };
        for &gpu in gpus {
            let Ok(device) = nvml.device_by_index(gpu) else {
                continue;
            };
            if let Ok(used) = device.utilization_rates() {
                busy.insert(gpu, f64::from(used.gpu) / 100.0);
            }
        }
        busy
    }

    fn read_gpu(&mut self, gpu: u32) -> Result<Option<BTreeMap<u32, ProcessGpuUsage>>, NvmlError> {
        let mut used: BTreeMap<u32, ProcessGpuUsage> = BTreeMap::new();
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
        // Not found means no sample since the last measurement: no process computed.
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
