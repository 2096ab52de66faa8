//! Eager steps: a step begins before the answer to the last push has arrived.

use super::super::exchange::{ExchangeAnswer, WorkerStepError};
use super::super::link::Reply;
use super::super::model::WorkerModel;
use super::super::progress::StepTimes;
use super::super::shards::Eager;
use super::{AnswerOutcome, Servers, ViewUpdate};
use muster_comm::wire::metadata::StepStats;
use muster_compute::clock;

impl Servers<'_> {
    /// Computes `step` while the gradients of the previous step are pushed, on parameters as old as
    /// the staleness bound allows.
    pub(super) fn step_eagerly(
        &mut self,
        mut eager: Eager,
        model: &mut WorkerModel,
        step: u64,
    ) -> Result<(ExchangeAnswer, StepTimes), WorkerStepError> {
        let taken = self.eagerly(&mut eager, model, step);
        self.eager = Some(eager);
        taken
    }

    fn eagerly(
        &mut self,
        eager: &mut Eager,
        model: &mut WorkerModel,
        step: u64,
    ) -> Result<(ExchangeAnswer, StepTimes), WorkerStepError> {
        let mut step = step;
        let mut counted = StepStats::default();
        let began = clock::now();
        let unread = match self.unread.take() {
            Some((pushed, reply)) => Some((Some(pushed), Some(reply))),
            None if self.may_look() || !eager.may_read(&self.shards, step) => {
                let pushed = eager.waiting();
                let ctx = self.ctx;
                let reply = eager.flush(&mut self.shards, &|| !ctx.stop.must_hurry())?;
                Some((pushed, reply))
            }
            None => None,
        };
        if let Some((pushed, reply)) = unread {
            match self.take_in(eager, model, pushed, reply)? {
                Ok(None) => {}
                Ok(Some((next, stats))) => {
                    step = next;
                    counted.add(stats);
                }
                Err(answer) => return Ok((answer, StepTimes::default())),
            }
            if let Some(pushed) = pushed {
                self.tell(pushed)?;
            }
            if self.look(step)? {
                self.follow(model)?;
                match self.enter(model)? {
                    Reply::Parameters { clock, .. } => step = clock,
                    other => return Ok((other.into(), StepTimes::default())),
                }
            }
        }
        let waited = began.elapsed();
        let pushed = eager.waiting();
        // The push below is that of the previous step.
        if self.noticed == Some(step + 1) {
            self.shards.keep(step + 1)?;
        }
        let (clip, workers, ctx) = (self.clip_own, self.workers(), self.ctx);
        let ((times, computed), reply) = eager.overlap(
            &mut self.shards,
            step,
            &|| !ctx.stop.must_hurry(),
            |gradients| {
                let (stats, times) = model.gradient(step, gradients, &mut |_, _| {});
                if let Some(clip) = clip {
                    let targets = stats.examples * model.network.targets() as u64;
                    clip.apply(&model.network, gradients, targets, workers);
                }
                (stats, (times, clock::now()))
            },
        )?;
        let mut times = times;
        let mut next = step + 1;
        match self.take_in(eager, model, pushed, reply)? {
            Ok(None) => {}
            Ok(Some((from, stats))) => {
                // A view that began meanwhile counts steps anew; the gradients computed under the
                // old view are discarded.
                if eager.waiting().is_none() {
                    next = from;
                }
                counted.add(stats);
            }
            Err(answer) => return Ok((answer, times)),
        }
        // The waiting time only, without the overlapped transfer.
        times.exchange = waited + computed.elapsed();
        if let Some(pushed) = pushed {
            self.tell(pushed)?;
        }
        let answer = ExchangeAnswer::Parameters {
            step: next,
            stats: counted,
        };
        Ok((answer, times))
    }

    /// Processes the answer to an earlier push: its parameters become the model's. Returns the next
    /// step with the counts, or the reason why there is none.
    fn take_in(
        &mut self,
        eager: &mut Eager,
        model: &mut WorkerModel,
        pushed: Option<u64>,
        reply: Option<Reply>,
    ) -> Result<Result<Option<(u64, StepStats)>, ExchangeAnswer>, WorkerStepError> {
        let (Some(pushed), Some(reply)) = (pushed, reply) else {
            return Ok(Ok(None));
        };
        if let Reply::Parameters { clock, stats } = reply {
            model.parameters.copy_from_slice(eager.fresh());
            if let ViewUpdate::Out = self.follow(model)? {
                return Ok(Err(ExchangeAnswer::Interrupted { lost: false }));
            }
            return Ok(Ok(Some((clock, stats))));
        }
        eager.forget();
        // Other shards may still owe their answers, which are written beside these.
        self.shards
            .take_answered(eager.fresh(), &mut model.parameters);
        match self.settle(model, pushed, reply, eager.pushed())? {
            AnswerOutcome::Reply(Reply::Parameters { clock, stats }) => {
                Ok(Ok(Some((clock, stats))))
            }
            AnswerOutcome::Reply(other) => Ok(Err(other.into())),
            AnswerOutcome::Over => Ok(Err(ExchangeAnswer::Interrupted { lost: false })),
        }
    }

    /// Coordinator: pushes the waiting gradients before the shards are read. Returns the counts
    /// until then. The next step processes the answer and its parameters, because their age decides
    /// whether that step may be computed.
    pub(super) fn push_what_waits(&mut self) -> Result<StepStats, WorkerStepError> {
        let Some(mut eager) = self.eager.take() else {
            return Ok(StepStats::default());
        };
        let ctx = self.ctx;
        let pushed = eager.waiting();
        let flushed = eager.flush(&mut self.shards, &|| !ctx.stop.must_hurry());
        self.eager = Some(eager);
        let (Some(pushed), Some(mut reply)) = (pushed, flushed?) else {
            return Ok(StepStats::default());
        };
        let counted = match &mut reply {
            Reply::Parameters { stats, .. } => stats.take(),
            _ => StepStats::default(),
        };
        self.unread = Some((pushed, reply));
        Ok(counted)
    }
}
