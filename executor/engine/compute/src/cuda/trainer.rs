//! Resident training: parameters and optimizer state stay on the GPU. A step ([`super::step`]) is
//! recorded once (CUDA graphs) and replayed, so that the host only copies the next batch into
//! pinned memory.

use super::device::{CudaDevice, Device, TypedQueue};
use super::error::DeviceError;
use super::nccl::NcclCommunicator;
use super::queue::DeviceAddress;
use super::session::DeviceSession;
use super::step::StepPart;
use crate::loss::StepLoss;
use crate::model::{Batch, Network};
use crate::optimizer::OptimizerConfig;
use std::ops::Deref;

/// Network in training on one GPU.
#[derive(Debug)]
pub struct DeviceTrainer {
    /// Dropped before the session, because sums may still use the session's memory.
    pub(super) ranks: Option<NcclCommunicator>,
    pub(super) network: Network,
    pub(super) optimizer: OptimizerConfig,
    /// Maximum norm of a step's mean gradient.
    pub(super) clip_norm: Option<f64>,
    pub(super) session: DeviceSession,
    pub(super) step: u64,
    /// Number of examples of the batch in pinned memory (0 for no batch), and its place, 0 or 1.
    pub(super) staged: (usize, usize),
    /// Place that the current or last step reads.
    pub(super) begun: usize,
    /// Whether a step has begun and not been waited for.
    pub(super) is_under_way: bool,
    /// Number of examples of the last steps, and number of consecutive steps with it.
    pub(super) warm: (usize, usize),
    /// Recorded parts of steps, in the order of the queue's numbers.
    pub(super) recorded: Vec<StepPart>,
    /// Pinned copy of parameters and state while the device's memory is released.
    saved: Option<&'static mut [u8]>,
}

impl DeviceTrainer {
    /// Starts a training with these parameters and a zero optimizer state. `room` is the maximum
    /// number of examples of a pass and of a step; larger steps take several passes.
    ///
    /// # Errors
    /// If the GPU is out of memory or cannot load the kernels.
    pub fn new(
        gpu: &CudaDevice,
        network: &Network,
        optimizer: OptimizerConfig,
        room: (usize, usize),
        params: &[f32],
    ) -> Result<Self, DeviceError> {
        let way: TypedQueue = (Box::new(gpu.stream()?), gpu.kind());
        Self::on_queue(way, network, optimizer, room, params)
    }

    /// Equivalent of [`Self::new`] on any device; `None` for the CPU.
    ///
    /// # Errors
    /// If the GPU is out of memory or cannot load the kernels.
    pub fn on(
        device: &Device,
        network: &Network,
        optimizer: OptimizerConfig,
        room: (usize, usize),
        params: &[f32],
    ) -> Result<Option<Self>, DeviceError> {
        let way = device.queue()?;
        way.map(|way| Self::on_queue(way, network, optimizer, room, params))
            .transpose()
    }

    fn on_queue(
        (queue, kind): TypedQueue,
        network: &Network,
        optimizer: OptimizerConfig,
        room: (usize, usize),
        params: &[f32],
    ) -> Result<Self, DeviceError> {
        let state = optimizer.state_len_per_param();
        let session = DeviceSession::new(network, queue, kind, room, state)?;
        Self::with(session, network, optimizer, params)
    }

    pub(super) fn with(
        mut session: DeviceSession,
        network: &Network,
        optimizer: OptimizerConfig,
        params: &[f32],
    ) -> Result<Self, DeviceError> {
        session.send_parameters(network, params);
        let state = session.regions.state;
        if state.bytes > 0 {
            let at = session.at(state);
            session.queue.zero(at, state.bytes);
        }
        session.queue.finish()?;
        session.pin_batch()?;
        Ok(Self {
            ranks: None,
            network: network.clone(),
            optimizer,
            clip_norm: None,
            session,
            step: 0,
            staged: (0, 0),
            begun: 0,
            is_under_way: false,
            warm: (0, 0),
            recorded: Vec::new(),
            saved: None,
        })
    }

    /// Sets the clipping limit: mean gradients with a larger norm are scaled down to it.
    #[must_use]
    pub fn clipping(mut self, norm: Option<f64>) -> Self {
        self.clip_norm = norm;
        self
    }

    /// Continues from these parameters and this state after `step` updates. `state` has one slice
    /// per plane of the update rule.
    ///
    /// # Errors
    /// Errors of the GPU.
    ///
    /// # Panics
    /// If the state does not fit the update rule, or while the memory is released.
    pub fn fill<P: Deref<Target = [f32]>>(
        &mut self,
        step: u64,
        parameters: &[f32],
        state: &[P],
    ) -> Result<(), DeviceError> {
        let planes = self.optimizer.state_len_per_param();
        assert_eq!(state.len(), planes, "the state of this update rule");
        let session = &mut self.session;
        session.queue.finish()?;
        let mut to = session.at(session.regions.state);
        for plane in state {
            let plane: &[f32] = plane;
            session
                .host
                .parameters
                .copy_from_slice(bytemuck::cast_slice(plane));
            session.queue.upload(session.host.parameters, to);
            // The next plane uses the same pinned memory.
            session.queue.finish()?;
            to += session.host.parameters.len() as u64;
        }
        session.send_parameters(&self.network, parameters);
        session.queue.finish()?;
        self.step = step;
        Ok(())
    }

