//! Description of convolutions that a queue may compute with a library instead of products on
//! patches.

use super::product::Kind;
use super::queue::Address;
use crate::layer::window::Window;

/// Shape of a convolution without the number of examples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Filters {
    pub(crate) window: Window,
    pub(crate) channels_in: usize,
    pub(crate) channels_out: usize,
    pub(crate) groups: usize,
    /// Kind of all three operands. Sums are f32.
    pub(crate) kind: Kind,
}

/// Operand that is computed from the other two and overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Wanted {
    Output,
    /// Gradient with respect to the image.
    Image,
    /// Gradient with respect to the weight.
    Weight,
}

/// Convolution or one of its gradients. Each address is that of the operand or of the gradient with
/// respect to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Convolution {
    pub(crate) filters: Filters,
    pub(crate) examples: usize,
    pub(crate) wanted: Wanted,
    /// Examples × height × width × channels (NHWC), as for the output.
    pub(crate) image: Address,
    /// Output channels × kernel height × kernel width × input channels of a group (KRSC).
    pub(crate) weight: Address,
    pub(crate) output: Address,
}

impl Wanted {
    pub(crate) const ALL: [Self; 3] = [Self::Output, Self::Image, Self::Weight];
}

impl Filters {
    pub(crate) fn group_in(&self) -> usize {
        self.channels_in / self.groups
    }

    pub(crate) fn group_out(&self) -> usize {
        self.channels_out / self.groups
    }

    /// Number of summands of an output element: one column of the weight.
    pub(crate) fn patch_len(&self) -> usize {
        self.window.taps() * self.group_in()
    }

    pub(crate) fn weight_len(&self) -> usize {
        self.patch_len() * self.channels_out
    }
}
