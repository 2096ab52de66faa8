//! Resident training of several workers. Gradients are summed on the GPUs, bucket by bucket while
//! the backward pass is running, and each worker makes the same update.
//!
//! Sums overwrite gradients, so an interrupted sum cannot be repeated; the step is repeated from
//! its batch. This is correct because only the update changes parameters, and the update is
//! enqueued after all ranks have confirmed all sums.
//!
//! These steps are not recorded. Whether NCCL's calls can be recorded, and what happens to the
//! recording when a rank dies, has not been tested on GPUs.

use super::device::NcclSupport;
use super::error::DeviceError;
use super::nccl::{AllReduceError, NcclCommunicator, NcclId, PollCallback};
use super::step::parts;
use super::trainer::DeviceTrainer;
use crate::clock;
use std::ops::Range;
use std::thread;
use std::time::Duration;

/// Poll interval of a thread that waits for sums; a step takes many times as long.
const EVERY: Duration = Duration::from_micros(20);

/// Maximum time from the abort of a communicator to the end of its kernels, which poll for the
/// abort.
const ABORT_LIMIT: Duration = Duration::from_secs(10);

impl DeviceTrainer {
    /// Waits until all ranks have called this with the same id. `place` is the own rank and the
    /// number of ranks.
    ///
    /// # Errors
    /// [`AllReduceError`].
    pub fn join(
        &mut self,
        nccl_support: &NcclSupport,
        id: NcclId,
        place: (usize, usize),
        poll: PollCallback<'_>,
    ) -> Result<(), AllReduceError> {
        self.ranks = None;
        self.session.queue.enter();
        self.ranks = Some(NcclCommunicator::form(&nccl_support.nccl, id, place, poll)?);
        Ok(())
    }

    /// Leaves the communicator. Running sums end and leave undefined gradients.
    ///
    /// # Errors
    /// If the sums do not end; the device is unusable then.
    pub fn leave(&mut self) -> Result<(), DeviceError> {
        self.ranks = None;
        let began = clock::now();
        // A running sum would overwrite the gradients of the next step.
        while !self.session.queue.has_summed() {
            if began.elapsed() > ABORT_LIMIT {
                return Err(DeviceError::Failed {
                    action: "end the sums that were aborted".to_owned(),
                    cause: format!("they ran on for {} s", ABORT_LIMIT.as_secs()),
                });
            }
            thread::sleep(EVERY);
        }
        Ok(())
    }

    /// Enqueues the gradients of the batch of the last [`Self::stage_batch`], and the sum of each
    /// of `buckets` over all ranks. Buckets cover the parameters from their end. A bucket is summed
    /// once the backward pass of the last part has completed it. [`Self::wait`] returns this rank's
    /// loss; the caller must call [`Self::await_all_reduce`] next.
    ///
    /// # Panics
    /// See [`Self::step`]. Also without a communicator.
    pub fn begin_all_reduce(&mut self, buckets: &[Range<usize>], poll: PollCallback<'_>) {
        let (examples, place) = self.take_staged();
        let session = &mut self.session;
        let ranks = self.ranks.as_mut().expect("ranks to sum with");
        let mut waiting = buckets.iter().peekable();
        for (range, part) in parts(examples, session.max_batch) {
            session.upload_part(&self.network, range, place);
            session.cast_batch(&self.network, part.examples);
            let write = part.write();
            session.pass(&self.network, part.examples, write, &mut |session, done| {
                // Only the gradients of the last part are complete. A bucket that is passed on
                // earlier would be added to while it is summed.
                while let Some(bucket) =
                    waiting.next_if(|bucket| part.is_last && bucket.start >= done.start)
                {
                    session.sum(ranks, bucket, poll);
                }
            });
        }
        session.download_loss();
        self.is_under_way = true;
    }

    /// Takes part in the sums of other ranks with the current content, for a step that will be
    /// discarded.
    ///
    /// # Panics
    /// Without a communicator.
    pub fn participate_in_all_reduce(&mut self, buckets: &[Range<usize>], poll: PollCallback<'_>) {
        let ranks = self.ranks.as_mut().expect("ranks to sum with");
        for bucket in buckets {
            self.session.sum(ranks, bucket, poll);
        }
    }

    /// Waits until all sums have completed.
    ///
    /// # Errors
    /// [`AllReduceError`]; gradients are undefined then, and the caller must call [`Self::leave`]
    /// next.
    ///
    /// # Panics
    /// Without a communicator.
    pub fn await_all_reduce(&mut self, poll: PollCallback<'_>) -> Result<(), AllReduceError> {
        let ranks = self.ranks.as_mut().expect("ranks to sum with");
        loop {
            let is_over = self.session.queue.has_summed();
            if let Some(error) = ranks.failed() {
                return Err(error);
            }
            if is_over {
                return Ok(());
            }
            if !poll() {
                return Err(AllReduceError::GivenUp);
            }
            thread::sleep(EVERY);
        }
    }

    /// Enqueues the update by the sums, multiplied by `grad_scale` and clipped by their common
    /// norm. The bits are the same on every rank, because all ranks have the same sums.
    pub fn apply(&mut self, grad_scale: f32) {
        self.write_factors(grad_scale);
        self.upload_factors();
        self.update();
        self.step += 1;
    }
}
