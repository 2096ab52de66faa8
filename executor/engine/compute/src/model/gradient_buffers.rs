//! Static assignment of gradient buffers for the backward pass. A gradient lives from the last
//! operation that reads its value to the operation that computed the value, so few buffers suffice
//! for a deep network.

use super::network::OperationNode;

/// Buffers of the gradients, per operation in the order of the network.
#[derive(Debug, Default)]
pub(crate) struct GradientBuffers {
    /// Number of elements per example of each buffer.
    pub(crate) sizes: Vec<usize>,
    pub(crate) steps: Vec<Option<BackwardBuffers>>,
}

/// Buffers of the backward pass of one operation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BackwardBuffers {
    /// Buffer of the gradient with respect to the operation's output.
    pub(crate) d_output: usize,
    /// Destinations by position of the inputs.
    pub(crate) d_inputs: Vec<GradientTarget>,
}

/// Destination of the gradient with respect to an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GradientTarget {
    /// The gradient is not needed, because no operation before has parameters.
    None,
    /// First gradient of the value, which is written to this buffer.
    First(usize),
    /// The value already has a gradient: written to `aside`, then added to `sum`.
    More { aside: usize, sum: usize },
}

impl GradientBuffers {
    /// Assigns the buffers. `lens` are the numbers of elements per example of each value; the
    /// network's input is first.
    pub(crate) fn plan(nodes: &[OperationNode], lens: &[usize]) -> Self {
        let mut needed = vec![false; lens.len()];
        for (index, node) in nodes.iter().enumerate() {
            let before = node.inputs.iter().any(|&value| needed[value]);
            let kernel = node.op.kernel();
            let own = !kernel.parameters().is_empty() || !kernel.shared().is_empty();
            needed[index + 1] = before || own;
        }
        let mut plan = BufferPlanner {
            slots: Self::default(),
            free: Vec::new(),
            of: vec![None; lens.len()],
        };
        let last = lens.len() - 1;
        plan.of[last] = Some(plan.take(lens[last]));
        for (index, node) in nodes.iter().enumerate().rev() {
            let step = plan.of[index + 1].filter(|_| needed[index + 1]);
            let step = step.map(|d_output| plan.step(d_output, node, &needed, lens));
            plan.slots.steps.push(step);
        }
        plan.slots.steps.reverse();
        plan.slots
    }
}

struct BufferPlanner {
    slots: GradientBuffers,
    free: Vec<usize>,
    /// Buffer of each value's gradient while it lives.
    of: Vec<Option<usize>>,
}

impl BufferPlanner {
    fn step(
        &mut self,
        d_output: usize,
        node: &OperationNode,
        needed: &[bool],
        lens: &[usize],
    ) -> BackwardBuffers {
        let mut d_inputs = Vec::new();
        let mut asides = Vec::new();
        for &value in &node.inputs {
            if !needed[value] {
                d_inputs.push(GradientTarget::None);
                continue;
            }
            let slot = self.take(lens[value]);
            d_inputs.push(match self.of[value] {
                None => {
                    self.of[value] = Some(slot);
                    GradientTarget::First(slot)
                }
                Some(sum) => {
                    asides.push(slot);
                    GradientTarget::More { aside: slot, sum }
                }
            });
        }
        self.free.extend(asides);
        self.free.push(d_output);
        BackwardBuffers { d_output, d_inputs }
    }

    /// Takes the smallest free buffer that is long enough, else extends the longest free one, else
    /// adds a buffer.
    fn take(&mut self, len: usize) -> usize {
        let sizes = &mut self.slots.sizes;
        let best = (0..self.free.len()).min_by_key(|&place| {
            let size = sizes[self.free[place]];
            (size < len, size.abs_diff(len))
        });
        match best {
            Some(place) => {
                let slot = self.free.swap_remove(place);
                sizes[slot] = sizes[slot].max(len);
                slot
            }
            None => {
                sizes.push(len);
                sizes.len() - 1
            }
        }
    }
}
