//! Context of a worker, and the reasons for its end.

use super::Reporter;
use crate::stop::StopFlag;
use muster_compute::cuda::Device;
use muster_model::assignment::Peers;
use muster_model::place::Place;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Reads the job's present task set; `None` while none is known.
pub type RosterSource = Arc<dyn Fn() -> Option<Peers> + Send + Sync>;

/// Time after which a worker whose process runs without progress counts as lost. It is longer than
/// any evaluation or checkpoint. A frozen process is detected earlier by its missing heartbeats.
pub(super) const STALL: Duration = Duration::from_secs(900);

/// Context of a worker.
pub struct WorkerContext<'a> {
    pub checkpoint_root: &'a Place,
    pub dataset_root: &'a Path,
    pub reporter: &'a dyn Reporter,
    pub stop: StopFlag,
    pub peers: RosterSource,
    /// Address at which other workers reach this one.
    pub listen_host: &'a str,
    /// Folder of this task.
    pub folder: &'a Path,
    /// Folder for the endpoints of this job's tasks on this node; several tasks may share it.
    pub sockets: &'a Path,
    /// Number of threads for the passes of the network.
    pub threads: usize,
    pub device: &'a Device,
}

/// End of a worker without an error of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// Training has ended.
    Finished,
    /// Stopped in order, by request or because a peer left in order.
    Interrupted,
    /// A shard or another worker left without a goodbye.
    PeerLost,
}
