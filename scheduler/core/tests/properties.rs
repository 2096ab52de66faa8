//! Invariants of every plan, on snapshots from random walks: rounds, obedient and failing tasks,
//! lost, drained and returning nodes, orders of owners, and random speeds.

use crate::scene::{Scene, gone, job, tenant};
use muster_core::plan::JobDecision;
use muster_core::policies::name::PolicyName;
use muster_core::policy::{BadNodes, Policy, Slicing};
use muster_core::snapshot::{
    ClusterSnapshot, FailedReport, Fault, Finished, Restarts, SnapshotJob, SnapshotTenant,
    SpeedPoint,
};
use muster_core::{Action, apply, apply_change, check, plan};
use muster_model::fault::NodeFault;
use muster_model::id::{JobId, NodeId};
use muster_model::job::{Intent, JobPhase, JobState};
use muster_model::spec::{AllowedPreemption, Convergence, Ends, Range};
use muster_model::task::{Outcome, Role, TaskState};
use muster_model::wait::{Change, Wait};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::{BTreeMap, BTreeSet};

/// SplitMix64: a small generator with the same sequence on every platform.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((z ^ (z >> 31)) % u64::from(sides.max(1))).expect("below sides")
    }

    fn one_in(&mut self, sides: u32) -> bool {
        self.roll(sides) == 0
    }
}

fn world(dice: &mut Dice) -> ClusterSnapshot {
    let mut scene = Scene::cluster(1 + dice.roll(5), 1 + dice.roll(4));
    let cpu_milli = if dice.one_in(3) { 500 } else { 64_000 };
    scene
        .snapshot
        .nodes
        .iter_mut()
        .for_each(|node| node.cpu_milli = cpu_milli);
    scene.snapshot.tenants = (0..3)
        .map(|number| SnapshotTenant {
            id: tenant(number),
            name: format!("t{number}"),
            gpu_quota: (number > 0).then(|| dice.roll(10)),
            weight: 1.0,
        })
        .collect();
    scene.snapshot.sort();
    scene.snapshot
}

fn submit(snapshot: &mut ClusterSnapshot, dice: &mut Dice, number: u32) {
    let mut new = job(number, &format!("j{number}"), snapshot.now_ms);
    let min = 1 + dice.roll(3);
    new.workers = Range {
        min,
        max: min + dice.roll(5),
    };
    new.ps_shards = if dice.one_in(4) {
        Range::NONE
    } else {
        Range {
            min: 1,
            max: 1 + dice.roll(3),
        }
    };
    new.worker.gpus = 1 + dice.roll(2) * dice.roll(2);
    new.tenant = tenant(dice.roll(3));
    new.priority = [0, 0, 0, 5, -5][dice.roll(5) as usize];
    new.retries = dice.roll(4);
    new.in_place = dice.one_in(2);
    if new.in_place && new.ps_shards.min > 0 && dice.one_in(2) {
        new.ps_shards.min = 2;
        new.ps_shards.max += 1;
        new.replicated = true;
    }
    new.progress.max_steps = (!dice.one_in(4)).then(|| u64::from(1 + dice.roll(50_000)));
    new.progress.convergence = dice.one_in(3).then_some(Convergence {
        relative_loss_drop: 0.02,
        epochs: 2,
    });
    snapshot.jobs.push(new);
}

