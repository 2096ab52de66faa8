//! What the passes of every operation work on, and what each must be able to do on the CPU.

use super::matrix::Write;
use crate::pages;
use std::ops::Range;

/// One operation on the CPU.
pub(crate) trait Kernel: Sync {
    /// What the backward pass needs besides inputs and output.
    fn kept(&self) -> Kept {
        Kept::default()
    }

    /// Numbers of scratch per thread.
    fn scratch(&self) -> usize {
        0
    }

    /// The operation's parameters, all of them next to one another; empty without any.
    fn parameters(&self) -> Range<usize> {
        0..0
    }

    /// Parameters of an operation before it that it reads too, and whose gradient it adds to; empty without any.
    fn shared(&self) -> Range<usize> {
        0..0
    }

    /// Writes the whole output, and what is kept.
    fn forward(&self, pass: Forward<'_>);

    /// Writes the gradients with respect to the inputs that want one, and writes or adds those of the parameters.
    fn backward(&self, pass: Backward<'_>);
}

/// Memory per example between the forward and the backward pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) numbers: usize,
    pub(crate) bytes: usize,
}

/// Where in training a pass stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Random draws depend on this key and on an example's place in the global batch, so that they are the same on any number of
    /// workers.
    Train { key: u64, first: u64 },
    /// Nothing is drawn, and statistics are those that training has left.
    Evaluate,
}

/// How many examples go through, on how many threads, and what for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) examples: usize,
    pub(crate) threads: usize,
    pub(crate) mode: Mode,
}

/// Operands of a forward pass.
pub(crate) struct Forward<'a> {
    pub(crate) at: At,
    pub(crate) params: &'a [f32],
    pub(crate) inputs: Inputs<'a>,
    /// Overwritten whole.
    pub(crate) output: &'a mut [f32],
    /// Examples × [`Kept::numbers`] and [`Kept::bytes`]. In evaluation they hold what they held.
    pub(crate) numbers: &'a mut [f32],
    pub(crate) bytes: &'a mut [u8],
    /// One per thread.
    pub(crate) lanes: &'a mut [Lane],
}

/// Operands of a backward pass.
pub(crate) struct Backward<'a> {
    pub(crate) at: At,
    pub(crate) params: &'a [f32],
    pub(crate) inputs: Inputs<'a>,
    pub(crate) output: &'a [f32],
    /// Gradient with respect to `output`. May be changed in place; nobody reads it afterwards.
    pub(crate) d_output: &'a mut [f32],
    pub(crate) d_inputs: Gradients<'a>,
    pub(crate) grads: &'a mut [f32],
    /// Whether gradients of parameters replace what `grads` holds.
    pub(crate) write: Write,
    /// The same of [`Kernel::shared`] ones.
    pub(crate) write_shared: Write,
    pub(crate) numbers: &'a mut [f32],
    pub(crate) bytes: &'a mut [u8],
    pub(crate) lanes: &'a mut [Lane],
}

/// The values that an operation reads, by position.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    /// The network's own input.
    pub(crate) first: &'a [f32],
    /// Output of each operation, for the largest batch.
    pub(crate) values: &'a [Vec<f32>],
    /// Numbers per example of each value, the network's input first.
    pub(crate) lens: &'a [usize],
    /// Which values: 0 is the network's input, `n + 1` the output of operation `n`.
    pub(crate) of: &'a [usize],
    pub(crate) examples: usize,
}

impl<'a> Inputs<'a> {
    /// The `index`th input, examples × its length.
    pub(crate) fn get(self, index: usize) -> &'a [f32] {
        let value = self.of[index];
        match value.checked_sub(1) {
            None => self.first,
            Some(node) => &self.values[node][..self.examples * self.lens[value]],
        }
    }
}

/// Gradients with respect to the inputs, by position.
pub(crate) struct Gradients<'a> {
    /// Empty where no gradient is wanted.
    pub(crate) buffers: &'a mut [Vec<f32>],
    pub(crate) lens: &'a [usize],
    pub(crate) of: &'a [usize],
    pub(crate) examples: usize,
}

impl Gradients<'_> {
    /// Where to write the gradient with respect to the `index`th input, if anybody wants it. Holds numbers of before: overwrite all.
    pub(crate) fn get(&mut self, index: usize) -> Option<&mut [f32]> {
        let buffer = &mut self.buffers[index];
        let len = self.examples * self.lens[self.of[index]];
        (!buffer.is_empty()).then(|| &mut buffer[..len])
    }
}

/// Scratch of one thread, the same memory for all operations.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    numbers: Vec<f32>,
}

impl Lane {
    /// With room for `numbers`.
    pub(crate) fn new(numbers: usize) -> Self {
        Self {
            numbers: pages::zeros(numbers),
        }
    }

    /// Areas of these lengths, one after another. They hold numbers of before.
    pub(crate) fn split<const N: usize>(&mut self, lens: [usize; N]) -> [&mut [f32]; N] {
        let mut rest = self.numbers.as_mut_slice();
        lens.map(|len| {
            let (area, after) = std::mem::take(&mut rest).split_at_mut(len);
            rest = after;
            area
        })
    }
}
