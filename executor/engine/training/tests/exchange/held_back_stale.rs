//! Residuals of encoded gradients under SSP and ASP, for random delays. Each shard's part of a
//! checkpoint contains the pushes that the shard had applied, and for every worker the residual
//! after its last such push. So no gradient is lost or counted twice.

use crate::loopback::{BATCH, LoopbackJob, enter, fresh, gradients, hello, size, stats, worker};
use muster_comm::assign::ParameterPiece;
use muster_comm::compress::{CodecConfig, Feedback};
use muster_comm::wire::metadata::{Hello, StepStats};
use muster_comm::wire::{FrameKind, handshake};
use muster_compute::optimizer::{OptimizerConfig, UpdateRule};
use muster_model::spec::{Consistency, Rate};
use muster_training::checkpoint::Contents;
use muster_training::worker::{Eager, Reply, Shards, first_view};
use proptest::prelude::*;
use std::thread;
use std::time::Duration;

/// Steps of the coordinator; every third one begins with a checkpoint.
const STEPS: u64 = 9;

/// A step subtracts exactly the gradient divided by the batch.
fn plain() -> OptimizerConfig {
    OptimizerConfig::new(UpdateRule::Sgd {
        lr: f64::from(BATCH),
        momentum: 0.0,
        nesterov: false,
        weight_decay: 0.0,
    })
}

fn codecs() -> [CodecConfig; 2] {
    let top_k = CodecConfig::TopK {
        density: 0.05,
        sampled: false,
    };
    [CodecConfig::OneBit {}, top_k]
}

/// Residual of a worker after its push of each step.
type ResidualHistory = Vec<(u64, Feedback)>;

/// Checkpoint of the coordinator with its step.
struct StepCheckpoint {
    step: u64,
    contents: Contents,
    pieces: Vec<Vec<ParameterPiece>>,
}

/// Pushes one step, eagerly or not. Returns the next step; `None` if training has ended.
fn push(
    shards: &mut Shards,
    eager: Option<&mut Eager>,
    rank: usize,
    step: u64,
    wait: Duration,
) -> Option<u64> {
    let counts = StepStats {
        examples: 0,
        ..stats(0)
    };
    let own = gradients(rank as u32, step);
    let Some(eager) = eager else {
        thread::sleep(wait);
        let mut parameters = vec![0.0; size()];
        let mut reply = shards.push_pull(step, counts, &own, &mut parameters, &|| true);
        // A worker that has not connected yet will.
        while matches!(reply, Ok(Reply::Gone)) {
            reply = shards.wait_on(&own, &mut parameters, &|| true);
        }
        return match reply {
            Ok(Reply::Parameters { clock, .. }) => Some(clock),
            // The coordinator has ended training, and the shard may have ended too.
            Ok(Reply::Finished | Reply::Interrupted { .. }) | Err(_) => None,
            Ok(other) => panic!("{other:?}"),
        };
    };
    if !eager.may_read(shards, step) && !continues(eager.flush(shards, &|| true).ok()?) {
        return None;
    }
    let overlapped = eager.overlap(shards, step, &|| true, |gradients: &mut [f32]| {
        thread::sleep(wait);
        gradients.copy_from_slice(&own);
        (counts, ())
    });
    let (_, reply) = overlapped.ok()?;
    continues(reply).then_some(step + 1)
}

fn continues(reply: Option<Reply>) -> bool {
    matches!(reply, None | Some(Reply::Parameters { .. }))
}

/// Pushes until the coordinator ends training.
fn follow(
    rank: usize,
    mut shards: Shards,
    mut eager: Option<Eager>,
    delays: &[u8],
) -> ResidualHistory {
    let (mut history, mut step) = (ResidualHistory::new(), 0);
    loop {
        let delay = delays[step as usize % delays.len()];
        let wait = Duration::from_millis(u64::from(delay) + 1);
        let next = push(&mut shards, eager.as_mut(), rank, step, wait);
        // An eager worker has pushed the step before.
        let pushed = match &eager {
            Some(_) => step.checked_sub(1),
            None => Some(step),
        };
        history.extend(pushed.map(|pushed| (pushed, shards.feedback().unwrap().clone())));
        match next {
            Some(next) => step = next,
            None => return history,
        }
    }
}

