//! A step whose gradients workers of one node have added up.

use super::{Link, Patience, Reply, Told};
use crate::wire::hello::{PushHead, SumHead};
use crate::wire::{Kind, WireError};

impl Link {
    /// As [`Self::push_pull`] with the sum of several workers' gradients; with `own` alone where the shard has those of one of them already.
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

    /// As [`Self::push_pull`] where somebody else may have pushed these gradients together with others'.
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
