//! GPU memory of suspended programs: a job takes turns with a program only if both fit on the GPU.

use crate::turns::{Course, QUANTUM_MS};
use muster_core::policies::name::PolicyName;
use muster_core::snapshot::{ClusterSnapshot, SnapshotJob};
use muster_core::{Action, Violation, check, plan};
use muster_model::job::{Intent, JobState};
use muster_model::packing::Measured;
use muster_model::spec::Ends;
use muster_model::task::TaskState;
use muster_model::wait::Wait;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

/// Returns a cluster of real GPUs of 80 GiB.
fn gpus(nodes: u32, gpus: u32) -> Course {
    gpus_under(nodes, gpus, PolicyName::Muster)
}

fn gpus_under(nodes: u32, gpus: u32, share: PolicyName) -> Course {
    let mut course = Course::new(nodes, gpus, share);
    for node in &mut course.snapshot.nodes {
        (node.cpu_slots, node.gpu_memory_bytes) = (false, 80 * GIB);
    }
    course
}

/// Submits a user's program. `gib` is the GPU memory that its document states.
fn program<'c>(course: &'c mut Course, name: &str, gib: Option<u64>) -> &'c mut SnapshotJob {
    let job = course.submit(name, 1);
    job.command = Some(Ends::AllWorkers);
    job.constraints.gpu_memory_bytes = gib.map(|gib| gib * GIB);
    job
}

/// Submits a program and lets its owner suspend it once it runs.
fn suspended_program(course: &mut Course, name: &str, gib: Option<u64>) {
    program(course, name, gib);
    course.run(5_000);
    course.find(name).intent = Intent::Suspend;
    course.run(5_000);
    assert_eq!(course.find(name).tasks[0].state, TaskState::Suspended);
}

/// Two programs on one GPU. Returns how long each worked, in quanta.
fn worked_quanta(first: Option<u64>, second: Option<u64>, able: bool) -> (i64, i64) {
    let mut course = gpus(1, 1);
    course.snapshot.nodes[0].driver_suspend = able;
    program(&mut course, "first", first);
    course.run(5_000);
    program(&mut course, "second", second);
    course.run(8 * QUANTUM_MS);
    let quanta = |name: &str| course.worked(name) / QUANTUM_MS;
    (quanta("first"), quanta("second"))
}

#[test]
fn programs_of_unknown_memory_take_no_turns() {
    assert_eq!(worked_quanta(None, None, false), (8, 0));
    assert_eq!(worked_quanta(Some(10), None, false), (8, 0));
    assert_eq!(worked_quanta(None, Some(10), false), (8, 0));
}

#[test]
fn programs_take_turns_if_both_fit() {
    let (first, second) = worked_quanta(Some(36), Some(36), false);
    assert!((3..=5).contains(&first) && (3..=5).contains(&second));
    // A tenth of the GPU stays free: 37 + 36 GiB are more than 72.
    assert_eq!(worked_quanta(Some(37), Some(36), false), (8, 0));
}

#[test]
fn programs_take_turns_where_driver_moves_memory() {
    let (first, second) = worked_quanta(None, None, true);
    assert!((3..=5).contains(&first) && (3..=5).contains(&second));
}

#[test]
fn measured_memory_replaces_smaller_statement() {
    let mut course = gpus(1, 1);
    program(&mut course, "first", Some(10)).measured = Some(Box::new(Measured {
        peak_bytes: Some(70 * GIB),
        ..Measured::default()
    }));
    course.run(5_000);
    program(&mut course, "second", Some(10));
    course.run(4 * QUANTUM_MS);
    assert_eq!(course.worked("second"), 0);
}

#[test]
fn engine_job_and_program_need_known_memory() {
    for stated in [None, Some(20)] {
        let mut course = gpus(1, 1);
        course.submit("engine", 1).constraints.gpu_memory_bytes = Some(20 * GIB);
        course.run(5_000);
        program(&mut course, "program", stated);
        course.run(4 * QUANTUM_MS);
        // The program would keep its memory when the engine's job resumes.
        assert_eq!(course.worked("program") > 0, stated.is_some());
    }
}

#[test]
fn engine_jobs_take_turns_without_known_memory() {
    let mut course = gpus(1, 1);
    course.submit("first", 1);
    course.run(5_000);
    course.submit("second", 1);
    course.run(4 * QUANTUM_MS);
    assert!(course.worked("second") >= QUANTUM_MS);
}

