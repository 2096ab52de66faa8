//! Residuals of encoded gradients in checkpoints: a job that continues from one has the bits of an
//! uninterrupted job, and with another number of workers no residual is lost.

use crate::loopback::{self, LoopbackJob, enter, forever, gradients, size, stats};
use crate::rig::reports::{interrupted, samples, written};
use crate::rig::workers::Crew;
use crate::rig::{Revision, Rig, RigLaunch, RigTask, spec};
use muster_comm::compress::{CodecConfig, Feedback};
use muster_model::spec::JobSpec;
use muster_model::task::Role;
use muster_training::checkpoint::Contents;
use muster_training::worker::{Reply, Shards, first_view};
use serde_json::{Value, json};
use std::fs;
use std::thread;
use std::time::Duration;

fn codecs() -> [Value; 3] {
    [
        json!({ "kind": "one_bit" }),
        json!({ "kind": "top_k", "density": 0.01 }),
        json!({ "kind": "dgc", "density": 0.01, "momentum": 0.9, "warm_up_steps": 20 }),
    ]
}

/// A job with this topology and codec. With dgc the workers apply the momentum, not the optimizer.
fn encoded(topology: &str, codec: &Value) -> JobSpec {
    let optimizer = match codec["kind"].as_str() {
        Some("dgc") => json!({ "kind": "sgd", "learning_rate": 0.02 }),
        _ => json!({ "kind": "adam", "learning_rate": 0.002 }),
    };
    let mut all = json!({
        "engine": { "optimizer": optimizer },
        "exchange": { "topology": topology, "compression": { "codec": codec } }
    });
    if topology == "all_reduce" {
        all["scale"] =
            json!({ "workers": { "min": 1, "max": 4 }, "ps_shards": { "min": 0, "max": 0 } });
    }
    document(all)
}

fn document(more: Value) -> JobSpec {
    let mut all = json!({
        "stop": { "steps": 600 },
        "checkpoint": { "every_steps": 50, "every_minutes": null, "keep": 2 }
    });
    all.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let spec = spec(all);
    assert_eq!(spec.validate(), Ok(()));
    spec
}

/// A started job, with or without PS shards.
enum StartedJob<'a> {
    Servers(Revision),
    Alone(Box<Crew<'a>>),
}

impl<'a> StartedJob<'a> {
    fn start(rig: &'a Rig, launch: &RigLaunch) -> Self {
        match launch.ps_shards {
            0 => Self::Alone(Box::new(Crew::start(rig, launch))),
            _ => Self::Servers(rig.start(launch)),
        }
    }

    fn tasks(&mut self) -> &mut Vec<RigTask> {
        match self {
            Self::Servers(revision) => &mut revision.tasks,
            Self::Alone(crew) => &mut crew.tasks,
        }
    }

    fn chief(&mut self) -> &mut RigTask {
        let chief = Role::Worker { rank: 0 };
        let tasks = self.tasks().iter_mut();
        tasks.into_iter().find(|task| task.role == chief).unwrap()
    }

    fn succeed(&mut self) {
        match self {
            Self::Servers(revision) => revision.succeed(),
            Self::Alone(crew) => crew.succeed(),
        }
    }
}

/// An uninterrupted run, a run that is stopped and continues, and a run that is killed and
/// continues from its last checkpoint have the same bits.
fn all_the_same(launch: impl Fn(u64) -> RigLaunch) {
    let straight = Rig::new();
    StartedJob::start(&straight, &launch(1)).succeed();

    let rig = Rig::new();
    let mut first = StartedJob::start(&rig, &launch(1));
    first.chief().wait_for("progress", |event| {
        samples(std::slice::from_ref(event)).pop()
    });
    for task in first.tasks() {
        task.signal("TERM");
    }
    first.succeed();
    let step = first.chief().wait_for("its stop", interrupted);
    assert!(step > 0 && step < 600, "{step}");
    StartedJob::start(&rig, &launch(2).resuming(step)).succeed();
    assert_eq!(straight.final_sha256(1), rig.final_sha256(2), "stopped");

    let rig = Rig::new();
    let mut first = StartedJob::start(&rig, &launch(1));
    let written = first.chief().wait_for("a checkpoint", written);
    for task in first.tasks().iter_mut().rev() {
        task.child.kill().unwrap();
        task.child.wait().unwrap();
    }
    StartedJob::start(&rig, &launch(2).resuming(written)).succeed();
    assert_eq!(straight.final_sha256(1), rig.final_sha256(2), "killed");
}

#[test]
fn resumed_ps_job_has_the_same_bits() {
    for codec in codecs() {
        all_the_same(|revision| {
            RigLaunch::new(revision, 3, 2, encoded("parameter_server", &codec))
        });
    }
}

