//! No slot is idle while a fitting job waits, and no job is stopped again before it has made
//! progress. Simulates a large suspended job, elastic jobs and short jobs, second by second.

use crate::scene::{Scene, company, gone, job};
use muster_core::policies::name::PolicyName;
use muster_core::policy::{Packing, Policy, Slicing};
use muster_core::snapshot::{ClusterSnapshot, SnapshotJob, SpeedPoint};
use muster_core::{Action, apply, check, plan, promote_guests};
use muster_model::id::JobId;
use muster_model::job::{AfterStop, Intent, JobState, RequeueCause};
use muster_model::packing::{Company, UsageReport};
use muster_model::spec::{Ends, Range};
use muster_model::task::{Outcome, TaskState};
use muster_model::wait::Wait;
use proptest::prelude::*;
use std::collections::BTreeMap;

const QUANTUM_MS: u64 = 60_000;
const TICK_MS: i64 = 1_000;
/// Maximum time in seconds for which a queued job may see its minimum free. A slot is not lent for
/// less than an eighth of a quantum before a time slice. A job obeys a stop or suspension within a
/// second.
const MOST_IDLE_S: u32 = 11;
/// Seconds from the order to stop until a job runs again.
const RESTART_S: u32 = 2;
const GIB: u64 = 1 << 30;

/// Simulated cluster with a clock. Tasks obey an order within a second.
struct Course {
    snapshot: ClusterSnapshot,
    policy: Policy,
    /// Remaining work by job in seconds: of one worker for engine jobs, of the whole gang for
    /// commands.
    left_s: BTreeMap<JobId, f64>,
    /// Seconds for which a queued job has continuously seen its minimum free.
    idle_s: BTreeMap<JobId, u32>,
    longest_idle: (u32, String),
    /// Seconds of work since the last start or stop.
    since_stop_s: BTreeMap<JobId, u32>,
    /// Stops of jobs without progress since their previous stop.
    vain_stops: Vec<String>,
    stops: BTreeMap<String, u32>,
    /// Seconds of work that commands lost and have to repeat.
    lost_s: f64,
    /// Seconds of work of all jobs.
    worked_s: f64,
}

impl Course {
    fn new(nodes: u32, slots: u32, share: PolicyName) -> Self {
        let mut snapshot = Scene::cluster(nodes, slots).snapshot;
        let nodes = snapshot.nodes.iter_mut();
        nodes.for_each(|node| (node.gpu_memory_bytes, node.cpu_slots) = (16 * GIB, true));
        Self {
            snapshot,
            policy: Policy {
                slicing: Some(Slicing {
                    quantum_ms: QUANTUM_MS,
                    suspended_per_gpu: 16,
                }),
                packing: Some(Packing::default()),
                ..Policy::named(share)
            },
            left_s: BTreeMap::new(),
            idle_s: BTreeMap::new(),
            longest_idle: (0, String::new()),
            since_stop_s: BTreeMap::new(),
            vain_stops: Vec::new(),
            stops: BTreeMap::new(),
            lost_s: 0.0,
            worked_s: 0.0,
        }
    }

    fn submit(&mut self, name: &str, (min, max): (u32, u32), seconds: u32) -> &mut SnapshotJob {
        let number = u32::try_from(self.left_s.len()).expect("few");
        let mut new = job(number, name, self.snapshot.now_ms);
        new.workers = Range { min, max };
        new.ps_shards = Range::NONE;
        new.progress.max_steps = Some(10 * u64::from(seconds));
        self.left_s.insert(new.id, f64::from(seconds));
        self.snapshot.jobs.push(new);
        self.snapshot.jobs.last_mut().expect("just added")
    }

    fn command(&mut self, name: &str, workers: u32, seconds: u32) -> &mut SnapshotJob {
        let new = self.submit(name, (workers, workers), seconds);
        new.command = Some(Ends::AllWorkers);
        new.progress.max_steps = None;
        new
    }

    fn elastic(&mut self, name: &str, (min, max): (u32, u32), seconds: u32) -> &mut SnapshotJob {
        let new = self.submit(name, (min, max), seconds);
        new.in_place = true;
        new
    }

    fn find(&self, name: &str) -> Option<&SnapshotJob> {
        self.snapshot.jobs.iter().find(|job| job.name == name)
    }

