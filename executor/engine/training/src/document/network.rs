//! Conversion of networks: named models and lists of layers.

use super::data;
use muster_compute::data::Task;
use muster_compute::model::zoo::{self, Goal, Gpt, Layer};
use muster_compute::model::{Activation, BuildError, Conv, Input, Network, Windows};
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
            Task::Classify { classes } => zoo::mlp(input, &sizes(hidden), classes),
            Task::Regress { values } => {
                zoo::layers(input, &regression(hidden, values), Goal::Regress)
            }
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
fn regression(hidden: &[u32], values: usize) -> Vec<Layer> {
    let dense = |width, relu| Layer::Dense { width, relu };
    let hidden = hidden.iter().map(|&width| dense(width as usize, true));
    hidden.chain([dense(values, false)]).collect()
}

fn classes(model: &Model, task: Task) -> Result<usize, BuildError> {
    match task {
        Task::Classify { classes } => Ok(classes),
        Task::Regress { values } => Err(BuildError::Shape {
            layer: model.kind().to_owned(),
            expected: "a data set of classes",
            actual: format!("one of {values} values"),
        }),
    }
}

fn text(model: &Model, input: Input) -> Result<(usize, usize), BuildError> {
    match input {
        Input::Tokens { length, vocabulary } => Ok((length, vocabulary)),
        other => Err(BuildError::Shape {
            layer: model.kind().to_owned(),
            expected: "tokens",
            actual: format!("{other:?}"),
        }),
    }
}

fn goal(goal: spec::Goal, engine: &spec::Engine, task: Task) -> Goal {
    match (goal, task) {
        (spec::Goal::Reconstruct, _) => Goal::Regress,
        (spec::Goal::Answer, _) => Goal::Answer,
        (spec::Goal::Data, Task::Regress { .. }) => Goal::Regress,
        (spec::Goal::Data, Task::Classify { classes }) if engine.dataset.is_text() => {
            Goal::Predict {
                vocabulary: classes,
            }
        }
        (spec::Goal::Data, Task::Classify { classes }) => Goal::Classify { classes },
    }
}

fn list(layers: &[spec::Layer]) -> Vec<Layer> {
    layers.iter().map(layer).collect()
}

fn layer(layer: &spec::Layer) -> Layer {
    match *layer {
        spec::Layer::Conv {
            channels,
            kernel,
            stride,
            padding,
            groups,
            bias,
            relu,
        } => Layer::Conv(Conv {
            channels: channels as usize,
            windows: windows(kernel, stride, padding.unwrap_or(kernel.half())),
            groups: groups as usize,
            bias,
            relu,
        }),
        spec::Layer::ConvPool { channels } => Layer::ConvPool {
            channels: channels as usize,
        },
        spec::Layer::Dense { width, relu } => Layer::Dense {
            width: width as usize,
            relu,
        },
        spec::Layer::MaxPool {
            kernel,
            stride,
            padding,
        } => Layer::MaxPool(windows(kernel, stride.unwrap_or(kernel), padding)),
        spec::Layer::AveragePool {
            kernel,
            stride,
            padding,
        } => Layer::AveragePool(windows(kernel, stride.unwrap_or(kernel), padding)),
        spec::Layer::GlobalAveragePool {} => Layer::GlobalAveragePool,
        spec::Layer::BatchNorm { relu } => Layer::BatchNorm { relu },
        spec::Layer::Activation { function } => Layer::Activation(activation(function)),
        spec::Layer::Dropout { share } => Layer::Dropout { share },
        spec::Layer::LayerNorm {} => Layer::LayerNorm,
        spec::Layer::Upsample { factor } => Layer::Upsample {
            factor: factor as usize,
        },
        spec::Layer::Embedding { width } => Layer::Embedding {
            width: width as usize,
        },
        spec::Layer::Positions {} => Layer::Positions,
        spec::Layer::Project { width, bias } => Layer::Project {
            width: width as usize,
            bias,
        },
        spec::Layer::Attention { heads } => Layer::Attention {
            heads: heads as usize,
        },
        spec::Layer::Lstm { hidden } => Layer::Lstm {
            hidden: hidden as usize,
        },
        spec::Layer::Gru { hidden } => Layer::Gru {
            hidden: hidden as usize,
        },
        spec::Layer::Flatten {} => Layer::Flatten,
        spec::Layer::Reshape { ref shape } => Layer::Reshape {
            shape: sizes(shape),
        },
        spec::Layer::Residual {
            ref layers,
            ref shortcut,
            relu,
        } => Layer::Residual {
            layers: list(layers),
            shortcut: list(shortcut),
            relu,
        },
        spec::Layer::Concat { ref branches } => Layer::Concat {
            branches: branches.iter().map(|branch| list(branch)).collect(),
        },
    }
}

fn windows(kernel: Sides, stride: Sides, padding: Sides) -> Windows {
    let [kernel, stride, padding] =
        [kernel, stride, padding].map(|sides| sides.0.map(|side| side as usize));
    Windows {
        kernel,
        stride,
        padding,
    }
}

fn activation(function: spec::Activation) -> Activation {
    match function {
        spec::Activation::Relu => Activation::Relu,
        spec::Activation::LeakyRelu => Activation::LeakyRelu { slope: SLOPE },
        spec::Activation::Gelu => Activation::Gelu,
        spec::Activation::GeluTanh => Activation::GeluTanh,
        spec::Activation::Sigmoid => Activation::Sigmoid,
        spec::Activation::Tanh => Activation::Tanh,
        spec::Activation::Silu => Activation::Silu,
    }
}
