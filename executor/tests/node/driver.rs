//! Suspension of programs whose GPU memory the driver moves, with a stand-in of the driver's
//! library (`stand_in.c`): real processes and signals, no GPU.

use crate::command::{introduce, told};
use crate::scheduler::TaskToAssign;
use crate::site::Site;
use muster_executor::process::{self, ProcessId};
use muster_model::assignment::TaskReport;
use muster_model::node::{Capacity, DriverSuspend};
use muster_model::task::Outcome;
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::thread;
use std::time::Duration;

/// Two processes with GPU memory and one without, each of which counts. When asked to stop, the
/// first one prints that it keeps its work.
const PROGRAM: &str = r#"
mb=1048576
count() { n=0; while :; do n=$((n + 1)); echo $n > $STAND_IN/count.$1; sleep 0.01; done; }
(me=$(exec sh -c 'echo $PPID'); echo $mb > $STAND_IN/uses.$me; count second) &
(count plain) &
trap 'until [ "$(cat $STAND_IN/state.$$ 2>/dev/null || echo 0)" = 0 ]; do sleep 0.01; done; echo saved; exit 3' TERM
echo $mb > $STAND_IN/uses.$$
echo up
count first
"#;

/// Flags that enable the driver.
pub const ASKED: &[&str] = &["--driver-patience-ms", "20000"];

/// Starts a program that uses the GPU.
pub fn at_work(site: &Site) -> TaskToAssign {
    // No test waits for the end of this grace.
    at_work_with_grace(site, 60_000)
}

fn at_work_with_grace(site: &Site, grace_ms: u64) -> TaskToAssign {
    let mut tasks = [site.command(0, json!({ "argv": ["sh", "-c", PROGRAM] }))];
    tasks[0].launch.gpus = vec![0];
    tasks[0].launch.grace_ms = grace_ms;
    site.scheduler.assign(1, &tasks);
    introduce(site, &mut tasks);
    let [task] = tasks;
    for name in ["first", "second", "plain"] {
        site.until_it("it counts", || counted(site, name) > 0);
    }
    task
}

fn counted(site: &Site, name: &str) -> u64 {
    let text = fs::read_to_string(site.stand_in().join(format!("count.{name}")));
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

/// Returns the driver's states of both processes with GPU memory.
pub fn states(site: &Site) -> Vec<String> {
    let users = users(site);
    assert_eq!(users.len(), 2);
    let states = users.iter().map(|pid| {
        let text = fs::read_to_string(site.stand_in().join(format!("state.{pid}")));
        text.unwrap_or_else(|_| "0".to_owned())
    });
    states.collect()
}

/// Returns the processes that have ever had GPU memory.
pub fn users(site: &Site) -> Vec<String> {
    let entries = fs::read_dir(site.stand_in()).expect("there");
    let names = entries.map(|entry| {
        entry
            .expect("there")
            .file_name()
            .into_string()
            .expect("ours")
    });
    names
        .filter_map(|name| Some(name.strip_prefix("uses.")?.to_owned()))
        .collect()
}

pub fn calls(site: &Site) -> Vec<String> {
    let text = fs::read_to_string(site.stand_in().join("calls")).unwrap_or_default();
    let calls = text.lines().filter_map(|line| line.split(' ').next());
    calls.map(str::to_owned).collect()
}

pub fn tell(site: &Site, name: &str, text: &str) {
    fs::write(site.stand_in().join(name), text).expect("written");
}

/// Assigns a slice, which suspends or resumes the task.
pub fn turn(site: &Site, task: &mut TaskToAssign, number: u64) {
    task.peers.turn = number;
    site.scheduler
        .assign(2 + number, std::slice::from_ref(task));
}

fn until_told(site: &Site, task: &TaskToAssign, wanted: &TaskReport) {
    site.until_it(&format!("{wanted:?}"), || told(site, task).contains(wanted));
}

pub fn until_suspended(site: &Site, task: &TaskToAssign, turn: u64) {
    until_told(site, task, &TaskReport::Suspended { turn, step: None });
    let mut all = of_task(site, task);
    // A parent that waits in the kernel for a stopped child (a fork in progress) is suspended too.
    all.retain(|stat| !matches!(stat.state, 'T' | 'D') && !is_driver_helper(stat.id.pid));
    assert!(all.is_empty(), "they do not stand still: {all:?}");
}

pub fn until_continued(site: &Site, task: &TaskToAssign, turn: u64) {
    until_told(site, task, &TaskReport::Continued { turn, step: None });
    assert_eq!(states(site), ["0", "0"]);
    for name in ["first", "second", "plain"] {
        let before = counted(site, name);
        site.until_it("it counts on", || counted(site, name) > before);
    }
}

/// Returns the program's processes.
pub fn of_task(site: &Site, task: &TaskToAssign) -> Vec<process::Stat> {
    process::descendants(site.record(task).shim.pid)
}

pub fn is_driver_helper(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("--order"))
}

