//! Construction of a network, operation by operation.

mod sequence;
mod vision;

pub use vision::{ConvOptions, SlidingWindow};

use super::block::{ParameterBlock, ParameterInit, ParameterRole};
use crate::layer::{ConvPool, Dense, Op};
use crate::loss::LossFunction;
use crate::model::error::{BuildError, MAX_NUMBERS, product};
use crate::model::input::ExampleShape;
use crate::model::network::{Network, OperationNode};
use std::ops::Range;

/// Network under construction. Shapes are per example. Every method that adds an operation returns
/// the value that the operation computes.
#[derive(Debug)]
pub struct NetworkBuilder {
    input: ExampleShape,
    nodes: Vec<OperationNode>,
    blocks: Vec<ParameterBlock>,
    /// Shape of each value; the network's input is first. Height × width × channels for an image,
    /// positions × features for a sequence.
    shapes: Vec<Vec<usize>>,
    len: usize,
}

/// Value: the network's input or the output of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueId(usize);

impl NetworkBuilder {
    /// # Errors
    /// If an example would be empty or too large.
    pub fn new(input: ExampleShape) -> Result<Self, BuildError> {
        let shape = match input {
            ExampleShape::Image(image) => {
                if [image.height, image.width, image.channels].contains(&0) {
                    return Err(BuildError::EmptyInput(image));
                }
                vec![image.height, image.width, image.channels]
            }
            ExampleShape::Tokens { length, .. } => vec![length],
            ExampleShape::Row { columns } => vec![columns],
        };
        if product("the input", &shape)? == 0 {
            let layer = "the input".to_owned();
            return Err(BuildError::Empty {
                layer,
                what: "numbers",
            });
        }
        Ok(Self {
            input,
            nodes: Vec::new(),
            blocks: Vec::new(),
            shapes: vec![shape],
            len: 0,
        })
    }

    /// Returns the network's input.
    #[must_use]
    pub fn input(&self) -> ValueId {
        ValueId(0)
    }

    /// Returns the shape of one example of `value`.
    #[must_use]
    pub fn shape(&self, value: ValueId) -> &[usize] {
        &self.shapes[value.0]
    }

    /// Adds a dense layer over all elements of `x`; an image is flattened as height × width ×
    /// channels. Weights are initialised after He et al. before a ReLU, else after Glorot and
    /// Bengio.
    ///
    /// # Errors
    /// If it has no outputs or would be too large.
    pub fn dense(
        &mut self,
        name: &str,
        x: ValueId,
        outputs: usize,
        relu: bool,
    ) -> Result<ValueId, BuildError> {
        let inputs = self.numbers(x);
        let fill = if relu {
            ParameterInit::he(inputs)
        } else {
            ParameterInit::glorot(inputs, outputs)
        };
        let weight = self.block(
            name,
            "weight",
            &[inputs, outputs],
            ParameterRole::Weight,
            fill,
        )?;
        let bias = self.bias(name, outputs)?;
        let op = Dense {
            inputs,
            outputs,
            relu,
            weight,
            bias,
            tied: false,
        };
        self.push(name, Op::Dense(op), &[x], vec![outputs])
    }

    /// Adds 3×3 convolution with padding 1, bias, ReLU and 2×2 max pooling as one operation, which
    /// takes less memory and time than three.
    ///
    /// # Errors
    /// If `x` is not an image of at least 2×2, or the layer would be too large.
    pub fn conv_pool(
        &mut self,
        name: &str,
        x: ValueId,
        channels_out: usize,
    ) -> Result<ValueId, BuildError> {
        let [height, width, channels_in] = self.image(name, x)?;
        product(
            &format!("the patches of {name}"),
            &[height, width, 9, channels_in],
        )?;
        product(
            &format!("the output of {name}"),
            &[height, width, channels_out],
        )?;
        let fill = ParameterInit::he(9 * channels_in);
        let weight = self.block(
            name,
            "weight",
            &[3, 3, channels_in, channels_out],
            ParameterRole::Weight,
            fill,
        )?;
        let bias = self.bias(name, channels_out)?;
        let op = ConvPool {
            height,
            width,
            channels_in,
            channels_out,
            weight,
            bias,
        };
        self.push(
            name,
            Op::ConvPool(op),
            &[x],
            vec![height / 2, width / 2, channels_out],
        )
    }

