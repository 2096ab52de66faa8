//! The exchange without parameter servers. Every worker holds parameters and optimizer state;
//! gradients are summed over all workers, and all make the same update.
//!
//! The coordinator keeps the list of members in its membership server ([`membership_server`]). The
//! sum of a step carries the decisions that all workers must know in its [`head`](super::head). A
//! new task set takes effect between two steps. Joining workers get the state of the others,
//! dismissed workers leave, and batches are cut again. The death of a worker in the middle of a
//! step costs the step only its examples.

mod averaging;
mod batch_choice;
mod buckets;
mod coded;
mod gpus;
mod join;
mod members;
mod membership;
mod membership_messages;
mod membership_role;
mod membership_server;
mod overlap;
mod priority_allreduce;
mod ranges;
mod replica;
mod residuals;
mod round;
mod scale_invariant;

use super::clip::OwnClip;
use super::context::{ExitReason, WorkerContext};
use super::error::WorkerError;
use super::exchange::{ExchangeAnswer, ExchangeStart, WorkerExchange, WorkerStepError};
use super::head::{HEAD, StepMetadata};
use super::model::WorkerModel;
use super::noise::{self, GradientNoise};
use super::progress::StepTimes;
use super::shards::ShardSnapshot;
use crate::checkpoint::{Contents, TaskCounts};
use averaging::AveragingState;
use batch_choice::{BatchChoice, MeasuredUpdate};
use buckets::{AllReduceFormat, BatchDivision, BucketStep, BucketSums};
use coded::EncodedAllReduce;
use gpus::GpuSums;
use membership_role::MembershipRole;
use muster_comm::collective::CollectiveGroup;
use muster_comm::fabric::{Coordinator, FabricError};
use muster_comm::log;
use muster_comm::wire::metadata::StepStats;
use muster_compute::clock;
use muster_model::assignment::TaskReport;
use muster_model::id::TaskId;
pub use priority_allreduce::{
    MeanScale, PriorityAllReduce, PriorityStepOutcome, PriorityStepWork, RangeSum,
};
pub use ranges::GradientRanges;
use replica::Replica;
use scale_invariant::{PACE, ScaleInvariantProgress};
use std::ops::Range;
use std::time::Duration;

/// Number of updates between two that a single worker computes in halves, to measure the noise.
/// Halves need one more pass.
const HALVES_EVERY: u64 = 8;

/// Name of the velocity of the averaging centre in checkpoints.
const VELOCITY: &str = "averaging.velocity";

/// A worker of a job without shards.
pub(super) struct AllReduce<'a> {
    ctx: &'a WorkerContext<'a>,
    group: CollectiveGroup,
    role: MembershipRole,
    replica: Replica,
    buckets: Vec<Range<usize>>,
    /// Set where steps of several workers use the priority order.
    by_need: Option<PriorityAllReduce>,
    /// Empty where gradients are summed in one piece, unless a single worker measures the noise.
    gradients: Vec<f32>,
    sums: Vec<f32>,
    /// Set where gradients are encoded.
    coded: Option<EncodedAllReduce>,
    /// Set where this worker clips its own gradients before they are encoded.
    clip_own: Option<OwnClip>,
    /// Set where gradients may be summed on the workers' GPUs.
    gpus: Option<GpuSums>,
    cut: BatchDivision,
    noise: GradientNoise,
    /// Set where the size of updates changes.
    pace: Option<ScaleInvariantProgress>,
    /// Set on the coordinator where it chooses the size of updates.
    choice: Option<BatchChoice>,
    me: TaskId,
    /// Next step.
    step: u64,
    /// Set where parameters are averaged instead of gradients being summed.
    averaging: Option<AveragingState>,
    /// This worker's own counts since the last average.
    round: StepStats,
    /// Coordinator: step at whose beginning a checkpoint is announced.
    noticed: Option<u64>,
    /// Coordinator: residuals of the workers at the beginning of that step, for the checkpoint.
    residual: Vec<(String, Vec<f32>)>,
    /// Coordinator: residuals of a checkpoint for the first workers, by rank.
    dealt: Option<Vec<Vec<f32>>>,
    /// Slice number to name with the next sum; 0 for none.
    hold: u64,
    /// Slice number that the last sum named, in which joining workers suspend; 0 for none.
    held: u64,
}

