//! Whole jobs of several workers in this process. Each has an emulated GPU, and a replacement for
//! NCCL sums their gradients. This proves the engine's side of the contract; only GPUs can prove
//! NCCL's side.

mod parts;

use crate::stop::StopFlag;
use crate::worker::single_device::trial::{
    STEPS, TrialJob, apart, assert_same, evaluations, launch,
};
use crate::worker::{ExitReason, WorkerContext, run};
use crate::worker::{Reporter, WorkerError};
use muster_compute::clock;
use muster_compute::cuda::Device;
use muster_compute::cuda::emulator::{EmulatedGpu, StandInBehaviour};
use muster_model::assignment::{Peer, Peers, TaskLaunch, TaskReport};
use muster_model::id::{NodeId, TaskId};
use muster_model::place::Place;
use muster_model::task::Role;
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use uuid::Uuid;

/// Change of the task set after the coordinator's second evaluation, at step 6.
type RosterChange = fn(&mut Peers, &StopFlag);

/// Maximum wait for a worker that is about to join.
const PATIENCE: Duration = Duration::from_secs(20);

/// State that all workers of one start share.
struct GpuTrialState {
    peers: Mutex<Peers>,
    change: RosterChange,
    stop: StopFlag,
    /// Number of workers that listen and are about to join the membership.
    listening: AtomicUsize,
    /// Whether the coordinator must still admit or dismiss a worker.
    is_due: AtomicBool,
}

impl GpuTrialState {
    /// Changes the task set and waits until its new workers listen.
    fn change(&self) {
        let mut peers = self.peers.lock().unwrap();
        let before = peers.workers.len();
        (self.change)(&mut peers, &self.stop);
        let wanted = peers.workers.len();
        drop(peers);
        let began = clock::now();
        while wanted > before && self.listening.load(Ordering::SeqCst) < wanted {
            assert!(began.elapsed() < PATIENCE, "nobody came");
            thread::sleep(Duration::from_millis(10));
        }
        self.is_due.store(wanted != before, Ordering::SeqCst);
        self.linger();
    }

    /// Returns the revision and the number of workers of the task set, if it contains this rank.
    fn task_set_of(&self, rank: usize) -> Option<(u64, usize)> {
        let peers = self.peers.lock().unwrap();
        let is_in = peers.workers.iter().any(|peer| peer.task_id == task(rank));
        is_in.then(|| (peers.revision, peers.workers.len()))
    }

    /// Gives a worker time from listening to reporting, and the coordinator from one poll to the
    /// next.
    fn linger(&self) {
        if self.is_due.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(400));
        }
    }
}

/// Stores the reports of one worker.
struct GpuTrialReporter {
    server: Arc<GpuTrialState>,
    rank: usize,
    reports: Mutex<Vec<TaskReport>>,
}

impl Reporter for GpuTrialReporter {
    fn report(&self, report: &TaskReport) -> io::Result<()> {
        match report {
            TaskReport::Listening { address } => {
                if self.rank == 0 {
                    let mut peers = self.server.peers.lock().unwrap();
                    peers.workers[0].address = Some(address.clone());
                }
                self.server.listening.fetch_add(1, Ordering::SeqCst);
            }
            TaskReport::Evaluated { evaluation } if evaluation.step == 6 => self.server.change(),
            TaskReport::Evaluated { .. } => self.server.linger(),
            TaskReport::Resized { .. } => self.server.is_due.store(false, Ordering::SeqCst),
            // Resumes all workers once they are suspended.
            TaskReport::Suspended { .. } if self.rank == 0 => {
                self.server.peers.lock().unwrap().turn = 2;
            }
            _ => {}
        }
        self.reports.lock().unwrap().push(report.clone());
        Ok(())
    }
}

/// Ending of a worker, `None` if it has died, and its reports.
type GpuTrialEnd = (Option<Result<ExitReason, WorkerError>>, Vec<TaskReport>);

fn task(rank: usize) -> TaskId {
    TaskId(Uuid::from_u128(0x30 + rank as u128))
}

fn peer(rank: usize) -> Peer {
    Peer {
        task_id: task(rank),
        node_id: NodeId(Uuid::from_u128(1)),
        address: None,
    }
}

/// Runs a revision of the job with a worker on each device. The first `at_first` are in the initial
/// task set.
fn start(
    job: &TrialJob,
    launch: &TaskLaunch,
    devices: &[Device],
    at_first: usize,
    change: RosterChange,
) -> Vec<GpuTrialEnd> {
    let server = Arc::new(GpuTrialState {
        peers: Mutex::new(Peers {
            revision: launch.revision,
            workers: (0..at_first).map(peer).collect(),
            ..Peers::default()
        }),
        change,
        stop: StopFlag::new(Duration::from_secs(20)),
        listening: AtomicUsize::new(0),
        is_due: AtomicBool::new(false),
    });
    thread::scope(|scope| {
        let server = &server;
        let workers: Vec<_> = (0..).zip(devices).collect();
        let workers: Vec<_> = workers
            .into_iter()
            .map(|(rank, device)| scope.spawn(move || one(job, launch, (rank, device), server)))
            .collect();
        let ended = workers.into_iter().map(|worker| worker.join().unwrap());
        ended.collect()
    })
}

