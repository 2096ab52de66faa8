//! Local aggregation: gradients that one worker pushes for several, over loopback in one process.
//! Each worker's gradients are in a step once.

use crate::loopback::{
    BATCH, LoopbackJob, adam, forever, fresh, gradients, reference, size, stats, worker,
};
use muster_comm::wire::metadata::{StepStats, SumHead};
use muster_model::spec::Consistency;
use muster_training::checkpoint::Contents;
use muster_training::worker::{Reply, Shards};
use proptest::prelude::*;
use std::ops::RangeInclusive;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

/// Sum that the first of these ranks pushes for all of them.
fn summed(ranks: RangeInclusive<u32>, step: u64) -> (SumHead, Vec<f32>) {
    let (first, last) = ranks.into_inner();
    let (mut sum, mut counted) = (gradients(first, step), stats(first));
    for rank in first + 1..=last {
        let theirs = gradients(rank, step);
        sum.iter_mut().zip(theirs).for_each(|(a, b)| *a += b);
        counted.add(stats(rank));
    }
    let mut head = SumHead {
        others: (first + 1..=last).map(worker).collect(),
        squares: 3.0,
        inverses: 0.5,
        ..SumHead::default()
    };
    head.push.stats = counted;
    (head, sum)
}

fn speak(shards: &mut Shards, last: u32, step: u64, parameters: &mut [f32]) -> Reply {
    let (head, sum) = summed(0..=last, step);
    let own = gradients(0, step);
    shards
        .push_together(step, (head, &sum), (stats(0), &own), parameters, &forever)
        .unwrap()
}

fn ask(shards: &mut Shards, rank: u32, step: u64, parameters: &mut [f32]) -> Reply {
    let own = gradients(rank, step);
    shards
        .await_or_push(step, stats(rank), &own, parameters, &forever)
        .unwrap()
}

/// Parameters after the first step of the coordinator's gradients and others.
fn updated(others: &[f32]) -> Vec<f32> {
    let mut all = gradients(0, 0);
    all.iter_mut()
        .zip(others)
        .for_each(|(all, one)| *all += one);
    let (mut expected, mut state) = (fresh().parameters, vec![0.0; size() * 2]);
    adam().update(0, &mut expected, &all, &mut state, 1.0 / BATCH as f32);
    expected
}

fn counted(reply: Reply) -> (u64, StepStats) {
    match reply {
        Reply::Parameters { clock, stats } => (clock, stats),
        other => panic!("{other:?}"),
    }
}

/// The other workers do not communicate with a shard while there is no news for them besides
/// parameters.
#[test]
fn sum_counts_for_all_of_its_workers() {
    let job = LoopbackJob::start(3, 2, Consistency::default());
    let mut joined = job.joined(0);
    let (first, rest) = joined.split_at_mut(1);
    let mut parameters = vec![0.0; size()];
    for step in 0..9 {
        let replied = thread::scope(|scope| {
            let last = &mut rest[1];
            let alone = scope.spawn(move || {
                let mut parameters = vec![0.0; size()];
                let own = gradients(2, step);
                last.push_pull(step, stats(2), &own, &mut parameters, &forever)
                    .unwrap();
                parameters
            });
            let replied = speak(&mut first[0], 1, step, &mut parameters);
            assert!(alone.join().unwrap() == parameters);
            replied
        });
        let (clock, stats) = counted(replied);
        assert_eq!(clock, step + 1);
        assert!(first[0].has_no_news());
        assert_eq!(stats.examples, 6, "each example once");
        assert_eq!(stats.loss_sum, 0.5 + 1.5 + 2.5);
        if step % 8 == 0 {
            let noise = first[0].take_noise().expect("it was measured");
            assert_eq!(noise.pushes, 3);
            assert!(noise.squares > 3.0 && noise.inverses > 0.5);
        }
    }
    assert_eq!(parameters, reference(3, 0..9).0);
    // A worker that asks late is still answered.
    let mut late = vec![0.0; size()];
    let (clock, stats) = counted(ask(&mut rest[0], 1, 8, &mut late));
    assert_eq!((clock, stats.examples), (9, 0));
    assert!(late == parameters);
    let snapshot = joined[0].snapshot(Contents::default()).unwrap();
    assert_eq!(snapshot.version(), Some(9));
}