impl AllReduce<'_> {
    /// Sends a report for users. Training continues if it cannot be stored.
    fn report(&self, report: &TaskReport) {
        if let Err(error) = self.ctx.reporter.report(report) {
            log::line(format_args!("could not keep a report: {error}"));
        }
    }

    /// Converts the end of all views to this worker's answer.
    fn parted(&self, error: FabricError) -> Result<ExchangeAnswer, WorkerStepError> {
        match error {
            FabricError::NoView(_) => Ok(ExchangeAnswer::Interrupted {
                lost: self.role.ending(self.ctx) == ExitReason::PeerLost,
            }),
            error => Err(WorkerError::Peers(error).into()),
        }
    }

    /// Whether the gradient noise of a step is measured.
    fn is_measured(&self, step: u64) -> bool {
        self.pace.is_some() || step.is_multiple_of(noise::EVERY)
    }

    /// Whether the present workers measure the noise of a step. The norms of encoded gradients,
    /// with their error feedback, do not measure it.
    fn measures(&self, step: u64) -> bool {
        self.cut.workers.len() > 1 && self.coded.is_none() && self.is_measured(step)
    }

    /// Whether the only worker computes the next update in halves, as the noise between workers
    /// cannot be measured. Only a chosen batch needs the noise of one worker.
    fn is_in_halves(&self) -> bool {
        let is_due = self.replica.updates.is_multiple_of(HALVES_EVERY);
        self.choice.is_some() && is_due && self.cut.workers.len() == 1 && self.cut.batch > 1
    }

    /// Returns this worker's head without its counts.
    fn own_head(&mut self, step: u64) -> StepMetadata {
        let regroup = match &self.role {
            MembershipRole::Chief(chair) => chair.someone_waits(),
            MembershipRole::Member(_) => false,
        };
        self.residual.clear();
        StepMetadata {
            regroup,
            batch: self.next_batch(),
            keep: self.noticed == Some(step + 1),
            stats: StepStats {
                hold: self.hold,
                ..StepStats::default()
            },
            ..StepMetadata::default()
        }
    }

    /// Coordinator: returns the examples of an update from the next step on; 0 where they stay.
    fn next_batch(&mut self) -> usize {
        let noise = &self.noise;
        let change = self.choice.as_mut().and_then(|choice| choice.choose(noise));
        change.map_or(0, |change| {
            log::line(format_args!("from step {}: {change}", self.step));
            change.to
        })
    }

    /// Coordinator: adds the times of an update that took `whole`, unless a death in its step
    /// delayed it.
    fn measure(&mut self, head: &StepMetadata, whole: Duration, times: StepTimes) {
        let is_whole = head.stats.examples == self.cut.batch as u64;
        if let Some(choice) = self.choice.as_mut().filter(|_| is_whole) {
            let work = times.data + times.compute;
            choice.observe(MeasuredUpdate {
                batch: self.cut.batch,
                workers: self.cut.workers.len(),
                work_s: work.as_secs_f64(),
                rest_s: whole.saturating_sub(work).as_secs_f64(),
            });
        }
    }

    fn all_reduce(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
    ) -> (Result<BucketSums, FabricError>, StepTimes) {
        let head = self.own_head(step);
        let in_halves = self.is_in_halves();
        let measures = self.measures(step) || in_halves;
        let step = BucketStep {
            number: step,
            place: self.pace.map_or(step, |pace| pace.place()),
            cut: &self.cut,
            head,
            measured_by: measures.then(|| self.replica.norms()),
            in_halves,
            clip: self.clip_own,
        };
        let began = clock::now();
        let mut format = self
            .coded
            .as_mut()
            .map_or(AllReduceFormat::Plain, AllReduceFormat::Coded);
        let ours = (&mut self.group, &mut format);
        let (sums, mut times) = if self.buckets.len() > 1 && self.cut.workers.len() > 1 {
            buckets::overlapped(
                ours,
                model,
                &step,
                &self.buckets,
                (&mut self.gradients, &mut self.sums),
            )
        } else {
            buckets::in_one(ours, model, &step, &mut self.gradients)
        };
        times.exchange = began.elapsed().saturating_sub(times.data + times.compute);
        (sums, times)
    }

    /// Acts on the decisions of the sum between the update and the next step.
    fn after_step(
        &mut self,
        model: &mut WorkerModel,
        head: StepMetadata,
    ) -> Result<ExchangeAnswer, WorkerStepError> {
        let kept = if head.keep && self.group.is_unbroken() {
            self.gather()
        } else {
            Ok(())
        };
        if let (true, Some(gpus)) = (head.regroup, &mut self.gpus) {
            gpus.reopen();
        }
        if let Err(error) = kept.and_then(|()| self.between(model, head.regroup)) {
            return self.parted(error);
        }
        self.recut_after(model, head.regroup)?;
        Ok(ExchangeAnswer::Parameters {
            step: self.step,
            stats: head.stats,
        })
    }
}

