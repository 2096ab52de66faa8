//! Time slicing: which job is suspended for which and when. Gangs are suspended as a whole, no job
//! starves, and shares follow weights.

use crate::scene::{Scene, job, tenant};
use muster_core::policies::name::PolicyName;
use muster_core::policy::{Policy, Slicing};
use muster_core::snapshot::{ClusterSnapshot, SnapshotJob};
use muster_core::{Action, apply, check, plan};
use muster_model::id::TenantId;
use muster_model::job::{AfterStop, Intent, JobPhase, JobState};
use muster_model::spec::{Ends, Range};
use muster_model::task::{Outcome, TaskEvent, TaskState};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const QUANTUM_MS: i64 = 60_000;
/// Time between two rounds without an event.
const TICK_MS: i64 = 1_000;

fn policy(share: PolicyName) -> Policy {
    Policy {
        slicing: Some(Slicing {
            quantum_ms: QUANTUM_MS as u64,
            suspended_per_gpu: 3,
        }),
        ..Policy::named(share)
    }
}

/// Simulated cluster with a clock. Nodes obey at once, and the working time of each job is counted.
pub(crate) struct Course {
    pub snapshot: ClusterSnapshot,
    pub policy: Policy,
    /// Milliseconds of work by job name.
    pub worked: BTreeMap<String, i64>,
    /// Time at which each job first ran.
    first: BTreeMap<String, i64>,
    /// Number of submitted jobs, also of those that have ended.
    submitted: u32,
    pub suspended: u32,
    /// Number of stops of running jobs that start again.
    pub stopped: u32,
    /// Job whose tasks do not come up.
    slow: Option<String>,
}

impl Course {
    pub(crate) fn new(nodes: u32, gpus: u32, share: PolicyName) -> Self {
        let mut snapshot = Scene::cluster(nodes, gpus).snapshot;
        // Programs that are suspended keep no GPU memory.
        let nodes = snapshot.nodes.iter_mut();
        nodes.for_each(|node| node.cpu_slots = true);
        Self {
            snapshot,
            policy: policy(share),
            worked: BTreeMap::new(),
            first: BTreeMap::new(),
            submitted: 0,
            suspended: 0,
            stopped: 0,
            slow: None,
        }
    }

    pub(crate) fn submit(&mut self, name: &str, workers: u32) -> &mut SnapshotJob {
        let number = self.submitted;
        self.submitted += 1;
        let mut new = job(number, name, self.snapshot.now_ms + i64::from(number));
        new.workers = Range {
            min: workers,
            max: workers,
        };
        new.ps_shards = Range::NONE;
        new.progress.max_steps = None;
        self.snapshot.jobs.push(new);
        self.snapshot.jobs.last_mut().expect("just added")
    }

    pub(crate) fn find(&mut self, name: &str) -> &mut SnapshotJob {
        let mut jobs = self.snapshot.jobs.iter_mut();
        jobs.find(|job| job.name == name).expect("is there")
    }

    /// Repeats rounds with obedient nodes until nothing changes.
    fn settle(&mut self) {
        for _ in 0..20 {
            let (plan, _) = plan(&self.snapshot, &self.policy);
            assert_eq!(check(&self.snapshot, &plan), Vec::new(), "{plan:#?}");
            for one in &plan.decisions {
                match &one.action {
                    Action::Suspend { .. } => self.suspended += 1,
                    Action::Stop {
                        then: AfterStop::Requeue { .. },
                        ..
                    } => self.stopped += 1,
                    _ => {}
                }
            }
            let quiet = plan
                .decisions
                .iter()
                .all(|one| matches!(one.action, Action::Wait { .. }));
            apply(&mut self.snapshot, &plan).expect("a checked plan");
            self.snapshot
                .jobs
                .retain(|job| !job.state.phase().is_terminal());
            let obeyed = self.obey();
            no_gpu_is_used_twice(&self.snapshot);
            if quiet && !obeyed {
                return;
            }
        }
        panic!("twenty rounds did not settle {:#?}", self.snapshot.jobs);
    }

