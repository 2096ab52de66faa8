//! Convolutions as a queue may carry them out itself, where it has more than products on patches.

use super::product::Kind;
use super::queue::Address;
use crate::layer::window::Window;

/// What is convolved with what, whatever the number of examples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Filters {
    pub(crate) window: Window,
    pub(crate) channels_in: usize,
    pub(crate) channels_out: usize,
    pub(crate) groups: usize,
    /// Of all three operands. Sums are f32.
    pub(crate) kind: Kind,
}

/// Which of the three operands is worked out from the other two, and overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Wanted {
    Output,
    /// The gradient with respect to the image.
    Image,
    /// The gradient with respect to the weight.
    Weight,
}

/// One convolution, or one of its gradients: each address is of the operand or of the gradient with respect to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Convolution {
    pub(crate) filters: Filters,
    pub(crate) examples: usize,
    pub(crate) wanted: Wanted,
    /// Examples × height × width × channels, as is the output (NHWC).
    pub(crate) image: Address,
    /// Channels out × kernel height × kernel width × channels in of a group (KRSC).
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

    /// Numbers that one number of the output is made of: one column of the weight.
    pub(crate) fn patch_len(&self) -> usize {
        self.window.taps() * self.group_in()
    }

    pub(crate) fn weight_len(&self) -> usize {
        self.patch_len() * self.channels_out
    }
}