/// Writes a checkpoint at the beginning of every third step.
fn lead(
    mut shards: Shards,
    mut eager: Option<Eager>,
    delays: &[u8],
) -> (Vec<StepCheckpoint>, ResidualHistory) {
    let (mut all, mut history) = (Vec::new(), ResidualHistory::new());
    for step in 0..STEPS {
        let keeps = step % 3 == 2;
        if keeps {
            shards.keep(step + 1).unwrap();
        }
        let delay = delays[step as usize % delays.len()];
        let wait = Duration::from_millis(u64::from(delay));
        let next = push(&mut shards, eager.as_mut(), 0, step, wait);
        assert_eq!(next, Some(step + 1));
        if keeps {
            if let Some(eager) = &mut eager {
                eager.flush(&mut shards, &|| true).unwrap();
            }
            let snapshot = shards.snapshot(Contents::default()).unwrap();
            assert_eq!(snapshot.version(), Some(step + 1));
            let mut contents = snapshot.contents;
            contents.extras.extend(shards.held_back().unwrap());
            let shards = &shards.view().unwrap().shards;
            all.push(StepCheckpoint {
                step: step + 1,
                contents,
                pieces: shards.iter().map(|holder| holder.pieces.clone()).collect(),
            });
        }
        history.push((step, shards.feedback().unwrap().clone()));
    }
    shards.done();
    (all, history)
}

fn run(
    delays: &[Vec<u8>],
    consistency: Consistency,
    codec: CodecConfig,
) -> (Vec<StepCheckpoint>, Vec<ResidualHistory>) {
    let job = LoopbackJob::start_encoded_with(delays.len() as u32, 2, codec, consistency, plain());
    let eager = match consistency {
        Consistency::Ssp {
            staleness,
            eager: true,
            ..
        } => Some(staleness),
        _ => None,
    };
    let eagers: Vec<Option<Eager>> = delays
        .iter()
        .map(|_| eager.map(|staleness| Eager::new(staleness, size())))
        .collect();
    thread::scope(|scope| {
        let mut joined = job.joined(0).into_iter().zip(eagers);
        let (chief, eager) = joined.next().unwrap();
        let others: Vec<_> = (1..)
            .zip(joined)
            .map(|(rank, (shards, eager))| {
                scope.spawn(move || follow(rank, shards, eager, &delays[rank]))
            })
            .collect();
        let (kept, own) = lead(chief, eager, &delays[0]);
        let others = others.into_iter().map(|other| other.join().unwrap());
        (kept, std::iter::once(own).chain(others).collect())
    })
}

fn residual(kept: &StepCheckpoint, rank: usize) -> &[f32] {
    let name = Feedback::extra("compress.residual", rank);
    kept.contents.extra(&name).expect("every worker's is there")
}

fn plane(feedback: &Feedback) -> &[f32] {
    feedback.planes().next().expect("the codec has one").1
}

/// Index of the push of a worker after which the residual in a shard's part of the checkpoint was
/// taken.
fn found(kept: &[f32], history: &ResidualHistory, pieces: &[ParameterPiece]) -> Option<usize> {
    history.iter().position(|(_, feedback)| {
        let held = plane(feedback);
        pieces
            .iter()
            .all(|piece| kept[piece.range()] == held[piece.range()])
    })
}

/// Sum that the pushes of a worker, up to and including this one, have subtracted at a position.
fn applied(history: &[(u64, Feedback)], rank: usize, at: usize) -> f64 {
    let sent: f64 = history
        .iter()
        .map(|(step, _)| f64::from(gradients(rank as u32, *step)[at]))
        .sum();
    let held = history.last().map_or(0.0, |(_, last)| plane(last)[at]);
    sent - f64::from(held)
}

