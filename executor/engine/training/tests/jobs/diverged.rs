//! Divergence with encoded gradients: every codec passes NaN on. The job then ends as diverged and
//! is not tried again, and no task is considered lost or failed before.

use crate::rig::workers::Crew;
use crate::rig::{Rig, RigLaunch, RigTask, spec};
use muster_model::assignment::TaskReport;
use muster_model::spec::JobSpec;
use muster_model::task::Role;
use serde_json::{Value, json};

fn codecs() -> Vec<Value> {
    vec![
        json!({ "kind": "none" }),
        json!({ "kind": "half", "format": "f16" }),
        json!({ "kind": "half", "format": "bf16", "rounding": "stochastic", "feedback": true }),
        json!({ "kind": "one_bit" }),
        json!({ "kind": "tern_grad", "clip": 2.5 }),
        json!({ "kind": "qsgd" }),
        json!({ "kind": "top_k", "density": 0.01 }),
        json!({ "kind": "top_k", "density": 0.01, "sampled": true }),
        json!({ "kind": "threshold", "magnitude": 0.1 }),
        json!({ "kind": "dgc", "density": 0.01, "momentum": 0.9, "warm_up_steps": 20 }),
    ]
}

/// After one step at this rate, no sum over a layer's inputs is finite, nor is its gradient.
fn diverging(topology: &str, codec: &Value) -> JobSpec {
    let mut all = json!({
        "engine": { "optimizer": { "kind": "sgd", "learning_rate": 1e37 } },
        "exchange": { "topology": topology, "compression": { "codec": codec } }
    });
    if topology == "all_reduce" {
        all["scale"] =
            json!({ "workers": { "min": 1, "max": 4 }, "ps_shards": { "min": 0, "max": 0 } });
    }
    // No document may request such a rate; it represents any cause of immediate divergence.
    spec(all)
}

/// The coordinator reports a permanent failure, and no other task fails by itself.
fn ended_as_diverged(tasks: &mut [RigTask], what: &str) {
    for task in &mut *tasks {
        task.wait();
    }
    for task in tasks {
        let failures = task.events().into_iter().filter_map(|report| match report {
            TaskReport::Failed {
                message, retryable, ..
            } => Some((message, retryable)),
            _ => None,
        });
        let failures: Vec<(String, bool)> = failures.collect();
        let log = task.log();
        assert!(!log.contains("panicked"), "{what}: {log}");
        match (task.role, failures.as_slice()) {
            (Role::Worker { rank: 0 }, [(message, false)]) => {
                assert!(message.contains("training diverged"), "{what}: {message}");
            }
            (Role::Worker { rank: 0 }, other) => {
                panic!("{what}: the chief ended with {other:?}\n{log}")
            }
            (_, []) => {}
            (role, other) => panic!("{what}: {role} failed too: {other:?}\n{log}"),
        }
    }
}

#[test]
fn ps_jobs_end_as_diverged_with_every_codec() {
    for codec in codecs() {
        let rig = Rig::new();
        let spec = diverging("parameter_server", &codec);
        let mut revision = rig.start(&RigLaunch::new(1, 2, 2, spec));
        ended_as_diverged(&mut revision.tasks, &codec.to_string());
    }
}

#[test]
fn all_reduce_jobs_end_as_diverged_with_every_codec() {
    for codec in codecs() {
        let rig = Rig::new();
        let mut crew = Crew::start(
            &rig,
            &RigLaunch::new(1, 2, 0, diverging("all_reduce", &codec)),
        );
        ended_as_diverged(&mut crew.tasks, &codec.to_string());
    }
}
