//! Coordinator: clips a step by the norm of the whole gradient, of which each shard has sent its
//! part.

use super::super::link::{Reply, ShardReply, WaitCondition};
use super::failover::{LinkFailover, steadily};
use super::local_aggregation::StepGradients;
use super::parallel::in_parallel_by_index;
use super::{ShardFailure, Shards};
use muster_comm::assign::split_mut;
use muster_comm::wire::WireError;
use muster_compute::optimizer::clip_factor;

/// Norm of the present step.
#[derive(Debug)]
pub(super) struct Clipping {
    limit: f64,
    clock: u64,
    /// Squared norms by shard.
    squares: Vec<Option<f64>>,
    /// Whether a shard waits for the factor.
    waiting: Vec<bool>,
    factor: Option<f64>,
}

impl Clipping {
    pub fn to(limit: f64) -> Self {
        Self {
            limit,
            clock: 0,
            squares: Vec::new(),
            waiting: Vec::new(),
            factor: None,
        }
    }

    pub fn begin(&mut self, clock: u64, shards: usize) {
        (self.clock, self.factor) = (clock, None);
        self.squares = vec![None; shards];
        self.waiting = vec![false; shards];
    }

    fn hear(&mut self, shard: usize, square: f64) {
        self.squares[shard] = Some(square);
        self.waiting[shard] = true;
        // In the order of shards, so that the bits do not depend on the order of arrival.
        let sum: Option<f64> = self.squares.iter().copied().sum();
        let factor = sum.map(|sum| clip_factor(self.limit, sum.sqrt()));
        self.factor = self.factor.or(factor);
    }
}

impl Shards {
    /// Coordinator: limits the norm of steps to `limit`, if set.
    #[must_use]
    pub fn with_clip_norm(mut self, limit: Option<f64>) -> Self {
        self.clipping = limit.map(Clipping::to);
        self
    }

    /// Answers the norms among `answer` with the clip factor, once all norms are known. The shards'
    /// next answers replace them. `push` is repeated to a promoted replica that lacks it.
    pub(super) fn clip(
        &mut self,
        answer: Vec<(usize, ShardReply)>,
        push: Option<StepGradients<'_>>,
        parameters: &mut [f32],
        patience: WaitCondition<'_>,
    ) -> Result<Vec<(usize, ShardReply)>, ShardFailure> {
        let Some((first, _)) = answer.iter().find(|(_, answer)| answer.is_norm()) else {
            return Ok(answer);
        };
        let Some(clipping) = &mut self.clipping else {
            let got = muster_comm::wire::FrameKind::Norm;
            return Err((*first, WireError::Unexpected { got }));
        };
        let (norms, mut others): (Vec<_>, Vec<_>) =
            answer.into_iter().partition(|(_, answer)| answer.is_norm());
        for (index, answer) in norms {
            if let Reply::Norm { square } = answer.reply {
                clipping.hear(index, square);
            }
        }
        let Some(factor) = clipping.factor else {
            return Ok(others);
        };
        let clock = clipping.clock;
        let waiting = std::mem::take(&mut clipping.waiting);
        clipping.waiting = vec![false; waiting.len()];
        let view = self.view.as_ref().expect("a worker pushes under a view");
        let assignment = view.assignment();
        let announced = self.announced.as_ref();
        let failover = LinkFailover::of(
            self.copied,
            &self.hello,
            Some(view),
            self.next_step,
            announced,
        );
        let parts = split_mut(parameters, &assignment);
        let links = self.links.iter_mut().zip(&assignment).zip(parts);
        let clipped =
            in_parallel_by_index(links.enumerate().filter(|(index, _)| waiting[*index]).map(
                |(index, ((link, pieces), mut part))| {
                    let mut is_promoted = false;
                    (index, move || {
                        steadily(link, failover, patience, |link| {
                            if std::mem::replace(&mut is_promoted, true)
                                && let Some(push) = push
                            {
                                let to = (&mut *link, index);
                                let answer = push.give(to, clock, pieces, &mut part, patience)?;
                                if !answer.is_norm() {
                                    return Ok(answer);
                                }
                            }
                            link.clip(clock, factor, &mut part, patience)
                        })
                    })
                },
            ))?;
        others.extend(clipped);
        others.sort_by_key(|(index, _)| *index);
        Ok(others)
    }
}
