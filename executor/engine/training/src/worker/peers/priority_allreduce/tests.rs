use super::*;
use muster_comm::collective::AlgorithmChoice;
use muster_comm::fabric::{
    Coordinator, Credentials, FabricOptions, Gathering, GroupView, MemberReport, PeerPort,
};
use muster_comm::wire::metadata::StepStats;
use muster_model::id::{JobId, TaskId};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use uuid::Uuid;

const PARAMETERS: usize = 1_000;
/// Ten ranges.
const RANGE: usize = 100;
/// Added to each parameter by an update; sums and means are far smaller.
const MADE: f32 = 1_000.0;

/// Forms a first view of the members; `goes_on` states whether there are further ones.
struct TestCoordinator {
    gathering: Mutex<Gathering>,
    formed: Condvar,
    goes_on: bool,
}

impl TestCoordinator {
    fn of(members: usize, goes_on: bool) -> Arc<Self> {
        Arc::new(Self {
            gathering: Mutex::new(Gathering::new(members)),
            formed: Condvar::new(),
            goes_on,
        })
    }
}

impl Coordinator for TestCoordinator {
    fn next_view(&self, report: MemberReport) -> Result<GroupView, String> {
        let (id, left) = (report.member.id, report.view);
        if left > 0 && !self.goes_on {
            return Err("the job stops".to_owned());
        }
        let mut gathering = self.gathering.lock().unwrap();
        gathering.report(report)?;
        if gathering.next_view().is_some() {
            self.formed.notify_all();
        }
        loop {
            let view = gathering.view();
            if view.number > left && view.rank_of(id).is_some() {
                return Ok(view.clone());
            }
            gathering = self.formed.wait(gathering).unwrap();
        }
    }
}

fn by_need(order: PartitionOrder) -> PriorityAllReduce {
    PriorityAllReduce::new(GradientRanges::of(PARAMETERS, RANGE), order)
}

fn join(
    server: &Arc<TestCoordinator>,
    number: usize,
    folder: Option<&std::path::Path>,
) -> CollectiveGroup {
    let credentials = Credentials {
        job_id: JobId(Uuid::nil()),
        secret: "cd".repeat(32),
        id: TaskId(Uuid::from_u128(number as u128)),
        attempt: 1,
    };
    let port = PeerPort::bind("127.0.0.1", folder, credentials).unwrap();
    let options = FabricOptions {
        shared_memory: folder.is_some(),
        ..FabricOptions::default()
    };
    let floats = by_need(PartitionOrder::ByNeed).ranges.arena();
    let server = Arc::clone(server);
    CollectiveGroup::start(
        port,
        server,
        floats,
        AlgorithmChoice::Fastest,
        false,
        options,
    )
    .unwrap()
}

fn gradient(number: usize, step: usize, at: usize) -> f32 {
    ((at * 7_919 + number * 104_729 + step * 31) % 1_003) as f32 / 997.0
}

/// Layers of 130 parameters; the last one also contains the first parameters, as in some networks.
fn layers() -> Vec<Range<usize>> {
    let starts = (0..PARAMETERS).step_by(130);
    starts.map(|at| at..(at + 130).min(PARAMETERS)).collect()
}

/// A worker whose layers take the given milliseconds in each pass.
struct Layers {
    number: usize,
    step: usize,
    paces: Vec<u64>,
    head: StepMetadata,
    parameters: Vec<f32>,
    gradients: Vec<f32>,
    /// Parameters of each layer as the next step has read them.
    seen: Vec<Vec<f32>>,
}

impl Layers {
    fn new(number: usize) -> Self {
        let stats = StepStats {
            examples: 2,
            ..StepStats::default()
        };
        Self {
            number,
            step: 0,
            paces: vec![0; layers().len()],
            head: StepMetadata {
                stats,
                ..StepMetadata::default()
            },
            parameters: (0..PARAMETERS).map(|at| at as f32).collect(),
            gradients: vec![0.0; PARAMETERS],
            seen: Vec::new(),
        }
    }
}

impl PriorityStepWork for Layers {
    fn compute(&mut self, ready: GradientSink<'_>) -> StepMetadata {
        for (layer, pace) in layers().into_iter().zip(&self.paces).rev() {
            std::thread::sleep(Duration::from_millis(*pace));
            for at in layer.clone() {
                self.gradients[at] = gradient(self.number, self.step, at);
            }
            ready(layer, &self.gradients);
        }
        self.head
    }

