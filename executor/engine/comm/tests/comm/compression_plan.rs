//! Plan with a codec for each block: selection of codecs, buckets, transfer in chunks, and error
//! feedback in checkpoints.

use muster_comm::compress::{
    CHUNK, CodecConfig, CodecPlan, Codecs, DecodeError, DecodeMode, Feedback, FeedbackError,
    HalfCodec, HalfFormat, LayerCodec, PlanError, Rounding, build,
};
use muster_compute::model::ParameterRole;
use proptest::prelude::*;
use std::ops::Range;

const BLOCKS: [(&str, Range<usize>, ParameterRole); 5] = [
    ("conv1.weight", 0..2400, ParameterRole::Weight),
    ("conv1.bias", 2400..2432, ParameterRole::Bias),
    (
        "dense1.weight",
        2432..2432 + CHUNK + 1234,
        ParameterRole::Weight,
    ),
    ("dense1.bias", 70_000..70_100, ParameterRole::Bias),
    ("logits.weight", 70_100..72_000, ParameterRole::Weight),
];

const LEN: usize = 72_000;

const TOP: CodecConfig = CodecConfig::TopK {
    density: 0.01,
    sampled: false,
};

fn compression() -> Codecs {
    Codecs {
        layers: vec![
            LayerCodec {
                blocks: "logits*".into(),
                codec: CodecConfig::Half {
                    format: HalfFormat::Bf16,
                    rounding: Rounding::Stochastic,
                    feedback: false,
                },
            },
            LayerCodec {
                blocks: "conv1.weight".into(),
                codec: CodecConfig::Dgc {
                    density: 0.05,
                    momentum: 0.9,
                    warm_up_steps: 2,
                    masking: true,
                },
            },
            LayerCodec {
                blocks: "dense1.bias".into(),
                codec: CodecConfig::OneBit {},
            },
        ],
        ..Codecs::uniform(TOP)
    }
}

fn plan() -> CodecPlan {
    CodecPlan::new(&compression(), BLOCKS).expect("a plan")
}