/// One worker is in step with itself in every mode, so bits can be compared here too.
#[test]
fn resumed_single_ssp_worker_has_the_same_bits() {
    let all = [
        json!({ "kind": "ssp", "staleness": 2 }),
        json!({ "kind": "asp" }),
    ];
    for consistency in all {
        all_the_same(|revision| {
            let exchange = json!({
                "consistency": consistency,
                "compression": { "codec": { "kind": "one_bit" } }
            });
            let optimizer = json!({ "kind": "adam", "learning_rate": 0.002 });
            let document = document(json!({
                "engine": { "optimizer": optimizer },
                "exchange": exchange
            }));
            RigLaunch::new(revision, 1, 2, document)
        });
    }
}

/// Several SSP or ASP workers are killed and continue; the checkpoint has the residual of each of
/// them.
#[test]
fn resumed_ssp_and_asp_workers_keep_their_residuals() {
    let all = [
        json!({ "kind": "ssp", "staleness": 2 }),
        json!({ "kind": "ssp", "staleness": 2, "eager": true }),
        json!({ "kind": "asp" }),
    ];
    for consistency in all {
        let document = document(json!({
            "exchange": {
                "consistency": consistency,
                "compression": { "codec": { "kind": "top_k", "density": 0.01 } }
            },
            "scale": { "workers": { "min": 2, "max": 3 }, "ps_shards": { "min": 1, "max": 2 } }
        }));
        let rig = Rig::new();
        let mut first = rig.start(&RigLaunch::new(1, 3, 2, document.clone()));
        let chief = Role::Worker { rank: 0 };
        let at = first.tasks.iter().position(|task| task.role == chief);
        let step = first.tasks[at.unwrap()].wait_for("a checkpoint", written);
        for task in first.tasks.iter_mut().rev() {
            task.child.kill().unwrap();
            task.child.wait().unwrap();
        }
        let folders = rig.checkpoints();
        let name = folders
            .iter()
            .find(|name| name.starts_with(&format!("step-{step:010}")));
        let extras = rig
            .job_folder()
            .join(name.unwrap())
            .join("extras.safetensors");
        let extras = fs::read(extras).unwrap();
        let (header, data) =
            extras[8..].split_at(u64::from_le_bytes(extras[..8].try_into().unwrap()) as usize);
        let header: Value = serde_json::from_slice(header).unwrap();
        for rank in 0..3 {
            let plane = &header[Feedback::extra("compress.residual", rank)];
            let [start, end] =
                [0, 1].map(|end| plane["data_offsets"][end].as_u64().unwrap() as usize);
            let holds_something = data[start..end].iter().any(|&byte| byte != 0);
            assert!(
                holds_something,
                "{consistency}: worker {rank} of step {step}"
            );
        }
        let second = RigLaunch::new(2, 3, 2, document);
        rig.start(&second.resuming(step)).succeed();
    }
}

#[test]
fn resumed_all_reduce_job_has_the_same_bits() {
    for codec in codecs() {
        all_the_same(|revision| RigLaunch::new(revision, 3, 0, encoded("all_reduce", &codec)));
    }
}

/// One step of all workers, in which the coordinator states whether the next step begins with a
/// checkpoint.
fn step(workers: &mut [Shards], number: u64, keeps: bool) {
    if keeps {
        workers[0].keep(number + 1).unwrap();
    }
    thread::scope(|scope| {
        for (rank, shards) in (0..).zip(workers) {
            scope.spawn(move || {
                let mut parameters = vec![0.0; size()];
                let (own, counts) = (gradients(rank, number), stats(rank));
                let reply = shards.push_pull(number, counts, &own, &mut parameters, &forever);
                assert!(matches!(reply.unwrap(), Reply::Parameters { .. }));
                assert_eq!(shards.take_told_to_keep(), keeps);
                if keeps && rank > 0 {
                    shards.hand_over().unwrap();
                }
            });
        }
    });
}

fn held<'a>(workers: impl Iterator<Item = &'a Feedback>) -> Vec<f64> {
    let mut sum = vec![0.0; size()];
    for (_, plane) in workers.flat_map(Feedback::planes) {
        for (sum, value) in sum.iter_mut().zip(plane) {
            *sum += f64::from(*value);
        }
    }
    sum
}

fn begin(job: &LoopbackJob, workers: u32, contents: &Contents) -> Vec<Shards> {
    let mut all: Vec<Shards> = (0..workers).map(|rank| job.join(rank)).collect();
    let names = (0..workers).map(loopback::worker).collect();
    let view = first_view(1, names, &job.addresses, &job.blocks);
    all[0].begin(view, 3, 3, contents).unwrap();
    for shards in &mut all[1..] {
        enter(shards);
        shards.fetch_own().unwrap();
    }
    all
}

