//! Files of programs become artifacts: from the output folder and over HTTP, also after a failure,
//! a kill and a restart of the daemon.

use crate::artifact_records::RecordedArtifact;
use crate::command::{self, introduce, told};
use crate::scheduler::TaskToAssign;
use crate::site::Site;
use muster_model::artifact::artifact_folder;
use muster_model::assignment::TaskReport;
use muster_model::task::Outcome;
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn start(site: &Site, rank: u32, script: &str) -> TaskToAssign {
    fs::create_dir_all(site.path().join("checkpoints")).expect("made");
    let task = site.command(rank, json!({ "argv": ["sh", "-c", script] }));
    command::start(site, task)
}

fn row(site: &Site, path: &str) -> Option<RecordedArtifact> {
    site.scheduler.artifacts().rows.get(path).cloned()
}

fn folder(site: &Site, task: &TaskToAssign) -> PathBuf {
    let folder = artifact_folder(task.launch.tenant_id, task.launch.job_id);
    site.path().join("checkpoints").join(folder)
}

fn content(site: &Site, task: &TaskToAssign, path: &str) -> String {
    let row = row(site, path).unwrap_or_else(|| panic!("{path} is an artifact"));
    let content = fs::read_to_string(folder(site, task).join(row.object)).expect("stored");
    assert_eq!(content.len() as u64, row.bytes);
    content
}

fn notes(site: &Site, task: &TaskToAssign) -> Vec<String> {
    let reports = told(site, task).into_iter();
    let notes = reports.filter_map(|report| match report {
        TaskReport::Note { message } => Some(message),
        _ => None,
    });
    notes.collect()
}

#[test]
fn files_are_kept_while_the_program_runs_and_after_it_failed() {
    let site = Site::started(10_000, &[]);
    let script = r#"
        cd "$MUSTER_OUTPUT_DIR" && mkdir plots && printf early > plots/a.txt
        ln -s /etc/shadow shadow; mkfifo pipe
        echo up; until [ -e go-on ]; do sleep 0.05; done
        printf late > b.txt; printf changed > plots/a.txt; exit 3
    "#;
    let task = start(&site, 0, script);
    site.until_it("the first file is kept", || {
        row(&site, "plots/a.txt").is_some()
    });
    assert_eq!(content(&site, &task, "plots/a.txt"), "early");
    fs::write(site.task_folder(&task).join("output/go-on"), "").expect("told");
    site.until_gone(&task);
    // The end was reported after the last upload.
    assert_eq!(content(&site, &task, "b.txt"), "late");
    assert_eq!(content(&site, &task, "plots/a.txt"), "changed");
    let notes = notes(&site, &task);
    let has = |what: &str| notes.iter().any(|note| note.contains(what));
    assert!(has("\"shadow\"") && has("it is a link"), "{notes:?}");
    assert!(has("\"pipe\"") && has("it is a FIFO"), "{notes:?}");
    let kept: Vec<String> = site.scheduler.artifacts().rows.keys().cloned().collect();
    assert_eq!(kept, ["b.txt", "go-on", "plots/a.txt"]);
    let stored = fs::read_dir(folder(&site, &task)).expect("there").count();
    assert_eq!(stored, 3, "replaced contents are removed");
    site.finish();
}

#[test]
fn other_ranks_have_a_folder_of_their_own() {
    let site = Site::started(10_000, &[]);
    let task = start(&site, 2, r#"printf x > "$MUSTER_OUTPUT_DIR/a.txt""#);
    site.until_gone(&task);
    assert_eq!(content(&site, &task, "rank-2/a.txt"), "x");
    site.finish();
}

#[test]
fn files_of_a_killed_program_are_kept_by_the_next_daemon() {
    let mut site = Site::started(10_000, &[]);
    let script = r#"
        printf early > "$MUSTER_OUTPUT_DIR/a.txt"; echo up; sleep 1000
    "#;
    let task = start(&site, 0, script);
    site.until_log_has(&task, "up");
    site.until_it("the first file is kept", || row(&site, "a.txt").is_some());
    site.scheduler.artifacts().is_unreachable = true;
    fs::write(site.task_folder(&task).join("output/b.txt"), "late").expect("written");
    site.kill();
    site.start();
    site.scheduler.assign(3, &[task.stopped()]);
    site.scheduler.artifacts().is_unreachable = false;
    site.until_gone(&task);
    site.until_it("the second file is kept", || row(&site, "b.txt").is_some());
    assert_eq!(content(&site, &task, "b.txt"), "late");
    assert_eq!(
        site.scheduler.artifacts().kept,
        2,
        "nothing is stored twice"
    );
    site.finish();
}

#[test]
fn refusal_names_file_and_limit_and_the_program_goes_on() {
    let site = Site::started(10_000, &[]);
    site.scheduler.artifacts().most = Some(1);
    let script = r#"
        cd "$MUSTER_OUTPUT_DIR" && printf 1 > a && printf 2 > b; exit 0
    "#;
    let task = start(&site, 0, script);
    assert_eq!(site.until_gone(&task), Outcome::exited(0));
    let notes = notes(&site, &task);
    let refused = notes.iter().find(|note| note.contains("job_artifacts"));
    let refused = refused.unwrap_or_else(|| panic!("{notes:?}"));
    assert!(
        refused.contains("\"b\"") || refused.contains("\"a\""),
        "{refused}"
    );
    assert_eq!(
        fs::read_dir(folder(&site, &task)).expect("there").count(),
        1
    );
    site.finish();
}

/// Writes, lists, reads and removes artifacts by HTTP.
const HTTP: &str = r#"
import json, os, urllib.error, urllib.request
base = os.environ["MLFLOW_TRACKING_URI"]
head = {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]}
root = "/api/2.0/mlflow-artifacts/artifacts/0/" + os.environ["MLFLOW_RUN_ID"] + "/artifacts"
def call(method, path, data=None, head=head):
    try:
        return urllib.request.urlopen(urllib.request.Request(base + path, data, head, method=method)).read()
    except urllib.error.HTTPError as error:
        return error.code
