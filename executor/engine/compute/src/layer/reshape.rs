//! Reshape. It copies the elements, because a value has exactly one shape and the copy is cheap
//! compared with other layers.

use super::operands::{Backward, Forward, Kernel};

/// Copies all elements in order.
#[derive(Debug, Clone)]
pub(crate) struct Reshape;

impl Kernel for Reshape {
    fn forward(&self, pass: Forward<'_>) {
        pass.output.copy_from_slice(pass.inputs.get(0));
    }

    fn backward(&self, mut pass: Backward<'_>) {
        if let Some(d_input) = pass.d_inputs.get(0) {
            d_input.copy_from_slice(pass.d_output);
        }
    }
}
