//! Compares each codec with a plain implementation of its paper.

use muster_comm::compress::{
    CHUNK, Codec, Correction, DecodeMode, EncodingKey, FeedbackPlane, FeedbackState, HalfCodec,
    HalfFormat, Norm, OneBit, Prepared, Qsgd, Rounding, Scale, Selection, Sparse, SparseSum,
    TernGrad, decode, encode, max_encoded_bytes,
};

fn key(step: u64) -> EncodingKey {
    EncodingKey {
        seed: 5,
        step,
        block: 2,
    }
}

/// Gradients of both signs with zeros, most of them small.
fn gradients(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let uniform = (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
            if state.is_multiple_of(11) {
                0.0
            } else {
                uniform * uniform * uniform
            }
        })
        .collect()
}

fn encoded(codec: &dyn Codec, step: u64, gradients: &[f32], state: FeedbackState<'_>) -> Vec<u8> {
    let mut bytes = vec![0; max_encoded_bytes(codec, gradients.len())];
    let written = encode(codec, key(step), gradients, state, &mut bytes);
    bytes.truncate(written);
    bytes
}

fn decoded(codec: &dyn Codec, bytes: &[u8], len: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; len];
    decode(codec, bytes, &mut out, DecodeMode::Overwrite).expect("our own bytes");
    out
}

#[test]
fn one_bit_sends_the_means_of_either_sign() {
    let len = 2048 + 100;
    let gradients = gradients(1, len);
    let mut residual = vec![0.0; len];
    let state = FeedbackState {
        residual: &mut residual,
        ..FeedbackState::default()
    };
    let codec = OneBit::new();
    let bytes = encoded(&codec, 0, &gradients, state);
    let decoded = decoded(&codec, &bytes, len);
    for (column, sent) in gradients.chunks(2048).zip(decoded.chunks(2048)) {
        for negative in [false, true] {
            let of_sign = |value: &&f32| value.is_sign_negative() == negative;
            let count = column.iter().filter(of_sign).count() as f64;
            let sum: f64 = column.iter().filter(of_sign).map(|v| f64::from(*v)).sum();
            for (value, sent) in column.iter().zip(sent) {
                if value.is_sign_negative() == negative {
                    assert!((f64::from(*sent) - sum / count).abs() < 1e-6);
                }
            }
        }
    }
}

/// The mean over many steps is as close to the gradient as independent random choices between its
/// two neighbours, `unit` apart, would be. Each value is tested by itself, and all together, where
/// a common bias would show.
fn is_unbiased(
    codec: &dyn Codec,
    gradients: &[f32],
    expected: &[f32],
    unit: impl Fn(usize) -> f64,
) {
    const STEPS: u64 = 4_000;
    let len = gradients.len();
    let mut sums = vec![0.0f64; len];
    for step in 0..STEPS {
        let bytes = encoded(codec, step, gradients, FeedbackState::default());
        for (sum, value) in sums.iter_mut().zip(decoded(codec, &bytes, len)) {
            *sum += f64::from(value);
        }
    }
    let steps = STEPS as f64;
    let (mut all, mut bias, mut variances) = (0.0, 0.0, 0.0);
    for (i, sum) in sums.iter().enumerate() {
        let unit = unit(i);
        let upper = (f64::from(expected[i]) / unit).rem_euclid(1.0);
        let variance = upper * (1.0 - upper) / steps;
        let error = (sum / steps - f64::from(expected[i])) / unit;
        // Rare events are not normally distributed: a few of them are allowed besides five standard
        // errors.
        assert!(
            error.abs() <= 5.0 * variance.sqrt() + 4.0 / steps,
            "{codec:?}: number {i}, {}, is off by {error} units",
            expected[i]
        );
        all += error;
        bias += error * f64::from(expected[i].signum());
        variances += variance;
    }
    let (all, bias) = (all / variances.sqrt(), bias / variances.sqrt());
    assert!(
        all.abs() < 4.0 && bias.abs() < 4.0,
        "{codec:?}: all together {all}, away from zero {bias} standard errors"
    );
}

