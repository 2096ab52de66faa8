//! Networks from a list of layers.
//!
//! A list maps to operations one to one and in order. Each layer reads the output of the previous
//! one, the first layer the network's input. The names of a layer's parameters contain its place,
//! such as `layers[3].residual.layers[1].weight`, and errors name the same place. Another module
//! converts the layers of a job document to these.
//!
//! - `flatten` is a [`NetworkLayer::Reshape`] to one dimension. It may be omitted before
//!   [`NetworkLayer::Dense`], which reads all elements of its input.
//! - A residual adds the output of its layers to its input, or to the output of its `shortcut`.
//! - A concatenation passes the same input to each branch and joins the outputs along the last
//!   dimension. A branch without layers passes its input through, as in DenseNet.
//! - The [`TrainingObjective`] completes the network: class scores are a dense layer named `logits`
//!   after the last layer.

use crate::model::ActivationFunction;
use crate::model::block::ParameterInit;
use crate::model::builder::{ConvOptions, NetworkBuilder, SlidingWindow, ValueId};
use crate::model::error::BuildError;
use crate::model::input::ExampleShape;
use crate::model::network::Network;

/// Standard deviation of the initial weights of sequence layers (Radford et al., 2019).
const DEVIATION: f64 = 0.02;

/// Layer of a network.
#[derive(Debug, Clone, PartialEq)]
pub enum NetworkLayer {
    Conv(ConvOptions),
    /// 3×3 convolution with padding 1, ReLU and 2×2 max pooling as one operation, which takes less
    /// memory and time than three layers.
    ConvPool {
        channels: usize,
    },
    /// Dense layer over all elements of its input; an image is flattened as height × width ×
    /// channels.
    Dense {
        width: usize,
        relu: bool,
    },
    MaxPool(SlidingWindow),
    AveragePool(SlidingWindow),
    GlobalAveragePool,
    BatchNorm {
        relu: bool,
    },
    Activation(ActivationFunction),
    /// Dropout: in training an element becomes 0 with probability `share`, else it is divided by
    /// 1 − `share`.
    Dropout {
        share: f32,
    },
    /// Layer normalisation over the last dimension.
    LayerNorm,
    Upsample {
        factor: usize,
    },
    /// Learned row of `width` for each token.
    Embedding {
        width: usize,
    },
    /// Adds a learned row to each position.
    Positions,
    /// Dense layer over the last dimension, with the same weight at each position.
    Project {
        width: usize,
        bias: bool,
    },
    /// Causal self-attention with projections to queries, keys and values and back to the width of
    /// its input.
    Attention {
        heads: usize,
    },
    Lstm {
        hidden: usize,
    },
    Gru {
        hidden: usize,
    },
    /// Reshape to one dimension.
    Flatten,
    Reshape {
        shape: Vec<usize>,
    },
    Residual {
        layers: Vec<NetworkLayer>,
        /// Layers applied to the input before the addition; empty for the identity.
        shortcut: Vec<NetworkLayer>,
        /// Whether a ReLU follows the addition.
        relu: bool,
    },
    Concat {
        branches: Vec<Vec<NetworkLayer>>,
    },
}

/// Training goal, which determines the end of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrainingObjective {
    /// One class per example.
    Classify { classes: usize },
    /// One token of the vocabulary at each position, scored by a projection of that position.
    Predict { vocabulary: usize },
    /// Regression: the mean squared error between the last layer's output and as many targets. For
    /// an autoencoder the targets are its inputs.
    Regress,
    /// Binary classification, with one target per output of the last layer.
    Answer,
}