    fn obey(&mut self) -> bool {
        let mut any = false;
        let slow = self.slow.as_deref();
        let jobs = self.snapshot.jobs.iter_mut();
        let obedient = jobs.filter(|job| Some(job.name.as_str()) != slow);
        for task in obedient.flat_map(|job| &mut job.tasks) {
            let event = match task.state {
                TaskState::Assigned => TaskEvent::Up,
                TaskState::Suspending => TaskEvent::StoodStill,
                TaskState::Stopping | TaskState::Ending => TaskEvent::Gone {
                    outcome: Outcome::exited(0),
                },
                _ => continue,
            };
            task.state = task.state.clone().apply(event).expect("it obeys");
            any = true;
        }
        any
    }

    pub(crate) fn run(&mut self, ms: i64) {
        let until_ms = self.snapshot.now_ms + ms;
        while self.snapshot.now_ms < until_ms {
            self.settle();
            for job in &self.snapshot.jobs {
                if job.state == JobState::Running {
                    *self.worked.entry(job.name.clone()).or_default() += TICK_MS;
                    self.first
                        .entry(job.name.clone())
                        .or_insert(self.snapshot.now_ms);
                }
            }
            self.snapshot.now_ms += TICK_MS;
        }
    }

    /// Ends every running job of a tenant with success.
    fn end_running(&mut self, tenant: TenantId) {
        let jobs = self.snapshot.jobs.iter_mut();
        for job in jobs.filter(|job| job.state == JobState::Running && job.tenant == tenant) {
            for task in &mut job.tasks {
                task.state = crate::scene::gone(Outcome::exited(0));
            }
        }
    }

    pub(crate) fn worked(&self, name: &str) -> i64 {
        self.worked.get(name).copied().unwrap_or(0)
    }
}

fn no_gpu_is_used_twice(snapshot: &ClusterSnapshot) {
    let mut held = BTreeSet::new();
    for job in &snapshot.jobs {
        for task in job.tasks.iter().filter(|task| task.state.holds_gpus()) {
            for gpu in &task.gpus {
                assert!(held.insert((task.node, *gpu)), "{:#?}", snapshot.jobs);
            }
        }
        let [runs, stands_still] = [TaskState::Running, TaskState::Suspended]
            .map(|state| job.tasks.iter().any(|task| task.state == state));
        assert!(
            !(runs && stands_still),
            "half a gang stands still: {job:#?}"
        );
    }
}

#[test]
fn new_job_gets_slice_within_a_quantum() {
    let mut course = Course::new(1, 1, PolicyName::Fifo);
    course.submit("old", 1);
    course.run(10_000);
    course.submit("new", 1);
    let submitted_ms = course.snapshot.now_ms;
    course.run(10 * QUANTUM_MS);
    assert!(course.first["new"] - submitted_ms <= QUANTUM_MS);
    let (old, new) = (course.worked("old"), course.worked("new"));
    assert!((old - new).abs() <= 2 * QUANTUM_MS, "{old} and {new}");
    assert!(course.suspended >= 8);
}

#[test]
fn gang_and_short_jobs_all_run_within_two_quanta() {
    let mut course = Course::new(2, 2, PolicyName::Muster);
    course.submit("long", 4);
    course.run(QUANTUM_MS);
    for number in 0..8 {
        course.submit(&format!("short-{number}"), 1);
    }
    let submitted_ms = course.snapshot.now_ms;
    course.run(9 * QUANTUM_MS);
    for number in 0..8 {
        let first_ms = course.first[&format!("short-{number}")];
        assert!(
            first_ms - submitted_ms <= 2 * QUANTUM_MS,
            "short-{number} at {first_ms}"
        );
    }
    let worked = course.worked("long") - QUANTUM_MS;
    assert!(
        (2 * QUANTUM_MS..=4 * QUANTUM_MS).contains(&worked),
        "a third of the time: {worked}"
    );
}

