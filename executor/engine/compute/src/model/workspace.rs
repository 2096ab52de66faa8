//! Memory and threads of a pass: values, kept values of the backward pass, gradient buffers,
//! scratch.

use super::batch::Batch;
use super::gradient_buffers::{GradientBuffers, GradientTarget};
use super::network::Network;
use crate::cuda::{Device, DeviceError, DeviceSession};
use crate::layer::matrix::WriteMode;
use crate::layer::{
    BackwardOperands, ForwardOperands, InputGradients, OperationInputs, PassContext, PassMode,
    ThreadScratch,
};
use crate::loss::StepLoss;
use crate::pages;
use std::mem;
use std::ops::Range;

/// All memory of passes over one network, allocated once: a step allocates no tensor.
#[derive(Debug)]
pub struct Workspace {
    max_batch: usize,
    device: WorkspaceDevice,
}

/// Device of a workspace, on which its passes run.
#[derive(Debug)]
enum WorkspaceDevice {
    Cpu {
        pool: Option<rayon::ThreadPool>,
        pass: Box<CpuPass>,
    },
    Cuda(Box<DeviceSession>),
}

/// Part of a workspace that a pass changes.
#[derive(Debug)]
pub(super) struct CpuPass {
    threads: usize,
    /// Per operation, max_batch × output.
    values: Vec<Vec<f32>>,
    /// Per operation, values kept for its backward pass.
    numbers: Vec<Vec<f32>>,
    bytes: Vec<Vec<u8>>,
    slots: GradientBuffers,
    /// One buffer per slot.
    gradients: Vec<Vec<f32>>,
    /// Buffers of the input gradients of one operation while it runs.
    taken: Vec<Vec<f32>>,
    /// One element per thread.
    lanes: Vec<ThreadScratch>,
}

impl Network {
    /// Allocates memory for passes of up to `max_batch` examples on `threads` threads (0 counts as
    /// 1). Longer inputs run in parts of `max_batch`.
    ///
    /// # Panics
    /// If `max_batch` is 0, or the system cannot start the threads.
    #[must_use]
    pub fn workspace(&self, max_batch: usize, threads: usize) -> Workspace {
        assert!(max_batch > 0, "a workspace holds at least one example");
        let threads = threads.max(1);
        let kernels = self.nodes.iter().map(|node| node.op.kernel());
        let scratch = kernels.clone().map(|kernel| kernel.scratch());
        let scratch = scratch.max().unwrap_or(0);
        let pool = (threads > 1).then(|| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .thread_name(|index| format!("compute-{index}"))
                .build()
                .expect("the system grants the threads of a workspace")
        });
        let slots = GradientBuffers::plan(&self.nodes, &self.lens);
        let zeros = |len: &usize| pages::zeros(max_batch * len);
        let pass = CpuPass {
            threads,
            values: self.lens[1..].iter().map(zeros).collect(),
            numbers: kernels
                .clone()
                .map(|kernel| zeros(&kernel.saved_size().numbers))
                .collect(),
            bytes: kernels
                .map(|kernel| vec![0; max_batch * kernel.saved_size().bytes])
                .collect(),
            gradients: slots.sizes.iter().map(zeros).collect(),
            slots,
            taken: Vec::new(),
            lanes: (0..threads).map(|_| ThreadScratch::new(scratch)).collect(),
        };
        let pass = Box::new(pass);
        Workspace {
            max_batch,
            device: WorkspaceDevice::Cpu { pool, pass },
        }
    }

    /// Equivalent of [`Self::workspace`] on a device.
    ///
    /// # Errors
    /// If the GPU is out of memory or cannot load the kernels.
    ///
    /// # Panics
    /// See [`Self::workspace`].
    pub fn workspace_on(
        &self,
        device: &Device,
        max_batch: usize,
        threads: usize,
    ) -> Result<Workspace, DeviceError> {
        match device.queue()? {
            None => Ok(self.workspace(max_batch, threads)),
            Some((queue, kind)) => {
                let session = DeviceSession::new(self, queue, kind, (max_batch, max_batch), 0)?;
                Ok(Workspace {
                    max_batch,
                    device: WorkspaceDevice::Cuda(Box::new(session)),
                })
            }
        }
    }
}

impl Workspace {
    /// Maximum number of examples of one pass.
    #[must_use]
    pub fn max_batch(&self) -> usize {
        self.max_batch
    }

    /// Releases a device's memory until [`Self::take_memory`]; on the CPU it has no effect.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn give_memory(&mut self) -> Result<(), DeviceError> {
        self.session().map_or(Ok(()), DeviceSession::give_memory)
    }

    /// Allocates a device's memory again; the next pass uploads everything that it needs.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn take_memory(&mut self) -> Result<(), DeviceError> {
        self.session().map_or(Ok(()), DeviceSession::take_memory)
    }

    /// Returns the session of a device; `None` on the CPU.
    pub(super) fn session(&mut self) -> Option<&mut DeviceSession> {
        match &mut self.device {
            WorkspaceDevice::Cpu { .. } => None,
            WorkspaceDevice::Cuda(session) => Some(session),
        }
    }

    /// Runs `work` on the workspace's threads.
    ///
    /// # Panics
    /// If the workspace is on a device.
    pub(super) fn run<T: Send>(&mut self, work: impl FnOnce(&mut CpuPass) -> T + Send) -> T {
        match &mut self.device {
            WorkspaceDevice::Cpu { pool: None, pass } => work(pass),
            WorkspaceDevice::Cpu {
                pool: Some(pool),
                pass,
            } => pool.install(|| work(pass)),
            WorkspaceDevice::Cuda(_) => panic!("a device's workspace has no threads"),
        }
    }
}