#[test]
fn qsgd_has_the_right_mean() {
    let gradients = gradients(3, 700);
    for bits in [4, 5, 8] {
        let levels = f64::from((1 << (bits - 1)) - 1) - 1.0 / 256.0;
        let codec = Qsgd::new(bits, 256, Norm::Largest).expect("sizes that are allowed");
        is_unbiased(&codec, &gradients, &gradients, |i| {
            let bucket = gradients[i / 256 * 256..].iter().take(256);
            f64::from(bucket.fold(0.0f32, |max, v| max.max(v.abs()))) / levels
        });
        let codec = Qsgd::new(bits, 256, Norm::Euclidean).expect("sizes that are allowed");
        is_unbiased(&codec, &gradients, &gradients, |i| {
            let bucket = gradients[i / 256 * 256..].iter().take(256);
            bucket.map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt() / levels
        });
    }
}

#[test]
fn stochastic_rounding_has_the_right_mean() {
    for (format, bits, least) in [(HalfFormat::F16, 10, -14), (HalfFormat::Bf16, 7, -126)] {
        // The second set is below the smallest normal value of binary16.
        for scale in [1.0, 1e-4] {
            let gradients: Vec<f32> = gradients(3, 700).iter().map(|v| v * scale).collect();
            let codec = HalfCodec::new(format, Rounding::Stochastic, false);
            is_unbiased(&codec, &gradients, &gradients, |i| {
                let value = f64::from(gradients[i].abs()).max(1e-30);
                2f64.powi((value.log2().floor() as i32).max(least) - bits)
            });
        }
    }
}

#[test]
fn terngrad_has_the_mean_of_the_clipped_gradients() {
    let gradients = gradients(4, 700);
    for (scale, clip) in [
        (Scale::Group, f32::INFINITY),
        (Scale::Block, f32::INFINITY),
        (Scale::Group, 1.5),
    ] {
        let mean = gradients.iter().map(|v| f64::from(*v)).sum::<f64>() / 700.0;
        let squares = gradients.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / 700.0;
        let limit = (f64::from(clip) * (squares - mean * mean).sqrt()) as f32;
        let clipped: Vec<f32> = gradients.iter().map(|v| v.clamp(-limit, limit)).collect();
        let largest = clipped.iter().fold(0.0f32, |max, v| max.max(v.abs()));
        let codec = TernGrad::new(scale, clip);
        is_unbiased(&codec, &gradients, &clipped, |_| f64::from(largest));
    }
}

#[test]
fn workers_that_share_a_scale_send_codes_of_one_size() {
    let codec = TernGrad::new(Scale::Block, 2.5);
    let len = CHUNK + 77;
    let workers = [gradients(1, len), gradients(2, len)];
    let mut scales: Vec<f32> = Vec::new();
    for gradients in &workers {
        match codec.prepare(key(0), gradients, &mut FeedbackState::default()) {
            Prepared::Scale(scale) => scales.push(scale),
            other => panic!("{other:?}"),
        }
    }
    let shared = scales[0].max(scales[1]);
    for gradients in &workers {
        let prepared = Prepared::Scale(shared);
        let mut bytes = vec![0; max_encoded_bytes(&codec, len)];
        let mut encoding = muster_comm::compress::Encoding::resume(
            &codec,
            key(0),
            prepared,
            gradients,
            FeedbackState::default(),
        );
        let mut written = 0;
        let mut covered = 0;
        while let Some((range, count)) = encoding.next_chunk(&mut bytes[written..]) {
            assert_eq!(range.start, covered);
            covered = range.end;
            written += count;
        }
        assert_eq!((covered, written), (len, bytes.len()));
        for value in decoded(&codec, &bytes, len) {
            assert!(value == 0.0 || value.abs() == shared);
        }
    }
}

/// Indices of the `count` largest magnitudes by sorting; of equal ones the first; no zeros.
fn largest(values: &[f32], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).filter(|i| values[*i] != 0.0).collect();
    order.sort_by(|a, b| {
        let (left, right) = (values[*a].abs(), values[*b].abs());
        right.total_cmp(&left).then(a.cmp(b))
    });
    order.truncate(count);
    order.sort_unstable();
    order
}

