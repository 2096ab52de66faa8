//! Sums of gradients on the workers' GPUs through NCCL, if the job requests it and all of its
//! workers can.
//!
//! Collectives on the host alone decide whether they can, and when a communicator is formed again.
//! Their results are the same on all workers, so no worker waits in a sum that another never
//! enters. A step has two parts:
//!
//! 1. [`meet`], if there is no communicator. All workers exchange an offer: the coordinator's NCCL
//!    id and the fingerprint of the parameters. The members of the view that completed it decide
//!    for all workers alike whether all can. The workers then form the communicator and vote on it.
//! 2. [`step`]: gradients are summed in place. The step's head is the vote on whether all workers
//!    have all sums. Either all workers make the update or none.
//!
//! An observation of a single worker, such as a death, only makes it vote no. If no member has
//! died, the worker also withdraws from the view, so that the others do not wait for its part of a
//! sum. A communicator belongs to the view of its offer and ends with it. A rejected step is
//! repeated by the remaining workers, on all of its examples.

mod agree;
mod meet;
mod offer;
mod step;
#[cfg(test)]
mod trial;

use super::AllReduce;
use crate::worker::context::STALL;
use muster_comm::collective::CollectiveGroup;
use muster_comm::fabric::GpuSumSupport;
use muster_compute::clock;
use muster_compute::cuda::{Device, NcclSupport};
use muster_model::spec::{Algorithm, Exchange};
pub(super) use offer::OFFER;
use std::time::Duration;

/// Interval at which a worker that waits for other GPUs checks whether their workers live.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Number of consecutive failed sums, without a lost member, after which the host sums until the
/// members change.
const FAILURES: u32 = 2;

/// State of one worker for sums on GPUs.
pub(super) struct GpuSums {
    means: Result<NcclSupport, String>,
    meeting: SumDevice,
    /// Consecutive steps without sums and without a lost member; the same on all workers.
    failures: u32,
}

/// Where gradients are summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SumDevice {
    /// To be agreed on before the next step.
    Open,
    Host,
    /// On GPUs, with a communicator of this view.
    Gpus {
        view: u64,
    },
}

impl GpuSums {
    /// Returns the state if the job requests sums on GPUs.
    pub fn wanted(exchange: &Exchange, device: &Device) -> Option<Self> {
        (exchange.algorithm == Algorithm::Nccl).then(|| Self {
            means: device.nccl_support(),
            meeting: SumDevice::Open,
            failures: 0,
        })
    }

    /// Returns this worker's data for the agreement.
    pub fn summing(&self) -> GpuSumSupport {
        match &self.means {
            Ok(means) => GpuSumSupport::Gpu {
                library: means.version(),
                gpu: means.gpu.clone(),
                kind: means.kind.clone(),
            },
            Err(why) => GpuSumSupport::Host { why: why.clone() },
        }
    }

    /// Starts a new agreement after an agreed change of members.
    pub fn reopen(&mut self) {
        self.meeting = SumDevice::Open;
        self.failures = 0;
    }
}

impl AllReduce<'_> {
    fn meeting(&self) -> SumDevice {
        self.gpus
            .as_ref()
            .map_or(SumDevice::Host, |gpus| gpus.meeting)
    }

    fn set_meeting(&mut self, meeting: SumDevice) {
        if let Some(gpus) = &mut self.gpus {
            gpus.meeting = meeting;
        }
    }
}

/// Waits for other GPUs while their workers live, at most for [`STALL`].
fn patience(group: &mut CollectiveGroup) -> impl FnMut() -> bool + Send {
    let began = clock::now();
    let mut looked = began;
    move || {
        if looked.elapsed() < LOOK_EVERY {
            return true;
        }
        looked = clock::now();
        group.look() && began.elapsed() < STALL
    }
}