/// Applies random events between two rounds.
fn happen(snapshot: &mut ClusterSnapshot, dice: &mut Dice) {
    snapshot.now_ms += i64::from(dice.roll(60_000));
    if dice.one_in(6) {
        let index = dice.roll(u32::try_from(snapshot.nodes.len()).expect("few")) as usize;
        let node = &mut snapshot.nodes[index];
        match dice.roll(3) {
            0 => node.up = !node.up,
            1 => node.drained = !node.drained,
            _ => node.up = true,
        }
        let (id, up) = (node.id, node.up);
        let jobs = snapshot.jobs.iter_mut();
        let tasks = jobs.flat_map(|job| job.tasks.iter_mut().chain(&mut job.leaving));
        for task in tasks.filter(|task| !up && task.node == id && !task.state.is_released()) {
            task.state = gone(Outcome::NodeLost);
        }
    }
    for tenant in &mut snapshot.tenants {
        if dice.one_in(12) {
            tenant.gpu_quota = (!dice.one_in(4)).then(|| dice.roll(10));
        }
    }
    for job in &mut snapshot.jobs {
        if dice.one_in(15) {
            job.intent = [
                Intent::Run,
                Intent::Run,
                Intent::Pause,
                Intent::Cancel,
                Intent::Suspend,
            ][dice.roll(5) as usize];
        }
        if dice.one_in(25) {
            let min = 1 + dice.roll(4);
            let max = min + dice.roll(4);
            job.workers = Range { min, max };
        }
        job.leaving
            .retain(|task| !task.state.is_released() && dice.one_in(3));
        for task in &mut job.tasks {
            match task.state {
                TaskState::Assigned if !dice.one_in(4) => task.state = TaskState::Running,
                TaskState::Stopping if !dice.one_in(3) => {
                    let code = if dice.one_in(9) { 75 } else { 0 };
                    task.state = gone(Outcome::exited(code));
                }
                TaskState::Assigned | TaskState::Running | TaskState::Suspended
                    if dice.one_in(60) =>
                {
                    task.state = gone(match dice.roll(4) {
                        0 => Outcome::signalled(9),
                        1 => Outcome::exited(75),
                        2 => Outcome::LeaseExpired,
                        _ => Outcome::exited(1),
                    });
                }
                TaskState::Suspending if !dice.one_in(3) => task.state = TaskState::Suspended,
                TaskState::Ending if !dice.one_in(3) => {
                    task.state = gone(Outcome::exited(0));
                }
                TaskState::Assigned
                | TaskState::Running
                | TaskState::Suspending
                | TaskState::Suspended
                | TaskState::Stopping
                | TaskState::Ending
                | TaskState::Released { .. } => {}
            }
        }
        if job.state == JobState::Running {
            train(job, dice);
        }
    }
    snapshot.jobs.retain(|job| !job.state.phase().is_terminal());
    snapshot.sort();
}

fn train(job: &mut muster_core::snapshot::SnapshotJob, dice: &mut Dice) {
    job.progress.step += u64::from(dice.roll(3_000));
    let epoch = job.progress.step / job.progress.steps_per_epoch;
    if epoch > job.progress.epoch_losses.last().map_or(0, |last| last.0) {
        job.progress
            .epoch_losses
            .push((epoch, 0.2 + 2.0 / (1.0 + epoch as f64)));
    }
    let (workers, ps_shards) = job.size();
    let speed =
        5.0 + f64::from(workers.min(2 + dice.roll(5))) * (0.8 + f64::from(dice.roll(40)) / 100.0);
    job.speeds
        .retain(|point| (point.workers, point.ps_shards) != (workers, ps_shards));
    job.speeds.push(SpeedPoint {
        workers,
        ps_shards,
        steps_per_s: speed,
        samples: u64::from(1 + dice.roll(20)),
    });
    if dice.one_in(40) {
        job.failed = Some(FailedReport {
            message: "diverged".to_owned(),
            retryable: dice.one_in(2),
            lacks: None,
        });
    } else if dice.one_in(40) {
        job.failed = Some(FailedReport {
            message: "no program".to_owned(),
            retryable: true,
            lacks: Some("mpirun".to_owned()),
        });
        job.unfit.extend(job.tasks.first().map(|task| task.node));
    }
    if job
        .progress
        .max_steps
        .is_some_and(|most| job.progress.step >= most)
        || dice.one_in(25)
    {
        job.finished = Some(Finished {
            step: job.progress.step,
            reason: "all epochs done".to_owned(),
        });
    }
}

fn is_wait(action: &Action) -> bool {
    matches!(action, Action::Wait { .. })
}

/// Whether the first plan could not contain a decision of the second one.
///
/// A job that its owner suspends and that has just lost a worker first continues without it: no
/// plan does both. A suspended job that cannot resume stops once its GPUs went to a job that cannot
/// be suspended.
fn is_forced(after: &ClusterSnapshot, decision: &JobDecision) -> bool {
    let job = after.jobs.iter().find(|job| job.id == decision.job);
    job.is_some_and(|job| match decision.action {
        Action::Suspend { .. } => job.intent == Intent::Suspend,
        Action::Stop { .. } => job.state == JobState::Suspended,
        _ => false,
    })
}

