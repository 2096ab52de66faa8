//! Rules of codecs, and of the optimizer that `dgc` requires.

use super::Errors;
use crate::spec::{Algorithm, CodecConfig, Engine, JobSpec, Optimizer};

const MAX_NAMED: usize = 64;

impl JobSpec {
    pub(super) fn check_compression(&self, errors: &mut Errors, engine: &Engine) {
        let Some(codecs) = self.exchange.compression.codecs() else {
            return;
        };
        errors.check(
            "exchange.compression",
            &"with a codec",
            self.exchange.averaging.is_none(),
            "none with exchange.averaging: codecs are for gradients, and parameters are averaged",
        );
        errors.check(
            "exchange.algorithm",
            &self.exchange.algorithm,
            self.exchange.algorithm == Algorithm::Auto,
            "auto with exchange.compression: encoded gradients go a way of their own",
        );
        check_codec(errors, engine, "exchange.compression.codec", codecs.codec);
        errors.check(
            "exchange.compression.layers",
            &format!("{} layers", codecs.layers.len()),
            codecs.layers.len() <= MAX_NAMED,
            "at most 64 layers",
        );
        for (index, layer) in codecs.layers.iter().enumerate() {
            let field = format!("exchange.compression.layers[{index}]");
            let stars = layer.blocks.matches('*').count();
            errors.check(
                &format!("{field}.blocks"),
                &format!("{:?}", layer.blocks),
                (1..=128).contains(&layer.blocks.len()) && stars <= 1,
                "1 to 128 bytes with one * at most",
            );
            check_codec(errors, engine, &format!("{field}.codec"), layer.codec);
        }
    }
}

fn check_codec(errors: &mut Errors, engine: &Engine, field: &str, codec: CodecConfig) {
    match codec {
        CodecConfig::None {} | CodecConfig::OneBit {} | CodecConfig::Half { .. } => {}
        CodecConfig::TernGrad { clip, .. } => {
            if let Some(clip) = clip {
                let right = is_positive(clip);
                errors.check(&format!("{field}.clip"), &clip, right, "above 0, or null");
            }
        }
        CodecConfig::Qsgd { bits, bucket, .. } => {
            let right = (4..=8).contains(&bits);
            errors.check(&format!("{field}.bits"), &bits, right, "4 to 8");
            errors.check(
                &format!("{field}.bucket"),
                &bucket,
                (64..=65_536).contains(&bucket) && bucket.is_power_of_two(),
                "a power of two from 64 to 65536",
            );
        }
        CodecConfig::TopK { density, .. } => errors.part(&format!("{field}.density"), density),
        CodecConfig::Threshold { magnitude } => {
            let right = is_positive(magnitude);
            errors.check(&format!("{field}.magnitude"), &magnitude, right, "above 0");
        }
        CodecConfig::Dgc {
            density, momentum, ..
        } => {
            errors.part(&format!("{field}.density"), density);
            errors.share(&format!("{field}.momentum"), f64::from(momentum));
            errors.check(
                "engine.optimizer",
                &"with a momentum of its own",
                matches!(engine.optimizer, Optimizer::Sgd { momentum, .. } if momentum == 0.0),
                "sgd without momentum: with dgc the workers apply it before they send",
            );
        }
    }
}

fn is_positive(value: f32) -> bool {
    value > 0.0 && value.is_finite()
}