    /// Reads the current parameters and state, also while the memory is released.
    ///
    /// # Errors
    /// Errors of the GPU.
    ///
    /// # Panics
    /// If the slices do not have exactly the right lengths.
    pub fn read(
        &mut self,
        parameters: &mut [f32],
        state: &mut [Vec<f32>],
    ) -> Result<(), DeviceError> {
        let planes = self.optimizer.state_len_per_param();
        assert_eq!(state.len(), planes, "the state of this update rule");
        let planes = std::iter::once(parameters).chain(state.iter_mut().map(Vec::as_mut_slice));
        let session = &mut self.session;
        let Some(base) = session.base else {
            let saved = self.saved.as_ref().expect("what is suspended is kept");
            let parts = saved.chunks_exact(session.regions.parameters.bytes);
            for (plane, part) in planes.zip(parts) {
                bytemuck::cast_slice_mut(plane).copy_from_slice(part);
            }
            return Ok(());
        };
        session.queue.finish()?;
        let [parameters, state] = [session.regions.parameters, session.regions.state];
        for (number, plane) in planes.enumerate() {
            let from = match number.checked_sub(1) {
                None => parameters.at(base),
                Some(plane) => state.at(base) + (plane * parameters.bytes) as u64,
            };
            session.queue.download(from, session.host.parameters);
            session.queue.finish()?;
            bytemuck::cast_slice_mut(plane).copy_from_slice(session.host.parameters);
        }
        Ok(())
    }

    /// Copies a batch into pinned memory, where the next step finds it. The batch has at most
    /// [`Self::max_step`] examples. A running step reads the other place, and all of its uploads
    /// have been enqueued. The place that is written belonged to the step before, which has been
    /// waited for.
    ///
    /// # Panics
    /// If the batch is empty or too large, a token is not in the vocabulary, or a class is out of
    /// range.
    pub fn stage_batch(&mut self, batch: &Batch<'_>) {
        let examples = batch.inputs.len() / self.network.input().len();
        let is_in = (1..=self.session.max_step).contains(&examples);
        assert!(is_in, "a step of 1 to {} examples", self.session.max_step);
        let place = 1 - self.begun;
        self.session.fill_batch(&self.network, batch, place);
        self.staged = (examples, place);
    }

    /// Whether pinned memory holds a batch for the next step.
    #[must_use]
    pub fn has_batch(&self) -> bool {
        self.staged.0 > 0
    }

    /// Forward pass over parts of at most [`Self::max_batch`] examples, with the current
    /// parameters. Discards the batch of [`Self::stage_batch`].
    ///
    /// # Errors
    /// Errors of the GPU.
    ///
    /// # Panics
    /// See [`Self::stage_batch`]. Also if a part is too large, while a step is running, and while
    /// the memory is released.
    pub fn evaluate<'a>(
        &mut self,
        parts: impl Iterator<Item = Batch<'a>>,
    ) -> Result<StepLoss, DeviceError> {
        assert!(!self.is_under_way, "a step reads what is laid");
        self.staged.0 = 0;
        self.session.evaluate_here(&self.network, parts)
    }

    /// Maximum number of examples of a pass.
    #[must_use]
    pub fn max_batch(&self) -> usize {
        self.session.max_batch
    }

    /// Maximum number of examples of a step.
    #[must_use]
    pub fn max_step(&self) -> usize {
        self.session.max_step
    }

    /// Number of completed steps.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Reads the current parameters.
    ///
    /// # Errors
    /// Errors of the GPU.
    pub fn parameters(&mut self) -> Result<Vec<f32>, DeviceError> {
        let from = self.session.at(self.session.regions.parameters);
        let session = &mut self.session;
        session.queue.finish()?;
        session.queue.download(from, session.host.parameters);
        session.queue.finish()?;
        Ok(bytemuck::pod_collect_to_vec(session.host.parameters))
    }

    /// Releases all device memory and keeps parameters and state in pinned host memory. Has no
    /// effect if the memory is already released.
    ///
    /// # Errors
    /// Errors of the GPU.
    pub fn suspend(&mut self) -> Result<(), DeviceError> {
        let Some(base) = self.session.base else {
            return Ok(());
        };
        // The communicator has device memory of its own.
        self.leave()?;
        let session = &mut self.session;
        let [parameters, state] = [session.regions.parameters, session.regions.state];
        if self.saved.is_none() {
            let bytes = parameters.bytes + state.bytes;
            self.saved = Some(session.queue.pin(bytes)?);
        }
        session.queue.finish()?;
        let saved = self.saved.as_mut().expect("just pinned");
        let (first, second) = saved.split_at_mut(parameters.bytes);
        session.queue.download(parameters.at(base), first);
        if state.bytes > 0 {
            session.queue.download(state.at(base), second);
        }
        session.queue.finish()?;
        session.queue.forget();
        session.queue.free(base);
        session.base = None;
        self.recorded.clear();
        self.warm = (0, 0);
        Ok(())
    }

    /// Allocates device memory again and restores what [`Self::suspend`] has saved.
    ///
    /// # Errors
    /// If the GPU is out of memory; nothing is lost then.
    pub fn resume(&mut self) -> Result<(), DeviceError> {
        if self.session.base.is_some() {
            return Ok(());
        }
        self.session.take_memory()?;
        let session = &mut self.session;
        let saved = self.saved.as_ref().expect("what is suspended is kept");
        let [parameters, state] = [session.regions.parameters, session.regions.state];
        let (first, second) = saved.split_at(parameters.bytes);
        let to: [DeviceAddress; 2] = [session.at(parameters), session.at(state)];
        session.queue.upload(first, to[0]);
        if state.bytes > 0 {
            session.queue.upload(second, to[1]);
        }
        session.lay_out(&self.network);
        session.queue.finish()
    }

    #[cfg(test)]
    pub(super) fn session(&self) -> &DeviceSession {
        &self.session
    }
}
