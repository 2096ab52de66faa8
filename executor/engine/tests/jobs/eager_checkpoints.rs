//! A checkpoint asks for what waits to be pushed; a job that reads eagerly is none the worse for it.

use crate::rig::{Launch, Rig, spec};
use serde_json::{Value, json};
use std::fs;

const STEPS: u64 = 15;
const BATCH: u64 = 32;

/// The last manifest and the model's sum of one worker that may be no step ahead of what it reads: each step is computed from the one before.
fn train(every_steps: Option<u64>) -> (Value, String) {
    let rig = Rig::new();
    let document = json!({
        "stop": { "steps": STEPS },
        "checkpoint": { "every_steps": every_steps, "every_minutes": null },
        "exchange": { "consistency": { "kind": "ssp", "staleness": 0, "eager": true } },
        "engine": { "optimizer": { "kind": "sgd", "learning_rate": 0.1 } },
    });
    rig.start(&Launch::new(1, 1, 2, spec(document))).succeed();
    let manifest = fs::read(rig.job_folder().join("final-r1/manifest.json")).unwrap();
    let manifest = serde_json::from_slice(&manifest).unwrap();
    (manifest, rig.final_sha256(1))
}

#[test]
fn a_checkpoint_makes_no_read_older_and_loses_no_count() {
    let (plain, bits) = train(None);
    assert_eq!(plain["curve"]["examples"], STEPS * BATCH);
    let (kept, bits_kept) = train(Some(4));
    assert_eq!(kept["curve"], plain["curve"]);
    assert_eq!(bits_kept, bits);
}
