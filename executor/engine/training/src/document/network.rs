//! Conversion of networks: named models and lists of layers.

use super::data;
use muster_compute::data::LearningTask;
use muster_compute::model::zoo::{self, Gpt, NetworkLayer, TrainingObjective};
use muster_compute::model::{
    ActivationFunction, BuildError, ConvOptions, ExampleShape, Network, SlidingWindow,
};
use muster_model::spec::{self, Model, Sides};

/// Slope of a leaky ReLU below 0, the default of PyTorch.
const SLOPE: f32 = 0.01;

/// Builds the network of the document for its data set.
///
/// # Errors
/// The error names the layer that cannot be built.
pub fn network(engine: &spec::Engine) -> Result<Network, BuildError> {
    let input = data::input(&engine.dataset);
    let task = data::task(&engine.dataset);
    let model = &engine.model;
    match *model {
        Model::Mlp { ref hidden } => match task {
            LearningTask::Classify { classes } => zoo::mlp(input, &sizes(hidden), classes),
            LearningTask::Regress { values } => zoo::layers(
                input,
                &regression(hidden, values),
                TrainingObjective::Regress,
            ),
        },
        Model::Cnn {
            ref channels,
            ref dense,
        } => zoo::cnn(
            input,
            &sizes(channels),
            &sizes(dense),
            classes(model, task)?,
        ),
        Model::Lenet5 {} => zoo::lenet5(input, classes(model, task)?),
        Model::Alexnet {} => zoo::alexnet(input, classes(model, task)?),
        Model::Vgg { depth, batch_norm } => {
            zoo::vgg(input, depth as usize, batch_norm, classes(model, task)?)
        }
        Model::Googlenet {} => zoo::googlenet(input, classes(model, task)?),
        Model::Resnet { depth } => zoo::resnet(input, depth as usize, classes(model, task)?),
        Model::Densenet { variant } => match variant {
            spec::DenseNetVariant::D121 => zoo::densenet_121(input, classes(model, task)?),
            spec::DenseNetVariant::Bc100 => zoo::densenet_small(input, classes(model, task)?),
        },
        Model::Autoencoder { ref channels, code } => {
            zoo::autoencoder(input, &sizes(channels), code as usize)
        }
        Model::Gpt {
            width,
            blocks,
            heads,
            tied,
            dropout,
        } => {
            let (length, vocabulary) = text(model, input)?;
            zoo::gpt(Gpt {
                length,
                vocabulary,
                width: width as usize,
                blocks: blocks as usize,
                heads: heads as usize,
                tied,
                dropout,
            })
        }
        Model::Lstm { width, ref hidden } => {
            let (length, vocabulary) = text(model, input)?;
            zoo::lstm_language_model(length, vocabulary, width as usize, &sizes(hidden))
        }
        Model::Gru { width, ref hidden } => {
            let (length, vocabulary) = text(model, input)?;
            zoo::gru_language_model(length, vocabulary, width as usize, &sizes(hidden))
        }
        Model::Layers { ref layers, goal } => {
            zoo::layers(input, &list(layers), self::goal(goal, engine, task))
        }
    }
}

fn sizes(list: &[u32]) -> Vec<usize> {
    list.iter().map(|&size| size as usize).collect()
}

/// Layers of a perceptron for regression.
fn regression(hidden: &[u32], values: usize) -> Vec<NetworkLayer> {
    let hidden = hidden.iter().map(|&width| NetworkLayer::Dense {
        width: width as usize,
        relu: true,
    });
    let output = NetworkLayer::Dense {
        width: values,
        relu: false,
    };
    hidden.chain([output]).collect()
}

fn classes(model: &Model, task: LearningTask) -> Result<usize, BuildError> {
    match task {
        LearningTask::Classify { classes } => Ok(classes),
        LearningTask::Regress { values } => Err(BuildError::Shape {
            layer: model.kind().to_owned(),
            expected: "a data set of classes",
            actual: format!("one of {values} values"),
        }),
    }
}

fn text(model: &Model, input: ExampleShape) -> Result<(usize, usize), BuildError> {
    match input {
        ExampleShape::Tokens { length, vocabulary } => Ok((length, vocabulary)),
        other => Err(BuildError::Shape {
            layer: model.kind().to_owned(),
            expected: "tokens",
            actual: format!("{other:?}"),
        }),
    }
}

