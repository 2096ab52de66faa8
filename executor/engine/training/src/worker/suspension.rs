//! Suspension between two steps, so that other jobs can use the GPU, and resumption.
//!
//! The executor requests a suspension through the slice number in the job's task set. Only the
//! coordinator reads it there and names it in its part of a step. So all workers read it in the
//! answer to the same step and suspend before the next one. Each worker resumes when its own
//! executor requests it, and then waits for the others in the step. Connections and heartbeats
//! stay, so a suspended worker does not count as hung.
//!
//! A worker that waits for admission suspends on the request of its own executor alone. A suspended
//! coordinator admits no worker and sends nothing.

use super::context::WorkerContext;
use super::error::WorkerError;
use super::model::WorkerModel;
use muster_comm::log;
use muster_compute::clock;
use muster_model::assignment::{Peers, STANDING, TaskReport};
use muster_model::pace::Doing;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which the coordinator checks for a suspension request.
pub(super) const WANTED_EVERY: Duration = Duration::from_millis(20);

/// Interval at which a suspended worker checks for a resumption.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Interval at which a worker that waits for admission checks for a suspension request.
const OUTSIDE_EVERY: Duration = Duration::from_millis(50);

/// Time in which a worker with a suspension request still expects admission. A coordinator that
/// admits it no sooner is suspended.
const OUTSIDE_PATIENCE: Duration = Duration::from_secs(1);

/// Time for which a device may lack room for a resumed worker. The memory of other jobs is free a
/// moment after they report their suspension.
const ROOM_PATIENCE: Duration = Duration::from_secs(30);

/// Suspensions of one worker.
pub(super) struct SuspensionControl<'a> {
    ctx: &'a WorkerContext<'a>,
    looked_at: Option<Instant>,
    wanted: u64,
    /// Slice number of the newest suspension.
    newest: u64,
    /// Whether this worker is suspended, as far as its node knows.
    stands: bool,
    /// This worker was admitted while suspended, and its node has not requested the resumption yet.
    owes_word: bool,
}

impl<'a> SuspensionControl<'a> {
    pub fn new(ctx: &'a WorkerContext<'a>) -> Self {
        Self {
            ctx,
            looked_at: None,
            wanted: 0,
            newest: 0,
            stands: false,
            owes_word: false,
        }
    }

