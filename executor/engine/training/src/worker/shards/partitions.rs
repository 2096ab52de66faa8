//! A step in partitions: it goes to the shards during its computation, and the answers arrive while
//! the next step begins.
//!
//! Gradients go to their shard as soon as the backward pass has completed them, the most urgent
//! ready partition first. A shard applies and answers each partition independently
//! ([`crate::shard`]). The next forward pass begins with the layers whose parameters have arrived.
//! It is discarded if an answer announces another view.

use super::super::link::{
    OutgoingPartitions, Reply, ShardLink, ShardReply, WaitCondition, WorkerBufferPool,
};
use super::{ShardFailure, Shards};
use muster_comm::assign::load;
use muster_comm::partitions::{PartitionOrder, PartitionPlan, PartitionQueue};
use muster_comm::wire::WireError;
use muster_comm::wire::metadata::{PushHead, StepStats};
use muster_comm::wire::view::TaskSetView;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Receives the range of final gradients, and all gradients.
pub type GradientSink<'a> = &'a mut (dyn FnMut(Range<usize>, &[f32]) + Send);

/// Waits until these parameters are in place; `false` if the forward pass must not continue.
pub type ParameterFetch<'a> = &'a mut (dyn FnMut(Range<usize>, &mut [f32]) -> bool + Send);

/// Computation of a worker around an exchange in partitions.
pub trait PartitionedPass {
    /// Computes the gradients of the step. Calls `ready` with them, from the last to the first.
    fn compute(&mut self, ready: GradientSink<'_>) -> StepStats;

    /// Computes as much of the next step as possible before all answers have arrived. All
    /// parameters are in place only after the exchange.
    fn go_ahead(&mut self, fetch: ParameterFetch<'_>);

    /// Returns the parameters to update.
    fn parameters(&mut self) -> &mut [f32];
}

/// Message from a shard.
enum PartitionMessage {
    Part(usize, usize, Vec<f32>),
    Told(usize, Result<ShardReply, WireError>),
}

/// Answers so far.
struct PartitionReceiver<'a> {
    plan: &'a PartitionPlan,
    events: Receiver<PartitionMessage>,
    spares: &'a WorkerBufferPool,
    /// By place of the plan.
    missing: Vec<bool>,
    answer: Vec<Option<Result<ShardReply, WireError>>>,
    /// Whether all answers so far only continue training in the same view.
    is_plain: bool,
}

impl PartitionReceiver<'_> {
    /// Processes the next message; `false` if there are no more.
    fn hear(&mut self, parameters: &mut [f32]) -> bool {
        match self.events.recv() {
            Err(_) => return false,
            Ok(PartitionMessage::Part(shard, part, numbers)) => {
                let at = self.plan.find(shard, part).expect("the link has checked");
                self.plan.places()[at].write(&numbers, parameters);
                self.missing[at] = false;
                self.spares.give(numbers);
            }
            Ok(PartitionMessage::Told(shard, answer)) => {
                self.is_plain &= matches!(
                    &answer,
                    Ok(ShardReply {
                        reply: Reply::Parameters { .. },
                        view: None,
                        ..
                    })
                );
                self.answer[shard] = Some(answer);
            }
        }
        true
    }

    fn fetch(&mut self, range: &Range<usize>, parameters: &mut [f32]) -> bool {
        while self.is_plain && self.plan.lacks(range, &self.missing) {
            if !self.hear(parameters) {
                return false;
            }
        }
        self.is_plain
    }

    /// Returns all answers. A shard that completes its answer must have sent all partitions.
    fn finish(mut self, parameters: &mut [f32]) -> Result<Vec<(usize, ShardReply)>, ShardFailure> {
        while self.hear(parameters) {}
        let mut all = Vec::with_capacity(self.answer.len());
        for (shard, answer) in self.answer.into_iter().enumerate() {
            let answer = answer.expect("each link says how it ended");
            let answer = answer.map_err(|error| (shard, error))?;
            let places = self.plan.places().iter().zip(&self.missing);
            let lacks = places.filter(|(place, _)| place.shard == shard);
            let says_all = matches!(answer.reply, Reply::Parameters { .. });
            if says_all && lacks.into_iter().any(|(_, missing)| *missing) {
                return Err((
                    shard,
                    WireError::Malformed("answer in parts, with parts missing"),
                ));
            }
            all.push((shard, answer));
        }
        Ok(all)
    }
}

impl Shards {
    /// Sends steps in partitions from now on, in this order; `None`: as a whole. Requires BSP
    /// without backup workers, clipping, LARS, codecs and replicas.
    #[must_use]
    pub fn in_parts(self, parts: Option<PartitionOrder>) -> Self {
        Self { parts, ..self }
    }

    /// Whether steps go in partitions.
    #[must_use]
    pub fn goes_in_parts(&self) -> bool {
        self.parts.is_some()
    }

