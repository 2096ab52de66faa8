//! A step whose gradients the workers of one node sum before the push (hierarchical aggregation),
//! and whose answer they share.
//!
//! The worker with the lowest rank pushes the sum, and writes the answer to memory that the others
//! read. After a departure or at a view change each worker continues alone. It asks every shard for
//! its answer, and pushes its own gradients where they are missing. So no worker needs to know the
//! result of the sum; the shards know it.

use super::super::exchange::Trouble;
use super::super::link::{Patience, Reply};
use super::super::model::Model;
use super::Servers;
use super::parts::Exchanged;
use crate::worker::clip::mean_square;
use crate::worker::head::{HEAD, Head, count_from_floats, count_to_floats};
use crate::worker::noise::Parts;
use muster_comm::fabric::FabricError;
use muster_comm::log;
use muster_comm::wire::hello::{NoisePart, PushHead, StepStats, SumHead};
use muster_compute::clock;
use muster_model::error_chain::chain;
use std::time::Duration;

/// Header before the shared parameters: whether they are valid, the next step, and the slice number
/// in which all suspend.
struct Word {
    clock: u64,
    hold: u64,
}

impl Word {
    fn write(&self, out: &mut [f32]) {
        out[..HEAD].fill(0.0);
        out[0] = 1.0;
        out[1..5].copy_from_slice(&count_to_floats(self.clock));
        out[5..9].copy_from_slice(&count_to_floats(self.hold));
    }

    /// Reads the header; `None` where each worker must ask the shards itself.
    fn read(floats: &[f32]) -> Option<Self> {
        let count = |at: usize| count_from_floats(std::array::from_fn(|i| floats[at + i]));
        (floats[0] == 1.0).then(|| Self {
            clock: count(1),
            hold: count(5),
        })
    }
}

impl Servers<'_> {
    /// Computes `step`, sums its gradients with those of the other workers of this node, and waits
    /// for the answer. Pushes alone if there is no group.
    pub(super) fn exchange_together(
        &mut self,
        model: &mut Model,
        step: u64,
        patience: Patience<'_>,
    ) -> Result<Exchanged, Trouble> {
        let neighbours = self.neighbours.as_mut().expect("the job asks for it");
        let view = self.shards.view().expect("a worker pushes under a view");
        let Some(circle) = neighbours.meet(view, step) else {
            return self.exchange_at_once(model, step, patience);
        };
        let (head, gradients) = circle.group.gradients_mut().split_at_mut(HEAD);
        let (mut stats, times) = model.gradient(step, gradients, &mut |_, _| {});
        stats.hold = self.hold;
        let said = Head {
            stats,
            parts: if step.is_multiple_of(NoisePart::EVERY) {
                measured(model, gradients, stats)
            } else {
                Parts::default()
            },
            ..Head::default()
        };
        said.write(head);
        let computed = clock::now();
        let all = HEAD + model.parameters.len();
        let reply = match circle.group.all_reduce(0..all) {
            Ok(_) if circle.group.rank() == 0 => self.speak(model, step, stats, patience)?,
            Ok(_) => self.listen(model, step, stats, patience)?,
            Err(error) => self.part(&error, model, step, stats, patience)?,
        };
        Ok(Exchanged {
            reply,
            times,
            computed,
            ahead: Duration::ZERO,
        })
    }

    /// Pushes the sum, and passes the answer to the others.
    fn speak(
        &mut self,
        model: &mut Model,
        step: u64,
        stats: StepStats,
        patience: Patience<'_>,
    ) -> Result<Reply, Trouble> {
        let circle = self.neighbours.as_mut().and_then(|all| all.circle());
        let circle = circle.expect("they have just added up");
        let (sums, own) = (circle.group.sums(), circle.group.gradients());
        let head = Head::read(sums);
        let sum = SumHead {
            push: PushHead {
                stats: head.stats,
                ..PushHead::default()
            },
            squares: head.parts.squares.into(),
            inverses: head.parts.inverses.into(),
            others: circle.others.clone(),
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
                circle.group.tell(|out| {
                    Word { clock, hold }.write(out);
                    out[HEAD..].copy_from_slice(&model.parameters);
                });
            }
            _ => {
                circle.group.tell(|out| out[..HEAD].fill(0.0));
                self.leave_circle();
            }
        }
        Ok(reply)
    }

    /// Waits for the answer from the pushing worker.
    fn listen(
        &mut self,
        model: &mut Model,
        step: u64,
        stats: StepStats,
        patience: Patience<'_>,
    ) -> Result<Reply, Trouble> {
        let circle = self.neighbours.as_mut().and_then(|all| all.circle());
        let circle = circle.expect("they have just added up");
        match circle.group.hear(patience) {
            Ok(Some(told)) => {
                if let Some(Word { clock, hold }) = Word::read(told) {
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
        model: &mut Model,
        step: u64,
        stats: StepStats,
        patience: Patience<'_>,
    ) -> Result<Reply, Trouble> {
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
        model: &mut Model,
        step: u64,
        stats: StepStats,
        patience: Patience<'_>,
    ) -> Result<Reply, Trouble> {
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
        let neighbours = self.neighbours.as_mut().expect("the job asks for it");
        if let Some(circle) = neighbours.circle() {
            let own = &circle.group.gradients()[HEAD..];
            self.gradients.copy_from_slice(own);
        }
        neighbours.part();
    }
}

/// Returns the noise measurement of this worker's gradients.
fn measured(model: &Model, gradients: &[f32], stats: StepStats) -> Parts {
    let targets = stats.examples * model.network.targets() as u64;
    if targets == 0 {
        return Parts::default();
    }
    Parts {
        squares: mean_square(&model.network, gradients, targets) as f32,
        inverses: 1.0 / targets as f32,
        workers: 1.0,
    }
}