/// Runs one worker.
fn one(
    job: &TrialJob,
    launch: &TaskLaunch,
    (rank, device): (usize, &Device),
    server: &Arc<GpuTrialState>,
) -> GpuTrialEnd {
    let began = clock::now();
    let (revision, workers) = loop {
        match server.task_set_of(rank) {
            Some(found) => break found,
            None if began.elapsed() > PATIENCE => return (None, Vec::new()),
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    let launch = TaskLaunch {
        task_id: task(rank),
        revision,
        workers: workers as u32,
        role: Role::Worker { rank: rank as u32 },
        ..launch.clone()
    };
    let folder = job.root.path().join(format!("task-{rank}"));
    fs::create_dir_all(&folder).unwrap();
    let told = GpuTrialReporter {
        server: Arc::clone(server),
        rank,
        reports: Mutex::default(),
    };
    let source = Arc::clone(server);
    let ctx = WorkerContext {
        checkpoint_root: &Place::Folder(job.root.path().join("checkpoints")),
        dataset_root: &job.root.path().join("data"),
        reporter: &told,
        stop: server.stop.clone(),
        peers: Arc::new(move || Some(source.peers.lock().unwrap().clone())),
        listen_host: "127.0.0.1",
        folder: &folder,
        sockets: &folder,
        threads: 1,
        device,
    };
    // A panic acts as the death of the process: connections end without a goodbye.
    let lived = thread::scope(|scope| scope.spawn(|| run(&launch, rank as u32, &ctx)).join());
    (lived.ok(), told.reports.into_inner().unwrap())
}

fn asking(more: &Value) -> TaskLaunch {
    let mut launch = launch(more);
    let mut spec = serde_json::to_value(&launch.spec).unwrap();
    spec["exchange"]["algorithm"] = json!("nccl");
    spec["scale"] = json!({ "workers": { "min": 1, "max": 4 } });
    launch.spec = serde_json::from_value(spec).unwrap();
    launch
}

fn gpus<const N: usize>() -> [Arc<EmulatedGpu>; N] {
    std::array::from_fn(|number| Arc::new(EmulatedGpu::new(number, StandInBehaviour::Usual)))
}

fn devices(gpus: &[Arc<EmulatedGpu>]) -> Vec<Device> {
    gpus.iter().cloned().map(Device::Ranked).collect()
}

/// All workers have finished.
fn assert_finished(ended: &[GpuTrialEnd]) {
    for (ending, reports) in ended {
        let is_over = matches!(ending, Some(Ok(ExitReason::Finished)));
        assert!(is_over, "{ending:?}, {reports:?}");
    }
}

fn sums(gpus: &[Arc<EmulatedGpu>]) -> Vec<u64> {
    gpus.iter().map(|gpu| gpu.sums()).collect()
}

const NOTHING: RosterChange = |_, _| {};

/// Runs a job with sums on the host, from the same seed, as the reference.
fn on_host() -> (TrialJob, TaskLaunch) {
    on_host_of(TrialJob::new(), &json!({}))
}

fn on_host_of(job: TrialJob, more: &Value) -> (TrialJob, TaskLaunch) {
    let mut launch = asking(more);
    launch.spec.exchange.algorithm = muster_model::spec::Algorithm::Auto;
    let ended = start(&job, &launch, &[const { Device::Emulated }; 2], 2, NOTHING);
    assert_finished(&ended);
    (job, launch)
}

/// Tolerates another order of additions with 24-bit floats, over fourteen steps of Adam.
fn assert_near(what: &str, job: &TrialJob, expected: &(TrialJob, TaskLaunch)) {
    let ((manifest, found), (_, expected)) = (job.kept(&expected.1), expected.0.kept(&expected.1));
    assert_eq!(
        (manifest.step, manifest.optimizer_updates),
        (STEPS, STEPS),
        "{what}"
    );
    let planes = expected.state.iter().zip(&found.state);
    for (expected, found) in planes.chain([(&expected.parameters, &found.parameters)]) {
        let apart = apart(expected, found);
        assert!(apart < 1e-4, "{what}: {apart} apart");
    }
}

#[test]
fn sums_on_gpus_train_like_sums_on_the_host() {
    let expected = on_host();
    let (job, gpus) = (TrialJob::new(), gpus::<3>());
    let ended = start(&job, &asking(&json!({})), &devices(&gpus), 3, NOTHING);
    assert_finished(&ended);
    // One bucket per step, and one for the end of training.
    assert_eq!(sums(&gpus), [STEPS + 1; 3]);
    let steps: Vec<u64> = evaluations(&ended[0].1).iter().map(|e| e.step).collect();
    assert_eq!(steps, [3, 6, 9, 12, STEPS]);
    assert_near("three workers", &job, &expected);
}

/// The parameters of the network fill three buckets.
#[test]
fn buckets_are_summed_during_the_backward_pass() {
    let more = json!({ "engine": { "model": { "kind": "mlp", "hidden": [1400, 800] } }, "stop": { "steps": 2 }, "evaluate": { "every_steps": 2 } });
    let (on_host, on_gpus, gpus) = (TrialJob::new(), TrialJob::new(), gpus::<2>());
    let launch = asking(&more);
    let mut plain = launch.clone();
    plain.spec.exchange.algorithm = muster_model::spec::Algorithm::Ring;
    start(
        &on_host,
        &plain,
        &[const { Device::Emulated }; 2],
        2,
        NOTHING,
    );
    start(&on_gpus, &launch, &devices(&gpus), 2, NOTHING);
    assert_eq!(sums(&gpus), [3 * 2; 2]);
    let (expected, found) = (on_host.kept(&plain).1, on_gpus.kept(&launch).1);
    let apart = apart(&expected.parameters, &found.parameters);
    assert!(apart < 1e-4, "{apart} apart");
}

/// Dies in the middle of a sum. The others form another communicator and repeat the step on all of
/// its examples.
#[test]
fn allreduce_continues_after_member_failure() {
    let expected = on_host();
    for dies_in in [1, 5] {
        let (job, mut gpus) = (TrialJob::new(), gpus::<3>());
        gpus[2] = Arc::new(EmulatedGpu::new(2, StandInBehaviour::Usual).dying_in(dies_in));
        let ended = start(&job, &asking(&json!({})), &devices(&gpus), 3, NOTHING);
        assert!(ended[2].0.is_none(), "it dies");
        assert_finished(&ended[..2]);
        let step = dies_in - 1;
        let gone = TaskReport::PeerGone {
            task_id: task(2),
            step,
        };
        assert!(ended[0].1.contains(&gone), "{:?}", ended[0].1);
        assert_eq!(sums(&gpus), [STEPS + 2, STEPS + 2, dies_in]);
        assert_near("after a death", &job, &expected);
    }
}

/// A replica with other parameters is found when the next communicator is formed; all workers
/// restart from a checkpoint.
#[test]
fn different_replica_is_detected_by_all_members() {
    let (job, mut gpus) = (TrialJob::new(), gpus::<3>());
    gpus[1] = Arc::new(EmulatedGpu::new(1, StandInBehaviour::Usual).straying_in(3));
    gpus[2] = Arc::new(EmulatedGpu::new(2, StandInBehaviour::Usual).dying_in(5));
    let ended = start(&job, &asking(&json!({})), &devices(&gpus), 3, NOTHING);
    for (ending, _) in &ended[..2] {
        let Some(Err(error)) = ending else {
            panic!("{ending:?}");
        };
        assert!(matches!(error, WorkerError::Drifted { step: 4 }), "{error}");
        assert!(error.is_retryable());
    }
}

#[test]
fn joined_worker_sums_and_dismissed_worker_stops() {
    let expected = on_host();
    let (job, gpus) = (TrialJob::new(), gpus::<3>());
    let ended = start(&job, &asking(&json!({})), &devices(&gpus), 2, |peers, _| {
        peers.revision += 1;
        peers.workers.push(peer(2));
    });
    assert_finished(&ended);
    let counted = sums(&gpus);
    assert_eq!(counted[..2], [STEPS + 1; 2]);
    assert!((2..=STEPS - 5).contains(&counted[2]), "{counted:?}");
    assert_near("with one more", &job, &expected);

    let (job, gpus) = (TrialJob::new(), self::gpus::<3>());
    let ended = start(&job, &asking(&json!({})), &devices(&gpus), 3, |peers, _| {
        peers.revision += 1;
        peers.workers.pop();
    });
    assert_finished(&ended[..2]);
    let dismissed = matches!(ended[2].0, Some(Ok(ExitReason::Interrupted)));
    assert!(dismissed, "{:?}", ended[2]);
    let counted = sums(&gpus);
    assert_eq!(counted[..2], [STEPS + 1; 2]);
    assert!(counted[2] < STEPS, "{counted:?}");
    assert_near("with one less", &job, &expected);
}

/// No worker waits in a sum that another never enters.
#[test]
fn all_sum_on_the_host_if_one_worker_cannot_use_nccl() {
    let expected = on_host();
    let second = [
        ("no library", EmulatedGpu::without_library()),
        (
            "an old library",
            EmulatedGpu::new(1, StandInBehaviour::Ancient),
        ),
        (
            "another version",
            EmulatedGpu::new(1, StandInBehaviour::Newer),
        ),
        ("the same GPU", EmulatedGpu::new(0, StandInBehaviour::Usual)),
    ];
    for (what, second) in second {
        let gpus = [
            Arc::new(EmulatedGpu::new(0, StandInBehaviour::Usual)),
            Arc::new(second),
        ];
        let job = TrialJob::new();
        assert_finished(&start(
            &job,
            &asking(&json!({})),
            &devices(&gpus),
            2,
            NOTHING,
        ));
        assert_eq!(sums(&gpus), [0, 0], "{what}");
        assert_near(what, &job, &expected);
    }
    let job = TrialJob::new();
    let mixed = [devices(&gpus::<1>()), vec![Device::Cpu]].concat();
    assert_finished(&start(&job, &asking(&json!({})), &mixed, 2, NOTHING));
    assert_near("a CPU", &job, &expected);
}

/// A library that fails to form a communicator, or in each sum, is not used any more. No step is
/// lost.
#[test]
fn all_return_to_the_host_after_library_failures() {
    let expected = on_host();
    use StandInBehaviour::{Fails, FailsAtOthers, Refuses, Usual};
    for (first, second, tried) in [
        (Refuses, Refuses, 0),
        // The first waits for the second to join.
        (Usual, Refuses, 0),
        (Fails, Fails, 2),
        (FailsAtOthers, FailsAtOthers, 2),
    ] {
        let gpus = [(0, first), (1, second)];
        let gpus = gpus.map(|(number, which)| Arc::new(EmulatedGpu::new(number, which)));
        let job = TrialJob::new();
        assert_finished(&start(
            &job,
            &asking(&json!({})),
            &devices(&gpus),
            2,
            NOTHING,
        ));
        assert_eq!(sums(&gpus), [tried; 2], "{first:?}, {second:?}");
        assert_near("after failures", &job, &expected);
    }
}

#[test]
fn joining_worker_without_nccl_returns_all_to_the_host() {
    let expected = on_host();
    let job = TrialJob::new();
    let [first, second] = gpus::<2>();
    let gpus = [first, second, Arc::new(EmulatedGpu::without_library())];
    let ended = start(&job, &asking(&json!({})), &devices(&gpus), 2, |peers, _| {
        peers.revision += 1;
        peers.workers.push(peer(2));
    });
    assert_finished(&ended);
    let counted = sums(&gpus);
    assert!((6..STEPS).contains(&counted[0]), "{counted:?}");
    assert_eq!(counted[2], 0);
    assert_near("with one that cannot", &job, &expected);
}

#[test]
fn suspension_and_stop_change_no_bit() {
    assert_undisturbed(&asking(&json!({})));
}

/// A suspended run, and a stopped and resumed one, have the bits of an undisturbed run.
fn assert_undisturbed(launch: &TaskLaunch) {
    let straight = TrialJob::new();
    start(&straight, launch, &devices(&gpus::<2>()), 2, NOTHING);
    let (_, expected) = straight.kept(launch);

    let (turning, gpus) = (TrialJob::new(), gpus::<2>());
    let ended = start(&turning, launch, &devices(&gpus), 2, |peers, _| {
        peers.turn = 1
    });
    assert_finished(&ended);
    for (_, reports) in &ended {
        assert!(
            reports
                .iter()
                .any(|report| matches!(report, TaskReport::Continued { turn: 2, .. })),
            "{reports:?}"
        );
    }
    assert_eq!(sums(&gpus), [STEPS + 1; 2]);
    assert_same("in turns", &turning.kept(launch).1, &expected);

    let (stopped, gpus) = (TrialJob::new(), self::gpus::<2>());
    let ended = start(&stopped, launch, &devices(&gpus), 2, |_, stop| stop.set());
    let is_stopped =
        |(ending, _): &GpuTrialEnd| matches!(ending, Some(Ok(ExitReason::Interrupted)));
    assert!(ended.iter().all(is_stopped), "{ended:?}");
    let (manifest, _) = stopped.kept(launch);
    assert!((6..STEPS).contains(&manifest.step), "{}", manifest.step);
    let resumed = TaskLaunch {
        revision: 2,
        resume_step: Some(manifest.step),
        ..launch.clone()
    };
    assert_finished(&start(&stopped, &resumed, &devices(&gpus), 2, NOTHING));
    assert_same("resumed", &stopped.kept(launch).1, &expected);
}
