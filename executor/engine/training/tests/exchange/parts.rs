//! Steps in parts: results, the order on the connection, and the state after a worker is lost.

use crate::loopback::{adam, forever, hello, shard, stats, worker};
use muster_comm::assign::ParameterPiece;
use muster_comm::partitions::{self, PART, PartitionOrder};
use muster_comm::wire::metadata::{AnswerHead, NoisePart, PartHead, PushHead, StepStats, Welcome};
use muster_comm::wire::view::ViewChange;
use muster_comm::wire::{Connection, FrameKind, handshake};
use muster_model::id::JobId;
use muster_model::spec::Consistency;
use muster_training::checkpoint::Contents;
use muster_training::shard::{Identity, Recipe, ShardEnd, ShardExchange, ShardServer};
use muster_training::stop::StopFlag;
use muster_training::worker::{
    GradientSink, ParameterFetch, PartitionedPass, Reply, ShardAddress, Shards, first_view,
};
use std::net::TcpListener;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use uuid::Uuid;

/// Crosses boundaries of parts in several places.
const BLOCKS: [usize; 5] = [3 * PART + 700, 120, 2 * PART, 10, 5_000];
const BATCH: u32 = 8;

fn size() -> usize {
    BLOCKS.iter().sum()
}

fn blocks() -> Vec<ParameterPiece> {
    let mut offset = 0;
    let pieces = BLOCKS.map(|len| {
        offset += len;
        ParameterPiece {
            offset: offset - len,
            len,
        }
    });
    pieces.into()
}

fn start(number: u32) -> (ShardAddress, JoinHandle<ShardEnd>) {
    let identity = Identity {
        job_id: JobId(Uuid::nil()),
        task_id: shard(number),
        secret: "s".repeat(64),
    };
    let recipe = Recipe::weights(adam(), size(), 1);
    let exchange = ShardExchange::new(shard(number), recipe, Consistency::default(), BATCH);
    let bound = ShardServer::bind("127.0.0.1", identity, exchange).unwrap();
    let address = (shard(number), bound.address().to_string());
    let stop = StopFlag::new(Duration::from_secs(10));
    (
        address,
        thread::spawn(move || bound.serve(&stop, &|_| {}).unwrap()),
    )
}

fn contents() -> Contents {
    Contents {
        parameters: (0..size()).map(|i| (i % 97) as f32 / 97.0).collect(),
        state: vec![vec![0.0; size()]; 2],
        extras: Vec::new(),
    }
}

fn gradients(rank: u32, step: u64) -> Vec<f32> {
    let salt = u64::from(rank) * 31 + step * 17;
    (0..size() as u64)
        .map(|i| ((i * 2_654_435_761 + salt * 40_503) % 2_003) as f32 / 1_001.5 - 1.0)
        .collect()
}

/// Parameters after each step, by one update over the whole arena; `counts` tells which gradients
/// of which values count.
fn reference(workers: u32, steps: u64, counts: impl Fn(u64, u32, usize) -> bool) -> Vec<Vec<f32>> {
    let mut parameters = contents().parameters;
    let mut state = vec![0.0; size() * 2];
    let mut after = Vec::new();
    for step in 0..steps {
        let mut sum = vec![0.0; size()];
        for rank in 0..workers {
            let own = gradients(rank, step);
            for (at, (sum, value)) in sum.iter_mut().zip(own).enumerate() {
                if counts(step, rank, at) {
                    // The first gradient is not added to zero, which would lose the sign of a zero.
                    *sum = if rank == 0 { value } else { *sum + value };
                }
            }
        }
        adam().update(step, &mut parameters, &sum, &mut state, 1.0 / BATCH as f32);
        after.push(parameters.clone());
    }
    after
}

