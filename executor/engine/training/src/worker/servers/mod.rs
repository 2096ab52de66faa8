//! The exchange through parameter servers: gradients go to the PS shards, which hold parameters and
//! optimizer state.
//!
//! The coordinator checks the task set between steps. A newer one takes effect once the addresses
//! of all its shards are known and its new workers wait at every shard. The coordinator then
//! announces the first step of the next view, so no worker waits for the start of another. When a
//! worker is lost, the coordinator removes it from the present step and from the view. The push of
//! a lost worker stays in the shards that completed the step with it. So at most its part of one
//! step is in some shards and not in others.

mod coordinator;
mod eager;
mod join;
mod local_aggregation;
mod local_group;
mod partitions;

use super::clip::OwnClip;
use super::context::{ExitReason, WorkerContext};
use super::error::WorkerError;
use super::exchange::{ExchangeAnswer, ExchangeStart, WorkerExchange, WorkerStepError};
use super::link::{Reply, WaitCondition};
use super::model::WorkerModel;
use super::noise::{GradientNoise, NoiseParts};
use super::progress::StepTimes;
use super::shards::{Eager, ShardSnapshot, Shards, first_view, known};
use super::task_set::worker_ids;
use crate::checkpoint::{Contents, ContentsSource, TaskCounts};
use coordinator::{DepartureDecision, ViewChangeState};
use join::{addresses, connect};
use local_group::LocalAggregation;
use muster_comm::log;
use muster_comm::shard_codec::has_plain_statistics;
use muster_comm::wire::metadata::{ConnectionPurpose, Hello, StepStats};
use muster_compute::clock;
use muster_compute::model::Network;
use muster_compute::pages;
use muster_model::assignment::{Peers, TaskLaunch};
use muster_model::spec::Consistency;
use partitions::ExchangeOutcome;
use std::time::Duration;

/// A worker of a job with PS shards.
pub(super) struct Servers<'a> {
    shards: Shards,
    me: Hello,
    /// The task set that the worker joined, or the newest one that the coordinator has applied.
    peers: Peers,
    bulk_synchronous: bool,
    /// Whether each shard has a replica.
    copied: bool,
    /// Set where this worker clips its pushes.
    clip_own: Option<OwnClip>,
    /// Whether checkpoints contain the residuals of encoded gradients: with codecs, except with
    /// backup workers.
    keeps_held_back: bool,
    /// Coordinator: step at whose beginning a checkpoint is announced.
    noticed: Option<u64>,
    ctx: &'a WorkerContext<'a>,
    /// Set where workers of one node sum their gradients before the push (local aggregation).
    aggregation: Option<LocalAggregation>,
    gradients: Vec<f32>,
    /// Examples of a step over all workers.
    batch: usize,
    /// Whether each step contains the gradients of all workers.
    all_count: bool,
    /// Averages of the gradient noise, where each step has a mean.
    noise: GradientNoise,
    /// Set where the next step begins before the answer to the last one has arrived.
    eager: Option<Eager>,
    /// With eager steps: answer to a push that was made between two steps and is not processed yet,
    /// with its step.
    unread: Option<(u64, Reply)>,
    /// Slice number to name with the next push; 0 for none.
    hold: u64,
    chief: Option<ViewChangeState>,
}

/// Change of the view by the newest messages.
enum ViewUpdate {
    Same,
    Changed,
    Out,
}

/// Result of an answer.
enum AnswerOutcome {
    Reply(Reply),
    /// This worker leaves, or all do.
    Over,
}

