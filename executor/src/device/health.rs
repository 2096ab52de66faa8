//! GPU errors that are caused by the machine and not by the program. The driver reports some by
//! number (XID) when they occur; uncorrected memory errors are read from counters. They are kept
//! until the scheduler has acknowledged them.

use crate::clock;
use muster_model::fault::NodeFault;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{EventSet, Nvml};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Interval of reads of the counters. Errors by number arrive at once.
const LOOK_EVERY_MS: u32 = 5_000;
/// Maximum number of faults to keep while the scheduler is unreachable; the oldest are dropped.
const MOST: usize = 256;

/// XID errors of the hardware according to NVIDIA's catalogue. Memory: 48, 63, 64, 92, 94, 95, 140.
/// Links: 74, 149. Bus: 79. The GPU's own processors: 62, 109, 110, 119, 120, 136, 143, 154. Errors
/// that a program can cause (13, 31, 43, 45, 68, 69 and others) are excluded.
const HARDWARE: [u64; 18] = [
    48, 62, 63, 64, 74, 79, 92, 94, 95, 109, 110, 119, 120, 136, 140, 143, 149, 154,
];

/// Handle of the faults that are not acknowledged yet.
#[derive(Debug, Clone, Default)]
pub struct GpuHealthMonitor(Arc<Mutex<UnacknowledgedFaults>>);

#[derive(Debug, Default)]
struct UnacknowledgedFaults {
    faults: Vec<(i64, NodeFault)>,
    /// Number of the heartbeat that contains the first faults, and how many.
    sent: Option<(u64, usize)>,
}

impl GpuHealthMonitor {
    /// Watches the GPUs on a thread of its own, if there are any.
    pub fn watch(&self) {
        let health = self.clone();
        let watching = thread::Builder::new()
            .name("health".to_owned())
            .spawn(move || {
                if let Err(error) = health.watch_faults() {
                    tracing::info!(%error, "errors of GPUs are not watched");
                }
            });
        if let Err(error) = watching {
            tracing::warn!(%error, "errors of GPUs are not watched");
        }
    }

    /// Begins a session: no heartbeat with faults is outstanding.
    pub fn restart(&self) {
        self.untold().sent = None;
    }

    /// Returns the faults that this heartbeat contains.
    #[must_use]
    pub fn send(&self, heartbeat: u64) -> Vec<(i64, NodeFault)> {
        let mut untold = self.untold();
        if untold.sent.is_some() || untold.faults.is_empty() {
            return Vec::new();
        }
        untold.sent = Some((heartbeat, untold.faults.len()));
        untold.faults.clone()
    }

    /// Removes the faults that heartbeats up to this number have reported.
    pub fn acknowledge(&self, heartbeat: u64) {
        let mut untold = self.untold();
        if let Some((number, count)) = untold.sent
            && number <= heartbeat
        {
            untold.sent = None;
            let count = count.min(untold.faults.len());
            untold.faults.drain(..count);
        }
    }

    fn add(&self, fault: NodeFault) {
        tracing::warn!(%fault, "a GPU has an error");
        let mut untold = self.untold();
        if untold.faults.len() >= MOST && untold.sent.is_none() {
            untold.faults.remove(0);
        }
        if untold.faults.len() < MOST {
            untold.faults.push((clock::unix_ms(), fault));
        }
    }

    fn watch_faults(&self) -> Result<(), NvmlError> {
        let nvml = Nvml::init()?;
        let told = listen(&nvml)?;
        let mut counted = uncorrected(&nvml);
        let turn_ms = LOOK_EVERY_MS / u32::try_from(told.len().max(1)).unwrap_or(u32::MAX);
        loop {
            for (gpu, events) in &told {
                self.take(*gpu, events, turn_ms.max(1));
            }
            if told.is_empty() {
                pause(LOOK_EVERY_MS);
            }
            let now = uncorrected(&nvml);
            for (gpu, errors) in &now {
                let before = counted.get(gpu).copied().unwrap_or(*errors);
                if *errors > before {
                    let (gpu, errors) = (*gpu, errors - before);
                    self.add(NodeFault::UncorrectedMemory { gpu, errors });
                }
            }
            counted = now;
        }
    }

    /// Waits for an error by number, at most `wait_ms`.
    fn take(&self, gpu: u32, events: &EventSet<'_>, wait_ms: u32) {
        match events.wait(wait_ms) {
            Ok(event) => {
                if let Some(XidError::Value(xid)) = event.event_data
                    && HARDWARE.contains(&xid)
                {
                    self.add(NodeFault::Xid { gpu, xid });
                }
            }
            Err(NvmlError::Timeout) => {}
            Err(error) => {
                tracing::warn!(gpu, %error, "NVML does not tell of errors");
                pause(wait_ms);
            }
        }
    }

    fn untold(&self) -> MutexGuard<'_, UnacknowledgedFaults> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a set of events for each GPU that reports errors.
///
/// A common set would require the GPU of an event to report its name, which fails for a GPU that
/// has left the bus. It would also fail completely if one GPU refuses the registration.
fn listen(nvml: &Nvml) -> Result<Vec<(u32, EventSet<'_>)>, NvmlError> {
    let mut told = Vec::new();
    for gpu in 0..nvml.device_count()? {
        let registered = nvml.device_by_index(gpu).and_then(|device| {
            let events = nvml.create_event_set()?;
            let registered = device.register_events(EventTypes::CRITICAL_XID_ERROR, events);
            registered.map_err(|error| error.error)
        });
        match registered {
            Ok(events) => told.push((gpu, events)),
            Err(error) => tracing::info!(gpu, %error, "the errors of a GPU are not told by number"),
        }
    }
    Ok(told)
}

fn pause(for_ms: u32) {
    thread::sleep(std::time::Duration::from_millis(for_ms.into()));
}

/// Returns the number of uncorrected errors since the driver was loaded, for each GPU that counts
/// them.
fn uncorrected(nvml: &Nvml) -> BTreeMap<u32, u64> {
    let counts = (0..nvml.device_count().unwrap_or(0)).filter_map(|gpu| {
        let device = nvml.device_by_index(gpu).ok()?;
        let errors = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
        Some((gpu, errors.ok()?))
    });
    counts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xid(xid: u64) -> NodeFault {
        NodeFault::Xid { gpu: 0, xid }
    }

    fn sent(health: &GpuHealthMonitor, heartbeat: u64) -> Vec<NodeFault> {
        let sent = health.send(heartbeat);
        sent.into_iter().map(|(_, fault)| fault).collect()
    }

    #[test]
    fn unacknowledged_faults_are_sent_again() {
        let health = GpuHealthMonitor::default();
        assert_eq!(sent(&health, 1), []);
        health.add(xid(79));
        assert_eq!(sent(&health, 2), [xid(79)]);
        health.add(xid(48));
        assert_eq!(sent(&health, 3), [], "one after the other");
        health.acknowledge(1);
        assert_eq!(sent(&health, 4), []);
        health.restart();
        assert_eq!(sent(&health, 1), [xid(79), xid(48)]);
        health.acknowledge(1);
        assert_eq!(sent(&health, 2), []);
    }
}