/// All workers, with filled shards.
fn joined(workers: u32, addresses: &[ShardAddress]) -> Vec<Shards> {
    let mut all: Vec<Shards> = (0..workers)
        .map(|rank| {
            let joined = Shards::join(addresses, size(), &hello(rank)).unwrap();
            joined.in_parts(Some(PartitionOrder::ByNeed))
        })
        .collect();
    let members = (0..workers).map(worker).collect();
    let view = first_view(1, members, addresses, &blocks());
    all[0].begin(view, 0, 0, &contents()).unwrap();
    for follower in &mut all[1..] {
        enter(follower);
    }
    all
}

fn enter(shards: &mut Shards) -> u64 {
    let mut parameters = vec![0.0; size()];
    loop {
        let reply = shards.pull(&mut parameters, &forever, &forever).unwrap();
        shards.follow().unwrap();
        match reply {
            Reply::Parameters { clock, .. } => return clock,
            Reply::Moved => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Gradients that exist from the start and become ready in ranges of a given length; the next step
/// reads parameters layer by layer as they arrive.
struct Steady {
    rank: u32,
    step: u64,
    stride: usize,
    parameters: Vec<f32>,
    /// Parameters that it has read while others were in transfer.
    seen: Vec<(Range<usize>, Vec<f32>)>,
}

impl Steady {
    fn new(rank: u32, stride: usize) -> Self {
        Self {
            rank,
            step: 0,
            stride,
            parameters: vec![f32::NAN; size()],
            seen: Vec::new(),
        }
    }
}

impl PartitionedPass for Steady {
    fn compute(&mut self, ready: GradientSink<'_>) -> StepStats {
        self.seen.clear();
        let gradients = gradients(self.rank, self.step);
        let mut end = size();
        while end > 0 {
            let start = end.saturating_sub(self.stride);
            ready(start..end, &gradients);
            end = start;
        }
        stats(self.rank)
    }

    fn go_ahead(&mut self, fetch: ParameterFetch<'_>) {
        for block in blocks() {
            let range = block.range();
            if !fetch(range.clone(), &mut self.parameters) {
                return;
            }
            let seen = self.parameters[range.clone()].to_vec();
            self.seen.push((range, seen));
        }
    }

    fn parameters(&mut self) -> &mut [f32] {
        &mut self.parameters
    }
}

/// One step that is answered with parameters.
fn step(shards: &mut Shards, pass: &mut Steady) -> StepStats {
    let reply = shards.exchange(pass.step, pass, &forever).unwrap();
    let Reply::Parameters { clock, stats } = reply else {
        panic!("{reply:?}");
    };
    pass.step += 1;
    assert_eq!(clock, pass.step);
    stats
}

/// Does one step for each of the expected parameters. Returns the counts of the last.
fn trained(mut shards: Shards, mut pass: Steady, expected: &[Vec<f32>]) -> (Shards, StepStats) {
    let mut counted = StepStats::default();
    for expected in expected {
        counted = step(&mut shards, &mut pass);
        assert!(pass.parameters == *expected, "step {}", pass.step);
        assert_eq!(pass.seen.len(), BLOCKS.len(), "nothing held it up");
        for (range, seen) in &pass.seen {
            assert!(
                *seen == expected[range.clone()],
                "{range:?} was not there yet"
            );
        }
    }
    (shards, counted)
}

#[test]
fn parts_have_the_bits_of_a_plain_loop_for_every_layout() {
    const STEPS: u64 = 3;
    for (workers, ps_shards, stride) in
        [(1, 1, 999), (3, 1, PART), (2, 3, 200_000), (2, 2, 1 << 30)]
    {
        let (addresses, serving): (Vec<_>, Vec<_>) = (0..ps_shards).map(start).unzip();
        let expected = reference(workers, STEPS, |_, _, _| true);
        let ended: Vec<(Shards, StepStats)> = thread::scope(|scope| {
            let expected = &expected;
            let running: Vec<_> = (0..)
                .zip(joined(workers, &addresses))
                .map(|(rank, shards)| {
                    let pass = Steady::new(rank, stride + rank as usize);
                    scope.spawn(move || trained(shards, pass, expected))
                })
                .collect();
            running
                .into_iter()
                .map(|worker| worker.join().unwrap())
                .collect()
        });
        let (mut ended, counted): (Vec<Shards>, Vec<StepStats>) = ended.into_iter().unzip();
        assert_eq!(counted[0].examples, u64::from(workers) * 2);
        let snapshot = ended[0].snapshot(Contents::default()).unwrap();
        assert_eq!((snapshot.version(), snapshot.updates), (Some(STEPS), STEPS));
        assert!(snapshot.contents.parameters == expected[STEPS as usize - 1]);
        ended.remove(0).done();
        ended.into_iter().for_each(Shards::goodbye);
        assert!(
            serving
                .into_iter()
                .all(|one| one.join().unwrap() == ShardEnd::Finished)
        );
    }
}

/// Does the first step of a worker.
fn first_step(shards: &mut Shards, rank: u32, in_parts: bool) {
    if in_parts {
        step(shards, &mut Steady::new(rank, 77_777));
        return;
    }
    let mut parameters = vec![0.0; size()];
    let own = gradients(rank, 0);
    shards
        .push_pull(0, stats(rank), &own, &mut parameters, &forever)
        .unwrap();
}

/// Noise that two workers measure in their first step.
fn measured_noise(in_parts: bool) -> NoisePart {
    let (addresses, serving): (Vec<_>, Vec<_>) = (0..2).map(start).unzip();
    let mut all = joined(2, &addresses);
    let mut other = all.pop().unwrap();
    let mut chief = all.pop().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| first_step(&mut other, 1, in_parts));
        first_step(&mut chief, 0, in_parts);
    });
    let noise = chief.take_noise().expect("the first step is measured");
    chief.done();
    other.goodbye();
    serving
        .into_iter()
        .for_each(|one| assert_eq!(one.join().unwrap(), ShardEnd::Finished));
    noise
}

