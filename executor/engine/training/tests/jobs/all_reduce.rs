//! Real processes that train without parameter servers: results, and workers that join, leave or
//! are lost.

use crate::rig::reports::{accuracy_at, interrupted, samples};
use crate::rig::workers::Crew;
use crate::rig::{Rig, RigLaunch, RigTask, spec};
use muster_model::assignment::TaskReport;
use muster_model::spec::JobSpec;
use serde_json::json;
use std::fs;

fn peers(more: serde_json::Value) -> JobSpec {
    let mut document = json!({ "exchange": { "topology": "all_reduce" } });
    for (key, value) in more.as_object().unwrap() {
        document[key] = value.clone();
    }
    spec(document)
}

/// Checksum and parameters of the model that some workers train.
fn trained(workers: u32, more: serde_json::Value) -> (String, Vec<f32>) {
    let rig = Rig::new();
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, workers, 0, peers(more)));
    crew.succeed();
    crew.agree();
    (rig.final_sha256(1), rig.parameters("final-r1"))
}

/// Largest difference of two parameters.
fn furthest(a: &[f32], b: &[f32]) -> f32 {
    let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    apart.fold(0.0, f32::max)
}

#[test]
fn three_workers_match_one_worker_and_repeat_bit_for_bit() {
    let (_, alone) = trained(1, json!({}));
    let (first, three) = trained(3, json!({}));
    let (second, _) = trained(3, json!({}));
    assert_eq!(first, second, "the same bits");
    let apart = furthest(&alone, &three);
    // Sixty steps of Adam, whose first steps follow the sign of a gradient that may be only
    // rounding noise.
    assert!(apart < 2e-3, "{apart}");
}

/// Parameters and logs of a job whose document names this algorithm.
fn trained_by_algorithm(algorithm: &str) -> (Vec<f32>, String) {
    let rig = Rig::new();
    let exchange = json!({ "topology": "all_reduce", "algorithm": algorithm });
    let document = spec(json!({ "exchange": exchange, "stop": { "steps": 12 } }));
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 2, 0, document));
    crew.succeed();
    crew.agree();
    (rig.parameters("final-r1"), crew.logs())
}

/// Workers without GPUs that should sum on GPUs report why they do not, and train the same model.
#[test]
fn workers_without_gpus_sum_on_the_host_instead_of_nccl() {
    let (expected, _) = trained_by_algorithm("auto");
    let (found, logs) = trained_by_algorithm("nccl");
    let why = "gradients meet on the host, because worker 0 cannot: it computes on the CPU";
    assert_eq!(logs.matches(why).count(), 2, "{logs}");
    assert!(expected == found, "the same bits");
}

fn trained_with_clipping(workers: u32, clip_norm: Option<f64>) -> (String, Vec<f32>) {
    let optimizer = json!({ "kind": "sgd", "learning_rate": 0.5, "momentum": 0.5 });
    let engine = json!({ "optimizer": optimizer, "clip_norm": clip_norm });
    trained(
        workers,
        json!({ "engine": engine, "stop": { "steps": 30 } }),
    )
}

#[test]
fn a_gradient_is_clipped_by_its_norm_over_all_workers() {
    let (_, alone) = trained_with_clipping(1, Some(0.2));
    let (first, three) = trained_with_clipping(3, Some(0.2));
    let (second, _) = trained_with_clipping(3, Some(0.2));
    let (_, free) = trained_with_clipping(1, None);
    assert_eq!(first, second, "the same bits");
    let apart = furthest(&alone, &three);
    assert!(apart < 1e-4, "{apart}");
    assert!(furthest(&alone, &free) > 0.1, "it was clipped");
}

