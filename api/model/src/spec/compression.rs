//! Which codec the gradients of which parameters are sent with. Settings only: the engine makes codecs of them.

use super::exchange::is_false;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// What is done to gradients before they are sent: `none`, or codecs.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Compression {
    #[default]
    None,
    Codecs(Codecs),
}

/// A codec for all parameters, but for small blocks and named ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Codecs {
    pub codec: CodecConfig,
    /// Blocks of fewer numbers, such as biases, stay plain: their bytes do not matter, their errors do.
    #[serde(default = "dense_below")]
    pub dense_below: usize,
    /// The first that matches decides, whatever the block's length. At most 64.
    #[serde(default)]
    pub layers: Vec<LayerCodec>,
}

/// Another codec for some blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LayerCodec {
    /// A block's name, in which one `*` stands for anything: `dense1.weight`, `conv*`, `*.bias`.
    pub blocks: String,
    pub codec: CodecConfig,
}

/// A codec with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum CodecConfig {
    /// Plain numbers.
    None {},
    /// Sixteen bits a number.
    Half {
        format: HalfFormat,
        #[serde(default)]
        rounding: Rounding,
        /// Whether what rounding loses is added to the next step.
        #[serde(default)]
        feedback: bool,
    },
    /// A sign a number, with error feedback (Seide et al., 2014).
    OneBit {},
    /// Three levels, at random without bias (Wen et al., 2017).
    TernGrad {
        #[serde(default)]
        scale: TernScale,
        /// In standard deviations, above 0; `null` clips nothing.
        #[serde(default = "paper_clip")]
        clip: Option<f32>,
    },
    /// Levels of a bucket's norm, at random without bias (Alistarh et al., 2017).
    Qsgd {
        /// 4 to 8.
        #[serde(default = "byte")]
        bits: u8,
        /// Numbers that share a norm: a power of two from 64 to 65,536.
        #[serde(default = "paper_bucket")]
        bucket: usize,
        #[serde(default)]
        norm: Norm,
    },
    /// The largest only, the rest later.
    TopK {
        /// Above 0, at most 1.
        density: f64,
        /// By a threshold from a sample: half the time, and the density about right.
        #[serde(default)]
        sampled: bool,
    },
    /// Those of a magnitude only, the rest later (Strom, 2015).
    Threshold {
        /// Above 0.
        magnitude: f32,
    },
    /// Deep Gradient Compression (Lin et al., 2018), the threshold from a sample as in the paper. The optimizer must have no
    /// momentum of its own.
    Dgc {
        density: f64,
        /// From 0 to below 1.
        momentum: f32,
        #[serde(default)]
        warm_up_steps: u64,
        /// Whether the momentum of what is sent is forgotten, as in the paper: against stale gradients, at the price of pace.
        #[serde(default, skip_serializing_if = "is_false")]
        masking: bool,
    },
}

/// Which sixteen bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum HalfFormat {
    F16,
    Bf16,
}

/// How a number between two of the format's is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Rounding {
    /// To the nearest, ties to even.
    #[default]
    Nearest,
    /// At random, without bias.
    Stochastic,
}

/// What a scale of three levels belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum TernScale {
    /// Each group of numbers.
    #[default]
    Group,
    /// The block.
    Block,
}

/// What a bucket is measured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Norm {
    /// The largest magnitude.
    #[default]
    Largest,
    /// The Euclidean norm.
    Euclidean,
}

impl Compression {
    /// The codecs, where there are any.
    #[must_use]
    pub fn codecs(&self) -> Option<&Codecs> {
        match self {
            Self::None => None,
            Self::Codecs(codecs) => Some(codecs),
        }
    }
}

impl Codecs {
    /// One codec for every block of as many numbers as a document that does not say it means, or more.
    #[must_use]
    pub fn uniform(codec: CodecConfig) -> Self {
        Self {
            codec,
            dense_below: dense_below(),
            layers: Vec::new(),
        }
    }

    /// What workers apply themselves, to all that they send, because one of the codecs is Deep Gradient Compression: the first that is says it.
    #[must_use]
    pub fn momentum(&self) -> Option<f32> {
        let named = self.layers.iter().map(|layer| layer.codec);
        let mut all = std::iter::once(self.codec).chain(named);
        all.find_map(|codec| match codec {
            CodecConfig::Dgc { momentum, .. } => Some(momentum),
            _ => None,
        })
    }

    /// What a block of that name and length is encoded with.
    #[must_use]
    pub fn codec_of(&self, name: &str, len: usize) -> CodecConfig {
        let named = self
            .layers
            .iter()
            .find(|layer| matches(&layer.blocks, name));
        match named {
            Some(layer) => layer.codec,
            None if len < self.dense_below => CodecConfig::None {},
            None => self.codec,
        }
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => {
            name.len() >= before.len() + after.len()
                && name.starts_with(before)
                && name.ends_with(after)
        }
    }
}

fn paper_clip() -> Option<f32> {
    Some(2.5)
}

fn byte() -> u8 {
    8
}

fn paper_bucket() -> usize {
    512
}

fn dense_below() -> usize {
    1024
}

impl Serialize for Compression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_str("none"),
            Self::Codecs(codecs) => codecs.serialize(serializer),
        }
    }
}

/// By hand, because an untagged enum's errors do not say which field is wrong.
impl<'de> Deserialize<'de> for Compression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NoneOrCodecs;

        impl<'de> Visitor<'de> for NoneOrCodecs {
            type Value = Compression;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`none` or an object with `codec`")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Compression, E> {
                match word {
                    "none" => Ok(Compression::None),
                    other => Err(E::unknown_variant(other, &["none"])),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Compression, A::Error> {
                Codecs::deserialize(MapAccessDeserializer::new(map)).map(Compression::Codecs)
            }
        }

        deserializer.deserialize_any(NoneOrCodecs)
    }
}

#[cfg(feature = "schema")]
mod schema {
    use super::{Codecs, Compression};
    use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};
    use utoipa::openapi::{Ref, RefOr};
    use utoipa::{PartialSchema, ToSchema};

    impl PartialSchema for Compression {
        fn schema() -> RefOr<Schema> {
            let none = ObjectBuilder::new()
                .schema_type(Type::String)
                .enum_values(Some(["none"]));
            OneOfBuilder::new()
                .description(Some(
                    "What is done to gradients before they are sent: `none`, or codecs.",
                ))
                .item(none)
                .item(Ref::from_schema_name(Codecs::name()))
                .into()
        }
    }

    impl ToSchema for Compression {
        fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            schemas.push((Codecs::name().into(), Codecs::schema()));
            Codecs::schemas(schemas);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn one_star_stands_for_anything() {
        assert!(matches("dense1.weight", "dense1.weight"));
        assert!(!matches("dense1", "dense1.weight"));
        assert!(matches("*.bias", "conv1.bias") && !matches("*.bias", "conv1.weight"));
        assert!(matches("conv*", "conv12.weight") && matches("*", ""));
        // The star does not make two letters of one.
        assert!(matches("a*a", "aa") && !matches("a*a", "a"));
    }
}