/// The worker pushes alone, although the step with the sum and its view have ended: it is answered
/// as if it had been in time.
#[test]
fn worker_that_pushes_after_the_sum_learns_of_the_next_view() {
    let job = LoopbackJob::start(2, 2, Consistency::default());
    let mut joined = job.joined(0);
    let (first, rest) = joined.split_at_mut(1);
    let (chief, follower) = (&mut first[0], &mut rest[0]);
    let workers = vec![worker(0), worker(1)];
    chief
        .change(2, workers, &job.addresses, 1, Vec::new())
        .unwrap();
    let mut parameters = vec![0.0; size()];
    let (clock, _) = counted(speak(chief, 1, 0, &mut parameters));
    assert_eq!(clock, 1);
    assert!(!chief.has_no_news(), "there is a view to hear of");
    let (mut late, own) = (vec![0.0; size()], gradients(1, 0));
    let reply = follower
        .push_pull(0, stats(1), &own, &mut late, &forever)
        .unwrap();
    assert_eq!(counted(reply).0, 1);
    assert!(late == parameters);
    assert_eq!(parameters, reference(2, 0..1).0);
    for shards in [chief, follower] {
        assert_eq!(shards.follow().unwrap(), Some(true));
        assert_eq!(shards.view().unwrap().number, 2);
    }
}

/// One of the workers has pushed alone: no shard counts its gradients twice.
#[test]
fn sum_with_gradients_already_present_is_refused() {
    let job = LoopbackJob::start(2, 2, Consistency::default());
    let mut joined = job.joined(0);
    let (first, rest) = joined.split_at_mut(1);
    let mut parameters = vec![0.0; size()];
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut parameters = vec![0.0; size()];
            counted(ask(&mut rest[0], 1, 0, &mut parameters));
            parameters
        });
        // Long enough for it to be first.
        thread::sleep(Duration::from_millis(200));
        let (_, stats) = counted(speak(&mut first[0], 1, 0, &mut parameters));
        assert_eq!(stats.examples, 4);
        assert!(other.join().unwrap() == parameters);
    });
    assert_eq!(parameters, reference(2, 0..1).0);
}

/// The worker that pushes for others is lost after one shard has its sum: the others continue, and
/// so does the step.
#[test]
fn sum_of_a_lost_worker_still_counts_for_the_others() {
    let waits = [200, 1_000, 5_000].map(Duration::from_millis);
    // A shard that reads the sum slowly may detect the lost worker first.
    assert!(waits.into_iter().any(the_sum_outlives_its_speaker));
}

/// Returns whether the sum was complete when its worker was lost. If not, the other workers of the
/// sum have pushed alone.
fn the_sum_outlives_its_speaker(after: Duration) -> bool {
    let job = LoopbackJob::start(4, 1, Consistency::default());
    let mut joined = job.joined(0);
    let alone = joined.pop().unwrap();
    let mut follower = joined.pop().unwrap();
    let mut speaker = joined.pop().unwrap();
    let mut chief = joined.pop().unwrap();
    let (head, sum) = summed(1..=2, 0);
    let mut parameters = vec![0.0; size()];
    let own = gradients(1, 0);
    let reply = speaker
        .push_together(0, (head, &sum), (stats(1), &own), &mut parameters, &|| {
            false
        })
        .unwrap();
    assert_eq!(reply, Reply::GaveUp);
    thread::sleep(after);
    drop(speaker);
    // The last worker, which has not pushed, leaves too: the coordinator must decide before the
    // step is complete.
    alone.goodbye();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut parameters = vec![0.0; size()];
            let reply = ask(&mut follower, 2, 0, &mut parameters);
            (counted(reply).0, parameters)
        });
        let own = gradients(0, 0);
        let reply = chief
            .push_pull(0, stats(0), &own, &mut parameters, &forever)
            .unwrap();
        assert_eq!(reply, Reply::Gone);
        let workers = vec![worker(0), worker(2)];
        let gone = vec![worker(1), worker(3)];
        chief.change(1, workers, &job.addresses, 1, gone).unwrap();
        let reply = chief.resume(&own, &mut parameters, &forever).unwrap();
        assert_eq!(counted(reply).0, 1);
        let (clock, theirs) = other.join().unwrap();
        assert_eq!(clock, 1);
        assert!(theirs == parameters);
    });
    // Including the gradients of the lost worker, as if it had pushed alone.
    let is_in = parameters == updated(&sum);
    assert!(is_in || parameters == updated(&gradients(2, 0)));
    is_in
}

