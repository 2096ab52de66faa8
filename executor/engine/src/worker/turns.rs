//! Standing still between two steps, so that others may have the GPU, and going on from there.
//!
//! The executor asks for it by the number of a turn in the job's task set. Only the chief follows that; it names the turn in its part of
//! a step, so that all read it in the answer to the same step and stand still before the next. Each goes on by itself when its own
//! executor says so, and then waits for the others in the step as in any. Connections stay, and their pulses go on: who stands still is
//! not hung.

use super::error::WorkerError;
use super::model::Model;
use super::train::Surroundings;
use crate::clock;
use crate::log;
use muster_model::assignment::{Peers, STANDING, TaskReport};
use muster_model::pace::Doing;
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// How often the chief looks whether all are to stand still.
const WANTED_EVERY: Duration = Duration::from_millis(20);

/// How often who stands still looks whether it is to go on.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// So long a device may have no room for who goes on: others' memory comes back a moment after they say so.
const ROOM_PATIENCE: Duration = Duration::from_secs(30);

/// One worker's turns.
pub(super) struct Turns<'a> {
    around: &'a Surroundings<'a>,
    looked_at: Option<Instant>,
    wanted: u64,
    /// In which it has stood still.
    newest: u64,
}

impl<'a> Turns<'a> {
    pub fn new(around: &'a Surroundings<'a>) -> Self {
        Self {
            around,
            looked_at: None,
            wanted: 0,
            newest: 0,
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

    /// Gives the device's memory back and stands still until a later turn, or until the task is told to stop; for how long. `step` comes
    /// next.
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
        model.pacer.doing(Doing::Standing);
        model.give_memory()?;
        self.tell(turn, step)?;
        log::line(format_args!(
            "stands still before step {step}, in turn {turn}"
        ));
        let next = loop {
            if self.around.stop.is_set() {
                // Whoever holds back gradients does one step more, for the last checkpoint.
                model.take_memory()?;
                return Ok(began.elapsed());
            }
            match (self.around.peers)().map(|peers: Peers| (peers.turn, peers.held_turn())) {
                Some((_, Some(later))) if later > self.newest => self.tell(later, step)?,
                Some((now, None)) if now > self.newest => break now,
                _ => thread::sleep(LOOK_EVERY),
            }
        };
        self.take_memory(model)?;
        if let Err(error) = fs::remove_file(self.around.folder.join(STANDING)) {
            log::line(format_args!(
                "could not take back that it stands still: {error}"
            ));
        }
        self.around.reporter.report(&TaskReport::Continued {
            turn: next,
            step: Some(step),
        })?;
        model.pacer.doing(Doing::Waiting);
        let stood = began.elapsed();
        log::line(format_args!(
            "goes on with step {step} after {:.0} ms",
            stood.as_secs_f64() * 1e3
        ));
        Ok(stood)
    }

    /// First for this node, which lets others have the GPU, then for the scheduler, which gives it to them.
    fn tell(&mut self, turn: u64, step: u64) -> Result<(), WorkerError> {
        self.newest = turn;
        let path = self.around.folder.join(STANDING);
        let fresh = self.around.folder.join("standing.new");
        let kept: io::Result<()> =
            fs::write(&fresh, turn.to_string()).and_then(|()| fs::rename(&fresh, &path));
        kept?;
        let step = Some(step);
        Ok(self
            .around
            .reporter
            .report(&TaskReport::Suspended { turn, step })?)
    }

    fn take_memory(&self, model: &mut Model) -> Result<(), WorkerError> {
        let began = clock::now();
        loop {
            match model.take_memory() {
                Err(error) if began.elapsed() < ROOM_PATIENCE && !self.around.stop.is_set() => {
                    log::line(format_args!("no room on the device yet: {error}"));
                    thread::sleep(Duration::from_millis(100));
                }
                taken => return taken,
            }
        }
    }
}