/// Parameters of a text model that one worker trains.
fn text_model(averaging: Option<&serde_json::Value>, clip_norm: Option<f64>) -> Vec<f32> {
    let rig = Rig::new();
    let text: String = (0..4_000).map(|i| ["so ", "it ", "goes "][i % 3]).collect();
    fs::write(rig.dataset_root().join("t.txt"), text).unwrap();
    let engine = json!({
        "model": { "kind": "lstm", "width": 8, "hidden": [8] },
        "dataset": { "kind": "text", "path": "t.txt", "length": 16, "train_examples": 200, "test_examples": 20 },
        "optimizer": { "kind": "sgd", "learning_rate": 0.5 },
        "clip_norm": clip_norm,
    });
    let exchange = json!({ "topology": "all_reduce", "averaging": averaging });
    let document = json!({ "engine": engine, "exchange": exchange, "stop": { "steps": 12 } });
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 1, 0, spec(document)));
    crew.succeed();
    rig.parameters("final-r1")
}

/// A round of one step by one worker equals a step. The examples of a text have many targets, whose
/// gradients add up.
#[test]
fn averaging_of_a_single_worker_changes_nothing() {
    let rounds = json!({ "kind": "local_sgd", "every": 1 });
    let free = text_model(None, None);
    assert_eq!(free, text_model(Some(&rounds), None));
    let clipped = text_model(None, Some(0.1));
    assert_eq!(clipped, text_model(Some(&rounds), Some(0.1)));
    assert_ne!(free, clipped);
}

/// Accuracy of a model that two workers train.
fn accuracy_with(compression: &serde_json::Value) -> f64 {
    let rig = Rig::new();
    let exchange = json!({ "topology": "all_reduce", "compression": compression });
    let engine = json!({ "optimizer": { "kind": "sgd", "learning_rate": 0.05 } });
    let document = json!({ "engine": engine, "exchange": exchange, "stop": { "steps": 600 } });
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 2, 0, spec(document)));
    crew.succeed();
    accuracy_at(crew.chief(), 600)
}

#[test]
fn every_codec_learns_as_much_between_two_workers() {
    let plain = accuracy_with(&json!("none"));
    for codec in [
        json!({ "kind": "half", "format": "bf16", "feedback": true }),
        json!({ "kind": "one_bit" }),
        json!({ "kind": "tern_grad" }),
        json!({ "kind": "qsgd", "bits": 4 }),
        json!({ "kind": "top_k", "density": 0.02 }),
        json!({ "kind": "threshold", "magnitude": 0.05 }),
        json!({ "kind": "dgc", "density": 0.02, "momentum": 0.9, "warm_up_steps": 40 }),
    ] {
        let accuracy = accuracy_with(&json!({ "codec": codec }));
        println!("{codec}: {accuracy}, plain {plain}");
        // One test image is half a percentage point.
        assert!(
            accuracy > plain - 0.0151,
            "{codec}: {accuracy}, plain {plain}"
        );
    }
}

/// Accuracy of a job of three workers that encode gradients; one of them may be killed.
fn accuracy_of_three(is_killed: bool) -> f64 {
    let rig = Rig::new();
    let compression = json!({ "codec": { "kind": "one_bit" } });
    let exchange = json!({ "topology": "all_reduce", "compression": compression });
    let engine = json!({
        "model": { "kind": "mlp", "hidden": [1024, 1024] },
        "optimizer": { "kind": "sgd", "learning_rate": 0.05, "momentum": 0.9 },
    });
    let document = json!({ "engine": engine, "exchange": exchange, "stop": { "steps": 120 } });
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 3, 0, spec(document)));
    if is_killed {
        crew.wait_for_step(20);
        crew.tasks[1].signal("KILL");
    }
    let killed = if is_killed { -1 } else { 0 };
    assert_eq!(crew.wait(), [0, killed, 0], "{}", crew.logs());
    crew.agree();
    accuracy_at(crew.chief(), 120)
}

/// Two buckets that are sent during the backward pass. With one bit per value, such a short
/// training ends between 48 and 76 %, depending on the seed and on rounding, so it is compared with
/// itself.
#[test]
fn killed_worker_does_not_harm_a_compressed_job() {
    let (whole, killed) = (accuracy_of_three(false), accuracy_of_three(true));
    assert!(whole > 0.3, "of ten classes: {whole}");
    assert!(killed > whole - 0.2, "{killed}, undisturbed {whole}");
}

