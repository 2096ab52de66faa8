//! Checkpoints of programs: the list, the download as a tar file, and jobs that begin from one.

use crate::world::{BLUE, RED, World, at};
use muster_archive::unpack_files;
use muster_model::id::JobId;
use muster_model::task::Role;
use muster_store::artifact::ArtifactWriter;
use muster_store::pool;
use muster_store::program_checkpoint::{self, DeclaredCheckpoint, StoredContent};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

fn program(name: &str) -> Value {
    json!({ "version": "muster/v1", "name": name, "command": { "argv": ["true"] } })
}

async fn submitted(world: &World, document: &Value) -> JobId {
    let made = world.post(RED, "/api/v1/jobs", document).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made: Value = made.json();
    made["id"].as_str().expect("an id").parse().expect("a UUID")
}

/// Writes and records a checkpoint as a program and its node do.
async fn record(world: &World, job: JobId, step: u64) -> PathBuf {
    let path = format!("step-{step}");
    let folder = world.checkpoints().join(world.red.to_string());
    let folder = folder.join(job.to_string()).join(&path);
    std::fs::create_dir_all(folder.join("deep")).expect("made");
    std::fs::write(folder.join("deep/weights"), vec![7; 3_000]).expect("written");
    std::fs::write(folder.join("state"), step.to_string()).expect("written");
    let writer = ArtifactWriter {
        tenant: world.red,
        job,
        role: Role::Worker { rank: 0 },
        revision: 1,
    };
    let declared = DeclaredCheckpoint {
        step,
        path,
        bytes: 3_002,
        file_count: 2,
        is_found: false,
    };
    let content = StoredContent {
        object: None,
        metrics: BTreeMap::from([("val/f1".to_owned(), 0.5)]),
    };
    let mut tx = pool::begin(&world.scheduler).await.expect("open");
    program_checkpoint::record(&mut tx, &writer, &declared, &content, (at(5), at(5)))
        .await
        .expect("recorded");
    tx.commit().await.expect("committed");
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoint_of_a_program_is_listed_and_downloaded() {
    let world = World::new().await;
    let job = submitted(&world, &program("p")).await;
    let folder = record(&world, job, 10).await;
    let url = format!("/api/v1/jobs/{job}/checkpoints");
    let list: Value = world.get(RED, &url).await.json();
    let first = &list["items"][0];
    assert_eq!(
        (&first["path"], &first["file_count"]),
        (&json!("step-10"), &json!(2))
    );
    assert_eq!(first["metrics"], json!({ "val/f1": 0.5 }));
    assert_eq!(first["kept"], json!(["newest"]));
    let archive = world.get(RED, &format!("{url}/10/archive")).await;
    assert_eq!(archive.status, 200);
    assert_eq!(
        archive.header("content-length"),
        archive.body.len().to_string()
    );
    let to = tempfile::tempdir().expect("a folder");
    unpack_files(&archive.body[..], to.path(), 10).expect("a tar file");
    for name in ["deep/weights", "state"] {
        let read = std::fs::read(to.path().join("step-10").join(name));
        let written = std::fs::read(folder.join(name)).expect("there");
        assert_eq!(read.expect("unpacked"), written, "{name}");
    }
    for (token, step) in [(BLUE, "10"), (RED, "11"), (RED, "x")] {
        let refused = world.get(token, &format!("{url}/{step}/archive")).await;
        assert_eq!(refused.status, 404, "{step}");
    }
    // A task can write its job's folder.
    let outside = world.files.path().join("outside");
    std::fs::write(&outside, "content of another tenant").expect("written");
    std::os::unix::fs::symlink(&outside, folder.join("link")).expect("linked");
    let refused = world.get(RED, &format!("{url}/10/archive")).await;
    assert_ne!(refused.status, 200);
    let text = refused.text();
    assert!(!text.contains("content of another tenant"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn program_begins_only_from_a_registered_checkpoint() {
    let world = World::new().await;
    let job = submitted(&world, &program("p")).await;
    let from = |job: JobId, step: Option<u64>| {
        let mut document = program("fork");
        document["from"] = json!({ "job": job, "step": step });
        document
    };
    let none = world.post(RED, "/api/v1/jobs", &from(job, None)).await;
    assert_eq!(none.status, 422, "{}", none.text());
    assert!(none.text().contains("checkpoint.files"), "{}", none.text());
    record(&world, job, 10).await;
    record(&world, job, 20).await;
    let child = submitted(&world, &from(job, None)).await;
    let shown: Value = world
        .get(RED, &format!("/api/v1/jobs/{child}"))
        .await
        .json();
    assert_eq!(shown["spec"]["from"]["step"], 20);
    let missing = world.post(RED, "/api/v1/jobs", &from(job, Some(15))).await;
    assert!(missing.text().contains("20, 10"), "{}", missing.text());
    let engine = world.submit("engine").await;
    let other = world.post(RED, "/api/v1/jobs", &from(engine, None)).await;
    assert_eq!(other.status, 422, "{}", other.text());
}
