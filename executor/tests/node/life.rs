//! Tasks from launch to end, without failures of the node.

use crate::scheduler::TaskToAssign;
use crate::site::Site;
use muster_model::assignment::{Observed, Peer, Peers};
use muster_model::id::NodeId;
use muster_model::task::Outcome;
use std::fs;
use uuid::Uuid;

#[test]
fn tasks_run_in_their_folder_and_their_exit_codes_are_reported() {
    let site = Site::started(10_000, &[]);
    let good = site.task(0, "echo \"$@\"; pwd; ls; echo to stderr >&2");
    let bad = site.task(1, "exit 75");
    site.scheduler.assign(1, &[good.clone(), bad.clone()]);
    assert_eq!(site.until_gone(&good), Outcome::exited(0));
    assert_eq!(site.until_gone(&bad), Outcome::exited(75));
    site.until_log_has(&good, "to stderr");
    let log = site.scheduler.heard().log(good.id());
    let folder = site.task_folder(&good).display().to_string();
    let root = site.path().display();
    let first = format!(
        "--folder {folder} --checkpoint-root {root}/checkpoints --dataset-root {root}/datasets --listen-host 127.0.0.1"
    );
    assert_eq!(log.lines().next(), Some(first.as_str()));
    assert!(
        log.contains(&format!("\n{folder}\n")),
        "it runs in its folder: {log}"
    );
    assert!(
        log.contains("peers.json") && log.contains("task.json"),
        "{log}"
    );
    assert_eq!(
        fs::read_to_string(site.task_folder(&bad).join("exit.json")).expect("written"),
        r#"{"kind":"exited","code":75}"#
    );
    site.finish();
}

#[test]
fn task_has_a_clean_environment() {
    let site = Site::started(10_000, &[]);
    let task = site.task(2, "env; echo done");
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_log_has(&task, "done");
    let log = site.scheduler.heard().log(task.id());
    assert!(
        log.contains("MUSTER_JOB_ID=00000000-0000-0000-0000-000000000001\n"),
        "{log}"
    );
    assert!(
        log.contains(&format!("MUSTER_TASK_ID={}\n", task.id()))
            && log.contains("MUSTER_REVISION=7\n"),
        "{log}"
    );
    assert!(
        log.contains("MUSTER_THREADS=") && log.contains("RAYON_NUM_THREADS="),
        "{log}"
    );
    assert!(!log.contains("SECRET") && !log.contains("TOKEN"), "{log}");
    site.until_gone(&task);
    site.finish();
}

/// The engine's tasks of a job share memory on a node.
#[test]
fn socket_folder_of_a_job_ends_with_its_last_task() {
    let site = Site::started(10_000, &[]);
    let task = site.task(2, "test -d $MUSTER_SOCKETS && echo in $MUSTER_SOCKETS.");
    let folder = site.task_folder(&task);
    let data = folder.ancestors().nth(2).expect("<data>/tasks/<task>");
    let place = data.join("sockets/00000000-0000-0000-0000-000000000001");
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_log_has(&task, &format!("in {}.", place.display()));
    site.until_gone(&task);
    site.until_it("the folder is gone", || !place.exists());
    site.finish();
}

#[test]
fn failed_and_withdrawn_launches_are_reported() {
    let site = Site::started(10_000, &[]);
    let withdrawn = site.task(1, "echo never").stopped();
    site.scheduler.assign(1, std::slice::from_ref(&withdrawn));
    assert_eq!(site.until_gone(&withdrawn), Outcome::NeverStarted);
    fs::remove_file(site.path().join("task")).expect("removed");
    let missing = site.task(0, "");
    site.scheduler.assign(2, std::slice::from_ref(&missing));
    let Outcome::LaunchFailed { message } = site.until_gone(&missing) else {
        panic!("launched")
    };
    assert!(message.contains("No such file"), "{message}");
    site.finish();
}

#[test]
fn stopped_task_ends_within_its_grace() {
    let site = Site::started(10_000, &[]);
    let task = site.task(
        0,
        "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.02; done",
    );
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_log_has(&task, "up");
    site.scheduler.assign(2, &[task.stopped()]);
    assert_eq!(site.until_gone(&task), Outcome::exited(0));
    site.until_log_has(&task, "saved");
    site.finish();
}

/// Its children ignore the signal too, and one of them has a session of its own.
#[test]
fn task_that_ignores_the_stop_is_killed_with_its_descendants() {
    let site = Site::started(10_000, &[]);
    let script = "trap '' TERM; sleep 1000 & setsid sleep 1001 & (sleep 1002 &) ; echo up; while :; do sleep 0.02; done";
    let task = site.task(0, script);
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_log_has(&task, "up");
    assert!(
        site.processes().len() >= 6,
        "daemon, shim, shell and three sleeping"
    );
    // A task that is missing from the assignment stops too.
    site.scheduler.assign(2, &[]);
    assert_eq!(site.until_gone(&task), Outcome::signalled(9));
    assert_eq!(site.processes().len(), 1, "the daemon alone");
    site.finish();
}

#[test]
fn remaining_processes_of_a_task_end_with_it() {
    let site = Site::started(10_000, &[]);
    let task = site.task(0, "setsid sleep 1000 & sleep 1001 & exit 3");
    site.scheduler.assign(1, std::slice::from_ref(&task));
    assert_eq!(site.until_gone(&task), Outcome::exited(3));
    site.finish();
}

#[test]
fn peers_reach_a_running_task() {
    let site = Site::started(10_000, &[]);
    let task = site.task(
        0,
        "until grep -q 127.0.0.1:9 peers.json; do sleep 0.02; done; echo met",
    );
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_running(&task);
    let peers = Peers {
        revision: 1,
        workers: Vec::new(),
        ps_shards: vec![Peer {
            task_id: task.launch.task_id,
            node_id: NodeId(Uuid::nil()),
            address: Some("127.0.0.1:9".to_owned()),
        }],
        ..Peers::default()
    };
    site.scheduler.assign(
        1,
        &[TaskToAssign {
            peers,
            ..task.clone()
        }],
    );
    assert_eq!(site.until_gone(&task), Outcome::exited(0));
    site.finish();
}

#[test]
fn gpu_is_not_shared_despite_a_wrong_assignment() {
    let site = Site::started(10_000, &[]);
    let first = site.task(0, "trap '' TERM; while :; do sleep 0.02; done");
    let second = site.task(4, "ps -e -o args= > ps; exit 0");
    site.scheduler.assign(1, std::slice::from_ref(&first));
    site.until_running(&first);
    site.scheduler.assign(2, std::slice::from_ref(&second));
    site.until_gone(&second);
    let heard = site.scheduler.heard();
    let is_first_gone =
        |(id, observed): &(_, Observed)| *id == first.id() && *observed != Observed::Running;
    let gone_at = heard.statuses.iter().position(is_first_gone).expect("told");
    let up_at = heard
        .statuses
        .iter()
        .position(|(id, _)| *id == second.id())
        .expect("told");
    assert!(gone_at < up_at, "{:?}", heard.statuses);
    drop(heard);
    site.finish();
}
