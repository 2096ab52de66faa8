//! Network as a static list of operations with known shapes, and the two passes over it.

use super::batch::{Batch, BatchTargets};
use super::block::ParameterBlock;
use super::input::ExampleShape;
use super::workspace::Workspace;
use crate::layer::Op;
use crate::layer::matrix::WriteMode;
use crate::loss::{LossFunction, StepLoss};
use std::mem;
use std::ops::Range;

/// Network: operations with shapes and the table of parameters. It owns no tensors; parameters,
/// gradients and workspaces belong to the caller.
#[derive(Debug, Clone)]
pub struct Network {
    input: ExampleShape,
    pub(crate) nodes: Vec<OperationNode>,
    /// Number of elements per example of each value; the network's input is first.
    pub(crate) lens: Vec<usize>,
    blocks: Vec<ParameterBlock>,
    pub(crate) loss: LossFunction,
}

/// Operation and the values that it reads: 0 is the network's input, `n + 1` the output of
/// operation `n`. It reads only values of earlier operations.
#[derive(Debug, Clone)]
pub(crate) struct OperationNode {
    pub(crate) op: Op,
    pub(crate) inputs: Vec<usize>,
}

impl Network {
    pub(super) fn new(
        input: ExampleShape,
        nodes: Vec<OperationNode>,
        lens: Vec<usize>,
        blocks: Vec<ParameterBlock>,
        loss: LossFunction,
    ) -> Self {
        Self {
            input,
            nodes,
            lens,
            blocks,
            loss,
        }
    }

    /// Returns the table of parameters, which is also that of gradients and optimizer state.
    #[must_use]
    pub fn blocks(&self) -> &[ParameterBlock] {
        &self.blocks
    }

