//! Process tasks that run as a separate user.

use crate::command::{introduce, told};
use crate::site::Site;
use muster_model::assignment::TaskReport;
use muster_model::task::Outcome;
use serde_json::json;

#[test]
fn task_of_another_user_cannot_access_other_files() {
    let site = Site::with_another_user_for_tasks(&[]);
    let script = r#"
echo "user $(id -u) $(id -G) at home in $HOME"
echo kept > "$MUSTER_CHECKPOINT_DIR/state" && echo "it writes checkpoints"
echo '{"kind":"note","message":"it reports"}' >> "$MUSTER_TASK_DIR/events.jsonl"
kill -9 $PPID || echo "it does not kill its shim"
for secret in "/proc/$PPID/environ" "$MUSTER_TASK_DIR/../../shims" "$MUSTER_TASK_DIR/token"; do
    cat "$secret"/* "$secret" && echo "it reads $secret"
done
exit 3"#;
    let program = site.command(0, json!({ "argv": ["sh", "-c", script] }));
    let mut tasks = [program];
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    let task = &tasks[0];
    let end = site.until_gone(task);
    assert!(matches!(end, Outcome::Exited { code: 3, .. }), "{end}");
    let home = site.task_folder(task);
    site.until_log_has(
        task,
        &format!("user 65534 65534 at home in {}", home.display()),
    );
    site.until_log_has(task, "it writes checkpoints");
    site.until_log_has(task, "it does not kill its shim");
    site.until("its end is told", |heard| {
        heard.events.contains_key(&task.id())
    });
    let log = site.scheduler.heard().log(task.id());
    assert!(!log.contains("it reads"), "{log}");
    let has_reported = told(&site, task)
        .iter()
        .any(|report| matches!(report, TaskReport::Note { message } if message == "it reports"));
    assert!(has_reported);
    site.finish();
}

#[test]
fn user_without_access_to_the_data_folder_is_rejected() {
    let mut site = Site::with_another_user_for_tasks(&[]);
    site.until("it has begun", |heard| !heard.hellos.is_empty());
    assert!(site.terminate());
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(site.path(), closed).expect("ours");
    let status = site.spawn().wait().expect("it ends");
    assert!(!status.success());
    let log = std::fs::read_to_string(site.path().join("daemon.log")).expect("there");
    let wanted = format!(
        "task_user is 65534:65534, which cannot enter {}",
        site.path().display()
    );
    assert!(log.contains(&wanted), "{log}");
    site.finish();
}