fn noise_scale_of(workers: u32) -> Option<f64> {
    let rig = Rig::new();
    let document = peers(json!({ "stop": { "steps": 200 } }));
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, workers, 0, document));
    crew.succeed();
    samples(&crew.chief().events()).last().unwrap().noise_scale
}

#[test]
fn workers_that_sum_gradients_report_their_noise() {
    assert_eq!(noise_scale_of(1), None);
    let among_themselves = noise_scale_of(2).unwrap();
    assert!(among_themselves > 0.0);
    // PS shards see the same gradients, each its own part.
    let rig = Rig::new();
    let document = spec(json!({ "stop": { "steps": 200 } }));
    let mut revision = rig.start(&RigLaunch::new(1, 2, 2, document));
    revision.succeed();
    let by_shards = samples(&revision.chief().events())
        .last()
        .unwrap()
        .noise_scale;
    let ratio = by_shards.unwrap() / among_themselves;
    assert!(
        (ratio - 1.0).abs() < 0.05,
        "{by_shards:?} and {among_themselves}"
    );
}

/// Accuracy and model of federated workers with the concentration `alpha` of classes.
fn federated(alpha: f64) -> (f64, String) {
    let rig = Rig::new();
    let averaging = json!({ "kind": "fedavg", "every": 4, "share": 1.0, "alpha": alpha });
    let exchange = json!({ "topology": "all_reduce", "averaging": averaging });
    let document = json!({ "exchange": exchange, "stop": { "steps": 600 } });
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 3, 0, spec(document)));
    crew.succeed();
    (accuracy_at(crew.chief(), 600), rig.final_sha256(1))
}

#[test]
fn federated_workers_with_skewed_shards_learn_together() {
    let (skewed, first) = federated(0.1);
    assert!(skewed > 0.8, "{skewed}");
    let (_, again) = federated(0.1);
    assert_eq!(again, first, "the same shards and bits in each run");
    assert_ne!(federated(1e5).1, first, "other shards");
}

#[test]
fn stopped_worker_is_considered_lost() {
    let rig = Rig::new();
    let mut document = peers(json!({ "stop": { "steps": 3_000 } }));
    document.exchange.hung_after_s = 2;
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 3, 0, document));
    crew.wait_for_step(40);
    let victim = crew.tasks[1].id;
    crew.tasks[1].signal("STOP");
    let gone = crew.chief().wait_for("a loss", |report| match report {
        TaskReport::PeerGone { task_id, .. } => Some(*task_id),
        _ => None,
    });
    assert_eq!(gone, victim);
    assert_eq!(crew.tasks[0].wait().code(), Some(0), "{}", crew.logs());
    assert_eq!(crew.tasks[2].wait().code(), Some(0), "{}", crew.logs());
    crew.agree();
    let seen = samples(&crew.chief().events());
    assert_eq!(seen.last().unwrap().workers, 2);
    // The stopped worker continues after the others have left.
    crew.tasks[1].signal("CONT");
    crew.tasks[1].wait();
}

#[test]
fn stopped_coordinator_is_considered_lost() {
    let rig = Rig::new();
    let mut document = peers(json!({ "stop": { "steps": 100_000 } }));
    document.exchange.hung_after_s = 2;
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 2, 0, document));
    crew.wait_for_step(20);
    crew.chief().signal("STOP");
    assert_eq!(crew.tasks[1].wait().code(), Some(75), "{}", crew.logs());
}

/// Waits for the resize to `count` workers. Returns its pause in milliseconds.
fn pause_of_resize(chief: &RigTask, count: u32) -> u64 {
    chief.wait_for("a resize", |report| match report {
        TaskReport::Resized {
            workers, pause_ms, ..
        } if *workers == count => Some(*pause_ms),
        _ => None,
    })
}