    /// Returns the length of the flat arena.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.blocks
            .last()
            .map_or(0, |block| block.offset + block.len)
    }

    #[must_use]
    pub fn input(&self) -> ExampleShape {
        self.input
    }

    /// Returns the number of output elements per example.
    #[must_use]
    pub fn outputs(&self) -> usize {
        *self.lens.last().expect("a network has an input")
    }

    /// Returns the number of targets per example: positions for class targets, else the number of
    /// outputs.
    #[must_use]
    pub fn targets(&self) -> usize {
        self.loss.targets(self.outputs())
    }

    /// Whether targets are classes and not real numbers.
    #[must_use]
    pub fn wants_classes(&self) -> bool {
        self.loss.wants_classes()
    }

    /// Forward and backward pass over any number of examples; batches larger than the workspace are
    /// processed in parts. `grads` is overwritten by the sum over the examples, not their mean, so
    /// that the gradients of several workers add up to those of the batch. Without examples all of
    /// them are 0.
    ///
    /// The same arguments give the same bits on any number of threads.
    ///
    /// # Panics
    /// If a slice has the wrong length, a label is not a class, or `workspace` belongs to another
    /// network. Also if a GPU fails, because no further step is possible on it.
    pub fn loss_and_grad(
        &self,
        workspace: &mut Workspace,
        params: &[f32],
        batch: &Batch<'_>,
        grads: &mut [f32],
    ) -> StepLoss {
        self.loss_and_grad_telling(workspace, params, batch, grads, &mut |_, _| {})
    }

    /// Equivalent of [`Self::loss_and_grad`] that reports progress. Calls `ready` with a range and
    /// all gradients as soon as the gradients of that range are final, while the backward pass of
    /// earlier layers is still running. The ranges are reported from last to first and cover the
    /// arena.
    ///
    /// # Panics
    /// See [`Self::loss_and_grad`].
    pub fn loss_and_grad_telling(
        &self,
        workspace: &mut Workspace,
        params: &[f32],
        batch: &Batch<'_>,
        grads: &mut [f32],
        ready: &mut (dyn FnMut(Range<usize>, &[f32]) + Send),
    ) -> StepLoss {
        self.loss_and_grad_after(false, workspace, params, batch, grads, ready)
    }

    /// Equivalent of [`Self::loss_and_grad_telling`] that can skip the first forward pass. If
    /// `is_begun`, [`Self::begin_fetching`] has run with the same batch and workspace, and the
    /// workspace has not been used since.
    ///
    /// # Panics
    /// See [`Self::loss_and_grad`].
    pub fn loss_and_grad_after(
        &self,
        is_begun: bool,
        workspace: &mut Workspace,
        params: &[f32],
        batch: &Batch<'_>,
        grads: &mut [f32],
        ready: &mut (dyn FnMut(Range<usize>, &[f32]) + Send),
    ) -> StepLoss {
        self.check(params, batch);
        assert_eq!(
            grads.len(),
            self.parameter_count(),
            "one gradient per parameter"
        );
        if batch.inputs.is_empty() {
            grads.fill(0.0);
            ready(0..grads.len(), grads);
        }
        let parts = self.parts(workspace, batch);
        if !batch.inputs.is_empty()
            && let Some(session) = workspace.session()
        {
            let done = session.loss_and_grad(self, params, parts, grads, ready);
            return done.unwrap_or_else(|error| panic!("a step was lost: {error}"));
        }
        let mut total = StepLoss::default();
        let mut write = WriteMode::Overwrite;
        let mut is_begun = is_begun;
        let mut parts = parts.peekable();
        while let Some(part) = parts.next() {
            let last = parts.peek().is_none();
            let ready: &mut (dyn FnMut(Range<usize>, &[f32]) + Send) =
                if last { &mut *ready } else { &mut |_, _| {} };
            let is_forward_done = mem::take(&mut is_begun);
            total += workspace.run(|pass| {
                if !is_forward_done {
                    pass.forward(self, params, &part, true);
                }
                let loss = pass.loss(self, &part, true);
                pass.backward(self, params, &part, grads, write, ready);
                loss
            });
            write = WriteMode::Add;
        }
        total
    }

    /// Starts a training pass while parameters are still being received. An operation runs as soon
    /// as `fetch` reports that its range of parameters, which it may write, is in place. Returns
    /// whether the forward pass of the first part of the batch is complete. It is not if `fetch`
    /// reports that parameters will not arrive, or on a GPU, which needs all of them at once.
    ///
    /// # Panics
    /// See [`Self::loss_and_grad`].
    pub fn begin_fetching(
        &self,
        workspace: &mut Workspace,
        params: &mut [f32],
        batch: &Batch<'_>,
        fetch: &mut (dyn FnMut(Range<usize>, &mut [f32]) -> bool + Send),
    ) -> bool {
        self.check(params, batch);
        let first = self.parts(workspace, batch).next();
        let Some(first) = first.filter(|_| workspace.session().is_none()) else {
            return false;
        };
        workspace.run(|pass| pass.forward_fetching(self, params, &first, fetch))
    }

    /// Forward pass over any number of examples.
    ///
    /// # Panics
    /// See [`Self::loss_and_grad`].
    pub fn evaluate(
        &self,
        workspace: &mut Workspace,
        params: &[f32],
        batch: &Batch<'_>,
    ) -> StepLoss {
        self.check(params, batch);
        let parts = self.parts(workspace, batch);
        if let Some(session) = workspace.session() {
            let done = session.evaluate(self, params, parts);
            return done.unwrap_or_else(|error| panic!("an evaluation was lost: {error}"));
        }
        let mut total = StepLoss::default();
        for part in parts {
            total += workspace.run(|pass| {
                pass.forward(self, params, &part, false);
                pass.loss(self, &part, false)
            });
        }
        total
    }

    /// Returns how the backward pass of operation `index` writes a range's gradients: they are
    /// added if a later operation shares the range.
    pub(crate) fn write(&self, index: usize, range: Range<usize>, first: WriteMode) -> WriteMode {
        let after = self.nodes[index + 1..].iter();
        let mut shared = after.map(|node| node.op.kernel().shared());
        if shared.any(|shared| shared.start < range.end && range.start < shared.end) {
            WriteMode::Add
        } else {
            first
        }
    }

    fn parts<'a>(
        &self,
        workspace: &Workspace,
        batch: &Batch<'a>,
    ) -> impl Iterator<Item = Batch<'a>> + use<'a> {
        self.parts_of(workspace.max_batch(), batch)
    }

    /// Splits `batch` into parts of `examples`.
    pub(crate) fn parts_of<'a>(
        &self,
        examples: usize,
        batch: &Batch<'a>,
    ) -> impl Iterator<Item = Batch<'a>> + use<'a> {
        batch.parts(examples, self.input.len(), self.targets())
    }

    fn check(&self, params: &[f32], batch: &Batch<'_>) {
        assert_eq!(
            params.len(),
            self.parameter_count(),
            "the parameters of this network"
        );
        assert_eq!(
            batch.inputs.len() * self.targets(),
            batch.targets.len() * self.input.len(),
            "targets for every example"
        );
        let classes = matches!(batch.targets, BatchTargets::Classes(_));
        assert_eq!(
            classes,
            self.loss.wants_classes(),
            "targets of the network's kind"
        );
    }
}