#[test]
fn successive_short_jobs_run_within_a_quantum() {
    for share in [PolicyName::Fifo, PolicyName::Muster] {
        let mut course = Course::new(2, 2, share);
        course.submit("long", 4);
        course.run(2 * QUANTUM_MS);
        let mut submitted_ms = Vec::new();
        for number in 0..8 {
            submitted_ms.push(course.snapshot.now_ms);
            course.submit(&format!("short-{number}"), 1);
            // The long job is suspended since the first short one, before the others arrived.
            course.run(TICK_MS);
        }
        course.run(9 * QUANTUM_MS);
        for (number, submitted_ms) in submitted_ms.into_iter().enumerate() {
            let waited_ms = course.first[&format!("short-{number}")] - submitted_ms;
            assert!(
                waited_ms <= QUANTUM_MS,
                "{share:?}: short-{number} after {waited_ms} ms"
            );
        }
        let worked_ms = course.worked("long") - 2 * QUANTUM_MS;
        assert!(
            (2 * QUANTUM_MS..=4 * QUANTUM_MS).contains(&worked_ms),
            "{share:?}: a third of the time: {worked_ms}"
        );
    }
}

/// Returns the working time of a gang of four GPUs and eight jobs of one GPU, summed over GPUs.
fn gpu_work_ms(course: &Course) -> i64 {
    let singles = (0..4).flat_map(|n| [format!("early-{n}"), format!("late-{n}")]);
    4 * course.worked("gang") + singles.map(|name| course.worked(&name)).sum::<i64>()
}

#[test]
fn no_gpu_is_idle_while_gang_waits_for_its_slice() {
    let mut course = Course::new(2, 2, PolicyName::Fifo);
    course.submit("gang", 4);
    course.run(2 * QUANTUM_MS);
    // One after the other, so that their slices end at different times.
    for number in 0..4 {
        course.submit(&format!("early-{number}"), 1);
        course.submit(&format!("late-{number}"), 1);
        course.run(QUANTUM_MS / 4);
    }
    let (before, window_ms) = (gpu_work_ms(&course), 12 * QUANTUM_MS);
    course.run(window_ms);
    let share = (gpu_work_ms(&course) - before) as f64 / (4 * window_ms) as f64;
    assert!(share > 0.995, "{share} of the GPUs' time is used");
    assert!(course.worked("gang") >= 3 * QUANTUM_MS);
}

#[test]
fn wide_job_gets_slice_among_many_single_gpu_jobs() {
    let mut course = Course::new(16, 4, PolicyName::Fifo);
    // The jobs that have run longest are spread over the nodes.
    for number in 0..64 {
        course.submit(&format!("single-{number}"), 1);
    }
    course.run(TICK_MS);
    for round in 0..4 {
        for node in 0..16 {
            let at_ms = course.snapshot.now_ms - 10_000_000 + (round * 16 + node) * 1_000;
            let id = course.snapshot.nodes[usize::try_from(node).expect("few")].id;
            let gpu = u32::try_from(round).expect("few");
            let job = course.snapshot.jobs.iter_mut().find(|job| {
                let mut tasks = job.tasks.iter();
                tasks.any(|task| task.node == id && task.gpus == [gpu])
            });
            let job = job.expect("runs");
            (job.placed_ms, job.running_ms) = (Some(at_ms), Some(at_ms));
        }
    }
    let wide = course.submit("wide", 1);
    wide.worker.gpus = 4;
    course.run(QUANTUM_MS / 2);
    assert!(course.worked("wide") > 0, "its node is cleared for it");
}

#[test]
fn jobs_on_cordoned_node_keep_rotating() {
    let mut course = Course::new(1, 1, PolicyName::Fifo);
    course.submit("a", 1);
    course.submit("b", 1);
    course.run(3 * QUANTUM_MS / 2);
    course.snapshot.nodes[0].cordoned = true;
    let before = course.worked("a") + course.worked("b");
    course.run(4 * QUANTUM_MS);
    let used_ms = course.worked("a") + course.worked("b") - before;
    assert!(
        used_ms >= 4 * QUANTUM_MS - 2 * TICK_MS,
        "{used_ms} ms at work"
    );
    course.snapshot.nodes[0].cordoned = false;
    let (a, b) = (course.worked("a"), course.worked("b"));
    course.run(4 * QUANTUM_MS);
    assert!(course.worked("a") > a && course.worked("b") > b);
}

