//! Packing: which jobs share a GPU, when they are separated, and that nothing else changes.

use crate::scene::{Scene, company, job, tenant};
use muster_core::policies::name::PolicyName;
use muster_core::policy::{Packing, Policy, Slicing};
use muster_core::snapshot::{ClusterSnapshot, SnapshotJob, SnapshotTenant};
use muster_core::{Action, apply, check, plan, promote_guests};
use muster_model::job::{Intent, JobPhase, JobState};
use muster_model::packing::{Company, Hurt, Rate, UsageReport};
use muster_model::spec::Range;
use muster_model::task::{Outcome, TaskEvent, TaskState};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const QUANTUM_MS: i64 = 10_000;
const TICK_MS: i64 = 1_000;
const GIB: u64 = 1 << 30;

/// Simulated cluster with a clock, on which packed jobs slow each other down and are measured.
struct Course {
    snapshot: ClusterSnapshot,
    policy: Policy,
    /// Relative rate of each of two jobs on a GPU.
    together: f64,
    /// Memory in bytes by job name.
    memory: BTreeMap<String, u64>,
    /// Milliseconds of work by job name, and of these beside another job.
    worked: BTreeMap<String, i64>,
    shared: BTreeMap<String, i64>,
    packed: u32,
    /// Reasons of stops, suspensions and resumptions, in order.
    said: Vec<String>,
    /// If above 0, tasks take a random number of rounds to obey.
    slowness: u64,
    /// Whether nodes report the use of GPUs.
    tells: bool,
    /// Quarters of its memory that a suspended job keeps.
    keeps: u64,
}

impl Course {
    fn new(gpus: u32) -> Self {
        let mut snapshot = Scene::cluster(1, gpus).snapshot;
        snapshot.nodes[0].gpu_memory_bytes = 4 * GIB;
        Self {
            snapshot,
            policy: Policy {
                slicing: Some(Slicing {
                    quantum_ms: QUANTUM_MS as u64,
                    suspended_per_gpu: 3,
                }),
                packing: Some(Packing::default()),
                ..Policy::named(PolicyName::Fifo)
            },
            together: 0.7,
            memory: BTreeMap::new(),
            worked: BTreeMap::new(),
            shared: BTreeMap::new(),
            packed: 0,
            said: Vec::new(),
            slowness: 0,
            tells: true,
            keeps: 0,
        }
    }

    fn submit(&mut self, name: &str) -> &mut SnapshotJob {
        let number = u32::try_from(self.memory.len()).expect("few");
        let mut new = job(number, name, self.snapshot.now_ms + i64::from(number));
        new.workers = Range { min: 1, max: 1 };
        new.ps_shards = Range::NONE;
        new.progress.max_steps = None;
        self.memory.insert(name.to_owned(), GIB);
        self.snapshot.jobs.push(new);
        self.snapshot.jobs.last_mut().expect("just added")
    }

    fn find(&mut self, name: &str) -> &mut SnapshotJob {
        let mut jobs = self.snapshot.jobs.iter_mut();
        jobs.find(|job| job.name == name).expect("is there")
    }

    fn settle(&mut self) {
        for _ in 0..20 {
            if self.round() {
                return;
            }
        }
        panic!("twenty rounds did not settle {:#?}", self.snapshot.jobs);
    }

    /// Runs one round. Returns whether nothing is left to do.
    fn round(&mut self) -> bool {
        let (plan, _) = plan(&self.snapshot, &self.policy);
        let wrong = check(&self.snapshot, &plan);
        assert_eq!(wrong, Vec::new(), "{plan:#?} {:#?}", self.snapshot.jobs);
        for decision in &plan.decisions {
            match &decision.action {
                Action::Continue { why, beside, .. } => {
                    self.packed += u32::from(beside.is_some());
                    self.said.push(why.clone());
                }
                Action::Suspend { why } | Action::Stop { why, .. } => self.said.push(why.clone()),
                _ => {}
            }
        }
        let quiet = plan
            .decisions
            .iter()
            .all(|one| matches!(one.action, Action::Wait { .. }));
        apply(&mut self.snapshot, &plan).expect("a checked plan");
        let jobs = &mut self.snapshot.jobs;
        jobs.retain(|job| !job.state.phase().is_terminal());
        lanes_are_held_once(&self.snapshot);
        let obeyed = self.obey();
        promote_guests(&mut self.snapshot);
        lanes_are_held_once(&self.snapshot);
        quiet && !obeyed
    }