#[test]
fn exact_selection_agrees_with_sorting() {
    for len in [1, 9, 64, 1000, CHUNK, 3 * CHUNK + 1234] {
        let alike = (0..len).map(|i| ((i * 7 % 5) as f32 - 2.0) * 0.25);
        let sparse = (0..len).map(|i| if i % 997 == 3 { i as f32 } else { 0.0 });
        // The first lines are large, the others small: a sample that misses the large ones must not
        // be trusted.
        let skewed = (0..len).map(|i| {
            if i < len / 300 {
                5.0 + i as f32
            } else {
                1e-3 * (1.0 + (i % 89) as f32)
            }
        });
        let cases: [Vec<f32>; 4] = [
            gradients(7, len),
            alike.collect(),
            sparse.collect(),
            skewed.collect(),
        ];
        for (case, gradients) in cases.iter().enumerate() {
            for density in [0.001, 0.01, 0.2, 1.0] {
                let codec = Sparse::new(Selection::Exact { density }, None).expect("a share");
                let mut residual = vec![0.0; len];
                let state = FeedbackState {
                    residual: &mut residual,
                    ..FeedbackState::default()
                };
                let bytes = encoded(&codec, 0, gradients, state);
                let sum = SparseSum::decode(&bytes, len).expect("our own bytes");
                let count = (density * len as f64).ceil() as usize;
                let expected: Vec<(usize, f32)> = largest(gradients, count)
                    .into_iter()
                    .map(|i| (i, gradients[i]))
                    .collect();
                let found: Vec<(usize, f32)> = sum.entries().collect();
                assert!(found == expected, "case {case}, {len} numbers, {density}");
            }
        }
    }
}

#[test]
fn sampled_selection_sends_about_the_requested_share() {
    let len = 1 << 20;
    for density in [0.001, 0.01, 0.1] {
        let codec = Sparse::new(Selection::Sampled { density }, None).expect("a share");
        let mut residual = vec![0.0; len];
        for step in 0..4 {
            let state = FeedbackState {
                residual: &mut residual,
                ..FeedbackState::default()
            };
            let bytes = encoded(&codec, step, &gradients(step + 1, len), state);
            let sum = SparseSum::decode(&bytes, len).expect("our own bytes");
            let share = sum.entries().count() as f64 / len as f64;
            assert!(
                (share / density - 1.0).abs() < 0.25,
                "{density}: {share} in step {step}"
            );
        }
    }
}

/// Large values that fill whole cache lines mislead a sample of lines, sometimes by more than its
/// margin.
#[test]
fn exact_selection_does_not_trust_its_sample() {
    let len = 3 * CHUNK;
    let chosen = gradients(11, len / 16);
    let gradients: Vec<f32> = gradients(12, len)
        .into_iter()
        .enumerate()
        .map(|(i, value)| {
            if chosen[i / 16] > 0.94 {
                3.0 + value
            } else {
                0.1 * value
            }
        })
        .collect();
    let density = 0.008;
    let expected = largest(&gradients, (density * len as f64).ceil() as usize);
    let codec = Sparse::new(Selection::Exact { density }, None).expect("a share");
    for step in 0..60 {
        let mut residual = vec![0.0; len];
        let state = FeedbackState {
            residual: &mut residual,
            ..FeedbackState::default()
        };
        let bytes = encoded(&codec, step, &gradients, state);
        let sum = SparseSum::decode(&bytes, len).expect("our own bytes");
        let found: Vec<usize> = sum.entries().map(|(index, _)| index).collect();
        assert!(found == expected, "step {step}");
    }
}

/// Compares with Deep Gradient Compression value by value, for a threshold that marks many values
/// and one that marks few; the two have different encoded forms.
#[test]
fn momentum_is_corrected_and_masked_as_in_the_paper() {
    for (magnitude, least, most) in [(0.5, 20_000, 60_000), (6.0, 20, 4_000)] {
        let sent = follow_momentum(magnitude, true);
        assert!((least..most).contains(&sent), "{magnitude}: {sent}");
    }
}

#[test]
fn momentum_is_kept_where_it_is_not_masked() {
    for (magnitude, least, most) in [(0.5, 20_000, 90_000), (6.0, 20, 30_000)] {
        let sent = follow_momentum(magnitude, false);
        assert!((least..most).contains(&sent), "{magnitude}: {sent}");
    }
}

