//! Driver checkpoints: the GPU driver moves the device memory of a suspended program to the host
//! and back (`cuCheckpointProcess...`), without support by the program.
//!
//! A helper process per order (`muster-executor driver`) calls the driver for the shim. The calls
//! can take long or hang, and a shim that waits for one could not enforce the lease. If a helper is
//! killed in the middle, another one undoes its work (`DriverOrder::Mend`). CI runs this code with
//! a stand-in of the library (`executor/tests/node/stand_in.c`). A machine with a GPU runs it with
//! the driver (`executor/tests/node/gpu.rs`).

mod checkpoint_sequence;
mod library;
mod lost;
mod memory_budget;
mod memory_reservation;
mod probe;

pub(crate) use lost::remember;
pub use lost::{folder, has_lost};
pub use probe::of_node;

use crate::clock;
use crate::folder::NodeTaskFolder;
use crate::process;
use checkpoint_sequence::{CheckpointSequence, Time};
use library::Cuda;
pub use library::CudaProcessState;
use memory_budget::Machine;
use memory_reservation::MemoryReservations;
use muster_model::assignment::TaskLaunch;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Part of each GPU that must stay free for its present user when a program returns only to end.
const SPARED: f64 = 0.1;

/// Arguments of the hidden subcommand `driver`; the shim passes them.
#[derive(Debug, Clone, clap::Args)]
pub struct DriverArguments {
    #[arg(long)]
    pub order: DriverOrder,
    /// Folder of the task [default: none]
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// Folder of memory reservations, shared by the helpers of the node [default: none]
    #[arg(long)]
    pub promises: Option<PathBuf>,
    #[arg(long, default_value_t = 10_000)]
    pub patience_ms: u64,
    /// Bytes of the task on each GPU, as JSON of `gpus` in [`DriverAnswer::Moved`]
    #[arg(long, default_value = "{}")]
    pub needed: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum DriverOrder {
    /// Report whether the driver supports checkpoints.
    Probe,
    /// Move the memory to the host.
    TakeOff,
    /// Move the memory back, in the job's time slice.
    BringBack,
    /// Move the memory back for a task that is to end, if a part of each GPU stays free.
    BringBackToEnd,
    /// Undo everything that an earlier order began.
    Mend,
}

/// `driver.json`: result of the newest order. The variant is an outer key, because integer keys of
/// maps cannot be read inside a tagged object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverAnswer {
    /// The memory of `processes` processes is on the host. `gpus` is its former size per GPU.
    Moved {
        processes: usize,
        gpus: BTreeMap<u32, u64>,
    },
    /// All processes are in the state before the order.
    Unchanged { why: String },
    /// As `Unchanged`; the order may succeed once other processes have left the GPUs.
    NoRoom { why: String },
    /// All processes are restored and unlocked.
    Back,
    /// Some processes cannot be restored.
    Lost { why: String },
}

/// Reason why a driver checkpoint failed.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error("cannot load the driver's library {name}")]
    Load {
        name: &'static str,
        #[source]
        source: libloading::Error,
    },
    #[error(
        "the driver is for CUDA {version}; {least} or newer can take a program's memory off the GPU"
    )]
    Old { version: String, least: String },
    #[error("the driver lacks {call}")]
    Lacks {
        call: &'static str,
        #[source]
        source: libloading::Error,
    },
    #[error("{call}{} gives {code}{}", of_process(*pid), name_of(*code))]
    Refused {
        call: &'static str,
        pid: Option<i32>,
        code: i32,
    },
    #[error("process {pid} is {state:?} to the driver, where Running was expected")]
    Astray { pid: i32, state: CudaProcessState },
    #[error("the time was over before it was the turn of process {pid}")]
    Late { pid: i32 },
    #[error("the task has started new processes in each of {rounds} looks")]
    Breeding { rounds: u32 },
    #[error(
        "{needed} bytes of device memory would have to go to the host, which has {free} left for the task"
    )]
    NoRoomOnHost { needed: u64, free: u64 },
    #[error("{needed} bytes would have to go back to GPU {gpu}, which has {free} free")]
    NoRoomOnGpu { gpu: u32, needed: u64, free: u64 },
    #[error("NVML does not tell the memory of the GPUs")]
    Nvml(#[source] nvml_wrapper::error::NvmlError),
    #[error("cannot read {}", path.display())]
    Unreadable { path: PathBuf },
    #[error("cannot tell what others were promised in {}", path.display())]
    Promises {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl DriverError {
    /// Returns the error with its causes on one line.
    pub(super) fn in_words(&self) -> String {
        muster_model::error_chain::chain(self)
    }
}

/// Returns NVIDIA's names of the most frequent errors.
fn name_of(code: i32) -> &'static str {
    match code {
        1 => " (invalid value)",
        2 => " (out of memory)",
        3 => " (not initialized)",
        100 => " (no device)",
        304 => " (operating system)",
        401 => " (illegal state)",
        600 => " (not ready)",
        801 => " (not supported)",
        _ => "",
    }
}

fn of_process(pid: Option<i32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" of process {pid}"))
}

