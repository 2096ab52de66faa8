//! Shards with replicas in one process, whose connections a relay breaks at critical moments: the
//! state of the promoted replica (`promoted`).

use crate::loopback::{
    BATCH, LoopbackJob, adam, enter, forever, fresh, gradients, hello, reference, shard, size,
    stats, worker,
};
use crate::relay::TcpRelay;
use muster_model::id::TaskId;
use muster_model::spec::{Consistency, Rate};
use muster_training::worker::{Reply, ShardAddress, Shards, first_view};
use std::thread;

/// Two workers, and shards that replicate each other, all behind relays.
struct Ring {
    job: LoopbackJob,
    /// Relays to the first shard, one per worker.
    first: [TcpRelay; 2],
    others: Vec<TcpRelay>,
}

impl Ring {
    fn start(shards: u32, consistency: Consistency) -> Self {
        let mut job = LoopbackJob::start(2, 0, consistency);
        job.replicated = true;
        let mut relays = (0..shards).map(|index| job.start_shard(index).1);
        let address = relays.next().unwrap();
        let first = [TcpRelay::to(&address), TcpRelay::to(&address)];
        let others = relays.map(|address| TcpRelay::to(&address)).collect();
        Self { job, first, others }
    }

    fn addresses(&self, rank: usize) -> Vec<ShardAddress> {
        let relays = std::iter::once(&self.first[rank]).chain(&self.others);
        let numbered = relays.zip(0..);
        numbered
            .map(|(relay, index)| (shard(index), relay.address()))
            .collect()
    }

    /// Both workers at step 0.
    fn joined(&self) -> [Shards; 2] {
        let [mut chief, mut other] = [0, 1].map(|rank| {
            Shards::join(&self.addresses(rank), size(), &hello(rank as u32))
                .unwrap()
                .with_copies(true)
        });
        let view = first_view(1, all(), &self.addresses(0), &self.job.blocks);
        chief.begin(view, 0, 0, &fresh()).unwrap();
        assert_eq!(enter(&mut other).0, 0);
        [chief, other]
    }

    /// Both workers have done step 0, a view that begins with step 2 is announced, and answers of
    /// the first shard no longer arrive.
    fn before_a_change(&self) -> [Shards; 2] {
        let mut workers = self.joined();
        both(&mut workers, 0);
        let addresses = self.addresses(0);
        workers[0]
            .change(2, all(), &addresses, 2, Vec::new())
            .unwrap();
        for relay in &self.first {
            relay.mute();
        }
        workers
    }

    /// Waits until the first shard has sent both answers, so that its replica has the step.
    fn wait_for_answers(&self) {
        for relay in &self.first {
            relay.wait_for_an_answer();
        }
    }

    /// Closes the connections of both workers to the first shard.
    fn lose_first(&self) {
        for relay in &self.first {
            relay.cut();
        }
    }
}

fn all() -> Vec<TaskId> {
    vec![worker(0), worker(1)]
}

const BSP: Consistency = Consistency::Bsp { backup: 0 };

/// One step of a worker. Returns its parameters afterwards.
fn step(shards: &mut Shards, rank: u32, step: u64) -> Vec<f32> {
    let mut parameters = vec![0.0; size()];
    let gradients = gradients(rank, step);
    let reply = shards.push_pull(step, stats(rank), &gradients, &mut parameters, &forever);
    let Reply::Parameters { clock, .. } = reply.unwrap() else {
        panic!("worker {rank} has no parameters after step {step}");
    };
    assert_eq!(clock, step + 1);
    shards.follow().unwrap();
    parameters
}

/// One step of both workers at the same time.
fn both(workers: &mut [Shards; 2], at: u64) -> [Vec<f32>; 2] {
    let [chief, other] = workers;
    thread::scope(|scope| {
        let other = scope.spawn(|| step(other, 1, at));
        [step(chief, 0, at), other.join().unwrap()]
    })
}

/// The step before a view change is applied and replicated, and the shard is lost before any worker
/// has its answer. The promoted replica is in the next view at once; the repeated pushes belong to
/// the previous one.
#[test]
fn promoted_replica_answers_the_last_step_of_the_old_view() {
    let ring = Ring::start(2, BSP);
    let mut workers = ring.before_a_change();
    let after = thread::scope(|scope| {
        let pushing = scope.spawn(|| both(&mut workers, 1));
        ring.wait_for_answers();
        ring.lose_first();
        pushing.join().unwrap()
    });
    let (expected, _) = reference(2, 0..2);
    assert_eq!(after, [expected.clone(), expected]);
    assert_eq!(workers[0].view().unwrap().number, 2);
    let after = both(&mut workers, 2);
    let (expected, _) = reference(2, 0..3);
    assert_eq!(after, [expected.clone(), expected]);
}