/// Builds the network of these layers.
///
/// # Errors
/// Names the invalid layer by its place in the list.
pub fn layers(
    input: impl Into<ExampleShape>,
    layers: &[NetworkLayer],
    goal: TrainingObjective,
) -> Result<Network, BuildError> {
    let mut builder = NetworkBuilder::new(input.into())?;
    let input = builder.input();
    let last = add_all(&mut builder, "layers", input, layers)?;
    match goal {
        TrainingObjective::Classify { classes } if classes < 2 => Err(BuildError::Classes(classes)),
        TrainingObjective::Classify { classes } => {
            let scores = builder.dense("logits", last, classes, false)?;
            builder.classify(scores)
        }
        TrainingObjective::Predict { vocabulary } => {
            let fill = ParameterInit::deviation(DEVIATION);
            let scores = builder.project("logits", last, vocabulary, true, fill)?;
            builder.classify(scores)
        }
        TrainingObjective::Regress | TrainingObjective::Answer if last == input => {
            Err(BuildError::Empty {
                layer: "layers".to_owned(),
                what: "layers",
            })
        }
        TrainingObjective::Regress => Ok(builder.regress(last)),
        TrainingObjective::Answer => Ok(builder.binary(last)),
    }
}

fn add_all(
    builder: &mut NetworkBuilder,
    list: &str,
    mut x: ValueId,
    layers: &[NetworkLayer],
) -> Result<ValueId, BuildError> {
    for (index, layer) in layers.iter().enumerate() {
        x = add(builder, &format!("{list}[{index}]"), x, layer)?;
    }
    Ok(x)
}

fn add(
    builder: &mut NetworkBuilder,
    name: &str,
    x: ValueId,
    layer: &NetworkLayer,
) -> Result<ValueId, BuildError> {
    match layer {
        NetworkLayer::Conv(conv) => builder.conv(name, x, *conv),
        NetworkLayer::ConvPool { channels } => builder.conv_pool(name, x, *channels),
        NetworkLayer::Dense { width, relu } => builder.dense(name, x, *width, *relu),
        NetworkLayer::MaxPool(windows) => builder.max_pool(name, x, *windows),
        NetworkLayer::AveragePool(windows) => builder.average_pool(name, x, *windows),
        NetworkLayer::GlobalAveragePool => builder.global_average_pool(name, x),
        NetworkLayer::BatchNorm { relu } => builder.batch_norm(name, x, *relu),
        NetworkLayer::Activation(function) => builder.activate(name, x, *function),
        NetworkLayer::Dropout { share } => builder.dropout(name, x, *share),
        NetworkLayer::LayerNorm => builder.layer_norm(name, x),
        NetworkLayer::Embedding { width } => {
            builder.embedding(name, x, *width, ParameterInit::deviation(DEVIATION))
        }
        NetworkLayer::Positions => builder.positions(name, x, ParameterInit::deviation(DEVIATION)),
        NetworkLayer::Project { width, bias } => {
            builder.project(name, x, *width, *bias, ParameterInit::deviation(DEVIATION))
        }
        NetworkLayer::Attention { heads } => attention(builder, name, x, *heads),
        NetworkLayer::Lstm { hidden } => builder.lstm(name, x, *hidden),
        NetworkLayer::Gru { hidden } => builder.gru(name, x, *hidden),
        NetworkLayer::Upsample { factor } => builder.upsample(name, x, *factor),
        NetworkLayer::Flatten => {
            let numbers = builder.shape(x).iter().product();
            builder.reshape(name, x, &[numbers])
        }
        NetworkLayer::Reshape { shape } => builder.reshape(name, x, shape),
        NetworkLayer::Residual {
            layers,
            shortcut,
            relu,
        } => {
            let name = format!("{name}.residual");
            let around = add_all(builder, &format!("{name}.shortcut"), x, shortcut)?;
            let through = add_all(builder, &format!("{name}.layers"), x, layers)?;
            builder.add(&name, through, around, *relu)
        }
        NetworkLayer::Concat { branches } => {
            let name = format!("{name}.concat");
            let branches = branches.iter().enumerate();
            let ends = branches
                .map(|(index, branch)| {
                    add_all(
                        builder,
                        &format!("{name}.branches[{index}].layers"),
                        x,
                        branch,
                    )
                })
                .collect::<Result<Vec<_>, _>>()?;
            builder.concat(&name, &ends)
        }
    }
}