/// The noise of gradients equals that of whole steps with the same gradients.
#[test]
fn parts_measure_the_same_noise() {
    let (parts, whole) = (measured_noise(true), measured_noise(false));
    assert_eq!(parts.pushes, whole.pushes);
    for (a, b) in [
        (parts.squares, whole.squares),
        (parts.whole, whole.whole),
        (parts.inverses, whole.inverses),
    ] {
        assert!((a - b).abs() <= 1e-9 * b.abs(), "{parts:?} {whole:?}");
    }
}

/// A shard that reads nothing before it is signalled, and then records the order in which parts
/// arrive.
fn slow_shard(reads_on: Receiver<()>, order: Sender<Vec<usize>>) -> ShardAddress {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    socket2::SockRef::from(&listener)
        .set_recv_buffer_size(64 << 10)
        .unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut line = Connection::new(listener.accept().unwrap().0).unwrap();
        let mut seen = Vec::new();
        loop {
            let Ok(header) = line.receive() else { return };
            let meta = line.receive_meta(header).unwrap();
            let mut payload = vec![0.0; header.payload_bytes as usize / 4];
            match header.kind {
                FrameKind::Hello => {
                    let welcome = Welcome {
                        state_per_parameter: 2,
                        keeps_known: false,
                    };
                    let welcome = serde_json::to_vec(&welcome).unwrap();
                    line.send(FrameKind::Welcome, 0, &welcome, &[]).unwrap();
                }
                FrameKind::Change => drop(serde_json::from_slice::<ViewChange>(&meta).unwrap()),
                FrameKind::Init => {
                    line.receive_payload(header, &mut [&mut payload]).unwrap();
                    line.send(FrameKind::Ready, 0, &[], &[]).unwrap();
                    reads_on.recv().unwrap();
                }
                FrameKind::Part => {
                    line.receive_payload(header, &mut [&mut payload]).unwrap();
                    seen.push(PartHead::decode(&meta).unwrap().part as usize);
                }
                FrameKind::Rest => {
                    PushHead::decode(&meta).unwrap();
                    order.send(std::mem::take(&mut seen)).unwrap();
                    for part in 0..partitions::count(size()) {
                        let numbers = vec![1.0; partitions::range(part, size()).len()];
                        let head = PartHead {
                            view: 0,
                            part: part as u64,
                        };
                        line.send(FrameKind::Part, 1, &head.encode(), &[&numbers])
                            .unwrap();
                    }
                    let head = AnswerHead::default().encode();
                    line.send(FrameKind::Rest, 1, &head, &[]).unwrap();
                }
                FrameKind::Goodbye => return,
                other => panic!("{other:?}"),
            }
        }
    });
    (shard(9), address)
}