#[test]
fn slice_begins_when_tasks_are_up() {
    let mut course = Course::new(1, 1, PolicyName::Fifo);
    course.submit("old", 1);
    course.run(2 * QUANTUM_MS);
    course.submit("slow", 1);
    // Its start takes longer than a slice.
    course.slow = Some("slow".to_owned());
    course.run(2 * QUANTUM_MS);
    assert_eq!(course.worked("slow"), 0);
    course.slow = None;
    course.run(QUANTUM_MS / 2);
    assert!(
        course.worked("slow") >= QUANTUM_MS / 2 - 2 * TICK_MS,
        "{}",
        course.worked("slow")
    );
}

/// The urgent job takes free GPUs, not those on which another job was just resumed.
#[test]
fn resumed_job_is_not_preempted_in_the_same_round() {
    for &share in PolicyName::ALL {
        let mut course = Course::new(1, 1, share);
        course.submit("one", 1);
        course.submit("other", 1);
        course.run(3 * QUANTUM_MS / 2);
        let urgent = course.submit("urgent", 1);
        (urgent.priority, urgent.exclusive) = (50, true);
        course.run(QUANTUM_MS);
        assert!(course.worked("urgent") > 0, "{share:?}");
        course.find("urgent").intent = Intent::Cancel;
        let before = ["one", "other"].map(|name| course.worked(name));
        course.run(4 * QUANTUM_MS);
        for (name, before) in ["one", "other"].into_iter().zip(before) {
            assert!(course.worked(name) > before, "{share:?}: {name}");
        }
    }
}

/// Returns a course with a second tenant of this quota.
fn beside_who_never_starts(nodes: u32, gpus: u32, share: PolicyName, quota: Option<u32>) -> Course {
    let mut course = Course::new(nodes, gpus, share);
    course
        .snapshot
        .tenants
        .push(muster_core::snapshot::SnapshotTenant {
            id: tenant(1),
            name: "t1".to_owned(),
            gpu_quota: quota,
            weight: 1.0,
        });
    course
}

/// Submits a job of high priority of the second tenant.
fn submit_who_never_starts(course: &mut Course, workers: u32) {
    let never = course.submit("never", workers);
    (never.priority, never.tenant) = (50, tenant(1));
}

/// Jobs that never fit: more GPUs than the cluster has, and more than the tenant's quota.
const NEVER: [(u32, Option<u32>); 2] = [(3, None), (2, Some(1))];

#[test]
fn impossible_job_does_not_delay_suspended_jobs() {
    for (workers, quota) in NEVER {
        for share in [PolicyName::Fifo, PolicyName::Muster] {
            let mut course = beside_who_never_starts(1, 2, share, quota);
            course.submit("old", 2);
            course.run(2 * QUANTUM_MS);
            submit_who_never_starts(&mut course, workers);
            for number in 0..20 {
                course.submit(&format!("new-{number}"), 1);
                course.run(QUANTUM_MS / 2);
            }
            let since_ms = course.worked("old") - 2 * QUANTUM_MS;
            assert!(
                since_ms > 2 * QUANTUM_MS,
                "{share:?}: its turns came again: {since_ms}"
            );
        }
    }
}

#[test]
fn impossible_job_does_not_shorten_slices() {
    for (workers, quota) in NEVER {
        let [without, beside] = [false, true].map(|is_there| {
            let mut course = beside_who_never_starts(1, 2, PolicyName::Fifo, quota);
            for number in 0..4 {
                course.submit(&format!("j{number}"), 1);
            }
            if is_there {
                submit_who_never_starts(&mut course, workers);
            }
            course.run(10 * QUANTUM_MS);
            course.suspended
        });
        assert_eq!(beside, without, "{quota:?}");
    }
}

#[test]
fn many_impossible_jobs_do_not_block_later_jobs() {
    for (workers, quota) in NEVER {
        let mut course = beside_who_never_starts(1, 2, PolicyName::Fifo, quota);
        for _ in 0..70 {
            submit_who_never_starts(&mut course, workers);
        }
        course.submit("a", 2);
        course.submit("b", 2);
        course.run(8 * QUANTUM_MS);
        let (a, b) = (course.worked("a"), course.worked("b"));
        assert!((a - b).abs() <= 2 * QUANTUM_MS, "{quota:?}: {a} and {b}");
    }
}

