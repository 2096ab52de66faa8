//! Cost of the control plane relative to the limits of this machine, as ratios within one run:
//!
//! - submissions per second through REST, relative to single-row commits per second of the same
//!   Postgres;
//! - progress samples per second through `report::record`, relative to binary COPY and to UNNEST of
//!   the same rows.
//!
//! Postgres runs with its default settings on a real disk: fsync is on. The sides of a ratio
//! alternate, so that a noisy machine affects all alike. A ratio is the median of the rounds'
//! ratios, printed with the minimum and the maximum.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench reads the clock and creates ids"
)]

mod bare;
mod client;
mod cluster;
mod samples;
mod submit;
mod table;

use muster_testdb::TestDb;

/// Submitted document.
const DOCUMENT: &str = r#"{
    "version": "muster/v1", "name": "bench", "labels": { "team": "vision", "stage": "bench" },
    "engine": {
        "model": { "kind": "cnn", "channels": [16, 32], "dense": [64] }, "dataset": { "name": "fashion-mnist" },
        "optimizer": { "kind": "adam", "learning_rate": 0.001 }, "batch": 128, "seed": 7
    },
    "scale": { "workers": { "min": 1, "max": 4 }, "ps_shards": { "min": 1, "max": 2 } },
    "checkpoint": { "every_steps": 200, "keep": 3 },
    "stop": { "epochs": 8 }, "retries": 3
}"#;

fn main() -> anyhow::Result<()> {
    // As the daemon logs by default: its spans are part of the cost of a request.
    tracing_subscriber::fmt()
        .with_env_filter("info,sqlx=warn")
        .with_writer(std::io::stderr)
        .init();
    let runtime = tokio::runtime::Runtime::new()?;
    let (db, rows) = runtime.block_on(async {
        let db = TestDb::durable().await;
        let mut rows = submit::measure(&db).await?;
        rows.extend(samples::measure(&db).await?);
        anyhow::Ok((db, rows))
    })?;
    // The API server ends before its database, so that it logs no errors.
    drop(runtime);
    drop(db);
    table::print(&rows);
    Ok(())
}
