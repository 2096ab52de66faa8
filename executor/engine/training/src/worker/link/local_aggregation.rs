//! A step whose gradients the workers of one node have summed (local aggregation).

use super::{Reply, ShardLink, ShardReply, WaitCondition};
use muster_comm::wire::metadata::{PushHead, SumHead};
use muster_comm::wire::{FrameKind, WireError};

impl ShardLink {
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
        patience: WaitCondition<'_>,
    ) -> Result<ShardReply, WireError> {
        self.is_pushed_to = true;
        let (head, gradients) = sum;
        self.connection
            .send(FrameKind::Together, clock, &head.encode(), gradients)?;
        let answer = self.reply(None, parts, patience)?;
        match answer.reply {
            Reply::Absent => self.push_pull(clock, own.0, own.1, parts, patience),
            _ => Ok(answer),
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
        patience: WaitCondition<'_>,
    ) -> Result<ShardReply, WireError> {
        self.connection.send(FrameKind::Await, clock, &[], &[])?;
        let answer = self.reply(None, parts, patience)?;
        match answer.reply {
            Reply::Absent => self.push_pull(clock, own.0, own.1, parts, patience),
            _ => {
                self.is_pushed_to = true;
                Ok(answer)
            }
        }
    }
}
