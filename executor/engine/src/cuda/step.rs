//! A step of a training that stays on its GPU. Its examples go through the network in parts, whose gradients and losses add up there; the update
//! follows the last one's.
//!
//! Parts that are alike do the same from the same addresses, so each kind of them is written down once and repeated. What differs between them, and
//! between steps, lies outside: a part's examples are uploaded before it, from wherever they were laid, to the one place that passes read; and the
//! step's numbers are read from their one place when the last part is repeated, where the host leaves them alone until the step has been waited
//! for. Uploads and parts go one after another on one stream, so none overtakes the pass before it.

use super::error::DeviceError;
use super::resident::Resident;
use super::update::{self, Places};
use crate::layer::matrix::Write;
use crate::loss::StepLoss;
use std::ops::Range;

/// Steps before one is written down: cuBLASLt chooses its algorithms, and the driver loads kernels, when they are first used.
const WARM_UP: usize = 2;

/// What tells one part of a step from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) examples: usize,
    is_first: bool,
    pub(super) is_last: bool,
}

impl Part {
    /// What becomes of the gradients and the loss that are there.
    pub(super) fn write(self) -> Write {
        if self.is_first {
            Write::Overwrite
        } else {
            Write::Add
        }
    }
}

/// The parts of so many examples, as [`crate::model::Network::loss_and_grad`] makes them, each with its place among them.
pub(super) fn parts(
    examples: usize,
    at_once: usize,
) -> impl Iterator<Item = (Range<usize>, Part)> + use<> {
    (0..examples).step_by(at_once).map(move |start| {
        let end = (start + at_once).min(examples);
        let part = Part {
            examples: end - start,
            is_first: start == 0,
            is_last: end == examples,
        };
        (start..end, part)
    })
}

impl Resident {
    /// One step on the batch that was laid last: gradients as sums over its examples, times `grad_scale`.
    ///
    /// # Errors
    /// What the GPU complained of; it can make no step any more.
    ///
    /// # Panics
    /// When no batch was laid, or while the memory is given back.
    pub fn step(&mut self, grad_scale: f32) -> Result<StepLoss, DeviceError> {
        self.begin(grad_scale);
        self.wait()
    }

    /// Asks for that step and returns at once; [`Self::wait`] is next.
    ///
    /// # Panics
    /// As [`Self::step`].
    pub fn begin(&mut self, grad_scale: f32) {
        let (examples, place) = self.take_laid();
        let steps = if self.warm.0 == examples {
            self.warm.1
        } else {
            0
        };
        let writes_down = steps == WARM_UP && self.session.queue.can_record();
        self.tell(grad_scale);
        for (range, part) in parts(examples, self.session.max_batch) {
            self.session.upload_part(&self.network, range, place);
            let known = self.recorded.iter().position(|known| *known == part);
            match known {
                Some(number) => self.session.queue.replay(number),
                None if writes_down => {
                    self.session.queue.record();
                    self.ask(part);
                    let number = self.session.queue.recorded();
                    self.recorded.push(part);
                    self.session.queue.replay(number);
                }
                None => self.ask(part),
            }
        }
        self.warm = (examples, (steps + 1).min(WARM_UP));
        self.session.ask_loss();
        self.step += 1;
        self.is_under_way = true;
    }

    /// Waits for the step that was begun.
    ///
    /// # Errors
    /// What the GPU complained of; it can make no step any more.
    ///
    /// # Panics
    /// When none was begun.
    pub fn wait(&mut self) -> Result<StepLoss, DeviceError> {
        assert!(self.is_under_way, "a step was begun");
        self.is_under_way = false;
        self.session.await_loss()
    }

    /// How many examples the step that begins now has, and where they lie.
    pub(super) fn take_laid(&mut self) -> (usize, usize) {
        let (examples, place) = self.laid;
        assert!(examples > 0, "a step needs a batch");
        assert!(!self.is_under_way, "one step at a time");
        self.begun = place;
        (examples, place)
    }

    /// Asks for all of a part, from its examples on the device; of the last one also for the update, to the parameters' copies for the next
    /// step.
    fn ask(&mut self, part: Part) {
        self.session.cast_batch(&self.network, part.examples);
        let write = part.write();
        self.session
            .pass(&self.network, part.examples, write, &mut |_, _| {});
        if part.is_last {
            self.send_told();
            self.update();
        }
    }

    /// Lays what the update's kernels are to be told of this step.
    pub(super) fn tell(&mut self, grad_scale: f32) {
        let told = update::factors(&self.optimizer, self.step, grad_scale);
        let told = bytemuck::cast_slice(&told);
        self.session.host.factors.copy_from_slice(told);
    }

    /// Sends what [`Self::tell`] has laid.
    pub(super) fn send_told(&mut self) {
        let to = self.session.at(self.session.regions.factors);
        self.session.queue.upload(self.session.host.factors, to);
    }

    /// Asks for the update by the gradients that are there and what was sent.
    pub(super) fn update(&mut self) {
        let session = &mut self.session;
        let places = Places {
            state: session.at(session.regions.state),
            parameters: self.network.parameter_count(),
            norms: session.at(session.regions.norms),
            squares: session.at(session.regions.squares),
            factors: session.at(session.regions.factors),
            arenas: &session.arenas,
        };
        let (queue, blocks) = (&mut *session.queue, self.network.blocks());
        if let Some(limit) = self.clip_norm {
            update::clip(queue, &places, blocks, limit);
        }
        update::update_all(queue, &places, &self.optimizer, blocks);
    }
}