/// Returns the number of sent values.
fn follow_momentum(magnitude: f32, masking: bool) -> usize {
    let len = 5_000;
    let momentum = 0.9f32;
    let correction = Correction {
        momentum,
        warm_up_steps: 0,
        masking,
    };
    let codec =
        Sparse::new(Selection::Threshold { magnitude }, Some(correction)).expect("a threshold");
    assert_eq!(
        codec.planes(),
        [FeedbackPlane::Residual, FeedbackPlane::Velocity]
    );
    let (mut residual, mut velocity) = (vec![0.0; len], vec![0.0; len]);
    let (mut kept, mut speed) = (vec![0.0f32; len], vec![0.0f32; len]);
    let mut sent = 0;
    for step in 0..20 {
        let gradients = gradients(step + 1, len);
        let state = FeedbackState {
            residual: &mut residual,
            velocity: &mut velocity,
        };
        let bytes = encoded(&codec, step, &gradients, state);
        let decoded = decoded(&codec, &bytes, len);
        for i in 0..len {
            speed[i] = momentum * speed[i] + gradients[i];
            kept[i] += speed[i];
            if kept[i].abs() >= magnitude {
                assert_eq!(decoded[i], kept[i]);
                kept[i] = 0.0;
                if masking {
                    speed[i] = 0.0;
                }
                sent += 1;
            } else {
                assert_eq!(decoded[i], 0.0);
            }
        }
        assert_eq!((&residual, &velocity), (&kept, &speed));
    }
    sent
}

#[test]
fn sparsity_rises_from_three_quarters() {
    let len = 10_000;
    let correction = Correction {
        momentum: 0.0,
        warm_up_steps: 8,
        masking: false,
    };
    let selection = Selection::Exact { density: 0.01 };
    let codec = Sparse::new(selection, Some(correction)).expect("a share");
    let shares: Vec<usize> = (0..10)
        .map(|step| {
            let (mut residual, mut velocity) = (vec![0.0; len], vec![0.0; len]);
            let state = FeedbackState {
                residual: &mut residual,
                velocity: &mut velocity,
            };
            let bytes = encoded(&codec, step, &gradients(1, len), state);
            let sum = SparseSum::decode(&bytes, len).expect("our own bytes");
            sum.entries().count()
        })
        .collect();
    assert_eq!(shares, [2500, 2500, 625, 625, 157, 157, 100, 100, 100, 100]);
}

#[test]
fn sparse_sums_are_the_sums_of_plain_vectors() {
    let len = 2 * CHUNK + 333;
    let mut dense = vec![0.0f32; len];
    let mut sum = SparseSum::new(len);
    for worker in 0..5 {
        let density = [0.001, 0.01, 0.05, 0.3, 0.0005][worker as usize];
        let codec = Sparse::new(Selection::Exact { density }, None).expect("a share");
        let mut residual = vec![0.0; len];
        let state = FeedbackState {
            residual: &mut residual,
            ..FeedbackState::default()
        };
        let bytes = encoded(&codec, 0, &gradients(worker + 1, len), state);
        decode(&codec, &bytes, &mut dense, DecodeMode::Add).expect("our own bytes");
        sum.add(&SparseSum::decode(&bytes, len).expect("our own bytes"));
        let mut out = vec![0.0; len];
        sum.add_to(&mut out);
        assert_eq!(out, dense, "after worker {worker}");
        // Encoded for the next rank, and decoded.
        let mut bytes = vec![0; sum.max_bytes()];
        let written = sum.encode(&mut bytes);
        assert_eq!(SparseSum::decode(&bytes[..written], len).as_ref(), Ok(&sum));
        assert_eq!(decoded(&codec, &bytes[..written], len), dense);
    }
    let mut parts = vec![0.0; len];
    for range in [0..1, 1..CHUNK + 9, CHUNK + 9..len] {
        sum.part(range.clone()).add_to(&mut parts[range]);
    }
    assert_eq!(parts, dense);
}

#[test]
fn rounding_to_nearest_keeps_the_sum_to_the_bit() {
    for format in [HalfFormat::F16, HalfFormat::Bf16] {
        let codec = HalfCodec::new(format, Rounding::Nearest, true);
        let gradients = gradients(1, 3001);
        let mut residual = vec![0.0; 3001];
        let state = FeedbackState {
            residual: &mut residual,
            ..FeedbackState::default()
        };
        let bytes = encoded(&codec, 0, &gradients, state);
        for ((given, sent), kept) in gradients
            .iter()
            .zip(decoded(&codec, &bytes, 3001))
            .zip(&residual)
        {
            assert_eq!(sent + kept, *given);
            // Half a step: relative, or of the smallest values of binary16.
            assert!(kept.abs() <= given.abs() / 256.0 || kept.abs() <= 2f32.powi(-25));
        }
    }
}
