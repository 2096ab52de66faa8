//! Networks with a name.

mod layers;
mod sequence;
mod vision;

pub use layers::{NetworkLayer, TrainingObjective, layers};
pub use vision::{
    alexnet, autoencoder, densenet_121, densenet_small, googlenet, lenet5, resnet, vgg,
};

pub use sequence::{Gpt, gpt, gru_language_model, lstm_language_model};

use crate::model::builder::{NetworkBuilder, ValueId};
use crate::model::error::BuildError;
use crate::model::input::ExampleShape;
use crate::model::network::Network;

/// Multi-layer perceptron: dense layers with ReLU of these widths and the class scores. Without
/// hidden layers it is a linear classifier.
///
/// # Errors
/// Names the invalid layer.
pub fn mlp(
    input: impl Into<ExampleShape>,
    hidden: &[usize],
    classes: usize,
) -> Result<Network, BuildError> {
    let builder = NetworkBuilder::new(input.into())?;
    let x = builder.input();
    head(builder, x, "hidden", hidden, classes)
}

/// Convolutional network: 3×3 convolutions with these output channels, each with ReLU and 2×2 max
/// pooling, then dense layers with ReLU and the class scores.
///
/// # Errors
/// Names the invalid layer.
pub fn cnn(
    input: impl Into<ExampleShape>,
    channels: &[usize],
    dense: &[usize],
    classes: usize,
) -> Result<Network, BuildError> {
    if channels.is_empty() {
        return Err(BuildError::NoConvolution);
    }
    let mut builder = NetworkBuilder::new(input.into())?;
    let mut x = builder.input();
    for (index, &channels) in channels.iter().enumerate() {
        if channels == 0 {
            let list = "channels";
            return Err(BuildError::EmptyLayer { list, index });
        }
        if let [height @ (0 | 1), width, _] | [height, width @ (0 | 1), _] = *builder.shape(x) {
            return Err(BuildError::TooSmallToPool {
                index,
                height,
                width,
            });
        }
        x = builder.conv_pool(&format!("conv{}", index + 1), x, channels)?;
    }
    head(builder, x, "dense", dense, classes)
}

fn head(
    mut builder: NetworkBuilder,
    mut x: ValueId,
    list: &'static str,
    widths: &[usize],
    classes: usize,
) -> Result<Network, BuildError> {
    for (index, &width) in widths.iter().enumerate() {
        if width == 0 {
            return Err(BuildError::EmptyLayer { list, index });
        }
        x = builder.dense(&format!("dense{}", index + 1), x, width, true)?;
    }
    if classes < 2 {
        return Err(BuildError::Classes(classes));
    }
    let scores = builder.dense("logits", x, classes, false)?;
    builder.classify(scores)
}
