//! Files of checkpoints and models at the places that the store names, and the web page.

use crate::world::{BLUE, RED, World};
use muster_model::assignment::TaskReport;
use muster_model::checkpoint::Written;
use muster_model::id::{JobId, TaskId};
use rustix::fs::{CWD, Mode, mkfifoat};
use std::fs::File;
use std::path::PathBuf;

const SHA256: &str = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";

async fn started(world: &World) -> (JobId, TaskId) {
    let job = world.submit("saved").await;
    let (worker, _) = world.run(job, 0, 0).await;
    (job, worker)
}

fn folder(world: &World, job: JobId, name: &str) -> (PathBuf, String) {
    let path = format!("{}/{job}/{name}", world.red);
    let folder = world.checkpoints().join(&path);
    std::fs::create_dir_all(&folder).expect("a folder");
    (folder, path)
}

async fn written(world: &World, worker: TaskId, seq: u64, step: u64, path: String) {
    let checkpoint = Written {
        step,
        epoch: 0.5,
        revision: 1,
        path,
        bytes: 3,
        manifest_sha256: SHA256.to_owned(),
        files: [
            "manifest.json",
            "model.safetensors",
            "optimizer.safetensors",
            "SHA256SUMS",
        ]
        .map(str::to_owned)
        .to_vec(),
        loss: None,
        accuracy: None,
    };
    world
        .tell(
            worker,
            1,
            seq,
            vec![TaskReport::CheckpointWritten { checkpoint }],
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoint_is_listed_and_downloaded_with_its_checksum() {
    let world = World::new().await;
    let (job, worker) = started(&world).await;
    let (folder, path) = folder(&world, job, "step-0000000050-r1");
    std::fs::write(folder.join("model.safetensors"), "foo").expect("a file");
    std::fs::write(
        folder.join("manifest.json"),
        format!(r#"{{"files": {{"model.safetensors": {{"sha256": "{SHA256}", "bytes": 3}}}}}}"#),
    )
    .expect("a file");
    written(&world, worker, 0, 50, path).await;
    let list: serde_json::Value = world
        .get(RED, &format!("/api/v1/jobs/{job}/checkpoints"))
        .await
        .json();
    assert_eq!(
        (
            &list["items"][0]["step"],
            list["items"][0]["retained"].as_bool()
        ),
        (&serde_json::json!(50), Some(true))
    );
    let file = format!("/api/v1/jobs/{job}/checkpoints/50/files");
    let answer = world.get(RED, &format!("{file}/model.safetensors")).await;
    assert_eq!(
        (answer.status.as_u16(), answer.text().as_str()),
        (200, "foo")
    );
    assert_eq!(
        (
            answer.header("content-length"),
            answer.header("muster-sha256")
        ),
        ("3", SHA256)
    );
    for path in [
        "optimizer.safetensors",
        "secret.txt",
        "..%2Fmanifest.json",
        "..",
        "%2Fetc%2Fpasswd",
    ] {
        assert_eq!(
            world.get(RED, &format!("{file}/{path}")).await.status,
            404,
            "{path}"
        );
    }
    assert_eq!(
        world
            .get(BLUE, &format!("{file}/model.safetensors"))
            .await
            .status,
        404
    );
    world
        .tell(
            worker,
            1,
            1,
            vec![TaskReport::CheckpointPruned { step: 50 }],
        )
        .await;
    assert_eq!(
        world
            .get(RED, &format!("{file}/model.safetensors"))
            .await
            .status,
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn path_out_of_the_job_folder_is_not_followed() {
    let world = World::new().await;
    let (job, worker) = started(&world).await;
    let (home, _) = folder(&world, job, "");
    let outside = world.files.path().join("outside");
    std::fs::create_dir_all(&outside).expect("a folder");
    std::fs::write(outside.join("model.safetensors"), "secret").expect("a file");
    std::os::unix::fs::symlink(&outside, home.join("link")).expect("a link");
    let (inside, inside_path) = folder(&world, job, "step-4");
    std::os::unix::fs::symlink(
        outside.join("model.safetensors"),
        inside.join("model.safetensors"),
    )
    .expect("a link");
    let red = world.red;
    let paths = [
        "../../outside".to_owned(),
        format!("{red}/{job}/../../../outside"),
        outside.display().to_string(),
        format!("{red}/{job}/link"),
        inside_path,
    ];
    for (step, path) in paths.into_iter().enumerate() {
        let step = step as u64;
        written(&world, worker, step, step, path.clone()).await;
        let answer = world
            .get(
                RED,
                &format!("/api/v1/jobs/{job}/checkpoints/{step}/files/model.safetensors"),
            )
            .await;
        let is_in_own_folder = step >= 3;
        let expected = if is_in_own_folder { 409 } else { 404 };
        assert_eq!(answer.status, expected, "{path}: {}", answer.text());
        assert!(!answer.text().contains("secret"), "{path}");
    }
}

/// A FIFO would block a thread for ever, and a sparse file would fill the memory.
#[tokio::test(flavor = "multi_thread")]
async fn download_with_an_unfit_manifest_is_refused() {
    let world = World::new().await;
    let (job, worker) = started(&world).await;
    type Put = fn(&PathBuf);
    let put: [(&str, Put); 3] = [
        ("a FIFO", |at| {
            mkfifoat(CWD, at, Mode::RWXU).expect("made");
        }),
        ("a link", |at| {
            std::os::unix::fs::symlink("/dev/zero", at).expect("linked");
        }),
        ("3221225472 bytes", |at| {
            File::create(at)
                .expect("made")
                .set_len(3 << 30)
                .expect("sparse");
        }),
    ];
    for (step, (what, put)) in put.into_iter().enumerate() {
        let (folder, path) = folder(&world, job, &format!("step-{step}"));
        std::fs::write(folder.join("model.safetensors"), "foo").expect("a file");
        put(&folder.join("manifest.json"));
        let step = step as u64;
        written(&world, worker, step, step, path).await;
        let path = format!("/api/v1/jobs/{job}/checkpoints/{step}/files/model.safetensors");
        // More downloads than there are threads for reads.
        for _ in 0..20 {
            let answer = world.get(RED, &path).await;
            assert_eq!(answer.status, 409, "{what}: {}", answer.text());
            let problem = answer.problem();
            assert_eq!(problem.kind, "urn:muster:problem:unreadable-file");
            assert!(problem.detail.contains(what), "{}", problem.detail);
        }
    }
}

#[test]
fn api_is_not_ready_without_a_free_blocking_thread() {
    const THREADS: usize = 4;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(THREADS)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let world = World::new().await;
        assert_eq!(world.get("", "/readyz").await.status, 200);
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        let blocked = std::sync::Arc::new(std::sync::Mutex::new(blocked));
        let stuck: Vec<_> = (0..THREADS)
            .map(|_| {
                let blocked = std::sync::Arc::clone(&blocked);
                tokio::task::spawn_blocking(move || blocked.lock().expect("whole").recv().ok())
            })
            .collect();
        assert_eq!(world.get("", "/readyz").await.status, 503);
        assert_eq!(world.get("", "/healthz").await.status, 200);
        drop(release);
        for stuck in stuck {
            stuck.await.expect("released");
        }
        assert_eq!(world.get("", "/readyz").await.status, 200);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn web_page_is_served_with_its_policy_and_own_routes() {
    let world = World::new().await;
    for path in ["/", "/jobs/1234", "/nodes"] {
        let answer = world.get("", path).await;
        assert!(
            answer.text().contains("<title>Muster"),
            "{path}: {}",
            answer.text()
        );
        assert!(
            answer
                .header("content-security-policy")
                .contains("script-src 'self'")
        );
        assert_eq!(answer.header("cache-control"), "no-cache");
    }
    let script = world.get("", "/assets/app-1a2b.js").await;
    assert!(script.header("cache-control").contains("immutable"));
    for path in [
        "/assets/app-0000.js",
        "/..%2f..%2fetc/passwd.txt",
        "/favicon.ico",
    ] {
        let answer = world.get("", path).await;
        assert_eq!(answer.status, 404, "{path}");
        answer.problem();
    }
}