    fn go_ahead(&mut self, fetch: ParameterFetch<'_>) {
        self.seen.clear();
        for layer in layers() {
            if !fetch(layer.clone(), &mut self.parameters) {
                return;
            }
            self.seen.push(self.parameters[layer].to_vec());
        }
    }

    fn parameters(&mut self) -> &mut [f32] {
        &mut self.parameters
    }
}

/// Mean over two examples for each contribution.
struct PairMean;

impl MeanScale for PairMean {
    fn of_sum(&self, _: &CollectiveGroup, reduced: Reduced) -> f32 {
        0.5 / reduced.contributions as f32
    }

    fn of_own(&self, head: &StepMetadata) -> f32 {
        1.0 / head.stats.examples as f32
    }
}

fn apply(parameters: &mut [f32], sums: &[RangeSum]) {
    for sum in sums {
        let range = parameters[sum.range.clone()].iter_mut();
        range
            .zip(&sum.floats)
            .for_each(|(parameter, float)| *parameter += MADE - sum.scale * float);
    }
}

/// Runs some steps. Returns a member's parameters, and checks that each next step has read all of
/// them.
fn run(
    group: &mut CollectiveGroup,
    mut work: Layers,
    order: PartitionOrder,
    seed: u64,
) -> Vec<f32> {
    let by_need = by_need(order);
    let mut random = seed;
    for step in 0..6 {
        work.step = step;
        for pace in &mut work.paces {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *pace = random >> 62;
        }
        let outcome = by_need.exchange(group, &mut work, &PairMean, &mut apply);
        outcome.ended.unwrap();
        assert!(outcome.head.is_some());
        assert_eq!(
            work.seen.concat(),
            work.parameters,
            "what the next step has seen"
        );
    }
    work.parameters
}

/// For any pace of the members and any links, the bits equal those of an update of the whole.
#[test]
fn members_with_different_paces_get_the_same_bits() {
    for (members, shares) in [
        (1, false),
        (2, false),
        (3, false),
        (4, false),
        (2, true),
        (4, true),
    ] {
        let mut all = Vec::new();
        for (order, seed) in [
            (PartitionOrder::AsReady, 1),
            (PartitionOrder::ByNeed, 2),
            (PartitionOrder::ByNeed, 3),
        ] {
            let server = TestCoordinator::of(members, true);
            let folder = tempfile::tempdir().unwrap();
            let folder = shares.then(|| folder.path());
            let came_to = thread::scope(|scope| {
                let server = &server;
                let members: Vec<_> = (0..members)
                    .map(|number| {
                        scope.spawn(move || {
                            let mut group = join(server, number, folder);
                            // The sum is in order of ranks, which depend on the order of joining.
                            let work = Layers::new(group.rank());
                            run(&mut group, work, order, seed + 10 * number as u64)
                        })
                    })
                    .collect();
                let came_to = members.into_iter().map(|member| member.join().unwrap());
                came_to.collect::<Vec<_>>()
            });
            all.extend(came_to);
        }
        for other in &all[1..] {
            let same = all[0]
                .iter()
                .zip(other)
                .all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{members} members, memory {shares}");
        }
    }
}

/// Returns for each range how often it was updated, and whether with both members' gradients.
fn updates(parameters: &[f32]) -> Vec<(u32, bool)> {
    (0..PARAMETERS)
        .step_by(RANGE)
        .map(|start| updates_of_range(parameters, start..start + RANGE))
        .collect()
}

fn updates_of_range(parameters: &[f32], range: Range<usize>) -> (u32, bool) {
    let start = range.start;
    let times = ((parameters[start] - start as f32 + MADE / 2.0) / MADE) as u32;
    let of_both = range.clone().all(|at| {
        let sum = gradient(0, 0, at) + gradient(1, 0, at);
        is_updated_by(parameters, at, 0.25 * sum)
    });
    let mut all = range.clone();
    assert!(
        times == 0
            || of_both
            || all.all(|at| is_updated_by(parameters, at, 0.5 * gradient(0, 0, at))),
        "{range:?}"
    );
    (times, of_both)
}

fn is_updated_by(parameters: &[f32], at: usize, gradient: f32) -> bool {
    let made = parameters[at] - at as f32;
    (made - (MADE - gradient)).abs() < 1e-3
}