pub fn notes(site: &Site, task: &TaskToAssign) -> Vec<String> {
    let reports = told(site, task).into_iter();
    let notes = reports.filter_map(|report| match report {
        TaskReport::Note { message } => Some(message),
        _ => None,
    });
    notes.collect()
}

fn end(site: Site, task: &TaskToAssign) {
    site.scheduler.assign(99, &[task.stopped()]);
    assert_eq!(site.until_gone(task), Outcome::stopped());
    site.until_log_has(task, "saved");
    site.finish();
}

#[test]
fn suspended_program_leaves_the_gpu_and_returns() {
    let site = Site::with_gpu(ASKED);
    site.until("it is heard", |heard| !heard.hellos.is_empty());
    let capacity: Capacity =
        serde_json::from_str(&site.scheduler.heard().hellos[0].capacity_json).expect("a capacity");
    assert_eq!(capacity.gpus[0].model, "Stand-in");
    let cuda = "12.8".to_owned();
    assert_eq!(capacity.driver_suspend, Some(DriverSuspend::Able { cuda }));
    let mut task = at_work(&site);
    for round in 0..2 {
        turn(&site, &mut task, 2 * round + 1);
        until_suspended(&site, &task, 2 * round + 1);
        assert_eq!(states(&site), ["2", "2"], "{:?}", notes(&site, &task));
        turn(&site, &mut task, 2 * round + 2);
        until_continued(&site, &task, 2 * round + 2);
    }
    let of_a_round = ["lock", "checkpoint", "restore", "unlock"].map(|call| [call; 2]);
    assert_eq!(calls(&site), of_a_round.concat().repeat(2));
    assert_eq!(notes(&site, &task), Vec::<String>::new());
    end(site, &task);
}

#[test]
fn driver_probe_uses_the_environment_of_a_task() {
    // The daemon finds its library, and its child processes do not.
    let site = Site::with_gpu_and_environment("PATH,HOME,STAND_IN", ASKED);
    site.until("it is heard", |heard| !heard.hellos.is_empty());
    let capacity: Capacity =
        serde_json::from_str(&site.scheduler.heard().hellos[0].capacity_json).expect("a capacity");
    assert_eq!(capacity.gpus[0].model, "Stand-in");
    match capacity.driver_suspend {
        Some(DriverSuspend::Unable { why }) => assert!(why.contains("libcuda.so.1"), "{why}"),
        other => panic!("it cannot be loaded there, and is said to be {other:?}"),
    }
    site.finish();
}

#[test]
fn refused_move_is_undone_and_the_memory_stays() {
    let site = Site::with_gpu(ASKED);
    let mut task = at_work(&site);
    tell(&site, "fail.checkpoint", "");
    turn(&site, &mut task, 1);
    until_suspended(&site, &task, 1);
    assert_eq!(states(&site), ["0", "0"]);
    turn(&site, &mut task, 2);
    until_continued(&site, &task, 2);
    turn(&site, &mut task, 3);
    until_suspended(&site, &task, 3);
    let notes = notes(&site, &task);
    assert_eq!(notes.len(), 1, "it is said once: {notes:?}");
    assert!(
        notes[0].contains("stays on the GPUs")
            && notes[0].contains("cuCheckpointProcessCheckpoint")
            && notes[0].contains("801"),
        "{notes:?}"
    );
    assert!(!calls(&site).contains(&"restore".to_owned()));
    // A suspended task that is asked to stop resumes and keeps its work.
    end(site, &task);
}

#[test]
fn hanging_driver_call_is_given_up_and_undone() {
    for (call, text) in [
        ("lock", ""),
        ("lock", "done"),
        ("checkpoint", ""),
        ("checkpoint", "done"),
    ] {
        let site = Site::with_gpu(&["--driver-patience-ms", "1500"]);
        let mut task = at_work(&site);
        tell(&site, &format!("hang.{call}"), text);
        turn(&site, &mut task, 1);
        until_suspended(&site, &task, 1);
        assert_eq!(states(&site), ["0", "0"], "{call} {text}");
        assert!(notes(&site, &task)[0].contains("took too long"));
        turn(&site, &mut task, 2);
        until_continued(&site, &task, 2);
        end(site, &task);
    }
}

/// Returns the driver helper once it has made this call.
fn driver_helper_in(site: &Site, task: &TaskToAssign, call: &str) -> ProcessId {
    site.until_it("the driver is asked", || {
        calls(site).contains(&call.to_owned())
    });
    let helpers = of_task(site, task).into_iter();
    let mut helpers = helpers.filter(|stat| is_driver_helper(stat.id.pid));
    helpers.next().expect("it hangs").id
}

