//! Communicator: the ranks that compute sums together. No wait is unconditional, because a dead
//! rank would block all others for ever.

use super::{
    FLOATS, IN_PROGRESS, INVALID, Nccl, NcclComm, NcclConfig, NcclId, NcclResult, SUCCESS, SUM,
};
use crate::cuda::queue::DeviceAddress;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Poll interval of a waiting thread: long compared with a query, short compared with a step.
const EVERY: Duration = Duration::from_micros(20);

/// Poll callback, which returns whether the caller may continue to wait. It is called very often.
pub type PollCallback<'a> = &'a mut (dyn FnMut() -> bool + Send);

/// Reason why there are no sums.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllReduceError {
    /// The poll callback reports that a rank will not arrive.
    #[error("not all of the others came")]
    GivenUp,
    #[error("NCCL could not {action}: {cause}")]
    Refused { action: &'static str, cause: String },
}

/// Rank of a communicator.
pub struct NcclCommunicator {
    nccl: Arc<Nccl>,
    raw: NcclComm,
    /// First error; NCCL is not called any more after it.
    failed: Option<AllReduceError>,
}

// SAFETY: a communicator belongs to a device and not to a thread. All methods need exclusive
// access, so only one thread uses it at a time.
unsafe impl Send for NcclCommunicator {}

impl std::fmt::Debug for NcclCommunicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NcclCommunicator")
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl NcclCommunicator {
    /// Waits until all `ranks` have called this with the same id. The device must be bound to the
    /// calling thread.
    ///
    /// # Errors
    /// [`AllReduceError`]; the communicator is destroyed then.
    pub(crate) fn form(
        nccl: &Arc<Nccl>,
        id: NcclId,
        (rank, ranks): (usize, usize),
        poll: PollCallback<'_>,
    ) -> Result<Self, AllReduceError> {
        let (mut raw, mut config) = (std::ptr::null_mut(), NcclConfig::without_blocking());
        // SAFETY: the pointers refer to these variables and are used only before the call returns.
        let answer = unsafe {
            (nccl.init)(
                &raw mut raw,
                ranks as c_int,
                id,
                rank as c_int,
                &raw mut config,
            )
        };
        let mut formed = Self {
            nccl: Arc::clone(nccl),
            raw,
            failed: None,
        };
        formed.settle("form a communicator", answer, poll);
        formed.failed.clone().map_or(Ok(formed), Err)
    }

    /// Starts the sum of `numbers` floats on the device over all ranks, in place, after the
    /// previous work of the stream. Returns once NCCL has enqueued it; [`Self::failed`] reports
    /// whether it has.
    ///
    /// # Safety
    /// The floats must be memory of the communicator's device that is not used before the stream is
    /// done. The stream must belong to the device.
    pub(crate) unsafe fn sum(
        &mut self,
        at: DeviceAddress,
        numbers: usize,
        stream: *mut c_void,
        poll: PollCallback<'_>,
    ) {
        if self.failed.is_some() {
            return;
        }
        let at = at as *mut c_void;
        // SAFETY: guaranteed by the caller.
        let answer = unsafe {
            (self.nccl.all_reduce)(at.cast_const(), at, numbers, FLOATS, SUM, self.raw, stream)
        };
        self.settle("sum", answer, poll);
    }

    /// Returns the first error so far, also while a sum is running.
    pub(crate) fn failed(&mut self) -> Option<AllReduceError> {
        if self.failed.is_none() {
            match self.state() {
                SUCCESS | IN_PROGRESS => {}
                answer => self.failed = Some(self.nccl.refused("sum", answer, self.raw)),
            }
        }
        self.failed.clone()
    }

    /// Waits until the operation that returned `answer` is no longer in progress.
    fn settle(&mut self, action: &'static str, mut answer: NcclResult, poll: PollCallback<'_>) {
        while answer == IN_PROGRESS {
            answer = self.state();
            if answer != IN_PROGRESS {
                break;
            }
            if !poll() {
                self.failed = Some(AllReduceError::GivenUp);
                return;
            }
            thread::sleep(EVERY);
        }
        if answer != SUCCESS {
            self.failed = Some(self.nccl.refused(action, answer, self.raw));
        }
    }

    fn state(&mut self) -> NcclResult {
        if self.raw.is_null() {
            return INVALID;
        }
        let mut state = SUCCESS;
        // SAFETY: the communicator has not been aborted.
        match unsafe { (self.nccl.async_error)(self.raw, &raw mut state) } {
            SUCCESS => state,
            answer => answer,
        }
    }
}

impl Drop for NcclCommunicator {
    /// Aborts, also without an error. Aborting needs no other rank and ends all running operations.
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the communicator is aborted only here. The result does not matter.
            let _ = unsafe { (self.nccl.abort)(self.raw) };
        }
    }
}
