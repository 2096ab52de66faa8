//! Networks that read sequences of tokens and predict the next token at each position.

use super::super::block::ParameterInit;
use super::super::builder::{NetworkBuilder, ValueId};
use super::super::error::BuildError;
use super::super::input::ExampleShape;
use super::super::network::Network;
use crate::layer::ActivationFunction;

/// Standard deviation of GPT-2's initial weights.
const GPT_DEVIATION: f64 = 0.02;

/// Transformer after GPT-2 (Radford et al., 2019): learned positions, layer normalisation before
/// each part and at the end, tanh approximation of GELU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gpt {
    /// Tokens per example.
    pub length: usize,
    /// Number of different tokens; 256 for bytes.
    pub vocabulary: usize,
    pub width: usize,
    pub blocks: usize,
    pub heads: usize,
    /// Whether the scores use the transposed embedding table; else they have a weight of their own.
    /// There is no bias in either case.
    pub tied: bool,
    /// Dropout probability after the embedding and after each part of a block; 0 for none.
    pub dropout: f32,
}

impl Gpt {
    /// Smallest published GPT-2, 124,439,808 parameters.
    #[must_use]
    pub fn gpt2_small() -> Self {
        Self {
            length: 1024,
            vocabulary: 50_257,
            width: 768,
            blocks: 12,
            heads: 12,
            tied: true,
            dropout: 0.1,
        }
    }
}

/// # Errors
/// Names the invalid layer.
pub fn gpt(gpt: Gpt) -> Result<Network, BuildError> {
    let mut builder = tokens(gpt.length, gpt.vocabulary)?;
    let b = &mut builder;
    let small = ParameterInit::deviation(GPT_DEVIATION);
    let input = b.input();
    let embedding = b.embedding("tokens", input, gpt.width, small)?;
    let mut x = b.positions("positions", embedding, small)?;
    x = drop(b, "dropout", x, gpt.dropout)?;
    for block in 1..=gpt.blocks {
        x = block_of(b, &gpt, &format!("block{block}"), x)?;
    }
    x = b.layer_norm("norm", x)?;
    let scores = if gpt.tied {
        b.project_tied("head", x, embedding)?
    } else {
        b.project("head", x, gpt.vocabulary, false, small)?
    };
    builder.classify(scores)
}

fn block_of(
    b: &mut NetworkBuilder,
    gpt: &Gpt,
    name: &str,
    x: ValueId,
) -> Result<ValueId, BuildError> {
    let named = |part: &str| format!("{name}.{part}");
    let small = ParameterInit::deviation(GPT_DEVIATION);
    // Keeps the variance of the residual sum independent of the number of blocks.
    let smaller = ParameterInit::deviation(GPT_DEVIATION / (2.0 * gpt.blocks as f64).sqrt());
    let normal = b.layer_norm(&named("norm1"), x)?;
    let qkv = b.project(&named("qkv"), normal, 3 * gpt.width, true, small)?;
    let mixed = b.attention(&named("attention"), qkv, gpt.heads)?;
    let mixed = b.project(&named("output"), mixed, gpt.width, true, smaller)?;
    let mixed = drop(b, &named("dropout1"), mixed, gpt.dropout)?;
    let x = b.add(&named("add1"), x, mixed, false)?;
    let normal = b.layer_norm(&named("norm2"), x)?;
    let up = b.project(&named("up"), normal, 4 * gpt.width, true, small)?;
    let up = b.activate(&named("gelu"), up, ActivationFunction::GeluTanh)?;
    let down = b.project(&named("down"), up, gpt.width, true, smaller)?;
    let down = drop(b, &named("dropout2"), down, gpt.dropout)?;
    b.add(&named("add2"), x, down, false)
}

/// Language model of an embedding of `width`, LSTM layers of these widths and scores at each
/// position.
///
/// # Errors
/// Names the invalid layer.
pub fn lstm_language_model(
    length: usize,
    vocabulary: usize,
    width: usize,
    hidden: &[usize],
) -> Result<Network, BuildError> {
    recurrent(
        length,
        vocabulary,
        width,
        hidden,
        "lstm",
        NetworkBuilder::lstm,
    )
}

/// Language model of an embedding of `width`, GRU layers of these widths and scores at each
/// position.
///
/// # Errors
/// Names the invalid layer.
pub fn gru_language_model(
    length: usize,
    vocabulary: usize,
    width: usize,
    hidden: &[usize],
) -> Result<Network, BuildError> {
    recurrent(
        length,
        vocabulary,
        width,
        hidden,
        "gru",
        NetworkBuilder::gru,
    )
}

fn recurrent(
    length: usize,
    vocabulary: usize,
    width: usize,
    hidden: &[usize],
    kind: &str,
    layer: impl Fn(&mut NetworkBuilder, &str, ValueId, usize) -> Result<ValueId, BuildError>,
) -> Result<Network, BuildError> {
    let mut builder = tokens(length, vocabulary)?;
    let input = builder.input();
    let mut x = builder.embedding("embedding", input, width, ParameterInit::deviation(1.0))?;
    for (index, &hidden) in hidden.iter().enumerate() {
        x = layer(&mut builder, &format!("{kind}{}", index + 1), x, hidden)?;
    }
    let last = *builder.shape(x).last().expect("a sequence has features");
    let scores = builder.project(
        "logits",
        x,
        vocabulary,
        true,
        ParameterInit::glorot(last, vocabulary),
    )?;
    builder.classify(scores)
}

fn tokens(length: usize, vocabulary: usize) -> Result<NetworkBuilder, BuildError> {
    NetworkBuilder::new(ExampleShape::Tokens { length, vocabulary })
}

fn drop(b: &mut NetworkBuilder, name: &str, x: ValueId, share: f32) -> Result<ValueId, BuildError> {
    match share {
        0.0 => Ok(x),
        share => b.dropout(name, x, share),
    }
}
