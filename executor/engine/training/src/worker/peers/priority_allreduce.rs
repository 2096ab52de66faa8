//! A step whose ranges are summed in priority order during the backward pass. Parameters are
//! updated while the next step begins.
//!
//! One thread sums the ranges in the order that [`super::ranges`] decides; the calling thread
//! computes. After the backward pass it updates each summed range. It runs the next forward pass as
//! far as the parameters are new. The bits equal those of one update at the end, because the update
//! of a value depends on no other value.
//!
//! The step's head is summed with the first range, whose gradients are ready last. Nothing is
//! updated before the head is known, because the step may be the end of training. The next step
//! begins with the first range as well, so it cannot begin before the head is known. No forward
//! pass is therefore wasted when members change, training ends or all workers suspend. A pass is
//! discarded only after a death that cuts the next step differently, and before an evaluation. The
//! [model](super::super::model::WorkerModel) discards it.
//!
//! The head decides the step: a worker that has it makes the whole update. All views may end at
//! that moment, for a coordinator that must stop while a member leaves. The remaining ranges then
//! contain this worker's gradients alone. It is the last member of the step, as after deaths, and
//! its checkpoint contains a whole step. The alternatives are a second copy of parameters and state
//! in every step, or no checkpoint in this case.

use super::ranges::{GradientRanges, RangeQueue, mark};
use crate::worker::head::StepMetadata;
use crate::worker::link::WorkerBufferPool;
use crate::worker::shards::{GradientSink, ParameterFetch};
use muster_comm::collective::{CollectiveGroup, Reduced};
use muster_comm::fabric::FabricError;
use muster_comm::partitions::PartitionOrder;
use std::collections::BTreeMap;
use std::mem;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

/// Number of ranges updated together before the thread checks for a more urgent one.
const AT_ONCE: usize = 8;

