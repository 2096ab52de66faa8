//! Layers of a network that is written as a list of layers.

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// One layer. Images are height × width × channels, sequences positions × features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Layer {
    Conv {
        /// Output channels.
        channels: u32,
        #[serde(default = "Sides::three")]
        kernel: Sides,
        #[serde(default = "Sides::one")]
        stride: Sides,
        /// Default: half of the kernel, which keeps the sides of an image at stride 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        padding: Option<Sides>,
        /// Divides both channel counts. With as many groups as channels the convolution is
        /// depthwise.
        #[serde(default = "one")]
        groups: u32,
        #[serde(default = "yes")]
        bias: bool,
        #[serde(default)]
        relu: bool,
    },
    /// 3×3 convolution, ReLU and 2×2 max pooling in one operation, which takes less memory and time
    /// than three layers.
    ConvPool {
        channels: u32,
    },
    /// Over the whole input, flattened.
    Dense {
        width: u32,
        #[serde(default)]
        relu: bool,
    },
    MaxPool {
        #[serde(default = "Sides::two")]
        kernel: Sides,
        /// Default: the kernel.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stride: Option<Sides>,
        /// Default: none. At most half of the kernel.
        #[serde(default = "Sides::zero")]
        padding: Sides,
    },
    /// Positions in the padding do not count.
    AveragePool {
        #[serde(default = "Sides::two")]
        kernel: Sides,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stride: Option<Sides>,
        #[serde(default = "Sides::zero")]
        padding: Sides,
    },
    GlobalAveragePool {},
    BatchNorm {
        #[serde(default)]
        relu: bool,
    },
    Activation {
        function: Activation,
    },
    /// In training, a number becomes 0 with the probability `share`, 0 to below 1.
    Dropout {
        share: f32,
    },
    /// Normalises the last dimension.
    LayerNorm {},
    /// Repeats each position of an image `factor` times in both directions.
    Upsample {
        factor: u32,
    },
    /// A learned row of `width` numbers for each token.
    Embedding {
        width: u32,
    },
    /// Adds a learned row to each position.
    Positions {},
    /// A dense layer over the last dimension, the same at each position.
    Project {
        width: u32,
        #[serde(default = "yes")]
        bias: bool,
    },
    /// Causal self-attention with its projections; `heads` is a divisor of the features.
    Attention {
        heads: u32,
    },
    Lstm {
        hidden: u32,
    },
    Gru {
        hidden: u32,
    },
    /// Any shape to one dimension.
    Flatten {},
    Reshape {
        shape: Vec<u32>,
    },
    /// Adds the output of `layers` to the input, or to the output of `shortcut`.
    Residual {
        #[cfg_attr(feature = "schema", schema(no_recursion))]
        layers: Vec<Layer>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "schema", schema(no_recursion))]
        shortcut: Vec<Layer>,
        /// ReLU after the addition.
        #[serde(default)]
        relu: bool,
    },
    /// Joins the outputs of the branches along the last dimension. An empty branch passes its input
    /// through.
    Concat {
        #[cfg_attr(feature = "schema", schema(no_recursion))]
        branches: Vec<Vec<Layer>>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Activation {
    Relu,
    /// With a slope of 0.01 below 0.
    LeakyRelu,
    Gelu,
    /// GPT-2's approximation.
    GeluTanh,
    Sigmoid,
    Tanh,
    Silu,
}

/// Height and width: one number for both, or `[height, width]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sides(pub [u32; 2]);

impl Sides {
    #[must_use]
    pub fn square(side: u32) -> Self {
        Self([side, side])
    }

    fn zero() -> Self {
        Self::square(0)
    }

    fn one() -> Self {
        Self::square(1)
    }

    fn two() -> Self {
        Self::square(2)
    }

    fn three() -> Self {
        Self::square(3)
    }

    /// Returns the padding that keeps the sides of an image at stride 1, for kernels with odd
    /// sides.
    #[must_use]
    pub fn half(self) -> Self {
        Self(self.0.map(|side| side / 2))
    }
}

impl Layer {
    /// Returns the kind as written in the document.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Conv { .. } => "conv",
            Self::ConvPool { .. } => "conv_pool",
            Self::Dense { .. } => "dense",
            Self::MaxPool { .. } => "max_pool",
            Self::AveragePool { .. } => "average_pool",
            Self::GlobalAveragePool {} => "global_average_pool",
            Self::BatchNorm { .. } => "batch_norm",
            Self::Activation { .. } => "activation",
            Self::Dropout { .. } => "dropout",
            Self::LayerNorm {} => "layer_norm",
            Self::Upsample { .. } => "upsample",
            Self::Embedding { .. } => "embedding",
            Self::Positions {} => "positions",
            Self::Project { .. } => "project",
            Self::Attention { .. } => "attention",
            Self::Lstm { .. } => "lstm",
            Self::Gru { .. } => "gru",
            Self::Flatten {} => "flatten",
            Self::Reshape { .. } => "reshape",
            Self::Residual { .. } => "residual",
            Self::Concat { .. } => "concat",
        }
    }
}

impl fmt::Display for Sides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}", self.0[0], self.0[1])
    }
}

impl Serialize for Sides {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            [height, width] if height == width => serializer.serialize_u32(height),
            sides => sides.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Sides {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrTwo;

        impl<'de> Visitor<'de> for OneOrTwo {
            type Value = Sides;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, or a list of height and width")
            }

            fn visit_u64<E: de::Error>(self, side: u64) -> Result<Sides, E> {
                u32::try_from(side)
                    .map(Sides::square)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(side), &self))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sides: A) -> Result<Sides, A::Error> {
                let mut next = |at: usize| -> Result<u32, A::Error> {
                    let side = sides.next_element()?;
                    side.ok_or_else(|| de::Error::invalid_length(at, &"height and width"))
                };
                let both = [next(0)?, next(1)?];
                match sides.next_element::<de::IgnoredAny>()? {
                    None => Ok(Sides(both)),
                    Some(_) => Err(de::Error::invalid_length(3, &"height and width")),
                }
            }
        }

        deserializer.deserialize_any(OneOrTwo)
    }
}

#[cfg(feature = "schema")]
mod schema {
    use super::Sides;
    use utoipa::openapi::RefOr;
    use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type};
    use utoipa::{PartialSchema, ToSchema};

    fn side_schema() -> ObjectBuilder {
        ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(0))
    }

    impl PartialSchema for Sides {
        fn schema() -> RefOr<Schema> {
            let both = ArrayBuilder::new()
                .items(side_schema())
                .min_items(Some(2))
                .max_items(Some(2));
            OneOfBuilder::new()
                .description(Some(
                    "Height and width: one number for both, or `[height, width]`.",
                ))
                .item(side_schema())
                .item(both)
                .into()
        }
    }

    impl ToSchema for Sides {}
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}
