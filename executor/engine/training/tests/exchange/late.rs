//! Workers that connect while the coordinator changes the view.

use super::views::{ShardCluster, enter, forever, fresh, gradients, size, worker};
use muster_comm::wire::metadata::StepStats;
use muster_compute::clock;
use muster_model::id::TaskId;
use muster_model::spec::{Consistency, Rate};
use muster_training::shard::ShardEnd;
use muster_training::worker::{Reply, ShardAddress, Shards};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// What a [`Proxy`] forwards.
#[derive(Default)]
struct Gate {
    /// Whether requests are delayed.
    is_closed: bool,
    /// Bytes of answers forwarded so far.
    answered: u64,
}

/// Forwards one connection to a shard, and can delay its requests.
struct Proxy {
    gate: Arc<(Mutex<Gate>, Condvar)>,
    address: ShardAddress,
}

impl Proxy {
    fn to((shard, address): ShardAddress) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            gate: Arc::default(),
            address: (shard, listener.local_addr().unwrap().to_string()),
        };
        let gate = Arc::clone(&proxy.gate);
        thread::spawn(move || {
            let (worker, _) = listener.accept().unwrap();
            let shard = TcpStream::connect(address).unwrap();
            let requests = (worker.try_clone().unwrap(), shard.try_clone().unwrap());
            let of_requests = Arc::clone(&gate);
            thread::spawn(move || {
                forward(requests, |_| {
                    let (gate, changed) = &*of_requests;
                    let gate = gate.lock().unwrap();
                    drop(changed.wait_while(gate, |gate| gate.is_closed).unwrap());
                });
            });
            forward((shard, worker), |bytes| {
                let (gate, changed) = &*gate;
                gate.lock().unwrap().answered += bytes as u64;
                changed.notify_all();
            });
        });
        proxy
    }

    fn set_closed(&self, is_closed: bool) {
        let (gate, changed) = &*self.gate;
        gate.lock().unwrap().is_closed = is_closed;
        changed.notify_all();
    }

    /// Waits until answers of at least `bytes` were forwarded.
    fn await_answer(&self, bytes: u64) {
        let (gate, changed) = &*self.gate;
        let gate = gate.lock().unwrap();
        let missing = |gate: &mut Gate| gate.answered < bytes;
        let (_gate, waited) = changed.wait_timeout_while(gate, PATIENCE, missing).unwrap();
        assert!(!waited.timed_out(), "the shard has not answered");
    }
}

/// Copies bytes until either side closes; calls `before` with the length of each write.
fn forward((mut from, mut to): (TcpStream, TcpStream), before: impl Fn(usize)) {
    let mut buffer = vec![0; 65_536];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        before(bytes);
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn push(shards: &mut Shards, step: u64, parameters: &mut [f32]) -> Reply {
    let began = clock::now();
    let patience = || began.elapsed() < PATIENCE;
    let own = gradients(shards.rank().unwrap(), step);
    let pushed = shards.push_pull(step, StepStats::default(), &own, parameters, &patience);
    pushed.unwrap()
}

/// The shards answer the first pull of a late worker under different views: one before it knows of
/// the next view, the other one after. The worker must pull under the newer view before it pushes,
/// because the first shard waits for that.
#[test]
fn worker_answered_under_two_views_pulls_again() {
    let rate = Rate::Constant;
    // Without and with a move of pieces to another shard.
    for next in [vec![0, 1], vec![0, 1, 2]] {
        let mut cluster = ShardCluster::new(Consistency::Asp { rate }, None);
        (0..3).for_each(|number| cluster.start(number));
        let mut chief = cluster.lead(&[0, 1], &[0, 1]);
        let direct = cluster.addresses(&[0, 1]);
        let proxies: Vec<Proxy> = direct.into_iter().map(Proxy::to).collect();
        let ways: Vec<ShardAddress> = proxies.iter().map(|proxy| proxy.address.clone()).collect();
        let mut late = cluster.join_at(1, &ways);
        proxies[1].set_closed(true);
        let addresses = cluster.addresses(&next);
        thread::scope(|scope| {
            let entering = scope.spawn(|| {
                let mut parameters = vec![0.0; size()];
                let step = enter(&mut late, &mut parameters).unwrap();
                assert_eq!(parameters, fresh().parameters);
                assert_eq!(late.view().unwrap().number, 2);
                push(&mut late, step, &mut parameters)
            });
            // The first shard holds about half of the parameters.
            proxies[0].await_answer(size() as u64);
            chief.approach(&addresses).unwrap();
            let workers = vec![worker(0), worker(1)];
            chief.change(2, workers, &addresses, 0, Vec::new()).unwrap();
            proxies[1].set_closed(false);
            chief.follow().unwrap();
            let mut parameters = vec![0.0; size()];
            assert_eq!(enter(&mut chief, &mut parameters), Some(0));
            let reply = entering.join().unwrap();
            assert!(
                matches!(reply, Reply::Parameters { clock: 1, .. }),
                "{reply:?}"
            );
        });
        late.goodbye();
        chief.done();
        for number in next {
            assert_eq!(cluster.end(number), ShardEnd::Finished);
        }
    }
}

/// Under BSP the step before the next view waits for every member: one that connects after the
/// change was announced still computes that step.
#[test]
fn late_member_computes_the_step_before_an_announced_view() {
    let mut cluster = ShardCluster::new(Consistency::default(), None);
    cluster.start(0);
    let mut chief = cluster.lead(&[0, 1, 2], &[0]);
    let gone: TaskId = worker(2);
    let mut lost = cluster.join(2, &[0]);
    let mut parameters = vec![0.0; size()];
    assert_eq!(enter(&mut lost, &mut parameters), Some(0));
    drop(lost);
    let left = vec![worker(0), worker(1)];
    let addresses = cluster.addresses(&[0]);
    chief.change(1, left, &addresses, 1, vec![gone]).unwrap();
    let mut late = cluster.join(1, &[0]);
    thread::scope(|scope| {
        let training = scope.spawn(|| {
            let began = clock::now();
            let patience = || began.elapsed() < PATIENCE;
            let mut parameters = vec![0.0; size()];
            let entered = late.pull(&mut parameters, &patience, &forever).unwrap();
            assert!(
                matches!(entered, Reply::Parameters { clock: 0, .. }),
                "{entered:?}"
            );
            late.follow().unwrap();
            push(&mut late, 0, &mut parameters)
        });
        let of_chief = push(&mut chief, 0, &mut parameters);
        let of_late = training.join().unwrap();
        for reply in [of_chief, of_late] {
            assert!(
                matches!(reply, Reply::Parameters { clock: 1, .. }),
                "{reply:?}"
            );
        }
    });
    for shards in [&mut chief, &mut late] {
        assert_eq!(shards.follow().unwrap(), Some(true));
        assert_eq!(shards.view().unwrap().number, 2);
    }
    late.goodbye();
    chief.done();
    assert_eq!(cluster.end(0), ShardEnd::Finished);
}
