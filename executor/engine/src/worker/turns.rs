//! Standing still between two steps, so that others may have the GPU, and going on from there.
//!
//! The executor asks for it by the number of a turn in the job's task set. Only the chief follows that; it names the turn in its part of
//! a step, so that all read it in the answer to the same step and stand still before the next. Each goes on by itself when its own
//! executor says so, and then waits for the others in the step as in any. Connections stay, and their pulses go on: who stands still is
//! not hung.
//!
//! Whoever waits to be let in stands still by its own executor's word alone: a chief that stands still lets nobody in, and tells nobody.

use super::error::WorkerError;
use super::model::Model;
use super::train::Surroundings;
use crate::clock;
use crate::log;
use muster_model::assignment::{Peers, STANDING, TaskReport};
use muster_model::pace::Doing;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often the chief looks whether all are to stand still.
pub(super) const WANTED_EVERY: Duration = Duration::from_millis(20);

/// How often who stands still looks whether it is to go on.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How often who waits to be let in looks whether it is to stand still.
const OUTSIDE_EVERY: Duration = Duration::from_millis(50);

/// So long it waits for the chief to let it in all the same: then that stands still.
const OUTSIDE_PATIENCE: Duration = Duration::from_secs(1);

/// So long a device may have no room for who goes on: others' memory comes back a moment after they say so.
const ROOM_PATIENCE: Duration = Duration::from_secs(30);

/// One worker's turns.
pub(super) struct Turns<'a> {
    around: &'a Surroundings<'a>,
    looked_at: Option<Instant>,
    wanted: u64,
    /// In which it has stood still.
    newest: u64,
    /// Whether it still does, as far as its node knows.
    stands: bool,
    /// It was let in as it stood still, and its node has not said yet that it is to go on.
    owes_word: bool,
}

impl<'a> Turns<'a> {
    pub fn new(around: &'a Surroundings<'a>) -> Self {
        Self {
            around,
            looked_at: None,
            wanted: 0,
            newest: 0,
            stands: false,
            owes_word: false,
        }
    }

    /// A worker that has given the device's memory back and waits to be let in: stands still and goes on as its own executor says, until
    /// it `is_in`.
    ///
    /// # Errors
    /// When a report cannot be kept.
    pub fn wait_outside(&mut self, is_in: &AtomicBool) -> Result<(), WorkerError> {
        let mut held: Option<(u64, Instant)> = None;
        while !is_in.load(Ordering::Acquire) && !self.around.stop.is_set() {
            let peers = (self.around.peers)().unwrap_or_default();
            match peers.held_turn().filter(|turn| *turn > self.newest) {
                Some(turn) => match held.filter(|(of, _)| *of == turn) {
                    None => held = Some((turn, clock::now())),
                    Some((_, since)) if since.elapsed() < OUTSIDE_PATIENCE => {}
                    Some(_) => self.tell(turn, None)?,
                },
                None if self.stands && peers.turn > self.newest => {
                    self.rise();
                    self.tell_of_going_on(&peers, None)?;
                }
                None => {}
            }
            thread::park_timeout(OUTSIDE_EVERY);
        }
        Ok(())
    }

    /// The worker is let in with `step`, before which all stand still in turn `hold`, if that is not 0.
    ///
    /// # Errors
    /// As [`Self::stand_still`].
    pub fn come_in(&mut self, model: &mut Model, hold: u64, step: u64) -> Result<(), WorkerError> {
        if hold > 0 {
            self.stand_still(model, hold, step)?;
        }
        if self.around.stop.is_set() {
            return Ok(());
        }
        self.take_memory(model)?;
        if self.stands {
            // Either the chief goes on and this node does not know yet, or the chief does not know of the turn yet: it will name it in a
            // step that this worker is needed for.
            self.rise();
            self.owes_word = true;
        }
        self.keep_word(step)
    }

    /// Tells that it goes on with `step` once its node says so, where it was let in before.
    ///
    /// # Errors
    /// When a report cannot be kept.
    pub fn keep_word(&mut self, step: u64) -> Result<(), WorkerError> {
        if !self.owes_word {
            return Ok(());
        }
        match (self.around.peers)() {
            Some(peers) if peers.turn > self.newest => {
                self.owes_word = false;
                self.tell_of_going_on(&peers, Some(step))
            }
            _ => Ok(()),
        }
    }

