//! Requirements on every codec: no loss over time, the same bytes on every processor, and no trust
//! in bytes from the network.

use muster_comm::compress::{
    CHUNK, Codec, Correction, DecodeError, DecodeMode, DenseCodec, EncodingKey, FeedbackPlane,
    FeedbackState, HalfCodec, HalfFormat, Norm, OneBit, Qsgd, Rounding, Scale, Selection, Sparse,
    TernGrad, decode, encode, max_encoded_bytes,
};
use proptest::prelude::*;

/// Lengths around every boundary: lanes, columns, chunks.
const LENGTHS: [usize; 14] = [
    0,
    1,
    7,
    8,
    15,
    16,
    17,
    63,
    65,
    2047,
    2049,
    5000,
    CHUNK,
    CHUNK + 4101,
];

/// Name, codec with this processor's instructions, portable codec.
type CodecPair = (String, Box<dyn Codec>, Box<dyn Codec>);

fn codecs() -> Vec<CodecPair> {
    let mut codecs: Vec<CodecPair> = vec![(
        "1-bit".into(),
        Box::new(OneBit::new()),
        Box::new(OneBit::portable()),
    )];
    codecs.push(("plain".into(), Box::new(DenseCodec), Box::new(DenseCodec)));
    for format in [HalfFormat::F16, HalfFormat::Bf16] {
        for rounding in [Rounding::Nearest, Rounding::Stochastic] {
            for feedback in [false, true] {
                let codec = HalfCodec::new(format, rounding, feedback);
                codecs.push((
                    format!("{codec:?}"),
                    Box::new(codec),
                    Box::new(codec.portable()),
                ));
            }
        }
    }
    for bits in 4..=8 {
        for norm in [Norm::Largest, Norm::Euclidean] {
            let codec = Qsgd::new(bits, 512, norm).expect("sizes that are allowed");
            codecs.push((
                format!("{codec:?}"),
                Box::new(codec),
                Box::new(codec.portable()),
            ));
        }
    }
    for scale in [Scale::Group, Scale::Block] {
        let codec = TernGrad::new(scale, 2.5);
        codecs.push((
            format!("{codec:?}"),
            Box::new(codec),
            Box::new(codec.portable()),
        ));
    }
    let [plain, masking] = [false, true].map(|masking| Correction {
        momentum: 0.9,
        warm_up_steps: 4,
        masking,
    });
    let selections = [
        Selection::Exact { density: 0.01 },
        Selection::Sampled { density: 0.01 },
        Selection::Exact { density: 0.3 },
        Selection::Threshold { magnitude: 0.4 },
    ];
    for selection in selections {
        for correction in [None, Some(plain), Some(masking)] {
            let codec = Sparse::new(selection, correction).expect("shares that are allowed");
            codecs.push((
                format!("{codec:?}"),
                Box::new(codec),
                Box::new(codec.portable()),
            ));
        }
    }
    codecs
}

/// A worker's side of a codec: its state, and its last encoding.
struct WorkerSide<'a> {
    codec: &'a dyn Codec,
    residual: Vec<f32>,
    velocity: Vec<f32>,
    bytes: Vec<u8>,
}

impl<'a> WorkerSide<'a> {
    fn new(codec: &'a dyn Codec, len: usize) -> Self {
        let [residual, velocity] =
            [FeedbackPlane::Residual, FeedbackPlane::Velocity].map(|plane| {
                if codec.planes().contains(&plane) {
                    vec![0.0; len]
                } else {
                    Vec::new()
                }
            });
        Self {
            codec,
            residual,
            velocity,
            bytes: Vec::new(),
        }
    }

    fn encode(&mut self, step: u64, gradients: &[f32]) -> &[u8] {
        let key = EncodingKey {
            seed: 3,
            step,
            block: 1,
        };
        let state = FeedbackState {
            residual: &mut self.residual,
            velocity: &mut self.velocity,
        };
        self.bytes
            .resize(max_encoded_bytes(self.codec, gradients.len()), 0xaa);
        let written = encode(self.codec, key, gradients, state, &mut self.bytes);
        self.bytes.truncate(written);
        &self.bytes
    }