/// Checks all invariants in one state. Returns the state after the round.
fn examine(snapshot: &ClusterSnapshot, policy: &Policy) -> Result<ClusterSnapshot, TestCaseError> {
    let (first, _) = plan(snapshot, policy);
    prop_assert_eq!(check(snapshot, &first), Vec::new(), "plan {:#?}", first);

    let mut after = snapshot.clone();
    apply(&mut after, &first).expect("a checked plan can be carried out");
    let (second, _) = plan(&after, policy);
    prop_assert_eq!(check(&after, &second), Vec::new());
    let mut changes: Vec<_> = second
        .decisions
        .iter()
        .filter(|one| !is_wait(&one.action))
        .collect();

    let forced = changes.iter().any(|one| is_forced(&after, one));
    changes.retain(|one| !is_forced(&after, one));
    prop_assert!(
        changes.is_empty(),
        "then {changes:#?}\nfirst {:#?}",
        first
            .decisions
            .iter()
            .filter(|one| !is_wait(&one.action))
            .collect::<Vec<_>>()
    );
    if forced {
        return Ok(after);
    }
    // The smallest change of a waiting job is tried without suspended jobs. It may be wrong until
    // they resume.
    let mut jobs = snapshot.jobs.iter().chain(&after.jobs);
    if jobs.any(|job| job.intent == Intent::Suspend || job.state == JobState::Suspended) {
        return Ok(after);
    }
    let mut settled = after.clone();
    apply(&mut settled, &second).expect("waits");
    let (third, _) = plan(&settled, policy);
    prop_assert!(
        third.decisions.is_empty(),
        "waits do not settle: {third:#?}"
    );
    // Beside an excluded node with running jobs, the smallest change can be too optimistic. The
    // same holds beside GPUs in external use, where a job outside its range may take the released
    // capacity.
    if !settled
        .nodes
        .iter()
        .any(|node| node.excluded || node.cordoned || !node.taken.is_empty())
    {
        waits_are_true(&settled, policy)?;
    }
    Ok(after)
}

fn waits_are_true(snapshot: &ClusterSnapshot, policy: &Policy) -> Result<(), TestCaseError> {
    // With more nodes, more could be excluded at once. The smallest change assumes the nodes that
    // are open now.
    let bad_nodes = BadNodes {
        most_share: 0.0,
        ..policy.bad_nodes
    };
    let policy = &Policy {
        bad_nodes,
        ..policy.clone()
    };
    for job in &snapshot.jobs {
        let rests = matches!(job.state.phase(), JobPhase::Queued | JobPhase::Paused);
        prop_assert_eq!(rests, job.waiting.is_some(), "job {:?}", job);
        let Some(waiting) = &job.waiting else {
            continue;
        };
        if let Wait::WaitingForPreemptedWorkloads { jobs } = &waiting.why {
            prop_assert!(!jobs.is_empty());
            for id in jobs {
                let other = snapshot
                    .jobs
                    .iter()
                    .find(|other| other.id == *id)
                    .expect("is there");
                let stops = matches!(other.state, JobState::Stopping { .. } | JobState::Suspended);
                prop_assert!(stops || !other.leaving.is_empty(), "{other:?}");
            }
        }
        let Some(change) = &waiting.smallest_change else {
            continue;
        };
        let mut changed = apply_change(snapshot, job.id, change).expect("names what is there");
        // The change of a job that could never start makes a start possible. The job may still have
        // to wait for others.
        if waiting.why.is_for_good() || !starts_alone(snapshot, job.id, policy) {
            changed.jobs.retain(|one| one.id == job.id);
        }
        let rounds = if change.makes_others_go() { 3 } else { 1 };
        let starts = (0..rounds).any(|_| starts_in_a_round(&mut changed, job.id, policy));
        if *change == Change::Resume {
            let after = changed
                .jobs
                .iter()
                .find(|one| one.id == job.id)
                .expect("is there");
            prop_assert!(after.state != JobState::Paused);
        } else {
            prop_assert!(starts, "{change:?} does not start {job:#?}");
        }
    }
    Ok(())
}

