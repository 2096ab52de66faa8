//! Description of convolutions that a queue may compute with a library instead of products on
//! patches.

use super::product::ElementType;
use super::queue::DeviceAddress;
use crate::layer::window::ImageWindows;

/// Shape of a convolution without the number of examples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConvolutionShape {
    pub(crate) window: ImageWindows,
    pub(crate) channels_in: usize,
    pub(crate) channels_out: usize,
    pub(crate) groups: usize,
    /// Kind of all three operands. Sums are f32.
    pub(crate) kind: ElementType,
}

/// Operand that is computed from the other two and overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ComputedOperand {
    Output,
    /// Gradient with respect to the image.
    Image,
    /// Gradient with respect to the weight.
    Weight,
}

/// Convolution or one of its gradients. Each address is that of the operand or of the gradient with
/// respect to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConvolutionCall {
    pub(crate) filters: ConvolutionShape,
    pub(crate) examples: usize,
    pub(crate) computed: ComputedOperand,
    /// Examples × height × width × channels (NHWC), as for the output.
    pub(crate) image: DeviceAddress,
    /// Output channels × kernel height × kernel width × input channels of a group (KRSC).
    pub(crate) weight: DeviceAddress,
    pub(crate) output: DeviceAddress,
}

impl ComputedOperand {
    pub(crate) const ALL: [Self; 3] = [Self::Output, Self::Image, Self::Weight];
}

impl ConvolutionShape {
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