/// As before, but the next view begins while a worker's gradients of the previous view are on the
/// way to the promoted replica.
#[test]
fn push_overtaken_by_a_view_change_is_answered_after_failover() {
    let ring = Ring::start(2, BSP);
    let mut workers = ring.before_a_change();
    let [chief, other] = &mut workers;
    let after = thread::scope(|scope| {
        let leading = scope.spawn(|| step(chief, 0, 1));
        let late = scope.spawn(|| step(other, 1, 1));
        ring.wait_for_answers();
        ring.others[0].slow_down_next();
        ring.first[1].cut();
        ring.others[0].wait_for_a_hold();
        ring.first[0].cut();
        let led = leading.join().unwrap();
        ring.others[0].let_through();
        [led, late.join().unwrap()]
    });
    let (expected, _) = reference(2, 0..2);
    assert_eq!(after, [expected.clone(), expected]);
    let after = both(&mut workers, 2);
    let (expected, _) = reference(2, 0..3);
    assert_eq!(after, [expected.clone(), expected]);
}

/// The coordinator detects the lost shard when it asks for waiting workers: the promoted replica
/// answers.
#[test]
fn shard_lost_while_a_worker_is_awaited_is_replaced() {
    let ring = Ring::start(2, BSP);
    let mut workers = ring.joined();
    both(&mut workers, 0);
    ring.lose_first();
    let addresses = ring.addresses(0);
    let is_waiting = workers[0].are_waiting(&[worker(2)], &addresses);
    assert!(!is_waiting.unwrap());
    let after = both(&mut workers, 1);
    let (expected, _) = reference(2, 0..2);
    assert_eq!(after, [expected.clone(), expected]);
}

/// A worker is lost, and a shard while the coordinator decides about it: the replica knows neither
/// the step nor the lost worker.
#[test]
fn shard_lost_while_the_coordinator_decides_is_replaced() {
    let ring = Ring::start(2, BSP);
    let mut workers = ring.joined();
    both(&mut workers, 0);
    let [mut chief, other] = workers;
    drop(other);
    let (mut parameters, pushed) = (vec![0.0; size()], gradients(0, 1));
    let told = chief.push_pull(1, stats(0), &pushed, &mut parameters, &forever);
    assert_eq!(told.unwrap(), Reply::Gone);
    ring.lose_first();
    let addresses = ring.addresses(0);
    chief
        .change(2, vec![worker(0)], &addresses, 2, vec![worker(1)])
        .unwrap();
    let told = chief.resume(&pushed, &mut parameters, &forever).unwrap();
    assert!(
        matches!(told, Reply::Parameters { clock: 2, .. }),
        "{told:?}"
    );
    assert_eq!(chief.follow().unwrap(), Some(true));
    step(&mut chief, 0, 2);
}

/// Under SSP a view change is announced, and the shard is lost before any worker has pulled under
/// it.
#[test]
fn promoted_replica_begins_an_ssp_view_with_the_others() {
    let consistency = Consistency::Ssp {
        staleness: 2,
        eager: false,
        rate: Rate::Constant,
    };
    let ring = Ring::start(2, consistency);
    let [mut chief, mut other] = ring.joined();
    for at in 0..2 {
        step(&mut chief, 0, at);
    }
    // One step behind.
    step(&mut other, 1, 0);
    let addresses = ring.addresses(0);
    chief.change(2, all(), &addresses, 2, Vec::new()).unwrap();
    assert_eq!(chief.follow().unwrap(), Some(true));
    ring.lose_first();
    thread::scope(|scope| {
        let late = scope.spawn(|| {
            let (mut parameters, pushed) = (vec![0.0; size()], gradients(1, 1));
            let told = other.push_pull(1, stats(1), &pushed, &mut parameters, &forever);
            assert_eq!(told.unwrap(), Reply::Moved);
            assert_eq!(other.follow().unwrap(), Some(true));
            assert_eq!(enter(&mut other).0, 2);
            step(&mut other, 1, 2);
        });
        assert_eq!(enter(&mut chief).0, 2);
        step(&mut chief, 0, 2);
        late.join().unwrap();
    });
    assert_eq!(chief.snapshot(fresh()).unwrap().version(), Some(3));
}

