//! Workers that connect while the coordinator changes the view.

use super::views::{ShardCluster, enter, forever, fresh, gradients, size, worker};
use crate::relay::TcpRelay;
use muster_comm::wire::metadata::StepStats;
use muster_compute::clock;
use muster_model::id::TaskId;
use muster_model::spec::{Consistency, Rate};
use muster_training::shard::ShardEnd;
use muster_training::worker::{Reply, ShardAddress, Shards};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

fn push(shards: &mut Shards, step: u64, parameters: &mut [f32]) -> Reply {
    let began = clock::now();
    let own = gradients(shards.rank().unwrap(), step);
    let pushed = shards.push_pull(step, StepStats::default(), &own, parameters, &|| {
        began.elapsed() < PATIENCE
    });
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
        let relays: Vec<TcpRelay> = direct.iter().map(|(_, to)| TcpRelay::to(to)).collect();
        let ways: Vec<ShardAddress> = direct
            .iter()
            .zip(&relays)
            .map(|((shard, _), relay)| (*shard, relay.address()))
            .collect();
        let mut late = cluster.join_at(1, &ways);
        relays[1].delay_requests(true);
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
            relays[0].wait_for_answers(size() as u64);
            chief.approach(&addresses).unwrap();
            let workers = vec![worker(0), worker(1)];
            chief.change(2, workers, &addresses, 0, Vec::new()).unwrap();
            // A change is not acknowledged. The answer to the next request shows that the second
            // shard has read it.
            let _ = chief.are_waiting(&[worker(1)], &addresses[1..2]).unwrap();
            relays[1].delay_requests(false);
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
            let mut parameters = vec![0.0; size()];
            let entered = late
                .pull(&mut parameters, &|| began.elapsed() < PATIENCE, &forever)
                .unwrap();
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
