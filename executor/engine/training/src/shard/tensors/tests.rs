//! Compares updates and moves of a shard's values with plain arithmetic.

use super::*;

fn adam() -> OptimizerConfig {
    OptimizerConfig::new(UpdateRule::Adam {
        lr: 0.01,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
        decoupled: false,
    })
}

fn values(count: usize, salt: usize) -> Vec<f32> {
    (0..count)
        .map(|i| ((i * 7919 + salt * 104_729) % 1000) as f32 / 500.0 - 1.0)
        .collect()
}

fn piece(offset: usize, len: usize) -> ParameterPiece {
    ParameterPiece { offset, len }
}

fn bits(tensors: &Tensors) -> Vec<u32> {
    let all = tensors.parts().concat();
    all.into_iter().map(f32::to_bits).collect()
}

/// Compares the chunked, threaded update with one call of the optimizer.
#[test]
fn update_equals_optimizer_on_sum_in_rank_order() {
    let count = CHUNK * 40 + 123;
    for threads in [1, 3] {
        let mut tensors = Tensors::new(adam(), Segment::weights(count), threads);
        let start = values(count, 0);
        tensors.fill_with(|parts| parts[0].copy_from_slice(&start));
        let mut expected = start;
        let mut state = vec![0.0; count * 2];
        for step in 0..3 {
            let mut gradients: Vec<Vec<f32>> =
                (1..4).map(|salt| values(count, salt + step)).collect();
            let sum: Vec<f32> = (0..count)
                .map(|i| (gradients[0][i] + gradients[1][i]) + gradients[2][i])
                .collect();
            adam().update(step as u64, &mut expected, &sum, &mut state, 0.25);
            let mut gradients: Vec<&mut [f32]> =
                gradients.iter_mut().map(Vec::as_mut_slice).collect();
            tensors.update(step as u64, &mut gradients, 0.25);
        }
        assert_eq!(tensors.parameters(), expected);
        assert_eq!(
            tensors.parts()[1..].concat(),
            state,
            "planes come out whole and in order"
        );
    }
}

#[test]
fn filled_values_are_read_in_the_same_order() {
    let count = CHUNK * 2 + 5;
    let mut tensors = Tensors::new(adam(), Segment::weights(count), 1);
    let all = values(count * 3, 1);
    tensors.fill_with(|parts| {
        let mut rest = all.as_slice();
        for part in parts {
            let (here, tail) = rest.split_at(part.len());
            part.copy_from_slice(here);
            rest = tail;
        }
        assert!(rest.is_empty());
    });
    assert_eq!(tensors.parts().concat(), all);
}

/// One shard's content, divided among two others, has the same values and checksums.
#[test]
fn moved_pieces_keep_their_bits() {
    let count = CHUNK * 3 + 77;
    let whole = [piece(100, count)];
    let cut = CHUNK + 10;
    let first = [
        piece(100, 5),
        piece(100 + cut, CHUNK),
        piece(100 + count - 3, 3),
    ];
    let second = [
        piece(105, cut - 5),
        piece(100 + cut + CHUNK, count - cut - CHUNK - 3),
    ];
    let mut all = Tensors::new(adam(), Segment::weights(count), 1);
    let mut salt = 0;
    all.fill_with(|parts| {
        for part in parts {
            salt += 1;
            part.copy_from_slice(&values(part.len(), salt));
        }
    });
    let parts: Vec<Tensors> = [&first[..], &second[..]]
        .map(|pieces| {
            let mut part = Tensors::new(
                adam(),
                Segment::weights(muster_comm::assign::load(pieces)),
                1,
            );
            part.take_over(pieces, &all, &whole);
            part
        })
        .into();
    let sum = parts[0]
        .checksum(&first)
        .wrapping_add(parts[1].checksum(&second));
    assert_eq!(sum, all.checksum(&whole));
    let mut back = Tensors::new(adam(), Segment::weights(count), 1);
    back.take_over(&whole, &parts[0], &first);
    assert_ne!(
        back.checksum(&whole),
        all.checksum(&whole),
        "half is missing"
    );
    back.take_over(&whole, &parts[1], &second);
    assert_eq!(back.parts(), all.parts());
    let (index, bit) = (CHUNK + 3, 1);
    back.fill_with(|parts| {
        parts[2][index % CHUNK] = f32::from_bits(parts[2][index % CHUNK].to_bits() ^ bit)
    });
    assert_ne!(
        back.checksum(&whole),
        all.checksum(&whole),
        "one bit is another"
    );
}

