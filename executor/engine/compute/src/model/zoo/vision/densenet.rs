//! Networks in which every layer reads the outputs of all earlier layers of its block.

use super::SequentialBuilder;
use crate::model::builder::{ConvOptions, SlidingWindow};
use crate::model::error::BuildError;
use crate::model::input::ExampleShape;
use crate::model::network::Network;

/// DenseNet-121 (Huang et al., 2017): growth 32, blocks of 6, 12, 24 and 16 layers.
///
/// # Errors
/// Names the invalid layer.
pub fn densenet_121(input: impl Into<ExampleShape>, classes: usize) -> Result<Network, BuildError> {
    let mut line = SequentialBuilder::new(input)?;
    let conv = ConvOptions::new(64, SlidingWindow::square(7).stride(2).same());
    line.conv_norm("stem", conv, true)?;
    let windows = SlidingWindow::square(3).stride(2).padding(1);
    line.then(|builder, x| builder.max_pool("stem.pool", x, windows))?;
    blocks(line, &[6, 12, 24, 16], 32, classes)
}

/// DenseNet-BC with 100 layers and growth 12, the paper's small network for CIFAR: three blocks of
/// 16 layers.
///
/// # Errors
/// Names the invalid layer.
pub fn densenet_small(
    input: impl Into<ExampleShape>,
    classes: usize,
) -> Result<Network, BuildError> {
    let mut line = SequentialBuilder::new(input)?;
    let conv = ConvOptions::new(24, SlidingWindow::square(3).same()).without_bias();
    line.then(|builder, x| builder.conv("stem.conv", x, conv))?;
    blocks(line, &[16, 16, 16], 12, classes)
}

/// Adds the blocks and the classifier. A layer is a 1×1 convolution to 4 × `growth` channels and a
/// 3×3 convolution to `growth`, each after normalisation and ReLU. Between blocks channels and
/// sides are halved.
fn blocks(
    mut line: SequentialBuilder,
    blocks: &[usize],
    growth: usize,
    classes: usize,
) -> Result<Network, BuildError> {
    for (block, &layers) in blocks.iter().enumerate() {
        if block > 0 {
            let channels = line.builder.shape(line.x)[2] / 2;
            let name = format!("transition{block}");
            line.norm_conv(&name, ConvOptions::new(channels, SlidingWindow::square(1)))?;
            let windows = SlidingWindow::square(2).stride(2);
            let name = format!("{name}.pool");
            line.then(|builder, x| builder.average_pool(&name, x, windows))?;
        }
        for layer in 1..=layers {
            let (before, name) = (line.x, format!("block{}.layer{layer}", block + 1));
            let narrow = ConvOptions::new(4 * growth, SlidingWindow::square(1));
            line.norm_conv(&format!("{name}.1"), narrow)?;
            let wide = ConvOptions::new(growth, SlidingWindow::square(3).same());
            line.norm_conv(&format!("{name}.2"), wide)?;
            let name = format!("{name}.concat");
            line.then(|builder, x| builder.concat(&name, &[before, x]))?;
        }
    }
    line.then(|builder, x| builder.batch_norm("norm", x, true))?;
    line.then(|builder, x| builder.global_average_pool("pool", x))?;
    line.classify(classes)
}