big = bytes(range(256)) * 20000
assert call("PUT", root + "/plots/a%20b.bin", big) == b"{}"
assert call("PUT", root + "/plots/a%20b.bin", big) == b"{}"
assert call("PUT", "/muster/v1/artifacts/own.txt", b"own") == b"{}"
assert call("GET", root + "/plots/a%20b.bin") == big
assert call("GET", root + "/plots/none") == 404
for path in ["/../x", "/%2e%2e/x", "/a/%2e%2e/%2e%2e/x", "/a%00b", "/a%0ab", "/a//b"]:
    assert call("PUT", root + path, b"x") in (400, 404), path
    for method in ["GET", "DELETE"]:
        assert call(method, root + path) in (400, 404), (method, path)
for method in ["GET", "DELETE"]:
    assert call(method, root + "/a%00b") == 400, method
assert call("PUT", root + "/x", b"x", {}) == 401
listed = json.loads(call("GET", "/api/2.0/mlflow-artifacts/artifacts?path=0/" + os.environ["MLFLOW_RUN_ID"] + "/artifacts"))
assert {(file["path"], file["is_dir"]) for file in listed["files"]} == {("plots", True), ("own.txt", False)}, listed
assert call("DELETE", root + "/own.txt") == b"{}"
assert call("DELETE", root + "/own.txt") == 404
print("all well")
"#;

#[test]
fn program_writes_and_reads_artifacts_by_http() {
    let site = Site::started(10_000, &[]);
    fs::create_dir_all(site.path().join("checkpoints")).expect("made");
    let mut tasks = [site.command(0, json!({ "argv": ["python3", "-c", HTTP] }))];
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    let [task] = tasks;
    site.until_gone(&task);
    site.until_log_has(&task, "all well");
    let kept: Vec<String> = site.scheduler.artifacts().rows.keys().cloned().collect();
    assert_eq!(kept, ["plots/a b.bin"]);
    assert_eq!(
        fs::read_dir(folder(&site, &task)).expect("there").count(),
        1
    );
    site.finish();
}

#[test]
fn full_store_is_an_event_and_the_job_goes_on() {
    let site = Site::started(10_000, &[]);
    let store = site.path().join("checkpoints");
    fs::create_dir_all(&store).expect("made");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&store)
        .status();
    let is_mounted = mounted.is_ok_and(|status| status.success());
    assert!(is_mounted, "this user may not mount a disk");
    let script = r#"
        head -c 200000 /dev/zero > "$MUSTER_OUTPUT_DIR/big"
        echo up; until [ -e "$MUSTER_OUTPUT_DIR/../go-on" ]; do sleep 0.05; done
        rm "$MUSTER_OUTPUT_DIR/big"; exit 0
    "#;
    let task = start(&site, 0, script);
    site.until_it("the full store is told", || {
        let notes = notes(&site, &task);
        notes
            .iter()
            .any(|note| note.contains("\"big\"") && note.contains("store is full"))
    });
    assert_eq!(
        fs::read_dir(folder(&site, &task)).expect("there").count(),
        0
    );
    fs::write(site.task_folder(&task).join("go-on"), "").expect("told");
    site.until_gone(&task);
    let unmounted = Command::new("umount").arg(&store).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    site.finish();
}

#[test]
fn file_that_changes_during_the_run_is_kept_at_its_end() {
    let site = Site::started(10_000, &[]);
    let script = r#"
        cd "$MUSTER_OUTPUT_DIR"; i=0
        while [ $i -lt 200 ]; do echo $i >> log.txt; i=$((i + 1)); sleep 0.01; done
    "#;
    let task = start(&site, 0, script);
    site.until_gone(&task);
    assert!(content(&site, &task, "log.txt").ends_with("199\n"));
    site.finish();
}
