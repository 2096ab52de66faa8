//! Programs whose code is a commit of a git repository.

use crate::command::{introduce, told};
use crate::scheduler::TaskToAssign;
use crate::site::Site;
use muster_model::assignment::TaskReport;
use muster_model::task::Outcome;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

fn git(folder: &Path, arguments: &[&str]) -> String {
    let author = ["-c", "user.name=a", "-c", "user.email=a@b"];
    let mut command = Command::new("git");
    command.current_dir(folder).args(author).args(arguments);
    let output = command.output().expect("git");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.trim().to_owned()
}

/// Makes a repository with two commits. Returns its address and the first commit.
fn repository(site: &Site) -> (String, String) {
    let origin = site.path().join("origin");
    fs::create_dir_all(&origin).expect("made");
    git(&origin, &["init", "--quiet", "--initial-branch", "main"]);
    fs::write(origin.join("train.sh"), "echo first commit\n").expect("written");
    git(&origin, &["add", "."]);
    git(&origin, &["commit", "--quiet", "-m", "one"]);
    let first = git(&origin, &["rev-parse", "HEAD"]);
    fs::write(origin.join("train.sh"), "echo second commit\n").expect("written");
    git(&origin, &["commit", "--quiet", "-am", "two"]);
    (format!("file://{}", origin.display()), first)
}

fn program(site: &Site, rank: u32, git: &Value) -> TaskToAssign {
    let command = json!({
        "argv": ["sh", "-c", "sh train.sh; cat added.txt"], "git": git,
        "files": { "added.txt": "added\n" },
    });
    site.command(rank, command)
}

#[test]
fn workers_run_the_commit_which_is_fetched_once() {
    let site = Site::started(10_000, &[]);
    let (url, commit) = repository(&site);
    let git = json!({ "url": url, "commit": commit });
    let mut tasks = [program(&site, 0, &git), program(&site, 1, &git)];
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    for task in &tasks {
        assert_eq!(site.until_gone(task), Outcome::exited(0));
        site.until_log_has(task, "first commit\nadded\n");
    }
    let logs = tasks.map(|task| site.scheduler.heard().log(task.id()));
    let fetched = logs.iter().filter(|log| log.contains("fetching commit"));
    assert_eq!(fetched.count(), 1, "{logs:?}");
    site.finish();
}

#[test]
fn node_without_git_lacks_it() {
    let site = Site::started(10_000, &[]);
    let (url, commit) = repository(&site);
    let command = json!({
        "argv": ["true"], "git": { "url": url, "commit": commit },
        "env": { "PATH": "/nowhere" },
    });
    let task = site.command(0, command);
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_it("it lacks git", || {
        told(&site, &task).iter().any(|report| {
            matches!(report, TaskReport::Failed { retryable: true, lacks: Some(lacks), .. } if lacks == "git")
        })
    });
    site.finish();
}

#[test]
fn absent_commit_ends_the_job_for_good() {
    let site = Site::started(10_000, &[]);
    let (url, _) = repository(&site);
    let task = program(&site, 0, &json!({ "url": url, "commit": "0a".repeat(20) }));
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_it("it fails", || {
        told(&site, &task).iter().any(|report| {
            matches!(report, TaskReport::Failed { retryable: false, message, .. } if message.contains("is no commit of file://"))
        })
    });
    site.finish();
}
