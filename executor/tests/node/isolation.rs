//! Process tasks of two tenants on one node, each with a Unix user of its own.

use crate::command::introduce;
use crate::scheduler::TaskToAssign;
use crate::site::Site;
use muster_model::id::JobId;
use muster_model::task::Outcome;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use uuid::Uuid;

/// Program of the attacked tenant. It has something in each place where a program may keep data.
pub const VICTIM: &str = r#"
import os, signal, socket, sys, time
from pathlib import Path
os.umask(0o022)
Path("private").write_text("x")
Path(os.environ["MUSTER_CHECKPOINT_DIR"], "weights").write_text("x")
temporary = Path(f"/tmp/victim-{os.getpid()}")
temporary.write_text("x")
shared = Path("/dev/shm", f"victim-{os.getpid()}")
shared.touch(mode=0o600)
sockets = [socket.socket(socket.AF_UNIX) for _ in range(2)]
for path, each in zip([f"{temporary}.sock", "s"], sockets):
    each.bind(path)
    each.listen()
print("victim", os.getpid(), os.getuid(), os.environ["MUSTER_CHECKPOINT_DIR"], shared, flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
try:
    time.sleep(600)
finally:
    for path in [shared, temporary, Path(f"{temporary}.sock")]:
        path.unlink()
"#;

/// Number of attempts that succeed against a task of the same tenant.
const WITHIN_TENANT: usize = 27;

const FIRST_UID: u32 = 200_000;

/// Returns a program of a tenant. Each tenant has one job.
pub fn program_of(site: &Site, tenant: u32, rank: u32, argv: &[&str]) -> TaskToAssign {
    let command = json!({ "argv": argv, "env": { "VICTIM": "secret" } });
    let mut task = site.command(rank, command);
    task.launch.tenant_id = Uuid::from_u128(2 + u128::from(tenant)).into();
    task.launch.job_id = JobId(Uuid::from_u128(100 + u128::from(rank)));
    task.launch.tenant_number = Some(tenant);
    let range = "the rank is a slot, and each job has one worker";
    task.launch.role = serde_json::from_value(json!({ "kind": "worker", "rank": 0 })).expect(range);
    task
}

/// Starts the attacked program and returns what it has printed: process id, user, checkpoint
/// folder, file in shared memory.
pub fn start_victim(site: &Site, task: &TaskToAssign) -> Vec<String> {
    site.until_log_has(task, "victim ");
    let log = site.scheduler.heard().log(task.id());
    let line = log.lines().find(|line| line.starts_with("victim "));
    let words = line.expect("a line").split(' ').skip(1);
    words.map(str::to_owned).collect()
}

/// Runs all attempts of a tenant against the victim's task, and returns those that succeeded.
fn attack(site: &Site, tenant: u32) -> BTreeSet<String> {
    let code = site.path().join("checkpoints/code/archives-of-tenant");
    fs::create_dir_all(code).expect("made");
    let victim = program_of(site, 0, 0, &["python3", "-c", VICTIM]);
    let mut tasks = [victim];
    site.scheduler.assign(1, &tasks);
    introduce(site, &mut tasks);
    let [victim] = tasks;
    let said = start_victim(site, &victim);
    let uid = FIRST_UID.to_string();
    let own_uid = (FIRST_UID + tenant).to_string();
    let folder = site.task_folder(&victim).display().to_string();
    let (data, daemon) = (
        site.data().display().to_string(),
        site.daemon_pid().to_string(),
    );
    let mut argv = vec![
        "python3",
        "-c",
        include_str!("escape.py"),
        &said[0],
        &folder,
        &said[2],
    ];
    argv.extend([&*said[3], &data, &daemon, &uid, &own_uid]);
    let attacker = program_of(site, tenant, 1, &argv);
    let mut tasks = [victim, attacker];
    site.scheduler.assign(2, &tasks);
    introduce(site, &mut tasks);
    let outcome = site.until_gone(&tasks[1]);
    site.until_log_has(&tasks[1], "attempts: ");
    let log = site.scheduler.heard().log(tasks[1].id());
    assert!(
        matches!(outcome, Outcome::Exited { code: 0, .. }),
        "{outcome}: {log}"
    );
    eprintln!("{log}");
    let attempts = log.lines().filter(|line| line.contains(": ")).count() - 1;
    assert!(attempts >= 40, "{log}");
    let stopped = [tasks[0].stopped()];
    site.scheduler.assign(3, &stopped);
    site.until_gone(&tasks[0]);
    log.lines()
        .filter_map(|line| line.strip_suffix(": SUCCEEDED"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn task_reaches_no_task_of_another_tenant() {
    let site = Site::with_user_per_tenant(&[]);
    assert_eq!(attack(&site, 1), BTreeSet::new());
    site.finish();
}

/// The attempts are real: they succeed against a task of the same tenant.
#[test]
fn task_reaches_other_tasks_of_its_own_tenant() {
    let site = Site::with_user_per_tenant(&[]);
    let reached = attack(&site, 0);
    assert!(reached.len() >= WITHIN_TENANT, "{reached:?}");
    for refused in ["signal_daemon", "signal_shim", "write_lease", "mount_disk"] {
        assert!(!reached.contains(refused), "{refused} is in {reached:?}");
    }
    site.finish();
}

/// Root in a container may not mount. Tasks then see names of processes and share `/tmp`.
#[test]
fn task_without_own_view_reaches_names_only() {
    let site = Site::with_user_per_tenant_without_mounts();
    let greeting = site.scheduler.heard().hellos[0].clone();
    let capacity: serde_json::Value = serde_json::from_str(&greeting.capacity_json).expect("JSON");
    let why = capacity["isolation"]["shared_view"].as_str();
    assert!(
        why.is_some_and(|why| why.contains("cannot unshare")),
        "{capacity}"
    );
    let seen = [
        "find_process",
        "list_code_of_other_tenant",
        "open_file_of_temporary_folder",
        "read_arguments",
        "read_status",
    ];
    let reached = attack(&site, 1);
    assert_eq!(reached.iter().collect::<Vec<_>>(), seen);
    site.finish();
}

#[test]
fn temporary_folder_of_task_ends_with_its_folder() {
    let site = Site::with_user_per_tenant(&[]);
    let script = "echo kept > /tmp/x && ls -A /tmp && stat -c %u /tmp /var/tmp/x && id -u";
    let mut tasks = [program_of(&site, 3, 0, &["sh", "-c", script])];
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    let outcome = site.until_gone(&tasks[0]);
    assert!(
        matches!(outcome, Outcome::Exited { code: 0, .. }),
        "{outcome}"
    );
    site.until("its end is told", |heard| {
        heard.events.contains_key(&tasks[0].id())
    });
    let log = site.scheduler.heard().log(tasks[0].id());
    let uid = (FIRST_UID + 3).to_string();
    assert_eq!(log.lines().filter(|line| **line == uid).count(), 3, "{log}");
    let own = site.task_folder(&tasks[0]).join("tmp/x");
    assert_eq!(fs::metadata(own).expect("kept").uid(), FIRST_UID + 3);
    site.finish();
}

#[test]
fn tenant_beyond_the_range_is_refused_by_name() {
    let site = Site::with_user_per_tenant(&[]);
    let tasks = [program_of(&site, 100, 0, &["true"])];
    site.scheduler.assign(1, &tasks);
    let Outcome::LaunchFailed { message } = site.until_gone(&tasks[0]) else {
        panic!("it has no user");
    };
    assert!(
        message.contains("number 100") && message.contains("extend the range"),
        "{message}"
    );
    site.finish();
}

#[test]
fn task_of_another_user_outlives_its_daemon() {
    let mut site = Site::with_user_per_tenant(&[]);
    let script = "trap 'echo stopped; exit 0' TERM; echo ready; while :; do sleep 0.1; done";
    let mut tasks = [program_of(&site, 1, 0, &["sh", "-c", script])];
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    site.until_log_has(&tasks[0], "ready");
    site.kill();
    site.start();
    site.until_running_in_second_session(&[&tasks[0]]);
    site.scheduler.assign(2, &[tasks[0].stopped()]);
    site.until_log_has(&tasks[0], "stopped");
    site.until_gone(&tasks[0]);
    site.finish();
}