    /// Whether a task obeys its order in this round.
    fn is_prompt(slowness: &mut u64) -> bool {
        if *slowness == 0 {
            return true;
        }
        // Linear congruential generator with Knuth's constants; its high bits are random enough.
        let next = slowness.wrapping_mul(6_364_136_223_846_793_005);
        *slowness = next.wrapping_add(1_442_695_040_888_963_407).max(1);
        (*slowness >> 60) < 6
    }

    fn obey(&mut self) -> bool {
        let mut any = false;
        for task in self.snapshot.jobs.iter_mut().flat_map(|job| &mut job.tasks) {
            let event = match task.state {
                TaskState::Assigned => TaskEvent::Up,
                TaskState::Suspending => TaskEvent::StoodStill,
                TaskState::Stopping | TaskState::Ending => TaskEvent::Gone {
                    outcome: Outcome::exited(0),
                },
                _ => continue,
            };
            any = true;
            if !Self::is_prompt(&mut self.slowness) {
                continue;
            }
            task.state = task.state.clone().apply(event).expect("it obeys");
        }
        any
    }

    fn measure(&mut self) {
        let now_ms = self.snapshot.now_ms;
        let company: Vec<Option<Company>> = {
            let jobs = self.snapshot.jobs.iter();
            jobs.map(|job| company(&self.snapshot, job)).collect()
        };
        for (job, company) in self.snapshot.jobs.iter_mut().zip(company) {
            if job.state == JobState::Suspended && job.are_workers_suspended() && self.tells {
                let report = UsageReport {
                    memory_bytes: Some(self.memory[&job.name] / 4 * self.keeps),
                    stands: true,
                    ..UsageReport::default()
                };
                let known = std::mem::take(job.measured.get_or_insert_default());
                let mut known = known.in_revision(job.revision);
                known.take_usage(&report, company, now_ms);
                job.measured = Some(Box::new(known));
            }
            if job.state != JobState::Running || job.size().0 != 1 {
                continue;
            }
            *self.worked.entry(job.name.clone()).or_default() += TICK_MS;
            let rate = match company {
                Some(_) => {
                    *self.shared.entry(job.name.clone()).or_default() += TICK_MS;
                    10.0 * self.together
                }
                None => 10.0,
            };
            let known = std::mem::take(job.measured.get_or_insert_default());
            let mut known = known.in_revision(job.revision);
            known.take_rate(rate, company, now_ms);
            let report = UsageReport {
                memory_bytes: Some(self.memory[&job.name]),
                busy: 0.4,
                over_ms: TICK_MS as u64,
                ..UsageReport::default()
            };
            if self.tells {
                known.take_usage(&report, company, now_ms);
            }
            job.measured = Some(Box::new(known));
        }
    }

    fn run(&mut self, ms: i64) {
        let until_ms = self.snapshot.now_ms + ms;
        while self.snapshot.now_ms < until_ms {
            match self.slowness {
                0 => self.settle(),
                _ => drop(self.round()),
            }
            self.measure();
            self.snapshot.now_ms += TICK_MS;
        }
    }

    fn worked(&self, name: &str) -> i64 {
        self.worked.get(name).copied().unwrap_or(0)
    }

    fn shared(&self, name: &str) -> i64 {
        self.shared.get(name).copied().unwrap_or(0)
    }

    fn is_shared(&self) -> bool {
        let mut jobs = self.snapshot.jobs.iter();
        jobs.any(|job| job.state == JobState::Running && company(&self.snapshot, job).is_some())
    }
}

