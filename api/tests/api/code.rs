//! Code archives: uploads, their limits, and documents that name them.

use crate::world::{ADMIN, BLUE, RED, World, document, json_request};
use axum::http::{Method, StatusCode};
use muster_api::config::ClientLimits;
use muster_archive::ArchiveDigest;
use muster_model::view::Problem;
use muster_store::code::{self, CodeArchive};
use muster_store::pool;
use serde_json::{Value, json};
use std::path::PathBuf;
use time::OffsetDateTime;

fn digest(content: &[u8]) -> String {
    let mut digest = ArchiveDigest::default();
    digest.update(content);
    digest.hex()
}

fn path(sha256: &str) -> String {
    format!("/api/v1/code/{sha256}")
}

fn program(sha256: &str) -> Value {
    let mut document = document("program");
    let fields = document.as_object_mut().expect("an object");
    for engine in ["engine", "scale", "stop"] {
        fields.remove(engine);
    }
    document["command"] = json!({ "argv": ["true"], "code": { "archive": sha256 } });
    document
}

fn stored(world: &World, sha256: &str) -> PathBuf {
    let folder = world.checkpoints().join(format!("code/{}", world.red));
    folder.join(format!("{sha256}.tar.zst"))
}

#[tokio::test(flavor = "multi_thread")]
async fn uploaded_code_is_stored_for_its_tenant_only() {
    let world = World::new().await;
    let sha256 = digest(b"code");
    let missing = world.get(RED, &path(&sha256)).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    let put = world.put_bytes(RED, &path(&sha256), b"code").await;
    assert_eq!(put.status, StatusCode::OK);
    assert_eq!(put.json::<Value>()["bytes"], 4);
    let found: Value = world.get(RED, &path(&sha256)).await.json();
    assert_eq!(found["sha256"], sha256.as_str());
    let file = std::fs::read(stored(&world, &sha256)).expect("a file");
    assert_eq!(file, b"code");
    let download = world.get(RED, &format!("{}/archive", path(&sha256))).await;
    assert_eq!(download.body, b"code");
    for of_another in [path(&sha256), format!("{}/archive", path(&sha256))] {
        let answer = world.get(BLUE, &of_another).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
    }
    // The file was lost: the client must upload it again.
    std::fs::write(stored(&world, &sha256), "cod").expect("written");
    let cut = world.get(RED, &path(&sha256)).await;
    assert_eq!(cut.status, StatusCode::NOT_FOUND);
    let again = world.put_bytes(RED, &path(&sha256), b"code").await;
    assert_eq!(again.status, StatusCode::OK);
    let found = world.get(RED, &path(&sha256)).await;
    assert_eq!(found.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_uploads_are_refused_and_leave_no_file() {
    let world = World::with(ClientLimits {
        code_archive_bytes: 8,
        ..ClientLimits::default()
    })
    .await;
    let sha256 = digest(b"code");
    let changed = world.put_bytes(RED, &path(&sha256), b"evil").await;
    assert_eq!(changed.status, StatusCode::UNPROCESSABLE_ENTITY);
    let detail = changed.json::<Problem>().detail;
    assert!(detail.contains(&digest(b"evil")), "{detail}");
    let long = world.put_bytes(RED, &path(&sha256), b"123456789").await;
    assert_eq!(long.status, StatusCode::PAYLOAD_TOO_LARGE);
    let detail = long.json::<Problem>().detail;
    assert!(detail.contains("at most 8 bytes"), "{detail}");
    for wrong in ["abc", &"AB".repeat(32), "..%2f..%2fescape"] {
        let answer = world.put_bytes(RED, &path(wrong), b"code").await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
    let folder = stored(&world, &sha256);
    let folder = folder.parent().expect("a folder");
    assert_eq!(std::fs::read_dir(folder).expect("there").count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn document_with_code_needs_a_stored_archive() {
    let world = World::new().await;
    let sha256 = digest(b"code");
    let refused = world.post(RED, "/api/v1/jobs", &program(&sha256)).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    let problem: Problem = refused.json();
    assert_eq!(problem.errors[0].field, "command.code.archive");
    world.put_bytes(BLUE, &path(&sha256), b"code").await;
    let other = world.post(RED, "/api/v1/jobs", &program(&sha256)).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);
    world.put_bytes(RED, &path(&sha256), b"code").await;
    let stored = world.post(RED, "/api/v1/jobs", &program(&sha256)).await;
    assert_eq!(stored.status, StatusCode::CREATED);
    let wrong = world.post(RED, "/api/v1/jobs", &program("abc")).await;
    assert_eq!(
        wrong.json::<Problem>().errors[0].field,
        "command.code.archive"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn code_above_the_limit_of_the_tenant_is_refused() {
    let world = World::new().await;
    let change = json!({ "limits": { "code_bytes": 6 } });
    let change = json_request(Method::PATCH, ADMIN, "/api/v1/tenants/red", &change);
    assert_eq!(world.send(change).await.status, StatusCode::OK);
    let (first, second) = (digest(b"1234"), digest(b"567"));
    let put = world.put_bytes(RED, &path(&first), b"1234").await;
    assert_eq!(put.status, StatusCode::OK);
    let above = world.put_bytes(RED, &path(&second), b"567").await;
    assert_eq!(above.status, StatusCode::FORBIDDEN);
    let detail = above.json::<Problem>().detail;
    assert!(
        detail.contains("code_bytes") && detail.contains("--code-bytes"),
        "{detail}"
    );
    assert!(!stored(&world, &second).exists());
    // Its own archive does not count twice.
    let again = world.put_bytes(RED, &path(&first), b"1234").await;
    assert_eq!(again.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_code_is_removed_and_used_code_stays() {
    let world = World::new().await;
    let (used, unused, new) = (digest(b"used"), digest(b"unused"), digest(b"new"));
    for (sha256, content) in [(&used, &b"used"[..]), (&unused, b"unused")] {
        world.put_bytes(RED, &path(sha256), content).await;
    }
    let submitted = world.post(RED, "/api/v1/jobs", &program(&used)).await;
    assert_eq!(submitted.status, StatusCode::CREATED);
    let mut tx = pool::begin_for(&world.app.pool, world.red)
        .await
        .expect("open");
    for (sha256, bytes) in [(&used, 4), (&unused, 6)] {
        let long_ago = CodeArchive {
            sha256: sha256.clone(),
            bytes,
            created_at: OffsetDateTime::UNIX_EPOCH,
        };
        code::add(&mut tx, world.red, &long_ago)
            .await
            .expect("added");
    }
    tx.commit().await.expect("committed");
    world.put_bytes(RED, &path(&new), b"new").await;
    // The removal follows the answer.
    for _ in 0..200 {
        if !stored(&world, &unused).exists() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(!stored(&world, &unused).exists());
    assert!(stored(&world, &used).exists() && stored(&world, &new).exists());
    let mut tx = pool::begin_for(&world.app.pool, world.red)
        .await
        .expect("open");
    let mut left = [used, new];
    left.sort();
    assert_eq!(code::names(&mut tx).await.expect("listed"), left);
}