    fn intend(&mut self, name: &str, intent: Intent) {
        let mut jobs = self.snapshot.jobs.iter_mut();
        jobs.find(|job| job.name == name).expect("there").intent = intent;
    }

    fn run(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.snapshot.now_ms += TICK_MS;
            self.obey();
            self.work();
            self.measure();
            self.round();
            self.look();
        }
    }

    fn obey(&mut self) {
        for job in &mut self.snapshot.jobs {
            job.leaving.clear();
            for task in &mut job.tasks {
                match task.state {
                    TaskState::Assigned => task.state = TaskState::Running,
                    TaskState::Suspending => task.state = TaskState::Suspended,
                    TaskState::Stopping | TaskState::Ending => {
                        task.state = gone(Outcome::stopped());
                    }
                    TaskState::Running | TaskState::Suspended | TaskState::Released { .. } => {}
                }
            }
        }
    }

    fn work(&mut self) {
        for job in &mut self.snapshot.jobs {
            if job.state != JobState::Running {
                continue;
            }
            let workers = job.up_size().0;
            let left_s = self.left_s.get_mut(&job.id).expect("submitted");
            job.trained_s += 1.0;
            self.worked_s += 1.0;
            *self.since_stop_s.entry(job.id).or_default() += 1;
            if job.command.is_some() {
                *left_s -= 1.0;
                if *left_s <= 0.0 {
                    let running = job.tasks.iter_mut();
                    running.for_each(|task| task.state = gone(Outcome::exited(0)));
                }
                continue;
            }
            *left_s -= f64::from(workers);
            job.progress.step += 10 * u64::from(workers);
            job.speeds.retain(|point| point.workers != workers);
            job.speeds.push(SpeedPoint {
                workers,
                ps_shards: 0,
                steps_per_s: 10.0 * f64::from(workers),
                samples: 50,
            });
            if *left_s <= 0.0 {
                job.finished = Some(muster_core::snapshot::Finished {
                    step: job.progress.step,
                    reason: "done".to_owned(),
                });
            }
        }
    }

    /// Reports the slot use of jobs of one worker, so that pairs of them can be packed.
    fn measure(&mut self) {
        let now_ms = self.snapshot.now_ms;
        let company: Vec<Option<Company>> = {
            let jobs = self.snapshot.jobs.iter();
            jobs.map(|job| company(&self.snapshot, job)).collect()
        };
        for (job, company) in self.snapshot.jobs.iter_mut().zip(company) {
            let stands = job.state == JobState::Suspended && job.are_workers_suspended();
            if job.workers.max != 1 || !(stands || job.state == JobState::Running) {
                continue;
            }
            let known = std::mem::take(job.measured.get_or_insert_default());
            let mut known = known.in_revision(job.revision);
            let report = UsageReport {
                memory_bytes: Some(if stands { 0 } else { GIB }),
                busy: if stands { 0.0 } else { 0.4 },
                over_ms: TICK_MS as u64,
                stands,
                ..UsageReport::default()
            };
            if !stands {
                // Each job of a pair reports 0.7 of its rate, which is more than time slices give
                // it.
                known.take_rate(if company.is_some() { 7.0 } else { 10.0 }, company, now_ms);
            }
            known.take_usage(&report, company, now_ms);
            job.measured = Some(Box::new(known));
        }
    }

    fn round(&mut self) {
        self.snapshot.round += 1;
        self.snapshot.sort();
        let (plan, _) = plan(&self.snapshot, &self.policy);
        assert_eq!(check(&self.snapshot, &plan), Vec::new(), "{plan:#?}");
        for one in &plan.decisions {
            let job = self.snapshot.jobs.iter().find(|job| job.id == one.job);
            let job = job.expect("a job of the snapshot");
            if std::env::var("COURSE").is_ok()
                && !matches!(one.action, Action::Up | Action::Release)
            {
                println!(
                    "{} {} {:?}",
                    self.snapshot.now_ms / 1_000 - 1_000,
                    job.name,
                    one.action
                );
            }
            let Action::Stop { then, why, .. } = &one.action else {
                continue;
            };
            let goes_on = matches!(
                then,
                AfterStop::Move { .. }
                    | AfterStop::Requeue {
                        cause: RequeueCause::Resize | RequeueCause::Preempted
                    }
            );
            if !goes_on || matches!(job.state, JobState::Stopping { .. }) {
                continue;
            }
            let stops = self.stops.entry(job.name.clone()).or_default();
            *stops += 1;
            if self.since_stop_s.insert(job.id, 0).unwrap_or(0) == 0 {
                let at_s = self.snapshot.now_ms / 1_000;
                self.vain_stops.push(format!("{at_s}: {}: {why}", job.name));
            }
            if job.command.is_some() {
                let began_ms = job.running_ms.unwrap_or(self.snapshot.now_ms);
                self.lost_s += (self.snapshot.now_ms - began_ms) as f64 / 1e3;
            }
        }
        apply(&mut self.snapshot, &plan).expect("a checked plan");
        let jobs = &mut self.snapshot.jobs;
        jobs.retain(|job| !job.state.phase().is_terminal());
        promote_guests(&mut self.snapshot);
    }

    /// Returns the number of slots that no task holds.
    fn free(&self) -> u32 {
        let slots: u32 = self.snapshot.nodes.iter().map(|node| node.gpus).sum();
        let tasks = self.snapshot.jobs.iter().flat_map(SnapshotJob::held_tasks);
        // A guest is on a slot that another task holds.
        let held = tasks.filter(|task| task.state.holds_gpus() && task.lane == 0);
        slots - u32::try_from(held.count()).expect("few")
    }

    /// Counts the time for which each queued job has seen its minimum free.
    fn look(&mut self) {
        let free = self.free();
        for job in &self.snapshot.jobs {
            let waits = job.state == JobState::Queued && job.intent == Intent::Run;
            if !waits || free < job.min_gpus() {
                self.idle_s.remove(&job.id);
                continue;
            }
            let idle_s = self.idle_s.entry(job.id).or_default();
            *idle_s += 1;
            if *idle_s > self.longest_idle.0 {
                let why = job.waiting.as_ref().map(|waiting| waiting.why.to_string());
                let at_s = self.snapshot.now_ms / 1_000;
                self.longest_idle = (
                    *idle_s,
                    format!("{at_s}: {} beside {free}: {why:?}", job.name),
                );
            }
        }
    }
}

