//! Shards with followers in one process, whose connections a relay breaks at the worst moments: what the heir knows then.

mod loopback;
mod relay;

use loopback::{
    BATCH, Job, adam, enter, forever, fresh, gradients, hello, reference, shard, size, stats,
    worker,
};
use muster_engine::worker::{Address, Reply, Shards, first_view};
use muster_model::id::TaskId;
use muster_model::spec::{Consistency, Rate};
use relay::Relay;
use std::thread;

/// Two workers, and shards that follow each other, all of them behind relays.
struct Ring {
    job: Job,
    /// To the first shard, one for each worker.
    first: [Relay; 2],
    others: Vec<Relay>,
}

impl Ring {
    fn start(shards: u32, consistency: Consistency) -> Self {
        let mut job = Job::start(2, 0, consistency);
        job.replicated = true;
        let mut relays = (0..shards).map(|index| job.start_shard(index).1);
        let address = relays.next().unwrap();
        let first = [Relay::to(&address), Relay::to(&address)];
        let others = relays.map(|address| Relay::to(&address)).collect();
        Self { job, first, others }
    }

    fn addresses(&self, rank: usize) -> Vec<Address> {
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

    /// Both have done step 0, a view is announced that begins with step 2, and no answer of the first shard comes through any more.
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

    /// Both answers of the first shard are on their way, so that its copy has the step.
    fn wait_for_answers(&self) {
        for relay in &self.first {
            relay.wait_for_an_answer();
        }
    }

    /// Both see the first shard's connections closed.
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

/// One step of a worker; its parameters afterwards.
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

/// The same of both at once.
fn both(workers: &mut [Shards; 2], at: u64) -> [Vec<f32>; 2] {
    let [chief, other] = workers;
    thread::scope(|scope| {
        let other = scope.spawn(|| step(other, 1, at));
        [step(chief, 0, at), other.join().unwrap()]
    })
}

/// The step before a change of the view is applied and copied, and the shard is lost before anybody has its answer. The heir is in the
/// next view at once; what the workers push again is of the one before.
#[test]
fn an_heir_answers_the_last_step_of_the_view_before() {
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

/// The same, where a worker's gradients are on their way to the heir, under the view that it is in, and the next one comes meanwhile.
#[test]
fn a_push_that_the_next_view_overtakes_on_the_way_to_an_heir_has_its_answer() {
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

/// The chief asks whether a newcomer waits when it finds that a shard is lost: the heir answers.
#[test]
fn a_shard_that_is_lost_while_somebody_is_awaited_has_an_heir() {
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

/// A worker goes away, and a shard while the chief decides on it: the heir has not heard of the step, nor of who is gone.
#[test]
fn a_shard_that_is_lost_while_the_chief_decides_has_an_heir() {
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

/// Under SSP a change of the view is announced, and the shard lost before anybody has asked for parameters under it.
#[test]
fn an_heir_begins_a_stale_view_where_the_others_do() {
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

/// Whoever loses a shard before the chief does comes to the heir once, and waits there.
#[test]
fn a_worker_asks_an_heir_once() {
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
        // Long enough to ask again, if it did.
        thread::sleep(std::time::Duration::from_millis(700));
        assert_eq!(ring.others[0].visits(), before + 1);
        ring.first[0].cut();
        let after = [step(&mut chief, 0, 1), early.join().unwrap()];
        let (expected, _) = reference(2, 0..2);
        assert_eq!(after, [expected.clone(), expected]);
    });
}

/// The chief alone loses its way to a shard, whose copy becomes the shard. What the shard itself takes after that would be in no
/// model, so that it answers nobody.
#[test]
fn a_shard_whose_copy_was_adopted_answers_nobody() {
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

/// A shard lives on elsewhere and the next layout keeps it: whoever hands pieces to it finds it there.
#[test]
fn pieces_come_to_an_heir_where_it_lives() {
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

/// A worker that alone has lost a shard asks for its heir and goes away, and the chief, which has lost nothing, never does: the host keeps
/// nothing of it, and ends when its own pieces are elsewhere.
#[test]
fn an_heir_that_the_chief_never_made_one_does_not_keep_its_host() {
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
