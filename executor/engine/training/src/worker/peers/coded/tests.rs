//! Both legs between real tasks: the sent values plus the residuals equal the gradients.

use super::*;
use muster_comm::compress::Norm;
use muster_comm::fabric::{Credentials, Fabric, FabricOptions, GroupView, PeerPort};
use muster_compute::model::ParameterRole;
use muster_model::id::{JobId, TaskId};
use std::thread;
use uuid::Uuid;

const LENS: [usize; 3] = [150_000, 50, 70_000];
const LEN: usize = 220_050;

fn workers(codec: CodecConfig, count: usize) -> Vec<EncodedAllReduce> {
    workers_of(codec, count, ParameterRole::Weight)
}

/// Creates workers of a network whose last two blocks have the role `last`.
fn workers_of(codec: CodecConfig, count: usize, last: ParameterRole) -> Vec<EncodedAllReduce> {
    let [first, small, large] = LENS;
    let blocks =
        ParameterBlock::in_a_row([(first, ParameterRole::Weight), (small, last), (large, last)]);
    let codecs = Codecs::uniform(codec);
    (0..count)
        .map(|_| EncodedAllReduce::new(&codecs, &blocks, 5).unwrap())
        .collect()
}

fn gradients(rank: usize, step: u64) -> Vec<f32> {
    let salt = rank * 104_729 + step as usize * 15_485_863;
    (0..LEN)
        .map(|i| ((i * 7_919 + salt) % 10_007) as f32 / 5_003.5 - 1.0)
        .collect()
}

fn bind(id: usize) -> PeerPort {
    let me = Credentials {
        job_id: JobId(Uuid::nil()),
        secret: "ab".repeat(32),
        id: TaskId(Uuid::from_u128(id as u128)),
        attempt: 1,
    };
    PeerPort::bind("127.0.0.1", None, me).unwrap()
}