fn gradients(step: u64) -> Vec<f32> {
    (0..LEN as u64)
        .map(|i| {
            let mixed = (i + step * 77_777).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

fn encoded(plan: &CodecPlan, step: u64, bucket: Range<usize>, feedback: &mut Feedback) -> Vec<u8> {
    let mut out = vec![0; plan.max_bytes(bucket.clone())];
    let written = plan.encode(1, step, bucket, &gradients(step), feedback, &mut out);
    out.truncate(written);
    out
}

#[test]
fn small_blocks_stay_plain_and_named_ones_get_their_own() {
    let plan = plan();
    let chosen: Vec<CodecConfig> = plan.blocks().iter().map(|block| block.config).collect();
    let named = compression().layers;
    assert_eq!(
        chosen,
        [
            named[1].codec,
            CodecConfig::None {},
            TOP,
            named[2].codec,
            named[0].codec
        ]
    );
    assert_eq!(plan.arena_len(), LEN);
}

/// A running mean is not a gradient: it is never rounded, kept as a residual or given momentum.
#[test]
fn statistics_are_never_encoded() {
    let blocks = [
        ("norm1.scale", 0..2000, ParameterRole::Bias),
        ("norm1.variance", 2000..4000, ParameterRole::Statistic),
        ("norm2.variance", 4000..4010, ParameterRole::Statistic),
    ];
    let named = LayerCodec {
        blocks: "*.variance".into(),
        codec: CodecConfig::OneBit {},
    };
    for layers in [Vec::new(), vec![named]] {
        let codecs = Codecs {
            layers,
            ..Codecs::uniform(CodecConfig::Dgc {
                density: 0.01,
                momentum: 0.9,
                warm_up_steps: 0,
                masking: false,
            })
        };
        let plan = CodecPlan::new(&codecs, blocks.clone()).expect("a plan");
        let mut feedback = Feedback::new(&plan);
        for step in 0..5 {
            let bytes = encoded(&plan, step, 0..3, &mut feedback);
            let mut arena = vec![f32::NAN; 4010];
            plan.decode(0..3, &bytes, &mut arena, DecodeMode::Overwrite)
                .expect("our own bytes");
            assert_eq!(arena[2000..], gradients(step)[2000..4010]);
            assert_ne!(arena[..2000], gradients(step)[..2000]);
            for (name, plane) in feedback.planes() {
                assert!(plane[2000..].iter().all(|held| *held == 0.0), "{name}");
            }
        }
    }
}

#[test]
fn buckets_hold_what_their_blocks_encode_to() {
    let plan = plan();
    let (mut whole, mut apart) = (Feedback::new(&plan), Feedback::new(&plan));
    let mut moved = vec![0.0f32; 32];
    for step in 0..3 {
        let bytes = encoded(&plan, step, 0..5, &mut whole);
        let parts: Vec<u8> = [3..5, 0..1, 1..3]
            .into_iter()
            .map(|bucket| (bucket.start, encoded(&plan, step, bucket, &mut apart)))
            .collect::<std::collections::BTreeMap<_, _>>()
            .into_values()
            .flatten()
            .collect();
        assert!(bytes == parts, "step {step}");
        assert_eq!(whole, apart);
        let mut arena = vec![f32::NAN; LEN];
        plan.decode(0..5, &bytes, &mut arena, DecodeMode::Overwrite)
            .expect("our own bytes");
        // Biases are plain except for the momentum that all blocks have; the gap between two blocks
        // belongs to no block.
        momentum(&mut moved, &gradients(step)[2400..2432]);
        assert_eq!(arena[2400..2432], moved);
        assert!(
            arena[2432 + CHUNK + 1234..70_000]
                .iter()
                .all(|v| v.is_nan())
        );
        assert!(arena[70_000..].iter().all(|v| v.is_finite()));
    }
}

fn momentum(velocity: &mut [f32], gradients: &[f32]) {
    for (velocity, gradient) in velocity.iter_mut().zip(gradients) {
        *velocity = 0.9 * *velocity + gradient;
    }
}

/// If one codec contains the momentum, the optimizer has none, so the gradients of all other blocks
/// would be without it.
#[test]
fn blocks_with_another_codec_beside_dgc_have_momentum() {
    let plan = plan();
    let mut feedback = Feedback::new(&plan);
    let mut velocity = vec![0.0f32; LEN];
    let (mut sent, mut due) = (vec![0.0f64; LEN], vec![0.0f64; LEN]);
    for step in 0..20 {
        momentum(&mut velocity, &gradients(step));
        let bytes = encoded(&plan, step, 0..5, &mut feedback);
        let mut arena = vec![0.0; LEN];
        plan.decode(0..5, &bytes, &mut arena, DecodeMode::Overwrite)
            .expect("our own bytes");
        for i in 0..LEN {
            due[i] += f64::from(velocity[i]);
            sent[i] += f64::from(arena[i]);
        }
    }
    let held: Vec<&[f32]> = feedback.planes().map(|(_, plane)| plane).collect();
    // The bias is plain, `dense1.weight` uses top-k and `dense1.bias` signs: unsent values are in
    // the residual.
    for block in [1, 2, 3] {
        for i in plan.blocks()[block].range.clone() {
            let all = sent[i] + f64::from(held[0][i]);
            assert!((all - due[i]).abs() < 1e-3, "{i}: {all} of {}", due[i]);
            assert_eq!(held[1][i], velocity[i], "{i}");
        }
    }
    // `logits.weight` is rounded to bfloat16 at random, without a residual.
    for i in plan.blocks()[4].range.clone() {
        assert!(
            (sent[i] - due[i]).abs() < 0.2,
            "{i}: {} of {}",
            sent[i],
            due[i]
        );
    }
    let top = Codecs::uniform(TOP);
    let without = CodecPlan::new(&top, BLOCKS).expect("a plan");
    assert_eq!(Feedback::new(&without).planes().count(), 1, "no momentum");
}

#[test]
fn chunks_on_their_way_are_decoded_as_they_come() {
    let plan = plan();
    let block = &plan.blocks()[2];
    let gradients = gradients(0);
    let mut feedback = Feedback::new(&plan);
    let mut encoding = plan.begin(1, 0, 2, &gradients, &mut feedback);
    let mut buffer = vec![0; block.codec().max_chunk_bytes(CHUNK)];
    let mut arena = vec![0.0; block.range.len()];
    let mut chunks = 0;
    while let Some((range, bytes)) = encoding.next_chunk(&mut buffer) {
        let read = block
            .codec()
            .decode_chunk(&buffer[..bytes], &mut arena[range], DecodeMode::Add);
        assert_eq!(read, Ok(bytes));
        chunks += 1;
    }
    assert_eq!(chunks, 2);
    let mut again = vec![0.0; LEN];
    let bytes = encoded(&plan, 0, 2..3, &mut Feedback::new(&plan));
    plan.decode(2..3, &bytes, &mut again, DecodeMode::Overwrite)
        .expect("our own bytes");
    assert_eq!(arena, again[block.range.clone()]);
}

#[test]
fn checkpoint_contains_the_residuals() {
    let plan = plan();
    let mut feedback = Feedback::new(&plan);
    for step in 0..4 {
        encoded(&plan, step, 0..5, &mut feedback);
    }
    let saved: Vec<(String, Vec<f32>)> = feedback
        .planes()
        .map(|(name, plane)| (name.to_owned(), plane.to_vec()))
        .collect();
    let names: Vec<&str> = saved.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["compress.residual", "compress.velocity"]);
    let mut resumed = Feedback::restore(&plan, saved.clone()).expect("our own planes");
    for step in 4..6 {
        let went_on = encoded(&plan, step, 0..5, &mut feedback);
        assert!(
            went_on == encoded(&plan, step, 0..5, &mut resumed),
            "step {step}"
        );
    }
    assert_eq!(
        Feedback::restore(&plan, saved[1..].to_vec()),
        Err(FeedbackError::Missing("compress.residual"))
    );
    let mut twice = saved.clone();
    twice.push(saved[0].clone());
    assert_eq!(
        Feedback::restore(&plan, twice),
        Err(FeedbackError::Unknown("compress.residual".into()))
    );
    let mut short = saved;
    short[0].1.pop();
    assert!(matches!(
        Feedback::restore(&plan, short),
        Err(FeedbackError::Length { .. })
    ));
}

#[test]
fn remaining_worker_absorbs_the_residual_of_a_leaving_one() {
    let plan = plan();
    let (mut stays, mut leaves) = (Feedback::new(&plan), Feedback::new(&plan));
    encoded(&plan, 0, 0..5, &mut stays);
    encoded(&plan, 1, 0..5, &mut leaves);
    let before: Vec<Vec<f32>> = stays.planes().map(|(_, plane)| plane.to_vec()).collect();
    stays.absorb(&leaves);
    for ((before, (_, after)), (_, left)) in before.iter().zip(stays.planes()).zip(leaves.planes())
    {
        for i in 0..LEN {
            assert_eq!(after[i], before[i] + left[i]);
        }
    }
}

#[test]
fn invalid_plan_is_refused() {
    let qsgd = CodecConfig::Qsgd {
        bits: 3,
        bucket: 512,
        norm: Default::default(),
    };
    for codec in [
        qsgd,
        CodecConfig::TopK {
            density: 0.0,
            sampled: true,
        },
        CodecConfig::Threshold { magnitude: -1.0 },
        CodecConfig::TernGrad {
            scale: Default::default(),
            clip: Some(0.0),
        },
        CodecConfig::Dgc {
            density: 0.01,
            momentum: 1.0,
            warm_up_steps: 0,
            masking: false,
        },
    ] {
        let plan = CodecPlan::new(&Codecs::uniform(codec), BLOCKS);
        assert!(matches!(plan, Err(PlanError::Codec { .. })), "{codec:?}");
    }
    let overlapping = [
        ("a", 0..10, ParameterRole::Weight),
        ("b", 9..20, ParameterRole::Weight),
    ];
    assert_eq!(
        CodecPlan::new(&Codecs::uniform(TOP), overlapping).err(),
        Some(PlanError::Order { name: "b".into() })
    );
}

#[test]
fn a_document_names_codecs_and_defaults() {
    let document = serde_json::json!({
        "codec": { "kind": "qsgd" },
        "layers": [
            { "blocks": "*.bias", "codec": { "kind": "none" } },
            { "blocks": "embedding*", "codec": { "kind": "tern_grad", "clip": null } },
        ],
    });
    let compression: Codecs = serde_json::from_value(document).expect("a document");
    assert_eq!(compression.dense_below, 1024);
    assert_eq!(
        compression.codec_of("dense1.weight", 5000),
        CodecConfig::Qsgd {
            bits: 8,
            bucket: 512,
            norm: Default::default()
        }
    );
    assert_eq!(compression.codec_of("x.bias", 9999), CodecConfig::None {});
    let back = serde_json::to_value(&compression).expect("JSON");
    assert_eq!(
        serde_json::from_value::<Codecs>(back).ok(),
        Some(compression)
    );
    let unknown = serde_json::json!({ "codec": { "kind": "top_k", "density": 0.1, "k": 3 } });
    assert!(serde_json::from_value::<Codecs>(unknown).is_err());
}

#[test]
fn half_precision_matches_the_processor_on_all_values() {
    use muster_comm::compress::{EncodingKey, FeedbackState, decode, encode};
    let every: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let wide = HalfCodec::new(HalfFormat::F16, Rounding::Nearest, false);
    let (mut a, mut b) = (vec![0.0; 1 << 16], vec![0.0; 1 << 16]);
    decode(&wide, &every, &mut a, DecodeMode::Overwrite).expect("two bytes a number");
    decode(&wide.portable(), &every, &mut b, DecodeMode::Overwrite).expect("two bytes a number");
    let bits = |values: &[f32]| -> Vec<u32> { values.iter().map(|v| v.to_bits()).collect() };
    assert!(bits(&a) == bits(&b));
    // All values, the midpoints between neighbours, and the floats next to these.
    let mut near: Vec<f32> = Vec::new();
    for pair in a.windows(2).filter(|pair| pair[0].is_finite()) {
        let middle = f32::midpoint(pair[0], pair[1]);
        for value in [pair[0], middle] {
            let bits = value.to_bits();
            near.extend([bits, bits.wrapping_sub(1), bits.wrapping_add(1)].map(f32::from_bits));
        }
    }
    let key = EncodingKey {
        seed: 0,
        step: 0,
        block: 0,
    };
    let (mut left, mut right) = (vec![0; 2 * near.len()], vec![0; 2 * near.len()]);
    encode(&wide, key, &near, FeedbackState::default(), &mut left);
    encode(
        &wide.portable(),
        key,
        &near,
        FeedbackState::default(),
        &mut right,
    );
    assert!(left == right);
    // Every finite value of the format is exact.
    let finite: Vec<f32> = a.iter().copied().filter(|v| v.is_finite()).collect();
    let mut bytes = vec![0; 2 * finite.len()];
    encode(&wide, key, &finite, FeedbackState::default(), &mut bytes);
    let mut back = vec![0.0; finite.len()];
    decode(&wide, &bytes, &mut back, DecodeMode::Overwrite).expect("our own bytes");
    assert!(bits(&finite) == bits(&back));
}

/// Builds a sparse chunk: the header word, the positions, and `numbers` values.
fn sparse_bytes(header: u32, places: &[u8], numbers: usize) -> Vec<u8> {
    let mut bytes = header.to_le_bytes().to_vec();
    bytes.extend(places);
    bytes.extend(vec![0x3f; 4 * numbers]);
    bytes
}

#[test]
fn sparse_places_must_be_ascending_and_inside() {
    const BITMAP: u32 = 1 << 31;
    const LEN: usize = 100;
    let codec = build(&TOP).expect("a codec");
    let read = |bytes: &[u8]| codec.decode_chunk(bytes, &mut [0.0; LEN], DecodeMode::Add);
    let index = |got| Err(DecodeError::Index { got, len: LEN });
    let count = |got| Err(DecodeError::Count { got, len: LEN });
    assert_eq!(read(&sparse_bytes(2, &[5, 0, 99, 0], 2)), Ok(16));
    assert_eq!(read(&sparse_bytes(2, &[5, 0, 5, 0], 2)), index(5));
    assert_eq!(read(&sparse_bytes(2, &[7, 0, 3, 0], 2)), index(3));
    assert_eq!(read(&sparse_bytes(2, &[5, 0, 100, 0], 2)), index(100));
    assert_eq!(read(&sparse_bytes(101, &[0; 202], 101)), count(101));
    // 100 values have 13 bytes of bitmap, which is shorter than seven offsets and longer than six.
    let mut bits = [0; 13];
    bits[0] = 0x7f;
    assert_eq!(read(&sparse_bytes(BITMAP | 7, &bits, 7)), Ok(4 + 13 + 28));
    assert_eq!(read(&sparse_bytes(BITMAP | 8, &bits, 8)), count(7));
    assert_eq!(read(&sparse_bytes(BITMAP | 6, &bits, 6)), count(6));
    assert_eq!(read(&sparse_bytes(7, &[0; 14], 7)), count(7));
    bits[0] = 0x3f;
    bits[12] = 0x10;
    assert_eq!(read(&sparse_bytes(BITMAP | 7, &bits, 7)), index(100));
    let short = DecodeError::Truncated {
        needed: 16,
        got: 15,
    };
    assert_eq!(read(&sparse_bytes(2, &[5, 0, 99, 0], 2)[..15]), Err(short));
}

proptest! {
    #[test]
    fn damaged_bucket_never_panics(
        step in 0u64..3, at in any::<prop::sample::Index>(), value: u8, cut in any::<prop::sample::Index>(),
    ) {
        let plan = plan();
        let mut feedback = Feedback::new(&plan);
        let mut bytes = encoded(&plan, step, 0..5, &mut feedback);
        let mut arena = vec![0.0; LEN];
        let cut = cut.index(bytes.len());
        prop_assert!(plan.decode(0..5, &bytes[..cut], &mut arena, DecodeMode::Add).is_err());
        let at = at.index(bytes.len());
        bytes[at] = value;
        let _ = plan.decode(0..5, &bytes, &mut arena, DecodeMode::Add);
        bytes.push(0);
        let longer = plan.decode(0..5, &bytes, &mut arena, DecodeMode::Add);
        let is_error = matches!(
            longer,
            Err(DecodeError::Trailing(_) | DecodeError::Truncated { .. } | DecodeError::Count { .. } | DecodeError::Index { .. })
        );
        prop_assert!(is_error);
    }

    /// Bytes similar to a sparse chunk: a valid count with random positions and values.
    #[test]
    fn sparse_bytes_at_random_never_panic(
        count in 0u32..40, bitmap: bool, rest in prop::collection::vec(any::<u8>(), 0..300), len in 1usize..600,
    ) {
        let header = count | u32::from(bitmap) << 31;
        let mut bytes = header.to_le_bytes().to_vec();
        bytes.extend(rest);
        let codec = build(&TOP).expect("a codec");
        let mut out = vec![0.0; len];
        let read = codec.decode_chunk(&bytes, &mut out, DecodeMode::Add);
        if let Ok(read) = read {
            prop_assert!(read <= bytes.len());
            let again = muster_comm::compress::SparseSum::decode(&bytes[..read], len);
            prop_assert_eq!(again.map(|sum| sum.entries().count()), Ok(count as usize));
        }
    }
}