/// Whether the job starts at once on an otherwise empty cluster.
fn starts_alone(snapshot: &ClusterSnapshot, job: JobId, policy: &Policy) -> bool {
    let mut alone = snapshot.clone();
    alone.jobs.retain(|one| one.id == job);
    starts_in_a_round(&mut alone, job, policy)
}

/// Plans and applies a round, then ends the stopping tasks. Returns whether the job starts.
fn starts_in_a_round(snapshot: &mut ClusterSnapshot, job: JobId, policy: &Policy) -> bool {
    let (plan, _) = plan(snapshot, policy);
    assert_eq!(check(snapshot, &plan), Vec::new());
    apply(snapshot, &plan).expect("a checked plan");
    let jobs = &mut snapshot.jobs;
    jobs.iter_mut().for_each(|job| job.leaving.clear());
    for task in jobs.iter_mut().flat_map(|job| &mut job.tasks) {
        if task.state == TaskState::Stopping {
            task.state = gone(Outcome::exited(0));
        }
    }
    jobs.retain(|job| !job.state.phase().is_terminal());
    plan.decisions
        .iter()
        .any(|one| one.job == job && matches!(one.action, Action::Start { .. }))
}

/// Widest ranges of workers and shards that owners have set so far, by job.
type Ranges = BTreeMap<JobId, [Range; 2]>;

fn widen(ranges: &mut Ranges, snapshot: &ClusterSnapshot) {
    for job in &snapshot.jobs {
        let wanted = [job.workers, job.ps_shards];
        let widest = ranges.entry(job.id).or_insert(wanted);
        for (range, wanted) in widest.iter_mut().zip(wanted) {
            range.min = range.min.min(wanted.min);
            range.max = range.max.max(wanted.max);
        }
    }
}

/// Checks that gangs with tasks are complete.
fn gangs_are_whole(snapshot: &ClusterSnapshot, ranges: &Ranges) -> Result<(), TestCaseError> {
    for job in snapshot
        .jobs
        .iter()
        .filter(|job| job.state.phase().has_tasks())
    {
        let (workers, ps_shards) = job.size();
        let mut ranks: Vec<Role> = job.tasks.iter().map(|task| task.role).collect();
        ranks.sort_unstable();
        if job.in_place {
            // A departed rank leaves a gap that the next joining worker fills.
            ranks.dedup();
            prop_assert_eq!(ranks.len(), job.tasks.len());
            let chief = Role::Worker { rank: 0 };
            prop_assert!(ranks.contains(&chief));
            let [range, of_shards] = ranges[&job.id];
            prop_assert!(workers >= range.min && workers <= range.max);
            // A replica serves in place of a lost shard, and a shard that its node refused does not
            // exist.
            let least = of_shards.min.min(1);
            prop_assert!(ps_shards >= least && ps_shards <= of_shards.max);
            continue;
        }
        let whole = (0..workers)
            .map(|rank| Role::Worker { rank })
            .chain((0..ps_shards).map(|index| Role::PsShard { index }));
        prop_assert_eq!(ranks, whole.collect::<Vec<_>>());
    }
    Ok(())
}

/// Checks that the same snapshot gives the same bytes, also after serialisation.
fn replays(snapshot: &ClusterSnapshot, policy: &Policy) -> Result<(), TestCaseError> {
    let stored = serde_json::to_vec(snapshot).expect("JSON");
    let read: ClusterSnapshot = serde_json::from_slice(&stored).expect("JSON");
    let [first, second] = [snapshot, &read].map(|snapshot| {
        let planned = plan(snapshot, policy);
        serde_json::to_vec(&planned).expect("JSON")
    });
    prop_assert_eq!(first, second);
    Ok(())
}

/// Checks that a round with the memory of the last one gives the same plan and report as one
/// without.
fn remembers(
    snapshot: &ClusterSnapshot,
    policy: &Policy,
    memory: &mut muster_core::EstimateCache,
) -> Result<(), TestCaseError> {
    let anew = plan(snapshot, policy);
    let again = muster_core::plan_again(snapshot, policy, memory);
    let [anew, again] = [anew, again].map(|planned| serde_json::to_string(&planned).expect("JSON"));
    prop_assert_eq!(anew, again);
    Ok(())
}

