//! Operands of the passes of an operation, and the trait that each operation implements for the
//! CPU.

use super::matrix::WriteMode;
use crate::pages;
use std::ops::Range;

/// CPU implementation of one operation.
pub(crate) trait CpuKernel: Sync {
    /// Memory that the backward pass needs besides inputs and output.
    fn saved_size(&self) -> SavedSize {
        SavedSize::default()
    }

    /// Number of `f32` of scratch per thread.
    fn scratch(&self) -> usize {
        0
    }

    /// Range of the operation's parameters, which are adjacent; empty if it has none.
    fn parameters(&self) -> Range<usize> {
        0..0
    }

    /// Range of parameters of an earlier operation that this operation also reads and to whose
    /// gradient it adds; empty if there are none.
    fn shared(&self) -> Range<usize> {
        0..0
    }

    /// Writes the whole output and, in training, the values saved for the backward pass.
    fn forward(&self, pass: ForwardOperands<'_>);

    /// Writes the gradients with respect to the inputs that need one, and writes or adds those of
    /// the parameters. Runs only after a forward pass in training.
    fn backward(&self, pass: BackwardOperands<'_>);
}

/// Memory per example that is saved from the forward to the backward pass: `numbers` elements of
/// `f32`, and `bytes` bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SavedSize {
    pub(crate) numbers: usize,
    pub(crate) bytes: usize,
}

/// Purpose of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassMode {
    /// Random draws depend on `key` and on an example's position in the global batch, so that they
    /// are the same for any number of workers. `first` is the position of the first example of the
    /// pass.
    Train { key: u64, first: u64 },
    /// No random draws; batch normalization uses the running statistics of training.
    Evaluate,
}

/// Number of examples and threads of a pass, and its purpose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PassContext {
    pub(crate) examples: usize,
    pub(crate) threads: usize,
    pub(crate) mode: PassMode,
}

/// Operands of a forward pass.
pub(crate) struct ForwardOperands<'a> {
    pub(crate) at: PassContext,
    /// All parameters of the network; [`CpuKernel::parameters`] are the operation's.
    pub(crate) params: &'a [f32],
    pub(crate) inputs: OperationInputs<'a>,
    /// Examples × the output's length. Overwritten completely.
    pub(crate) output: &'a mut [f32],
    /// Saved values: examples × [`SavedSize::numbers`]. Evaluation leaves them unchanged.
    pub(crate) numbers: &'a mut [f32],
    /// Saved bytes: examples × [`SavedSize::bytes`]. Evaluation leaves them unchanged.
    pub(crate) bytes: &'a mut [u8],
    /// Scratch memory, one element per thread.
    pub(crate) lanes: &'a mut [ThreadScratch],
}

/// Operands of a backward pass.
pub(crate) struct BackwardOperands<'a> {
    pub(crate) at: PassContext,
    /// As in [`ForwardOperands`].
    pub(crate) params: &'a [f32],
    pub(crate) inputs: OperationInputs<'a>,
    /// Output of the forward pass.
    pub(crate) output: &'a [f32],
    /// Gradient with respect to `output`. May be changed in place, because it is not read
    /// afterwards.
    pub(crate) d_output: &'a mut [f32],
    pub(crate) d_inputs: InputGradients<'a>,
    /// Gradient with respect to all parameters of the network, in the order of `params`.
    pub(crate) grads: &'a mut [f32],
    /// Whether gradients of parameters replace the content of `grads` or are added to it.
    pub(crate) write: WriteMode,
    /// The same for the parameters of [`CpuKernel::shared`].
    pub(crate) write_shared: WriteMode,
    /// Values that the forward pass saved; may be changed in place.
    pub(crate) numbers: &'a mut [f32],
    /// Bytes that the forward pass saved; may be changed in place.
    pub(crate) bytes: &'a mut [u8],
    /// Scratch memory, one element per thread.
    pub(crate) lanes: &'a mut [ThreadScratch],
}

/// Inputs of an operation by position: the values of the network that it reads. Value 0 is the
/// network's input, value `n + 1` the output of operation `n`.
#[derive(Clone, Copy)]
pub(crate) struct OperationInputs<'a> {
    /// Value 0, examples × its length.
    pub(crate) first: &'a [f32],
    /// Values from 1 on, sized for the largest batch.
    pub(crate) values: &'a [Vec<f32>],
    /// Number of elements per example of each value.
    pub(crate) lens: &'a [usize],
    /// Index of the value of each input.
    pub(crate) of: &'a [usize],
    pub(crate) examples: usize,
}

impl<'a> OperationInputs<'a> {
    /// Returns input `index`, examples × its length.
    pub(crate) fn get(self, index: usize) -> &'a [f32] {
        let value = self.of[index];
        match value.checked_sub(1) {
            None => self.first,
            Some(node) => &self.values[node][..self.examples * self.lens[value]],
        }
    }
}

/// Gradients with respect to the inputs, by position.
pub(crate) struct InputGradients<'a> {
    /// A buffer is empty where no gradient is needed.
    pub(crate) buffers: &'a mut [Vec<f32>],
    /// As in [`OperationInputs`].
    pub(crate) lens: &'a [usize],
    /// As in [`OperationInputs`].
    pub(crate) of: &'a [usize],
    pub(crate) examples: usize,
}

impl InputGradients<'_> {
    /// Returns the destination of the gradient with respect to input `index`, examples × its
    /// length, or `None` if it is not needed. It holds old values and must be overwritten
    /// completely.
    pub(crate) fn get(&mut self, index: usize) -> Option<&mut [f32]> {
        let buffer = &mut self.buffers[index];
        let len = self.examples * self.lens[self.of[index]];
        (!buffer.is_empty()).then(|| &mut buffer[..len])
    }
}

/// Scratch memory of one thread, shared by all operations.
#[derive(Debug, Default)]
pub(crate) struct ThreadScratch {
    numbers: Vec<f32>,
}

impl ThreadScratch {
    /// Allocates `numbers` elements.
    pub(crate) fn new(numbers: usize) -> Self {
        Self {
            numbers: pages::zeros(numbers),
        }
    }

    /// Returns disjoint areas of these lengths, which hold old values.
    ///
    /// # Panics
    /// If they exceed the scratch memory together.
    pub(crate) fn split<const N: usize>(&mut self, lens: [usize; N]) -> [&mut [f32]; N] {
        let mut rest = self.numbers.as_mut_slice();
        lens.map(|len| {
            let (area, after) = std::mem::take(&mut rest).split_at_mut(len);
            rest = after;
            area
        })
    }
}