    fn decoded(&self, len: usize) -> Vec<f32> {
        let mut out = vec![f32::NAN; len];
        decode(self.codec, &self.bytes, &mut out, DecodeMode::Overwrite).expect("our own bytes");
        out
    }
}

/// Deterministic gradients of both signs, with zeros and an uneven distribution.
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

#[test]
fn sent_values_plus_residual_equal_the_gradients() {
    for (name, codec, _) in codecs() {
        if codec.planes() != [FeedbackPlane::Residual] {
            continue;
        }
        for len in LENGTHS {
            let mut side = WorkerSide::new(&*codec, len);
            let mut given = vec![0.0f64; len];
            let mut sent = vec![0.0f64; len];
            for step in 0..12 {
                let gradients = gradients(step + 1, len);
                side.encode(step, &gradients);
                for (sum, value) in given.iter_mut().zip(&gradients) {
                    *sum += f64::from(*value);
                }
                for (sum, value) in sent.iter_mut().zip(side.decoded(len)) {
                    *sum += f64::from(value);
                }
            }
            for i in 0..len {
                let kept = f64::from(side.residual[i]);
                // Each step rounds at most twice, and values stay below 16.
                let tolerance = 12.0 * 2.0 * 16.0 * f64::from(f32::EPSILON) / 2.0;
                let error = (sent[i] + kept - given[i]).abs();
                assert!(
                    error <= tolerance,
                    "{name}, {len} numbers, number {i}: off by {error}"
                );
            }
        }
    }
}

#[test]
fn every_processor_writes_and_reads_the_same_bytes() {
    for (name, wide, portable) in codecs() {
        for len in LENGTHS {
            let (mut a, mut b) = (
                WorkerSide::new(&*wide, len),
                WorkerSide::new(&*portable, len),
            );
            for step in 0..3 {
                let gradients = gradients(step + 1, len);
                a.encode(step, &gradients);
                b.encode(step, &gradients);
                assert_eq!(a.bytes, b.bytes, "{name}, {len} numbers, step {step}");
                assert_eq!(bits(&a.residual), bits(&b.residual), "{name}, {len}");
                assert_eq!(bits(&a.velocity), bits(&b.velocity), "{name}, {len}");
                assert_eq!(
                    bits(&a.decoded(len)),
                    bits(&b.decoded(len)),
                    "{name}, {len}"
                );
            }
        }
    }
}

#[test]
fn adding_is_decoding_and_then_adding() {
    for (name, wide, portable) in codecs() {
        for codec in [wide, portable] {
            for len in LENGTHS {
                let mut side = WorkerSide::new(&*codec, len);
                side.encode(0, &gradients(1, len));
                let mut sum = gradients(9, len);
                let expected: Vec<f32> = sum
                    .iter()
                    .zip(side.decoded(len))
                    .map(|(a, b)| a + b)
                    .collect();
                decode(&*codec, &side.bytes, &mut sum, DecodeMode::Add).expect("our own bytes");
                assert_eq!(sum, expected, "{name}, {len} numbers");
            }
        }
    }
}

#[test]
fn an_encoding_cut_short_or_continued_is_refused() {
    for (name, codec, _) in codecs() {
        for len in LENGTHS {
            let mut side = WorkerSide::new(&*codec, len);
            side.encode(0, &gradients(1, len));
            let mut out = vec![0.0; len];
            let mut longer = side.bytes.clone();
            longer.push(0);
            assert_eq!(
                decode(&*codec, &longer, &mut out, DecodeMode::Add),
                Err(DecodeError::Trailing(1)),
                "{name}, {len} numbers"
            );
            for cut in [1, 2, 5, side.bytes.len() / 2] {
                if cut == 0 || cut > side.bytes.len() {
                    continue;
                }
                let shorter = &side.bytes[..side.bytes.len() - cut];
                assert!(
                    decode(&*codec, shorter, &mut out, DecodeMode::Overwrite).is_err(),
                    "{name}, {len} numbers, {cut} bytes cut off"
                );
            }
        }
    }
}

