//! A step whose gradients the workers of one node sum before the push (hierarchical aggregation),
//! and whose answer they share.
//!
//! The worker with the lowest rank pushes the sum, and writes the answer to memory that the others
//! read. After a departure or at a view change each worker continues alone. It asks every shard for
//! its answer, and pushes its own gradients where they are missing. So no worker needs to know the
//! result of the sum; the shards know it.

use super::super::exchange::WorkerStepError;
use super::super::link::{Reply, WaitCondition};
use super::super::model::WorkerModel;
use super::Servers;
use super::partitions::ExchangeOutcome;
use crate::worker::clip::mean_square;
use crate::worker::head::{HEAD, StepMetadata, count_from_floats, count_to_floats};
use crate::worker::noise::NoiseParts;
use muster_comm::fabric::FabricError;
use muster_comm::log;
use muster_comm::wire::metadata::{NoisePart, PushHead, StepStats, SumHead};
use muster_compute::clock;
use muster_model::error_chain::chain;
use std::time::Duration;

/// Header before the shared parameters: whether they are valid, the next step, and the slice number
/// in which all suspend.
struct LocalParametersHeader {
    clock: u64,
    hold: u64,
}

impl LocalParametersHeader {
    fn write(&self, out: &mut [f32]) {
        out[..HEAD].fill(0.0);
        out[0] = 1.0;
        out[1..5].copy_from_slice(&count_to_floats(self.clock));
        out[5..9].copy_from_slice(&count_to_floats(self.hold));
    }

    /// Reads the header; `None` where each worker must ask the shards itself.
    fn read(floats: &[f32]) -> Option<Self> {
        (floats[0] == 1.0).then(|| Self {
            clock: count_from_floats(std::array::from_fn(|i| floats[1 + i])),
            hold: count_from_floats(std::array::from_fn(|i| floats[5 + i])),
        })
    }
}

impl Servers<'_> {
    /// Computes `step`, sums its gradients with those of the other workers of this node, and waits
    /// for the answer. Pushes alone if there is no group.
    pub(super) fn exchange_together(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
        patience: WaitCondition<'_>,
    ) -> Result<ExchangeOutcome, WorkerStepError> {
        let aggregation = self.aggregation.as_mut().expect("the job asks for it");
        let view = self.shards.view().expect("a worker pushes under a view");
        let Some(local_group) = aggregation.meet(view, step) else {
            return self.exchange_at_once(model, step, patience);
        };
        let (head, gradients) = local_group.group.gradients_mut().split_at_mut(HEAD);
        let (mut stats, times) = model.gradient(step, gradients, &mut |_, _| {});
        stats.hold = self.hold;
        let said = StepMetadata {
            stats,
            parts: if step.is_multiple_of(NoisePart::EVERY) {
                measured(model, gradients, stats)
            } else {
                NoiseParts::default()
            },
            ..StepMetadata::default()
        };
        said.write(head);
        let computed = clock::now();
        let all = HEAD + model.parameters.len();
        let reply = match local_group.group.all_reduce(0..all) {
            Ok(_) if local_group.group.rank() == 0 => self.speak(model, step, stats, patience)?,
            Ok(_) => self.listen(model, step, stats, patience)?,
            Err(error) => self.part(&error, model, step, stats, patience)?,
        };
        Ok(ExchangeOutcome {
            reply,
            times,
            computed,
            ahead: Duration::ZERO,
        })
    }

    /// Pushes the sum, and passes the answer to the others.
    fn speak(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
        stats: StepStats,
        patience: WaitCondition<'_>,
    ) -> Result<Reply, WorkerStepError> {
        let local_group = self.aggregation.as_mut().and_then(|all| all.local_group());
        let local_group = local_group.expect("they have just added up");
        let (sums, own) = (local_group.group.sums(), local_group.group.gradients());
        let head = StepMetadata::read(sums);
        let sum = SumHead {
            push: PushHead {
                stats: head.stats,
                ..PushHead::default()
            },
            squares: head.parts.squares.into(),
            inverses: head.parts.inverses.into(),
            others: local_group.others.clone(),
        };
        let reply = self.shards.push_together(
            step,
            (sum, &sums[HEAD..]),
            (stats, &own[HEAD..]),
            &mut model.parameters,
            patience,
        )?;
        match reply {
            Reply::Parameters { clock, stats } if self.shards.has_no_news() => {
                let hold = stats.hold;
                local_group.group.tell(|out| {
                    LocalParametersHeader { clock, hold }.write(out);
                    out[HEAD..].copy_from_slice(&model.parameters);
                });
            }
            _ => {
                local_group.group.tell(|out| out[..HEAD].fill(0.0));
                self.leave_circle();
            }
        }
        Ok(reply)
    }

    /// Waits for the answer from the pushing worker.
    fn listen(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
        stats: StepStats,
        patience: WaitCondition<'_>,
    ) -> Result<Reply, WorkerStepError> {
        let local_group = self.aggregation.as_mut().and_then(|all| all.local_group());
        let local_group = local_group.expect("they have just added up");
        match local_group.group.hear(patience) {
            Ok(Some(told)) => {
                if let Some(LocalParametersHeader { clock, hold }) =
                    LocalParametersHeader::read(told)
                {
                    model.parameters.copy_from_slice(&told[HEAD..]);
                    self.shards.answered_by(clock);
                    let stats = StepStats {
                        hold,
                        ..StepStats::default()
                    };
                    return Ok(Reply::Parameters { clock, stats });
                }
                self.leave_circle();
                self.ask(model, step, stats, patience)
            }
            Ok(None) => Ok(Reply::GaveUp),
            Err(error) => self.part(&error, model, step, stats, patience),
        }
    }

    /// Continues alone: waits for each shard's answer, and pushes where its gradients are missing.
    fn ask(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
        stats: StepStats,
        patience: WaitCondition<'_>,
    ) -> Result<Reply, WorkerStepError> {
        let (gradients, parameters) = (&self.gradients, &mut model.parameters);
        Ok(self
            .shards
            .await_or_push(step, stats, gradients, parameters, patience)?)
    }

    /// Leaves the group because of `error` and continues alone. Logs it only if training continues:
    /// at its end all workers leave the group as well.
    fn part(
        &mut self,
        error: &FabricError,
        model: &mut WorkerModel,
        step: u64,
        stats: StepStats,
        patience: WaitCondition<'_>,
    ) -> Result<Reply, WorkerStepError> {
        self.leave_circle();
        let reply = self.ask(model, step, stats, patience)?;
        if matches!(reply, Reply::Parameters { .. } | Reply::Gone) {
            log::line(format_args!(
                "went on without the other workers of this node in step {step}: {}",
                chain(error)
            ));
        }
        Ok(reply)
    }

    /// Leaves the group; keeps the gradients of the step.
    fn leave_circle(&mut self) {
        let aggregation = self.aggregation.as_mut().expect("the job asks for it");
        if let Some(local_group) = aggregation.local_group() {
            let own = &local_group.group.gradients()[HEAD..];
            self.gradients.copy_from_slice(own);
        }
        aggregation.part();
    }
}

/// Returns the noise measurement of this worker's gradients.
fn measured(model: &WorkerModel, gradients: &[f32], stats: StepStats) -> NoiseParts {
    let targets = stats.examples * model.network.targets() as u64;
    if targets == 0 {
        return NoiseParts::default();
    }
    NoiseParts {
        squares: mean_square(&model.network, gradients, targets) as f32,
        inverses: 1.0 / targets as f32,
        workers: 1.0,
    }
}
