//! Which memory holds which gradient during the backward pass, decided once: a gradient lives from the last operation that reads its value
//! to the one that made it, so few buffers serve a deep network.

use super::network::Node;

/// Where gradients lie, per operation in the order of the network.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// Numbers per example of each buffer.
    pub(crate) sizes: Vec<usize>,
    pub(crate) steps: Vec<Option<Step>>,
}

/// What the backward pass of one operation does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The buffer of the gradient with respect to its output.
    pub(crate) d_output: usize,
    /// By position of the inputs.
    pub(crate) d_inputs: Vec<Target>,
}

/// Where the gradient with respect to an input goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Nobody needs it: no parameter lies before it.
    None,
    /// The value's first: written there.
    First(usize),
    /// The value has one already: written aside, then added.
    More { aside: usize, sum: usize },
}

impl Slots {
    /// `lens` are the numbers per example of each value, the network's input first.
    pub(crate) fn plan(nodes: &[Node], lens: &[usize]) -> Self {
        let mut needed = vec![false; lens.len()];
        for (index, node) in nodes.iter().enumerate() {
            let before = node.inputs.iter().any(|&value| needed[value]);
            let kernel = node.op.kernel();
            let own = !kernel.parameters().is_empty() || !kernel.shared().is_empty();
            needed[index + 1] = before || own;
        }
        let mut plan = Planner {
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

struct Planner {
    slots: Slots,
    free: Vec<usize>,
    /// The buffer of each value's gradient while it lives.
    of: Vec<Option<usize>>,
}

impl Planner {
    fn step(&mut self, d_output: usize, node: &Node, needed: &[bool], lens: &[usize]) -> Step {
        let mut asides = Vec::new();
        let mut target = |value: usize| {
            if !needed[value] {
                return Target::None;
            }
            let slot = self.take(lens[value]);
            match self.of[value] {
                None => {
                    self.of[value] = Some(slot);
                    Target::First(slot)
                }
                Some(sum) => {
                    asides.push(slot);
                    Target::More { aside: slot, sum }
                }
            }
        };
        let d_inputs = node.inputs.iter().map(|&value| target(value)).collect();
        self.free.extend(asides);
        self.free.push(d_output);
        Step { d_output, d_inputs }
    }

    /// The smallest free buffer that is long enough; else the longest one, made longer; else a new one.
    fn take(&mut self, len: usize) -> usize {
        let sizes = &mut self.slots.sizes;
        let fits = |slot: usize| (sizes[slot] < len, sizes[slot].abs_diff(len));
        let best = (0..self.free.len()).min_by_key(|&place| fits(self.free[place]));
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