fn lanes_are_held_once(snapshot: &ClusterSnapshot) {
    let mut held = BTreeSet::new();
    for task in snapshot.jobs.iter().flat_map(SnapshotJob::held_tasks) {
        for &gpu in task.gpus.iter().filter(|_| task.state.holds_gpus()) {
            let lane = (task.node, gpu, task.lane);
            assert!(task.lane <= 1 && held.insert(lane), "{:#?}", snapshot.jobs);
        }
    }
}

fn pair(course: &mut Course) {
    course.submit("a");
    course.submit("b");
    course.run(6 * QUANTUM_MS);
}

/// Returns the names of the host and of the guest.
fn lanes(course: &Course) -> [String; 2] {
    let mut jobs: Vec<&SnapshotJob> = course.snapshot.jobs.iter().collect();
    jobs.sort_by_key(|job| job.tasks[0].lane);
    let [host, guest] = jobs.as_slice() else {
        panic!("not two: {jobs:#?}");
    };
    [host.name.clone(), guest.name.clone()]
}

#[test]
fn pair_that_pays_stays_together() {
    let mut course = Course::new(1);
    pair(&mut course);
    assert!(course.is_shared(), "{:#?}", course.said);
    assert_eq!(course.packed, 1, "{:#?}", course.said);
    let before = (course.worked("a"), course.worked("b"));
    course.run(10 * QUANTUM_MS);
    let after = (course.worked("a"), course.worked("b"));
    let all = 10 * QUANTUM_MS;
    assert_eq!((after.0 - before.0, after.1 - before.1), (all, all));
    let (_, report) = plan(&course.snapshot, &course.policy);
    for job in &report.jobs {
        assert!(job.why.contains("together 1.40 of alone"), "{}", job.why);
        assert!(job.why.contains("1.00 + 1.00 of 4.00 GiB"), "{}", job.why);
    }
}

#[test]
fn jobs_are_packed_only_after_measurement_alone() {
    let mut course = Course::new(1);
    pair(&mut course);
    let first = course.said.iter().position(|why| why.contains("beside"));
    assert!(
        first.expect("packed") >= 1,
        "a turn before: {:#?}",
        course.said
    );
    assert!(course.worked("a") - course.shared("a") >= QUANTUM_MS);
    assert!(course.worked("b") - course.shared("b") >= QUANTUM_MS);
}

#[test]
fn pair_that_does_not_pay_is_separated_with_back_off() {
    let mut course = Course::new(1);
    course.together = 0.5;
    pair(&mut course);
    let parted = course.said.iter().find(|why| why.contains("no longer"));
    let parted = parted.expect("they were tried");
    assert!(parted.contains("together 1.00 of alone"), "{parted}");
    let again_ms = Packing::default().again_ms as i64;
    course.run(again_ms - 10 * QUANTUM_MS);
    assert_eq!(course.packed, 1, "{:#?}", course.said);
    let shared = course.shared("a");
    assert!(shared <= 10 * TICK_MS, "a trial is short: {shared}");
    let (a, b) = (course.worked("a"), course.worked("b"));
    assert!((a - b).abs() <= 2 * QUANTUM_MS, "turns go on: {a} and {b}");
    course.together = 0.8;
    course.run(12 * QUANTUM_MS);
    assert_eq!(course.packed, 2, "what was true then may not be now");
    assert!(course.is_shared());
}

#[test]
fn pair_is_separated_when_its_rates_fall() {
    let mut course = Course::new(1);
    pair(&mut course);
    assert!(course.is_shared());
    course.together = 0.45;
    course.run(3 * QUANTUM_MS);
    assert!(!course.is_shared(), "{:#?}", course.said);
    course.run(20 * QUANTUM_MS);
    assert_eq!(course.packed, 1, "nothing flaps: {:#?}", course.said);
}

