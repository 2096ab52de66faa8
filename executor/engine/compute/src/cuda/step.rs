//! Step of a resident training. Its examples go through the network in parts; gradients and losses
//! are added on the GPU. The update follows the last part.
//!
//! Parts of the same kind execute the same work on the same addresses, so each kind is recorded
//! once and replayed. Differences between parts and steps are kept outside of the recording. The
//! examples of a part are uploaded before it to the one place that passes read. The replay of the
//! last part reads the factors of the step from one place in host memory. The host does not change
//! them until the step has been waited for. Uploads and parts run on one stream in order, so none
//! of them overtakes the previous pass.

use super::error::DeviceError;
use super::trainer::DeviceTrainer;
use super::update::{self, UpdateOperands};
use crate::layer::matrix::WriteMode;
use crate::loss::StepLoss;
use std::ops::Range;

/// Number of steps before one is recorded. On first use cuBLASLt chooses algorithms and the driver
/// loads kernels.
const WARM_UP: usize = 2;

/// Properties that distinguish one part of a step from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StepPart {
    pub(super) examples: usize,
    is_first: bool,
    pub(super) is_last: bool,
}

impl StepPart {
    /// Whether gradients and loss replace the previous ones or are added to them.
    pub(super) fn write(self) -> WriteMode {
        if self.is_first {
            WriteMode::Overwrite
        } else {
            WriteMode::Add
        }
    }
}

/// Splits `examples` into parts as [`crate::model::Network::loss_and_grad`] does, each with its
/// range of examples.
pub(super) fn parts(
    examples: usize,
    at_once: usize,
) -> impl Iterator<Item = (Range<usize>, StepPart)> + use<> {
    (0..examples).step_by(at_once).map(move |start| {
        let end = (start + at_once).min(examples);
        let part = StepPart {
            examples: end - start,
            is_first: start == 0,
            is_last: end == examples,
        };
        (start..end, part)
    })
}

impl DeviceTrainer {
    /// Makes one step on the batch of the last [`Self::stage_batch`]. Gradients are sums over its
    /// examples, multiplied by `grad_scale`.
    ///
    /// # Errors
    /// Errors of the GPU, after which no further step is possible.
    ///
    /// # Panics
    /// If there is no batch, or while the memory is released.
    pub fn step(&mut self, grad_scale: f32) -> Result<StepLoss, DeviceError> {
        self.begin(grad_scale);
        self.wait()
    }

    /// Enqueues a step and returns at once; the caller must call [`Self::wait`] next.
    ///
    /// # Panics
    /// See [`Self::step`].
    pub fn begin(&mut self, grad_scale: f32) {
        let (examples, place) = self.take_staged();
        let steps = if self.warm.0 == examples {
            self.warm.1
        } else {
            0
        };
        let writes_down = steps == WARM_UP && self.session.queue.can_record();
        self.write_factors(grad_scale);
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
        self.session.download_loss();
        self.step += 1;
        self.is_under_way = true;
    }

    /// Waits for the step of [`Self::begin`].
    ///
    /// # Errors
    /// Errors of the GPU, after which no further step is possible.
    ///
    /// # Panics
    /// If no step has begun.
    pub fn wait(&mut self) -> Result<StepLoss, DeviceError> {
        assert!(self.is_under_way, "a step was begun");
        self.is_under_way = false;
        self.session.await_loss()
    }

    /// Takes the batch of the step that begins now: number of examples and place.
    pub(super) fn take_staged(&mut self) -> (usize, usize) {
        let (examples, place) = self.staged;
        assert!(examples > 0, "a step needs a batch");
        assert!(!self.is_under_way, "one step at a time");
        self.begun = place;
        (examples, place)
    }

    /// Enqueues a part from its examples on the device. For the last part this includes the update
    /// and the copies of parameters for the next step.
    fn ask(&mut self, part: StepPart) {
        self.session.cast_batch(&self.network, part.examples);
        let write = part.write();
        self.session
            .pass(&self.network, part.examples, write, &mut |_, _| {});
        if part.is_last {
            self.upload_factors();
            self.update();
        }
    }

    /// Writes the factors of this step to pinned memory.
    pub(super) fn write_factors(&mut self, grad_scale: f32) {
        let factors = update::factors(&self.optimizer, self.step, grad_scale);
        let factors = bytemuck::cast_slice(&factors);
        self.session.host.factors.copy_from_slice(factors);
    }

    /// Uploads the factors of [`Self::write_factors`].
    pub(super) fn upload_factors(&mut self) {
        let to = self.session.at(self.session.regions.factors);
        self.session.queue.upload(self.session.host.factors, to);
    }

    /// Enqueues the update with the current gradients and the uploaded factors.
    pub(super) fn update(&mut self) {
        let session = &mut self.session;
        let operands = UpdateOperands {
            state: session.at(session.regions.state),
            parameters: self.network.parameter_count(),
            norms: session.at(session.regions.norms),
            squares: session.at(session.regions.squares),
            factors: session.at(session.regions.factors),
            arenas: &session.arenas,
        };
        let (queue, blocks) = (&mut *session.queue, self.network.blocks());
        if let Some(limit) = self.clip_norm {
            update::clip(queue, &operands, blocks, limit);
        }
        update::update_all(queue, &operands, &self.optimizer, blocks);
    }
}
