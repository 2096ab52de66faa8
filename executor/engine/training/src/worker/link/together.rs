//! A step whose gradients the workers of one node have summed (local aggregation).

use super::{Link, Patience, Reply, Told};
use muster_comm::wire::hello::{PushHead, SumHead};
use muster_comm::wire::{Kind, WireError};

impl Link {
    /// Like [`Self::push_pull`] with the sum of several workers' gradients. Pushes `own` alone if
    /// the shard already has the gradients of one of these workers.
    ///
    /// # Errors
    /// [`WireError`].
    pub(in crate::worker) fn push_together(
        &mut self,
        clock: u64,
        sum: (&SumHead, &[&[f32]]),
        own: (PushHead, &[&[f32]]),
        parts: &mut [&mut [f32]],
        patience: Patience<'_>,
    ) -> Result<Told, WireError> {
        self.is_pushed_to = true;
        let (head, gradients) = sum;
        self.connection
            .send(Kind::Together, clock, &head.encode(), gradients)?;
        let told = self.reply(None, parts, patience)?;
        match told.reply {
            Reply::Absent => self.push_pull(clock, own.0, own.1, parts, patience),
            _ => Ok(told),
        }
    }

    /// Like [`Self::push_pull`], where another worker may have pushed these gradients in a sum.
    ///
    /// # Errors
    /// [`WireError`].
    pub(in crate::worker) fn await_or_push(
        &mut self,
        clock: u64,
        own: (PushHead, &[&[f32]]),
        parts: &mut [&mut [f32]],
        patience: Patience<'_>,
    ) -> Result<Told, WireError> {
        self.connection.send(Kind::Await, clock, &[], &[])?;
        let told = self.reply(None, parts, patience)?;
        match told.reply {
            Reply::Absent => self.push_pull(clock, own.0, own.1, parts, patience),
            _ => {
                self.is_pushed_to = true;
                Ok(told)
            }
        }
    }
}