    /// Suspends and resumes on the request of this node's executor until `is_in`. The worker waits
    /// for admission and has released the device's memory.
    ///
    /// # Errors
    /// When a report cannot be stored.
    pub fn wait_outside(&mut self, is_in: &AtomicBool) -> Result<(), WorkerError> {
        let mut held: Option<(u64, Instant)> = None;
        while !is_in.load(Ordering::Acquire) && !self.ctx.stop.is_set() {
            let peers = (self.ctx.peers)().unwrap_or_default();
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

    /// Starts with `step` after admission. All workers suspend before it in slice `hold`, if that
    /// is not 0.
    ///
    /// # Errors
    /// As [`Self::stand_still`].
    pub fn come_in(
        &mut self,
        model: &mut WorkerModel,
        hold: u64,
        step: u64,
    ) -> Result<(), WorkerError> {
        if hold > 0 {
            self.stand_still(model, hold, step)?;
        }
        if self.ctx.stop.is_set() {
            return Ok(());
        }
        self.take_memory(model)?;
        if self.stands {
            // Either the coordinator has resumed and this node does not know yet, or the
            // coordinator does not know the slice yet. It then names the slice in a step that needs
            // this worker.
            self.rise();
            self.owes_word = true;
        }
        self.keep_word(step)
    }

    /// Reports the resumption with `step` once the node requests it, if the worker was admitted
    /// before.
    ///
    /// # Errors
    /// When a report cannot be stored.
    pub fn keep_word(&mut self, step: u64) -> Result<(), WorkerError> {
        if !self.owes_word {
            return Ok(());
        }
        match (self.ctx.peers)() {
            Some(peers) if peers.turn > self.newest => {
                self.owes_word = false;
                self.tell_of_going_on(&peers, Some(step))
            }
            _ => Ok(()),
        }
    }

    /// Coordinator: returns the slice number in which all must suspend; 0 if none.
    pub fn wanted(&mut self) -> u64 {
        let looked_at = self.looked_at;
        if looked_at.is_none_or(|at| at.elapsed() >= WANTED_EVERY) {
            self.looked_at = Some(clock::now());
            if let Some(peers) = (self.ctx.peers)() {
                self.wanted = peers.held_turn().unwrap_or(0);
            }
        }
        if self.wanted > self.newest {
            self.wanted
        } else {
            0
        }
    }

    /// Releases the device's memory and suspends until a later slice number. Returns the duration;
    /// `step` is the next step. A task that must stop does not allocate the memory again;
    /// [`Self::may_go_on`] does so if another step follows.
    ///
    /// Does nothing for a slice from which this worker resumed while it waited for admission.
    ///
    /// # Errors
    /// When the device cannot release or allocate memory, or a report cannot be stored.
    pub fn stand_still(
        &mut self,
        model: &mut WorkerModel,
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
            "suspended before step {step}, in time slice {turn}"
        ));
        let next = loop {
            if self.ctx.stop.is_set() {
                return Ok(began.elapsed());
            }
            // A later slice number resumes this worker even if it requests another suspension. The
            // others may have resumed in between and wait for this worker in the step that names
            // the newer number.
            match (self.ctx.peers)() {
                Some(peers) if peers.turn > self.newest => break peers,
                _ => thread::sleep(LOOK_EVERY),
            }
        };
        match self.take_memory(model) {
            Err(_) if self.ctx.stop.is_set() => return Ok(began.elapsed()),
            taken => taken?,
        }
        self.rise();
        self.tell_of_going_on(&next, Some(step))?;
        self.looked_at = None;
        model.pacer.doing(Doing::Waiting);
        let stood = began.elapsed();
        log::line(format_args!(
            "resumes with step {step} after {:.0} ms",
            stood.as_secs_f64() * 1e3
        ));
        Ok(stood)
    }

    /// Whether the device has room for another step, after a stop request.
    pub fn may_go_on(&self, model: &mut WorkerModel) -> bool {
        let taken = self.take_memory(model);
        if let Err(error) = &taken {
            log::line(format_args!("no step more: {error}"));
        }
        taken.is_ok()
    }

    /// Reports the suspension to this node, which lets other jobs use the GPU, then to the
    /// scheduler, which assigns it.
    fn tell(&mut self, turn: u64, step: Option<u64>) -> Result<(), WorkerError> {
        self.newest = turn;
        self.stands = true;
        self.owes_word = false;
        let path = self.ctx.folder.join(STANDING);
        let fresh = self.ctx.folder.join("standing.new");
        let kept: io::Result<()> =
            fs::write(&fresh, turn.to_string()).and_then(|()| fs::rename(&fresh, &path));
        kept?;
        Ok(self
            .ctx
            .reporter
            .report(&TaskReport::Suspended { turn, step })?)
    }

    /// Withdraws the suspension on this node.
    fn rise(&mut self) {
        self.stands = false;
        if let Err(error) = fs::remove_file(self.ctx.folder.join(STANDING)) {
            log::line(format_args!("could not withdraw its suspension: {error}"));
        }
    }

    /// Reports the resumption to the scheduler, with the slice number that requested it.
    fn tell_of_going_on(&self, peers: &Peers, step: Option<u64>) -> Result<(), WorkerError> {
        let turn = peers.held_turn().map_or(peers.turn, |held| held - 1);
        let report = TaskReport::Continued { turn, step };
        Ok(self.ctx.reporter.report(&report)?)
    }

    /// Allocates the device's memory. Waits for room while the stop deadline permits.
    fn take_memory(&self, model: &mut WorkerModel) -> Result<(), WorkerError> {
        let began = clock::now();
        loop {
            match model.take_memory() {
                Err(error) if began.elapsed() < ROOM_PATIENCE && !self.ctx.stop.must_hurry() => {
                    log::line(format_args!("no room on the device yet: {error}"));
                    thread::sleep(Duration::from_millis(100));
                }
                taken => return taken,
            }
        }
    }
}