/// Returns the state after a valid round. A newly suspended job is no longer in the policy's
/// problem, so the policy may decide otherwise in the next round.
fn carried_out(
    snapshot: &ClusterSnapshot,
    policy: &Policy,
) -> Result<ClusterSnapshot, TestCaseError> {
    let (plan, _) = plan(snapshot, policy);
    prop_assert_eq!(check(snapshot, &plan), Vec::new(), "plan {:#?}", plan);
    let mut after = snapshot.clone();
    apply(&mut after, &plan).expect("a checked plan can be carried out");
    Ok(after)
}

/// Runs a random walk of rounds and events, with all invariants checked in every state.
fn walk(share: PolicyName, seed: u64, rounds: u32) -> Result<(), TestCaseError> {
    walk_under(&Policy::named(share), seed, rounds)
}

fn walk_under(policy: &Policy, seed: u64, rounds: u32) -> Result<(), TestCaseError> {
    walk_where(policy, seed, rounds, |_| ())
}

/// As [`walk_under`], with additional events between the rounds.
fn walk_where(
    policy: &Policy,
    seed: u64,
    rounds: u32,
    also: impl FnMut(&mut ClusterSnapshot),
) -> Result<(), TestCaseError> {
    walk_with(policy, (seed, rounds), |_| (), also)
}

/// As [`walk_where`], with a change of each submitted job.
fn walk_with(
    policy: &Policy,
    (seed, rounds): (u64, u32),
    mut new: impl FnMut(&mut SnapshotJob),
    mut also: impl FnMut(&mut ClusterSnapshot),
) -> Result<(), TestCaseError> {
    let mut dice = Dice(seed);
    let mut snapshot = world(&mut dice);
    let mut submitted = 0;
    let mut memory = muster_core::EstimateCache::default();
    let mut ranges = Ranges::new();
    for round in 0..rounds {
        for _ in 0..dice.roll(4) {
            submit(&mut snapshot, &mut dice, submitted);
            new(snapshot.jobs.last_mut().expect("just submitted"));
            submitted += 1;
        }
        snapshot.round = u64::from(round);
        snapshot.sort();
        widen(&mut ranges, &snapshot);
        remembers(&snapshot, policy, &mut memory)?;
        snapshot = match policy.slicing {
            None => examine(&snapshot, policy)?,
            Some(_) => carried_out(&snapshot, policy)?,
        };
        gangs_are_whole(&snapshot, &ranges)?;
        happen(&mut snapshot, &mut dice);
        also(&mut snapshot);
    }
    replays(&snapshot, policy)
}

/// Charges nodes with faults, and lets administrators clear exclusions.
fn charge(snapshot: &mut ClusterSnapshot, dice: &mut Dice) {
    let (now_ms, jobs) = (snapshot.now_ms, &snapshot.jobs);
    for node in &mut snapshot.nodes {
        if dice.one_in(8) {
            node.excluded = false;
            node.faults.clear();
        }
        if dice.one_in(3) {
            let job = jobs.get(dice.roll(6) as usize).map(|job| job.id);
            let what = NodeFault::Killed { signal: 9 };
            let at_ms = now_ms;
            node.faults.push(Fault { job, what, at_ms });
        }
    }
}

/// States for each waiting job whether it may be stopped, lets programs lose work by restarts, and
/// gives nodes another kind of GPU.
fn restrict_stops(snapshot: &mut ClusterSnapshot, dice: &mut Dice) {
    for node in &mut snapshot.nodes {
        let number = node.id.0.as_u128();
        node.gpu_model = format!("kind-{}", number % 2);
    }
    for job in &mut snapshot.jobs {
        if job.state == JobState::Queued && job.revision == 0 {
            job.preemption.allowed = match dice.roll(4) {
                0 => AllowedPreemption::Never,
                1 => AllowedPreemption::Suspend,
                _ => AllowedPreemption::Restart,
            };
            job.preemption.min_runtime = dice.roll(3) * 30;
        }
        if job.command.is_some() && job.revision > 1 {
            job.restarts = Some(Restarts {
                resumed: 1,
                lost_steps: f64::from(dice.roll(2) * 100),
                ..Restarts::default()
            });
        }
    }
}