/// A worker that loses a shard before the coordinator does connects to the replica holder once and
/// waits there.
#[test]
fn worker_connects_to_a_promoted_replica_once() {
    let ring = Ring::start(2, BSP);
    let [mut chief, mut other] = ring.joined();
    thread::scope(|scope| {
        let stepping = scope.spawn(|| step(&mut chief, 0, 0));
        step(&mut other, 1, 0);
        stepping.join().unwrap();
    });
    let before = ring.others[0].visits();
    ring.first[1].cut();
    thread::scope(|scope| {
        let early = scope.spawn(|| step(&mut other, 1, 1));
        while ring.others[0].visits() == before {
            thread::yield_now();
        }
        // Long enough for a second connection.
        thread::sleep(std::time::Duration::from_millis(700));
        assert_eq!(ring.others[0].visits(), before + 1);
        ring.first[0].cut();
        let after = [step(&mut chief, 0, 1), early.join().unwrap()];
        let (expected, _) = reference(2, 0..2);
        assert_eq!(after, [expected.clone(), expected]);
    });
}

/// Only the coordinator loses its connection to a shard, and the replica is promoted. Later pushes
/// to the replaced shard would be in no model, so it answers no worker.
#[test]
fn shard_with_a_promoted_replica_answers_no_worker() {
    let consistency = Consistency::Asp {
        rate: Rate::Constant,
    };
    let ring = Ring::start(2, consistency);
    let [mut chief, mut other] = ring.joined();
    step(&mut chief, 0, 0);
    step(&mut other, 1, 0);
    ring.first[0].cut();
    step(&mut chief, 0, 1);
    step(&mut other, 1, 1);
    let (mut expected, mut state) = (fresh().parameters, vec![0.0; size() * 2]);
    for (update, (rank, at)) in [(0, 0), (1, 0), (0, 1), (1, 1)].into_iter().enumerate() {
        let scale = 1.0 / BATCH as f32;
        let pushed = gradients(rank, at);
        adam().update(update as u64, &mut expected, &pushed, &mut state, scale);
    }
    let snapshot = chief.snapshot(fresh()).unwrap();
    assert_eq!(snapshot.updates, 4);
    assert!(snapshot.contents.parameters == expected);
}

/// The next layout keeps a promoted replica: shards that send pieces to it find it at its new
/// address.
#[test]
fn pieces_reach_a_promoted_replica() {
    let ring = Ring::start(3, BSP);
    let mut workers = ring.joined();
    both(&mut workers, 0);
    ring.lose_first();
    both(&mut workers, 1);
    let addresses = ring.addresses(0);
    workers[0]
        .change(2, all(), &addresses[..2], 3, Vec::new())
        .unwrap();
    for at in 2..5 {
        let after = both(&mut workers, at);
        let (expected, _) = reference(2, 0..at + 1);
        assert_eq!(after, [expected.clone(), expected], "after step {at}");
        if at == 3 {
            let moved = workers[0].audit().unwrap().unwrap();
            assert_eq!(moved.before, moved.after);
        }
    }
}

/// Only one worker loses a shard, asks for its replica and leaves; the coordinator never promotes
/// it. The replica holder keeps no state of it and ends when its own pieces are moved away.
#[test]
fn replica_that_is_never_promoted_does_not_keep_its_host() {
    let ring = Ring::start(3, BSP);
    let mut workers = ring.joined();
    both(&mut workers, 0);
    let host = ring.others[0].address();
    let stray = Shards::join(&[(shard(0), host)], size(), &hello(1)).unwrap();
    stray.goodbye();
    let addresses = ring.addresses(0);
    let without = [addresses[0].clone(), addresses[2].clone()];
    workers[0]
        .change(2, all(), &without, 2, Vec::new())
        .unwrap();
    for at in 1..3 {
        let after = both(&mut workers, at);
        let (expected, _) = reference(2, 0..at + 1);
        assert_eq!(after, [expected.clone(), expected], "after step {at}");
    }
    assert!(workers[0].audit().unwrap().is_some());
    let mut looks = 0;
    while !ring.job.shards[1].is_finished() {
        assert!(looks < 1000, "the host does not end");
        looks += 1;
        thread::sleep(std::time::Duration::from_millis(10));
    }
    both(&mut workers, 3);
}
