//! A network as a static list of operations with known shapes, and the two passes over it.

use super::batch::{Batch, Targets};
use super::block::Block;
use super::input::Input;
use super::workspace::Workspace;
use crate::layer::Op;
use crate::layer::matrix::Write;
use crate::loss::{Loss, StepLoss};
use std::mem;
use std::ops::Range;

/// A network: operations with shapes and the table of its parameters. It holds no numbers; parameters, gradients and workspaces are the
/// caller's.
#[derive(Debug, Clone)]
pub struct Network {
    input: Input,
    pub(crate) nodes: Vec<Node>,
    /// Numbers per example of each value, the network's input first.
    pub(crate) lens: Vec<usize>,
    blocks: Vec<Block>,
    pub(crate) loss: Loss,
}

/// One operation and the values that it reads: 0 is the network's input, `n + 1` what operation `n` makes. It reads earlier ones only.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) op: Op,
    pub(crate) inputs: Vec<usize>,
}

impl Network {
    pub(super) fn new(
        input: Input,
        nodes: Vec<Node>,
        lens: Vec<usize>,
        blocks: Vec<Block>,
        loss: Loss,
    ) -> Self {
        Self {
            input,
            nodes,
            lens,
            blocks,
            loss,
        }
    }

    /// The table of parameters, which gradients and optimizer state follow too.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Length of the flat arena.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.blocks
            .last()
            .map_or(0, |block| block.offset + block.len)
    }

    #[must_use]
    pub fn input(&self) -> Input {
        self.input
    }

    /// Numbers per example of the output.
    #[must_use]
    pub fn outputs(&self) -> usize {
        *self.lens.last().expect("a network has an input")
    }

    /// Targets per example: positions for class targets, else as many as outputs.
    #[must_use]
    pub fn targets(&self) -> usize {
        self.loss.targets(self.outputs())
    }

    /// Whether targets are classes; else they are numbers.
    #[must_use]
    pub fn wants_classes(&self) -> bool {
        self.loss.wants_classes()
    }

    /// Forward and backward over any number of examples: what exceeds the workspace runs in parts. `grads` is overwritten by the SUM
    /// over the examples, not their mean, so that the slices of a batch on several workers add up to the batch; with no examples it
    /// is all 0.
    ///
    /// The same arguments give the same bits, on any number of threads.
    ///
    /// # Panics
    /// When a slice has the wrong length, a label is no class, or `workspace` was made for another network; on a GPU also when that fails,
    /// since no step can be made on it any more.
    pub fn loss_and_grad(
        &self,
        workspace: &mut Workspace,
        params: &[f32],
        batch: &Batch<'_>,
        grads: &mut [f32],
    ) -> StepLoss {
        self.loss_and_grad_telling(workspace, params, batch, grads, &mut |_, _| {})
    }

    /// As [`Self::loss_and_grad`]; as soon as the gradients of a range of parameters are final, `ready` is told the range and given
    /// all gradients, while the backward pass has yet to come to the layers before. The ranges come from the last to the first and
    /// tile the arena.
    ///
    /// # Panics
    /// As [`Self::loss_and_grad`].
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

    /// As [`Self::loss_and_grad_telling`]; when `is_begun`, after [`Self::begin_fetching`] has begun with the same batch in the same
    /// workspace, which nobody has used since.
    ///
    /// # Panics
    /// As [`Self::loss_and_grad`].
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
        let mut write = Write::Overwrite;
        let mut is_begun = is_begun;
        let mut parts = parts.peekable();
        while let Some(part) = parts.next() {
            let last = parts.peek().is_none();
            let mut nothing = |_: Range<usize>, _: &[f32]| {};
            let ready = if last { &mut *ready } else { &mut nothing };
            let is_forward_done = mem::take(&mut is_begun);
            total += workspace.run(|pass| {
                if !is_forward_done {
                    pass.forward(self, params, &part, true);
                }
                let loss = pass.loss(self, &part, true);
                pass.backward(self, params, &part, grads, write, ready);
                loss
            });
            write = Write::Add;
        }
        total
    }

    /// Begins a training pass while parameters still arrive: each operation is computed as soon as `fetch`, which may write into them, says
    /// that a range of them is in place. Whether the first part of the batch has gone forward whole: `fetch` may say that parameters
    /// will not come, and a device needs all of them at once.
    ///
    /// # Panics
    /// As [`Self::loss_and_grad`].
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

    /// Forward only, over any number of examples.
    ///
    /// # Panics
    /// As [`Self::loss_and_grad`].
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

    /// What becomes of a range's gradients when the backward pass comes to operation `index`: added where one after it has shared them.
    pub(crate) fn write(&self, index: usize, range: Range<usize>, first: Write) -> Write {
        let after = self.nodes[index + 1..].iter();
        let shares = |shared: Range<usize>| shared.start < range.end && range.start < shared.end;
        if after.map(|node| node.op.kernel().shared()).any(shares) {
            Write::Add
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

    /// In parts of `examples`.
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
        let classes = matches!(batch.targets, Targets::Classes(_));
        assert_eq!(
            classes,
            self.loss.wants_classes(),
            "targets of the network's kind"
        );
    }
}
