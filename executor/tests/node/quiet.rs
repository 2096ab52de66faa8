//! Cost of an idle daemon beside running training: it sleeps until something happens. A test of
//! `watcher` covers that it is woken then.

use crate::scheduler::TaskToAssign;
use crate::site::Site;
use std::fs;
use std::thread;
use std::time::Duration;

const WATCHED_FOR: Duration = Duration::from_secs(5);
/// Maximum wake-ups of one thread in that time. It polls each second; the rest is a margin.
const MOST_WAKES: u64 = 10;
/// Maximum wake-ups of the whole daemon, which sends a heartbeat every two seconds.
const MOST_WAKES_OF_ALL: u64 = 80;

/// Returns how often the threads of this name have slept since the process started; without a name,
/// all threads.
fn sleeps(pid: i32, name: Option<&str>) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let counts = threads.flatten().filter_map(|thread| {
        let comm = fs::read_to_string(thread.path().join("comm")).ok()?;
        if name.is_some_and(|name| name != comm.trim()) {
            return None;
        }
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count?.trim().parse::<u64>().ok()
    });
    counts.sum()
}

fn sleeps_for_a_while(pid: i32) {
    // Recent actions cause some further polls.
    thread::sleep(Duration::from_secs(2));
    let before = (sleeps(pid, Some("node")), sleeps(pid, None));
    thread::sleep(WATCHED_FOR);
    let node = sleeps(pid, Some("node")) - before.0;
    let all = sleeps(pid, None) - before.1;
    assert!(node <= MOST_WAKES, "the loop woke {node} times");
    assert!(all <= MOST_WAKES_OF_ALL, "the daemon woke {all} times");
}

#[test]
fn idle_daemon_sleeps_with_and_without_tasks() {
    let site = Site::started(10_000, &[]);
    let daemon = site.daemon_pid();
    sleeps_for_a_while(daemon);
    let tasks: Vec<TaskToAssign> = (0..4).map(|slot| site.task(slot, "sleep 600")).collect();
    site.scheduler.assign(1, &tasks);
    tasks.iter().for_each(|task| site.until_running(task));
    sleeps_for_a_while(daemon);
    let shim = site.record(&tasks[0]).shim.pid;
    let before = sleeps(shim, None);
    thread::sleep(WATCHED_FOR);
    let shim = sleeps(shim, None) - before;
    assert!(shim <= MOST_WAKES, "a shim woke {shim} times");
    site.scheduler.assign(2, &[]);
    tasks.iter().for_each(|task| drop(site.until_gone(task)));
    site.finish();
}
