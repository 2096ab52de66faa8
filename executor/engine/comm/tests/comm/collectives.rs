//! Collectives between threads of one process, each with its own port, over TCP and shared memory.

use muster_comm::collective::{
    self, AllReduceAlgorithm, CollectiveCostModel, all_reduce_arena, pieces,
};
use muster_comm::fabric::{
    Arena, CollectiveBuffer, Credentials, Fabric, FabricOptions, Flow, GroupView, PeerPort,
    ReceiveOp, ReceiveRange, SendRange, ViewMember,
};
use muster_model::id::{JobId, TaskId};
use std::ops::Range;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;
use uuid::Uuid;

/// Empty, single, odd, around a cache line and around the pieces of rings; the largest exceeds a
/// ring of shared memory.
const SIZES: [usize; 9] = [0, 1, 2, 7, 17, 63, 1_001, 65_537, 300_007];

fn credentials(id: u32) -> Credentials {
    Credentials {
        job_id: JobId(Uuid::nil()),
        secret: "ab".repeat(32),
        id: TaskId(Uuid::from_u128(id.into())),
        attempt: 1,
    }
}

/// Runs `task` on every rank of a view of `n` members, each on its own thread. Results by rank.
fn on_all<R: Send>(
    n: usize,
    shared_memory: bool,
    task: impl Fn(&mut Fabric) -> R + Sync,
) -> Vec<R> {
    let options = FabricOptions {
        shared_memory,
        ..FabricOptions::default()
    };
    on_all_with(n, &options, task)
}

fn on_all_with<R: Send>(
    n: usize,
    options: &FabricOptions,
    task: impl Fn(&mut Fabric) -> R + Sync,
) -> Vec<R> {
    let folder = tempfile::tempdir().unwrap();
    let ports: Vec<PeerPort> = (0..n as u32)
        .map(|id| PeerPort::bind("127.0.0.1", Some(folder.path()), credentials(id)).unwrap())
        .collect();
    let members: Vec<ViewMember> = ports.iter().map(PeerPort::member).collect();
    let view = GroupView { number: 1, members };
    thread::scope(|scope| {
        let (view, task) = (&view, &task);
        let tasks: Vec<_> = ports
            .iter()
            .map(|port| {
                scope.spawn(move || {
                    let mut fabric = Fabric::join(port, view.clone(), options).unwrap();
                    let rank = fabric.rank();
                    for peer in (0..n).filter(|&peer| peer != rank) {
                        assert_eq!(fabric.mesh().is_shared_memory(peer), options.shared_memory);
                    }
                    task(&mut fabric)
                })
            })
            .collect();
        tasks.into_iter().map(|task| task.join().unwrap()).collect()
    })
}

/// Small integers, so that every partial sum is exact in any order.
fn integers(rank: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| integer(rank, i)).collect()
}

fn integer(rank: usize, i: usize) -> f32 {
    ((i * 31 + rank * 1_009 + 7) % 2_003) as f32 - 1_000.0
}

/// Values whose sums depend on the order of summation.
fn fractions(rank: usize, len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| {
            ((i * 7_919 + rank * 104_729) % 1_000_003) as f32 * 1e-3 + 1e3 / (1.0 + rank as f32)
        })
        .collect()
}

fn exact_sum(n: usize, len: usize) -> Vec<f32> {
    let mut sum = vec![0.0; len];
    for rank in 0..n {
        for (sum, value) in sum.iter_mut().zip(integers(rank, len)) {
            *sum += value;
        }
    }
    sum
}

/// Distributes ranks to nodes unevenly: {0}, {1, 2}, {3, 4, 5}...
fn groups(n: usize) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut next = 0;
    while next < n {
        let end = (next + groups.len() + 1).min(n);
        groups.push((next..end).collect());
        next = end;
    }
    groups
}

fn every_all_reduce_is_exact(shared_memory: bool) {
    for n in 1..=9 {
        let expected: Vec<Vec<f32>> = SIZES.iter().map(|&len| exact_sum(n, len)).collect();
        on_all(n, shared_memory, |fabric| {
            let rank = fabric.rank();
            for algorithm in AllReduceAlgorithm::ALL {
                for (&len, expected) in SIZES.iter().zip(&expected) {
                    let input = integers(rank, len);
                    let mut output = vec![f32::NAN; len];
                    collective::all_reduce(
                        fabric.mesh(),
                        algorithm,
                        &groups(n),
                        &input,
                        &mut output,
                    )
                    .unwrap();
                    assert!(
                        output == *expected,
                        "{algorithm}, {n} ranks, {len} floats, rank {rank}"
                    );
                    assert!(
                        input == integers(rank, len),
                        "{algorithm} touched its input"
                    );
                }
            }
        });
    }
}

#[test]
fn every_all_reduce_equals_the_exact_sum_over_tcp() {
    every_all_reduce_is_exact(false);
}

#[test]
fn every_all_reduce_equals_the_exact_sum_over_shared_memory() {
    every_all_reduce_is_exact(true);
}

