//! Training that stays on a worker's device: transfers to and from it, and its steps.

use super::{PassMemory, WorkerModel, counts, largest_pass};
use crate::worker::error::WorkerError;
use crate::worker::progress::StepTimes;
use muster_comm::wire::metadata::StepStats;
use muster_compute::clock;
use muster_compute::cuda::{AllReduceError, DeviceTrainer, PollCallback};
use muster_compute::optimizer::OptimizerConfig;
use muster_model::pace::Doing;
use std::ops::Range;
use std::time::Duration;

impl WorkerModel {
    /// Copies parameters and `state`, plane by plane, from the device to the host, where the device
    /// holds them. The device keeps them.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn come_down(&mut self, state: &mut [Vec<f32>]) -> Result<(), WorkerError> {
        if let PassMemory::Whole(resident) = &mut self.room {
            resident.read(&mut self.parameters, state)?;
        }
        Ok(())
    }

    /// Keeps training on the device from now on. It continues from the host's parameters and
    /// `state` after `updates` updates, with gradients clipped to `clip_norm`, if set. Does nothing
    /// if training is already there.
    ///
    /// # Errors
    /// When the device has no room; gradients then leave it, as before.
    pub fn go_up(
        &mut self,
        (optimizer, clip_norm): (&OptimizerConfig, Option<f64>),
        updates: u64,
        state: &[Vec<f32>],
    ) -> Result<(), WorkerError> {
        if self.resident().is_some() {
            return Ok(());
        }
        if self.device.is_cpu() {
            return Ok(());
        }
        let examples = self.batches.examples();
        let largest_pass = largest_pass(examples, self.passes, self.most);
        self.room = PassMemory::Passes(self.network.workspace(1, 1));
        let resident = DeviceTrainer::on(
            &self.device,
            &self.network,
            optimizer.clone(),
            (largest_pass, examples),
            &self.parameters,
        );
        let filled = resident.and_then(|resident| {
            let mut resident = resident.expect("not the CPU").clipping(clip_norm);
            resident.fill(updates, &self.parameters, state)?;
            Ok(resident)
        });
        match filled {
            Ok(resident) => self.room = PassMemory::Whole(Box::new(resident)),
            Err(error) => {
                self.clear_room(largest_pass)?;
                return Err(error.into());
            }
        }
        self.loaded = None;
        Ok(())
    }

    /// Makes gradients leave the device from now on; continues from the host's parameters.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn go_down(&mut self) -> Result<(), WorkerError> {
        match &self.room {
            PassMemory::Passes(_) => Ok(()),
            PassMemory::Whole(resident) => self.clear_room(resident.max_batch()),
        }
    }

    /// Leaves the group of the other workers' GPUs.
    ///
    /// # Errors
    /// When the device does not end the work in progress.
    pub fn part(&mut self) -> Result<(), WorkerError> {
        match self.resident() {
            Some(resident) => Ok(resident.leave()?),
            None => Ok(()),
        }
    }

    /// Returns the training state on the device, where all of training stays there.
    pub fn resident(&mut self) -> Option<&mut DeviceTrainer> {
        match &mut self.room {
            PassMemory::Passes(_) => None,
            PassMemory::Whole(resident) => Some(resident),
        }
    }

    /// Does `step` on the device. Meanwhile loads the examples of the following step and copies
    /// them there. `scale` turns sums of gradients into means.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn train(&mut self, step: u64, scale: f32) -> Result<(StepStats, StepTimes), WorkerError> {
        self.on_device(step, |resident| resident.begin(scale))
    }

    /// Computes this worker's gradients of `step` on the device and sums them there with those of
    /// the other workers. The last value of the result is the outcome of the sums.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn sum(
        &mut self,
        step: u64,
        buckets: &[Range<usize>],
        look: PollCallback<'_>,
    ) -> Result<(StepStats, StepTimes, Result<(), AllReduceError>), WorkerError> {
        self.pacer.doing(Doing::Working);
        let (stats, times) =
            self.on_device(step, |resident| resident.begin_all_reduce(buckets, look))?;
        self.pacer.doing(Doing::Waiting);
        let resident = self.resident().expect("training stays on the device");
        Ok((stats, times, resident.await_all_reduce(look)))
    }

    /// Starts `begin` for `step` and waits for the loss. Meanwhile loads the examples of the
    /// following step and copies them to the device.
    fn on_device(
        &mut self,
        step: u64,
        begin: impl FnOnce(&mut DeviceTrainer),
    ) -> Result<(StepStats, StepTimes), WorkerError> {
        let PassMemory::Whole(resident) = &mut self.room else {
            panic!("training does not stay on a device");
        };
        let (began, train) = (clock::now(), &self.data.train);
        // Usually the examples were copied during the previous step, unless an evaluation came
        // between.
        if self.loaded.take() != Some(step) {
            resident.stage_batch(&self.batches.load(train, step));
        } else if !resident.has_batch() {
            resident.stage_batch(&self.batches.loaded(step));
        }
        let laid = clock::now();
        begin(resident);
        resident.stage_batch(&self.batches.load(train, step + 1));
        self.loaded = Some(step + 1);
        let loss = resident.wait()?;
        let stats = counts(&self.network, loss, self.batches.examples());
        let times = StepTimes {
            data: laid - began,
            compute: laid.elapsed(),
            exchange: Duration::ZERO,
        };
        Ok((stats, times))
    }
}
