//! Gradient descent by four workers finds the same minimum with every codec as without, thanks to
//! error feedback and unbiased rounding. The problem is least squares: the minimum is known, and
//! only the codec differs.

use muster_comm::compress::{
    CodecConfig, CodecPlan, Codecs, DecodeMode, Feedback, HalfFormat, Norm, Rounding, Scale,
};
use muster_compute::model::ParameterRole;

const LEN: usize = 2048;
const WORKERS: u64 = 4;
const STEPS: u64 = 600;

/// Uniform in [-1, 1), by position.
fn noise(a: u64, b: u64) -> f32 {
    let mut x = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_mul(0xd1b5_4a32_d192_ed03);
    x = (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 32).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ x >> 31) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// Mean squared distance from the minimum, relative to that at the start. Curvatures differ by a
/// factor of a hundred, and each worker's gradients have their own noise. `kept`: whether workers
/// keep residuals.
fn distance(codec: CodecConfig, kept: bool) -> f64 {
    let compression = Codecs::uniform(codec);
    let plan =
        CodecPlan::new(&compression, [("weight", 0..LEN, ParameterRole::Weight)]).expect("a plan");
    let mut feedback: Vec<Feedback> = (0..WORKERS).map(|_| Feedback::new(&plan)).collect();
    let minimum: Vec<f32> = (0..LEN as u64).map(|i| noise(i, 0)).collect();
    let curvature: Vec<f32> = (0..LEN)
        .map(|i| 0.01f32.powf((i % 16) as f32 / 15.0))
        .collect();
    let mut weights = vec![0.0f32; LEN];
    let mut bytes = vec![0; plan.max_bytes(0..1)];
    let (mut gradients, mut sum) = (vec![0.0f32; LEN], vec![0.0f32; LEN]);
    // Deep Gradient Compression contains momentum: a tenth of the rate is as fast.
    let rate = match codec {
        CodecConfig::Dgc { .. } => 0.04,
        _ => 0.4,
    };
    for step in 0..STEPS {
        for rank in 0..WORKERS {
            for (i, gradient) in gradients.iter_mut().enumerate() {
                let slope = curvature[i] * (weights[i] - minimum[i]);
                *gradient = slope + 0.02 * noise(i as u64, 1 + step * WORKERS + rank);
            }
            let feedback = &mut feedback[rank as usize];
            if !kept {
                *feedback = Feedback::new(&plan);
            }
            let written = plan.encode(rank, step, 0..1, &gradients, feedback, &mut bytes);
            let mode = if rank == 0 {
                DecodeMode::Overwrite
            } else {
                DecodeMode::Add
            };
            plan.decode(0..1, &bytes[..written], &mut sum, mode)
                .expect("our own bytes");
        }
        for (weight, sum) in weights.iter_mut().zip(&sum) {
            *weight -= rate / WORKERS as f32 * sum;
        }
    }
    let squares =
        |at: &dyn Fn(usize) -> f32| -> f64 { (0..LEN).map(|i| f64::from(at(i)).powi(2)).sum() };
    squares(&|i| weights[i] - minimum[i]) / squares(&|i| minimum[i])
}

#[test]
fn every_codec_reaches_the_minimum() {
    let plain = distance(CodecConfig::None {}, true);
    assert!(plain < 0.002, "{plain}");
    let half = |format, rounding, feedback| CodecConfig::Half {
        format,
        rounding,
        feedback,
    };
    let qsgd = |bits| CodecConfig::Qsgd {
        bits,
        bucket: 512,
        norm: Norm::Largest,
    };
    let top = |sampled| CodecConfig::TopK {
        density: 0.05,
        sampled,
    };
    let terngrad = CodecConfig::TernGrad {
        scale: Scale::Group,
        clip: Some(2.5),
    };
    let dgc = |masking| CodecConfig::Dgc {
        density: 0.05,
        momentum: 0.9,
        warm_up_steps: 40,
        masking,
    };
    // Maximum additional distance of each codec.
    for (codec, more) in [
        (half(HalfFormat::F16, Rounding::Nearest, false), 0.0001),
        (half(HalfFormat::Bf16, Rounding::Stochastic, false), 0.0001),
        (half(HalfFormat::Bf16, Rounding::Nearest, true), 0.0001),
        (CodecConfig::OneBit {}, 0.0002),
        (qsgd(8), 0.0001),
        (qsgd(4), 0.0002),
        (terngrad, 0.002),
        (top(false), 0.0002),
        (top(true), 0.0002),
        (dgc(false), 0.0002),
        // Masking of the momentum slows training where the curvature is small.
        (dgc(true), 0.02),
    ] {
        let distance = distance(codec, true);
        println!("{codec:?}: {distance:.5}, plain {plain:.5}");
        assert!(
            distance < plain + more,
            "{codec:?}: {distance}, plain {plain}"
        );
    }
}

#[test]
fn biased_codec_without_feedback_misses_the_minimum() {
    let top = CodecConfig::TopK {
        density: 0.05,
        sampled: false,
    };
    for codec in [CodecConfig::OneBit {}, top] {
        let (with, without) = (distance(codec, true), distance(codec, false));
        println!("{codec:?}: {with:.5} with, {without:.5} without");
        assert!(
            without > 3.0 * with,
            "{codec:?}: {with} with, {without} without"
        );
    }
}
