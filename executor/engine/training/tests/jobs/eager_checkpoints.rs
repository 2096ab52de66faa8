//! A checkpoint requests the gradients that wait to be pushed; eager reads do not suffer from it.

use crate::rig::{Rig, RigLaunch, spec};
use serde_json::{Value, json};
use std::fs;

const STEPS: u64 = 15;
const BATCH: u64 = 32;

/// Last manifest and checksum of the model of one worker that may not be ahead of its reads: each
/// step is computed from the previous one.
fn train(every_steps: Option<u64>) -> (Value, String) {
    let rig = Rig::new();
    let document = json!({
        "stop": { "steps": STEPS },
        "checkpoint": { "every_steps": every_steps, "every_minutes": null },
        "exchange": { "consistency": { "kind": "ssp", "staleness": 0, "eager": true } },
        "engine": { "optimizer": { "kind": "sgd", "learning_rate": 0.1 } },
    });
    rig.start(&RigLaunch::new(1, 1, 2, spec(document)))
        .succeed();
    let manifest = fs::read(rig.job_folder().join("final-r1/manifest.json")).unwrap();
    let manifest = serde_json::from_slice(&manifest).unwrap();
    (manifest, rig.final_sha256(1))
}

#[test]
fn checkpoint_neither_delays_reads_nor_loses_counts() {
    let (plain, bits) = train(None);
    assert_eq!(plain["curve"]["examples"], STEPS * BATCH);
    let (kept, bits_kept) = train(Some(4));
    assert_eq!(kept["curve"], plain["curve"]);
    assert_eq!(bits_kept, bits);
}