/// Changes the range of shards of jobs that are resized in place, and lets nodes refuse new shards.
fn reshard(snapshot: &mut ClusterSnapshot, dice: &mut Dice) {
    let jobs = snapshot.jobs.iter_mut();
    for job in jobs.filter(|job| job.in_place && job.ps_shards.min > 0) {
        if dice.one_in(5) {
            let min = 1 + u32::from(job.replicated) + dice.roll(3);
            let max = min + dice.roll(3);
            job.ps_shards = Range { min, max };
        }
        for task in &mut job.tasks {
            let is_joining = !task.is_worker() && task.state == TaskState::Assigned;
            if is_joining && dice.one_in(5) {
                task.state = gone(Outcome::refused("OutOfcpu".to_owned()));
            }
        }
    }
}

/// Puts random GPUs that no job holds into external use.
fn occupy(snapshot: &mut ClusterSnapshot, dice: &mut Dice) {
    let tasks = snapshot.jobs.iter();
    let tasks = tasks.flat_map(|job| job.tasks.iter().chain(&job.leaving));
    let held: BTreeSet<(NodeId, u32)> = tasks
        .filter(|task| task.state.holds_gpus())
        .flat_map(|task| task.gpus.iter().map(|&gpu| (task.node, gpu)))
        .collect();
    for node in snapshot.nodes.iter_mut() {
        let (id, gpus) = (node.id, node.gpus);
        let free = (0..gpus).filter(|&gpu| !held.contains(&(id, gpu)));
        node.taken = free.filter(|_| dice.one_in(3)).collect();
    }
}

