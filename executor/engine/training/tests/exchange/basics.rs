//! Shards and workers over loopback in one process: which worker waits for which, and the resulting
//! parameters.

use crate::loopback::{
    BATCH, LoopbackJob, adam, forever, fresh, gradients, hello, reference, shard, size, stats,
    train, worker,
};
use muster_comm::wire::WireError;
use muster_comm::wire::metadata::Hello;
use muster_comm::wire::view::Departed;
use muster_model::id::JobId;
use muster_model::spec::{Consistency, Rate};
use muster_training::checkpoint::Contents;
use muster_training::shard::{Recipe, RequestRefusal, ShardEnd, ShardExchange};
use muster_training::worker::{Reply, Shards, first_view};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use uuid::Uuid;

#[test]
fn bsp_has_the_bits_of_a_plain_loop_for_every_layout() {
    for (workers, ps_shards) in [(1, 1), (3, 1), (2, 3), (4, 5)] {
        let job = LoopbackJob::start(workers, ps_shards, Consistency::default());
        let (mut joined, parameters, counted) = train(job.joined(0), 0, 6);
        let (expected, state) = reference(workers, 0..6);
        assert_eq!(
            parameters, expected,
            "{workers} workers, {ps_shards} shards"
        );
        assert_eq!(
            counted.examples,
            u64::from(workers) * 2,
            "every example once, however many shards"
        );
        assert_eq!(
            counted.loss_sum,
            (0..workers).map(|rank| f64::from(rank) + 0.5).sum::<f64>()
        );

        let snapshot = joined[0].snapshot(Contents::default()).unwrap();
        assert_eq!(snapshot.version(), Some(6));
        assert_eq!(snapshot.updates, 6);
        assert_eq!(snapshot.contents.parameters, expected);
        assert_eq!(snapshot.contents.state.concat(), state);
        joined.remove(0).done();
        joined.into_iter().for_each(Shards::goodbye);
        assert!(job.ends().iter().all(|&end| end == ShardEnd::Finished));
    }
}

/// A snapshot fills shards of another layout, and training continues as if it had not been
/// interrupted.
#[test]
fn a_snapshot_continues_on_another_number_of_shards() {
    let job = LoopbackJob::start(2, 1, Consistency::default());
    let (mut joined, ..) = train(job.joined(0), 0, 3);
    let snapshot = joined[0].snapshot(Contents::default()).unwrap();
    joined.into_iter().for_each(Shards::goodbye);
    assert_eq!(job.ends(), [ShardEnd::Stopped]);

    let job = LoopbackJob::start(2, 4, Consistency::default());
    let joined = job.filled(3, snapshot.updates, &snapshot.contents);
    let (_joined, parameters, _) = train(joined, 3, 3);
    assert_eq!(parameters, reference(2, 0..6).0);
}

/// A worker connects again while its old connection asks, and then leaves: the shard knows that the
/// worker is gone.
#[test]
fn replaced_connection_leaves_no_state() {
    let recipe = Recipe::weights(adam(), size(), 1);
    let exchange = ShardExchange::new(shard(0), recipe, Consistency::default(), BATCH);
    let old = exchange.join(worker(1), false).unwrap();
    let new = exchange.join(worker(1), false).unwrap();
    exchange.depart(new, true);
    let pulled = exchange.pull(old, 0);
    assert!(matches!(pulled, Err(RequestRefusal::Replaced(task)) if task == worker(1)));
    exchange.depart(old, false);
    assert_eq!(exchange.membership(Duration::ZERO).joined, 0);
    let chief = exchange.join(worker(0), true).unwrap();
    assert_eq!(exchange.guests(chief), Ok(Vec::new()));
    assert_eq!(exchange.membership(Duration::ZERO).joined, 1);
}