impl<'a> Servers<'a> {
    /// Waits for the shards' addresses and joins all shards. Returns the ending if the task must
    /// stop first, or a shard is lost.
    ///
    /// # Errors
    /// When a shard refuses this worker.
    pub fn join(
        launch: &TaskLaunch,
        rank: u32,
        network: &Network,
        ctx: &'a WorkerContext<'a>,
    ) -> Result<Result<Self, ExitReason>, WorkerError> {
        let me = Hello {
            job_id: launch.job_id,
            secret: launch.secret.clone(),
            task_id: launch.task_id,
            guest: match rank {
                0 => ConnectionPurpose::Chief,
                _ => ConnectionPurpose::Worker,
            },
            to: None,
            says_held: {
                let exchange = &launch.spec.exchange;
                exchange.compression.codecs().is_some()
                    && !exchange.consistency.is_bulk_synchronous()
            },
            plain_statistics: {
                let codecs = launch.spec.exchange.compression.codecs();
                has_plain_statistics(codecs, network.blocks())
            },
        };
        let copied = launch.spec.exchange.shard_replicas > 0;
        let parameters = network.parameter_count();
        // Before any shard knows this worker: workers that learn of it there may look for its
        // endpoint here.
        let aggregation = if launch.spec.exchange.local_aggregation {
            LocalAggregation::open(launch, parameters, ctx)
        } else {
            None
        };
        let (shards, peers) = match connect(&me, 0, network, copied, ctx) {
            Ok(Ok(joined)) => joined,
            Ok(Err(ending)) => return Ok(Err(ending)),
            Err(trouble) => return trouble.ending().map(Err),
        };
        let bulk_synchronous = launch.spec.exchange.consistency.is_bulk_synchronous();
        let mut shards = shards
            .with_clip_norm(OwnClip::of_sum(&launch.spec))
            .in_parts(partitions::order(launch, network));
        if let Some(codecs) = launch.spec.exchange.compression.codecs() {
            let seed = launch.spec.engine().seed;
            shards.compress(codecs.clone(), network.blocks(), seed)?;
        }
        let exchange = &launch.spec.exchange;
        let keeps_held_back =
            exchange.compression.codecs().is_some() && exchange.consistency.backup() == 0;
        Ok(Ok(Self {
            shards,
            chief: (rank == 0).then(|| ViewChangeState::of(network, &ctx.peers, peers.revision)),
            me,
            peers,
            copied,
            keeps_held_back,
            noticed: None,
            clip_own: OwnClip::of(&launch.spec),
            bulk_synchronous,
            ctx,
            aggregation,
            gradients: pages::zeros(parameters),
            batch: launch.spec.engine().batch as usize,
            all_count: bulk_synchronous && exchange.consistency.backup() == 0,
            noise: GradientNoise::default(),
            eager: match exchange.consistency {
                Consistency::Ssp {
                    staleness,
                    eager: true,
                    ..
                } => Some(Eager::new(staleness, network.parameter_count())),
                _ => None,
            },
            unread: None,
            hold: 0,
        }))
    }

    /// Enters the newest known view.
    fn follow(&mut self, model: &mut WorkerModel) -> Result<ViewUpdate, WorkerStepError> {
        Ok(match self.shards.follow()? {
            None => ViewUpdate::Same,
            Some(false) => ViewUpdate::Out,
            Some(true) => {
                let view = self.shards.view().expect("it was just followed");
                let (number, workers, ps_shards) =
                    (view.number, view.workers.len(), view.shards.len());
                let rank = self.shards.rank().expect("this worker is in it");
                model.recut((rank, workers), None)?;
                log::line(format_args!(
                    "view {number}: worker {rank} of {workers}, {ps_shards} PS shards"
                ));
                ViewUpdate::Changed
            }
        })
    }

    /// Processes an answer to the push of `gradients` of `step`, with its messages on departures
    /// and views.
    fn settle(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
        reply: Reply,
        gradients: &[f32],
    ) -> Result<AnswerOutcome, WorkerStepError> {
        let stop = &self.ctx.stop;
        let mut reply = reply;
        loop {
            reply = match reply {
                Reply::Gone => {
                    let decision = self.decide(step)?;
                    let parameters = &mut model.parameters;
                    match decision {
                        DepartureDecision::Stop => {
                            return Ok(AnswerOutcome::Over);
                        }
                        DepartureDecision::WaitOn if stop.must_hurry() => Reply::GaveUp,
                        DepartureDecision::WaitOn => {
                            self.shards
                                .wait_on(gradients, parameters, &|| !stop.must_hurry())?
                        }
                        DepartureDecision::GoOn if self.bulk_synchronous => {
                            self.shards
                                .resume(gradients, parameters, &|| !stop.must_hurry())?
                        }
                        DepartureDecision::GoOn => {
                            self.follow(model)?;
                            self.enter(model)?
                        }
                    }
                }
                Reply::Moved => match self.follow(model)? {
                    ViewUpdate::Changed => self.enter(model)?,
                    ViewUpdate::Same | ViewUpdate::Out => {
                        return Ok(AnswerOutcome::Over);
                    }
                },
                _ => break,
            };
        }
        Ok(AnswerOutcome::Reply(reply))
    }