/// Computation of a worker around the exchange.
pub trait PriorityStepWork {
    /// Computes the gradients of the step. Calls `ready` with them, from the last to the first.
    fn compute(&mut self, ready: GradientSink<'_>) -> StepMetadata;

    /// Computes as much of the next step as possible before all sums are known. All parameters are
    /// in place only after the exchange.
    fn go_ahead(&mut self, fetch: ParameterFetch<'_>);

    /// Returns the parameters to update.
    fn parameters(&mut self) -> &mut [f32];
}

/// A range's sum over all workers' examples, and the factor to their mean.
#[derive(Debug)]
pub struct RangeSum {
    pub range: Range<usize>,
    pub scale: f32,
    pub floats: Vec<f32>,
}

/// Updates parameters by these sums, in ascending order.
pub type Apply<'a> = &'a mut (dyn FnMut(&mut [f32], &[RangeSum]) + Send);

/// Factors to the mean, of a sum and of this worker's own gradients.
pub trait MeanScale: Sync {
    fn of_sum(&self, group: &CollectiveGroup, reduced: Reduced) -> f32;

    fn of_own(&self, head: &StepMetadata) -> f32;
}

/// Result of a step.
#[derive(Debug)]
pub struct PriorityStepOutcome {
    /// Sum of the heads over all workers, if it is known. The whole update has then been made,
    /// unless training has ended.
    pub head: Option<StepMetadata>,
    /// Whether all ranges were summed.
    pub ended: Result<(), FabricError>,
}

/// Priority exchange of a job's steps.
#[derive(Debug)]
pub struct PriorityAllReduce {
    ranges: GradientRanges,
    order: PartitionOrder,
    spares: WorkerBufferPool,
}

impl PriorityAllReduce {
    #[must_use]
    pub fn new(ranges: GradientRanges, order: PartitionOrder) -> Self {
        Self {
            ranges,
            order,
            spares: WorkerBufferPool::default(),
        }
    }

    /// Returns the ranges, for the size of a group's arena.
    #[must_use]
    pub fn ranges(&self) -> &GradientRanges {
        &self.ranges
    }

    /// Computes a step, sums it and makes its update; begins the next one meanwhile.
    pub fn exchange(
        &self,
        group: &mut CollectiveGroup,
        work: &mut dyn PriorityStepWork,
        scale: &dyn MeanScale,
        apply: Apply<'_>,
    ) -> PriorityStepOutcome {
        let count = self.ranges.count();
        let (ready, arrivals) = channel();
        let (events, sums) = channel();
        let summing = SummingThread {
            of: self,
            group,
            scale,
            line: RangeQueue::new(count, self.order),
            arrivals,
            events,
            ready: count,
            own: None,
            is_decided: false,
        };
        thread::scope(|scope| {
            let summing = scope.spawn(|| summing.run());
            let mut feeding = RangeFeeder {
                of: self,
                ready: &ready,
                left: count,
            };
            let head = work.compute(&mut |done, gradients| feeding.feed(done.start, gradients));
            // The receiver is gone after an error of the sums; that error is returned.
            let _ = ready.send(BackwardMessage::Head(head));
            drop(ready);
            let mut incoming = RangeSumReceiver {
                of: self,
                sums,
                missing: vec![true; count],
                waiting: BTreeMap::new(),
                head: None,
                apply,
            };
            work.go_ahead(&mut |range, parameters| incoming.fetch(&range, parameters));
            let head = incoming.finish(work.parameters());
            let ended = summing.join().expect("an exchange does not panic");
            PriorityStepOutcome { head, ended }
        })
    }

    /// Coordinator: announces the end of training through the head of a step without gradients.
    ///
    /// # Errors
    /// As [`CollectiveGroup::all_reduce`].
    pub fn finish(&self, group: &mut CollectiveGroup) -> Result<(), FabricError> {
        let head = StepMetadata {
            finish: true,
            ..StepMetadata::default()
        };
        // All marks are 0, so the coordinator waits for no range.
        group.gradients_mut().fill(0.0);
        head.write(group.gradients_mut());
        let mut line = RangeQueue::new(self.ranges.count(), self.order);
        while let Some(at) = line.take() {
            group.all_reduce(self.ranges.summed(at))?;
            line.hear(&group.sums()[self.ranges.marks(at)]);
        }
        Ok(())
    }
}

/// Results of the backward pass.
enum BackwardMessage {
    Range(usize, Vec<f32>),
    /// The last message: the head of the whole pass.
    Head(StepMetadata),
}

/// Sends the ranges whose gradients are final.
struct RangeFeeder<'a> {
    of: &'a PriorityAllReduce,
    ready: &'a Sender<BackwardMessage>,
    /// Number of ranges that are not sent yet.
    left: usize,
}

impl RangeFeeder<'_> {
    /// Sends the ranges within the final gradients, those from `start` on.
    fn feed(&mut self, start: usize, gradients: &[f32]) {
        while self.left > 0 && self.of.ranges.parameters(self.left - 1).start >= start {
            self.left -= 1;
            let mut floats = self.of.spares.take();
            floats.clear();
            floats.extend_from_slice(&gradients[self.of.ranges.parameters(self.left)]);
            let _ = self.ready.send(BackwardMessage::Range(self.left, floats));
        }
    }
}

/// A range's sum, and the step's head with that of the first range.
struct RangeSumMessage {
    at: usize,
    sum: RangeSum,
    head: Option<StepMetadata>,
}

/// The summing thread.
struct SummingThread<'a> {
    of: &'a PriorityAllReduce,
    group: &'a mut CollectiveGroup,
    scale: &'a dyn MeanScale,
    line: RangeQueue,
    arrivals: Receiver<BackwardMessage>,
    events: Sender<RangeSumMessage>,
    /// The arena contains the gradients of all ranges from this one on.
    ready: usize,
    /// This worker's own part of the head.
    own: Option<StepMetadata>,
    /// Whether the step's head is known.
    is_decided: bool,
}