/// Executes an order and writes its result. The exit code only says whether the result was written.
#[must_use]
pub fn run(arguments: &DriverArguments) -> i32 {
    let Some(folder) = arguments.folder.as_ref().map(NodeTaskFolder::at) else {
        return probe::tell();
    };
    let answer =
        carry_out(arguments, &folder).unwrap_or_else(|why| DriverAnswer::Unchanged { why });
    match folder.driver().write_atomically(&answer) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("cannot write what the driver did: {error}");
            1
        }
    }
}

/// An error means that nothing has been changed.
fn carry_out(arguments: &DriverArguments, folder: &NodeTaskFolder) -> Result<DriverAnswer, String> {
    let until_ms = clock::boottime_ms().saturating_add(arguments.patience_ms);
    let launch: Option<TaskLaunch> = folder
        .task()
        .read()
        .map_err(|error| format!("task.json: {error}"))?;
    let gpus = launch.ok_or("there is no task.json")?.gpus;
    let cuda = Cuda::load().map_err(|error| error.in_words())?;
    let promises = arguments.promises.as_deref();
    let promises = promises.ok_or("there is no folder for promises")?;
    let promises = MemoryReservations::at(promises).map_err(|error| error.in_words())?;
    let machine = Machine::new(gpus, promises).map_err(|error| error.in_words())?;
    let (own, shim) = (own_id(), parent_id());
    let processes = || {
        let all = process::descendants(shim).into_iter();
        let all = all.map(|stat| stat.id.pid).filter(|pid| *pid != own);
        all.collect()
    };
    let sequence = CheckpointSequence {
        driver: &cuda,
        memory: &machine,
        time: &OrderDeadline(until_ms),
        processes: &processes,
    };
    let needed: BTreeMap<u32, u64> = serde_json::from_str(&arguments.needed)
        .map_err(|error| format!("needed is {:?}: {error}", arguments.needed))?;
    Ok(match arguments.order {
        DriverOrder::Probe => return Err("a probe needs no task".to_owned()),
        DriverOrder::TakeOff => sequence.checkpoint(),
        DriverOrder::BringBack => sequence.restore(&needed, 0.0),
        DriverOrder::BringBackToEnd => sequence.restore(&needed, SPARED),
        DriverOrder::Mend => sequence.roll_back(),
    })
}

struct OrderDeadline(u64);

impl Time for OrderDeadline {
    fn left_ms(&self) -> u64 {
        self.0.saturating_sub(clock::boottime_ms())
    }

    fn pause(&self, for_ms: u64) {
        thread::sleep(Duration::from_millis(for_ms));
    }
}

fn own_id() -> i32 {
    i32::try_from(std::process::id()).expect("process ids are small")
}

fn parent_id() -> i32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get())
}

#[cfg(test)]
mod tests {
    use super::DriverAnswer;
    use std::collections::BTreeMap;

    #[test]
    fn answer_survives_a_round_trip() {
        let gpus = BTreeMap::from([(0, 5), (7, 1 << 40)]);
        let processes = 2;
        let why = "full".to_owned();
        for answer in [
            DriverAnswer::Moved { processes, gpus },
            DriverAnswer::Unchanged { why: why.clone() },
            DriverAnswer::NoRoom { why: why.clone() },
            DriverAnswer::Back,
            DriverAnswer::Lost { why },
        ] {
            let text = serde_json::to_vec(&answer).expect("JSON");
            let read: DriverAnswer = serde_json::from_slice(&text).expect("an answer");
            assert_eq!(read, answer);
        }
    }
}