    /// Waits for parameters under the newest known view.
    fn enter(&mut self, model: &mut WorkerModel) -> Result<Reply, WorkerStepError> {
        loop {
            let (stop, ctx, revision) = (&self.ctx.stop, self.ctx, self.peers.revision);
            let (is_guest, copied) = (self.shards.view().is_none(), self.copied);
            let reply = self.shards.pull(
                &mut model.parameters,
                &|| !stop.is_set(),
                // A worker that is not admitted yet may have to join other shards.
                &|| (ctx.peers)().is_none_or(|peers| peers.revision <= revision),
            )?;
            match (reply, self.follow(model)?) {
                (_, ViewUpdate::Out) => return Ok(Reply::Moved),
                (Reply::Moved, _) => {}
                (Reply::GaveUp, _) if is_guest && !stop.is_set() => {
                    match connect(&self.me, revision, &model.network, copied, ctx)? {
                        Ok((shards, peers)) => {
                            let before = std::mem::replace(&mut self.shards, shards);
                            self.shards.go_like(before);
                            self.peers = peers;
                        }
                        Err(ExitReason::PeerLost) => {
                            return Ok(Reply::Interrupted {
                                version: 0,
                                lost: true,
                            });
                        }
                        Err(_) => return Ok(Reply::Moved),
                    }
                }
                (reply, _) => return Ok(reply),
            }
        }
    }
}

impl Servers<'_> {
    /// Computes the gradients of `step` and exchanges them in the way that the job selects.
    fn exchange_gradients(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
        patience: WaitCondition<'_>,
    ) -> Result<ExchangeOutcome, WorkerStepError> {
        if self.aggregation.is_some() {
            self.exchange_together(model, step, patience)
        } else if self.shards.goes_in_parts() {
            Ok(self.exchange(model, step, patience)?)
        } else {
            self.exchange_at_once(model, step, patience)
        }
    }

    /// Pushes waiting gradients, and sets how long the shards wait for residuals. Returns the
    /// counts of the push.
    fn prepare_snapshot(&mut self) -> Result<StepStats, WorkerStepError> {
        let counted = self.push_what_waits()?;
        let usual = self
            .chief
            .as_ref()
            .map_or(Duration::ZERO, ViewChangeState::hears_within);
        // The rest of the grace period is for writing the checkpoint.
        let limit = self.ctx.stop.to_wait().unwrap_or(usual);
        self.shards.hear_within(limit.min(usual));
        Ok(counted)
    }

    /// Adds the workers' residuals, where they were announced.
    fn complete(
        &mut self,
        mut snapshot: ShardSnapshot,
        counted: StepStats,
    ) -> Result<ShardSnapshot, WorkerStepError> {
        snapshot.counted = counted;
        if self.noticed.is_some() && self.noticed == snapshot.version() {
            let held_back = self.shards.held_back()?;
            snapshot.contents.extras.extend(held_back);
        }
        Ok(snapshot)
    }
}