/// Runs `task` for each of the workers in a view of all of them.
fn in_view(
    number: u64,
    workers: &mut [EncodedAllReduce],
    task: impl Fn(&mut Mesh, &mut EncodedAllReduce) -> Vec<f32> + Sync,
) -> Vec<f32> {
    let ports: Vec<PeerPort> = (0..workers.len()).map(bind).collect();
    let members = ports.iter().map(PeerPort::member).collect();
    let view = GroupView { number, members };
    let outputs: Vec<Vec<f32>> = thread::scope(|scope| {
        let (view, task) = (&view, &task);
        let threads: Vec<_> = ports
            .iter()
            .zip(workers)
            .map(|(port, coded)| {
                scope.spawn(move || {
                    let options = FabricOptions::default();
                    let mut fabric = Fabric::join(port, view.clone(), &options).unwrap();
                    task(fabric.mesh(), coded)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for output in &outputs {
        let bits = output.iter().zip(&outputs[0]);
        assert!(bits.clone().all(|(a, b)| a.to_bits() == b.to_bits()));
    }
    outputs.into_iter().next().unwrap()
}

/// Does one step of these workers. Returns the sum, which is the same on all.
fn step(view: u64, number: u64, workers: &mut [EncodedAllReduce]) -> Vec<f32> {
    in_view(view, workers, |mesh, coded| {
        let (rank, size) = (mesh.rank(), mesh.size());
        let mut own = gradients(rank, number);
        coded.encode(number, 0..LEN, &mut own, (rank, size));
        let mut output = vec![f32::NAN; LEN];
        coded.exchange(mesh, view, &mut output).unwrap();
        coded.settle(view);
        output
    })
}

fn add(to: &mut [f64], values: &[f32], sign: f64) {
    for (to, value) in to.iter_mut().zip(values) {
        *to += sign * f64::from(*value);
    }
}

/// Adds both residuals of a worker, that of its gradients and that of its sums.
fn residual(coded: &EncodedAllReduce, to: &mut [f64]) {
    add(to, &coded.sum_residual, 1.0);
    coded
        .feedback
        .planes()
        .for_each(|(_, plane)| add(to, plane, 1.0));
}

fn largest(off: &[f64]) -> f64 {
    off.iter().fold(0.0, |most, off| off.abs().max(most))
}

fn with_feedback() -> [CodecConfig; 5] {
    [
        CodecConfig::None {},
        CodecConfig::OneBit {},
        CodecConfig::Half {
            format: HalfFormat::Bf16,
            rounding: Rounding::Nearest,
            feedback: true,
        },
        CodecConfig::TopK {
            density: 0.01,
            sampled: false,
        },
        CodecConfig::Threshold { magnitude: 1.5 },
    ]
}

/// One of three workers leaves; the sent values plus the residuals still equal the gradients.
#[test]
fn feedback_on_both_legs_conserves_the_sum_while_members_change() {
    for codec in with_feedback() {
        let mut crew = workers(codec, 3);
        let mut balance = vec![0.0; LEN];
        for number in 0..8 {
            if number == 4 {
                residual(&crew.pop().unwrap(), &mut balance);
            }
            let view = 1 + number / 4;
            add(&mut balance, &step(view, number, &mut crew), 1.0);
            for rank in 0..crew.len() {
                add(&mut balance, &gradients(rank, number), -1.0);
            }
        }
        crew.iter().for_each(|coded| residual(coded, &mut balance));
        let off = largest(&balance);
        assert!(off < 1e-3, "{codec:?}: {off}");
    }
}

/// A single remaining worker applies its residual of sums at once, and then has only that of its
/// own leg.
#[test]
fn single_worker_keeps_no_residual_of_its_sums() {
    for codec in with_feedback() {
        let mut crew = workers(codec, 2);
        let mut balance = vec![0.0; LEN];
        for number in 0..4 {
            if number == 2 {
                residual(&crew.pop().unwrap(), &mut balance);
            }
            add(&mut balance, &step(1 + number / 2, number, &mut crew), 1.0);
            for rank in 0..crew.len() {
                add(&mut balance, &gradients(rank, number), -1.0);
            }
        }
        assert!(
            crew[0]
                .sum_residual
                .iter()
                .all(|sum_residual| *sum_residual == 0.0),
            "{codec:?}"
        );
        residual(&crew[0], &mut balance);
        let off = largest(&balance);
        assert!(off < 1e-3, "{codec:?}: {off}");
    }
}

/// Two of three workers repeat a sum. It is the sum of the two, and the first attempt has no
/// effect.
#[test]
fn a_broken_sum_is_repeated_from_the_same_bytes() {
    for codec in with_feedback() {
        let mut crew = workers(codec, 3);
        let _ = in_view(1, &mut crew, |mesh, coded| {
            let (rank, size) = (mesh.rank(), mesh.size());
            coded.encode(0, 0..LEN, &mut gradients(rank, 0), (rank, size));
            let mut output = vec![f32::NAN; LEN];
            coded.exchange(mesh, 1, &mut output).unwrap();
            output
        });
        crew.pop();
        let sum = in_view(2, &mut crew, |mesh, coded| {
            let mut output = vec![f32::NAN; LEN];
            coded.exchange(mesh, 2, &mut output).unwrap();
            coded.settle(2);
            output
        });
        let mut balance = vec![0.0; LEN];
        add(&mut balance, &sum, 1.0);
        for (rank, coded) in crew.iter().enumerate() {
            add(&mut balance, &gradients(rank, 0), -1.0);
            residual(coded, &mut balance);
        }
        let off = largest(&balance);
        assert!(off < 1e-4, "{codec:?}: {off}");
    }
}

/// Neither leg changes statistics, with or without momentum.
#[test]
fn statistics_are_summed_as_they_are() {
    let dgc = CodecConfig::Dgc {
        density: 0.01,
        momentum: 0.9,
        warm_up_steps: 0,
        masking: false,
    };
    for codec in with_feedback().into_iter().chain([dgc]) {
        let mut crew = workers_of(codec, 3, ParameterRole::Statistic);
        for number in 0..4 {
            let sum = step(1, number, &mut crew);
            let given = [0, 1, 2].map(|rank| gradients(rank, number));
            for at in LENS[0]..LEN {
                let exact: f32 = given.iter().map(|given| given[at]).sum();
                assert_eq!(sum[at], exact, "{codec:?}: number {at} of step {number}");
            }
        }
    }
}

/// Codecs without feedback approximate the sum; the loss of the second leg is sent later.
#[test]
fn unbiased_codecs_come_near_the_sum() {
    let qsgd = CodecConfig::Qsgd {
        bits: 8,
        bucket: 512,
        norm: Norm::Largest,
    };
    let half = CodecConfig::Half {
        format: HalfFormat::F16,
        rounding: Rounding::Nearest,
        feedback: false,
    };
    let tern = CodecConfig::TernGrad {
        scale: muster_comm::compress::Scale::Group,
        clip: None,
    };
    for (codec, most) in [(qsgd, 0.05), (half, 0.002), (tern, 1.2)] {
        let mut crew = workers(codec, 3);
        let mut total = vec![0.0; LEN];
        for number in 0..4 {
            add(&mut total, &step(1, number, &mut crew), 1.0);
            for rank in 0..3 {
                add(&mut total, &gradients(rank, number), -1.0);
            }
        }
        // Root mean square error of the sums of four steps.
        let off = (total.iter().map(|off| off * off).sum::<f64>() / LEN as f64).sqrt() / 2.0;
        assert!(off < most, "{codec:?}: {off}");
    }
}

#[test]
fn units_are_divided_whole_evenly_and_completely() {
    let coded = &workers(CodecConfig::None {}, 1)[0];
    let units = units(&coded.plan, &(0..LEN));
    // Three chunks, a small block, and two chunks.
    assert_eq!(units.len(), 6);
    for size in 1..9 {
        let dealt = deal(&units, size);
        let mut next = 0;
        for part in &dealt {
            assert_eq!(part.start, next);
            next = part.end;
        }
        assert_eq!((dealt.len(), next), (size, units.len()));
    }
    assert_eq!(deal(&units, 2), [0..2, 2..6]);
}

#[test]
fn invalid_chunk_words_are_rejected() {
    let coded = &workers(
        CodecConfig::TopK {
            density: 0.1,
            sampled: false,
        },
        1,
    )[0];
    let units = units(&coded.plan, &(0..LEN));
    let blocks = coded.plan.blocks();
    let mut out = vec![0.0; LEN];
    for words in [vec![], vec![u32::MAX; 40], vec![0; 700_000]] {
        let decoded = decode(
            &units,
            |unit| blocks[unit.block].codec(),
            &words,
            &mut out,
            DecodeMode::Add,
        );
        assert!(decoded.is_none());
    }
}
