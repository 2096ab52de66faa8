//! A step whose gradients are summed by need while they are computed, and whose parameters are updated while the next step begins.
//!
//! One thread sums range after range, in the order that [`super::ranges`] decides; this one computes. Once the backward pass is over
//! it makes the update of each range that is summed, and goes forward through the next step as far as its parameters are there. The
//! bits are those of an update of the whole at the end, as no number's update looks at another's.
//!
//! The step's head goes with the first range, whose gradients are the last to be ready, and before it is known nothing is updated: the
//! step may be none. It is known before the next step can begin as well, since that begins with the first range, so nothing is begun that
//! would be thrown away because members change, training is over or all stand still. What is thrown away is begun before a death that
//! cuts the next step differently, and before an evaluation: the [model](super::super::model::Model) sees to that.
//!
//! With its head a step is decided: whoever has it makes the whole update. Should the end of all views come then, as it does to a chief that is
//! told to stop while a member leaves, the ranges that are left are of this worker's gradients alone: it is left of the step's members, as after
//! deaths, and what it keeps of the job is a whole step. The other ways were to keep what parameters and state were before, another copy of them
//! in every step, or to have no checkpoint then.

use super::ranges::{Line, Ranges, mark};
use crate::collective::{Group, Reduced};
use crate::fabric::FabricError;
use crate::parts::Order;
use crate::worker::head::Head;
use crate::worker::link::Spares;
use crate::worker::shards::{Fetch, Ready};
use std::collections::BTreeMap;
use std::mem;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

/// Ranges whose update is made at once, before it is looked whether a more urgent one has come.
const AT_ONCE: usize = 8;

/// What a worker computes around such an exchange.
pub trait Work {
    /// The gradients of the step; `ready` is told of them from the last to the first.
    fn compute(&mut self, ready: Ready<'_>) -> Head;

    /// As much of the next step as can be before all sums are there. All parameters are in place only once the exchange is over.
    fn go_ahead(&mut self, fetch: Fetch<'_>);

    /// Where parameters belong.
    fn parameters(&mut self) -> &mut [f32];
}

/// A range's sum over all workers' examples, and what makes its mean of it.
#[derive(Debug)]
pub struct Sum {
    pub range: Range<usize>,
    pub scale: f32,
    pub floats: Vec<f32>,
}

/// Updates parameters by these sums, ascending.
pub type Apply<'a> = &'a mut (dyn FnMut(&mut [f32], &[Sum]) + Send);

/// What makes the mean of a sum, by what is known of it, and of this worker's gradients alone.
pub trait Scale: Sync {
    fn of_sum(&self, group: &Group, reduced: Reduced) -> f32;

    fn of_own(&self, head: &Head) -> f32;
}

/// What became of a step.
#[derive(Debug)]
pub struct Outcome {
    /// Over all workers, where it came to be known. Then the whole update was made, unless training is over.
    pub head: Option<Head>,
    /// Whether all was summed.
    pub ended: Result<(), FabricError>,
}

/// How the steps of a job go by need.
#[derive(Debug)]
pub struct ByNeed {
    ranges: Ranges,
    order: Order,
    spares: Spares,
}

impl ByNeed {
    #[must_use]
    pub fn new(ranges: Ranges, order: Order) -> Self {
        Self {
            ranges,
            order,
            spares: Spares::default(),
        }
    }

    /// Of what a group's arena must have room for.
    #[must_use]
    pub fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// Computes a step, sums it and makes its update; begins the next one meanwhile.
    pub fn exchange(
        &self,
        group: &mut Group,
        work: &mut dyn Work,
        scale: &dyn Scale,
        apply: Apply<'_>,
    ) -> Outcome {
        let count = self.ranges.count();
        let (ready, arrivals) = channel();
        let (events, sums) = channel();
        let summing = Summing {
            of: self,
            group,
            scale,
            line: Line::new(count, self.order),
            arrivals,
            events,
            ready: count,
            own: None,
            is_decided: false,
        };
        thread::scope(|scope| {
            let summing = scope.spawn(|| summing.run());
            let mut feeding = Feeding {
                of: self,
                ready: &ready,
                left: count,
            };
            let head = work.compute(&mut |done, gradients| feeding.feed(done.start, gradients));
            // Nobody listens once the sums have failed; their error is what counts.
            let _ = ready.send(Arrival::Head(head));
            drop(ready);
            let mut incoming = Incoming {
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
            Outcome { head, ended }
        })
    }

    /// The chief's part in a step that is none: it tells everyone that training is over.
    ///
    /// # Errors
    /// As [`Group::all_reduce`].
    pub fn finish(&self, group: &mut Group) -> Result<(), FabricError> {
        let head = Head {
            finish: true,
            ..Head::default()
        };
        // No mark is set: it waits for nothing.
        group.gradients_mut().fill(0.0);
        head.write(group.gradients_mut());
        let mut line = Line::new(self.ranges.count(), self.order);
        while let Some(at) = line.take() {
            group.all_reduce(self.ranges.summed(at))?;
            line.hear(&group.sums()[self.ranges.marks(at)]);
        }
        Ok(())
    }
}

/// What the backward pass has.
enum Arrival {
    Range(usize, Vec<f32>),
    /// The last: of all that it has computed.
    Head(Head),
}

/// Hands over the ranges whose gradients are final.
struct Feeding<'a> {
    of: &'a ByNeed,
    ready: &'a Sender<Arrival>,
    /// Ranges before this one are still to come.
    left: usize,
}

impl Feeding<'_> {
    /// All gradients from `start` on are.
    fn feed(&mut self, start: usize, gradients: &[f32]) {
        while self.left > 0 && self.of.ranges.parameters(self.left - 1).start >= start {
            self.left -= 1;
            let mut floats = self.of.spares.take();
            floats.clear();
            floats.extend_from_slice(&gradients[self.of.ranges.parameters(self.left)]);
            let _ = self.ready.send(Arrival::Range(self.left, floats));
        }
    }
}

/// A range's sum, and where it was the first one's, the step's head.
struct Event {
    at: usize,
    sum: Sum,
    head: Option<Head>,
}

/// The thread that sums.
struct Summing<'a> {
    of: &'a ByNeed,
    group: &'a mut Group,
    scale: &'a dyn Scale,
    line: Line,
    arrivals: Receiver<Arrival>,
    events: Sender<Event>,
    /// The gradients of all ranges from this one on are in the arena.
    ready: usize,
    /// This worker's own part of the head.
    own: Option<Head>,
    /// Whether the step's head is known.
    is_decided: bool,
}