    /// Chief: the turn in which all are to stand still; 0 while they are to go on.
    pub fn wanted(&mut self) -> u64 {
        let looked_at = self.looked_at;
        if looked_at.is_none_or(|at| at.elapsed() >= WANTED_EVERY) {
            self.looked_at = Some(clock::now());
            if let Some(peers) = (self.around.peers)() {
                self.wanted = peers.held_turn().unwrap_or(0);
            }
        }
        match self.wanted > self.newest {
            true => self.wanted,
            false => 0,
        }
    }

    /// Gives the device's memory back and stands still until a later turn, for how long; `step` comes next. A task that is told to stop
    /// does not take the memory again: [`Self::may_go_on`] does, where there is a step more.
    ///
    /// A turn that this worker has gone on from already, as it waited to be let in, is over.
    ///
    /// # Errors
    /// When the device does not give or take memory, or a report cannot be kept.
    pub fn stand_still(
        &mut self,
        model: &mut Model,
        turn: u64,
        step: u64,
    ) -> Result<Duration, WorkerError> {
        let began = clock::now();
        if turn <= self.newest && !self.stands && !self.owes_word {
            return Ok(began.elapsed());
        }
        model.pacer.doing(Doing::Standing);
        model.give_memory()?;
        if turn > self.newest || self.owes_word {
            self.tell(turn, Some(step))?;
        }
        log::line(format_args!(
            "stands still before step {step}, in turn {turn}"
        ));
        let next = loop {
            if self.around.stop.is_set() {
                return Ok(began.elapsed());
            }
            // Even where all are to stand still again: the others may have gone on in between, and wait for this worker in the step that
            // names the newer turn.
            match (self.around.peers)() {
                Some(peers) if peers.turn > self.newest => break peers,
                _ => thread::sleep(LOOK_EVERY),
            }
        };
        match self.take_memory(model) {
            Err(_) if self.around.stop.is_set() => return Ok(began.elapsed()),
            taken => taken?,
        }
        self.rise();
        self.tell_of_going_on(&next, Some(step))?;
        self.looked_at = None;
        model.pacer.doing(Doing::Waiting);
        let stood = began.elapsed();
        log::line(format_args!(
            "goes on with step {step} after {:.0} ms",
            stood.as_secs_f64() * 1e3
        ));
        Ok(stood)
    }

    /// Told to stop, with one step more to do: whether the device has room for it.
    pub fn may_go_on(&self, model: &mut Model) -> bool {
        let taken = self.take_memory(model);
        if let Err(error) = &taken {
            log::line(format_args!("no step more: {error}"));
        }
        taken.is_ok()
    }

    /// First for this node, which lets others have the GPU, then for the scheduler, which gives it to them.
    fn tell(&mut self, turn: u64, step: Option<u64>) -> Result<(), WorkerError> {
        self.newest = turn;
        self.stands = true;
        self.owes_word = false;
        let path = self.around.folder.join(STANDING);
        let fresh = self.around.folder.join("standing.new");
        let kept: io::Result<()> =
            fs::write(&fresh, turn.to_string()).and_then(|()| fs::rename(&fresh, &path));
        kept?;
        Ok(self
            .around
            .reporter
            .report(&TaskReport::Suspended { turn, step })?)
    }

    /// For this node.
    fn rise(&mut self) {
        self.stands = false;
        if let Err(error) = fs::remove_file(self.around.folder.join(STANDING)) {
            log::line(format_args!(
                "could not take back that it stands still: {error}"
            ));
        }
    }

    /// For the scheduler, by the turn in which all were told to.
    fn tell_of_going_on(&self, peers: &Peers, step: Option<u64>) -> Result<(), WorkerError> {
        let turn = peers.held_turn().map_or(peers.turn, |held| held - 1);
        let report = TaskReport::Continued { turn, step };
        Ok(self.around.reporter.report(&report)?)
    }

    /// Waits a while for room, as long as there is time for it.
    fn take_memory(&self, model: &mut Model) -> Result<(), WorkerError> {
        let began = clock::now();
        loop {
            match model.take_memory() {
                Err(error) if began.elapsed() < ROOM_PATIENCE && !self.around.stop.must_hurry() => {
                    log::line(format_args!("no room on the device yet: {error}"));
                    thread::sleep(Duration::from_millis(100));
                }
                taken => return taken,
            }
        }
    }
}