/// Returns the configuration: the same walks in every run, so that a failure points to the change
/// under test. A change of how jobs are chosen, placed or time-sliced should also run with
/// `MUSTER_WALKS=100000`, which draws that many random walks.
fn cases(cases: u32) -> ProptestConfig {
    let search = std::env::var("MUSTER_WALKS").ok();
    let walks = search.map(|walks| walks.parse().expect("MUSTER_WALKS is a number of walks"));
    ProptestConfig {
        cases: walks.unwrap_or(cases),
        rng_seed: match walks {
            Some(_) => RngSeed::Random,
            None => RngSeed::Fixed(0x4d75_7374_6572),
        },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Seeds with suspended jobs in which the next round once decided otherwise.
#[test]
fn suspended_jobs_do_not_change_later_decisions() {
    walk(PolicyName::Muster, 14_273_769_063_524_382_690, 6).expect("muster");
    walk(PolicyName::Muster, 17_992_944_636_958_434_351, 9).expect("muster");
    walk(PolicyName::Optimus, 12_808_608_001_648_518_126, 9).expect("optimus");
    for share in [
        PolicyName::Muster,
        PolicyName::Optimus,
        PolicyName::Tiresias,
    ] {
        walk(share, 14_476_344_706_734_816_563, 9)
            .unwrap_or_else(|error| panic!("{}: {error}", share.as_str()));
    }
}

proptest! {
    #![proptest_config(cases(800))]

    #[test]
    fn plans_are_valid_and_stable_under_muster(seed in any::<u64>(), rounds in 1_u32..12) {
        walk(PolicyName::Muster, seed, rounds)?;
    }

    #[test]
    fn plans_are_valid_and_stable_under_optimus(seed in any::<u64>(), rounds in 1_u32..12) {
        walk(PolicyName::Optimus, seed, rounds)?;
    }

    #[test]
    fn plans_are_valid_and_stable_under_tiresias(seed in any::<u64>(), rounds in 1_u32..12) {
        walk(PolicyName::Tiresias, seed, rounds)?;
    }
}

/// Makes every second job one without GPUs: of the engine if it can be resized in place, else a
/// command.
fn take_gpus(job: &mut SnapshotJob, dice: &mut Dice) {
    if dice.one_in(2) {
        job.worker.gpus = 0;
        job.worker.cpu_milli = u64::from(1 + dice.roll(3)) * 150;
        job.constraints.no_gpus = true;
        if !job.in_place {
            job.command = Some(Ends::AllWorkers);
        }
        fix_size(job);
    }
}

/// Undoes ranges that the document of a job without GPUs cannot have.
fn fix_size(job: &mut SnapshotJob) {
    if job.worker.gpus == 0 {
        job.workers.max = job.workers.min;
        if job.command.is_some() {
            job.ps_shards.max = job.ps_shards.min;
        }
    }
}

/// A random walk in which every second job uses no GPUs.
fn walk_without_gpus(policy: &Policy, seed: u64, rounds: u32) -> Result<(), TestCaseError> {
    let mut dice = Dice(seed ^ 0xc9);
    walk_with(
        policy,
        (seed, rounds),
        |job| take_gpus(job, &mut dice),
        |snapshot| snapshot.jobs.iter_mut().for_each(fix_size),
    )
}

/// Decisions on jobs with GPUs: the job, and the number of its new tasks with GPUs. `None` is a
/// decision without a start.
fn decisions_on_gpus(snapshot: &ClusterSnapshot, policy: &Policy) -> Vec<(JobId, Option<usize>)> {
    let (plan, _) = plan(snapshot, policy);
    let decisions = plan.decisions.iter().filter(|one| !is_wait(&one.action));
    let on_gpus = decisions.filter(|one| {
        let job = snapshot.jobs.iter().find(|job| job.id == one.job);
        job.is_some_and(|job| !job.is_cpu_only())
    });
    let mut on_gpus: Vec<_> = on_gpus
        .map(|one| match &one.action {
            Action::Start { tasks, .. } => {
                let with_gpus = tasks.iter().filter(|task| !task.gpus.is_empty());
                (one.job, Some(with_gpus.count()))
            }
            _ => (one.job, None),
        })
        .collect();
    on_gpus.sort_unstable();
    on_gpus
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn jobs_without_gpus_change_no_decision_on_gpus(
        seed in any::<u64>(),
        rounds in 1_u32..14,
        slices in any::<bool>(),
    ) {
        let slicing = slices.then_some(Slicing { quantum_ms: 20_000, suspended_per_gpu: 2 });
        let policy = Policy { slicing, ..Policy::named(PolicyName::Muster) };
        let mut dice = Dice(seed ^ 0xc9);
        walk_with(&policy, (seed, rounds), |job| take_gpus(job, &mut dice), |snapshot| {
            snapshot.jobs.iter_mut().for_each(fix_size);
            // CPU is ample, so that GPUs alone decide.
            let nodes = &mut snapshot.nodes;
            nodes.iter_mut().for_each(|node| node.cpu_milli = 64_000_000);
            let mut without = snapshot.clone();
            without.jobs.retain(|job| !job.is_cpu_only());
            let [with, without] = [snapshot, &mut without];
            assert_eq!(decisions_on_gpus(with, &policy), decisions_on_gpus(without, &policy));
        })?;
    }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn plans_with_jobs_without_gpus_are_valid_and_stable(
        seed in any::<u64>(),
        rounds in 1_u32..14,
        share in 0_usize..4,
        slices in any::<bool>(),
    ) {
        let share = [
            PolicyName::Muster,
            PolicyName::Optimus,
            PolicyName::Tiresias,
            PolicyName::Fifo,
        ][share];
        let slicing = slices.then_some(Slicing { quantum_ms: 20_000, suspended_per_gpu: 2 });
        let policy = Policy { slicing, ..Policy::named(share) };
        walk_without_gpus(&policy, seed, rounds)?;
    }
}

proptest! {
    // Some policies solve linear programmes or search for seconds.
    #![proptest_config(cases(10))]

    #[test]
    fn plans_with_jobs_without_gpus_are_valid_under_every_policy(
        seed in any::<u64>(),
        rounds in 1_u32..10,
    ) {
        for &share in PolicyName::ALL {
            let rounds = if share == PolicyName::Pollux { rounds.min(2) } else { rounds };
            walk_without_gpus(&Policy::named(share), seed, rounds)?;
        }
    }
}

proptest! {
    #![proptest_config(cases(500))]

    /// Suspensions of time slicing beside all decisions of the policy.
    #[test]
    fn plans_with_time_slicing_are_valid(seed in any::<u64>(), rounds in 1_u32..16, muster in any::<bool>()) {
        let share = if muster { PolicyName::Muster } else { PolicyName::Fifo };
        let slicing = Slicing { quantum_ms: 20_000, suspended_per_gpu: 2 };
        let policy = Policy { slicing: Some(slicing), ..Policy::named(share) };
        walk_under(&policy, seed, rounds)?;
    }
}

proptest! {
    // Some policies solve linear programmes or search for seconds.
    #![proptest_config(cases(20))]

    #[test]
    fn plans_are_valid_and_stable_under_every_policy(seed in any::<u64>(), rounds in 1_u32..12) {
        for &share in PolicyName::ALL {
            let rounds = if share == PolicyName::Pollux { rounds.min(2) } else { rounds };
            walk(share, seed, rounds)?;
        }
    }
}

proptest! {
    #![proptest_config(cases(400))]

    /// Nodes are excluded and taken back during all other events.
    #[test]
    fn plans_on_bad_nodes_are_valid_and_settle(seed in any::<u64>(), rounds in 1_u32..12, slices in any::<bool>()) {
        let bad_nodes = BadNodes { faults: 1, window_ms: 120_000, most_share: 0.34 };
        let slicing = slices.then_some(Slicing { quantum_ms: 20_000, suspended_per_gpu: 2 });
        let policy = Policy { bad_nodes, slicing, ..Policy::named(PolicyName::Muster) };
        let mut dice = Dice(!seed);
        walk_where(&policy, seed, rounds, |snapshot| charge(snapshot, &mut dice))?;
    }
}

proptest! {
    #![proptest_config(cases(250))]

    /// Machines with divided GPUs, some of them under running jobs. No task gets two parts.
    #[test]
    fn plans_on_gpu_parts_are_valid(seed in any::<u64>(), rounds in 2_u32..12, muster in any::<bool>()) {
        let share = if muster { PolicyName::Muster } else { PolicyName::Fifo };
        let slicing = Slicing { quantum_ms: 20_000, suspended_per_gpu: 2 };
        let policy = Policy { slicing: Some(slicing), ..Policy::named(share) };
        let mut dice = Dice(!seed);
        walk_where(&policy, seed, rounds, |snapshot| {
            let divided = snapshot.nodes.iter_mut().filter(|_| dice.one_in(4));
            divided.for_each(|node| node.gpu_model = "H100-MIG-1g.10gb".to_owned());
        })?;
    }
}

proptest! {
    #![proptest_config(cases(400))]

    /// Documents restrict stops, programs have restarted before, and nodes have several GPU kinds.
    #[test]
    fn plans_keep_what_documents_say_of_stops(seed in any::<u64>(), rounds in 2_u32..12, muster in any::<bool>(), slices in any::<bool>()) {
        let share = if muster { PolicyName::Muster } else { PolicyName::Srtf };
        let slicing = slices.then_some(Slicing { quantum_ms: 20_000, suspended_per_gpu: 2 });
        let policy = Policy { slicing, ..Policy::named(share) };
        let mut dice = Dice(!seed);
        walk_where(&policy, seed, rounds, |snapshot| restrict_stops(snapshot, &mut dice))?;
    }
}

proptest! {
    #![proptest_config(cases(400))]

    /// Shards are added and removed, on nodes that are drained and lost as in all walks.
    #[test]
    fn plans_that_change_shards_are_valid(seed in any::<u64>(), rounds in 2_u32..12, muster in any::<bool>()) {
        let share = if muster { PolicyName::Muster } else { PolicyName::Fifo };
        let slicing = Slicing { quantum_ms: 20_000, suspended_per_gpu: 2 };
        let policy = Policy { slicing: Some(slicing), ..Policy::named(share) };
        let mut dice = Dice(!seed);
        walk_where(&policy, seed, rounds, |snapshot| reshard(snapshot, &mut dice))?;
    }
}

proptest! {
    #![proptest_config(cases(250))]

    /// Nodes with GPUs in external use, whose number changes.
    #[test]
    fn plans_beside_external_use_are_valid_and_settle(seed in any::<u64>(), rounds in 2_u32..12, muster in any::<bool>(), slices in any::<bool>()) {
        let share = if muster { PolicyName::Muster } else { PolicyName::Fifo };
        let slicing = slices.then_some(Slicing { quantum_ms: 20_000, suspended_per_gpu: 2 });
        let policy = Policy { slicing, ..Policy::named(share) };
        let mut dice = Dice(!seed);
        walk_where(&policy, seed, rounds, |snapshot| occupy(snapshot, &mut dice))?;
    }
}
