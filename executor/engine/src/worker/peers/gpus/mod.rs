//! Gradients that meet on the workers' GPUs, by NCCL, where a job asks for it and all of its workers can.
//!
//! Whether they can, and when a communicator is to be formed anew, is decided from nothing but what collectives on the host have said, which is the
//! same on all workers: so nobody waits in a sum that another never enters. A step goes
//!
//! 1. [`meet`], unless a communicator stands: an offer goes round, with the chief's id for NCCL and the fingerprint of everybody's parameters; from
//!    the members of the view that completed it all see alike whether all can. Then they form the communicator, and vote on whether it stands;
//! 2. [`step`]: gradients are summed where they lie, and the vote on whether all have all sums, the step's head, decides whether everyone makes the
//!    update or nobody does.
//!
//! What one sees alone, a death above all, only makes it vote no; where nobody has died it withdraws from the view besides, so that those who wait for
//! its part of a sum hear that it does not come. A communicator belongs to the view that it was offered in, and ends with it. A
//! step that was not agreed on is done again, by those who are left, on all of its examples.

mod agree;
mod meet;
mod offer;
mod step;
#[cfg(test)]
mod trial;

use super::AllReduce;
use crate::clock;
use crate::collective::Group;
use crate::cuda::{Device, Means};
use crate::fabric::Summing;
use crate::worker::train::STALL;
use muster_model::spec::{Algorithm, Exchange};
pub(super) use offer::OFFER;
use std::time::Duration;

/// How often whoever waits for the others' GPUs looks at whether the others live.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// So often in a row sums may fail though nobody has gone; then they are the host's until the members change.
const FAILURES: u32 = 2;

/// One worker's part in it.
pub(super) struct Gpus {
    means: Result<Means, String>,
    meeting: Meeting,
    /// Steps in a row without sums though nobody had gone; the same on all workers.
    failures: u32,
}

/// Where gradients meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meeting {
    /// To be agreed on before the next step.
    Open,
    Host,
    /// The communicator is of this view.
    Gpus {
        view: u64,
    },
}

impl Gpus {
    /// Where the job asks for it.
    pub fn wanted(exchange: &Exchange, device: &Device) -> Option<Self> {
        (exchange.algorithm == Algorithm::Nccl).then(|| Self {
            means: device.means(),
            meeting: Meeting::Open,
            failures: 0,
        })
    }

    /// What the others are told.
    pub fn summing(&self) -> Summing {
        match &self.means {
            Ok(means) => Summing::Gpu {
                library: means.nccl.version(),
                gpu: means.gpu.clone(),
                kind: means.kind.clone(),
            },
            Err(why) => Summing::Host { why: why.clone() },
        }
    }

    /// The members change, by everybody's agreement: what they can is looked at anew.
    pub fn reopen(&mut self) {
        self.meeting = Meeting::Open;
        self.failures = 0;
    }
}

impl AllReduce<'_> {
    fn meeting(&self) -> Meeting {
        self.gpus
            .as_ref()
            .map_or(Meeting::Host, |gpus| gpus.meeting)
    }

    fn set_meeting(&mut self, meeting: Meeting) {
        if let Some(gpus) = &mut self.gpus {
            gpus.meeting = meeting;
        }
    }
}

/// Waits for others' GPUs as long as they live and do something at all.
fn patience(group: &mut Group) -> impl FnMut() -> bool + Send {
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