/// The other member takes part in `sums` sums and leaves; there is no other view.
fn left_after(sums: usize) -> (PriorityStepOutcome, Layers) {
    let server = TestCoordinator::of(2, false);
    thread::scope(|scope| {
        let server = &server;
        let other = scope.spawn(move || {
            let mut group = join(server, 1, None);
            let by_need = by_need(PartitionOrder::ByNeed);
            let (arena, ranges) = (group.gradients_mut(), &by_need.ranges);
            for at in 0..ranges.count() {
                let own = ranges.parameters(at).map(|at| gradient(1, 0, at));
                arena[ranges.gradients(at)].copy_from_slice(&own.collect::<Vec<_>>());
                mark(&mut arena[ranges.marks(at)], 0);
            }
            let mut line = RangeQueue::new(ranges.count(), PartitionOrder::ByNeed);
            for _ in 0..sums {
                let at = line.take().unwrap();
                group.all_reduce(ranges.summed(at)).unwrap();
                line.hear(&group.sums()[ranges.marks(at)]);
            }
        });
        let mut group = join(server, 0, None);
        let mut work = Layers::new(0);
        let outcome =
            by_need(PartitionOrder::ByNeed).exchange(&mut group, &mut work, &PairMean, &mut apply);
        drop(group);
        other.join().unwrap();
        (outcome, work)
    })
}

/// A step is applied as a whole or not at all, wherever the other member left.
#[test]
fn step_with_known_head_is_applied_whole() {
    let mut decided = Vec::new();
    for sums in 0..10 {
        let (outcome, work) = left_after(sums);
        assert!(
            matches!(outcome.ended, Err(FabricError::NoView(_))),
            "{sums}"
        );
        let updates = updates(&work.parameters);
        decided.push(outcome.head.is_some());
        match outcome.head {
            None => assert!(
                updates.iter().all(|(times, _)| *times == 0),
                "{sums}: {updates:?}"
            ),
            Some(_) => {
                assert!(
                    updates.iter().all(|(times, _)| *times == 1),
                    "{sums}: {updates:?}"
                );
                let of_both = updates.iter().filter(|(_, of_both)| *of_both);
                assert_eq!(of_both.count(), sums);
                assert_eq!(work.seen.concat(), work.parameters);
            }
        }
    }
    assert!(!decided[0] && !decided[1] && decided[9], "{decided:?}");
}

/// No pass begins if the head forbids it, and the end of training changes nothing.
#[test]
fn no_pass_begins_before_change_suspension_or_end() {
    let plain = Layers::new(0).head;
    let stands_still = StepStats {
        hold: 3,
        ..plain.stats
    };
    for (head, begins, updates_made) in [
        (plain, true, 1),
        (
            StepMetadata {
                regroup: true,
                ..plain
            },
            false,
            1,
        ),
        (
            StepMetadata {
                stats: stands_still,
                ..plain
            },
            false,
            1,
        ),
        (
            StepMetadata {
                finish: true,
                ..plain
            },
            false,
            0,
        ),
    ] {
        let server = TestCoordinator::of(2, true);
        thread::scope(|scope| {
            let server = &server;
            for number in 0..2 {
                scope.spawn(move || {
                    let mut group = join(server, number, None);
                    let mut work = Layers::new(number);
                    if number == 0 {
                        work.head = head;
                    }
                    let by_need = by_need(PartitionOrder::ByNeed);
                    let outcome = by_need.exchange(&mut group, &mut work, &PairMean, &mut apply);
                    assert!(outcome.ended.is_ok());
                    assert_eq!(!work.seen.is_empty(), begins, "{head:?}");
                    let updates = updates(&work.parameters);
                    let as_often = updates.iter().all(|(times, _)| *times == updates_made);
                    assert!(as_often, "{head:?}: {updates:?}");
                });
            }
        });
    }
}

/// The coordinator ends training while the others are in the middle of a step.
#[test]
fn finish_ends_training_for_all_members() {
    let server = TestCoordinator::of(3, true);
    thread::scope(|scope| {
        let server = &server;
        for number in 0..3 {
            scope.spawn(move || {
                let mut group = join(server, number, None);
                let by_need = by_need(PartitionOrder::ByNeed);
                if number == 0 {
                    return by_need.finish(&mut group).unwrap();
                }
                let mut work = Layers::new(number);
                work.paces.fill(1);
                let outcome = by_need.exchange(&mut group, &mut work, &PairMean, &mut apply);
                assert!(outcome.head.unwrap().finish && outcome.ended.is_ok());
                assert_eq!(work.parameters, Layers::new(number).parameters);
            });
        }
    });
}