/// Parts that become ready while the connection is busy are sent in the order of need, before
/// earlier ones. Only the one or two parts that have already been passed to the connection are not
/// overtaken.
#[test]
fn most_urgent_parts_overtake_waiting_ones() {
    struct Stalled(Steady, Sender<()>);
    impl PartitionedPass for Stalled {
        fn compute(&mut self, ready: GradientSink<'_>) -> StepStats {
            let stats = self.0.compute(ready);
            // All parts are ready before the shard reads the first one.
            thread::sleep(Duration::from_millis(100));
            self.1.send(()).unwrap();
            stats
        }

        fn go_ahead(&mut self, fetch: ParameterFetch<'_>) {
            self.0.go_ahead(fetch);
        }

        fn parameters(&mut self) -> &mut [f32] {
            self.0.parameters()
        }
    }
    let (read_on, reads_on) = channel();
    let (order, orders) = channel();
    let address = slow_shard(reads_on, order);
    let mut all = joined(1, &[address]);
    let mut pass = Stalled(Steady::new(0, PART), read_on);
    let reply = all[0].exchange(0, &mut pass, &forever).unwrap();
    assert!(matches!(reply, Reply::Parameters { .. }), "{reply:?}");
    assert!(pass.0.parameters.iter().all(|&parameter| parameter == 1.0));
    let order = orders.recv().unwrap();
    let all_parts = partitions::count(size());
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..all_parts), "{order:?}");
    let first = order.iter().position(|&part| part == 0).unwrap();
    assert!(first <= 2, "part 0 is ready last and goes early: {order:?}");
    assert!(order[first..].is_sorted(), "then all by need: {order:?}");
}

/// A worker is lost during its push: the coordinator continues without it, and the step contains
/// the complete parts of its push.
#[test]
fn worker_lost_during_a_push_leaves_whole_parts() {
    let (address, serving) = start(0);
    let addresses = [address];
    let mut chief = Shards::join(&addresses, size(), &hello(0)).unwrap();
    let view = first_view(1, vec![worker(0), worker(1)], &addresses, &blocks());
    chief.begin(view, 0, 0, &contents()).unwrap();
    let mut chief = chief.in_parts(Some(PartitionOrder::ByNeed));

    // The last two parts, then the worker is lost.
    let (mut dying, _) = handshake(&addresses[0].1, &hello(1), Duration::from_secs(5)).unwrap();
    let came = partitions::count(size()) - 2..partitions::count(size());
    push_parts(&mut dying, 1, came.clone());
    drop(dying);

    let mut pass = Steady::new(0, PART);
    let reply = chief.exchange(0, &mut pass, &forever).unwrap();
    assert_eq!(reply, Reply::Gone);
    assert_eq!(chief.departed()[0].task_id, worker(1));
    let between = chief.snapshot(Contents::default()).unwrap();
    assert_eq!(between.version(), None, "some parts are of the next step");

    let gone = vec![worker(1)];
    chief
        .change(1, vec![worker(0)], &addresses, 1, gone)
        .unwrap();
    let reply = chief.resume(&[], pass.parameters(), &forever).unwrap();
    assert!(
        matches!(reply, Reply::Parameters { clock: 1, .. }),
        "{reply:?}"
    );
    let expected = reference(2, 1, |_, rank, at| rank == 0 || came.contains(&(at / PART)));
    assert!(pass.parameters == expected[0]);
    let after = chief.snapshot(Contents::default()).unwrap();
    assert_eq!(after.version(), Some(1));
    assert!(after.contents.parameters == expected[0]);
    assert_eq!(chief.follow().unwrap(), Some(true));
    pass.step = 1;
    step(&mut chief, &mut pass);
    chief.done();
    assert_eq!(serving.join().unwrap(), ShardEnd::Finished);
}

