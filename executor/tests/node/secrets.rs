//! Secrets of a program: requested at its start, given as variables and files, and kept nowhere.

use crate::command::introduce;
use crate::scheduler::TaskToAssign;
use crate::site::Site;
use muster_model::assignment::TaskReport;
use muster_model::task::Outcome;
use serde_json::json;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

const VALUE: &str = "hunter2-and-more";

fn program(site: &Site, script: &str) -> TaskToAssign {
    site.command(
        0,
        json!({
            "argv": ["sh", "-c", script],
            "secrets": [
                { "name": "HF_TOKEN" },
                { "name": "wandb-key", "env": "WANDB_API_KEY" },
                { "name": "ssh", "file": "id" },
            ],
        }),
    )
}

fn set_all(site: &Site) {
    for name in ["HF_TOKEN", "wandb-key", "ssh"] {
        site.scheduler
            .set_secret(name, Ok(&format!("{VALUE} of {name}")));
    }
}

/// Files below the data folder that contain the value.
fn files_with_value(site: &Site) -> String {
    let found = Command::new("grep")
        .args(["-rl", VALUE])
        .arg(site.data())
        .output()
        .expect("grep runs");
    String::from_utf8_lossy(&found.stdout).into_owned()
}

#[test]
fn program_gets_secrets_as_variables_and_files() {
    let site = Site::started(10_000, &[]);
    set_all(&site);
    let script = r#"
        [ "$HF_TOKEN" = "hunter2""-and-more of HF_TOKEN" ] || exit 3
        [ "$WANDB_API_KEY" = "hunter2""-and-more of wandb-key" ] || exit 4
        [ "$(cat "$MUSTER_SECRETS_DIR/id")" = "hunter2""-and-more of ssh" ] || exit 5
        stat -c 'mode %a' "$MUSTER_SECRETS_DIR/id"
        echo up; exec sleep 1000
    "#;
    let mut tasks = [program(&site, script)];
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    let task = &tasks[0];
    site.until_log_has(task, "mode 400");
    site.until_log_has(task, "up");
    let folder = site.task_folder(task);
    let written = files_with_value(&site);
    let secret = folder.join("secrets/id");
    assert_eq!(written.trim(), secret.display().to_string());
    site.scheduler.assign(3, &[task.stopped()]);
    site.until_gone(task);
    assert_eq!(files_with_value(&site), "");
    assert!(!folder.join("secrets").exists());
    site.finish();
}

#[test]
fn files_belong_to_the_user_of_the_task() {
    let site = Site::with_another_user_for_tasks(&[]);
    set_all(&site);
    let script = r#"cat "$MUSTER_SECRETS_DIR/id" > /dev/null && echo up; sleep 1000"#;
    let mut tasks = [program(&site, script)];
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    site.until_log_has(&tasks[0], "up");
    let file = site.task_folder(&tasks[0]).join("secrets/id");
    let found = file.metadata().expect("there");
    assert_eq!((found.uid(), found.mode() & 0o777), (65_534, 0o400));
    site.scheduler.assign(3, &[tasks[0].stopped()]);
    site.until_gone(&tasks[0]);
    assert!(!file.exists());
    site.finish();
}

#[test]
fn missing_secret_ends_the_task_by_name_and_for_good() {
    let site = Site::started(10_000, &[]);
    set_all(&site);
    site.scheduler
        .set_secret("ssh", Err("it does not exist any more"));
    let task = program(&site, "echo started");
    site.scheduler.assign(1, std::slice::from_ref(&task));
    assert_eq!(
        site.until_gone(&task),
        Outcome::exited(muster_model::assignment::exit_code::FAILED)
            .saying(Some(last_line(&site, &task)))
    );
    let told = crate::command::told(&site, &task);
    let failed = told.iter().find_map(|report| match report {
        TaskReport::Failed {
            message, retryable, ..
        } => Some((message.clone(), *retryable)),
        _ => None,
    });
    let (message, retryable) = failed.expect("it says why");
    assert!(
        message.contains("secret ssh: it does not exist any more"),
        "{message}"
    );
    assert!(!retryable && !message.contains(VALUE));
    assert!(!site.scheduler.heard().log(task.id()).contains("started"));
    site.finish();
}

#[test]
fn largest_values_of_all_secrets_arrive() {
    let site = Site::started(10_000, &[]);
    // Each byte is escaped on the way to the task.
    let value = "\u{1}".repeat(64 << 10);
    let secrets: Vec<_> = (0..64)
        .map(|number| json!({ "name": format!("A{number}"), "file": format!("{number}") }))
        .collect();
    for secret in &secrets {
        let name = secret["name"].as_str().expect("a name");
        site.scheduler.set_secret(name, Ok(&value));
    }
    let script = r#"cat "$MUSTER_SECRETS_DIR"/* | wc -c"#;
    let command = json!({ "argv": ["sh", "-c", script], "secrets": secrets });
    let mut tasks = [site.command(0, command)];
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    assert_eq!(site.until_gone(&tasks[0]), Outcome::exited(0));
    site.until_log_has(&tasks[0], "4194304");
    site.finish();
}

fn last_line(site: &Site, task: &TaskToAssign) -> String {
    let log = site.scheduler.heard().log(task.id());
    log.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn start_waits_for_the_secrets_over_a_lost_connection() {
    let site = Site::started(30_000, &[]);
    site.scheduler.refuse_secrets(true);
    set_all(&site);
    let mut tasks = [program(&site, "echo up")];
    site.scheduler.assign(1, &tasks);
    site.until_it("it has asked", || site.scheduler.asked_secrets() >= 2);
    assert_eq!(site.scheduler.heard().log(tasks[0].id()), "");
    site.scheduler.refuse_secrets(false);
    introduce(&site, &mut tasks);
    site.until_log_has(&tasks[0], "up");
    assert_eq!(site.until_gone(&tasks[0]), Outcome::exited(0));
    site.finish();
}
