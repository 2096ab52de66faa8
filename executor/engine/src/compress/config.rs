//! Which codec for which parameters, as a job's document says it.

use super::{
    Codec, Correction, Dense, Half, HalfFormat, Norm, OneBit, Qsgd, Rounding, Scale, Selection,
    Sparse, TernGrad,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A codec with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum CodecConfig {
    /// Plain numbers.
    None,
    Half {
        format: HalfFormat,
        #[serde(default)]
        rounding: Rounding,
        /// Whether what rounding loses is added to the next step.
        #[serde(default)]
        feedback: bool,
    },
    OneBit,
    TernGrad {
        #[serde(default)]
        scale: Scale,
        /// In standard deviations; `null` clips nothing.
        #[serde(default = "paper_clip")]
        clip: Option<f32>,
    },
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
    TopK {
        /// Above 0, at most 1.
        density: f64,
        /// By a threshold from a sample: half the time, and the density about right.
        #[serde(default)]
        sampled: bool,
    },
    Threshold {
        /// Above 0.
        magnitude: f32,
    },
    /// Deep Gradient Compression, the threshold from a sample as in the paper. The optimizer must have no momentum of its own.
    Dgc {
        density: f64,
        /// From 0 to below 1.
        momentum: f32,
        #[serde(default)]
        warm_up_steps: u64,
    },
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

/// A codec for all parameters, but for small blocks and named ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compression {
    pub codec: CodecConfig,
    /// Blocks of fewer numbers, such as biases, stay plain: their bytes do not matter, their errors do.
    #[serde(default = "dense_below")]
    pub dense_below: usize,
    /// The first that matches decides, whatever the block's length.
    #[serde(default)]
    pub layers: Vec<LayerCodec>,
}

/// Another codec for some blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerCodec {
    /// A block's name, in which one `*` stands for anything: `dense1.weight`, `conv*`, `*.bias`.
    pub blocks: String,
    pub codec: CodecConfig,
}

/// Why there is no such codec.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "QSGD takes 4 to 8 bits and buckets of a power of two from 64 to 65536, not {bits} bits and {bucket}"
    )]
    Qsgd { bits: u8, bucket: usize },
    #[error("clipping at {0} standard deviations leaves nothing")]
    Clip(f32),
    #[error(
        "a density must be above 0 and at most 1, a magnitude above 0, a momentum from 0 to below 1: {0:?}"
    )]
    Sparse(CodecConfig),
}

impl CodecConfig {
    /// The codec itself, as fast as this processor allows.
    ///
    /// # Errors
    /// [`ConfigError`] when a setting lies outside its range.
    pub fn build(&self) -> Result<Arc<dyn Codec>, ConfigError> {
        Ok(match *self {
            Self::None => Arc::new(Dense),
            Self::Half {
                format,
                rounding,
                feedback,
            } => Arc::new(Half::new(format, rounding, feedback)),
            Self::OneBit => Arc::new(OneBit::new()),
            Self::TernGrad { scale, clip } => {
                let clip = clip.unwrap_or(f32::INFINITY);
                if clip.is_nan() || clip <= 0.0 {
                    return Err(ConfigError::Clip(clip));
                }
                Arc::new(TernGrad::new(scale, clip))
            }
            Self::Qsgd { bits, bucket, norm } => {
                let codec = Qsgd::new(bits, bucket, norm);
                Arc::new(codec.ok_or(ConfigError::Qsgd { bits, bucket })?)
            }
            Self::TopK { density, sampled } => self.sparse(selection(density, sampled), None)?,
            Self::Threshold { magnitude } => {
                self.sparse(Selection::Threshold { magnitude }, None)?
            }
            Self::Dgc {
                density,
                momentum,
                warm_up_steps,
            } => {
                let correction = Correction {
                    momentum,
                    warm_up_steps,
                };
                self.sparse(selection(density, true), Some(correction))?
            }
        })
    }

    fn sparse(
        &self,
        selection: Selection,
        correction: Option<Correction>,
    ) -> Result<Arc<dyn Codec>, ConfigError> {
        let codec = Sparse::new(selection, correction);
        Ok(Arc::new(codec.ok_or(ConfigError::Sparse(*self))?))
    }
}

fn selection(density: f64, sampled: bool) -> Selection {
    if sampled {
        Selection::Sampled { density }
    } else {
        Selection::Exact { density }
    }
}

impl Compression {
    /// One codec for every block of `dense_below` numbers or more.
    #[must_use]
    pub fn uniform(codec: CodecConfig) -> Self {
        Self {
            codec,
            dense_below: dense_below(),
            layers: Vec::new(),
        }
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
            None if len < self.dense_below => CodecConfig::None,
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