/// Six slots: a job that takes all of them and an elastic job that gets a slice by its wait. Every
/// 17 seconds a job of one slot and eight seconds arrives.
fn beside_a_sleeper(share: PolicyName) -> Course {
    let mut course = Course::new(3, 2, share);
    course.command("sleeper", 6, 900);
    course.run(2);
    course.elastic("elastic", (1, 4), 1_500);
    course.run(63);
    for number in 0..24 {
        course.command(&format!("short-{number}"), 1, 8);
        course.run(17);
    }
    course
}

#[test]
fn elastic_job_is_not_stopped_for_reserved_slots() {
    for share in [PolicyName::Muster, PolicyName::Fifo, PolicyName::Optimus] {
        let course = beside_a_sleeper(share);
        assert_eq!(course.stops, BTreeMap::new(), "{share:?}");
        let idle = course.longest_idle;
        assert!(idle.0 <= MOST_IDLE_S, "{share:?}: {idle:?}");
        assert_eq!(course.lost_s, 0.0, "{share:?}");
    }
}

#[test]
fn job_behind_a_suspended_one_borrows_its_free_slots() {
    for share in [PolicyName::Muster, PolicyName::Fifo, PolicyName::Optimus] {
        let mut course = Course::new(3, 2, share);
        course.command("sleeper", 6, 900);
        course.run(2);
        course.command("other", 1, 900);
        course.command("back", 1, 900);
        course.run(63);
        for name in ["other", "back"] {
            let job = course.find(name).expect("there");
            assert_eq!(job.state, JobState::Running, "{share:?}: {name}");
        }
        // A job that returns is not served like a new one. It is behind the suspended job.
        course.intend("back", Intent::Pause);
        course.run(3);
        course.intend("back", Intent::Run);
        course.run(3);
        let back = course.find("back").expect("there");
        assert_eq!(
            back.state,
            JobState::Running,
            "{share:?}: {:?}",
            back.waiting
        );
        course.run(60);
        let sleeper = course.find("sleeper").expect("there");
        assert_eq!(
            sleeper.state,
            JobState::Running,
            "{share:?}: its time slice begins"
        );
        assert_eq!(course.lost_s, 0.0, "{share:?}");
    }
}

