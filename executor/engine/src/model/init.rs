//! Initial parameters, the same bytes on every machine.

use super::network::Network;
use super::workspace::Layer;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Sets this use of a seed apart from the data order's.
const DOMAIN: [u8; 16] = *b"muster init v1\0\0";

impl Network {
    /// Weights of ReLU layers are uniform with variance 2 / inputs (He et al., 2015), of the scores with variance
    /// 2 / (inputs + outputs) (Glorot and Bengio, 2010); biases are 0.
    ///
    /// Uniform rather than normal: it needs only a root and products, which IEEE 754 rounds alike everywhere, and no logarithm.
    #[must_use]
    pub fn init(&self, seed: u64) -> Vec<f32> {
        let mut params = vec![0.0; self.parameter_count()];
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..24].copy_from_slice(&DOMAIN);
        let mut rng = ChaCha12Rng::from_seed(key);
        for layer in &self.layers {
            let (weight, variance) = match layer {
                Layer::Conv(conv) => (&conv.weight, 2.0 / (9 * conv.channels_in) as f64),
                Layer::Dense(dense) if dense.relu => (&dense.weight, 2.0 / dense.inputs as f64),
                Layer::Dense(dense) => (&dense.weight, 2.0 / (dense.inputs + dense.outputs) as f64),
            };
            let limit = (3.0 * variance).sqrt() as f32;
            for weight in &mut params[weight.clone()] {
                // 24 bits, the width of a significand, to [-1, 1).
                let unit = (rng.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0;
                *weight = limit * unit;
            }
        }
        params
    }
}