fn check_sum(kept: &[StepCheckpoint], histories: &[ResidualHistory]) -> Result<(), TestCaseError> {
    let before = fresh().parameters;
    for kept in kept {
        for (shard, pieces) in kept.pieces.iter().enumerate() {
            let mut until = Vec::new();
            for (rank, history) in histories.iter().enumerate() {
                let of = residual(kept, rank);
                let nothing = pieces
                    .iter()
                    .all(|piece| of[piece.range()].iter().all(|&value| value == 0.0));
                let found = found(of, history, pieces).map(|at| at + 1);
                let found = found.or(nothing.then_some(0));
                prop_assert!(
                    found.is_some(),
                    "step {}: what worker {rank} is said to hold back of shard {shard} it never has",
                    kept.step
                );
                until.push(found.unwrap());
            }
            prop_assert_eq!(until[0] as u64, kept.step, "the chief's own");
            for piece in pieces {
                for at in piece.range().step_by(piece.len.div_ceil(40)) {
                    let got = f64::from(before[at]) - f64::from(kept.contents.parameters[at]);
                    let expected: f64 = (0..histories.len())
                        .map(|rank| applied(&histories[rank][..until[rank]], rank, at))
                        .sum();
                    prop_assert!(
                        (got - expected).abs() < 1e-3 * (1.0 + expected.abs()),
                        "step {}, shard {shard}, number {at}: {got} were applied, and {expected} are not held back; pushes {until:?}",
                        kept.step
                    );
                }
            }
        }
    }
    Ok(())
}

fn delays() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(0u8..12, 7), 3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    #[test]
    fn every_push_is_in_a_stale_checkpoint_once(delays in delays(), staleness in 0u32..4) {
        let rate = Rate::Constant;
        for consistency in [
            Consistency::Ssp { staleness, eager: false, rate },
            Consistency::Asp { rate },
        ] {
            for codec in codecs() {
                let (kept, histories) = run(&delays, consistency, codec);
                prop_assert_eq!(kept.len(), 3);
                check_sum(&kept, &histories)?;
            }
        }
    }

    #[test]
    fn checkpoint_of_eager_workers_contains_their_residuals(delays in delays(), staleness in 1u32..4) {
        let consistency = Consistency::Ssp { staleness, eager: true, rate: Rate::Constant };
        let (kept, mut histories) = run(&delays, consistency, CodecConfig::OneBit {});
        prop_assert_eq!(kept.len(), 3);
        // The test defines the order of the coordinator's own pushes; this checks the other
        // workers.
        for kept in &kept {
            for pieces in &kept.pieces {
                for (rank, history) in histories.iter_mut().enumerate().skip(1) {
                    let of = residual(kept, rank);
                    prop_assert!(found(of, history, pieces).is_some(), "step {}: worker {rank}", kept.step);
                }
            }
        }
    }
}

const FAR: Consistency = Consistency::Ssp {
    staleness: 8,
    eager: false,
    rate: Rate::Constant,
};

/// One push of a worker that need not wait for others.
fn go(shards: &mut Shards, rank: usize, step: u64) {
    assert_eq!(
        push(shards, None, rank, step, Duration::ZERO),
        Some(step + 1)
    );
}

/// Residual of a worker in a checkpoint that no run has written.
fn dealt(rank: u32) -> Vec<f32> {
    gradients(rank, 99)
}