#[test]
fn shard_without_parameters_accepts_updates() {
    let mut tensors = Tensors::new(adam(), Segment::weights(0), 1);
    tensors.update(0, &mut [&mut [], &mut []], 1.0);
    assert_eq!(tensors.parts().concat(), [0.0; 0]);
}

#[test]
fn segments_match_the_blocks_of_the_pieces() {
    let blocks = ParameterBlock::in_a_row([
        (10, ParameterRole::Weight),
        (4, ParameterRole::Bias),
        (6, ParameterRole::Statistic),
    ]);
    let segments = Segment::of(&blocks, &[piece(2, 3), piece(7, 5), piece(15, 5)]);
    let expected = [
        (0..3, ParameterRole::Weight),
        (3..6, ParameterRole::Weight),
        (6..8, ParameterRole::Bias),
        (8..13, ParameterRole::Statistic),
    ];
    assert_eq!(
        segments,
        expected.map(|(range, role)| Segment { range, role })
    );
}

/// Statistics have an update of their own, and LARS has a factor for each tensor, across chunks.
#[test]
fn each_segment_is_updated_by_its_role() {
    let rule = UpdateRule::Lars {
        lr: 0.1,
        momentum: 0.9,
        weight_decay: 0.01,
        trust: 0.02,
    };
    let optimizer = OptimizerConfig::new(rule);
    let ends = [CHUNK + 7, CHUNK + 9, 3 * CHUNK, 3 * CHUNK + 100];
    let roles = [
        ParameterRole::Weight,
        ParameterRole::Bias,
        ParameterRole::Weight,
        ParameterRole::Statistic,
    ];
    let mut start = 0;
    let segments = ends.iter().zip(roles).map(|(&end, role)| {
        let range = std::mem::replace(&mut start, end)..end;
        Segment { range, role }
    });
    let segments: Vec<Segment> = segments.collect();
    let count = ends[3];
    let mut tensors = Tensors::new(optimizer.clone(), segments.clone(), 2);
    let mut expected = values(count, 0);
    tensors.fill_with(|parts| parts[0].copy_from_slice(&expected));
    let mut state = vec![0.0; count];
    for step in 0..3 {
        let mut gradients = [values(count, step + 1), values(count, step + 5)];
        let sum: Vec<f32> = gradients[0]
            .iter()
            .zip(&gradients[1])
            .map(|(a, b)| a + b)
            .collect();
        for Segment { range, role } in segments.clone() {
            let (params, sum) = (&mut expected[range.clone()], &sum[range.clone()]);
            let state = &mut state[range];
            match role {
                ParameterRole::Weight => optimizer.update(step as u64, params, sum, state, 0.5),
                ParameterRole::Bias => {
                    optimizer.update_part(step as u64, params, sum, [state, &mut []], 0.5, 1.0)
                }
                ParameterRole::Statistic => {
                    params.iter_mut().zip(sum).for_each(|(p, g)| *p -= 0.5 * g)
                }
            }
        }
        let mut gradients: Vec<&mut [f32]> = gradients.iter_mut().map(Vec::as_mut_slice).collect();
        tensors.update(step as u64, &mut gradients, 0.5);
    }
    assert_eq!(tensors.parameters(), expected);
}

/// Fills the parameters, and the planes of state with positive values.
fn filled(mut tensors: Tensors) -> Tensors {
    tensors.fill_with(|parts| {
        for (salt, part) in parts.iter_mut().enumerate() {
            let numbers = values(part.len(), salt);
            for (to, number) in part.iter_mut().zip(numbers) {
                *to = if salt == 0 { number } else { number.abs() };
            }
        }
    });
    tensors
}