#[test]
fn impossible_job_does_not_prevent_moves_of_suspended_job() {
    for (workers, quota) in NEVER {
        let mut course = beside_who_never_starts(2, 1, PolicyName::Fifo, quota);
        course.submit("a", 1);
        course.submit("b", 1);
        course.submit("c", 1);
        course.run(3 * QUANTUM_MS / 2);
        let still = course
            .snapshot
            .jobs
            .iter()
            .find(|job| job.state == JobState::Suspended);
        let still = still.expect("three on two GPUs").name.clone();
        let node = course.find(&still).tasks[0].node;
        submit_who_never_starts(&mut course, workers);
        for name in ["a", "b", "c"] {
            let there = course.find(name);
            if there.name != still {
                if there.tasks[0].node == node {
                    there.exclusive = true;
                } else {
                    there.intent = Intent::Cancel;
                }
            }
        }
        let before = course.worked(&still);
        course.run(4 * QUANTUM_MS);
        let worked_ms = course.worked(&still) - before;
        assert!(worked_ms > 2 * QUANTUM_MS, "{quota:?}: {worked_ms}");
    }
}

/// A command without checkpoints would start from the beginning.
#[test]
fn suspendable_job_is_not_stopped_for_shorter_job() {
    for &share in PolicyName::ALL {
        let mut course = Course::new(2, 2, share);
        let long = course.submit("long", 4);
        long.progress.max_steps = Some(900);
        long.command = Some(Ends::AllWorkers);
        course.run(QUANTUM_MS / 2);
        course.find("long").progress.step = 230;
        course.find("long").trained_s = 30.0;
        let short = course.submit("short", 1);
        short.progress.max_steps = Some(6);
        short.command = Some(Ends::AllWorkers);
        course.run(2 * QUANTUM_MS);
        assert_eq!(course.stopped, 0, "{share:?}");
        assert!(
            course.worked("short") > 0 && course.suspended > 0,
            "{share:?}"
        );
    }
}

#[test]
fn endless_new_jobs_do_not_starve_suspended_job() {
    let mut course = Course::new(1, 1, PolicyName::Fifo);
    course.submit("old", 1);
    course.run(2 * QUANTUM_MS);
    for number in 0..20 {
        course.submit(&format!("new-{number}"), 1);
        course.run(QUANTUM_MS / 2);
    }
    let since = course.worked("old");
    assert!(since > 2 * QUANTUM_MS, "it had its turn again: {since}");
}

#[test]
fn no_suspension_with_free_gpus_or_exclusive_jobs() {
    let mut course = Course::new(1, 2, PolicyName::Fifo);
    course.submit("a", 1);
    course.submit("b", 1);
    course.run(5 * QUANTUM_MS);
    assert_eq!(course.suspended, 0, "both fit");
    course.submit("alone", 1).exclusive = true;
    course.run(5 * QUANTUM_MS);
    assert_eq!(course.suspended, 0, "nobody is suspended for it");
    assert_eq!(course.worked("alone"), 0);
    for name in ["a", "b"] {
        course.find(name).exclusive = true;
    }
    course.submit("c", 1);
    course.run(5 * QUANTUM_MS);
    assert_eq!(course.suspended, 0, "theirs are their own");
}

#[test]
fn shares_follow_tenant_weights() {
    let mut course = Course::new(1, 1, PolicyName::Fifo);
    course.snapshot.tenants = [(0, 3.0), (1, 1.0)]
        .into_iter()
        .map(|(number, weight)| muster_core::snapshot::SnapshotTenant {
            id: tenant(number),
            name: format!("t{number}"),
            gpu_quota: None,
            weight,
        })
        .collect();
    course.submit("heavy", 1);
    course.submit("light", 1).tenant = tenant(1);
    course.run(24 * QUANTUM_MS);
    let (heavy, light) = (course.worked("heavy"), course.worked("light"));
    let due = 3 * light;
    assert!((heavy - due).abs() <= 3 * QUANTUM_MS, "{heavy} to {light}");
}