#[test]
fn ssp_limits_the_lead_of_workers() {
    const STALENESS: u64 = 2;
    const STEPS: u64 = 60;
    let workers = 3;
    let job = LoopbackJob::start(
        workers,
        2,
        Consistency::Ssp {
            staleness: STALENESS as u32,
            eager: false,
            rate: Rate::Constant,
        },
    );
    let begun: Vec<AtomicU64> = (0..workers).map(|_| AtomicU64::new(0)).collect();
    let furthest = AtomicU64::new(0);
    // No worker leaves before all are done, because a departure interrupts the others.
    let done = Barrier::new(workers as usize);
    thread::scope(|scope| {
        for (rank, mut shards) in job.joined(0).into_iter().enumerate() {
            let (begun, furthest, done) = (&begun, &furthest, &done);
            scope.spawn(move || {
                let mut parameters = vec![0.0; size()];
                for step in 0..STEPS {
                    // Worker 0 is slow in bursts; the others run ahead of it.
                    if rank == 0 && step % 7 < 3 {
                        thread::sleep(Duration::from_millis(4));
                    }
                    begun[rank].store(step + 1, Ordering::SeqCst);
                    let gradients = gradients(rank as u32, step);
                    let reply =
                        shards.push_pull(step, stats(0), &gradients, &mut parameters, &forever);
                    let Reply::Parameters { clock, .. } = reply.unwrap() else {
                        panic!("not answered");
                    };
                    assert_eq!(clock, step + 1);
                    // The number of pushes that others have begun is at least the number that the
                    // shard has received.
                    let slowest = begun
                        .iter()
                        .map(|count| count.load(Ordering::SeqCst))
                        .min()
                        .unwrap();
                    assert!(
                        clock <= slowest + STALENESS,
                        "at {clock} while the slowest is at {slowest}"
                    );
                    furthest.fetch_max(clock.saturating_sub(slowest), Ordering::SeqCst);
                }
                done.wait();
            });
        }
    });
    assert!(furthest.load(Ordering::SeqCst) > 0, "the race was no race");
}

#[test]
fn asp_does_not_wait() {
    let job = LoopbackJob::start(
        2,
        1,
        Consistency::Asp {
            rate: Rate::Constant,
        },
    );
    let mut joined = job.joined(0);
    let mut parameters = vec![0.0; size()];
    for step in 0..5 {
        let reply = joined[1]
            .push_pull(
                step,
                stats(1),
                &gradients(1, step),
                &mut parameters,
                &forever,
            )
            .unwrap();
        assert!(matches!(reply, Reply::Parameters { clock, .. } if clock == step + 1));
    }
    let mut expected = fresh().parameters;
    let mut state = vec![0.0; size() * 2];
    for step in 0..5 {
        adam().update(
            step,
            &mut expected,
            &gradients(1, step),
            &mut state,
            1.0 / BATCH as f32,
        );
    }
    assert_eq!(parameters, expected);
    let snapshot = joined[0].snapshot(Contents::default()).unwrap();
    assert_eq!(
        (snapshot.version(), snapshot.updates),
        (Some(0), 5),
        "the step is the chief's clock"
    );
}

#[test]
fn coordinator_learns_of_orderly_leave_and_its_own_interrupts() {
    let job = LoopbackJob::start(3, 2, Consistency::default());
    let (mut joined, ..) = train(job.joined(10), 10, 2);
    joined.pop().unwrap().goodbye();
    let mut follower = joined.pop().unwrap();
    let mut chief = joined.pop().unwrap();
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            let mut parameters = vec![0.0; size()];
            let reply = follower
                .push_pull(12, stats(1), &gradients(1, 12), &mut parameters, &forever)
                .unwrap();
            follower.goodbye();
            reply
        });
        let mut parameters = vec![0.0; size()];
        let own = chief
            .push_pull(12, stats(0), &gradients(0, 12), &mut parameters, &forever)
            .unwrap();
        assert_eq!(own, Reply::Gone);
        let departed = Departed {
            task_id: worker(2),
            in_order: true,
            never_came: false,
        };
        assert_eq!(chief.departed(), [departed]);
        let snapshot = chief.snapshot(Contents::default()).unwrap();
        assert_eq!(
            snapshot.version(),
            Some(12),
            "the two pushes were not applied anywhere"
        );
        chief.goodbye();
        let expected = Reply::Interrupted {
            version: 12,
            lost: false,
        };
        assert_eq!(other.join().unwrap(), expected);
    });
    assert_eq!(job.ends(), [ShardEnd::Stopped, ShardEnd::Stopped]);
}

#[test]
fn a_worker_lost_after_its_push_still_completes_the_step() {
    let job = LoopbackJob::start(2, 1, Consistency::default());
    let mut joined = job.joined(0);
    let mut lost = joined.pop().unwrap();
    let mut parameters = vec![0.0; size()];
    // The worker pushes, does not wait for the answer, and is lost.
    let reply = lost
        .push_pull(0, stats(1), &gradients(1, 0), &mut parameters, &|| false)
        .unwrap();
    assert_eq!(reply, Reply::GaveUp);
    drop(lost);
    let reply = joined[0]
        .push_pull(0, stats(0), &gradients(0, 0), &mut parameters, &forever)
        .unwrap();
    assert!(
        matches!(reply, Reply::Parameters { clock: 1, .. }),
        "{reply:?}"
    );
    assert_eq!(parameters, reference(2, 0..1).0);
    let reply = joined[0]
        .push_pull(1, stats(0), &gradients(0, 1), &mut parameters, &forever)
        .unwrap();
    assert_eq!(reply, Reply::Gone);
    assert!(!joined[0].departed()[0].in_order);
    drop(joined);
    assert_eq!(job.ends(), [ShardEnd::PeerLost]);
}

