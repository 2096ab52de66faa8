//! The page in a real Chromium, from signing in to a trained model. The checks are in
//! `browser/story.mjs`.

use muster_e2e::cluster::{PATIENCE, TestCluster, TestClusterOptions};
use muster_e2e::processes;
use muster_e2e::story::document;
use rustix::process::Signal;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Enough steps that the job still trains at the end of the checks, also on a much faster machine.
const STEPS: u64 = 4_000;

#[tokio::test]
async fn page_shows_pauses_and_resumes_job_until_success() {
    let web = web();
    let chromium = chromium();
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 2, slots: 2 }).await;
    let job = cluster
        .submit(&document("watched", (2, 2), (1, 1), STEPS))
        .await
        .id;
    let mut browser = Browser::start(
        Command::new("node")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("browser/story.mjs"))
            .args([web.as_os_str(), chromium.as_os_str()]),
        &[
            cluster.server(),
            &cluster.token().expect("the cluster is up"),
            &job.to_string(),
        ],
    );
    let status = browser.ended().await;
    assert!(status.success(), "{status}:\n{}", browser.said());
    browser.stop();
    cluster.down();
}

/// Process of the story and its browser, in a folder that all of them name.
struct Browser {
    folder: TempDir,
    story: Child,
}

impl Browser {
    /// Starts the command with the browser's profile and `arguments` appended.
    fn start(command: &mut Command, arguments: &[&str]) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("muster-browser-")
            .tempdir()
            .expect("a temporary folder");
        let log = std::fs::File::create(folder.path().join("log")).expect("a log");
        let story = command
            .arg(folder.path().join("profile"))
            .args(arguments)
            // Its children are found by this variable too.
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the same log"))
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("node does not start ({error}); run `make web`"));
        Self { folder, story }
    }

    async fn ended(&mut self) -> ExitStatus {
        let step = Duration::from_millis(100);
        let mut waited = Duration::ZERO;
        loop {
            if let Some(status) = self.story.try_wait().expect("our own child") {
                return status;
            }
            assert!(
                waited < 2 * PATIENCE,
                "the story does not end:\n{}",
                self.said()
            );
            tokio::time::sleep(step).await;
            waited += step;
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Checks that the story has closed its browser.
    fn stop(self) {
        let left = processes::of(self.folder.path());
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        for process in processes::of(self.folder.path()) {
            process.signal(Signal::KILL);
        }
        let _ = self.story.wait();
    }
}

/// Folder of the page and its packages. Builds the page first if a source has changed.
fn web() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let built = Command::new(root.join("scripts/build-web"))
        .stdin(Stdio::null())
        .output()
        .expect("scripts/build-web starts");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "the page is not built: {said}");
    root.join("web")
}

fn chromium() -> OsString {
    let chromium =
        std::env::var_os("MUSTER_CHROMIUM").unwrap_or_else(|| "/usr/bin/chromium".into());
    assert!(
        Path::new(&chromium).exists(),
        "{} is missing; `make test` installs Chromium, or set MUSTER_CHROMIUM",
        chromium.display()
    );
    chromium
}