#[test]
fn suspended_jobs_per_gpu_are_bounded() {
    let mut course = Course::new(1, 1, PolicyName::Fifo);
    for number in 0..6 {
        course.submit(&format!("j{number}"), 1);
    }
    for _ in 0..20 {
        course.run(QUANTUM_MS);
        let still = course
            .snapshot
            .jobs
            .iter()
            .filter(|job| job.state == JobState::Suspended);
        assert!(still.count() <= 3);
    }
    for number in 0..4 {
        let name = format!("j{number}");
        let worked = course.worked(&name);
        assert!(worked >= 3 * QUANTUM_MS, "{name} keeps its turns: {worked}");
    }
    let mut begun = course.snapshot.jobs.iter().filter(|job| job.revision > 0);
    assert_eq!(
        begun.by_ref().count(),
        4,
        "the others wait for somebody's end"
    );
}

#[test]
fn tenant_time_does_not_depend_on_number_of_jobs() {
    let mut course = Course::new(1, 1, PolicyName::Fifo);
    course.policy.slicing = Some(Slicing {
        quantum_ms: QUANTUM_MS as u64,
        suspended_per_gpu: 16,
    });
    course.snapshot.tenants = [0, 1]
        .into_iter()
        .map(|number| muster_core::snapshot::SnapshotTenant {
            id: tenant(number),
            name: format!("t{number}"),
            gpu_quota: None,
            weight: 1.0,
        })
        .collect();
    for number in 0..5 {
        course.submit(&format!("many-{number}"), 1);
    }
    course.submit("one", 1).tenant = tenant(1);
    let whole_ms = 20 * QUANTUM_MS;
    course.run(whole_ms);
    let share = course.worked("one") as f64 / whole_ms as f64;
    assert!((0.4..=0.6).contains(&share), "{share}");
}

/// Returns a course of two tenants of equal weight. The first has a queue of `jobs` commands of one
/// GPU that are older than two quanta.
fn beside_long_queue(jobs: u32) -> Course {
    let mut course = beside_who_never_starts(2, 2, PolicyName::Muster, None);
    for number in 0..jobs {
        course.submit(&format!("many-{number}"), 1).command = Some(Ends::AllWorkers);
    }
    course.snapshot.now_ms += 2 * QUANTUM_MS;
    course
}

#[test]
fn short_job_of_other_tenant_starts_before_old_queue() {
    let mut course = beside_long_queue(60);
    course.submit("one", 1).tenant = tenant(1);
    for _ in 0..3 {
        course.run(TICK_MS);
        if course.first.contains_key("one") {
            return;
        }
        course.end_running(tenant(0));
    }
    panic!("twelve jobs of the long queue started before it");
}

#[test]
fn newcomer_of_other_tenant_gets_next_expired_slice() {
    // More than a round considers.
    let mut course = beside_long_queue(100);
    course.run(TICK_MS);
    course.submit("one", 1).tenant = tenant(1);
    course.run(QUANTUM_MS + 2 * TICK_MS);
    assert!(course.worked("one") > 0);
}

/// Each tick ends the running short job of the second tenant, and one more waits.
#[test]
fn stream_of_short_jobs_does_not_starve_suspended_jobs() {
    let mut course = beside_who_never_starts(1, 1, PolicyName::Muster, None);
    course.submit("a", 1);
    course.submit("b", 1);
    course.run(3 * QUANTUM_MS);
    for number in 0..400 {
        let short = course.submit(&format!("short-{number}"), 1);
        (short.tenant, short.command) = (tenant(1), Some(Ends::AllWorkers));
        course.run(TICK_MS);
        course.end_running(tenant(1));
    }
    let (a, b) = (course.worked("a"), course.worked("b"));
    assert!(a >= 2 * QUANTUM_MS && b >= 2 * QUANTUM_MS, "{a} and {b}");
}

#[test]
fn resumed_job_waits_from_its_return() {
    let mut course = Course::new(1, 1, PolicyName::Fifo);
    course.submit("first", 1);
    course.run(5 * QUANTUM_MS);
    course.submit("second", 1);
    // The job is suspended, which starts its wait. Then it is stopped and returns behind the other
    // job.
    course.find("first").intent = Intent::Pause;
    course.run(TICK_MS);
    assert_eq!(course.find("first").state.phase(), JobPhase::Paused);
    course.find("first").intent = Intent::Run;
    let back_ms = course.snapshot.now_ms;
    course.run(QUANTUM_MS / 2);
    assert_eq!(course.find("first").state, JobState::Queued);
    assert_eq!(course.find("second").state, JobState::Running);
    assert_eq!(course.find("first").turned_ms, Some(back_ms));
}

