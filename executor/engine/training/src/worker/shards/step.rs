//! A step's gradients to all shards, and the parameters back.

use super::super::link::{Reply, ShardReply, WaitCondition, WorkerResidual};
use super::failover::{LinkFailover, steadily};
use super::local_aggregation::StepGradients;
use super::parallel::{in_parallel, in_parallel_by_index};
use super::{ShardFailure, Shards};
use muster_comm::assign::split_mut;
use muster_comm::shard_codec::Salt;
use muster_comm::wire::metadata::{PushHead, StepStats};
use std::sync::Mutex;

impl Shards {
    /// Pushes the gradients of step `clock` and receives the parameters after it.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn push_pull(
        &mut self,
        clock: u64,
        stats: StepStats,
        gradients: &[f32],
        parameters: &mut [f32],
        patience: WaitCondition<'_>,
    ) -> Result<Reply, ShardFailure> {
        let given = StepGradients::alone(self.head(stats), gradients);
        self.give(clock, given, parameters, patience)
    }

    /// Returns the head of a push with these counts.
    pub(super) fn head(&self, stats: StepStats) -> PushHead {
        let view = self.view.as_ref().expect("a worker pushes under a view");
        PushHead {
            view: view.number,
            targets: stats.examples * self.targets,
            stats,
        }
    }

    pub(super) fn give(
        &mut self,
        clock: u64,
        given: StepGradients<'_>,
        parameters: &mut [f32],
        patience: WaitCondition<'_>,
    ) -> Result<Reply, ShardFailure> {
        let view = self.view.as_ref().expect("a worker pushes under a view");
        let assignment = view.assignment();
        self.pushed = Some((clock, given.head));
        if let Some(clipping) = &mut self.clipping {
            clipping.begin(clock, self.links.len());
        }
        let announced = self.announced.as_ref();
        let failover = LinkFailover::of(
            self.copied,
            &self.hello,
            Some(view),
            self.next_step,
            announced,
        );
        let rank = view.rank(self.hello.task_id).unwrap_or_default();
        let mut compression = self.compression.as_mut();
        let encoding = compression.as_mut().map(|compression| {
            let salt = Salt {
                seed: compression.seed ^ (rank as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15),
                step: clock,
            };
            (salt, Mutex::new(&mut compression.feedback))
        });
        let of = self.hello.task_id;
        let parts = split_mut(parameters, &assignment);
        let links = self.links.iter_mut().zip(&assignment).zip(parts);
        let answer = in_parallel(
            links
                .enumerate()
                .map(|(index, ((link, pieces), mut part))| {
                    let encoding = &encoding;
                    move || {
                        if let Some((salt, feedback)) = encoding {
                            let residual = WorkerResidual { of, feedback };
                            let head = given.head.to_shard(index);
                            let gradients = (*salt, given.gradients, residual);
                            return link
                                .squeezed_push_pull(clock, head, gradients, &mut part, patience);
                        }
                        steadily(link, failover, patience, |link| {
                            given.give((link, index), clock, pieces, &mut part, patience)
                        })
                    }
                }),
        )?;
        let answer = answer.into_iter().enumerate().collect();
        self.settle(answer, Some(given), parameters, patience)
    }

    /// Coordinator: receives the pending answers after its decision on departed workers.
    /// `gradients` are those of the push.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn resume(
        &mut self,
        gradients: &[f32],
        parameters: &mut [f32],
        patience: WaitCondition<'_>,
    ) -> Result<Reply, ShardFailure> {
        self.hear_on(false, gradients, parameters, patience)
    }

    /// Coordinator: continues to wait for the pending answers, because nothing changes.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn wait_on(
        &mut self,
        gradients: &[f32],
        parameters: &mut [f32],
        patience: WaitCondition<'_>,
    ) -> Result<Reply, ShardFailure> {
        self.hear_on(true, gradients, parameters, patience)
    }

    fn hear_on(
        &mut self,
        asks: bool,
        gradients: &[f32],
        parameters: &mut [f32],
        patience: WaitCondition<'_>,
    ) -> Result<Reply, ShardFailure> {
        let view = self.view.as_ref().expect("a worker pushes under a view");
        let (clock, head) = self.pushed.expect("there is a push to be answered");
        let given = StepGradients::alone(head, gradients);
        let assignment = view.assignment();
        let (copied, hello) = (self.copied, &self.hello);
        let announced = self.announced.as_ref();
        let failover = LinkFailover::of(copied, hello, Some(view), self.next_step, announced);
        let parts = split_mut(parameters, &assignment);
        let links = self.links.iter_mut().zip(&assignment).zip(parts);
        let (owing, in_parts) = (&self.owing, self.parts.is_some());
        let answer =
            in_parallel_by_index(links.enumerate().filter(|(index, _)| owing[*index]).map(
                |(index, ((link, pieces), mut part))| {
                    (index, move || {
                        steadily(link, failover, patience, |link| {
                            if !link.is_pushed_to {
                                // Its replica was promoted after it had reported the departures.
                                let to = (link, index);
                                return given.give(to, clock, pieces, &mut part, patience);
                            }
                            if asks {
                                link.resume()?;
                            }
                            if in_parts {
                                return Self::hear_parts(link, view, patience, &mut part);
                            }
                            link.reply(None, &mut part, patience)
                        })
                    })
                },
            ))?;
        self.settle(answer, Some(given), parameters, patience)
    }

    /// Copies the parameters of the shards that owe no answer.
    pub fn take_answered(&self, answered: &[f32], parameters: &mut [f32]) {
        let Some(view) = &self.view else { return };
        for (link, _) in self
            .links
            .iter()
            .zip(&self.owing)
            .filter(|(_, owes)| !**owes)
        {
            for piece in view.pieces(link.shard) {
                parameters[piece.range()].copy_from_slice(&answered[piece.range()]);
            }
        }
    }

    /// Combines these answers, after norms among them are answered.
    pub(super) fn settle(
        &mut self,
        answer: Vec<(usize, ShardReply)>,
        push: Option<StepGradients<'_>>,
        parameters: &mut [f32],
        patience: WaitCondition<'_>,
    ) -> Result<Reply, ShardFailure> {
        let answer = self.clip(answer, push, parameters, patience)?;
        self.owing = vec![false; self.links.len()];
        for (index, answer) in &answer {
            self.owing[*index] = answer.reply == Reply::Gone;
        }
        Ok(self.together(answer.into_iter().map(|(_, answer)| answer).collect()))
    }
}