    /// Computes step `clock`, sends the gradients meanwhile and receives the parameters after it.
    ///
    /// # Errors
    /// As [`Self::join`].
    ///
    /// # Panics
    /// Before there is a view.
    pub fn exchange(
        &mut self,
        clock: u64,
        pass: &mut dyn PartitionedPass,
        patience: WaitCondition<'_>,
    ) -> Result<Reply, ShardFailure> {
        let view = self.view.as_ref().expect("a worker pushes under a view");
        let plan = match self.plan.take() {
            Some((layout, plan)) if layout == view.layout => plan,
            _ => PartitionPlan::new(&view.assignment()),
        };
        let (number, layout) = (view.number, view.layout);
        let (head, answer) = self.exchange_by(&plan, clock, pass, patience);
        self.plan = Some((layout, plan));
        self.pushed = Some((
            clock,
            PushHead {
                view: number,
                ..head
            },
        ));
        self.settle(answer?, None, &mut [], patience)
    }

    fn exchange_by(
        &mut self,
        plan: &PartitionPlan,
        clock: u64,
        pass: &mut dyn PartitionedPass,
        patience: WaitCondition<'_>,
    ) -> (PushHead, Result<Vec<(usize, ShardReply)>, ShardFailure>) {
        let view = self.view.as_ref().expect("a worker pushes under a view");
        let (spares, targets) = (&self.spares, self.targets);
        let order = self.parts.unwrap_or_default();
        let queues: Vec<_> = self
            .links
            .iter()
            .map(|_| PartitionQueue::new(order))
            .collect();
        let rest = OnceLock::new();
        let (events, arrivals) = channel();
        let incoming = PartitionReceiver {
            plan,
            events: arrivals,
            spares,
            missing: vec![true; plan.places().len()],
            answer: self.links.iter().map(|_| None).collect(),
            is_plain: true,
        };
        thread::scope(|scope| {
            for (shard, (link, queue)) in self.links.iter_mut().zip(&queues).enumerate() {
                let outgoing = OutgoingPartitions {
                    clock,
                    view: view.number,
                    queue,
                    rest: &rest,
                    spares,
                };
                let events = events.clone();
                scope.spawn(move || {
                    let answer = converse(link, shard, outgoing, view, patience, &events);
                    // The receiver reads to the end.
                    let _ = events.send(PartitionMessage::Told(shard, answer));
                });
            }
            drop(events);
            let stats = pass.compute(&mut feeding(plan, &queues, spares));
            let head = PushHead {
                view: view.number,
                targets: stats.examples * targets,
                stats,
            };
            rest.set(head).expect("it is set once");
            queues.iter().for_each(PartitionQueue::close);
            let mut incoming = incoming;
            pass.go_ahead(&mut |range, parameters| incoming.fetch(&range, parameters));
            (head, incoming.finish(pass.parameters()))
        })
    }

    /// Receives the pending answer of a push in partitions.
    pub(super) fn hear_parts(
        link: &mut ShardLink,
        view: &TaskSetView,
        patience: WaitCondition<'_>,
        parts: &mut [&mut [f32]],
    ) -> Result<ShardReply, WireError> {
        let numbers = load(view.pieces(link.shard));
        link.hear_parts(
            numbers,
            &WorkerBufferPool::default(),
            patience,
            &mut |part, got| {
                put(
                    parts,
                    muster_comm::partitions::range(part, numbers).start,
                    &got,
                );
            },
        )
    }
}

/// Writes `numbers` into a shard's parts of the arena, from position `offset` of the shard's values
/// on.
fn put(parts: &mut [&mut [f32]], offset: usize, numbers: &[f32]) {
    let (mut skip, mut rest) = (offset, numbers);
    for part in parts {
        let start = skip.min(part.len());
        let len = rest.len().min(part.len() - start);
        let (here, tail) = rest.split_at(len);
        part[start..start + len].copy_from_slice(here);
        (skip, rest) = (skip - start, tail);
    }
}

/// Returns a function that puts the partitions within the final gradients into the queues.
fn feeding<'a>(
    plan: &'a PartitionPlan,
    queues: &'a [PartitionQueue<Vec<f32>>],
    spares: &'a WorkerBufferPool,
) -> impl FnMut(Range<usize>, &[f32]) + Send + use<'a> {
    let mut waiting = plan.places().iter().rev().peekable();
    move |done, gradients| {
        while let Some(place) = waiting.next_if(|place| place.start() >= done.start) {
            let mut numbers = spares.take();
            place.read(gradients, &mut numbers);
            queues[place.shard].add(place.part, numbers);
        }
    }
}

/// Sends to a shard on a separate thread while this one receives its answer.
fn converse(
    link: &mut ShardLink,
    shard: usize,
    outgoing: OutgoingPartitions<'_>,
    view: &TaskSetView,
    patience: WaitCondition<'_>,
    events: &Sender<PartitionMessage>,
) -> Result<ShardReply, WireError> {
    let numbers = load(view.pieces(link.shard));
    let mut speaker = link.speaker()?;
    let spares = outgoing.spares;
    let answer = thread::scope(|scope| {
        let sending = scope.spawn(|| outgoing.send(shard, &mut speaker));
        let answer = link.hear_parts(numbers, spares, patience, &mut |part, got| {
            let _ = events.send(PartitionMessage::Part(shard, part, got));
        });
        // The received answer contains the cause of an error in sending.
        let _ = sending.join().expect("a link does not panic");
        answer
    });
    link.keep_speaker(speaker);
    answer
}