#[test]
fn memory_limit_prevents_or_ends_packing() {
    let mut course = Course::new(1);
    course.submit("a");
    course.submit("b");
    *course.memory.get_mut("a").expect("there") = 3 * GIB;
    course.run(20 * QUANTUM_MS);
    assert_eq!(course.packed, 0, "3 + 1 of 4 GiB leave nothing to spare");

    let mut course = Course::new(1);
    pair(&mut course);
    assert!(course.is_shared());
    *course.memory.get_mut("b").expect("there") = 5 * GIB / 2;
    course.run(2 * TICK_MS);
    assert!(!course.is_shared(), "{:#?}", course.said);
    course.run(20 * QUANTUM_MS);
    assert_eq!(course.packed, 1, "what it once needed it may need again");

    let mut course = Course::new(1);
    course.snapshot.nodes[0].gpu_memory_bytes = 0;
    pair(&mut course);
    assert_eq!(course.packed, 0, "nobody knows how much there is");
}

#[test]
fn exclusive_unequal_or_wide_jobs_are_not_packed() {
    // Each case on a cluster on which the same jobs are packed without the change.
    for (change, gpus, turns) in [
        (
            (|job: &mut SnapshotJob| job.priority = 10) as fn(&mut SnapshotJob),
            1,
            true,
        ),
        (|job| job.exclusive = true, 1, false),
        (|job| job.workers = Range { min: 2, max: 2 }, 2, true),
    ] {
        let mut course = Course::new(gpus);
        course.submit("a");
        course.submit("b");
        if gpus == 2 {
            course.submit("c");
        }
        course.run(20 * QUANTUM_MS);
        assert!(course.packed > 0, "{:#?}", course.said);

        let mut course = Course::new(gpus);
        change(course.submit("a"));
        change(course.submit("b"));
        if gpus == 1 {
            course.find("b").priority = 0;
        }
        course.run(20 * QUANTUM_MS);
        assert_eq!(course.packed, 0, "{:#?}", course.said);
        assert_eq!(!course.said.is_empty(), turns, "{:#?}", course.said);
    }
    // A pair is separated when one of its jobs becomes such a job.
    for change in [
        (|job: &mut SnapshotJob| job.priority = 10) as fn(&mut SnapshotJob),
        |job| job.exclusive = true,
    ] {
        let mut course = Course::new(1);
        pair(&mut course);
        assert!(course.is_shared());
        change(course.find("a"));
        course.settle();
        assert!(!course.is_shared());
    }
    let mut course = Course::new(1);
    course.policy.packing = None;
    pair(&mut course);
    assert_eq!(course.packed, 0, "it was not asked for");
}

#[test]
fn guest_inherits_gpu_when_host_ends() {
    let mut course = Course::new(1);
    pair(&mut course);
    assert!(course.is_shared());
    let [host, guest] = lanes(&course);
    let guest = guest.as_str();
    course.find(&host).intent = Intent::Cancel;
    let before = course.worked(guest);
    course.run(QUANTUM_MS / 2);
    assert_eq!(
        course.worked(guest) - before,
        QUANTUM_MS / 2,
        "no step is lost"
    );
    assert_eq!(course.find(guest).tasks[0].lane, 0);
    course.submit("late");
    course.run(10 * QUANTUM_MS);
    assert!(course.worked("late") > 0);
    assert!(course.is_shared(), "and may be packed in its time");
}

#[test]
fn third_job_gets_its_slice_beside_a_pair() {
    let mut course = Course::new(1);
    pair(&mut course);
    course.submit("c");
    course.run(30 * QUANTUM_MS);
    let third = 30 * QUANTUM_MS / 3;
    assert!(course.worked("c") >= third, "{}", course.worked("c"));
    for name in ["a", "b", "c"] {
        assert!(course.shared(name) > 0, "{name}: {:#?}", course.said);
    }
}

fn set_quota(course: &mut Course, number: u32, gpus: u32) {
    let tenants = &mut course.snapshot.tenants;
    tenants.retain(|one| one.id != tenant(number));
    tenants.push(SnapshotTenant {
        id: tenant(number),
        name: format!("t{number}"),
        gpu_quota: Some(gpus),
        weight: 1.0,
    });
    tenants.sort_by_key(|one| one.id);
}