#[test]
fn owners_suspended_program_keeps_its_gpu_until_it_ends() {
    let mut course = gpus(1, 2);
    program(&mut course, "other", None);
    suspended_program(&mut course, "kept", None);
    program(&mut course, "new", None);
    course.run(3 * QUANTUM_MS);
    assert_eq!(course.worked("new"), 0);
    let why = course.find("new").waiting.clone().expect("it waits").why;
    assert!(
        matches!(
            why,
            Wait::WaitingForGpus {
                free_gpus: 0,
                occupied_gpus: 1,
                ..
            }
        ),
        "{why:?}"
    );
    course.find("kept").intent = Intent::Run;
    course.run(5_000);
    assert_eq!(course.find("kept").tasks[0].state, TaskState::Running);
    course.find("kept").intent = Intent::Cancel;
    course.run(10_000);
    assert!(course.worked("new") > 0);
}

#[test]
fn job_that_fits_starts_beside_owners_suspended_program() {
    let mut course = gpus(1, 1);
    suspended_program(&mut course, "kept", Some(30));
    program(&mut course, "large", Some(50));
    program(&mut course, "small", Some(30));
    course.run(QUANTUM_MS);
    assert_eq!(course.worked("large"), 0);
    assert!(course.worked("small") > 30_000);
}

#[test]
fn engine_job_behind_program_restarts_elsewhere() {
    let mut course = gpus(2, 1);
    course.snapshot.nodes[1].drained = true;
    course.submit("engine", 1);
    course.run(5_000);
    course.find("engine").intent = Intent::Suspend;
    course.run(5_000);
    // A suspended job of the engine keeps no GPU memory, so the policy starts the program there.
    program(&mut course, "program", None);
    course.run(5_000);
    course.find("engine").intent = Intent::Run;
    course.run(3 * QUANTUM_MS);
    assert_eq!(course.find("engine").state, JobState::Queued);
    course.snapshot.nodes[1].drained = false;
    course.run(10_000);
    for name in ["engine", "program"] {
        assert_eq!(course.find(name).state, JobState::Running, "{name}");
    }
    assert_eq!(course.find("program").turned_ms, None, "never suspended");
}

#[test]
fn checker_refuses_start_beside_suspended_program() {
    let mut course = gpus(1, 1);
    suspended_program(&mut course, "kept", Some(30));
    program(&mut course, "small", Some(30));
    let (right, _) = plan(&course.snapshot, &course.policy);
    let starts = |action: &Action| matches!(action, Action::Start { .. });
    assert!(right.decisions.iter().any(|one| starts(&one.action)));
    course.find("small").constraints.gpu_memory_bytes = Some(60 * GIB);
    let violations = check(&course.snapshot, &right);
    assert!(
        matches!(
            violations[..],
            [Violation::GpuMemoryExceeded { gpu: 0, .. }]
        ),
        "{violations:?}"
    );
}

/// Jobs that run or are suspended on one GPU, with the bytes that they use there.
fn used_bytes(snapshot: &ClusterSnapshot) -> Vec<u64> {
    let mut used = vec![0; 4];
    for job in snapshot.jobs.iter().filter(|job| job.command.is_some()) {
        for task in job.tasks.iter().filter(|task| !task.state.is_released()) {
            for &gpu in &task.gpus {
                used[gpu as usize] += job.constraints.gpu_memory_bytes.unwrap_or(80 * GIB);
            }
        }
    }
    used
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Programs of known and unknown memory under every policy: the programs on a GPU never need
    /// more than it has.
    #[test]
    fn programs_on_a_gpu_always_fit(
        policy in prop::sample::select(PolicyName::ALL.to_vec()),
        jobs in prop::collection::vec(
            (prop::option::of(10_u64..50), 1_u32..4, 0_i64..90_000, any::<bool>()),
            2..8,
        ),
    ) {
        let mut course = gpus_under(1, 4, policy);
        for (number, (gib, workers, pause_ms, is_suspended)) in jobs.into_iter().enumerate() {
            let name = format!("job-{number}");
            let job = program(&mut course, &name, gib);
            (job.workers.min, job.workers.max) = (workers, workers);
            course.run(pause_ms / 1_000 * 1_000);
            if is_suspended {
                course.find(&name).intent = Intent::Suspend;
            }
            for used in used_bytes(&course.snapshot) {
                prop_assert!(used <= 80 * GIB);
            }
        }
        for _ in 0..6 {
            course.run(QUANTUM_MS / 2);
            for used in used_bytes(&course.snapshot) {
                prop_assert!(used <= 80 * GIB);
            }
        }
    }
}
