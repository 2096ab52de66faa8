//! Checkpoints of programs in a shared folder: reports with a path, the pattern of the document,
//! pruning, and the start from another job.

use crate::command::{start, told};
use crate::scheduler::TaskToAssign;
use crate::site::Site;
use muster_model::assignment::TaskReport;
use muster_model::spec::Origin;
use muster_proto::session::FirstCheckpoint;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use uuid::Uuid;

fn task(site: &Site, script: &str) -> TaskToAssign {
    fs::create_dir_all(site.path().join("checkpoints")).expect("made");
    site.command(0, json!({ "argv": ["sh", "-c", script] }))
}

fn folder_of(site: &Site, tenant: &str, job: &str) -> PathBuf {
    site.path().join("checkpoints").join(tenant).join(job)
}

fn folder(site: &Site, task: &TaskToAssign) -> PathBuf {
    let launch = &task.launch;
    folder_of(
        site,
        &launch.tenant_id.to_string(),
        &launch.job_id.to_string(),
    )
}

/// Paths and steps of the recorded checkpoints.
fn recorded(site: &Site) -> Vec<(String, u64)> {
    let records = site.scheduler.artifacts();
    let rows = records.checkpoints.rows.iter();
    rows.map(|row| (row.declared.path.clone(), row.declared.step))
        .collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("there");
    let names = entries.map(|entry| entry.expect("read").file_name());
    let mut names: Vec<String> = names
        .map(|name| name.into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

fn until_recorded(site: &Site, count: usize) {
    site.until_it("the checkpoint is recorded", || {
        recorded(site).len() == count
    });
}

#[test]
fn reported_checkpoints_are_recorded_and_pruned() {
    let site = Site::started(10_000, &[]);
    site.scheduler.artifacts().checkpoints.keep = 2;
    let script = r#"
        cd "$MUSTER_CHECKPOINT_DIR"; mkdir -p deep/step-1; printf aa > deep/step-1/a
        printf bbb > deep/step-1/b; ln -s /etc links; printf own > other
        echo "muster: step=1 val/f1=0.5"; echo "muster: checkpoint step=1 path=deep/step-1"
        until [ -e go-on ]; do sleep 0.05; done
        for step in 2 3; do
            printf $step > step-$step.pt; echo "muster: step=$step val/f1=0.$step"
            echo "muster: checkpoint step=$step path=step-$step.pt"
        done
        echo "muster: checkpoint step=4 path=links"
        echo "muster: checkpoint step=5 path=missing.pt"
    "#;
    let task = start(&site, task(&site, script));
    until_recorded(&site, 1);
    {
        let records = site.scheduler.artifacts();
        let first = &records.checkpoints.rows[0];
        assert_eq!((first.declared.bytes, first.declared.file_count), (5, 2));
        assert_eq!(first.metrics.get("val/f1"), Some(&0.5));
    }
    let folder = folder(&site, &task);
    fs::write(folder.join("go-on"), "").expect("told");
    // The end is reported after the last record.
    site.until_gone(&task);
    let expected = [("step-2.pt".to_owned(), 2), ("step-3.pt".to_owned(), 3)];
    assert_eq!(recorded(&site), expected);
    let left = ["deep", "go-on", "links", "other", "step-2.pt", "step-3.pt"];
    assert_eq!(names(&folder), left, "only a registered one is removed");
    assert!(names(&folder.join("deep")).is_empty());
    assert!(Path::new("/etc/passwd").exists());
    let notes: Vec<String> = told(&site, &task)
        .into_iter()
        .filter_map(|report| match report {
            TaskReport::Note { message } => Some(message),
            _ => None,
        })
        .collect();
    let has = |what: &[&str]| {
        notes
            .iter()
            .any(|note| what.iter().all(|one| note.contains(one)))
    };
    assert!(has(&["\"links\"", "is a link"]), "{notes:?}");
    assert!(has(&["\"missing.pt\"", "no file"]), "{notes:?}");
    site.finish();
}

#[test]
fn pattern_finds_unchanged_files() {
    let site = Site::started(10_000, &[]);
    let script = r#"
        cd "$MUSTER_CHECKPOINT_DIR"; mkdir checkpoint-10; printf a > checkpoint-10/a; printf x > other-5
        until [ -e go-on ]; do printf x >> checkpoint-20; sleep 0.3; done
        kill -9 $$
    "#;
    let mut task = task(&site, script);
    task.launch.spec.checkpoint.files = Some("checkpoint-*".to_owned());
    let task = start(&site, task);
    until_recorded(&site, 1);
    assert_eq!(recorded(&site), [("checkpoint-10".to_owned(), 10)]);
    fs::write(folder(&site, &task).join("go-on"), "").expect("told");
    site.until_gone(&task);
    let count = recorded(&site).len();
    assert_eq!(count, 1, "a killed program may have left half a checkpoint");
    site.finish();
}

#[test]
fn unregistered_checkpoint_of_another_job_is_an_error() {
    let site = Site::started(10_000, &[]);
    let mut task = task(&site, "echo started");
    task.launch.spec.from = Some(Origin {
        job: Uuid::from_u128(77).into(),
        step: Some(7),
    });
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_gone(&task);
    let failure = told(&site, &task)
        .into_iter()
        .find_map(|report| match report {
            TaskReport::Failed {
                message, retryable, ..
            } => Some((message, retryable)),
            _ => None,
        });
    let (message, retryable) = failure.expect("it failed");
    assert!(message.contains("no registered checkpoint"), "{message}");
    assert!(!retryable);
    site.finish();
}

#[test]
fn program_begins_with_the_checkpoint_of_another_job() {
    let site = Site::started(10_000, &[]);
    let script = r#"cat "$MUSTER_CHECKPOINT_DIR"/step-7/weights > "$MUSTER_OUTPUT_DIR"/seen"#;
    let mut task = task(&site, script);
    let origin = Uuid::from_u128(77);
    let other = folder_of(
        &site,
        &task.launch.tenant_id.to_string(),
        &origin.to_string(),
    );
    fs::create_dir_all(other.join("step-7")).expect("made");
    fs::write(other.join("step-7/weights"), "theirs").expect("written");
    fs::write(other.join("step-9"), "later").expect("written");
    task.launch.spec.from = Some(Origin {
        job: origin.into(),
        step: Some(7),
    });
    site.scheduler.artifacts().checkpoints.first = Some(FirstCheckpoint {
        job_id: origin.to_string(),
        path: "step-7".to_owned(),
        step: 7,
        object: String::new(),
        sha256: String::new(),
        bytes: 6,
    });
    let task = start(&site, task);
    site.until_gone(&task);
    let seen = fs::read_to_string(site.task_folder(&task).join("output/seen"));
    assert_eq!(seen.expect("it has begun"), "theirs");
    assert_eq!(names(&folder(&site, &task)), [".muster-rungs", "step-7"]);
    site.finish();
}
