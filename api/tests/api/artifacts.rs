//! Artifacts: lists by prefix and page, contents with safe headers, and other tenants.

use crate::world::{BLUE, RED, World, at};
use muster_archive::ArchiveDigest;
use muster_model::artifact::{artifact_folder, content_type_of};
use muster_model::id::JobId;
use muster_model::task::Role;
use muster_store::artifact::{self, ArtifactContent, ArtifactWriter};
use muster_store::pool;
use serde_json::Value;
use std::io::Read as _;
use std::path::PathBuf;
use uuid::Uuid;

fn stored(world: &World, job: JobId, object: Uuid) -> PathBuf {
    let folder = world.checkpoints().join(artifact_folder(world.red, job));
    std::fs::create_dir_all(&folder).expect("made");
    folder.join(object.to_string())
}

/// Stores an artifact as an executor does.
async fn write(world: &World, job: JobId, path: &str, content: &[u8]) -> PathBuf {
    let mut digest = ArchiveDigest::default();
    digest.update(content);
    let content_row = ArtifactContent {
        object: crate::world::id(),
        bytes: content.len() as u64,
        sha256: digest.hex(),
        content_type: content_type_of(path).to_owned(),
    };
    let file = stored(world, job, content_row.object);
    std::fs::write(&file, content).expect("written");
    let writer = ArtifactWriter {
        tenant: world.red,
        job,
        role: Role::Worker { rank: 0 },
        revision: 1,
    };
    let mut tx = pool::begin(&world.scheduler).await.expect("open");
    artifact::keep(&mut tx, &writer, path, &content_row, at(5))
        .await
        .expect("kept");
    tx.commit().await.expect("committed");
    file
}

