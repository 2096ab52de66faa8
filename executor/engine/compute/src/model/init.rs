//! Initial parameters, which have the same bytes on every machine.

use super::block::ParameterInit;
use super::network::Network;
use crate::pages;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Separates the use of a seed for parameters from its use for the data order.
const DOMAIN: [u8; 16] = *b"muster init v1\0\0";

impl Network {
    /// Returns initial parameters: each block as its [`ParameterInit`] defines, drawn in the order
    /// of the table.
    ///
    /// The distribution is uniform and not normal, because it needs only a square root and
    /// products. IEEE 754 rounds these identically on all machines, unlike a logarithm.
    #[must_use]
    pub fn init(&self, seed: u64) -> Vec<f32> {
        let mut params = pages::zeros(self.parameter_count());
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..24].copy_from_slice(&DOMAIN);
        let mut rng = ChaCha12Rng::from_seed(key);
        for block in self.blocks() {
            let params = &mut params[block.range()];
            match block.fill {
                ParameterInit::Constant(value) => params.fill(value),
                ParameterInit::Uniform { variance } => {
                    let limit = (3.0 * variance).sqrt() as f32;
                    for param in params {
                        // 24 bits, the width of a significand, mapped to [-1, 1).
                        let unit = (rng.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0;
                        *param = limit * unit;
                    }
                }
            }
        }
        params
    }
}
