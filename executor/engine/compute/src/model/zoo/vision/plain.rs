//! Sequential networks: LeNet-5, AlexNet, VGG.

use super::SequentialBuilder;
use crate::model::ActivationFunction;
use crate::model::builder::{ConvOptions, SlidingWindow};
use crate::model::error::BuildError;
use crate::model::input::ExampleShape;
use crate::model::network::Network;

/// LeNet-5 (LeCun et al., 1998): two 5×5 convolutions with tanh and average pooling, dense layers
/// of 120 and 84. Images with a height below 32 are padded by 2, as the paper did with digits of 28
/// pixels. As in every later version, pooling has no weights and the second convolution reads all
/// channels.
///
/// # Errors
/// Names the invalid layer.
pub fn lenet5(input: impl Into<ExampleShape>, classes: usize) -> Result<Network, BuildError> {
    let mut line = SequentialBuilder::new(input)?;
    let small = line.builder.shape(line.x)[0] < 32;
    for (index, channels) in [6, 16].into_iter().enumerate() {
        let padding = if index == 0 && small { 2 } else { 0 };
        let conv = ConvOptions::new(channels, SlidingWindow::square(5).padding(padding));
        let number = index + 1;
        line.then(|builder, x| builder.conv(&format!("conv{number}"), x, conv))?;
        line.then(|builder, x| {
            builder.activate(&format!("tanh{number}"), x, ActivationFunction::Tanh)
        })?;
        let windows = SlidingWindow::square(2).stride(2);
        line.then(|builder, x| builder.average_pool(&format!("pool{number}"), x, windows))?;
    }
    for (number, width) in [(1, 120), (2, 84)] {
        line.then(|builder, x| builder.dense(&format!("dense{number}"), x, width, false))?;
        let name = format!("tanh{}", number + 2);
        line.then(|builder, x| builder.activate(&name, x, ActivationFunction::Tanh))?;
    }
    line.classify(classes)
}

/// AlexNet as in torchvision (Krizhevsky, 2014, on one device), for sides of at least 63 pixels.
///
/// # Errors
/// Names the invalid layer.
pub fn alexnet(input: impl Into<ExampleShape>, classes: usize) -> Result<Network, BuildError> {
    let mut line = SequentialBuilder::new(input)?;
    let convs = [
        (
            ConvOptions::new(64, SlidingWindow::square(11).stride(4).padding(2)),
            true,
        ),
        (ConvOptions::new(192, SlidingWindow::square(5).same()), true),
        (
            ConvOptions::new(384, SlidingWindow::square(3).same()),
            false,
        ),
        (
            ConvOptions::new(256, SlidingWindow::square(3).same()),
            false,
        ),
        (ConvOptions::new(256, SlidingWindow::square(3).same()), true),
    ];
    for (index, (conv, pool)) in convs.into_iter().enumerate() {
        let number = index + 1;
        line.then(|builder, x| builder.conv(&format!("conv{number}"), x, conv.relu()))?;
        if pool {
            let windows = SlidingWindow::square(3).stride(2);
            line.then(|builder, x| builder.max_pool(&format!("pool{number}"), x, windows))?;
        }
    }
    line.then(|builder, x| builder.dropout("dropout0", x, 0.5))?;
    line.then(|builder, x| builder.dense("dense1", x, 4096, true))?;
    line.then(|builder, x| builder.dropout("dropout1", x, 0.5))?;
    line.then(|builder, x| builder.dense("dense2", x, 4096, true))?;
    line.classify(classes)
}

/// VGG with 11, 13, 16 or 19 layers (Simonyan and Zisserman, 2015), for sides of at least 32
/// pixels. With batch normalisation, convolutions keep their bias, as in torchvision.
///
/// # Errors
/// Names the invalid layer.
pub fn vgg(
    input: impl Into<ExampleShape>,
    depth: usize,
    batch_norm: bool,
    classes: usize,
) -> Result<Network, BuildError> {
    let convs = match depth {
        11 => [1, 1, 2, 2, 2],
        13 => [2, 2, 2, 2, 2],
        16 => [2, 2, 3, 3, 3],
        19 => [2, 2, 4, 4, 4],
        _ => {
            return Err(BuildError::Depth {
                network: "VGG",
                depth,
                known: "11, 13, 16, 19",
            });
        }
    };
    let mut line = SequentialBuilder::new(input)?;
    for (stage, (channels, convs)) in [64, 128, 256, 512, 512].into_iter().zip(convs).enumerate() {
        let stage = stage + 1;
        for number in 1..=convs {
            let conv = ConvOptions::new(channels, SlidingWindow::square(3).same());
            let conv = if batch_norm { conv } else { conv.relu() };
            let name = format!("stage{stage}.conv{number}");
            line.then(|builder, x| builder.conv(&name, x, conv))?;
            if batch_norm {
                let name = format!("stage{stage}.norm{number}");
                line.then(|builder, x| builder.batch_norm(&name, x, true))?;
            }
        }
        let windows = SlidingWindow::square(2).stride(2);
        line.then(|builder, x| builder.max_pool(&format!("pool{stage}"), x, windows))?;
    }
    for number in 1..=2 {
        line.then(|builder, x| builder.dense(&format!("dense{number}"), x, 4096, true))?;
        line.then(|builder, x| builder.dropout(&format!("dropout{number}"), x, 0.5))?;
    }
    line.classify(classes)
}
