//! SIGKILL for each of the processes, and the state that is known afterwards.

use crate::site::Site;
use muster_model::task::Outcome;
use rustix::process::Signal;
use std::fs;

/// Writes numbered events and log lines slowly.
const COUNTING: &str = r#"
i=0
while [ $i -lt 120 ]; do
  echo "{\"kind\":\"note\",\"message\":\"note $i\"}" >> events.jsonl
  echo "line $i"
  i=$((i + 1))
  sleep 0.01
done
exit 4
"#;

#[test]
fn next_daemon_adopts_the_tasks_of_a_killed_one() {
    let mut site = Site::started(60_000, &[]);
    let (counting, brief) = (
        site.task(0, COUNTING),
        site.task(1, "until [ -e go ]; do sleep 0.02; done; exit 5"),
    );
    site.scheduler.assign(3, &[counting.clone(), brief.clone()]);
    site.until_log_has(&counting, "line 10\n");
    site.until_running(&brief);
    let before = site.record(&counting);
    site.kill();
    // One task ends while there is no daemon.
    fs::write(site.task_folder(&brief).join("go"), "").expect("written");
    let exit = site.task_folder(&brief).join("exit.json");
    site.until_it("it has ended", || exit.exists());
    site.start();
    assert_eq!(site.until_gone(&brief), Outcome::exited(5));
    assert_eq!(site.until_gone(&counting), Outcome::exited(4));
    assert_eq!(
        site.record(&counting),
        before,
        "the same processes all along"
    );
    site.until_log_has(&counting, "line 119\n");
    let heard = site.scheduler.heard();
    let lines: String = (0..120).map(|line| format!("line {line}\n")).collect();
    assert_eq!(heard.log(counting.id()), lines);
    let events = &heard.events[&counting.id()];
    assert_eq!(events.len(), 120);
    assert!(
        events
            .iter()
            .all(|(seq, event)| event.contains(&format!("\"note {seq}\"")))
    );
    assert_eq!(
        heard.hellos.last().map(|hello| hello.generation),
        Some(3),
        "the generation is kept"
    );
    drop(heard);
    site.finish();
}

#[test]
fn killed_task_is_reported_with_its_signal() {
    let site = Site::started(10_000, &[]);
    let task = site.task(0, "while :; do sleep 0.02; done");
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_running(&task);
    assert!(site.record(&task).task.signal(Signal::KILL));
    assert_eq!(site.until_gone(&task), Outcome::signalled(9));
    site.finish();
}

#[test]
fn killed_shim_ends_its_task_and_its_descendants() {
    let site = Site::started(10_000, &[]);
    let task = site.task(
        0,
        "trap '' TERM; setsid sleep 1000 & echo up; while :; do sleep 0.02; done",
    );
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_log_has(&task, "up");
    assert!(site.record(&task).shim.signal(Signal::KILL));
    assert_eq!(
        site.until_gone(&task),
        Outcome::NodeLost,
        "the machine is to blame"
    );
    assert_eq!(site.processes().len(), 1, "the daemon alone");
    site.finish();
}

#[test]
fn shim_killed_without_a_daemon_is_noticed_by_the_next_one() {
    let mut site = Site::started(60_000, &[]);
    let task = site.task(
        0,
        "setsid sleep 1000 & echo up; while :; do sleep 0.02; done",
    );
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_log_has(&task, "up");
    let record = site.record(&task);
    site.kill();
    assert!(record.shim.signal(Signal::KILL));
    site.until_it("the task died with its shim", || !record.task.is_alive());
    site.start();
    assert_eq!(
        site.until_gone(&task),
        Outcome::NodeLost,
        "the machine is to blame"
    );
    site.finish();
}

#[test]
fn stopped_daemon_leaves_its_tasks_to_the_next_one() {
    let mut site = Site::started(60_000, &[]);
    let task = site.task(0, "until [ -e go ]; do sleep 0.02; done");
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_running(&task);
    let record = site.record(&task);
    assert!(site.terminate());
    assert!(record.shim.is_alive() && record.task.is_alive());
    site.start();
    site.until_running_in_second_session(&[&task]);
    fs::write(site.task_folder(&task).join("go"), "").expect("written");
    assert_eq!(site.until_gone(&task), Outcome::exited(0));
    site.finish();
}

#[test]
fn daemon_stops_its_tasks_on_exit_if_configured() {
    let mut site = Site::started(60_000, &["--stop-tasks-on-exit"]);
    let orderly = site.task(
        0,
        "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done",
    );
    let stubborn = site.task(1, "trap '' TERM; echo up; while :; do sleep 0.02; done");
    site.scheduler
        .assign(1, &[orderly.clone(), stubborn.clone()]);
    site.until_log_has(&orderly, "up");
    site.until_log_has(&stubborn, "up");
    assert!(site.terminate());
    assert_eq!(site.processes(), Vec::<i32>::new());
    assert_eq!(site.until_gone(&orderly), Outcome::exited(0));
    assert_eq!(site.until_gone(&stubborn), Outcome::signalled(9));
    site.finish();
}
