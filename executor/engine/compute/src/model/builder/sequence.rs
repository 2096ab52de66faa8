//! Operations on sequences: positions × features.

use super::{NetworkBuilder, ValueId};
use crate::layer::attention::Attention;
use crate::layer::dropout::Dropout;
use crate::layer::embedding::Embedding;
use crate::layer::gru::Gru;
use crate::layer::layer_norm::LayerNorm;
use crate::layer::lstm::Lstm;
use crate::layer::positions::PositionTable;
use crate::layer::{Dense, Op};
use crate::model::block::{ParameterInit, ParameterRole};
use crate::model::error::{BuildError, product};
use crate::model::input::ExampleShape;

impl NetworkBuilder {
    /// Adds an embedding, a learned row for each token: positions × `width`.
    ///
    /// # Errors
    /// If the network reads no tokens, `x` is not its input, or the table would be empty or too
    /// large.
    pub fn embedding(
        &mut self,
        name: &str,
        x: ValueId,
        width: usize,
        fill: ParameterInit,
    ) -> Result<ValueId, BuildError> {
        let ExampleShape::Tokens { length, vocabulary } = self.input else {
            return Err(self.unfit(name, "tokens", x));
        };
        if x != self.input() {
            return Err(self.unfit(name, "tokens", x));
        }
        // Beyond 2^24 not every whole number is an `f32`.
        if !(1..=1 << 24).contains(&vocabulary) {
            return Err(BuildError::Classes(vocabulary));
        }
        let table = self.block(
            name,
            "weight",
            &[vocabulary, width],
            ParameterRole::Weight,
            fill,
        )?;
        let op = Embedding {
            vocabulary,
            width,
            table,
        };
        self.push(name, Op::Embedding(op), &[x], vec![length, width])
    }

    /// Adds a learned row to each position.
    ///
    /// # Errors
    /// If `x` is not a sequence.
    pub fn positions(
        &mut self,
        name: &str,
        x: ValueId,
        fill: ParameterInit,
    ) -> Result<ValueId, BuildError> {
        let shape = self.sequence(name, x)?;
        let table = self.block(name, "weight", &shape, ParameterRole::Weight, fill)?;
        self.push(
            name,
            Op::Positions(PositionTable { table }),
            &[x],
            shape.to_vec(),
        )
    }

    /// Adds a dense layer over the last dimension, with the same weight at each position.
    ///
    /// # Errors
    /// If it has no outputs or would be too large.
    pub fn project(
        &mut self,
        name: &str,
        x: ValueId,
        outputs: usize,
        bias: bool,
        fill: ParameterInit,
    ) -> Result<ValueId, BuildError> {
        let mut shape = self.shape(x).to_vec();
        let inputs = std::mem::replace(shape.last_mut().expect("a value has a dimension"), outputs);
        let weight = self.block(
            name,
            "weight",
            &[inputs, outputs],
            ParameterRole::Weight,
            fill,
        )?;
        let bias = if bias {
            self.bias(name, outputs)?
        } else {
            weight.end..weight.end
        };
        let op = Dense {
            inputs,
            outputs,
            relu: false,
            weight,
            bias,
            tied: false,
        };
        self.push(name, Op::Dense(op), &[x], shape)
    }

    /// Adds a projection to the vocabulary without bias, whose weight is the transposed table of
    /// `embedding` (Press and Wolf, 2017).
    ///
    /// # Errors
    /// If `embedding` is not an embedding, or its width differs from that of `x`.
    pub fn project_tied(
        &mut self,
        name: &str,
        x: ValueId,
        embedding: ValueId,
    ) -> Result<ValueId, BuildError> {
        let node = embedding.0.checked_sub(1).map(|node| &self.nodes[node].op);
        let Some(Op::Embedding(Embedding {
            vocabulary,
            width,
            table,
        })) = node.cloned()
        else {
            return Err(self.unfit(name, "the table of an embedding", embedding));
        };
        let mut shape = self.shape(x).to_vec();
        let last = shape.last_mut().expect("a value has a dimension");
        if *last != width {
            return Err(self.unfit(name, "features as wide as the embedding", x));
        }
        *last = vocabulary;
        let op = Dense {
            inputs: width,
            outputs: vocabulary,
            relu: false,
            weight: table,
            bias: 0..0,
            tied: true,
        };
        self.push(name, Op::Dense(op), &[x], shape)
    }

    /// Adds layer normalisation over the last dimension, with ε = 10^−5.
    ///
    /// # Errors
    /// If it would be too large.
    pub fn layer_norm(&mut self, name: &str, x: ValueId) -> Result<ValueId, BuildError> {
        let shape = self.shape(x).to_vec();
        let width = *shape.last().expect("a value has a dimension");
        let scale = self.block(
            name,
            "weight",
            &[width],
            ParameterRole::Bias,
            ParameterInit::Constant(1.0),
        )?;
        let shift = self.bias(name, width)?;
        let op = LayerNorm {
            rows: self.numbers(x) / width,
            width,
            scale,
            shift,
        };
        self.push(name, Op::LayerNorm(op), &[x], shape)
    }

