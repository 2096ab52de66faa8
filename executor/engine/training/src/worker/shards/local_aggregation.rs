//! The gradients of a worker's push: its own, or the sum of several workers of its node.

use super::super::link::{Reply, ShardLink, ShardReply, WaitCondition};
use super::{ShardFailure, Shards};
use muster_comm::assign::ParameterPiece;
use muster_comm::wire::WireError;
use muster_comm::wire::metadata::{PushHead, StepStats, SumHead};

/// Gradients of one step for the shards; each slice is as long as the parameters.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepGradients<'a> {
    pub head: PushHead,
    /// This worker's own gradients.
    pub gradients: &'a [f32],
    /// Sum with other workers' gradients, pushed instead of its own.
    pub sum: Option<(&'a SumHead, &'a [f32])>,
    /// Whether another worker may have pushed them in a sum.
    pub asks: bool,
}

impl<'a> StepGradients<'a> {
    pub fn alone(head: PushHead, gradients: &'a [f32]) -> Self {
        Self {
            head,
            gradients,
            sum: None,
            asks: false,
        }
    }

    /// Pushes its pieces to the shard with this index, and waits for the answer.
    pub fn give(
        &self,
        (link, index): (&mut ShardLink, usize),
        clock: u64,
        pieces: &[ParameterPiece],
        parts: &mut [&mut [f32]],
        patience: WaitCondition<'_>,
    ) -> Result<ShardReply, WireError> {
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

/// Returns the parts of a shard.
fn cut<'a>(gradients: &'a [f32], pieces: &[ParameterPiece]) -> Vec<&'a [f32]> {
    pieces
        .iter()
        .map(|piece| &gradients[piece.range()])
        .collect()
}

impl Shards {
    /// Like [`Shards::push_pull`] with `sums`, the gradients of this worker and of the others in
    /// `sum`. Its own gradients alone go to shards that already have those of one of the others.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn push_together(
        &mut self,
        clock: u64,
        (mut sum, sums): (SumHead, &[f32]),
        (stats, gradients): (StepStats, &[f32]),
        parameters: &mut [f32],
        patience: WaitCondition<'_>,
    ) -> Result<Reply, ShardFailure> {
        sum.push = self.head(sum.push.stats);
        let given = StepGradients {
            sum: Some((&sum, sums)),
            ..StepGradients::alone(self.head(stats), gradients)
        };
        self.give(clock, given, parameters, patience)
    }

    /// Like [`Shards::push_pull`], where another worker of the node may have pushed these gradients
    /// in a sum.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn await_or_push(
        &mut self,
        clock: u64,
        stats: StepStats,
        gradients: &[f32],
        parameters: &mut [f32],
        patience: WaitCondition<'_>,
    ) -> Result<Reply, ShardFailure> {
        let given = StepGradients {
            asks: true,
            ..StepGradients::alone(self.head(stats), gradients)
        };
        self.give(clock, given, parameters, patience)
    }

    /// Whether the newest answers contain only parameters, so that the other workers of the node
    /// need no answers of their own. The refusal of a sum by a shard does not matter: an answer
    /// proves that the step contains all their gradients.
    #[must_use]
    pub fn has_no_news(&self) -> bool {
        self.next.is_none() && !self.told_to_keep
    }

    /// Records an answer that another worker of the node has received: the next step is `clock`.
    pub fn answered_by(&mut self, clock: u64) {
        (self.next_step, self.slowest) = (clock, clock);
    }
}
