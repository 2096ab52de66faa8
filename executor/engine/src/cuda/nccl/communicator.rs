//! The ranks that sum together. It never waits without looking: a rank that has died would hold up all others for ever.

use super::{Answer, Config, FLOATS, IN_PROGRESS, INVALID, Id, Nccl, Raw, SUCCESS, SUM};
use crate::cuda::queue::Address;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How often whoever waits asks: long beside a question, short beside a step.
const EVERY: Duration = Duration::from_micros(20);

/// Says, whenever it is asked, whether whoever waits may go on waiting; it is asked very often.
pub(crate) type Look<'a> = &'a mut (dyn FnMut() -> bool + Send);

/// Why there are no sums.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SumError {
    /// Whoever looked says that somebody will not come.
    #[error("not all of the others came")]
    GivenUp,
    #[error("NCCL could not {action}: {cause}")]
    Refused { action: &'static str, cause: String },
}

/// One rank of a communicator.
pub(crate) struct Communicator {
    nccl: Arc<Nccl>,
    raw: Raw,
    /// The first thing that went wrong; nothing more is asked of it then.
    failed: Option<SumError>,
}

// SAFETY: a communicator belongs to a device and not to a thread; it is used by one thread at a time, as all methods need it exclusively.
unsafe impl Send for Communicator {}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Communicator")
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Communicator {
    /// Waits until all `ranks` have called this with the same id. The device is the calling thread's.
    ///
    /// # Errors
    /// [`SumError`]; nothing is left of it then.
    pub(crate) fn form(
        nccl: &Arc<Nccl>,
        id: Id,
        (rank, ranks): (usize, usize),
        look: Look<'_>,
    ) -> Result<Self, SumError> {
        let (mut raw, mut config) = (std::ptr::null_mut(), Config::without_blocking());
        // SAFETY: the pointers are of these variables, and read and written before the call returns.
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
        formed.settle("form a communicator", answer, look);
        formed.failed.clone().map_or(Ok(formed), Err)
    }

    /// Starts the sum over all ranks of so many floats on the device, in place, after what the stream has to do. Returns once NCCL has written it
    /// down there; [`Self::failed`] tells whether it has.
    ///
    /// # Safety
    /// The floats are memory of the communicator's device, and nobody uses them before the stream is done; the stream is the device's.
    pub(crate) unsafe fn sum(
        &mut self,
        at: Address,
        numbers: usize,
        stream: *mut c_void,
        look: Look<'_>,
    ) {
        if self.failed.is_some() {
            return;
        }
        let at = at as *mut c_void;
        // SAFETY: the caller's.
        let answer = unsafe {
            (self.nccl.all_reduce)(at.cast_const(), at, numbers, FLOATS, SUM, self.raw, stream)
        };
        self.settle("sum", answer, look);
    }

    /// What went wrong, now or before; also while a sum is under way.
    pub(crate) fn failed(&mut self) -> Option<SumError> {
        if self.failed.is_none() {
            match self.state() {
                SUCCESS | IN_PROGRESS => {}
                answer => self.failed = Some(self.nccl.refused("sum", answer, self.raw)),
            }
        }
        self.failed.clone()
    }

    /// Waits until it is not busy any more with what it has answered so.
    fn settle(&mut self, action: &'static str, mut answer: Answer, look: Look<'_>) {
        while answer == IN_PROGRESS {
            answer = self.state();
            if answer != IN_PROGRESS {
                break;
            }
            if !look() {
                self.failed = Some(SumError::GivenUp);
                return;
            }
            thread::sleep(EVERY);
        }
        if answer != SUCCESS {
            self.failed = Some(self.nccl.refused(action, answer, self.raw));
        }
    }

    fn state(&mut self) -> Answer {
        if self.raw.is_null() {
            return INVALID;
        }
        let mut state = SUCCESS;
        // SAFETY: it is a communicator that has not been aborted.
        match unsafe { (self.nccl.async_error)(self.raw, &raw mut state) } {
            SUCCESS => state,
            answer => answer,
        }
    }
}

impl Drop for Communicator {
    /// Also where nothing went wrong: it asks nothing of the other ranks, and whatever is still under way ends.
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: it is a communicator, aborted once. What the answer might be changes nothing.
            let _ = unsafe { (self.nccl.abort)(self.raw) };
        }
    }
}
