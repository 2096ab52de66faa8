//! Networks whose layers have several parallel branches.

use super::SequentialBuilder;
use crate::model::builder::{ConvOptions, SlidingWindow, ValueId};
use crate::model::error::BuildError;
use crate::model::input::ExampleShape;
use crate::model::network::Network;

/// Channels of an inception layer: 1×1 branch; reduction and 3×3 of the second branch; reduction
/// and 3×3 of the third branch; projection after the pooling.
type InceptionChannels = [usize; 6];

const STAGES: [&[InceptionChannels]; 3] = [
    &[[64, 96, 128, 16, 32, 32], [128, 128, 192, 32, 96, 64]],
    &[
        [192, 96, 208, 16, 48, 64],
        [160, 112, 224, 24, 64, 64],
        [128, 128, 256, 24, 64, 64],
        [112, 144, 288, 32, 64, 64],
        [256, 160, 320, 32, 128, 128],
    ],
    &[[256, 160, 320, 32, 128, 128], [384, 192, 384, 48, 128, 128]],
];

fn halve(line: &mut SequentialBuilder, name: &str) -> Result<ValueId, BuildError> {
    let windows = SlidingWindow::square(3).stride(2).padding(1);
    line.then(|builder, x| builder.max_pool(name, x, windows))
}

/// GoogLeNet (Szegedy et al., 2015) as in torchvision: with batch normalisation, without auxiliary
/// classifiers, and with 3×3 instead of the paper's 5×5 convolutions.
///
/// # Errors
/// Names the invalid layer.
pub fn googlenet(input: impl Into<ExampleShape>, classes: usize) -> Result<Network, BuildError> {
    let mut line = SequentialBuilder::new(input)?;
    let conv = ConvOptions::new(64, SlidingWindow::square(7).stride(2).same());
    line.conv_norm("stem1", conv, true)?;
    halve(&mut line, "stem1.pool")?;
    line.conv_norm(
        "stem2",
        ConvOptions::new(64, SlidingWindow::square(1)),
        true,
    )?;
    line.conv_norm(
        "stem3",
        ConvOptions::new(192, SlidingWindow::square(3).same()),
        true,
    )?;
    for (stage, layers) in STAGES.into_iter().enumerate() {
        halve(&mut line, &format!("pool{}", stage + 1))?;
        for (layer, branches) in layers.iter().enumerate() {
            let name = format!("stage{}.inception{}", stage + 1, layer + 1);
            inception(&mut line, &name, *branches)?;
        }
    }
    line.then(|builder, x| builder.global_average_pool("pool", x))?;
    line.then(|builder, x| builder.dropout("dropout", x, 0.2))?;
    line.classify(classes)
}

fn inception(
    line: &mut SequentialBuilder,
    name: &str,
    channels: InceptionChannels,
) -> Result<(), BuildError> {
    let input = line.x;
    let [one, before3, three, before5, five, pooled] = channels;
    let (narrow, wide) = (SlidingWindow::square(1), SlidingWindow::square(3).same());
    let branches = [
        vec![ConvOptions::new(one, narrow)],
        vec![
            ConvOptions::new(before3, narrow),
            ConvOptions::new(three, wide),
        ],
        vec![
            ConvOptions::new(before5, narrow),
            ConvOptions::new(five, wide),
        ],
        vec![ConvOptions::new(pooled, narrow)],
    ];
    let mut ends = Vec::new();
    for (branch, convs) in branches.into_iter().enumerate() {
        line.x = input;
        if branch == 3 {
            let name = format!("{name}.pool");
            line.then(|builder, x| builder.max_pool(&name, x, wide))?;
        }
        for (index, conv) in convs.into_iter().enumerate() {
            let name = format!("{name}.branch{}.{}", branch + 1, index + 1);
            line.conv_norm(&name, conv, true)?;
        }
        ends.push(line.x);
    }
    line.then(|builder, _| builder.concat(&format!("{name}.concat"), &ends))?;
    Ok(())
}
