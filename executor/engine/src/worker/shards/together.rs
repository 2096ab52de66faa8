//! What a worker gives of a step: its own gradients, or what workers of its node have added up.

use super::super::link::{Link, Patience, Reply, Told};
use super::{ShardFailure, Shards};
use crate::assign::Piece;
use crate::wire::WireError;
use crate::wire::hello::{PushHead, StepStats, SumHead};

/// How one step's gradients come to the shards; each of the slices is as long as the parameters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given<'a> {
    pub head: PushHead,
    /// This worker's own.
    pub gradients: &'a [f32],
    /// In place of them, what it has added up with others.
    pub sum: Option<(&'a SumHead, &'a [f32])>,
    /// Somebody else may have given them together with others'.
    pub asks: bool,
}

impl<'a> Given<'a> {
    pub fn alone(head: PushHead, gradients: &'a [f32]) -> Self {
        Self {
            head,
            gradients,
            sum: None,
            asks: false,
        }
    }

    /// Gives the shard of that index its pieces, and waits for its answer.
    pub fn give(
        &self,
        (link, index): (&mut Link, usize),
        clock: u64,
        pieces: &[Piece],
        parts: &mut [&mut [f32]],
        patience: Patience<'_>,
    ) -> Result<Told, WireError> {
        let head = self.head.to_shard(index);
        let gradients = cut(self.gradients, pieces);
        match self.sum {
            Some((sum, sums)) => {
                let sum = (&sum.to_shard(index), &*cut(sums, pieces));
                link.push_together(clock, sum, (head, &gradients), parts, patience)
            }
            None if self.asks => link.await_or_push(clock, (head, &gradients), parts, patience),
            None => link.push_pull(clock, head, &gradients, parts, patience),
        }
    }
}

/// A shard's part.
fn cut<'a>(gradients: &'a [f32], pieces: &[Piece]) -> Vec<&'a [f32]> {
    let part = |piece: &Piece| &gradients[piece.range()];
    pieces.iter().map(part).collect()
}

impl Shards {
    /// As [`Shards::push_pull`] of `sums`, those of this worker and of the others of `sum`; its own gradients alone go to shards that have
    /// those of one of the others already.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn push_together(
        &mut self,
        clock: u64,
        (mut sum, sums): (SumHead, &[f32]),
        (stats, gradients): (StepStats, &[f32]),
        parameters: &mut [f32],
        patience: Patience<'_>,
    ) -> Result<Reply, ShardFailure> {
        sum.push = self.head(sum.push.stats);
        let given = Given {
            sum: Some((&sum, sums)),
            ..Given::alone(self.head(stats), gradients)
        };
        self.give(clock, given, parameters, patience)
    }

    /// As [`Shards::push_pull`] where another worker of the node may have pushed these gradients together with its own.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn await_or_push(
        &mut self,
        clock: u64,
        stats: StepStats,
        gradients: &[f32],
        parameters: &mut [f32],
        patience: Patience<'_>,
    ) -> Result<Reply, ShardFailure> {
        let given = Given {
            asks: true,
            ..Given::alone(self.head(stats), gradients)
        };
        self.give(clock, given, parameters, patience)
    }

    /// Whether the newest answers have told nothing but parameters, so that whoever this worker has spoken for need not ask for its own. A sum that
    /// some shard has refused is no news: its workers' gradients are all in the step, or there would be no answer.
    #[must_use]
    pub fn has_no_news(&self) -> bool {
        self.next.is_none() && !self.told_to_keep
    }

    /// Another worker of the node has been answered for this one as well: step `clock` comes next.
    pub fn answered_by(&mut self, clock: u64) {
        (self.next_step, self.slowest) = (clock, clock);
    }
}
