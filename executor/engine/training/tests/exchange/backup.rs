//! Backup workers: a step does not wait for the slowest worker, and late gradients do not count.

use crate::loopback::{LoopbackJob, adam, forever, fresh, gradients, shard, size, stats, worker};
use muster_comm::wire::metadata::StepStats;
use muster_model::spec::Consistency;
use muster_training::checkpoint::Contents;
use muster_training::worker::{Reply, Shards};
use std::thread;

/// One step of both workers at once: the coordinator's answer, then the other's.
fn two(chief: &mut Shards, second: &mut Shards, step: u64) -> [(u64, StepStats, Vec<f32>); 2] {
    thread::scope(|scope| {
        let other = scope.spawn(|| push(second, 1, step));
        [push(chief, 0, step), other.join().unwrap()]
    })
}

fn push(shards: &mut Shards, rank: u32, step: u64) -> (u64, StepStats, Vec<f32>) {
    let mut parameters = vec![0.0; size()];
    let reply = shards.push_pull(
        step,
        stats(rank),
        &gradients(rank, step),
        &mut parameters,
        &forever,
    );
    match reply.unwrap() {
        Reply::Parameters { clock, stats } => (clock, stats, parameters),
        other => panic!("{other:?}"),
    }
}

/// Parameters after steps in which the gradients of the given ranks count.
fn reference(who: &[&[u32]]) -> Vec<f32> {
    let mut parameters = fresh().parameters;
    let mut state = vec![0.0; size() * 2];
    for (step, ranks) in who.iter().enumerate() {
        let step = step as u64;
        let mut sum = vec![0.0; size()];
        for &rank in *ranks {
            for (sum, value) in sum.iter_mut().zip(gradients(rank, step)) {
                *sum += value;
            }
        }
        let examples = 2 * ranks.len() as u64;
        adam().update(
            step,
            &mut parameters,
            &sum,
            &mut state,
            1.0 / examples as f32,
        );
    }
    parameters
}

/// The slowest of three workers misses two steps, receives the newest parameters, and counts again.
#[test]
fn step_is_the_mean_of_the_workers_in_time() {
    let job = LoopbackJob::start(3, 2, Consistency::Bsp { backup: 1 });
    let mut joined = job.joined(0);
    let mut slow = joined.pop().unwrap();
    let mut second = joined.pop().unwrap();
    let mut chief = joined.pop().unwrap();
    for step in 0..2 {
        let [own, other] = two(&mut chief, &mut second, step);
        assert_eq!(own.2, other.2);
        let (clock, stats, _) = own;
        assert_eq!((clock, stats.examples, stats.dropped), (step + 1, 4, 0));
    }
    let (clock, _, late) = push(&mut slow, 2, 0);
    assert_eq!(clock, 2, "straight on with the step that the others are at");
    assert_eq!(late, reference(&[&[0, 1], &[0, 1]]));

    // The slow worker pushes before the coordinator, which is always waited for.
    let (second_too, slow_too, own) = thread::scope(|scope| {
        let second_too = scope.spawn(|| push(&mut second, 1, 2));
        let slow_too = scope.spawn(|| push(&mut slow, 2, 2));
        thread::sleep(std::time::Duration::from_millis(200));
        let own = push(&mut chief, 0, 2);
        (second_too.join().unwrap(), slow_too.join().unwrap(), own)
    });
    let expected = reference(&[&[0, 1], &[0, 1], &[0, 1, 2]]);
    assert_eq!(own.2, expected, "whatever is there counts");
    assert_eq!((second_too.2, slow_too.2), (expected.clone(), expected));
    assert_eq!((own.1.examples, own.1.dropped), (6, 1), "one came too late");
    let snapshot = chief.snapshot(Contents::default()).unwrap();
    assert_eq!(snapshot.version(), Some(3));
}

/// A worker that is lost while steps are completed without it does not remain the backup worker.
#[test]
fn coordinator_learns_of_a_lost_backup_worker() {
    let job = LoopbackJob::start(3, 1, Consistency::Bsp { backup: 1 });
    let mut joined = job.joined(0);
    drop(joined.pop().unwrap());
    let mut second = joined.pop().unwrap();
    let mut chief = joined.pop().unwrap();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (mut step, mut parameters) = (0, vec![0.0; size()]);
            while step < 8 {
                let gradients = gradients(1, step);
                let reply = second.push_pull(step, stats(1), &gradients, &mut parameters, &forever);
                second.follow().unwrap();
                step = match reply.unwrap() {
                    Reply::Parameters { clock, .. } => clock,
                    // The first step of the new view has ended without this worker.
                    Reply::Moved => crate::loopback::enter(&mut second).0,
                    other => panic!("{other:?}"),
                };
            }
        });
        let mut parameters = vec![0.0; size()];
        let (mut step, mut told) = (0, 0);
        while step < 8 {
            let mut reply = chief
                .push_pull(
                    step,
                    stats(0),
                    &gradients(0, step),
                    &mut parameters,
                    &forever,
                )
                .unwrap();
            if reply == Reply::Gone {
                told += 1;
                assert_eq!(chief.departed()[0].task_id, worker(2));
                let addresses = [(shard(0), job.addresses[0].1.clone())];
                let workers = vec![worker(0), worker(1)];
                let gone = vec![worker(2)];
                chief
                    .change(2, workers, &addresses, step + 1, gone)
                    .unwrap();
                reply = chief
                    .resume(&gradients(0, step), &mut parameters, &forever)
                    .unwrap();
            }
            let Reply::Parameters { clock, .. } = reply else {
                panic!("{reply:?}");
            };
            chief.follow().unwrap();
            step = clock;
        }
        assert_eq!(told, 1, "once, and not again after the change");
        other.join().unwrap();
    });
}

/// A worker that missed the end of a view learns of the next one, whichever step it pushed.
#[test]
fn worker_that_missed_a_view_enters_the_next() {
    let mut job = LoopbackJob::start(3, 1, Consistency::Bsp { backup: 1 });
    let mut joined = job.joined(0);
    let mut slow = joined.pop().unwrap();
    let mut second = joined.pop().unwrap();
    let mut chief = joined.pop().unwrap();
    let new = job.start_shard(1);
    let shards = [(shard(0), job.addresses[0].1.clone()), new];
    chief.approach(&shards).unwrap();
    let workers = (0..3).map(worker).collect();
    chief.change(2, workers, &shards, 1, Vec::new()).unwrap();
    two(&mut chief, &mut second, 0);
    assert_eq!(second.follow().unwrap(), Some(true));
    assert_eq!(chief.follow().unwrap(), Some(true));
    two(&mut chief, &mut second, 1);
    let mut parameters = vec![0.0; size()];
    let reply = slow.push_pull(0, stats(2), &gradients(2, 0), &mut parameters, &forever);
    assert_eq!(reply.unwrap(), Reply::Moved);
    assert_eq!(slow.follow().unwrap(), Some(true));
    let (step, parameters) = crate::loopback::enter(&mut slow);
    assert_eq!(step, 2);
    assert_eq!(parameters, reference(&[&[0, 1], &[0, 1]]));
}
