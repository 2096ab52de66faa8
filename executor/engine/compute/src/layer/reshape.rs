//! Reshape. It copies the elements, because a value has exactly one shape and the copy is cheap
//! compared with other layers.

use super::operands::{BackwardOperands, CpuKernel, ForwardOperands};

/// Copies all elements in order.
#[derive(Debug, Clone)]
pub(crate) struct Reshape;

impl CpuKernel for Reshape {
    fn forward(&self, pass: ForwardOperands<'_>) {
        pass.output.copy_from_slice(pass.inputs.get(0));
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        if let Some(d_input) = pass.d_inputs.get(0) {
            d_input.copy_from_slice(pass.d_output);
        }
    }
}