    /// Adds dropout. In training an element becomes 0 with probability `share`, else it is divided
    /// by 1 − `share`.
    ///
    /// # Errors
    /// If `share` is not in the range from 0 (inclusive) to 1 (exclusive).
    pub fn dropout(&mut self, name: &str, x: ValueId, share: f32) -> Result<ValueId, BuildError> {
        if !(0.0..1.0).contains(&share) {
            return Err(BuildError::Dropout {
                layer: name.to_owned(),
                share: share.to_string(),
            });
        }
        let op = Dropout {
            numbers: self.numbers(x),
            operation: self.nodes.len() as u64,
            share,
        };
        let shape = self.shape(x).to_vec();
        self.push(name, Op::Dropout(op), &[x], shape)
    }

    /// Adds multi-head causal self-attention of positions × 3 · width, which hold queries, keys and
    /// values, each of them head after head. Scores are divided by the square root of a head's
    /// width.
    ///
    /// # Errors
    /// If `qkv` is not such a sequence, or the number of heads does not divide the width.
    pub fn attention(
        &mut self,
        name: &str,
        qkv: ValueId,
        heads: usize,
    ) -> Result<ValueId, BuildError> {
        let [positions, columns] = self.sequence(name, qkv)?;
        if !columns.is_multiple_of(3) {
            return Err(self.unfit(name, "queries, keys and values of one width", qkv));
        }
        let width = columns / 3;
        if heads == 0 || !width.is_multiple_of(heads) {
            return Err(BuildError::Heads {
                layer: name.to_owned(),
                heads,
                width,
            });
        }
        let op = Attention {
            positions,
            heads,
            head: width / heads,
        };
        self.push(name, Op::Attention(op), &[qkv], vec![positions, width])
    }

    /// Adds one LSTM layer (Hochreiter and Schmidhuber, 1997; PyTorch's gates i, f, g, o, one bias)
    /// that starts from state 0. Its output is the hidden state at each position.
    ///
    /// # Errors
    /// If `x` is not a sequence, or the layer would be empty or too large.
    pub fn lstm(&mut self, name: &str, x: ValueId, hidden: usize) -> Result<ValueId, BuildError> {
        let [positions, inputs] = self.sequence(name, x)?;
        let [input_weight, recurrent_weight] = self.recurrent(name, inputs, hidden, 4)?;
        let fill = fill_of(hidden);
        let bias = self.block(name, "bias", &[4 * hidden], ParameterRole::Bias, fill)?;
        product(&format!("the gates of {name}"), &[positions, 5 * hidden])?;
        let op = Lstm {
            positions,
            inputs,
            hidden,
            input_weight,
            recurrent_weight,
            bias,
        };
        self.push(name, Op::Lstm(op), &[x], vec![positions, hidden])
    }

    /// Adds one GRU layer (Cho et al., 2014; PyTorch's gates r, z, n, with the reset gate after the
    /// product) that starts from state 0. Its output is the hidden state at each position.
    ///
    /// # Errors
    /// If `x` is not a sequence, or the layer would be empty or too large.
    pub fn gru(&mut self, name: &str, x: ValueId, hidden: usize) -> Result<ValueId, BuildError> {
        let [positions, inputs] = self.sequence(name, x)?;
        let [input_weight, recurrent_weight] = self.recurrent(name, inputs, hidden, 3)?;
        let fill = fill_of(hidden);
        let bias = self.block(name, "bias", &[3 * hidden], ParameterRole::Bias, fill)?;
        let recurrent_bias = self.block(
            name,
            "recurrent_bias",
            &[3 * hidden],
            ParameterRole::Bias,
            fill,
        )?;
        product(&format!("the gates of {name}"), &[positions, 4 * hidden])?;
        let op = Gru {
            positions,
            inputs,
            hidden,
            input_weight,
            recurrent_weight,
            bias,
            recurrent_bias,
        };
        self.push(name, Op::Gru(op), &[x], vec![positions, hidden])
    }

    fn recurrent(
        &mut self,
        name: &str,
        inputs: usize,
        hidden: usize,
        gates: usize,
    ) -> Result<[std::ops::Range<usize>; 2], BuildError> {
        if hidden == 0 {
            let layer = name.to_owned();
            let what = "outputs";
            return Err(BuildError::Empty { layer, what });
        }
        let columns = product(&format!("the gates of {name}"), &[gates, hidden])?;
        let fill = fill_of(hidden);
        let shape = [inputs, columns];
        let input = self.block(name, "input_weight", &shape, ParameterRole::Weight, fill)?;
        let shape = [hidden, columns];
        let recurrent = self.block(
            name,
            "recurrent_weight",
            &shape,
            ParameterRole::Weight,
            fill,
        )?;
        Ok([input, recurrent])
    }

    /// Returns the shape of `x` as positions × features.
    fn sequence(&self, layer: &str, x: ValueId) -> Result<[usize; 2], BuildError> {
        let shape = <[usize; 2]>::try_from(self.shape(x));
        shape.map_err(|_| self.unfit(layer, "a sequence (positions × features)", x))
    }

    fn unfit(&self, layer: &str, expected: &'static str, x: ValueId) -> BuildError {
        BuildError::Shape {
            layer: layer.to_owned(),
            expected,
            actual: format!("{:?}", self.shape(x)),
        }
    }
}

/// PyTorch's initialisation of recurrent layers: uniform within ±1 / √hidden.
fn fill_of(hidden: usize) -> ParameterInit {
    let variance = 1.0 / (3.0 * hidden as f64);
    ParameterInit::Uniform { variance }
}