/// Compares an update by chunk ranges with decoding, updating and encoding in sequence. Blocks end
/// within chunks and chunk ranges, and all numbers of state planes occur.
#[test]
fn encoded_step_has_the_bits_of_separate_operations() {
    use muster_comm::compress::{CodecConfig, Codecs, HalfFormat, Rounding};
    use muster_comm::shard_codec::{Salt, ShardCodec};
    let momentum = OptimizerConfig::new(UpdateRule::Sgd {
        lr: 0.1,
        momentum: 0.9,
        nesterov: false,
        weight_decay: 0.01,
    });
    let plain = OptimizerConfig::new(UpdateRule::Sgd {
        lr: 0.1,
        momentum: 0.0,
        nesterov: false,
        weight_decay: 0.0,
    });
    let lens = [
        (130_001, ParameterRole::Weight),
        (50, ParameterRole::Statistic),
        (70_003, ParameterRole::Bias),
        (9, ParameterRole::Weight),
    ];
    let blocks = ParameterBlock::in_a_row(lens);
    let count: usize = lens.iter().map(|(len, _)| len).sum();
    let pieces = [
        ParameterPiece {
            offset: 3,
            len: 150_000,
        },
        ParameterPiece {
            offset: 160_000,
            len: count - 160_000,
        },
    ];
    let held: usize = pieces.iter().map(|piece| piece.len).sum();
    let halves = [Rounding::Nearest, Rounding::Stochastic].map(|rounding| CodecConfig::Half {
        format: HalfFormat::Bf16,
        rounding,
        feedback: true,
    });
    for codec in [CodecConfig::OneBit {}].into_iter().chain(halves) {
        let codecs = Codecs {
            codec,
            dense_below: 100,
            layers: Vec::new(),
        };
        let shard_codec = ShardCodec::new(&codecs, &blocks, &pieces).unwrap();
        for (optimizer, threads) in [(&plain, 1), (&momentum, 1), (&adam(), 1), (&adam(), 3)] {
            let [mut at_once, mut in_turn] = [(); 2].map(|()| {
                let segments = Segment::of(&blocks, &pieces);
                filled(Tensors::new(optimizer.clone(), segments, threads).with_known())
            });
            for step in 0..3 {
                let mut pushes: Vec<Vec<u8>> = Vec::new();
                for rank in 1..4 {
                    let mut feedback = ShardCodec::feedback(&codecs, &blocks).unwrap();
                    let (gradients, mut bytes) = (values(count, rank + step), Vec::new());
                    let salt = Salt {
                        seed: rank as u64,
                        step: step as u64,
                    };
                    shard_codec.encode_push(salt, &gradients, &mut feedback, &mut bytes);
                    pushes.push(bytes);
                }
                let salt = Salt {
                    seed: 77,
                    step: step as u64,
                };
                let (update, scale) = (step as u64, 0.25);
                let mut decoded: Vec<Vec<f32>> = vec![vec![0.0; held]; 3];
                for (bytes, into) in pushes.iter().zip(&mut decoded) {
                    shard_codec.decode_push(bytes, into).unwrap();
                }
                let mut decoded: Vec<&mut [f32]> =
                    decoded.iter_mut().map(Vec::as_mut_slice).collect();
                in_turn.update(update, &mut decoded, scale);
                let mut expected = Vec::new();
                let (parameters, known) = in_turn.parameters_and_known();
                shard_codec.encode_pull(salt, parameters, known, &mut expected);

                let pushes: Vec<&[u8]> = pushes.iter().map(Vec::as_slice).collect();
                let factors = Factors {
                    scale,
                    ..Factors::default()
                };
                let mut got = Vec::new();
                at_once.update_encoded((&shard_codec, salt), &pushes, (update, factors), &mut got);
                assert!(
                    got == expected,
                    "{codec:?}, {optimizer:?}: the answer of step {step}"
                );
                assert!(
                    bits(&at_once) == bits(&in_turn),
                    "{codec:?}, {optimizer:?}: the numbers after step {step}"
                );
            }
        }
    }
}