fn feedback_of(workers: &[Shards]) -> Vec<Feedback> {
    let all = workers.iter();
    all.map(|shards| shards.feedback().unwrap().clone())
        .collect()
}

/// One, two and five workers, the latter on other shards, continue from the checkpoint of three.
#[test]
fn sum_of_residuals_survives_a_change_of_workers() {
    for codec in [
        CodecConfig::OneBit {},
        CodecConfig::TopK {
            density: 0.01,
            sampled: false,
        },
    ] {
        let job = LoopbackJob::start_encoded(3, 2, codec);
        let mut workers = job.joined(0);
        for number in 0..3 {
            step(&mut workers, number, number == 2);
        }
        let mut contents = workers[0].snapshot(Contents::default()).unwrap().contents;
        contents.extras.extend(workers[0].held_back().unwrap());
        let before = feedback_of(&workers);
        let expected = held(before.iter());
        assert!(expected.iter().any(|value| value.abs() > 0.1));
        for (count, ps_shards) in [(1, 2), (2, 1), (3, 3), (5, 3)] {
            let job = LoopbackJob::start_encoded(count, ps_shards, codec);
            let workers = begin(&job, count, &contents);
            let after = feedback_of(&workers);
            if count >= 3 {
                assert_eq!(after[..3], before[..], "each has its own");
            }
            for (got, expected) in held(after.iter()).iter().zip(&expected) {
                assert!((got - expected).abs() < 1e-4, "{count}: {got} {expected}");
            }
        }
    }
}

/// Does step 1, after which a new view begins.
fn enter_with_step_one(rank: u32, shards: &mut Shards) {
    let mut parameters = vec![0.0; size()];
    let (own, counts) = (gradients(rank, 1), stats(rank));
    let reply = shards.push_pull(1, counts, &own, &mut parameters, &forever);
    assert!(matches!(reply.unwrap(), Reply::Parameters { .. }));
    assert_eq!(shards.follow().unwrap(), Some(true));
}

/// The checkpoint's step is the first one on other shards, one of them new: all residuals reach the
/// coordinator through them.
#[test]
fn residuals_survive_a_change_of_shards() {
    let mut job = LoopbackJob::start_encoded(3, 2, CodecConfig::OneBit {});
    let mut workers = job.joined(0);
    step(&mut workers, 0, false);
    let new = job.start_shard(2);
    job.addresses.push(new);
    let names: Vec<_> = (0..3).map(loopback::worker).collect();
    workers[0].approach(&job.addresses).unwrap();
    workers[0]
        .change(2, names, &job.addresses, 2, Vec::new())
        .unwrap();
    workers[0].keep(2).unwrap();
    let fetched = thread::scope(|scope| {
        let mut all = (0..).zip(&mut workers);
        let (_, chief) = all.next().unwrap();

        for (rank, shards) in all {
            scope.spawn(move || {
                enter_with_step_one(rank, shards);
                // The coordinator asks before this worker has sent its residual.
                thread::sleep(Duration::from_millis(100));
                assert!(shards.take_told_to_keep());
                shards.hand_over().unwrap();
            });
        }
        enter_with_step_one(0, chief);
        chief.held_back().unwrap()
    });
    for (rank, shards) in workers.iter().enumerate() {
        for (name, plane) in shards.feedback().unwrap().extras(rank) {
            let (_, kept) = fetched.iter().find(|(other, _)| *other == name).unwrap();
            assert!(*kept == plane, "{name}");
        }
    }
}

/// A job is stopped before its first step: the residual of a late worker is still available for it.
#[test]
fn restored_residual_is_kept_until_its_worker_fetches_it() {
    let codec = CodecConfig::OneBit {};
    let job = LoopbackJob::start_encoded(2, 2, codec);
    let mut workers = job.joined(0);
    step(&mut workers, 0, true);
    let mut contents = workers[0].snapshot(Contents::default()).unwrap().contents;
    contents.extras.extend(workers[0].held_back().unwrap());
    let job = LoopbackJob::start_encoded(2, 2, codec);
    let mut all = [job.join(0), job.join(1)];
    let names = (0..2).map(loopback::worker).collect();
    let view = first_view(1, names, &job.addresses, &job.blocks);
    all[0].begin(view, 1, 1, &contents).unwrap();
    all[0].keep(2).unwrap();
    // Frames on two connections have no common order; the answer to a snapshot follows both.
    all[0].snapshot(Contents::default()).unwrap();
    enter(&mut all[1]);
    all[1].fetch_own().unwrap();
    assert!(all[1].feedback() == workers[1].feedback());
}