#[test]
fn jobs_waiting_for_quota_do_not_block_rotation() {
    let mut course = Course::new(1, 1, PolicyName::Fifo);
    course.snapshot.tenants = [(0, None), (1, Some(0))]
        .into_iter()
        .map(
            |(number, gpu_quota)| muster_core::snapshot::SnapshotTenant {
                id: tenant(number),
                name: format!("t{number}"),
                gpu_quota,
                weight: 1.0,
            },
        )
        .collect();
    for number in 0..70 {
        course.submit(&format!("refused-{number}"), 1).tenant = tenant(1);
    }
    course.submit("a", 1);
    course.submit("b", 1);
    course.run(8 * QUANTUM_MS);
    let (a, b) = (course.worked("a"), course.worked("b"));
    assert!((a - b).abs() <= 2 * QUANTUM_MS, "{a} and {b}");
}

#[test]
fn partly_done_command_is_time_sliced() {
    let mut course = Course::new(1, 2, PolicyName::Fifo);
    course.submit("command", 2).command = Some(Ends::AllWorkers);
    course.submit("other", 2);
    course.run(QUANTUM_MS / 2);
    let done = TaskEvent::Gone {
        outcome: Outcome::exited(0),
    };
    let worker = &mut course.find("command").tasks[1];
    worker.state = worker.state.clone().apply(done).expect("it ran");
    course.run(8 * QUANTUM_MS);
    let (command, other) = (course.worked("command"), course.worked("other"));
    assert!(
        command >= 2 * QUANTUM_MS && other >= 2 * QUANTUM_MS,
        "{command} and {other}"
    );
}

#[test]
fn owner_suspended_job_stays_until_resumed_or_drained() {
    let mut course = Course::new(1, 1, PolicyName::Fifo);
    course.submit("a", 1);
    course.run(TICK_MS);
    course.find("a").intent = Intent::Suspend;
    course.submit("b", 1);
    course.run(5 * QUANTUM_MS);
    assert_eq!(course.find("a").state, JobState::Suspended);
    assert_eq!(course.worked("b"), 5 * QUANTUM_MS, "the GPU is b's alone");
    course.find("a").intent = Intent::Run;
    course.run(2 * QUANTUM_MS);
    assert!(course.worked("a") > TICK_MS);
    course.find("a").intent = Intent::Suspend;
    course.run(3 * QUANTUM_MS);
    assert_eq!(course.find("a").state, JobState::Suspended);
    course.snapshot.nodes[0].drained = true;
    course.settle();
    assert_eq!(
        course.find("a").state.phase(),
        JobPhase::Paused,
        "nothing stands still there"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// With any sizes, every job works for at least half a quantum in two rotations.
    #[test]
    fn no_job_starves_in_rotation(
        sizes in prop::collection::vec(1u32..=4, 2..7), share in 0usize..3, late in any::<bool>(),
    ) {
        let share = [PolicyName::Fifo, PolicyName::Muster, PolicyName::Drf][share];
        let mut course = Course::new(2, 2, share);
        course.policy.slicing = Some(Slicing { quantum_ms: QUANTUM_MS as u64, suspended_per_gpu: 16 });
        for (number, &size) in sizes.iter().enumerate() {
            course.submit(&format!("j{number}"), size);
            if late {
                course.run(7_000);
            }
        }
        let rotation_ms = QUANTUM_MS * i64::try_from(sizes.len()).expect("few");
        course.run(2 * rotation_ms);
        let before = course.worked.clone();
        course.run(2 * rotation_ms);
        for number in 0..sizes.len() {
            let name = format!("j{number}");
            let worked = course.worked(&name) - before.get(&name).copied().unwrap_or(0);
            prop_assert!(worked >= QUANTUM_MS / 2, "{name} of {sizes:?} worked {worked} ms");
        }
    }
}
