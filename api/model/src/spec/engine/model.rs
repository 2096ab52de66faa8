//! Networks: by name, or as a list of layers.

use super::layer::Layer;
use serde::{Deserialize, Serialize};

/// A network. The data set determines its input and output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Model {
    /// Dense layers with ReLU, then class scores or numbers.
    Mlp {
        /// Widths from input to output; at most 16, each 1 to 16,384.
        #[cfg_attr(feature = "schema", schema(max_items = 16))]
        hidden: Vec<u32>,
    },
    /// Per channel count a 3×3 convolution, ReLU and 2×2 max pooling. Then dense layers with ReLU
    /// and class scores.
    Cnn {
        /// Output channels; 1 to 8 convolutions, each 1 to 1,024.
        channels: Vec<u32>,
        /// Widths; at most 8, each 1 to 16,384.
        dense: Vec<u32>,
    },
    /// LeCun et al., 1998.
    Lenet5 {},
    /// Krizhevsky, 2014, for images of at least 63×63 pixels.
    Alexnet {},
    /// Simonyan and Zisserman, 2015, for images of at least 32×32 pixels.
    Vgg {
        /// 11, 13, 16 or 19.
        depth: u32,
        #[serde(default)]
        batch_norm: bool,
    },
    /// Szegedy et al., 2015.
    Googlenet {},
    /// He et al., 2016.
    Resnet {
        /// 18, 34, 50, 101 or 152.
        depth: u32,
    },
    /// Huang et al., 2017.
    Densenet { variant: DenseNetVariant },
    /// A convolutional autoencoder, which learns to reproduce its input image.
    Autoencoder {
        /// Channels of the convolutions of stride 2; 1 to 8, each 1 to 1,024. The sides of the
        /// image halve evenly at each.
        channels: Vec<u32>,
        /// Numbers in the middle, 1 to 16,384.
        code: u32,
    },
    /// A transformer after GPT-2 (Radford et al., 2019), for texts.
    Gpt {
        /// 1 to 16,384; a multiple of `heads`.
        width: u32,
        /// 1 to 128.
        blocks: u32,
        heads: u32,
        /// Whether the scores use the embedding's own table.
        #[serde(default = "yes")]
        tied: bool,
        /// 0 to below 1.
        #[serde(default)]
        dropout: f32,
    },
    /// A language model of long short-term memory (Hochreiter and Schmidhuber, 1997), for texts.
    Lstm {
        /// Width of the embedding, 1 to 16,384.
        width: u32,
        /// Width of each layer, 1 to 16,384; 1 to 16 layers.
        hidden: Vec<u32>,
    },
    /// A language model of gated recurrent units (Cho et al., 2014), for texts.
    Gru { width: u32, hidden: Vec<u32> },
    /// Any network: layers in order, each of which reads the output of the one before.
    Layers {
        /// At most 1,024, including nested ones.
        layers: Vec<Layer>,
        #[serde(default)]
        goal: Goal,
    },
}

/// Published variants of DenseNet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum DenseNetVariant {
    /// Growth 32, blocks of 6, 12, 24 and 16 layers.
    D121,
    /// DenseNet-BC of 100 layers and growth 12, for small images.
    Bc100,
}

/// Training goal of a list of layers, which decides its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Goal {
    /// Follows from the data set: class scores after the last layer, the next token at each
    /// position, or the numbers of the last layer.
    #[default]
    Data,
    /// Reproduce the input: the last layer has as many numbers as the input.
    Reconstruct,
    /// Scores of yes or no: the values of the data set are 0 to 1, and the last layer has one score
    /// for each.
    Answer,
}

impl Model {
    /// Returns the kind as written in the document.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Mlp { .. } => "mlp",
            Self::Cnn { .. } => "cnn",
            Self::Lenet5 {} => "lenet5",
            Self::Alexnet {} => "alexnet",
            Self::Vgg { .. } => "vgg",
            Self::Googlenet {} => "googlenet",
            Self::Resnet { .. } => "resnet",
            Self::Densenet { .. } => "densenet",
            Self::Autoencoder { .. } => "autoencoder",
            Self::Gpt { .. } => "gpt",
            Self::Lstm { .. } => "lstm",
            Self::Gru { .. } => "gru",
            Self::Layers { .. } => "layers",
        }
    }
}

fn yes() -> bool {
    true
}