#[test]
fn shared_gpu_is_charged_once_per_tenant() {
    let mut course = Course::new(1);
    set_quota(&mut course, 0, 1);
    pair(&mut course);
    assert!(course.is_shared(), "one GPU is one GPU: {:#?}", course.said);

    let mut course = Course::new(1);
    set_quota(&mut course, 1, 1);
    course.submit("a");
    course.submit("b").tenant = tenant(1);
    course.run(6 * QUANTUM_MS);
    assert!(course.is_shared(), "{:#?}", course.said);
    let beside = course.said.iter().find(|why| why.contains("beside"));
    let beside = beside.expect("packed");
    let told = "continues beside another tenant's job: memory 2.00 of 4.00 GiB";
    assert_eq!(beside, told, "the other's figures are its own");
    set_quota(&mut course, 1, 0);
    course.run(2 * TICK_MS);
    assert!(!course.is_shared());
    assert_ne!(course.find("b").state, JobState::Running);
}

#[test]
fn pair_ends_on_drain_and_when_packing_is_disabled() {
    let mut course = Course::new(1);
    pair(&mut course);
    course.policy.packing = None;
    course.run(2 * TICK_MS);
    assert!(!course.is_shared());
    course.policy.packing = Some(Packing::default());
    course.run(2 * TICK_MS);
    assert!(course.is_shared(), "a pair that paid is put together again");
    course.snapshot.nodes[0].drained = true;
    course.settle();
    for name in ["a", "b"] {
        assert_eq!(course.find(name).state.phase(), JobPhase::Queued);
    }
}

#[test]
fn pair_without_reported_rates_is_separated() {
    let mut course = Course::new(1);
    pair(&mut course);
    for job in &mut course.snapshot.jobs {
        let known = job.measured.as_mut().expect("measured");
        for met in &mut known.together {
            met.rate = Rate::default();
        }
    }
    let trial_ms = Packing::default().trial_ms as i64;
    for _ in 0..=trial_ms / TICK_MS {
        course.settle();
        course.snapshot.now_ms += TICK_MS;
        for job in &mut course.snapshot.jobs {
            let known = job.measured.as_mut().expect("measured");
            known.told_ms = Some(course.snapshot.now_ms);
            for met in &mut known.together {
                met.last_ms = course.snapshot.now_ms;
            }
        }
    }
    course.settle();
    assert!(!course.is_shared(), "{:#?}", course.said);
}

#[test]
fn packing_needs_earlier_peaks_and_a_quantum_alone() {
    let mut course = Course::new(1);
    course.submit("a");
    course.submit("b");
    for name in ["a", "b"] {
        let known = course.find(name).measured.get_or_insert_default();
        known.peak_bytes = Some(2 * GIB);
    }
    course.run(20 * QUANTUM_MS);
    assert_eq!(course.packed, 0, "2 + 2 of 4 GiB: {:#?}", course.said);

    let mut course = Course::new(1);
    course.policy.slicing = Some(Slicing {
        quantum_ms: 4 * QUANTUM_MS as u64,
        suspended_per_gpu: 3,
    });
    course.submit("a");
    course.submit("b");
    // Both jobs report often, but neither was alone for a quantum: the slice of the second has just
    // begun.
    course.run(4 * QUANTUM_MS + 8 * TICK_MS);
    assert!(course.worked("b") >= 5 * TICK_MS, "{}", course.worked("b"));
    assert_eq!(course.packed, 0, "{:#?}", course.said);
}

/// Returns the end of a course of three jobs of 1.5 GiB. Suspended jobs keep `keeps` quarters.
fn course_of_three(keeps: u64) -> Course {
    let mut course = Course::new(1);
    course.keeps = keeps;
    for name in ["a", "b", "c"] {
        course.submit(name);
        *course.memory.get_mut(name).expect("there") = 3 * GIB / 2;
    }
    course.run(30 * QUANTUM_MS);
    course
}

#[test]
fn memory_of_suspended_jobs_counts_for_packing() {
    assert!(
        course_of_three(0).packed > 0,
        "1.5 + 1.5 of 4 GiB, and the third's was released"
    );
    let course = course_of_three(4);
    assert_eq!(course.packed, 0, "4.5 of 4 GiB: {:#?}", course.said);
    assert!(course.worked("c") > 0, "turns go on");
}

