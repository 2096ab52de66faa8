//! A training that stays on its GPU, with others that do the same: their gradients meet there, bucket by bucket while the backward pass goes on, and
//! each makes the same update.
//!
//! Sums stand in the place of gradients, so a sum that was broken off is not repeated: the step is, from its batch. That is right because
//! nothing but the update changes parameters, and the update is asked for when all ranks have said that they have all sums.
//!
//! Steps of this kind are not written down: which of NCCL's calls may be, and what becomes of them when a rank dies, only GPUs can tell.

use super::device::Means;
use super::error::DeviceError;
use super::nccl::{Communicator, Id, Look, SumError};
use super::resident::Resident;
use super::step::parts;
use crate::clock;
use std::ops::Range;
use std::thread;
use std::time::Duration;

/// How often whoever waits for sums asks: a step takes many times as long.
const EVERY: Duration = Duration::from_micros(20);

/// From a communicator's being aborted to the end of its kernels, which look at that all the time.
const ABORT_LIMIT: Duration = Duration::from_secs(10);

impl Resident {
    /// Waits until all ranks have called this with the same id; `place` is this one's rank and how many there are.
    ///
    /// # Errors
    /// [`SumError`].
    pub(crate) fn join(
        &mut self,
        means: &Means,
        id: Id,
        place: (usize, usize),
        look: Look<'_>,
    ) -> Result<(), SumError> {
        self.ranks = None;
        self.session.queue.enter();
        self.ranks = Some(Communicator::form(&means.nccl, id, place, look)?);
        Ok(())
    }

    /// Leaves the others. Sums that are under way end, with anything in the place of gradients.
    ///
    /// # Errors
    /// When they do not end: then the device is of no use any more.
    pub(crate) fn part(&mut self) -> Result<(), DeviceError> {
        self.ranks = None;
        let began = clock::now();
        // What still ran would write over the gradients of the next step.
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

    /// Asks for the gradients of the batch that was laid last, and for the sum over all ranks of each of `buckets`, which tile the parameters from
    /// their end, once the backward pass of its last part has completed it. [`Self::wait`] gives this rank's loss, [`Self::await_sums`] is next.
    ///
    /// # Panics
    /// As [`Self::step`], and when no ranks were joined.
    pub(crate) fn begin_sums(&mut self, buckets: &[Range<usize>], look: Look<'_>) {
        let (examples, place) = self.take_laid();
        let session = &mut self.session;
        let ranks = self.ranks.as_mut().expect("ranks to sum with");
        let mut waiting = buckets.iter().peekable();
        for (range, part) in parts(examples, session.max_batch) {
            session.upload_part(&self.network, range, place);
            session.cast_batch(&self.network, part.examples);
            let write = part.write();
            session.pass(&self.network, part.examples, write, &mut |session, done| {
                // Only the last part's gradients are whole: a bucket that was handed over before would be added to while it is summed.
                while let Some(bucket) =
                    waiting.next_if(|bucket| part.is_last && bucket.start >= done.start)
                {
                    session.sum(ranks, bucket, look);
                }
            });
        }
        session.ask_loss();
        self.is_under_way = true;
    }

    /// Takes part in the others' sums with what is there, for a step that is none.
    ///
    /// # Panics
    /// When no ranks were joined.
    pub(crate) fn sum_nothing(&mut self, buckets: &[Range<usize>], look: Look<'_>) {
        let ranks = self.ranks.as_mut().expect("ranks to sum with");
        for bucket in buckets {
            self.session.sum(ranks, bucket, look);
        }
    }

    /// Waits until all sums are there.
    ///
    /// # Errors
    /// [`SumError`]; then gradients are anything, and [`Self::part`] is next.
    ///
    /// # Panics
    /// When no ranks were joined.
    pub(crate) fn await_sums(&mut self, look: Look<'_>) -> Result<(), SumError> {
        let ranks = self.ranks.as_mut().expect("ranks to sum with");
        loop {
            let is_over = self.session.queue.has_summed();
            if let Some(error) = ranks.failed() {
                return Err(error);
            }
            if is_over {
                return Ok(());
            }
            if !look() {
                return Err(SumError::GivenUp);
            }
            thread::sleep(EVERY);
        }
    }

    /// Asks for the update by the sums, times `grad_scale`, clipped by the norm of all of them: the same bits on every rank, which have the same
    /// sums.
    pub(crate) fn apply(&mut self, grad_scale: f32) {
        self.tell(grad_scale);
        self.send_told();
        self.update();
        self.step += 1;
    }
}