#[test]
fn non_finite_gradient_is_visible_after_decoding() {
    for (name, wide, portable) in codecs() {
        for codec in [wide, portable] {
            for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in [0, 100, 4999] {
                    let mut gradients = gradients(1, 5000);
                    gradients[at] = broken;
                    let mut side = WorkerSide::new(&*codec, 5000);
                    side.encode(0, &gradients);
                    let decoded = side.decoded(5000);
                    assert!(
                        decoded.iter().any(|value| !value.is_finite()),
                        "{name}: {broken} at {at}"
                    );
                }
            }
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #[test]
    fn bytes_from_the_network_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..3000), len in 0usize..5000,
    ) {
        for (_, wide, portable) in codecs() {
            for codec in [wide, portable] {
                let mut out = vec![0.0; len];
                let read = decode(&*codec, &bytes, &mut out, DecodeMode::Add);
                if bytes.len() > max_encoded_bytes(&*codec, len) {
                    prop_assert!(read.is_err());
                }
            }
        }
    }
}

/// Brings `known` to `wanted` by encoding the difference and adding the decoded bytes.
fn caught_up(codec: &dyn Codec, key: EncodingKey, wanted: &[f32], known: &mut [f32]) -> Vec<u8> {
    let lacking: Vec<f32> = wanted.iter().zip(&*known).map(|(a, b)| a - b).collect();
    let mut lost = vec![0.0; wanted.len()];
    let mut state = FeedbackState {
        residual: &mut lost,
        velocity: &mut [],
    };
    let prepared = codec.prepare(key, &lacking, &mut state);
    let mut out = vec![0; codec.max_chunk_bytes(wanted.len())];
    let bytes = codec.encode_chunk(key, &prepared, 0, &lacking, state, &mut out);
    out.truncate(bytes);
    codec.decode_chunk(&out, known, DecodeMode::Add).unwrap();
    out
}

fn value(i: usize) -> f32 {
    ((i * 7_919) % 2_003) as f32 / 1_001.5 - 1.0
}

/// Bytes and known values are the same in one pass or several, for the whole chunk or run by run.
#[test]
fn catch_up_equals_encoding_the_difference_and_adding_it() {
    let key = EncodingKey {
        seed: 5,
        step: 3,
        block: 1,
    };
    for (name, codec, portable) in codecs() {
        if !codec.is_fixed() {
            continue;
        }
        for len in LENGTHS.into_iter().filter(|&len| len <= CHUNK) {
            let wanted: Vec<f32> = (0..len).map(value).collect();
            // Some differences are zero, and some are a zero with a sign.
            let before = (0..len).map(|i| match i % 5 {
                0 => value(i),
                1 => -0.0,
                _ => value(i + 11),
            });
            let before: Vec<f32> = before.collect();
            let mut expected = before.clone();
            let bytes = caught_up(&*codec, key, &wanted, &mut expected);
            assert_eq!(bytes.len(), codec.max_chunk_bytes(len), "{name}, {len}");
            for codec in [&codec, &portable] {
                for run in [len.max(1), codec.grain().max(4_096)] {
                    let mut known = before.clone();
                    let mut out = vec![0; bytes.len()];
                    let mut scratch = Vec::new();
                    let mut written = 0;
                    for (wanted, known) in wanted.chunks(run).zip(known.chunks_mut(run)) {
                        let out = &mut out[written..];
                        written += codec.catch_up(key, wanted, known, &mut scratch, out);
                    }
                    assert!(out == bytes, "{name}, {len} in runs of {run}");
                    assert!(bits(&known) == bits(&expected), "{name}, {len}");
                }
            }
        }
    }
}

#[test]
fn any_bytes_of_its_length_are_a_chunk_of_a_fixed_codec() {
    for (name, codec, _) in codecs() {
        if !codec.is_fixed() {
            continue;
        }
        for len in LENGTHS.into_iter().filter(|&len| len <= CHUNK) {
            let bytes: Vec<u8> = (0..codec.max_chunk_bytes(len))
                .map(|i| (i * 37 + 11) as u8)
                .collect();
            let mut out = vec![0.0; len];
            let read = codec.decode_chunk(&bytes, &mut out, DecodeMode::Overwrite);
            assert_eq!(read, Ok(bytes.len()), "{name}, {len}");
        }
    }
}