impl WorkerExchange for Servers<'_> {
    fn begin(
        &mut self,
        model: &mut WorkerModel,
        start: &ExchangeStart,
    ) -> Result<(), WorkerStepError> {
        let duties = self.chief.as_mut().expect("only the chief begins");
        let addresses = addresses(&self.peers).expect("it has joined them");
        let workers = worker_ids(&self.peers);
        let view = first_view(self.peers.revision, workers, &addresses, &duties.blocks);
        let contents = &start.contents;
        self.shards
            .begin(view, start.step, start.updates, contents)?;
        duties.began = clock::now();
        model.recut((0, self.peers.workers.len()), None)?;
        model
            .parameters
            .copy_from_slice(if self.keeps_held_back && self.all_count {
                known(contents)
            } else {
                &contents.parameters
            });
        Ok(())
    }

    fn receive(&mut self, model: &mut WorkerModel) -> Result<ExchangeAnswer, WorkerStepError> {
        let reply = self.enter(model)?;
        if self.keeps_held_back && matches!(reply, Reply::Parameters { .. }) {
            self.shards.fetch_own()?;
        }
        Ok(reply.into())
    }

    fn step(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
    ) -> Result<(ExchangeAnswer, StepTimes), WorkerStepError> {
        if let Some(eager) = self.eager.take() {
            return self.step_eagerly(eager, model, step);
        }
        if self.bulk_synchronous {
            self.look(step + 1)?;
        } else if self.look(step)? {
            self.follow(model)?;
            self.enter(model)?;
        }
        let ctx = self.ctx;
        let ExchangeOutcome {
            reply,
            mut times,
            computed,
            ahead,
        } = self.exchange_gradients(model, step, &|| !ctx.stop.must_hurry())?;
        let gradients = std::mem::take(&mut self.gradients);
        let settled = self.settle(model, step, reply, &gradients);
        self.gradients = gradients;
        let reply = match settled? {
            AnswerOutcome::Reply(reply) => reply,
            AnswerOutcome::Over => return Ok((ExchangeAnswer::Interrupted { lost: false }, times)),
        };
        if let ViewUpdate::Out = self.follow(model)? {
            log::line(format_args!("not in the view after step {step}: leaves"));
            return Ok((ExchangeAnswer::Interrupted { lost: false }, times));
        }
        if self.shards.is_awaited() {
            match self.enter(model)? {
                Reply::Parameters { .. } => {}
                other => return Ok((other.into(), times)),
            }
        }
        if self.shards.take_told_to_keep() && self.chief.is_none() {
            self.shards.hand_over()?;
        }
        if let Some(part) = self.shards.take_noise().filter(|_| self.all_count) {
            let targets = model.network.targets() as f64;
            let parts = NoiseParts {
                squares: part.squares as f32,
                // In units of examples, like the batch.
                inverses: (part.inverses * targets) as f32,
                workers: part.pushes as f32,
            };
            let batch = self.batch;
            self.noise.observe(parts, part.whole, batch);
        }
        times.exchange = computed.elapsed().saturating_sub(ahead);
        times.compute += ahead;
        self.tell(step)?;
        Ok((reply.into(), times))
    }

    fn snapshot(
        &mut self,
        _: &mut WorkerModel,
        into: Contents,
    ) -> Result<ShardSnapshot, WorkerStepError> {
        let counted = self.prepare_snapshot()?;
        let snapshot = self.shards.snapshot(into)?;
        self.complete(snapshot, counted)
    }

    fn snapshot_from(
        &mut self,
        _: &mut WorkerModel,
        into: Contents,
    ) -> Result<(ShardSnapshot, Option<Box<dyn ContentsSource>>), WorkerStepError> {
        let counted = self.prepare_snapshot()?;
        let (snapshot, draw) = self.shards.lend(into)?;
        let source = draw.map(|draw| Box::new(draw) as Box<dyn ContentsSource>);
        Ok((self.complete(snapshot, counted)?, source))
    }

    fn noise_scale(&self) -> Option<f64> {
        self.noise.scale()
    }

    fn needs_notice(&self) -> bool {
        self.keeps_held_back
    }

    fn notice(&mut self, step: u64) {
        self.noticed = Some(step);
    }

    fn hold(&mut self, turn: u64) {
        self.hold = turn;
    }

    fn went_on(&mut self) {
        if let Some(duties) = &mut self.chief {
            duties.began = clock::now();
        }
    }

    fn layout(&self) -> TaskCounts {
        let (workers, ps_shards) = match self.shards.view() {
            Some(view) => (view.workers.len(), view.shards.len()),
            None => (self.peers.workers.len(), self.peers.ps_shards.len()),
        };
        TaskCounts {
            workers: workers as u32,
            ps_shards: ps_shards as u32,
        }
    }

    fn done(self: Box<Self>) {
        self.shards.done();
    }

    fn goodbye(self: Box<Self>) {
        self.shards.goodbye();
    }
}
