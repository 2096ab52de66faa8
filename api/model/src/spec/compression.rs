//! Codecs of gradients, by parameter. These are settings only; the engine builds the codecs.

use super::exchange::is_false;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Encoding of gradients: `none`, or codecs.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Compression {
    #[default]
    None,
    Codecs(Codecs),
}

/// A codec for all parameters except small blocks and named ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Codecs {
    pub codec: CodecConfig,
    /// Blocks of fewer numbers, such as biases, are sent as they are: they have few bytes, and
    /// their errors matter.
    #[serde(default = "dense_below")]
    pub dense_below: usize,
    /// Rules for named blocks of any length; the first match decides. At most 64.
    #[serde(default)]
    pub layers: Vec<LayerCodec>,
}

/// Another codec for some blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LayerCodec {
    /// Name of a block. One `*` matches any text: `dense1.weight`, `conv*`, `*.bias`.
    pub blocks: String,
    pub codec: CodecConfig,
}

/// A codec with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum CodecConfig {
    /// Plain f32.
    None {},
    /// 16 bits per number.
    Half {
        format: HalfFormat,
        #[serde(default)]
        rounding: Rounding,
        /// Whether the rounding error is added to the gradient of the next step.
        #[serde(default)]
        feedback: bool,
    },
    /// One sign per number, with error feedback (Seide et al., 2014).
    OneBit {},
    /// Three levels, random and unbiased (Wen et al., 2017).
    TernGrad {
        #[serde(default)]
        scale: TernScale,
        /// Clipping in standard deviations, above 0; `null` clips nothing.
        #[serde(default = "paper_clip")]
        clip: Option<f32>,
    },
    /// Levels of a bucket's norm, random and unbiased (Alistarh et al., 2017).
    Qsgd {
        /// Bits per number, 4 to 8.
        #[serde(default = "byte")]
        bits: u8,
        /// Numbers that share a norm: a power of two from 64 to 65,536.
        #[serde(default = "paper_bucket")]
        bucket: usize,
        #[serde(default)]
        norm: Norm,
    },
    /// The largest numbers; the rest stays in the residual.
    TopK {
        /// Share of the numbers that are sent; above 0, at most 1.
        density: f64,
        /// Finds the threshold from a sample. This takes half the time; the density is then
        /// approximate.
        #[serde(default)]
        sampled: bool,
    },
    /// Numbers of at least this magnitude; the rest stays in the residual (Strom, 2015).
    Threshold {
        /// Smallest magnitude that is sent; above 0.
        magnitude: f32,
    },
    /// Deep Gradient Compression (Lin et al., 2018), with the threshold from a sample as in the
    /// paper. The optimizer must have no momentum.
    Dgc {
        density: f64,
        /// 0 to below 1.
        momentum: f32,
        #[serde(default)]
        warm_up_steps: u64,
        /// Whether the momentum of sent numbers is cleared, as in the paper. This limits the effect
        /// of stale gradients and costs convergence speed.
        #[serde(default, skip_serializing_if = "is_false")]
        masking: bool,
    },
}

/// Format of 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum HalfFormat {
    F16,
    Bf16,
}

/// Rounding of a number to the 16-bit format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Rounding {
    /// To the nearest, ties to even.
    #[default]
    Nearest,
    /// Random, unbiased.
    Stochastic,
}

/// Numbers that share one scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum TernScale {
    /// Each group of numbers.
    #[default]
    Group,
    /// The whole block.
    Block,
}

/// Norm of a bucket.
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
    /// Returns the codecs, if any.
    #[must_use]
    pub fn codecs(&self) -> Option<&Codecs> {
        match self {
            Self::None => None,
            Self::Codecs(codecs) => Some(codecs),
        }
    }
}

impl Codecs {
    /// Returns one codec for all blocks of at least the default `dense_below`.
    #[must_use]
    pub fn uniform(codec: CodecConfig) -> Self {
        Self {
            codec,
            dense_below: dense_below(),
            layers: Vec::new(),
        }
    }

    /// Returns the momentum that workers apply to everything that they send: that of the first
    /// `dgc` codec. `None` without such a codec.
    #[must_use]
    pub fn momentum(&self) -> Option<f32> {
        let named = self.layers.iter().map(|layer| layer.codec);
        let mut all = std::iter::once(self.codec).chain(named);
        all.find_map(|codec| match codec {
            CodecConfig::Dgc { momentum, .. } => Some(momentum),
            _ => None,
        })
    }

    /// Returns the codec for a block of this name and length.
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

/// Implemented by hand, because errors of an untagged enum do not name the wrong field.
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
    fn star_matches_any_text() {
        assert!(matches("dense1.weight", "dense1.weight"));
        assert!(!matches("dense1", "dense1.weight"));
        assert!(matches("*.bias", "conv1.bias") && !matches("*.bias", "conv1.weight"));
        assert!(matches("conv*", "conv12.weight") && matches("*", ""));
        // The star must not match one letter twice.
        assert!(matches("a*a", "aa") && !matches("a*a", "a"));
    }
}
