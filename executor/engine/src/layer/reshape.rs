//! The same numbers under another shape. It copies them: a value has one shape, and few networks have a layer for which that counts.

use super::operands::{Backward, Forward, Kernel};

/// No number changes its place.
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
