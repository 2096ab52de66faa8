//! Thread that reads the use of GPUs. The driver may block without a limit, and a blocked read must
//! not delay the reports of other tasks.

use crate::device::{GpuUsageByProcess, GpuUsageReader};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// Use of GPUs since the previous reading. A GPU without an answer is in neither map.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct GpuReading {
    pub of_processes: GpuUsageByProcess,
    /// Busy share of each whole GPU for which the driver lists no process.
    pub of_gpus: BTreeMap<u32, f64>,
}

/// Handle of the thread.
#[derive(Debug)]
pub(super) struct GpuReadingThread {
    wanted: Sender<BTreeSet<u32>>,
    readings: Receiver<GpuReading>,
    /// Whether the thread has not answered yet.
    is_reading: bool,
}

impl GpuReadingThread {
    /// Starts a thread. It calls `open`, and then the result for each set of GPUs.
    pub fn start<R>(open: impl FnOnce() -> R + Send + 'static) -> Self
    where
        R: FnMut(BTreeSet<u32>) -> GpuReading + 'static,
    {
        let (wanted, requests) = mpsc::channel();
        let (answers, readings) = mpsc::channel();
        let running = thread::Builder::new()
            .name("gpu-use".to_owned())
            .spawn(move || {
                let mut read = open();
                while let Ok(gpus) = requests.recv() {
                    if answers.send(read(gpus)).is_err() {
                        break;
                    }
                }
            });
        if let Err(error) = running {
            tracing::warn!(%error, "use of GPUs is not measured");
        }
        Self {
            wanted,
            readings,
            is_reading: false,
        }
    }

    /// Returns the use of these GPUs. If the driver does not answer within `wait`, the reading is
    /// empty. A later call returns the late answer, because the driver reports no sample twice.
    pub fn read(&mut self, gpus: BTreeSet<u32>, wait: Duration) -> GpuReading {
        let answer = if self.is_reading {
            self.readings.try_recv().ok()
        } else {
            self.is_reading = self.wanted.send(gpus).is_ok();
            self.readings.recv_timeout(wait).ok()
        };
        if answer.is_some() {
            self.is_reading = false;
        }
        answer.unwrap_or_default()
    }
}

/// Reads the use of GPUs by process. For a GPU without a listed process, it reads the use of the
/// whole GPU, because the driver does not list processes of another PID namespace.
pub(super) fn read(reader: &mut GpuUsageReader, gpus: &BTreeSet<u32>) -> GpuReading {
    let of_processes = reader.read(gpus);
    let mut unlisted = gpus.clone();
    unlisted.retain(|gpu| of_processes.get(gpu).is_none_or(BTreeMap::is_empty));
    let of_gpus = reader.busy(&unlisted);
    GpuReading {
        of_processes,
        of_gpus,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    fn busy(gpu: u32) -> GpuReading {
        GpuReading {
            of_gpus: BTreeMap::from([(gpu, 0.5)]),
            ..GpuReading::default()
        }
    }

    #[test]
    fn blocked_driver_delays_nothing_and_its_answer_counts() {
        let (release, released) = mpsc::channel::<()>();
        let mut thread = GpuReadingThread::start(move || {
            move |gpus: BTreeSet<u32>| {
                let _ = released.recv();
                gpus.first()
                    .map_or_else(GpuReading::default, |gpu| busy(*gpu))
            }
        });
        let (first, second) = (BTreeSet::from([0]), BTreeSet::from([1]));
        assert_eq!(thread.read(first, SHORT), GpuReading::default());
        let long = Duration::from_secs(3600);
        let late = thread.read(second.clone(), long);
        assert_eq!(late, GpuReading::default(), "the first one blocks");
        release.send(()).expect("it waits");
        let mut answer = GpuReading::default();
        while answer == GpuReading::default() {
            thread::sleep(SHORT);
            answer = thread.read(second.clone(), long);
        }
        assert_eq!(answer, busy(0));
        release.send(()).expect("it waits");
        assert_eq!(thread.read(second, long), busy(1));
    }

    fn broken() -> fn(BTreeSet<u32>) -> GpuReading {
        panic!("the driver is broken");
    }

    #[test]
    fn ended_thread_reads_nothing() {
        let mut thread = GpuReadingThread::start(broken);
        let read = thread.read(BTreeSet::from([0]), Duration::from_secs(3600));
        assert_eq!(read, GpuReading::default());
    }
}