#[test]
fn workers_join_and_leave_during_training() {
    let rig = Rig::new();
    let spec = peers(json!({ "stop": { "steps": 1_500 } }));
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 2, 0, spec));
    crew.wait_for_step(40);
    crew.grow(2, 2);
    let grown = pause_of_resize(crew.chief(), 4);
    crew.shrink(3, &[1]);
    let shrunk = pause_of_resize(crew.chief(), 3);
    println!("pauses: {grown} ms to grow, {shrunk} ms to shrink");
    assert_eq!(crew.tasks[1].wait().code(), Some(0), "it leaves in order");
    crew.succeed();
    crew.agree();
    let prints = crew.fingerprints();
    assert!(prints.len() >= 2 + 4 + 3, "{prints:?}");
    let seen = samples(&crew.chief().events());
    assert_eq!(seen.last().unwrap().workers, 3);
    let events = crew.chief().events();
    assert!(
        events
            .iter()
            .any(|report| matches!(report, TaskReport::Finished { step: 1_500, .. }))
    );
}

#[test]
fn killed_worker_costs_only_its_part_of_a_step() {
    let rig = Rig::new();
    let spec = peers(json!({ "stop": { "steps": 1_500 } }));
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 3, 0, spec));
    crew.wait_for_step(40);
    let victim = crew.tasks[1].id;
    crew.tasks[1].signal("KILL");
    let gone = crew.chief().wait_for("a loss", |report| match report {
        TaskReport::PeerGone { task_id, step } => Some((*task_id, *step)),
        _ => None,
    });
    assert_eq!(gone.0, victim);
    assert_eq!(crew.wait(), [0, -1, 0], "{}", crew.logs());
    crew.agree();
    let seen = samples(&crew.chief().events());
    assert_eq!(seen.last().unwrap().workers, 2);
    assert!(seen.last().unwrap().accuracy.unwrap() > 0.9);
}

#[test]
fn a_job_changes_its_topology_between_two_starts() {
    let rig = Rig::new();

    let checkpoint = json!({ "every_steps": 10 });
    let long = json!({ "stop": { "steps": 100_000 }, "checkpoint": checkpoint });
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 2, 0, peers(long)));
    crew.wait_for_step(20);
    for task in &mut crew.tasks {
        task.signal("TERM");
    }
    crew.succeed();
    let step = crew.chief().wait_for("a step", interrupted);
    drop(crew);
    assert!(step >= 20);
    let servers = spec(json!({ "stop": { "steps": step + 30 }, "checkpoint": checkpoint }));
    let mut revision = rig.start(&RigLaunch::new(2, 2, 1, servers).resuming(step));
    revision.succeed();
    let mut crew = Crew::start(
        &rig,
        &RigLaunch::new(3, 2, 0, peers(json!({ "stop": { "steps": step + 60 } })))
            .resuming(step + 30),
    );
    crew.succeed();
    let ready = crew.chief().wait_for("a start", |report| match report {
        TaskReport::Ready { from_step } => Some(*from_step),
        _ => None,
    });
    assert_eq!(ready, step + 30);
}

#[test]
fn worker_without_coordinator_exits_with_peer_lost() {
    let rig = Rig::new();
    let spec = peers(json!({ "stop": { "steps": 100_000 } }));
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 2, 0, spec));
    crew.wait_for_step(20);
    crew.chief().signal("KILL");
    assert_eq!(crew.wait(), [-1, 75], "{}", crew.logs());
}

#[test]
fn every_way_of_averaging_learns() {
    for averaging in [
        json!({ "kind": "local_sgd", "every": 4 }),
        json!({ "kind": "easgd", "every": 4, "rho": 0.3 }),
        json!({ "kind": "sma", "every": 4, "momentum": 0.5 }),
        json!({ "kind": "bmuf", "every": 4, "momentum": 0.5 }),
        json!({ "kind": "gossip", "every": 2 }),
        json!({ "kind": "fedavg", "every": 4, "share": 0.6 }),
    ] {
        let rig = Rig::new();
        let exchange = json!({ "topology": "all_reduce", "averaging": averaging });
        // Not a multiple of any round: training ends within one.
        let document = json!({ "exchange": exchange, "stop": { "steps": 601 } });
        let mut crew = Crew::start(&rig, &RigLaunch::new(1, 3, 0, spec(document)));
        crew.succeed();
        let accuracy = accuracy_at(crew.chief(), 601);
        println!("{averaging}: {accuracy}");
        assert!(accuracy > 0.85, "{averaging}: {accuracy}\n{}", crew.logs());
    }
}