fn url(job: JobId, query: &str) -> String {
    format!("/api/v1/jobs/{job}/artifacts{query}")
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_are_listed_by_prefix_in_pages() {
    let world = World::new().await;
    let job = world.submit("writer").await;
    for path in ["plots/b.png", "plots/a.png", "metrics.csv"] {
        write(&world, job, path, b"x").await;
    }
    let paths = async |query: &str| {
        let page: Value = world.get(RED, &url(job, query)).await.json();
        let items = page["items"].as_array().expect("items").clone();
        let paths = items
            .iter()
            .map(|item| item["path"].as_str().expect("a path").to_owned());
        (
            paths.collect::<Vec<_>>(),
            page["continue"].as_str().map(str::to_owned),
        )
    };
    let all = ["metrics.csv", "plots/a.png", "plots/b.png"].map(str::to_owned);
    assert_eq!(paths("").await, (all.to_vec(), None));
    assert_eq!(paths("?prefix=plots/").await.0, all[1..]);
    let (first, next) = paths("?limit=2").await;
    assert_eq!(first, all[..2]);
    let next = next.expect("more");
    assert_eq!(
        paths(&format!("?limit=2&continue={next}")).await.0,
        all[2..]
    );
    let page: Value = world.get(RED, &url(job, "")).await.json();
    assert_eq!(page["items"][1]["content_type"], "image/png");
    assert_eq!(page["items"][1]["bytes"], 1);
    for path in ["", "/content?path=metrics.csv"] {
        assert_eq!(world.get(BLUE, &url(job, path)).await.status, 404, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn content_is_never_run_by_a_browser() {
    let world = World::new().await;
    let job = world.submit("writer").await;
    let page = b"<script>alert(1)</script>";
    write(&world, job, "report \"1\".html", page).await;
    let content = url(job, "/content?path=report%20%221%22.html");
    let saved = world.get(RED, &content).await;
    assert_eq!(saved.body, page);
    assert_eq!(saved.header("content-type"), "application/octet-stream");
    assert_eq!(
        saved.header("content-disposition"),
        "attachment; filename=\"report _1_.html\""
    );
    assert_eq!(saved.header("muster-sha256").len(), 64);
    assert_eq!(saved.header("x-content-type-options"), "nosniff");
    let policy = saved.header("content-security-policy");
    assert!(
        policy.starts_with("sandbox; default-src 'none'"),
        "{policy}"
    );
    let first = world.get(RED, &format!("{content}&first_bytes=7")).await;
    assert_eq!(first.text(), "<script");
    assert_eq!(first.header("content-length"), "7");
    for wrong in [
        "/content",
        "/content?path=../x",
        "/content?path=/etc/passwd",
        "/content?path=a%0ab",
        "/content?path=a&first_bytes=0",
        "/content?path=a&inline=true",
    ] {
        let status = world.get(RED, &url(job, wrong)).await.status;
        assert!(
            status.is_client_error() && status != 404,
            "{wrong}: {status}"
        );
    }
    assert_eq!(
        world.get(RED, &url(job, "/content?path=none")).await.status,
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_file_of_the_store_is_not_served() {
    let world = World::new().await;
    let job = world.submit("writer").await;
    let file = write(&world, job, "a.txt", b"content").await;
    let content = url(job, "/content?path=a.txt");
    std::fs::write(&file, "cut").expect("written");
    assert_eq!(world.get(RED, &content).await.status, 404);
    std::fs::remove_file(&file).expect("removed");
    std::os::unix::fs::symlink("/etc/passwd", &file).expect("linked");
    let answer = world.get(RED, &content).await;
    assert!(!answer.status.is_success(), "{}", answer.status);
    assert!(!answer.text().contains("root:"));
}

/// Returns path and content of each entry.
fn entries(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(archive);
    let mut found = Vec::new();
    for entry in archive.entries().expect("entries") {
        let mut entry = entry.expect("an entry");
        assert_eq!(entry.header().entry_type(), tar::EntryType::Regular);
        let path = entry.path().expect("a path").display().to_string();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("read");
        found.push((path, content));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_has_all_artifacts_in_a_tar_file() {
    let world = World::new().await;
    let job = world.submit("writer").await;
    let long = format!("plots/{}/größe.txt", "d".repeat(300));
    let mut expected = Vec::new();
    for number in 0..510 {
        expected.push((format!("many/{number:03}"), vec![b'x'; number]));
    }
    expected.push((long, b"long".to_vec()));
    for (path, content) in &expected {
        write(&world, job, path, content).await;
    }
    let all = world.get(RED, &url(job, "/archive")).await;
    assert_eq!(all.header("content-type"), "application/x-tar");
    assert_eq!(
        all.header("content-disposition"),
        "attachment; filename=\"writer-artifacts.tar\""
    );
    assert!(all.header("content-security-policy").starts_with("sandbox"));
    assert_eq!(entries(&all.body), expected);
    assert!(all.body.ends_with(&[0; 1024]), "it is complete");
    let plots = world.get(RED, &url(job, "/archive?prefix=plots/")).await;
    assert_eq!(entries(&plots.body), expected[510..]);
    for (token, path) in [(RED, "/archive?prefix=none"), (BLUE, "/archive")] {
        assert_eq!(world.get(token, &url(job, path)).await.status, 404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_with_a_changed_file_is_aborted() {
    let world = World::new().await;
    let job = world.submit("writer").await;
    write(&world, job, "a.txt", b"content").await;
    let file = write(&world, job, "b.txt", b"content").await;
    std::fs::write(&file, "Content").expect("written");
    let answer = world.try_get(RED, &url(job, "/archive")).await;
    assert!(answer.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_lists_lost_files_in_its_last_entry() {
    let world = World::new().await;
    let job = world.submit("writer").await;
    let cut = write(&world, job, "a.txt", b"content").await;
    let lost = write(&world, job, "b.txt", b"content").await;
    write(&world, job, "c.txt", b"content").await;
    std::fs::write(&cut, "cut").expect("written");
    std::fs::remove_file(&lost).expect("removed");
    let all = world.get(RED, &url(job, "/archive")).await;
    let entries = entries(&all.body);
    let names: Vec<&str> = entries.iter().map(|entry| entry.0.as_str()).collect();
    assert_eq!(names, ["c.txt", "MISSING.txt"]);
    let list = String::from_utf8_lossy(&entries[1].1);
    assert!(list.ends_with("archive:\na.txt\nb.txt\n"), "{list}");
    assert!(all.body.ends_with(&[0; 1024]), "it is complete");
}