#[test]
fn wait_reason_counts_reserved_free_slots() {
    let mut course = Course::new(3, 2, PolicyName::Muster);
    course.command("sleeper", 6, 900);
    course.run(2);
    course.command("other", 1, 900);
    course.run(63);
    course.command("own", 1, 10).exclusive = true;
    course.run(2);
    let sleeper = course.find("sleeper").expect("there").id;
    let own = course.find("own").expect("there");
    let why = own.waiting.as_ref().map(|waiting| waiting.why.clone());
    let expected = Wait::WaitingForGpus {
        needed_gpus: 1,
        free_gpus: 5,
        kept_gpus: 5,
        occupied_gpus: 0,
        held_by: vec![sleeper],
        forbidden: Vec::new(),
    };
    assert_eq!(
        why,
        Some(expected),
        "it takes no turns, so it cannot borrow"
    );
}

/// Job of a random course: arrival, kind, workers and length in seconds.
#[derive(Debug, Clone, Copy)]
struct Coming {
    at_s: u32,
    kind: JobForm,
    workers: (u32, u32),
    seconds: u32,
}

#[derive(Debug, Clone, Copy)]
enum JobForm {
    /// User's own program.
    Command,
    /// Engine job that is resized in place.
    InPlace,
    /// Engine job that restarts to change its size.
    Restarting,
}

fn coming() -> impl Strategy<Value = Coming> {
    let kind = prop_oneof![
        3 => Just(JobForm::Command),
        2 => Just(JobForm::InPlace),
        1 => Just(JobForm::Restarting),
    ];
    let workers = (1_u32..=6, 0_u32..=4).prop_map(|(min, more)| (min.div_ceil(2), more));
    (0_u32..160, kind, workers, 4_u32..200).prop_map(|(at_s, kind, (min, more), seconds)| Coming {
        at_s,
        kind,
        workers: (min, min + more),
        seconds,
    })
}

/// Runs four minutes with these jobs and one job on all slots from the beginning.
fn course(nodes: u32, slots: u32, share: PolicyName, jobs: &[Coming]) -> Course {
    let mut course = Course::new(nodes, slots, share);
    let all = nodes * slots;
    course.command("sleeper", all, 400);
    for second in 0..240 {
        for (number, job) in jobs
            .iter()
            .enumerate()
            .filter(|(_, job)| job.at_s == second)
        {
            let (min, max) = (job.workers.0.min(all), job.workers.1.min(all));
            let name = format!("{:?}-{number}", job.kind);
            match job.kind {
                JobForm::Command => course.command(&name, min, job.seconds),
                JobForm::InPlace => course.elastic(&name, (min, max), job.seconds),
                JobForm::Restarting => course.submit(&name, (min, max), job.seconds),
            };
        }
        course.run(1);
    }
    course
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(0x6964_6c65),
        ..ProptestConfig::with_cases(24)
    })]

    /// All jobs have equal priority, so only a time slice precedes a job whose minimum is free.
    ///
    /// Commands lose no work, because they are only suspended. Other jobs lose their restarts: at
    /// most the policy's `resize_share` of all work, plus one restart per job.
    #[test]
    fn jobs_take_free_slots_with_little_lost_work(
        nodes in 1_u32..=3, slots in 1_u32..=3, muster in any::<bool>(), jobs in prop::collection::vec(coming(), 1..9),
    ) {
        let share = if muster { PolicyName::Muster } else { PolicyName::Optimus };
        let course = course(nodes, slots, share, &jobs);
        prop_assert!(course.longest_idle.0 <= MOST_IDLE_S, "{:?}", course.longest_idle);
        prop_assert_eq!(&course.vain_stops, &Vec::<String>::new());
        prop_assert_eq!(course.lost_s, 0.0);
        let stops: u32 = course.stops.values().sum();
        let restarts_s = f64::from(RESTART_S * stops);
        let all = course.left_s.len() as f64;
        let most_s = course.policy.resize_share * course.worked_s + f64::from(RESTART_S) * all;
        prop_assert!(restarts_s <= most_s, "{restarts_s} of {most_s}: {:?}", course.stops);
    }
}