fn goal(goal: spec::Goal, engine: &spec::Engine, task: LearningTask) -> TrainingObjective {
    match (goal, task) {
        (spec::Goal::Reconstruct, _) => TrainingObjective::Regress,
        (spec::Goal::Answer, _) => TrainingObjective::Answer,
        (spec::Goal::Data, LearningTask::Regress { .. }) => TrainingObjective::Regress,
        (spec::Goal::Data, LearningTask::Classify { classes }) if engine.dataset.is_text() => {
            TrainingObjective::Predict {
                vocabulary: classes,
            }
        }
        (spec::Goal::Data, LearningTask::Classify { classes }) => {
            TrainingObjective::Classify { classes }
        }
    }
}

fn list(layers: &[spec::Layer]) -> Vec<NetworkLayer> {
    layers.iter().map(layer).collect()
}

fn layer(layer: &spec::Layer) -> NetworkLayer {
    match *layer {
        spec::Layer::Conv {
            channels,
            kernel,
            stride,
            padding,
            groups,
            bias,
            relu,
        } => NetworkLayer::Conv(ConvOptions {
            channels: channels as usize,
            windows: windows(kernel, stride, padding.unwrap_or(kernel.half())),
            groups: groups as usize,
            bias,
            relu,
        }),
        spec::Layer::ConvPool { channels } => NetworkLayer::ConvPool {
            channels: channels as usize,
        },
        spec::Layer::Dense { width, relu } => NetworkLayer::Dense {
            width: width as usize,
            relu,
        },
        spec::Layer::MaxPool {
            kernel,
            stride,
            padding,
        } => NetworkLayer::MaxPool(windows(kernel, stride.unwrap_or(kernel), padding)),
        spec::Layer::AveragePool {
            kernel,
            stride,
            padding,
        } => NetworkLayer::AveragePool(windows(kernel, stride.unwrap_or(kernel), padding)),
        spec::Layer::GlobalAveragePool {} => NetworkLayer::GlobalAveragePool,
        spec::Layer::BatchNorm { relu } => NetworkLayer::BatchNorm { relu },
        spec::Layer::Activation { function } => NetworkLayer::Activation(activation(function)),
        spec::Layer::Dropout { share } => NetworkLayer::Dropout { share },
        spec::Layer::LayerNorm {} => NetworkLayer::LayerNorm,
        spec::Layer::Upsample { factor } => NetworkLayer::Upsample {
            factor: factor as usize,
        },
        spec::Layer::Embedding { width } => NetworkLayer::Embedding {
            width: width as usize,
        },
        spec::Layer::Positions {} => NetworkLayer::Positions,
        spec::Layer::Project { width, bias } => NetworkLayer::Project {
            width: width as usize,
            bias,
        },
        spec::Layer::Attention { heads } => NetworkLayer::Attention {
            heads: heads as usize,
        },
        spec::Layer::Lstm { hidden } => NetworkLayer::Lstm {
            hidden: hidden as usize,
        },
        spec::Layer::Gru { hidden } => NetworkLayer::Gru {
            hidden: hidden as usize,
        },
        spec::Layer::Flatten {} => NetworkLayer::Flatten,
        spec::Layer::Reshape { ref shape } => NetworkLayer::Reshape {
            shape: sizes(shape),
        },
        spec::Layer::Residual {
            ref layers,
            ref shortcut,
            relu,
        } => NetworkLayer::Residual {
            layers: list(layers),
            shortcut: list(shortcut),
            relu,
        },
        spec::Layer::Concat { ref branches } => NetworkLayer::Concat {
            branches: branches.iter().map(|branch| list(branch)).collect(),
        },
    }
}

fn windows(kernel: Sides, stride: Sides, padding: Sides) -> SlidingWindow {
    let [kernel, stride, padding] =
        [kernel, stride, padding].map(|sides| sides.0.map(|side| side as usize));
    SlidingWindow {
        kernel,
        stride,
        padding,
    }
}

fn activation(function: spec::Activation) -> ActivationFunction {
    match function {
        spec::Activation::Relu => ActivationFunction::Relu,
        spec::Activation::LeakyRelu => ActivationFunction::LeakyRelu { slope: SLOPE },
        spec::Activation::Gelu => ActivationFunction::Gelu,
        spec::Activation::GeluTanh => ActivationFunction::GeluTanh,
        spec::Activation::Sigmoid => ActivationFunction::Sigmoid,
        spec::Activation::Tanh => ActivationFunction::Tanh,
        spec::Activation::Silu => ActivationFunction::Silu,
    }
}