/// A resumed worker that joins after the first steps of the others still gets its own residual, and
/// the sum over all is unchanged.
#[test]
fn residual_is_kept_for_a_worker_that_joins_late() {
    let rate = Rate::Constant;
    for consistency in [
        FAR,
        Consistency::Asp { rate },
        Consistency::Bsp { backup: 1 },
    ] {
        let codec = codecs()[1];
        let job = LoopbackJob::start_encoded_with(3, 2, codec, consistency, plain());
        let mut all: Vec<Shards> = (0..3).map(|rank| job.join(rank)).collect();
        let extras = (0..3)
            .map(|rank| {
                (
                    Feedback::extra("compress.residual", rank as usize),
                    dealt(rank),
                )
            })
            .collect();
        let contents = Contents {
            state: Vec::new(),
            extras,
            ..fresh()
        };
        let view = first_view(1, (0..3).map(worker).collect(), &job.addresses, &job.blocks);
        all[0].begin(view, 0, 0, &contents).unwrap();
        enter(&mut all[1]);
        all[1].fetch_own().unwrap();
        for step in 0..2 {
            thread::scope(|scope| {
                for (rank, shards) in all.iter_mut().enumerate().take(2) {
                    scope.spawn(move || go(shards, rank, step));
                }
            });
        }
        enter(&mut all[2]);
        all[2].fetch_own().unwrap();
        assert!(
            plane(all[2].feedback().unwrap()) == dealt(2),
            "{consistency:?}"
        );
        if consistency.is_bulk_synchronous() {
            // The mean of the counted gradients is not a sum.
            continue;
        }
        go(&mut all[2], 2, 0);
        let now = all[0].snapshot(Contents::default()).unwrap().contents;
        let pushed = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)];
        let pushed = pushed.map(|(rank, step)| gradients(rank, step));
        let given: Vec<Vec<f32>> = pushed.into_iter().chain((0..3).map(dealt)).collect();
        for at in (0..size()).step_by(11) {
            let held: f64 = all
                .iter()
                .map(|shards| f64::from(plane(shards.feedback().unwrap())[at]))
                .sum();
            let moved = f64::from(contents.parameters[at]) - f64::from(now.parameters[at]);
            let expected: f64 = given.iter().map(|given| f64::from(given[at])).sum();
            let got = moved + held;
            assert!(
                (got - expected).abs() < 1e-3,
                "{consistency:?}, {at}: {got} {expected}"
            );
        }
    }
}

/// A worker that sends nothing in time is left out; the others are not, and the next checkpoint
/// contains it again.
#[test]
fn checkpoint_does_not_wait_for_a_silent_worker() {
    let job = LoopbackJob::start_encoded_with(3, 2, codecs()[0], FAR, plain());
    let mut all = job.joined(0);
    go(&mut all[2], 2, 0);
    for step in 0..2 {
        let is_silent = step == 0;
        all[0].keep(step + 1).unwrap();
        all[0].hear_within(if is_silent {
            Duration::from_millis(100)
        } else {
            Duration::from_secs(60)
        });
        go(&mut all[0], 0, step);
        go(&mut all[1], 1, step);
        if !is_silent {
            go(&mut all[2], 2, step);
        }
        let snapshot = all[0].snapshot(Contents::default()).unwrap();
        assert_eq!(snapshot.version(), Some(step + 1));
        let held_back = all[0].held_back().unwrap();
        for (rank, shards) in all.iter().enumerate() {
            let name = Feedback::extra("compress.residual", rank);
            let (_, kept) = held_back.iter().find(|(known, _)| *known == name).unwrap();
            if is_silent && rank == 2 {
                assert!(kept.iter().all(|&value| value == 0.0));
            } else {
                assert!(kept == plane(shards.feedback().unwrap()), "{step}: {rank}");
            }
        }
    }
}