impl Summing<'_> {
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

    /// Takes in what has become ready, and waits for this range; `false` when nobody computes it any more.
    fn wait_for(&mut self, at: usize) -> bool {
        loop {
            let is_there = self.ready <= at && (at > 0 || self.own.is_some());
            let arrival = match is_there {
                false => self.arrivals.recv().map_err(|_| TryRecvError::Disconnected),
                true => self.arrivals.try_recv(),
            };
            match arrival {
                Ok(arrival) => self.take_in(arrival),
                Err(_) => return is_there,
            }
        }
    }

    fn take_in(&mut self, arrival: Arrival) {
        let arena = self.group.gradients_mut();
        match arrival {
            Arrival::Range(at, floats) => {
                arena[self.of.ranges.gradients(at)].copy_from_slice(&floats);
                self.of.spares.give(floats);
                self.ready = at;
            }
            Arrival::Head(head) => {
                head.write(arena);
                self.own = Some(head);
            }
        }
    }

    fn tell(&mut self, at: usize, reduced: Reduced) {
        let (ranges, sums) = (&self.of.ranges, self.group.sums());
        self.line.hear(&sums[ranges.marks(at)]);
        let head = (at == 0).then(|| Head::read(sums));
        self.is_decided |= head.is_some();
        let scale = self.scale.of_sum(self.group, reduced);
        // The next sum may come about in another view, whose memory does not have this one.
        self.send(at, scale, &sums[ranges.gradients(at)], head);
    }

    /// This worker is left of the step's members: what is not summed yet is its own.
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

    fn send(&self, at: usize, scale: f32, sums: &[f32], head: Option<Head>) {
        let mut floats = self.of.spares.take();
        floats.clear();
        floats.extend_from_slice(sums);
        let range = self.of.ranges.parameters(at);
        let sum = Sum {
            range,
            scale,
            floats,
        };
        // It is read until the end.
        let _ = self.events.send(Event { at, sum, head });
    }
}

/// What is known of the sums.
struct Incoming<'a> {
    of: &'a ByNeed,
    sums: Receiver<Event>,
    /// By range, whether its update is still to be made.
    missing: Vec<bool>,
    /// Those that wait for it.
    waiting: BTreeMap<usize, Sum>,
    head: Option<Head>,
    apply: Apply<'a>,
}

impl Incoming<'_> {
    /// Updates the first of what is summed, or waits for more; `false` once there is nothing more to do.
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
        let first: Vec<Sum> = first.into_values().collect();
        (self.apply)(parameters, &first);
        let spares = first.into_iter().map(|sum| sum.floats);
        spares.for_each(|floats| self.of.spares.give(floats));
        true
    }

    fn take_in(&mut self, event: Event) {
        self.head = self.head.or(event.head);
        self.waiting.insert(event.at, event.sum);
    }

    fn fetch(&mut self, range: &Range<usize>, parameters: &mut [f32]) -> bool {
        let covering = self.of.ranges.covering(range);
        let is_plain = |head: Head| !(head.finish || head.regroup || head.stats.hold > 0);
        loop {
            match self.head {
                Some(head) if !is_plain(head) => return false,
                Some(_) if !self.missing[covering.clone()].contains(&true) => return true,
                _ => {}
            }
            if !self.go_on(parameters) {
                return false;
            }
        }
    }

    fn finish(mut self, parameters: &mut [f32]) -> Option<Head> {
        while self.go_on(parameters) {}
        self.head
    }
}

#[cfg(test)]
mod tests;