#[test]
fn all_ranks_and_all_runs_get_the_same_bits() {
    const LEN: usize = 100_003;
    for n in [2, 3, 5, 8] {
        for algorithm in AllReduceAlgorithm::ALL {
            let run = |shared_memory| {
                on_all(n, shared_memory, |fabric| {
                    let input = fractions(fabric.rank(), LEN);
                    let mut output = vec![0.0; LEN];
                    let groups = groups(n);
                    collective::all_reduce(fabric.mesh(), algorithm, &groups, &input, &mut output)
                        .unwrap();
                    output.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                })
            };
            let first = run(false);
            for other in first[1..].iter().chain(&run(false)).chain(&run(true)) {
                assert!(*other == first[0], "{algorithm}, {n} ranks");
            }
        }
    }
}

#[test]
fn scatter_and_gather_are_the_two_halves_of_an_all_reduce() {
    for n in [1, 2, 3, 4, 7, 9] {
        for shared_memory in [false, true] {
            on_all(n, shared_memory, |fabric| {
                let rank = fabric.rank();
                for len in SIZES {
                    let input = integers(rank, len);
                    let mut output = vec![f32::NAN; len];
                    let mine =
                        collective::reduce_scatter(fabric.mesh(), &input, &mut output).unwrap();
                    assert_eq!(mine, pieces(0..len, n)[rank]);
                    let expected = exact_sum(n, len);
                    assert_eq!(output[mine.clone()], expected[mine]);
                    collective::all_gather(fabric.mesh(), &mut output).unwrap();
                    assert!(output == expected, "{n} ranks, {len} floats, rank {rank}");
                }
            });
        }
    }
}

#[test]
fn broadcast_reaches_all_ranks_from_every_root() {
    for n in [1, 2, 3, 5, 8] {
        for shared_memory in [false, true] {
            on_all(n, shared_memory, |fabric| {
                for root in 0..n {
                    for len in [0, 1, 1_001, 300_007] {
                        let mut values = integers(fabric.rank(), len);
                        collective::broadcast(fabric.mesh(), root, &mut values).unwrap();
                        assert!(values == integers(root, len), "{n} ranks, root {root}");
                        collective::barrier(fabric.mesh()).unwrap();
                    }
                }
            });
        }
    }
}

#[test]
fn an_arena_is_summed_exactly_range_by_range() {
    const LEN: usize = 200_003;
    let ranges = [0..0, 0..1, 1..70_001, 70_001..LEN, 0..LEN];
    for n in [1, 2, 3, 4, 9] {
        for shared_memory in [false, true] {
            on_all(n, shared_memory, |fabric| {
                let mut arena = Arena::new(LEN).unwrap();
                fabric.share(&mut arena).unwrap();
                assert_eq!(fabric.groups().len() == 1, shared_memory || n == 1);
                for (step, range) in ranges.iter().cycle().take(15).enumerate() {
                    let mine = integers(fabric.rank() + step, LEN);
                    arena.gradients_mut().copy_from_slice(&mine);
                    let between = AllReduceAlgorithm::HalvingDoubling;
                    all_reduce_arena(fabric, &mut arena, range.clone(), between).unwrap();
                    let expected: Vec<f32> = range
                        .clone()
                        .map(|i| (0..n).map(|rank| integer(rank + step, i)).sum())
                        .collect();
                    let sums = &collective::sums(fabric, &arena)[range.clone()];
                    assert!(sums == expected, "{n} ranks, step {step}");
                    assert!(arena.gradients() == mine, "the gradients were touched");
                    collective::barrier(fabric.mesh()).unwrap();
                }
            });
        }
    }
}

#[test]
fn all_ranks_measure_the_same_model_and_choose_alike() {
    for shared_memory in [false, true] {
        let models = on_all(4, shared_memory, |fabric| {
            let (mesh, groups, ..) = fabric.parts();
            let model = CollectiveCostModel::probe(mesh, groups).unwrap();
            let chosen = [1, 1_000, 1_000_000].map(|len| model.choose(groups, len));
            (model, chosen)
        });
        assert!(models.iter().all(|one| *one == models[0]), "{models:?}");
        let link = if shared_memory {
            models[0].0.inside
        } else {
            models[0].0.between
        };
        assert!(link.alpha_s > 0.0 && link.beta_s > 0.0, "{models:?}");
        assert!(models[0].0.gamma_s > 0.0, "{models:?}");
    }
}

