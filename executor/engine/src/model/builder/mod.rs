//! Lays a network out, operation by operation.

mod sequence;
mod vision;

pub use vision::{Conv, Windows};

use super::block::{Block, Fill, Role};
use crate::layer::{ConvPool, Dense, Op};
use crate::loss::Loss;
use crate::model::error::{BuildError, MAX_NUMBERS, product};
use crate::model::input::Input;
use crate::model::network::{Network, Node};
use std::ops::Range;

/// A network while it is laid out. Values are per example; every method that adds an operation gives the value it makes.
#[derive(Debug)]
pub struct Builder {
    input: Input,
    nodes: Vec<Node>,
    blocks: Vec<Block>,
    /// Of each value, the network's input first: height × width × channels of an image, positions × features of a sequence.
    shapes: Vec<Vec<usize>>,
    len: usize,
}

/// A value: the network's input or what an operation makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueId(usize);

impl Builder {
    /// # Errors
    /// When an example would be empty or too large.
    pub fn new(input: Input) -> Result<Self, BuildError> {
        let shape = match input {
            Input::Image(image) => {
                if [image.height, image.width, image.channels].contains(&0) {
                    return Err(BuildError::EmptyInput(image));
                }
                vec![image.height, image.width, image.channels]
            }
            Input::Tokens { length, .. } => vec![length],
            Input::Row { columns } => vec![columns],
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

    /// What the network reads.
    #[must_use]
    pub fn input(&self) -> ValueId {
        ValueId(0)
    }

    /// Shape of one example of `value`.
    #[must_use]
    pub fn shape(&self, value: ValueId) -> &[usize] {
        &self.shapes[value.0]
    }

    /// A dense layer over the whole of `x`, an image flattened as height × width × channels. Drawn after He et al. before a ReLU,
    /// else after Glorot and Bengio.
    ///
    /// # Errors
    /// When it has no outputs or would be too large.
    pub fn dense(
        &mut self,
        name: &str,
        x: ValueId,
        outputs: usize,
        relu: bool,
    ) -> Result<ValueId, BuildError> {
        let inputs = self.numbers(x);
        let fill = if relu {
            Fill::he(inputs)
        } else {
            Fill::glorot(inputs, outputs)
        };
        let weight = self.block(name, "weight", &[inputs, outputs], Role::Weight, fill)?;
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

    /// 3×3 convolution with padding 1, bias, ReLU and 2×2 max pooling in one operation, which costs less memory and time than three.
    ///
    /// # Errors
    /// When `x` is no image of at least 2×2, or the layer would be too large.
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
        let fill = Fill::he(9 * channels_in);
        let weight = self.block(
            name,
            "weight",
            &[3, 3, channels_in, channels_out],
            Role::Weight,
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

    /// Ends with a softmax over the last dimension of `scores`, whose other dimensions count as positions.
    ///
    /// # Errors
    /// When there are too few or too many classes.
    ///
    /// # Panics
    /// When `scores` is not what was made last.
    pub fn classify(self, scores: ValueId) -> Result<Network, BuildError> {
        let classes = *self.shape(scores).last().expect("a value has a dimension");
        if !(2..=1 << 24).contains(&classes) {
            return Err(BuildError::Classes(classes));
        }
        Ok(self.end(scores, Loss::CrossEntropy { classes }))
    }

    /// Ends with `output`, which is to come close to an example's targets: their mean squared distance is made small. Of an
    /// autoencoder, the targets are its inputs.
    ///
    /// # Panics
    /// When `output` is not what was made last.
    #[must_use]
    pub fn regress(self, output: ValueId) -> Network {
        let outputs = self.numbers(output);
        self.end(output, Loss::Squared { outputs })
    }

    /// Ends with `scores` of yes-or-no questions, each with a target from 0 to 1: the cross-entropy of their sigmoids is made small.
    ///
    /// # Panics
    /// When `scores` is not what was made last.
    #[must_use]
    pub fn binary(self, scores: ValueId) -> Network {
        let outputs = self.numbers(scores);
        self.end(scores, Loss::Binary { outputs })
    }

    pub(super) fn end(self, last: ValueId, loss: Loss) -> Network {
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

    /// Numbers per example of `x`.
    fn numbers(&self, x: ValueId) -> usize {
        self.shape(x).iter().product()
    }

    /// `x` as height × width × channels.
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
        self.nodes.push(Node { op, inputs });
        self.shapes.push(shape);
        Ok(ValueId(self.nodes.len()))
    }

    fn bias(&mut self, layer: &str, len: usize) -> Result<Range<usize>, BuildError> {
        self.block(layer, "bias", &[len], Role::Bias, Fill::Constant(0.0))
    }

    fn block(
        &mut self,
        layer: &str,
        what: &str,
        shape: &[usize],
        role: Role,
        fill: Fill,
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
        let block = Block {
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