impl WorkerExchange for AllReduce<'_> {
    fn begin(
        &mut self,
        model: &mut WorkerModel,
        start: &ExchangeStart,
    ) -> Result<(), WorkerStepError> {
        model.parameters.copy_from_slice(&start.contents.parameters);
        self.replica.fill(start.updates, &start.contents);
        if let Some(averaging) = &mut self.averaging {
            averaging.begin(&start.contents.parameters);
            let kept = start.contents.extras.iter();
            for (_, velocity) in kept.filter(|(name, _)| name == VELOCITY) {
                if velocity.len() == averaging.velocity.len() {
                    averaging.velocity.copy_from_slice(velocity);
                }
            }
        }
        self.step = start.step;
        if let Some(pace) = &mut self.pace {
            *pace = pace.restarted(start.step);
            let kept = start.contents.extra(PACE);
            pace.resume(kept.unwrap_or_default(), &mut self.noise);
            // A checkpoint of another job, with another count of steps.
            if pace.step() != start.step {
                *pace = pace.restarted(start.step);
            }
        }
        let size = self.group.view().members.len();
        let coded = self.coded.as_ref();
        self.dealt = coded.and_then(|coded| coded.dealt(&start.contents, size));
        if self.group.has_newcomers() {
            self.welcome(model).map_err(WorkerError::Peers)?;
        } else if self.dealt.is_some() {
            self.deal().map_err(WorkerError::Peers)?;
        }
        self.recut(model)?;
        Ok(())
    }

    fn receive(&mut self, model: &mut WorkerModel) -> Result<ExchangeAnswer, WorkerStepError> {
        match self.welcome(model) {
            Ok(()) => {}
            Err(error) => return self.parted(error),
        }
        self.recut(model)?;
        Ok(ExchangeAnswer::Parameters {
            step: self.step,
            // A worker admitted before a step at which all workers suspend suspends as well.
            stats: StepStats {
                hold: self.held,
                ..StepStats::default()
            },
        })
    }

    fn step(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
    ) -> Result<(ExchangeAnswer, StepTimes), WorkerStepError> {
        if self.averaging.is_some() {
            return self.averaged_step(model, step);
        }
        if let Some(done) = self.step_on_gpus(model, step)? {
            return Ok(done);
        }
        if self.goes_by_need() {
            return self.step_by_need(model, step);
        }
        let began = clock::now();
        let in_halves = self.is_in_halves();
        let (sums, times) = self.all_reduce(model, step);
        let BucketSums { head, parts } = match sums {
            Ok(sums) => sums,
            Err(error) => return Ok((self.parted(error)?, times)),
        };
        if head.finish {
            if let MembershipRole::Member(remote) = &self.role {
                remote.wait_for_the_end();
            }
            return Ok((ExchangeAnswer::Finished, times));
        }
        let sums = match parts.len() {
            1 => &self.group.sums()[HEAD..],
            _ => &self.sums,
        };
        let whole = self.cut.whole();
        let examples = self.cut.batch;
        if head.parts.workers > 1.0 && parts.iter().all(|part| part.scale == whole) {
            let square = self.replica.square_norm(sums, &parts);
            match &self.pace {
                Some(pace) => {
                    let updates = if in_halves { HALVES_EVERY } else { 1 };
                    let keeps = pace.keeps(examples).powi(updates as i32);
                    self.noise.follow(head.parts, square, examples, keeps);
                }
                None => self.noise.observe(head.parts, square, examples),
            }
        }
        let parameters = &mut model.parameters;
        self.step = match &mut self.pace {
            Some(pace) => {
                let gain = pace.advance(&self.noise, examples, head.stats.examples);
                let worth = (step, gain);
                self.replica.update_worth(worth, parameters, sums, &parts);
                pace.choose(head.batch);
                pace.step()
            }
            None => {
                self.replica.update(parameters, sums, &parts);
                step + 1
            }
        };
        self.held = head.stats.hold;
        if !in_halves {
            self.measure(&head, began.elapsed(), times);
        }
        Ok((self.after_step(model, head)?, times))
    }

    fn snapshot(
        &mut self,
        model: &mut WorkerModel,
        mut into: Contents,
    ) -> Result<ShardSnapshot, WorkerStepError> {
        model.come_down(&mut self.replica.state)?;
        self.replica.copy(&model.parameters, &mut into);
        if let Some(averaging) = &self.averaging {
            if averaging.keeps_centre() {
                into.parameters.copy_from_slice(&averaging.centre);
            }
            if !averaging.velocity.is_empty() {
                let velocity = averaging.velocity.clone();
                into.extras.push((VELOCITY.to_owned(), velocity));
            }
        }
        let pace = self.pace.map(|pace| pace.floats(&self.noise));
        let pace = pace.map(|floats| (PACE.to_owned(), floats));
        into.extras.extend(pace);
        into.extras.extend(self.residual.iter().cloned());
        Ok(ShardSnapshot {
            versions: vec![self.step],
            updates: self.replica.updates,
            counted: StepStats::default(),
            contents: into,
        })
    }

    fn needs_notice(&self) -> bool {
        self.coded.is_some()
    }

    fn notice(&mut self, step: u64) {
        self.noticed = Some(step);
    }

    fn hold(&mut self, turn: u64) {
        self.hold = turn;
    }

    fn noise_scale(&self) -> Option<f64> {
        self.noise.scale()
    }

    fn layout(&self) -> TaskCounts {
        TaskCounts {
            workers: self.group.view().members.len() as u32,
            ps_shards: 0,
        }
    }

    fn conclude(&mut self, model: &mut WorkerModel) -> Result<(), WorkerStepError> {
        let concluded = match &self.averaging {
            // A round has just ended, so all workers have the same parameters. They learn of the
            // end with their next request.
            Some(averaging) if averaging.is_due(self.step) => return Ok(()),
            // The coordinator ends the round early; the other workers' steps in it count.
            Some(_) => self.end_round(model, true).map(drop),
            None => {
                match self.conclude_on_gpus(model) {
                    // As below.
                    Ok(true) | Err(WorkerError::Peers(FabricError::NoView(_))) => return Ok(()),
                    concluded => concluded?,
                };
                let by_need = self.by_need.as_ref().filter(|_| self.goes_by_need());
                if let Some(by_need) = by_need {
                    by_need.finish(&mut self.group)
                } else {
                    let mut format = self
                        .coded
                        .as_mut()
                        .map_or(AllReduceFormat::Plain, AllReduceFormat::Coded);
                    buckets::finish((&mut self.group, &mut format), self.step, &self.buckets)
                }
            }
        };
        match concluded {
            // After a stop request the others learn of the end when the membership server closes.
            Ok(()) | Err(FabricError::NoView(_)) => Ok(()),
            Err(error) => Err(WorkerError::Peers(error).into()),
        }
    }

    fn done(self: Box<Self>) {
        self.goodbye();
    }

    fn goodbye(self: Box<Self>) {
        let Self { group, role, .. } = *self;
        match role {
            MembershipRole::Chief(chair) => {
                // The others must not form a view without the coordinator when its links end.
                chair.end();
                // Before the wait, so that members in the middle of a sum ask for a view.
                drop(group);
                chair.close();
            }
            MembershipRole::Member(remote) => {
                remote.goodbye();
                drop(group);
            }
        }
    }
}
