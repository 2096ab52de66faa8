//! Training that stays on a GPU: parameters and an optimizer's state lie there, and a step ([`super::step`]) is written down once (CUDA graphs)
//! and then repeated, so that the host only lays the next batch into pinned memory.

use super::device::{Gpu, Way};
use super::error::DeviceError;
use super::nccl::Communicator;
use super::queue::Address;
use super::session::Session;
use super::step::Part;
use crate::loss::StepLoss;
use crate::model::{Batch, Network};
use crate::optimizer::Optimizer;
use std::ops::Deref;

/// A network in training on one GPU.
#[derive(Debug)]
pub struct Resident {
    /// Before the session, whose memory sums may be under way in.
    pub(super) ranks: Option<Communicator>,
    pub(super) network: Network,
    pub(super) optimizer: Optimizer,
    /// The longest that a step's mean gradient may be.
    pub(super) clip_norm: Option<f64>,
    pub(super) session: Session,
    pub(super) step: u64,
    /// Examples of the batch in pinned memory, and in which of two places it is; 0 examples: there is none.
    pub(super) laid: (usize, usize),
    /// The place that the step under way, or the last one, reads.
    pub(super) begun: usize,
    /// Whether a step was begun that nobody has waited for.
    pub(super) is_under_way: bool,
    /// Examples of the steps made last, and how many steps had as many.
    pub(super) warm: (usize, usize),
    /// Parts of steps that are written down, in the order of the queue's numbers.
    pub(super) recorded: Vec<Part>,
    /// Pinned; parameters and state while the device's memory is given back.
    saved: Option<&'static mut [u8]>,
}

impl Resident {
    /// With these parameters, an optimizer's state of zeros, and room for passes of up to so many examples and steps of up to so many, which
    /// take several passes where they have more.
    ///
    /// # Errors
    /// When the GPU has no room or refuses the kernels.
    pub fn new(
        gpu: &Gpu,
        network: &Network,
        optimizer: Optimizer,
        room: (usize, usize),
        params: &[f32],
    ) -> Result<Self, DeviceError> {
        let way: Way = (Box::new(gpu.stream()?), gpu.kind());
        Self::on(way, network, optimizer, room, params)
    }

    /// The same on a device's queue.
    pub(crate) fn on(
        (queue, kind): Way,
        network: &Network,
        optimizer: Optimizer,
        room: (usize, usize),
        params: &[f32],
    ) -> Result<Self, DeviceError> {
        let state = optimizer.state_len_per_param();
        let session = Session::new(network, queue, kind, room, state)?;
        Self::with(session, network, optimizer, params)
    }

    pub(super) fn with(
        mut session: Session,
        network: &Network,
        optimizer: Optimizer,
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
            laid: (0, 0),
            begun: 0,
            is_under_way: false,
            warm: (0, 0),
            recorded: Vec::new(),
            saved: None,
        })
    }

    /// Mean gradients of a step that are longer than this are scaled down to it.
    #[must_use]
    pub fn clipping(mut self, norm: Option<f64>) -> Self {
        self.clip_norm = norm;
        self
    }

    /// Goes on from these parameters and this state, plane by plane as the update rule keeps it, after `step` updates.
    ///
    /// # Errors
    /// What the GPU complained of.
    ///
    /// # Panics
    /// When the state is another rule's, or while the memory is given back.
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
            // The next one goes through the same memory.
            session.queue.finish()?;
            to += session.host.parameters.len() as u64;
        }
        session.send_parameters(&self.network, parameters);
        session.queue.finish()?;
        self.step = step;
        Ok(())
    }

    /// Parameters and state as they are now, also while the memory is given back.
    ///
    /// # Errors
    /// What the GPU complained of.
    ///
    /// # Panics
    /// When there is not room for just as many numbers.
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

    /// Puts a batch of at most as many examples as a step may have into pinned memory, where the steps that begin from now on find it. One
    /// that is under way reads another place, all of whose parts it has been asked to upload; the place that is written here is that of a
    /// step before it, which has been waited for.
    ///
    /// # Panics
    /// When the batch is empty or too large, on a token that is not in the vocabulary, or on a class that is none.
    pub fn lay(&mut self, batch: &Batch<'_>) {
        let examples = batch.inputs.len() / self.network.input().len();
        let is_in = (1..=self.session.max_step).contains(&examples);
        assert!(is_in, "a step of 1 to {} examples", self.session.max_step);
        let place = 1 - self.begun;
        self.session.fill_batch(&self.network, batch, place);
        self.laid = (examples, place);
    }

    /// Whether a batch is laid.
    #[must_use]
    pub fn has_batch(&self) -> bool {
        self.laid.0 > 0
    }

    /// Forward only, over parts of at most as many examples as a pass takes, with the parameters as they are. What was laid is gone.
    ///
    /// # Errors
    /// What the GPU complained of.
    ///
    /// # Panics
    /// As [`Self::lay`], on a larger part, and while a step is under way or the memory is given back.
    pub fn evaluate<'a>(
        &mut self,
        parts: impl Iterator<Item = Batch<'a>>,
    ) -> Result<StepLoss, DeviceError> {
        assert!(!self.is_under_way, "a step reads what is laid");
        self.laid.0 = 0;
        self.session.evaluate_here(&self.network, parts)
    }

    /// Examples that a pass takes at most.
    #[must_use]
    pub fn max_batch(&self) -> usize {
        self.session.max_batch
    }

    /// Examples that a step takes at most.
    #[must_use]
    pub fn max_step(&self) -> usize {
        self.session.max_step
    }

    /// Steps made.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// As they are now.
    ///
    /// # Errors
    /// What the GPU complained of.
    pub fn parameters(&mut self) -> Result<Vec<f32>, DeviceError> {
        let from = self.session.at(self.session.regions.parameters);
        let session = &mut self.session;
        session.queue.finish()?;
        session.queue.download(from, session.host.parameters);
        session.queue.finish()?;
        Ok(bytemuck::pod_collect_to_vec(session.host.parameters))
    }

    /// Gives all device memory back and keeps parameters and state in pinned memory of the host. Nothing happens when that is done already.
    ///
    /// # Errors
    /// What the GPU complained of.
    pub fn suspend(&mut self) -> Result<(), DeviceError> {
        let Some(base) = self.session.base else {
            return Ok(());
        };
        // They have memory of their own there.
        self.part()?;
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

    /// Takes device memory again and brings back what [`Self::suspend`] has kept.
    ///
    /// # Errors
    /// When the GPU has no room now; nothing is lost then.
    pub fn resume(&mut self) -> Result<(), DeviceError> {
        if self.session.base.is_some() {
            return Ok(());
        }
        self.session.take_memory()?;
        let session = &mut self.session;
        let saved = self.saved.as_ref().expect("what is suspended is kept");
        let [parameters, state] = [session.regions.parameters, session.regions.state];
        let (first, second) = saved.split_at(parameters.bytes);
        let to: [Address; 2] = [session.at(parameters), session.at(state)];
        session.queue.upload(first, to[0]);
        if state.bytes > 0 {
            session.queue.upload(second, to[1]);
        }
        session.lay_out(&self.network);
        session.queue.finish()
    }

    #[cfg(test)]
    pub(super) fn session(&self) -> &Session {
        &self.session
    }
}