/// The coordinator has just learned of a lost worker when another worker pushes that worker's
/// gradients with its own. The step is then complete, but is not acknowledged before the
/// coordinator has announced the next view.
#[test]
fn sum_during_the_decision_is_not_acknowledged_early() {
    let waits = [200, 1_000, 5_000].map(Duration::from_millis);
    // A worker that asks before a slow shard has the sum pushes alone, and the sum is refused.
    assert!(waits.into_iter().any(nobody_is_past_the_next_view));
}

/// Returns whether the sum arrived before one of its workers asked.
fn nobody_is_past_the_next_view(wait: Duration) -> bool {
    let job = LoopbackJob::start(4, 1, Consistency::default());
    let mut joined = job.joined(0);
    let mut asker = joined.pop().unwrap();
    drop(joined.pop().unwrap());
    let mut speaker = joined.pop().unwrap();
    let mut chief = joined.pop().unwrap();
    let (head, sum) = summed(1..=3, 0);
    let mut parameters = vec![0.0; size()];
    let own = gradients(0, 0);
    let reply = chief
        .push_pull(0, stats(0), &own, &mut parameters, &forever)
        .unwrap();
    assert_eq!(reply, Reply::Gone);
    thread::scope(|scope| {
        let speaking = scope.spawn(|| {
            let (mut parameters, own) = (vec![0.0; size()], gradients(1, 0));
            let own = (stats(1), &*own);
            let reply = speaker.push_together(0, (head, &sum), own, &mut parameters, &forever);
            (counted(reply.unwrap()).0, parameters)
        });
        // Long enough for the sum to be first, and for both answers if they were sent.
        thread::sleep(wait);
        let asking = scope.spawn(|| {
            let mut parameters = vec![0.0; size()];
            let reply = ask(&mut asker, 3, 0, &mut parameters);
            (counted(reply).0, parameters)
        });
        thread::sleep(wait);
        let workers = vec![worker(0), worker(1), worker(3)];
        let gone = vec![worker(2)];
        chief.change(1, workers, &job.addresses, 1, gone).unwrap();
        let reply = chief.resume(&own, &mut parameters, &forever).unwrap();
        assert_eq!(counted(reply).0, 1);
        for other in [speaking, asking] {
            let (clock, theirs) = other.join().unwrap();
            assert_eq!(clock, 1);
            assert!(theirs == parameters);
        }
    });
    for shards in [&mut chief, &mut speaker, &mut asker] {
        assert_eq!(shards.follow().unwrap(), Some(true));
        assert_eq!(shards.view().unwrap().number, 2);
    }
    parameters == updated(&sum)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// For any order of asking, pushing and pushing for others at the shards, a step has the bits
    /// of a plain loop and counts each example once.
    #[test]
    fn each_gradient_counts_once_in_any_order(
        delays in prop::collection::vec((0u64..3, 0u64..3, 0u64..3, any::<bool>()), 6),
        ps_shards in 1usize..4,
    ) {
        let job = LoopbackJob::start(3, ps_shards, Consistency::default());
        let joined = job.joined(0);
        let steps = delays.len() as u64;
        // No worker pushes for another one that has not begun the step.
        let all_have_begun = Barrier::new(3);
        let trained: Vec<Vec<f32>> = thread::scope(|scope| {
            let running: Vec<_> = joined
                .into_iter()
                .enumerate()
                .map(|(rank, mut shards)| {
                    let (delays, all_have_begun) = (&delays, &all_have_begun);
                    scope.spawn(move || {
                        let mut parameters = vec![0.0; size()];
                        for step in 0..steps {
                            let (first, second, third, speaks) = delays[step as usize];
                            let delay = [first, second, third][rank];
                            all_have_begun.wait();
                            thread::sleep(Duration::from_micros(delay * 300));
                            let rank = rank as u32;
                            let reply = match rank {
                                0 if speaks => speak(&mut shards, 2, step, &mut parameters),
                                _ => ask(&mut shards, rank, step, &mut parameters),
                            };
                            let (clock, stats) = counted(reply);
                            assert_eq!(clock, step + 1);
                            if rank == 0 {
                                assert_eq!(stats.examples, 6);
                            }
                        }
                        (shards, parameters)
                    })
                })
                .collect();
            // No worker leaves before all have the last step: a worker that asks after the
            // coordinator has left would be interrupted.
            let done: Vec<_> = running
                .into_iter()
                .map(|one| one.join().unwrap())
                .collect();
            done.into_iter().map(|(_, parameters)| parameters).collect()
        });
        let expected = reference(3, 0..steps).0;
        prop_assert!(trained.iter().all(|one| *one == expected));
    }
}
