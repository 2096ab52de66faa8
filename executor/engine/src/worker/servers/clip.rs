//! Where a step has no mean, a worker clips what it pushes.

use crate::model::{Network, Role};
use crate::optimizer::{clip_factor, square_norm};

/// Clips this worker's own mean gradient over so many targets; `gradients` are its sum. Running statistics are no gradients.
pub(super) fn clip_own(network: &Network, gradients: &mut [f32], targets: u64, limit: f64) {
    let clipped = || {
        let blocks = network.blocks().iter();
        blocks.filter(|block| block.role != Role::Statistic)
    };
    let scale = 1.0 / targets.max(1) as f32;
    let parts: Vec<(&[f32], f32)> = clipped()
        .map(|block| (&gradients[block.range()], scale))
        .collect();
    let factor = clip_factor(limit, square_norm(&parts, 1).sqrt()) as f32;
    if factor != 1.0 {
        for block in clipped() {
            let own = &mut gradients[block.range()];
            own.iter_mut().for_each(|value| *value *= factor);
        }
    }
}