#[test]
fn no_packing_without_usage_reports() {
    let mut course = Course::new(1);
    course.tells = false;
    pair(&mut course);
    assert_eq!(course.packed, 0, "{:#?}", course.said);
    assert!(course.worked("a") > 0 && course.worked("b") > 0);

    let mut course = Course::new(1);
    pair(&mut course);
    assert!(course.is_shared());
    course.tells = false;
    course.run(Packing::default().stale_ms as i64 + 3 * TICK_MS);
    assert!(!course.is_shared(), "{:#?}", course.said);
}

#[test]
fn pair_is_separated_when_one_rate_is_too_low() {
    let mut course = Course::new(1);
    pair(&mut course);
    assert!(course.is_shared());
    let [host, guest] = lanes(&course);
    for (name, other, rate) in [(&host, &guest, 9.9), (&guest, &host, 2.0)] {
        let other = course.find(other).id;
        let known = course.find(name).measured.as_mut().expect("measured");
        let mut pairs = known.together.iter_mut();
        let pair = pairs.find(|pair| pair.job == other).expect("they met");
        pair.rate.steps_per_s = rate;
    }
    course.settle();
    assert!(!course.is_shared());
    let mut said = course.said.iter();
    let why = said.find(|why| why.contains("no longer")).expect("parted");
    assert!(why.contains("together 1.19 of alone"), "{why}");
}

#[test]
fn failure_in_a_pair_is_not_charged_and_ends_packing() {
    for (which, failure) in [(0, false), (1, false), (0, true), (1, true)] {
        let mut course = Course::new(1);
        pair(&mut course);
        let name = lanes(&course)[which].clone();
        let mut jobs = course.snapshot.jobs.iter();
        let job = jobs.find(|job| job.name == name).expect("there");
        let beside = company(&course.snapshot, job).expect("shared").job;
        let job = course.find(&name);
        let (revision, before) = (job.revision, job.failures);
        job.retries = 0;
        job.measured.as_mut().expect("measured").hurt = Some(Hurt { revision, beside });
        if failure {
            job.failed = Some(muster_core::snapshot::FailedReport {
                message: "out of memory".to_owned(),
                retryable: false,
                lacks: None,
            });
        } else {
            let outcome = Outcome::signalled(9);
            job.tasks[0].state = TaskState::Released { outcome };
            promote_guests(&mut course.snapshot);
        }
        course.run(2 * TICK_MS);
        // The caller clears the report of the last revision, as the store does.
        course.find(&name).failed = None;
        let packed = course.packed;
        course.run(20 * QUANTUM_MS);
        let job = course.find(&name);
        assert_eq!((job.failures, job.revision), (before, revision + 1));
        assert_eq!(course.packed, packed, "{:#?}", course.said);
        assert!(
            course
                .said
                .iter()
                .any(|why| why.contains("that is not charged"))
        );
        // A later failure of its own is charged.
        let job = course.find(&name);
        let outcome = Outcome::signalled(9);
        job.tasks[0].state = TaskState::Released { outcome };
        course.round();
        let mut jobs = course.snapshot.jobs.iter();
        assert!(!jobs.any(|job| job.name == name), "no retry was allowed");
    }
}

#[test]
fn guest_is_suspended_for_jobs_of_its_tenant() {
    let mut course = Course::new(2);
    course.snapshot.tenants.push(SnapshotTenant {
        id: tenant(1),
        name: "t1".to_owned(),
        gpu_quota: Some(1),
        weight: 1.0,
    });
    // Both GPUs belong to another tenant's jobs. The quota of this tenant admits one of its two
    // jobs at a time.
    course.submit("a");
    course.submit("b");
    course.submit("mine").tenant = tenant(1);
    course.run(8 * QUANTUM_MS);
    assert!(course.shared("mine") > 0, "{:#?}", course.said);
    course.submit("late").tenant = tenant(1);
    course.run(20 * QUANTUM_MS);
    let worked = course.worked("late");
    assert!(worked >= 5 * QUANTUM_MS, "{worked}: {:#?}", course.said);
}