#[test]
fn killed_driver_helper_is_undone() {
    for (call, text) in [("lock", "done"), ("checkpoint", ""), ("checkpoint", "done")] {
        let site = Site::with_gpu(ASKED);
        let mut task = at_work(&site);
        let hang = format!("hang.{call}");
        tell(&site, &hang, text);
        turn(&site, &mut task, 1);
        assert!(driver_helper_in(&site, &task, call).signal(Signal::KILL));
        until_suspended(&site, &task, 1);
        assert_eq!(states(&site), ["0", "0"], "{call} {text}");
        fs::remove_file(site.stand_in().join(hang)).expect("there");
        turn(&site, &mut task, 2);
        until_continued(&site, &task, 2);
        // The same on the way back.
        turn(&site, &mut task, 3);
        until_suspended(&site, &task, 3);
        assert_eq!(states(&site), ["2", "2"]);
        tell(&site, "hang.unlock", "");
        tell(&site, "calls", "");
        turn(&site, &mut task, 4);
        let helper = driver_helper_in(&site, &task, "unlock");
        // The helper that undoes the move must not hang.
        fs::remove_file(site.stand_in().join("hang.unlock")).expect("there");
        assert!(helper.signal(Signal::KILL));
        until_continued(&site, &task, 4);
        end(site, &task);
    }
}

#[test]
fn killed_executor_does_not_disturb_a_move() {
    let mut site = Site::with_gpu(&["--driver-patience-ms", "1500"]);
    let mut task = at_work(&site);
    tell(&site, "hang.checkpoint", "done");
    turn(&site, &mut task, 1);
    driver_helper_in(&site, &task, "checkpoint");
    site.kill();
    fs::remove_file(site.stand_in().join("hang.checkpoint")).expect("there");
    site.until_it("it stands still without a daemon", || {
        site.task_folder(&task).join("standing").exists()
    });
    assert_eq!(states(&site), ["0", "0"]);
    site.start();
    until_suspended(&site, &task, 1);
    turn(&site, &mut task, 2);
    until_continued(&site, &task, 2);
    end(site, &task);
}

#[test]
fn killed_shim_ends_all_processes_during_a_driver_call() {
    for (name, text) in [
        ("hang.checkpoint", "done"),
        ("hang.lock", "done"),
        ("none", ""),
    ] {
        let site = Site::with_gpu(ASKED);
        let mut task = at_work(&site);
        tell(&site, name, text);
        turn(&site, &mut task, 1);
        match name.strip_prefix("hang.") {
            Some(call) => assert!(driver_helper_in(&site, &task, call).is_alive()),
            None => until_suspended(&site, &task, 1),
        }
        let all = of_task(&site, &task);
        assert!(all.len() >= 3, "{all:?}");
        assert!(site.record(&task).shim.signal(Signal::KILL));
        assert_eq!(site.until_gone(&task), Outcome::NodeLost);
        let left = all.iter().filter(|stat| stat.id.is_alive());
        assert_eq!(left.count(), 0, "with {name}");
        site.finish();
    }
}

#[test]
fn program_that_is_not_restored_ends_with_the_reason() {
    let site = Site::with_gpu(ASKED);
    let mut task = at_work(&site);
    turn(&site, &mut task, 1);
    until_suspended(&site, &task, 1);
    tell(&site, "fail.restore", "");
    turn(&site, &mut task, 2);
    let outcome = site.until_gone(&task);
    let said = outcome.to_string();
    assert!(
        said.contains("driver did not give it back") && said.contains("cuCheckpointProcessRestore"),
        "{said}"
    );
    assert!(
        outcome.is_node_fault() && !outcome.is_clean(),
        "{outcome:?}"
    );
    site.finish();
}

#[test]
fn grace_begins_after_the_driver_has_restored_the_program() {
    for call in ["checkpoint", "restore"] {
        let site = Site::with_gpu(ASKED);
        let mut task = at_work_with_grace(&site, 1_000);
        if call == "restore" {
            turn(&site, &mut task, 1);
            until_suspended(&site, &task, 1);
        }
        let slow = format!("slow.{call}");
        tell(&site, &slow, "");
        if call == "checkpoint" {
            turn(&site, &mut task, 1);
            driver_helper_in(&site, &task, call);
        }
        site.scheduler.assign(99, &[task.stopped()]);
        driver_helper_in(&site, &task, call);
        // Longer than its grace.
        thread::sleep(Duration::from_millis(1_500));
        fs::remove_file(site.stand_in().join(slow)).expect("there");
        let outcome = site.until_gone(&task);
        assert_eq!(outcome, Outcome::stopped(), "slow {call}");
        site.until_log_has(&task, "saved");
        site.finish();
    }
}
