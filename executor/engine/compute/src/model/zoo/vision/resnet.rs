//! Residual networks.

use super::SequentialBuilder;
use crate::model::builder::{ConvOptions, SlidingWindow};
use crate::model::error::BuildError;
use crate::model::input::ExampleShape;
use crate::model::network::Network;

/// ResNet with 18, 34, 50, 101 or 152 layers (He et al., 2016) and strides in the 3×3 convolutions,
/// as in torchvision. For images with sides of at least 64 pixels the stem is a 7×7 convolution and
/// pooling, which reduce the sides to a quarter. For smaller images, such as CIFAR's, it is a 3×3
/// convolution that keeps the sides.
///
/// # Errors
/// Names the invalid layer.
pub fn resnet(
    input: impl Into<ExampleShape>,
    depth: usize,
    classes: usize,
) -> Result<Network, BuildError> {
    let (blocks, bottleneck) = match depth {
        18 => ([2, 2, 2, 2], false),
        34 => ([3, 4, 6, 3], false),
        50 => ([3, 4, 6, 3], true),
        101 => ([3, 4, 23, 3], true),
        152 => ([3, 8, 36, 3], true),
        _ => {
            return Err(BuildError::Depth {
                network: "ResNet",
                depth,
                known: "18, 34, 50, 101, 152",
            });
        }
    };
    let mut line = SequentialBuilder::new(input)?;
    if line.is_photograph() {
        let conv = ConvOptions::new(64, SlidingWindow::square(7).stride(2).same());
        line.conv_norm("stem", conv, true)?;
        let windows = SlidingWindow::square(3).stride(2).padding(1);
        line.then(|builder, x| builder.max_pool("stem.pool", x, windows))?;
    } else {
        line.conv_norm(
            "stem",
            ConvOptions::new(64, SlidingWindow::square(3).same()),
            true,
        )?;
    }
    for (stage, blocks) in blocks.into_iter().enumerate() {
        for block in 0..blocks {
            let name = format!("stage{}.block{}", stage + 1, block + 1);
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            residual_block(&mut line, &name, 64 << stage, stride, bottleneck)?;
        }
    }
    line.then(|builder, x| builder.global_average_pool("pool", x))?;
    line.classify(classes)
}

/// Appends two 3×3 convolutions, or a 3×3 convolution between 1×1 convolutions that reduce the
/// channels and expand them fourfold. The input is added to the result, through a 1×1 convolution
/// where the shape changes.
fn residual_block(
    line: &mut SequentialBuilder,
    name: &str,
    channels: usize,
    stride: usize,
    bottleneck: bool,
) -> Result<(), BuildError> {
    let input = line.x;
    let channels_in = line.builder.shape(input)[2];
    let wide = SlidingWindow::square(3).same();
    let convs = if bottleneck {
        vec![
            ConvOptions::new(channels, SlidingWindow::square(1)),
            ConvOptions::new(channels, wide.stride(stride)),
            ConvOptions::new(4 * channels, SlidingWindow::square(1)),
        ]
    } else {
        vec![
            ConvOptions::new(channels, wide.stride(stride)),
            ConvOptions::new(channels, wide),
        ]
    };
    let channels_out = convs[convs.len() - 1].channels;
    let shortcut = if stride > 1 || channels_in != channels_out {
        let conv = ConvOptions::new(channels_out, SlidingWindow::square(1).stride(stride));
        line.conv_norm(&format!("{name}.shortcut"), conv, false)?
    } else {
        input
    };
    line.x = input;
    let last = convs.len() - 1;
    for (index, conv) in convs.into_iter().enumerate() {
        line.conv_norm(&format!("{name}.{}", index + 1), conv, index < last)?;
    }
    line.then(|builder, x| builder.add(&format!("{name}.add"), x, shortcut, true))?;
    Ok(())
}