#[test]
fn a_stale_or_repeated_push_is_refused_and_changes_nothing() {
    for (init, pushed) in [(5, 4), (5, 6)] {
        let job = LoopbackJob::start(1, 1, Consistency::default());
        let mut joined = job.joined(init);
        let mut parameters = vec![0.0; size()];
        let refused = joined[0].push_pull(
            pushed,
            stats(0),
            &gradients(0, 0),
            &mut parameters,
            &forever,
        );
        assert!(
            matches!(&refused, Err((0, WireError::Refused(why))) if why.contains("its next step is 5")),
            "{refused:?}"
        );
    }
}

#[test]
fn only_the_chief_fills_and_only_once() {
    let job = LoopbackJob::start(2, 1, Consistency::default());
    let mut joined = job.joined(0);
    let view = first_view(1, vec![worker(0)], &job.addresses, &job.blocks);
    let twice = joined[0].begin(view.clone(), 9, 9, &fresh());
    assert!(
        matches!(&twice, Err((0, WireError::Refused(why))) if why.contains("not newer")),
        "{twice:?}"
    );

    let job = LoopbackJob::start(2, 1, Consistency::default());
    let _chief = job.join(0);
    let mut other = job.join(1);
    let usurped = other.begin(view, 0, 0, &fresh());
    assert!(
        matches!(&usurped, Err((0, WireError::Refused(why))) if why.contains("chief")),
        "{usurped:?}"
    );
}

#[test]
fn peers_of_another_job_or_without_its_secret_are_refused() {
    let job = LoopbackJob::start(2, 1, Consistency::default());
    let right = hello(0);
    let wrong = [
        (
            Hello {
                secret: "x".repeat(64),
                ..right.clone()
            },
            "secret",
        ),
        (
            Hello {
                job_id: JobId(Uuid::from_u128(1)),
                ..right.clone()
            },
            "another job",
        ),
    ];
    for (hello, named) in wrong {
        let refused = Shards::join(&job.addresses, size(), &hello).unwrap_err().1;
        assert!(
            matches!(&refused, WireError::Refused(why) if why.contains(named)),
            "{refused:?}"
        );
    }
    let _joined = job.joined(0);
    let second = Shards::join(&job.addresses, size(), &right).unwrap_err().1;
    assert!(
        matches!(&second, WireError::Refused(why) if why.contains("joins once")),
        "{second:?}"
    );
    let other_chief = Hello {
        task_id: worker(7),
        ..right
    };
    let second = Shards::join(&job.addresses, size(), &other_chief)
        .unwrap_err()
        .1;
    assert!(
        matches!(&second, WireError::Refused(why) if why.contains("chief")),
        "{second:?}"
    );
}

#[test]
fn a_stopped_shard_serves_until_its_workers_have_left() {
    let job = LoopbackJob::start(2, 1, Consistency::default());
    let (joined, ..) = train(job.joined(0), 0, 1);
    job.stop.set();
    thread::sleep(Duration::from_millis(250));
    let (mut joined, parameters, _) = train(joined, 1, 1);
    assert_eq!(parameters, reference(2, 0..2).0);
    assert_eq!(
        joined[0].snapshot(Contents::default()).unwrap().version(),
        Some(2)
    );
    joined.into_iter().for_each(Shards::goodbye);
    assert_eq!(job.ends(), [ShardEnd::Stopped]);
}

#[test]
fn waiting_workers_learn_that_training_has_finished() {
    let job = LoopbackJob::start(2, 2, Consistency::default());
    let mut joined = job.joined(0);
    let mut waiting = joined.pop().unwrap();
    let chief = joined.pop().unwrap();
    thread::scope(|scope| {
        let told = scope.spawn(move || {
            let mut parameters = vec![0.0; size()];
            waiting
                .push_pull(0, stats(1), &gradients(1, 0), &mut parameters, &forever)
                .unwrap()
        });
        thread::sleep(Duration::from_millis(50));
        chief.done();
        assert_eq!(told.join().unwrap(), Reply::Finished);
    });
    assert_eq!(job.ends(), [ShardEnd::Finished, ShardEnd::Finished]);
}