#[test]
fn pair_without_shared_memory_falls_back_to_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let ports: Vec<PeerPort> = (0..4)
        .map(|id| PeerPort::bind("127.0.0.1", Some(folder.path()), credentials(id)).unwrap())
        .collect();
    let mut members: Vec<ViewMember> = ports.iter().map(PeerPort::member).collect();
    // The path of 1 does not exist; the path of 2 belongs to another task, which refuses.
    members[1].local = Some(folder.path().join("nowhere"));
    members[2].local = members[0].local.clone();
    let view = GroupView { number: 1, members };
    thread::scope(|scope| {
        for port in &ports {
            let view = view.clone();
            scope.spawn(move || {
                let mut fabric = Fabric::join(port, view, &FabricOptions::default()).unwrap();
                // The higher rank connects: 1, 2 and 3 reach 0; no rank reaches 1 or 2.
                assert_eq!(fabric.groups(), [vec![0, 1], vec![2], vec![3]]);
                let mut arena = Arena::new(1_001).unwrap();
                fabric.share(&mut arena).unwrap();
                let mine = integers(fabric.rank(), 1_001);
                arena.gradients_mut().copy_from_slice(&mine);
                let between = AllReduceAlgorithm::Ring;
                all_reduce_arena(&mut fabric, &mut arena, 0..1_001, between).unwrap();
                assert!(collective::sums(&fabric, &arena) == exact_sum(4, 1_001));
            });
        }
    });
}

/// A member computes for several times the silence limit while the others wait for it. It is not
/// considered lost, because its process runs.
#[test]
fn long_step_is_not_a_lost_member() {
    for shared_memory in [false, true] {
        let options = FabricOptions {
            shared_memory,
            silence: Duration::from_millis(1_500),
            ..FabricOptions::default()
        };
        on_all_with(3, &options, |fabric| {
            let mut arena = Arena::new(1_001).unwrap();
            fabric.share(&mut arena).unwrap();
            for round in 0..2 {
                if (round, fabric.rank()) == (1, 1) {
                    thread::sleep(Duration::from_secs(4));
                }
                arena.gradients_mut().fill(1.0);
                all_reduce_arena(fabric, &mut arena, 0..1_001, AllReduceAlgorithm::Ring).unwrap();
                assert!(
                    collective::sums(fabric, &arena)
                        .iter()
                        .all(|sum| *sum == 3.0)
                );
            }
        });
    }
}

/// Over TCP the floats of a large sum are lent to peers, which read them later. A member may
/// therefore write only after the peers have read them.
#[test]
fn member_with_the_sum_may_write_at_once() {
    const LEN: usize = 1_300_003;
    for algorithm in [
        AllReduceAlgorithm::Ring,
        AllReduceAlgorithm::HalvingDoubling,
    ] {
        for n in [2, 3, 4] {
            let expected = exact_sum(n, LEN);
            on_all(n, false, |fabric| {
                let mut arena = Arena::new(LEN).unwrap();
                for _ in 0..6 {
                    let mine = integers(fabric.rank(), LEN);
                    arena.gradients_mut().copy_from_slice(&mine);
                    all_reduce_arena(fabric, &mut arena, 0..LEN, algorithm).unwrap();
                    assert!(arena.sums() == expected, "{algorithm}, {n} ranks");
                    let (_, sums) = arena.sides();
                    sums.fill(f32::NAN);
                    arena.gradients_mut().fill(f32::NAN);
                }
            });
        }
    }
}

/// A slow peer receives the sent data, although the sum was aborted and the arena is overwritten.
#[test]
fn lent_data_of_an_aborted_sum_stays_unchanged() {
    const LEN: usize = 400_001;
    let options = FabricOptions {
        shared_memory: false,
        stall: Duration::from_millis(500),
        ..FabricOptions::default()
    };
    let (tell, told) = mpsc::channel();
    let (tell, told) = (Mutex::new(tell), Mutex::new(told));
    on_all_with(2, &options, |fabric| {
        let some = |range: Range<usize>| Flow {
            from: Some(0),
            takes: vec![ReceiveRange {
                range,
                how: ReceiveOp::Store,
            }],
            ..Flow::default()
        };
        if fabric.rank() == 0 {
            let mut arena = Arena::new(LEN).unwrap();
            arena.gradients_mut().fill(1.0);
            // The peer sends its whole part, and receives too little of this rank's part.
            all_reduce_arena(fabric, &mut arena, 0..LEN, AllReduceAlgorithm::Ring).unwrap_err();
            let (_, sums) = arena.sides();
            sums.fill(f32::NAN);
            tell.lock().unwrap().send(()).unwrap();
            told.lock().unwrap().recv().unwrap();
            return;
        }
        let (mine, mut got) = (vec![2.0; LEN], vec![0.0; LEN]);
        let all = SendRange {
            range: 0..LEN,
            from: CollectiveBuffer::Input,
            after: None,
        };
        let part = Flow {
            to: Some(0),
            sends: vec![all],
            ..some(0..LEN / 3)
        };
        fabric.mesh().run(&mine, &mut got, &part).unwrap();
        told.lock().unwrap().recv().unwrap();
        let rest = some(LEN / 3..LEN);
        fabric.mesh().run(&[], &mut got, &rest).unwrap();
        assert!(got.iter().all(|float| [1.0, 3.0].contains(float)));
        tell.lock().unwrap().send(()).unwrap();
    });
}