impl CpuPass {
    /// Computes every value of the batch's examples.
    pub(super) fn forward(
        &mut self,
        network: &Network,
        params: &[f32],
        batch: &Batch<'_>,
        train: bool,
    ) {
        for index in 0..network.nodes.len() {
            self.forward_one(network, index, params, batch, train);
        }
    }

    /// Training pass in which each operation runs as soon as `fetch` reports that its parameters
    /// are in place. Returns `false` if `fetch` reports that they will not arrive.
    pub(super) fn forward_fetching(
        &mut self,
        network: &Network,
        params: &mut [f32],
        batch: &Batch<'_>,
        fetch: &mut (dyn FnMut(Range<usize>, &mut [f32]) -> bool + Send),
    ) -> bool {
        for (index, node) in network.nodes.iter().enumerate() {
            let kernel = node.op.kernel();
            for wanted in [kernel.parameters(), kernel.shared()] {
                if !wanted.is_empty() && !fetch(wanted, params) {
                    return false;
                }
            }
            self.forward_one(network, index, params, batch, true);
        }
        true
    }

    fn forward_one(
        &mut self,
        network: &Network,
        index: usize,
        params: &[f32],
        batch: &Batch<'_>,
        train: bool,
    ) {
        let at = self.at(network, batch, train);
        assert_eq!(
            network.nodes.len(),
            self.values.len(),
            "a workspace of this network"
        );
        let node = &network.nodes[index];
        let kernel = node.op.kernel();
        let mut output = mem::take(&mut self.values[index]);
        kernel.forward(ForwardOperands {
            at,
            params,
            inputs: OperationInputs {
                first: batch.inputs,
                values: &self.values,
                lens: &network.lens,
                of: &node.inputs,
                examples: at.examples,
            },
            output: &mut output[..at.examples * network.lens[index + 1]],
            numbers: &mut self.numbers[index][..at.examples * kernel.saved_size().numbers],
            bytes: &mut self.bytes[index][..at.examples * kernel.saved_size().bytes],
            lanes: &mut self.lanes,
        });
        self.values[index] = output;
    }

    /// Computes the loss of the last value. With `gradient`, stores its gradient for the backward
    /// pass.
    pub(super) fn loss(
        &mut self,
        network: &Network,
        batch: &Batch<'_>,
        gradient: bool,
    ) -> StepLoss {
        let len = self.examples(network, batch) * network.outputs();
        let last = self.values.len() - 1;
        let output = &self.values[last][..len];
        let step = self.slots.steps[last].as_ref().filter(|_| gradient);
        let d_output = step.map(|step| &mut self.gradients[step.d_output][..len]);
        network.loss.of(output, batch.targets, d_output)
    }

    /// Writes or adds the gradients of all parameters, from the gradient that [`Self::loss`] has
    /// stored.
    pub(super) fn backward(
        &mut self,
        network: &Network,
        params: &[f32],
        batch: &Batch<'_>,
        grads: &mut [f32],
        write: WriteMode,
        ready: &mut (dyn FnMut(Range<usize>, &[f32]) + Send),
    ) {
        let at = self.at(network, batch, true);
        for (index, node) in network.nodes.iter().enumerate().rev() {
            let Some(step) = &self.slots.steps[index] else {
                continue;
            };
            let kernel = node.op.kernel();
            self.taken
                .extend(step.d_inputs.iter().map(|target| match *target {
                    GradientTarget::None => Vec::new(),
                    GradientTarget::First(slot) | GradientTarget::More { aside: slot, .. } => {
                        mem::take(&mut self.gradients[slot])
                    }
                }));
            let mut d_output = mem::take(&mut self.gradients[step.d_output]);
            let len = at.examples * network.lens[index + 1];
            kernel.backward(BackwardOperands {
                at,
                params,
                inputs: OperationInputs {
                    first: batch.inputs,
                    values: &self.values,
                    lens: &network.lens,
                    of: &node.inputs,
                    examples: at.examples,
                },
                output: &self.values[index][..len],
                d_output: &mut d_output[..len],
                d_inputs: InputGradients {
                    buffers: &mut self.taken,
                    lens: &network.lens,
                    of: &node.inputs,
                    examples: at.examples,
                },
                grads,
                write: network.write(index, kernel.parameters(), write),
                write_shared: network.write(index, kernel.shared(), write),
                numbers: &mut self.numbers[index][..at.examples * kernel.saved_size().numbers],
                bytes: &mut self.bytes[index][..at.examples * kernel.saved_size().bytes],
                lanes: &mut self.lanes,
            });
            self.gradients[step.d_output] = d_output;
            for (buffer, (target, &value)) in self
                .taken
                .drain(..)
                .zip(step.d_inputs.iter().zip(&node.inputs))
            {
                match *target {
                    GradientTarget::None => {}
                    GradientTarget::First(slot) => self.gradients[slot] = buffer,
                    GradientTarget::More { aside, sum } => {
                        let len = at.examples * network.lens[value];
                        let sums = self.gradients[sum][..len].iter_mut();
                        sums.zip(&buffer).for_each(|(sum, part)| *sum += part);
                        self.gradients[aside] = buffer;
                    }
                }
            }
            if !kernel.parameters().is_empty() {
                ready(kernel.parameters(), grads);
            }
        }
    }

    fn examples(&self, network: &Network, batch: &Batch<'_>) -> usize {
        batch.inputs.len() / network.input().len()
    }

    fn at(&self, network: &Network, batch: &Batch<'_>, train: bool) -> PassContext {
        let draw = batch.draw;
        let key = draw.seed.rotate_left(32) ^ draw.step;
        let first = draw.first;
        PassContext {
            examples: self.examples(network, batch),
            threads: self.threads,
            mode: if train {
                PassMode::Train { key, first }
            } else {
                PassMode::Evaluate
            },
        }
    }
}
