//! Assumed GPU use of a trace's job: its share of GPU time and its memory, which traces do not
//! contain.
//!
//! Both are drawn from the job's name, so that a job is the same under every policy. The ranges
//! follow the 67 trainings that Lucid's authors profiled on a GPU of 24 GB (Hu et al., ASPLOS 2023,
//! `simulation/analyzer/single_data.csv`). There GPU time was spread evenly; memory was mostly at
//! the lower end.

use muster_sim::scenario::GpuUse;

/// Memory of every GPU, in bytes.
pub const MEMORY_BYTES: u64 = 24 << 30;

/// Smallest and largest share.
const BUSY: (f64, f64) = (0.05, 1.0);
const MEMORY_SHARE: (f64, f64) = (0.08, 0.55);

/// GPU use of the job with this name.
pub fn drawn(name: &str) -> GpuUse {
    let (even, other) = (uniform(name, 1), uniform(name, 2));
    let busy = BUSY.0 + (BUSY.1 - BUSY.0) * even;
    // Even in the logarithm: equally many jobs between 8 and 16 % as between 16 and 32 %.
    let share = MEMORY_SHARE.0 * (MEMORY_SHARE.1 / MEMORY_SHARE.0).powf(other);
    GpuUse {
        busy,
        // Below the GPU's memory.
        memory_bytes: (share * MEMORY_BYTES as f64) as u64,
    }
}

/// Returns a number from 0 to 1; each `salt` gives another one. FNV-1a of the name, mixed as in
/// SplitMix64.
fn uniform(name: &str, salt: u64) -> f64 {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    let hashed = name.bytes().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut z = hashed.wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    // The upper 53 bits, which a float represents exactly.
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::{MEMORY_BYTES, drawn};

    #[test]
    fn drawn_gpu_use_follows_profiled_ranges() {
        let uses: Vec<_> = (0..1_000).map(|n| drawn(&format!("job-{n}"))).collect();
        let mean = uses.iter().map(|uses| uses.busy).sum::<f64>() / 1e3;
        assert!((0.49..0.56).contains(&mean), "{mean}");
        let mean = uses
            .iter()
            .map(|uses| uses.memory_bytes as f64 / MEMORY_BYTES as f64)
            .sum::<f64>()
            / 1e3;
        assert!((0.21..0.28).contains(&mean), "{mean}");
        assert_eq!(drawn("job-1"), drawn("job-1"));
    }
}
