//! Networks: by their name, or as a list of layers.

use super::layer::Layer;
use serde::{Deserialize, Serialize};

/// A network by its kind. What goes in and comes out follows from the data set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Model {
    /// Dense layers with ReLU, then class scores, or the numbers to be said.
    Mlp {
        /// Widths, input to output; at most 16, each 1 to 16,384.
        #[cfg_attr(feature = "schema", schema(max_items = 16))]
        hidden: Vec<u32>,
    },
    /// Per channel count a 3×3 convolution, ReLU and 2×2 max pooling; then dense layers with ReLU, then class scores.
    Cnn {
        /// Output channels; 1 to 8 convolutions, each 1 to 1,024.
        channels: Vec<u32>,
        /// Widths; at most 8, each 1 to 16,384.
        dense: Vec<u32>,
    },
    /// LeCun et al., 1998.
    Lenet5 {},
    /// Krizhevsky, 2014, of images of at least 63 pixels a side.
    Alexnet {},
    /// Simonyan and Zisserman, 2015, of images of at least 32 pixels a side.
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
    /// A convolutional autoencoder of images, which learns to say what it reads.
    Autoencoder {
        /// Of the convolutions of stride 2, each 1 to 1,024; 1 to 8. The sides of the image halve evenly at each.
        channels: Vec<u32>,
        /// Numbers in the middle, 1 to 16,384.
        code: u32,
    },
    /// A transformer after GPT-2 (Radford et al., 2019), of text.
    Gpt {
        /// 1 to 16,384; `heads` divide it.
        width: u32,
        /// 1 to 128.
        blocks: u32,
        heads: u32,
        /// Whether the scores are products with the tokens' own table.
        #[serde(default = "yes")]
        tied: bool,
        /// 0 to below 1.
        #[serde(default)]
        dropout: f32,
    },
    /// A language model of long short-term memory (Hochreiter and Schmidhuber, 1997), of text.
    Lstm {
        /// Of the embedding, 1 to 16,384.
        width: u32,
        /// Of each layer, 1 to 16,384; 1 to 16 layers.
        hidden: Vec<u32>,
    },
    /// The same of gated recurrent units (Cho et al., 2014).
    Gru { width: u32, hidden: Vec<u32> },
    /// Any network: its layers in order, each reading what the one before made.
    Layers {
        /// At most 1,024, those inside others counted too.
        layers: Vec<Layer>,
        #[serde(default)]
        goal: Goal,
    },
}

/// Which of the published ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum DenseNetVariant {
    /// Growth 32, blocks of 6, 12, 24 and 16 layers.
    D121,
    /// DenseNet-BC of 100 layers and growth 12, for small images.
    Bc100,
}

/// What a list of layers is trained for, which decides its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Goal {
    /// What the data set has: class scores after the last layer, the next token at every position, or numbers, as many as the last
    /// layer makes.
    #[default]
    Data,
    /// To say what it reads: the last layer makes as many numbers as the input has.
    Reconstruct,
    /// Yes or no: the data set's numbers are 0 or 1 (or between), and the last layer makes a score for each.
    Answer,
}

impl Model {
    /// As the document writes its kind.
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
