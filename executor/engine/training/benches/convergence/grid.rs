//! Pairs of consistency and codec that are trained, and their documents.

use super::rig::spec;
use muster_model::spec::JobSpec;
use serde_json::{Value, json};

/// Common settings of all pairs, in words.
pub const SETTING: &str =
    "CNN 16-32, dense 64, momentum 0.9 and a cosine rate, batch 128, 5 epochs";
const EPOCHS: u64 = 5;
const BATCH: u64 = 128;
/// Steps of five epochs of 60,000 images.
const STEPS: u64 = EPOCHS * (60_000 / BATCH);
/// Learning rate of a mean gradient over the whole batch. A worker's push that is applied by itself
/// is its part of that mean, so the rate is the same.
const RATE: f64 = 0.01;
const MOMENTUM: f64 = 0.9;

#[derive(Debug, Clone, Copy)]
pub struct GridConsistency {
    pub name: &'static str,
    staleness: Option<u64>,
    /// Updates per step, which schedules count: under SSP and ASP each push of a worker is one.
    updates: u64,
}

pub const CONSISTENCIES: [GridConsistency; 3] = [
    GridConsistency {
        name: "bsp",
        staleness: None,
        updates: 1,
    },
    GridConsistency {
        name: "ssp",
        staleness: Some(3),
        updates: super::WORKERS as u64,
    },
    GridConsistency {
        name: "asp",
        staleness: None,
        updates: super::WORKERS as u64,
    },
];

pub struct GridCodec {
    pub name: &'static str,
    codec: Option<Value>,
}

pub fn codecs() -> Vec<GridCodec> {
    let named = [
        (
            "bf16",
            json!({ "kind": "half", "format": "bf16", "feedback": true }),
        ),
        ("one_bit", json!({ "kind": "one_bit" })),
        ("tern_grad", json!({ "kind": "tern_grad" })),
        ("qsgd", json!({ "kind": "qsgd", "bits": 8 })),
        ("top_k", json!({ "kind": "top_k", "density": 0.01 })),
        (
            "dgc",
            json!({ "kind": "dgc", "density": 0.01, "momentum": MOMENTUM, "warm_up_steps": STEPS / EPOCHS }),
        ),
    ];
    let none = GridCodec {
        name: "none",
        codec: None,
    };
    let named = named.map(|(name, codec)| GridCodec {
        name,
        codec: Some(codec),
    });
    std::iter::once(none).chain(named).collect()
}

pub fn document(consistency: &GridConsistency, codec: &GridCodec, seed: u64) -> JobSpec {
    // Deep Gradient Compression applies the momentum before the codec.
    let momentum = if codec.name == "dgc" { 0.0 } else { MOMENTUM };
    let rule = match (consistency.name, consistency.staleness) {
        (kind, None) => json!({ "kind": kind }),
        (kind, Some(staleness)) => json!({ "kind": kind, "staleness": staleness }),
    };
    let mut exchange = json!({ "consistency": rule });
    if let Some(codec) = &codec.codec {
        exchange["compression"] = json!({ "codec": codec });
    }
    spec(json!({
        "engine": {
            "model": { "kind": "cnn", "channels": [16, 32], "dense": [64] },
            "optimizer": { "kind": "sgd", "learning_rate": RATE, "momentum": momentum },
            "schedule": { "decay": { "kind": "cosine", "total_steps": STEPS * consistency.updates } },
            "batch": BATCH,
            "seed": seed,
        },
        "exchange": exchange,
        "checkpoint": { "every_minutes": 60 },
        "evaluate": { "every_steps": 117 },
        "stop": { "epochs": EPOCHS },
    }))
}
