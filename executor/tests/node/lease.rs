//! A node without a session stops its tasks by itself.

use crate::scheduler::TaskToAssign;
use crate::site::Site;
use muster_model::task::Outcome;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::thread;
use std::time::Duration;

const ORDERLY: &str = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.02; done";
const STUBBORN: &str = "trap '' TERM; echo up; while :; do sleep 0.02; done";

#[test]
fn task_survives_a_disconnection_shorter_than_the_lease() {
    let site = Site::started(60_000, &[]);
    let task = site.task(0, ORDERLY);
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_log_has(&task, "up");
    let record = site.record(&task);
    site.scheduler.cut();
    site.scheduler.come_back();
    site.until_running_in_second_session(&[&task]);
    assert!(record.task.is_alive());
    site.scheduler.assign(2, &[]);
    assert_eq!(site.until_gone(&task), Outcome::exited(0));
    site.finish();
}

#[test]
fn tasks_stop_when_the_lease_expires_without_a_session() {
    let site = Site::started(1_500, &[]);
    let (orderly, stubborn) = (site.task(0, ORDERLY), site.task(1, STUBBORN));
    site.scheduler
        .assign(1, &[orderly.clone(), stubborn.clone()]);
    site.until_log_has(&orderly, "up");
    site.until_log_has(&stubborn, "up");
    site.scheduler.cut();
    site.until_it("only the daemon is left", || site.processes().len() == 1);
    site.scheduler.come_back();
    assert_eq!(site.until_gone(&orderly), Outcome::LeaseExpired);
    assert_eq!(site.until_gone(&stubborn), Outcome::LeaseExpired);
    site.until_log_has(&orderly, "saved");
    site.finish();
}

#[test]
fn lease_is_enforced_while_the_daemon_is_dead() {
    let mut site = Site::started(1_500, &[]);
    let (orderly, stubborn) = (site.task(0, ORDERLY), site.task(1, STUBBORN));
    site.scheduler
        .assign(1, &[orderly.clone(), stubborn.clone()]);
    site.until_log_has(&orderly, "up");
    site.until_log_has(&stubborn, "up");
    site.kill();
    site.until_it("nothing is left", || site.processes().is_empty());
    for task in [&orderly, &stubborn] {
        let exit = fs::read_to_string(site.task_folder(task).join("exit.json")).expect("written");
        assert_eq!(exit, r#"{"kind":"lease_expired"}"#);
    }
    site.start();
    assert_eq!(site.until_gone(&orderly), Outcome::LeaseExpired);
    assert_eq!(site.until_gone(&stubborn), Outcome::LeaseExpired);
    site.finish();
}

/// When the machine continues, its GPUs may belong to other tasks. So there is no grace left.
#[test]
fn task_of_a_frozen_node_gets_no_grace_after_its_time() {
    const LEASE_MS: u64 = 1_000;
    const GRACE_MS: u64 = 3_000;
    /// Lines that the program writes in a sixth of a grace.
    const FEW: usize = 25;
    const COUNTING: &str = "trap '' TERM; echo up; while :; do echo step; sleep 0.02; done";
    let site = Site::started(LEASE_MS, &[]);
    let mut task = site.task(0, COUNTING);
    task.launch.grace_ms = GRACE_MS;
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_log_has(&task, "step");
    let frozen = site.processes();
    send(&frozen, Signal::STOP);
    let before = steps(&site, &task);
    thread::sleep(Duration::from_millis(LEASE_MS + GRACE_MS + 500));
    send(&frozen, Signal::CONT);
    assert_eq!(site.until_gone(&task), Outcome::LeaseExpired);
    let after = steps(&site, &task) - before;
    assert!(after < FEW, "{after} steps beside a possible replacement");
    site.finish();
}

/// Signals the processes that still exist; some were short-lived children of the program.
fn send(pids: &[i32], signal: Signal) {
    for pid in pids {
        let _ = kill_process(Pid::from_raw(*pid).expect("a process"), signal);
    }
}

/// Number of lines in the log of a task.
fn steps(site: &Site, task: &TaskToAssign) -> usize {
    let log = site.task_folder(task).join("log");
    fs::read_to_string(log).expect("there").lines().count()
}
