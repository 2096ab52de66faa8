//! Construction of codecs from the settings of a job document.

use super::{Codec, Correction, DenseCodec, HalfCodec, OneBit, Qsgd, Selection, Sparse, TernGrad};
pub use muster_model::spec::{CodecConfig, Codecs, LayerCodec};
use std::sync::Arc;

/// Why the settings do not define a codec.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum CodecConfigError {
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

/// Builds the codec, with the fastest instructions of this processor.
///
/// # Errors
/// [`CodecConfigError`] if a setting is out of range.
pub fn build(config: &CodecConfig) -> Result<Arc<dyn Codec>, CodecConfigError> {
    Ok(match *config {
        CodecConfig::None {} => Arc::new(DenseCodec),
        CodecConfig::Half {
            format,
            rounding,
            feedback,
        } => Arc::new(HalfCodec::new(format, rounding, feedback)),
        CodecConfig::OneBit {} => Arc::new(OneBit::new()),
        CodecConfig::TernGrad { scale, clip } => {
            let clip = clip.unwrap_or(f32::INFINITY);
            if clip.is_nan() || clip <= 0.0 {
                return Err(CodecConfigError::Clip(clip));
            }
            Arc::new(TernGrad::new(scale, clip))
        }
        CodecConfig::Qsgd { bits, bucket, norm } => {
            let codec = Qsgd::new(bits, bucket, norm);
            Arc::new(codec.ok_or(CodecConfigError::Qsgd { bits, bucket })?)
        }
        CodecConfig::TopK { density, sampled } => {
            sparse(config, selection(density, sampled), None)?
        }
        CodecConfig::Threshold { magnitude } => {
            sparse(config, Selection::Threshold { magnitude }, None)?
        }
        CodecConfig::Dgc {
            density,
            momentum,
            warm_up_steps,
            masking,
        } => {
            let correction = Correction {
                momentum,
                warm_up_steps,
                masking,
            };
            sparse(config, selection(density, true), Some(correction))?
        }
    })
}

fn sparse(
    config: &CodecConfig,
    selection: Selection,
    correction: Option<Correction>,
) -> Result<Arc<dyn Codec>, CodecConfigError> {
    let codec = Sparse::new(selection, correction);
    Ok(Arc::new(codec.ok_or(CodecConfigError::Sparse(*config))?))
}

fn selection(density: f64, sampled: bool) -> Selection {
    if sampled {
        Selection::Sampled { density }
    } else {
        Selection::Exact { density }
    }
}