/// A worker is lost in an announced step, so another view begins with the step of the checkpoint.
#[test]
fn worker_lost_at_an_announced_step_loses_only_its_residual() {
    let job = LoopbackJob::start_encoded_with(3, 2, codecs()[1], FAR, plain());
    let mut all = job.joined(0).into_iter();
    let (mut chief, mut other) = (all.next().unwrap(), all.next().unwrap());
    go(&mut chief, 0, 0);
    go(&mut other, 1, 0);
    drop(all);
    let (mut step, mut parameters) = (1, vec![0.0; size()]);
    loop {
        chief.keep(step + 1).unwrap();
        let own = gradients(0, step);
        let reply = chief.push_pull(step, stats(0), &own, &mut parameters, &|| true);
        step += 1;
        match reply.unwrap() {
            Reply::Gone => break,
            Reply::Parameters { .. } => assert!(step < 8, "nobody noticed"),
            reply => panic!("{reply:?}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
    let names = vec![worker(0), worker(1)];
    chief
        .change(2, names, &job.addresses, step, vec![worker(2)])
        .unwrap();
    let history = thread::scope(|scope| {
        let history = scope.spawn(|| {
            let mut history = ResidualHistory::new();
            let mut parameters = vec![0.0; size()];
            let mut next = 1;
            // Until it has sent a residual under the new view; not further than it may.
            while next < 4 {
                let own = gradients(1, next);
                let reply = other.push_pull(next, stats(1), &own, &mut parameters, &|| true);
                history.push((next, other.feedback().unwrap().clone()));
                next += 1;
                match reply.unwrap() {
                    Reply::Moved => {
                        other.follow().unwrap();
                        enter(&mut other);
                    }
                    Reply::Parameters { .. } => {}
                    reply => panic!("{reply:?}"),
                }
            }
            history
        });
        chief.follow().unwrap();
        enter(&mut chief);
        let snapshot = chief.snapshot(Contents::default()).unwrap();
        assert_eq!(snapshot.version(), Some(step));
        let kept = chief.held_back().unwrap();
        let history = history.join().unwrap();
        let view = chief.view().unwrap();
        let name = Feedback::extra("compress.residual", 1);
        let (_, kept) = kept.iter().find(|(known, _)| *known == name).unwrap();
        for holder in &view.shards {
            assert!(found(kept, &history, &holder.pieces).is_some());
        }
        history
    });
    assert_eq!(history.len(), 3);
}

/// The residual that a worker sends before a push may belong to pieces that have moved: it is
/// dropped, and the connection continues.
#[test]
fn residual_of_moved_pieces_is_dropped() {
    let job = LoopbackJob::start_encoded_with(2, 1, codecs()[0], FAR, plain());
    let mut chief = job.join(0);
    let view = first_view(1, (0..2).map(worker).collect(), &job.addresses, &job.blocks);
    let contents = Contents {
        state: Vec::new(),
        ..fresh()
    };
    chief.begin(view, 0, 0, &contents).unwrap();
    let to = Some(job.addresses[0].0);
    let hello = Hello { to, ..hello(1) };
    let limit = Duration::from_secs(10);
    let (mut raw, _) = handshake(&job.addresses[0].1, &hello, limit).unwrap();
    let of = hello.task_id.0.as_bytes().as_slice();
    raw.send(FrameKind::Held, 1, of, &[&[1.0; 3]]).unwrap();
    raw.send(FrameKind::Pull, 0, &[], &[]).unwrap();
    assert_eq!(raw.receive().unwrap().kind, FrameKind::View);
}

/// Handshake of a worker of an older release.
fn older_hello(number: u32) -> Hello {
    Hello {
        says_held: false,
        ..hello(number)
    }
}

/// A worker of an older release could not parse the request for residuals. It is accepted where
/// residuals are not requested.
#[test]
fn worker_without_residual_support_is_refused_if_needed() {
    let said = serde_json::to_string(&older_hello(1)).unwrap();
    assert!(!said.contains("says_held"), "an older shard refuses {said}");
    for (consistency, is_asked) in [(FAR, true), (Consistency::default(), false)] {
        let job = LoopbackJob::start_encoded_with(2, 1, codecs()[0], consistency, plain());
        match Shards::join(&job.addresses, size(), &older_hello(1)) {
            Err((_, error)) => assert!(
                is_asked && error.to_string().contains("older release"),
                "{error}"
            ),
            Ok(_) => assert!(!is_asked),
        }
    }
}