fn attention(
    builder: &mut NetworkBuilder,
    name: &str,
    x: ValueId,
    heads: usize,
) -> Result<ValueId, BuildError> {
    let width = *builder.shape(x).last().expect("a value has a dimension");
    let fill = ParameterInit::deviation(DEVIATION);
    let three = width.saturating_mul(3);
    let qkv = builder.project(&format!("{name}.qkv"), x, three, true, fill)?;
    let mixed = builder.attention(&format!("{name}.attention"), qkv, heads)?;
    builder.project(&format!("{name}.output"), mixed, width, true, fill)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, ImageShape};

    const IMAGE: ImageShape = ImageShape {
        height: 9,
        width: 7,
        channels: 2,
    };

    fn conv(channels: usize) -> NetworkLayer {
        NetworkLayer::Conv(ConvOptions::new(channels, SlidingWindow::square(3).same()))
    }

    fn every_layer() -> Vec<NetworkLayer> {
        vec![
            conv(4),
            NetworkLayer::BatchNorm { relu: true },
            NetworkLayer::Residual {
                layers: vec![conv(4), NetworkLayer::Activation(ActivationFunction::Tanh)],
                shortcut: vec![],
                relu: true,
            },
            NetworkLayer::Concat {
                branches: vec![
                    vec![NetworkLayer::MaxPool(SlidingWindow::square(3).same())],
                    vec![],
                    vec![
                        conv(3),
                        NetworkLayer::AveragePool(SlidingWindow::square(3).same()),
                    ],
                ],
            },
            NetworkLayer::Residual {
                layers: vec![conv(6)],
                shortcut: vec![NetworkLayer::Conv(ConvOptions::new(
                    6,
                    SlidingWindow::square(1),
                ))],
                relu: false,
            },
            NetworkLayer::ConvPool { channels: 5 },
            NetworkLayer::Upsample { factor: 2 },
            NetworkLayer::Flatten,
            NetworkLayer::Dense {
                width: 12,
                relu: true,
            },
            NetworkLayer::Reshape {
                shape: vec![2, 3, 2],
            },
            NetworkLayer::GlobalAveragePool,
        ]
    }

    #[test]
    fn layer_list_becomes_its_network() {
        let network = layers(
            IMAGE,
            &every_layer(),
            TrainingObjective::Classify { classes: 3 },
        )
        .unwrap();
        let blocks = network.blocks().iter();
        let names: Vec<_> = blocks.map(|block| block.name.as_str()).collect();
        let expected = [
            "layers[0].weight",
            "layers[0].bias",
            "layers[1].scale",
            "layers[1].shift",
            "layers[1].mean",
            "layers[1].variance",
            "layers[2].residual.layers[0].weight",
            "layers[2].residual.layers[0].bias",
            "layers[3].concat.branches[2].layers[0].weight",
            "layers[3].concat.branches[2].layers[0].bias",
            "layers[4].residual.shortcut[0].weight",
            "layers[4].residual.shortcut[0].bias",
            "layers[4].residual.layers[0].weight",
            "layers[4].residual.layers[0].bias",
            "layers[5].weight",
            "layers[5].bias",
            "layers[8].weight",
            "layers[8].bias",
            "logits.weight",
            "logits.bias",
        ];
        assert_eq!(names, expected);
        for (name, shape) in [
            ("layers[4].residual.layers[0].weight", vec![3, 3, 11, 6]),
            ("layers[8].weight", vec![8 * 6 * 5, 12]),
        ] {
            let mut blocks = network.blocks().iter();
            let block = blocks.find(|block| block.name == name).unwrap();
            assert_eq!(block.shape, shape);
        }
        let params = network.init(1);
        let mut grads = vec![f32::NAN; params.len()];
        let inputs: Vec<f32> = (0..4 * IMAGE.len())
            .map(|i| (i % 17) as f32 / 17.0)
            .collect();
        let batch = Batch::classes(&inputs, &[0, 1, 2, 0]);
        let loss = network.loss_and_grad(&mut network.workspace(4, 1), &params, &batch, &mut grads);
        assert!(loss.loss_sum.is_finite() && grads.iter().all(|g| g.is_finite()));
        for block in network.blocks() {
            assert!(
                grads[block.range()].iter().any(|g| *g != 0.0),
                "{}",
                block.name
            );
        }
    }

    #[test]
    fn layer_list_reads_tokens() {
        let tokens = ExampleShape::Tokens {
            length: 5,
            vocabulary: 11,
        };
        let block = NetworkLayer::Residual {
            layers: vec![
                NetworkLayer::LayerNorm,
                NetworkLayer::Attention { heads: 2 },
            ],
            shortcut: vec![],
            relu: false,
        };
        let list = [
            NetworkLayer::Embedding { width: 6 },
            NetworkLayer::Positions,
            block,
            NetworkLayer::Dropout { share: 0.1 },
            NetworkLayer::Lstm { hidden: 4 },
            NetworkLayer::Gru { hidden: 3 },
            NetworkLayer::Project {
                width: 5,
                bias: false,
            },
        ];
        let network = layers(tokens, &list, TrainingObjective::Predict { vocabulary: 11 }).unwrap();
        assert_eq!(network.targets(), 5);
        let params = network.init(1);
        let mut grads = vec![f32::NAN; params.len()];
        let inputs: Vec<f32> = (0..15).map(|i| (i * 7 % 11) as f32).collect();
        let classes: Vec<u32> = (0..15).map(|i| i * 3 % 11).collect();
        let batch = Batch::classes(&inputs, &classes);
        network.loss_and_grad(&mut network.workspace(3, 1), &params, &batch, &mut grads);
        for block in network.blocks() {
            let reached = grads[block.range()].iter().any(|g| *g != 0.0);
            assert!(reached, "{}", block.name);
        }
        let image = layers(
            IMAGE,
            &[
                NetworkLayer::LayerNorm,
                NetworkLayer::Embedding { width: 6 },
            ],
            TrainingObjective::Regress,
        );
        assert!(
            image
                .unwrap_err()
                .to_string()
                .starts_with("layers[1] reads tokens")
        );
    }

    /// Returns the error of a list of layers.
    fn refused(list: Vec<NetworkLayer>) -> String {
        let goal = TrainingObjective::Classify { classes: 3 };
        layers(IMAGE, &list, goal).unwrap_err().to_string()
    }

    fn residual(layers: Vec<NetworkLayer>) -> NetworkLayer {
        NetworkLayer::Residual {
            layers,
            shortcut: vec![],
            relu: false,
        }
    }

    #[test]
    fn error_names_the_place_of_the_layer() {
        assert_eq!(
            refused(vec![
                conv(2),
                residual(vec![
                    conv(2),
                    NetworkLayer::MaxPool(SlidingWindow::square(10))
                ])
            ]),
            "layers[1].residual.layers[1] has a 10×10 kernel, which does not fit into 9×7 positions with its padding"
        );
        assert_eq!(
            refused(vec![residual(vec![conv(3)])]),
            "layers[0].residual brings together [9, 7, 3] and [9, 7, 2], which do not fit"
        );
        let halved = vec![NetworkLayer::MaxPool(SlidingWindow::square(2).stride(2))];
        let branches = vec![vec![conv(1)], halved];
        assert_eq!(
            refused(vec![NetworkLayer::Concat { branches }]),
            "layers[0].concat brings together [9, 7, 1] and [4, 3, 2], which do not fit"
        );
        assert_eq!(
            refused(vec![NetworkLayer::Flatten, conv(3)]),
            "layers[1] reads an image (height × width × channels), but what comes to it is [126]"
        );
        let groups = ConvOptions::new(4, SlidingWindow::square(1)).groups(3);
        assert_eq!(
            refused(vec![NetworkLayer::Conv(groups)]),
            "layers[0] has 3 groups, which divide not both its 2 input and 4 output channels"
        );
        assert_eq!(
            layers(IMAGE, &[], TrainingObjective::Regress)
                .unwrap_err()
                .to_string(),
            "layers has 0 layers; it needs at least 1"
        );
    }
}
