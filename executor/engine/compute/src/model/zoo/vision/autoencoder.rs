//! Autoencoders.

use super::SequentialBuilder;
use crate::model::builder::{ConvOptions, SlidingWindow};
use crate::model::error::BuildError;
use crate::model::input::ExampleShape;
use crate::model::network::Network;

/// Convolutional autoencoder: a 3×3 convolution of stride 2 with ReLU to each of these channels and
/// a dense layer to `code` elements. The decoder mirrors it with nearest-neighbour upsampling
/// before each convolution. The targets are the inputs, which may have any range; the loss is the
/// squared error.
///
/// # Errors
/// If the sides cannot be halved evenly; else names the invalid layer.
pub fn autoencoder(
    input: impl Into<ExampleShape>,
    channels: &[usize],
    code: usize,
) -> Result<Network, BuildError> {
    let mut line = SequentialBuilder::new(input)?;
    let mut shapes = vec![line.builder.shape(line.x).to_vec()];
    let factor = 1_usize.checked_shl(channels.len() as u32).unwrap_or(0);
    if factor == 0 || shapes[0].iter().take(2).any(|side| side % factor != 0) {
        return Err(BuildError::Shape {
            layer: "code".to_owned(),
            expected: "an image whose sides halve evenly at every entry of channels",
            actual: format!("{:?}", shapes[0]),
        });
    }
    for (index, &channels) in channels.iter().enumerate() {
        let conv = ConvOptions::new(channels, SlidingWindow::square(3).stride(2).padding(1)).relu();
        line.then(|builder, x| builder.conv(&format!("encode{}", index + 1), x, conv))?;
        shapes.push(line.builder.shape(line.x).to_vec());
    }
    let inner = &shapes[shapes.len() - 1];
    line.then(|builder, x| builder.dense("code", x, code, false))?;
    let numbers = inner.iter().product();
    line.then(|builder, x| builder.dense("unfold", x, numbers, true))?;
    line.then(|builder, x| builder.reshape("unfold.image", x, inner))?;
    for (index, shape) in shapes.iter().enumerate().rev().skip(1) {
        let name = format!("decode{}", index + 1);
        let up = format!("{name}.up");
        line.then(|builder, x| builder.upsample(&up, x, 2))?;
        let conv = ConvOptions::new(shape[2], SlidingWindow::square(3).same());
        let conv = if index > 0 { conv.relu() } else { conv };
        line.then(|builder, x| builder.conv(&name, x, conv))?;
    }
    Ok(line.builder.regress(line.x))
}