/// A shard joins between two steps: pieces move and the cut into parts changes, but not the
/// results. A step that was begun early under the old view is discarded.
#[test]
fn new_shard_changes_the_cut_but_no_value() {
    const STEPS: u64 = 4;
    let (first, serving) = start(0);
    let (second, serving_second) = start(1);
    let mut all = joined(2, std::slice::from_ref(&first));
    let mut other = all.pop().unwrap();
    let mut chief = all.pop().unwrap();
    let addresses = [first, second];
    let expected = reference(2, STEPS, |_, _, _| true);
    thread::scope(|scope| {
        let expected = &expected;
        scope.spawn(move || {
            let mut pass = Steady::new(1, PART + 1);
            for expected in expected {
                step(&mut other, &mut pass);
                assert!(pass.parameters == *expected);
                other.follow().unwrap();
            }
            other.goodbye();
        });
        let mut pass = Steady::new(0, PART);
        for (at, expected) in expected.iter().enumerate() {
            if at == 1 {
                chief.approach(&addresses).unwrap();
                let workers = vec![worker(0), worker(1)];
                chief.change(2, workers, &addresses, 2, Vec::new()).unwrap();
            }
            step(&mut chief, &mut pass);
            assert!(pass.parameters == *expected);
            let followed = chief.follow().unwrap();
            assert_eq!(followed.is_some(), at == 1, "step {at}");
        }
        let moved = chief.audit().unwrap().unwrap();
        assert_eq!(moved.before, moved.after);
        let snapshot = chief.snapshot(Contents::default()).unwrap();
        assert!(snapshot.contents.parameters == expected[STEPS as usize - 1]);
        // The other worker has left in order by now, or will soon.
        chief.done();
    });
    assert_eq!(serving.join().unwrap(), ShardEnd::Finished);
    assert_eq!(serving_second.join().unwrap(), ShardEnd::Finished);
}

/// Some in parts, some as a whole: an error of a worker, which is refused.
#[test]
fn mixed_ways_of_pushing_a_step_are_refused() {
    let (address, serving) = start(0);
    let mut chief = Shards::join(std::slice::from_ref(&address), size(), &hello(0)).unwrap();
    let members = vec![worker(0), worker(1)];
    let view = first_view(1, members, std::slice::from_ref(&address), &blocks());
    chief.begin(view, 0, 0, &contents()).unwrap();
    let (mut other, _) = handshake(&address.1, &hello(1), Duration::from_secs(5)).unwrap();
    push_parts(&mut other, 1, 0..1);
    let mut parameters = vec![0.0; size()];
    let refused = chief.push_pull(0, stats(0), &gradients(0, 0), &mut parameters, &forever);
    let (_, error) = refused.unwrap_err();
    assert!(error.to_string().contains("in parts by some"), "{error}");
    drop((chief, other));
    assert_eq!(serving.join().unwrap(), ShardEnd::PeerLost);
}

/// Sends parts of a worker's gradients of step 0 under the first view. Returns after the shard has
/// read them.
fn push_parts(line: &mut Connection, rank: u32, parts: Range<usize>) {
    let own = gradients(rank, 0);
    for part in parts {
        let head = PartHead {
            view: 1,
            part: part as u64,
        };
        let numbers = &own[partitions::range(part, size())];
        line.send(FrameKind::Part, 0, &head.encode(), &[numbers])
            .unwrap();
    }
    line.send(FrameKind::Fetch, 0, worker(rank).0.as_bytes(), &[])
        .unwrap();
    line.receive().unwrap();
}
