//! A step that goes to the shards in parts while it is computed, and comes back in parts while the next one begins.
//!
//! Gradients go to their shard as soon as the backward pass has them, the most urgent of those that are ready first; a shard applies and
//! answers each part by itself ([`crate::shard`]), and the next forward pass begins with the layers whose parameters are there. What it
//! has computed is worth nothing when an answer says that another view begins; then it is thrown away.

use super::super::link::{Link, Outgoing, Patience, Reply, Spares, Told};
use super::{ShardFailure, Shards};
use crate::assign::load;
use crate::parts::{Order, Plan, Queue};
use crate::wire::WireError;
use crate::wire::hello::{PushHead, StepStats};
use crate::wire::view::View;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Told which gradients are final, and given all of them.
pub type Ready<'a> = &'a mut (dyn FnMut(Range<usize>, &[f32]) + Send);

/// Waits until these parameters are in place; `false` when the step that needs them is not to be computed like this.
pub type Fetch<'a> = &'a mut (dyn FnMut(Range<usize>, &mut [f32]) -> bool + Send);

/// What a worker computes around an exchange in parts.
pub trait Pass {
    /// The gradients of the step; `ready` is told of them from the last to the first.
    fn compute(&mut self, ready: Ready<'_>) -> StepStats;

    /// As much of the next step as can be before the answers are all there. All parameters are in place only once this is over.
    fn go_ahead(&mut self, fetch: Fetch<'_>);

    /// Where parameters belong.
    fn parameters(&mut self) -> &mut [f32];
}

/// What came from a shard.
enum Event {
    Part(usize, usize, Vec<f32>),
    Told(usize, Result<Told, WireError>),
}

/// What is known of the answers.
struct Incoming<'a> {
    plan: &'a Plan,
    events: Receiver<Event>,
    spares: &'a Spares,
    /// By place of the plan.
    missing: Vec<bool>,
    told: Vec<Option<Result<Told, WireError>>>,
    /// Whether all that was told so far is that training goes on as it was.
    is_plain: bool,
}

impl Incoming<'_> {
    /// `false` once nothing more can come.
    fn hear(&mut self, parameters: &mut [f32]) -> bool {
        match self.events.recv() {
            Err(_) => return false,
            Ok(Event::Part(shard, part, numbers)) => {
                let at = self.plan.find(shard, part).expect("the link has checked");
                self.plan.places()[at].write(&numbers, parameters);
                self.missing[at] = false;
                self.spares.give(numbers);
            }
            Ok(Event::Told(shard, told)) => {
                self.is_plain &= matches!(
                    &told,
                    Ok(Told {
                        reply: Reply::Parameters { .. },
                        view: None,
                        ..
                    })
                );
                self.told[shard] = Some(told);
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

    /// All answers; a shard that says it has sent everything must have.
    fn finish(mut self, parameters: &mut [f32]) -> Result<Vec<(usize, Told)>, ShardFailure> {
        while self.hear(parameters) {}
        let mut all = Vec::with_capacity(self.told.len());
        for (shard, told) in self.told.into_iter().enumerate() {
            let told = told.expect("each link says how it ended");
            let told = told.map_err(|error| (shard, error))?;
            let places = self.plan.places().iter().zip(&self.missing);
            let lacks = places.filter(|(place, _)| place.shard == shard);
            let says_all = matches!(told.reply, Reply::Parameters { .. });
            if says_all && lacks.into_iter().any(|(_, missing)| *missing) {
                return Err((
                    shard,
                    WireError::Malformed("answer in parts, with parts missing"),
                ));
            }
            all.push((shard, told));
        }
        Ok(all)
    }
}

impl Shards {
    /// Steps go in parts from now on, in this order; `None`: at once. For BSP without backup workers, clipping, LARS, codecs and copies.
    #[must_use]
    pub fn in_parts(self, parts: Option<Order>) -> Self {
        Self { parts, ..self }
    }

    /// Whether steps go in parts.
    #[must_use]
    pub fn goes_in_parts(&self) -> bool {
        self.parts.is_some()
    }

    /// Computes step `clock`, gives the gradients while they come about and receives the parameters after it.
    ///
    /// # Errors
    /// As [`Self::join`].
    ///
    /// # Panics
    /// Before there is a view.
    pub fn exchange(
        &mut self,
        clock: u64,
        pass: &mut dyn Pass,
        patience: Patience<'_>,
    ) -> Result<Reply, ShardFailure> {
        let view = self.view.as_ref().expect("a worker pushes under a view");
        let plan = match self.plan.take() {
            Some((layout, plan)) if layout == view.layout => plan,
            _ => Plan::new(&view.assignment()),
        };
        let (number, layout) = (view.number, view.layout);
        let (head, told) = self.exchange_by(&plan, clock, pass, patience);
        self.plan = Some((layout, plan));
        self.pushed = Some((
            clock,
            PushHead {
                view: number,
                ..head
            },
        ));
        self.settle(told?, None, &mut [], patience)
    }

    fn exchange_by(
        &mut self,
        plan: &Plan,
        clock: u64,
        pass: &mut dyn Pass,
        patience: Patience<'_>,
    ) -> (PushHead, Result<Vec<(usize, Told)>, ShardFailure>) {
        let view = self.view.as_ref().expect("a worker pushes under a view");
        let (spares, targets) = (&self.spares, self.targets);
        let order = self.parts.unwrap_or_default();
        let queues: Vec<_> = self.links.iter().map(|_| Queue::new(order)).collect();
        let rest = OnceLock::new();
        let (events, arrivals) = channel();
        let incoming = Incoming {
            plan,
            events: arrivals,
            spares,
            missing: vec![true; plan.places().len()],
            told: self.links.iter().map(|_| None).collect(),
            is_plain: true,
        };
        thread::scope(|scope| {
            for (shard, (link, queue)) in self.links.iter_mut().zip(&queues).enumerate() {
                let outgoing = Outgoing {
                    clock,
                    view: view.number,
                    queue,
                    rest: &rest,
                    spares,
                };
                let events = events.clone();
                scope.spawn(move || {
                    let told = converse(link, shard, outgoing, view, patience, &events);
                    // It is read until the end.
                    let _ = events.send(Event::Told(shard, told));
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
            queues.iter().for_each(Queue::close);
            let mut incoming = incoming;
            pass.go_ahead(&mut |range, parameters| incoming.fetch(&range, parameters));
            (head, incoming.finish(pass.parameters()))
        })
    }

    /// Of a push in parts, an answer that is still owed.
    pub(super) fn hear_parts(
        link: &mut Link,
        view: &View,
        patience: Patience<'_>,
        parts: &mut [&mut [f32]],
    ) -> Result<Told, WireError> {
        let numbers = load(view.pieces(link.shard));
        link.hear_parts(numbers, &Spares::default(), patience, &mut |part, got| {
            put(parts, crate::parts::range(part, numbers).start, &got);
        })
    }
}

/// Writes into a shard's parts of the arena what begins with number `offset` of its own.
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

/// Puts the parts of gradients that are final into the queues.
fn feeding<'a>(
    plan: &'a Plan,
    queues: &'a [Queue<Vec<f32>>],
    spares: &'a Spares,
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

/// Sends to a shard on a thread of its own while this one hears what it says.
fn converse(
    link: &mut Link,
    shard: usize,
    outgoing: Outgoing<'_>,
    view: &View,
    patience: Patience<'_>,
    events: &Sender<Event>,
) -> Result<Told, WireError> {
    let numbers = load(view.pieces(link.shard));
    let mut speaker = link.speaker()?;
    let spares = outgoing.spares;
    let told = thread::scope(|scope| {
        let sending = scope.spawn(|| outgoing.send(shard, &mut speaker));
        let told = link.hear_parts(numbers, spares, patience, &mut |part, got| {
            let _ = events.send(Event::Part(shard, part, got));
        });
        // Why it failed is what the other side of the connection was told.
        let _ = sending.join().expect("a link does not panic");
        told
    });
    link.keep_speaker(speaker);
    told
}