#[test]
fn orphan_in_second_lane_counts_as_holder() {
    let mut course = Course::new(1);
    pair(&mut course);
    let [host, guest] = lanes(&course);
    // State after an older release that does not know lanes.
    let gone = course.find(&host).id;
    course.snapshot.jobs.retain(|job| job.id != gone);
    assert_eq!(course.find(&guest).tasks[0].lane, 1);
    course.submit("late");
    let (plan, _) = plan(&course.snapshot, &course.policy);
    assert_eq!(check(&course.snapshot, &plan), Vec::new(), "{plan:#?}");
    course.run(10 * QUANTUM_MS);
    assert!(course.worked("late") > 0, "{:#?}", course.said);
    assert!(course.is_shared(), "{:#?}", course.said);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// With random events of jobs, tenants and nodes, plans are valid, lanes are held once, and
    /// rounds settle.
    #[test]
    fn plans_with_packing_are_valid_under_random_events(
        steps in prop::collection::vec((0u8..15, 0usize..8, 1u32..40), 8..40),
        gpus in 1u32..4, share in 0usize..3, slowness in prop_oneof![Just(0u64), 1u64..u64::MAX], keeps in 0u64..5,
    ) {
        let mut course = Course::new(gpus);
        (course.slowness, course.keeps) = (slowness, keeps);
        let share = [PolicyName::Fifo, PolicyName::Muster, PolicyName::Drf][share];
        course.policy = Policy { slicing: course.policy.slicing, packing: course.policy.packing, ..Policy::named(share) };
        course.snapshot.tenants = (0..2).map(|number| SnapshotTenant {
            id: tenant(number), name: format!("t{number}"), gpu_quota: None, weight: 1.0,
        }).collect();
        for number in 0..3 {
            course.submit(&format!("first-{number}"));
        }
        for (number, (what, which, ticks)) in steps.into_iter().enumerate() {
            course.tells = what != 12 || which % 2 == 0;
            let jobs = course.snapshot.jobs.len();
            let at = which % jobs.max(1);
            match what {
                0 | 1 => {
                    let job = course.submit(&format!("j{number}"));
                    job.tenant = tenant((which % 2) as u32);
                    job.workers = Range { min: 1, max: 1 + (which % 3) as u32 };
                    job.in_place = which % 2 == 0;
                }
                2 if jobs > 0 => course.snapshot.jobs[at].intent = Intent::Cancel,
                3 if jobs > 0 => course.snapshot.jobs[at].intent = Intent::Pause,
                4 if jobs > 0 => course.snapshot.jobs[at].intent = Intent::Suspend,
                5 => course.snapshot.jobs.iter_mut().for_each(|job| job.intent = Intent::Run),
                6 => course.snapshot.tenants[which % 2].gpu_quota = Some((which / 2) as u32),
                7 => course.snapshot.tenants.iter_mut().for_each(|one| one.gpu_quota = None),
                8 => course.snapshot.nodes[0].drained ^= true,
                9 if jobs > 0 => {
                    let beside = company(&course.snapshot, &course.snapshot.jobs[at]);
                    let job = &mut course.snapshot.jobs[at];
                    let revision = job.revision;
                    if let (Some(known), Some(one)) = (&mut job.measured, beside) {
                        known.hurt = Some(Hurt { revision, beside: one.job });
                    }
                    for task in &mut course.snapshot.jobs[at].tasks {
                        if !task.state.is_released() {
                            task.state = TaskState::Released { outcome: Outcome::signalled(9) };
                        }
                    }
                    promote_guests(&mut course.snapshot);
                }
                10 => course.together = 0.3 + 0.1 * which as f64,
                11 if jobs > 0 => {
                    let name = course.snapshot.jobs[at].name.clone();
                    *course.memory.get_mut(&name).expect("there") = GIB / 2 * which as u64;
                }
                13 if jobs > 0 => course.snapshot.jobs[at].priority = (which % 3) as i32,
                14 if jobs > 0 => course.snapshot.jobs[at].exclusive ^= true,
                _ => {}
            }
            course.run(i64::from(ticks) * TICK_MS);
        }
    }
}