    /// Completes a classifier with a softmax over the last dimension of `scores`. The other
    /// dimensions count as positions.
    ///
    /// # Errors
    /// If there are too few or too many classes.
    ///
    /// # Panics
    /// If `scores` is not the last value.
    pub fn classify(self, scores: ValueId) -> Result<Network, BuildError> {
        let classes = *self.shape(scores).last().expect("a value has a dimension");
        if !(2..=1 << 24).contains(&classes) {
            return Err(BuildError::Classes(classes));
        }
        Ok(self.end(scores, LossFunction::CrossEntropy { classes }))
    }

    /// Completes a network whose loss is the mean squared error between `output` and the targets.
    /// For an autoencoder the targets are its inputs.
    ///
    /// # Panics
    /// If `output` is not the last value.
    #[must_use]
    pub fn regress(self, output: ValueId) -> Network {
        let outputs = self.numbers(output);
        self.end(output, LossFunction::Squared { outputs })
    }

    /// Completes a network of binary `scores`, each with a target from 0 to 1. The loss is the
    /// cross-entropy of their sigmoids.
    ///
    /// # Panics
    /// If `scores` is not the last value.
    #[must_use]
    pub fn binary(self, scores: ValueId) -> Network {
        let outputs = self.numbers(scores);
        self.end(scores, LossFunction::Binary { outputs })
    }

    pub(super) fn end(self, last: ValueId, loss: LossFunction) -> Network {
        assert_eq!(
            last.0,
            self.nodes.len(),
            "the network ends with its last operation"
        );
        let lens = self
            .shapes
            .iter()
            .map(|shape| shape.iter().product())
            .collect();
        Network::new(self.input, self.nodes, lens, self.blocks, loss)
    }

    /// Returns the number of elements per example of `x`.
    fn numbers(&self, x: ValueId) -> usize {
        self.shape(x).iter().product()
    }

    /// Returns the shape of `x` as height × width × channels.
    fn image(&self, layer: &str, x: ValueId) -> Result<[usize; 3], BuildError> {
        <[usize; 3]>::try_from(self.shape(x)).map_err(|_| BuildError::Shape {
            layer: layer.to_owned(),
            expected: "an image (height × width × channels)",
            actual: format!("{:?}", self.shape(x)),
        })
    }

    fn push(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[ValueId],
        shape: Vec<usize>,
    ) -> Result<ValueId, BuildError> {
        if product(&format!("the output of {name}"), &shape)? == 0 {
            let layer = name.to_owned();
            return Err(BuildError::Empty {
                layer,
                what: "outputs",
            });
        }
        let inputs = inputs.iter().map(|value| value.0).collect();
        self.nodes.push(OperationNode { op, inputs });
        self.shapes.push(shape);
        Ok(ValueId(self.nodes.len()))
    }

    fn bias(&mut self, layer: &str, len: usize) -> Result<Range<usize>, BuildError> {
        self.block(
            layer,
            "bias",
            &[len],
            ParameterRole::Bias,
            ParameterInit::Constant(0.0),
        )
    }

    fn block(
        &mut self,
        layer: &str,
        what: &str,
        shape: &[usize],
        role: ParameterRole,
        fill: ParameterInit,
    ) -> Result<Range<usize>, BuildError> {
        let name = format!("{layer}.{what}");
        let len = product(&name, shape)?;
        let offset = self.len;
        self.len = offset + len;
        if self.len > MAX_NUMBERS {
            let name = "all parameters together".to_owned();
            return Err(BuildError::TooLarge { name });
        }
        let shape = shape.to_vec();
        let block = ParameterBlock {
            name,
            offset,
            len,
            shape,
            role,
            fill,
        };
        let range = block.range();
        self.blocks.push(block);
        Ok(range)
    }
}