impl SummingThread<'_> {
    fn run(mut self) -> Result<(), FabricError> {
        while let Some(at) = self.line.take() {
            if !self.wait_for(at) {
                return Ok(());
            }
            let (ranges, group) = (&self.of.ranges, &mut *self.group);
            mark(&mut group.gradients_mut()[ranges.marks(at)], self.ready);
            match group.all_reduce(ranges.summed(at)) {
                Ok(reduced) => self.tell(at, reduced),
                Err(error) => {
                    if self.is_decided {
                        self.go_alone(at);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Receives ready ranges, and waits for range `at`. Returns `false` if the backward pass has
    /// ended without it.
    fn wait_for(&mut self, at: usize) -> bool {
        loop {
            let is_there = self.ready <= at && (at > 0 || self.own.is_some());
            let arrival = if is_there {
                self.arrivals.try_recv()
            } else {
                self.arrivals.recv().map_err(|_| TryRecvError::Disconnected)
            };
            match arrival {
                Ok(arrival) => self.take_in(arrival),
                Err(_) => return is_there,
            }
        }
    }

    fn take_in(&mut self, arrival: BackwardMessage) {
        let arena = self.group.gradients_mut();
        match arrival {
            BackwardMessage::Range(at, floats) => {
                arena[self.of.ranges.gradients(at)].copy_from_slice(&floats);
                self.of.spares.give(floats);
                self.ready = at;
            }
            BackwardMessage::Head(head) => {
                head.write(arena);
                self.own = Some(head);
            }
        }
    }

    fn tell(&mut self, at: usize, reduced: Reduced) {
        let (ranges, sums) = (&self.of.ranges, self.group.sums());
        self.line.hear(&sums[ranges.marks(at)]);
        let head = (at == 0).then(|| StepMetadata::read(sums));
        self.is_decided |= head.is_some();
        let scale = self.scale.of_sum(self.group, reduced);
        // The next sum may be completed in another view, whose memory lacks this one.
        self.send(at, scale, &sums[ranges.gradients(at)], head);
    }

    /// This worker is the last member of the step: the ranges that are not summed contain only its
    /// own gradients.
    fn go_alone(&mut self, first: usize) {
        let own = self.own.as_ref().expect("it goes with the first range");
        let scale = self.scale.of_own(own);
        let mut next = Some(first);
        while let Some(at) = next {
            let gradients = &self.group.gradients()[self.of.ranges.gradients(at)];
            self.send(at, scale, gradients, None);
            next = self.line.take();
        }
    }

    fn send(&self, at: usize, scale: f32, sums: &[f32], head: Option<StepMetadata>) {
        let mut floats = self.of.spares.take();
        floats.clear();
        floats.extend_from_slice(sums);
        let range = self.of.ranges.parameters(at);
        let sum = RangeSum {
            range,
            scale,
            floats,
        };
        // The receiver reads to the end.
        let _ = self.events.send(RangeSumMessage { at, sum, head });
    }
}

/// Sums that have arrived.
struct RangeSumReceiver<'a> {
    of: &'a PriorityAllReduce,
    sums: Receiver<RangeSumMessage>,
    /// By range, whether its update is still to be made.
    missing: Vec<bool>,
    /// Sums whose update is still to be made, by range.
    waiting: BTreeMap<usize, RangeSum>,
    head: Option<StepMetadata>,
    apply: Apply<'a>,
}

impl RangeSumReceiver<'_> {
    /// Updates the first summed ranges, or waits for more. Returns `false` if there is nothing left
    /// to do.
    fn go_on(&mut self, parameters: &mut [f32]) -> bool {
        while let Ok(event) = self.sums.try_recv() {
            self.take_in(event);
        }
        let is_none = self.head.is_none_or(|head| head.finish);
        if is_none || self.waiting.is_empty() {
            let event = self.sums.recv();
            return event.map(|event| self.take_in(event)).is_ok();
        }
        let later = self.waiting.keys().nth(AT_ONCE).copied();
        let later = later.map_or_else(BTreeMap::new, |at| self.waiting.split_off(&at));
        let first = mem::replace(&mut self.waiting, later);
        first.keys().for_each(|at| self.missing[*at] = false);
        let first: Vec<RangeSum> = first.into_values().collect();
        (self.apply)(parameters, &first);
        let spares = first.into_iter().map(|sum| sum.floats);
        spares.for_each(|floats| self.of.spares.give(floats));
        true
    }

    fn take_in(&mut self, event: RangeSumMessage) {
        self.head = self.head.or(event.head);
        self.waiting.insert(event.at, event.sum);
    }

    fn fetch(&mut self, range: &Range<usize>, parameters: &mut [f32]) -> bool {
        let covering = self.of.ranges.covering(range);
        loop {
            match self.head {
                Some(head) if head.needs_pause() => return false,
                Some(_) if !self.missing[covering.clone()].contains(&true) => return true,
                _ => {}
            }
            if !self.go_on(parameters) {
                return false;
            }
        }
    }

    fn finish(mut self, parameters: &mut [f32]) -> Option<StepMetadata> {
        while self.go_on(parameters) {}
        self.head
    }
}

#[cfg(test)]
mod tests;
