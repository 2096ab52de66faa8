//! SIGKILL for each of the processes, and what is known afterwards.

use crate::site::Site;
use muster_model::assignment::Observed;
use muster_model::task::Outcome;
use rustix::process::Signal;
use std::fs;

/// Writes numbered events and log lines, and takes a while for it.
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
fn a_killed_daemon_is_followed_by_one_that_adopts_its_tasks() {
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
    // One ends while there is no daemon.
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
fn a_killed_task_is_reported_with_its_signal() {
    let site = Site::started(10_000, &[]);
    let task = site.task(0, "while :; do sleep 0.02; done");
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_running(&task);
    assert!(site.record(&task).task.signal(Signal::KILL));
    assert_eq!(site.until_gone(&task), Outcome::signalled(9));
    site.finish();
}

#[test]
fn a_killed_shim_takes_its_task_and_all_it_started_along() {
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
fn a_shim_killed_while_there_is_no_daemon_is_noticed_by_the_next() {
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
fn an_orderly_stop_leaves_tasks_to_the_next_daemon() {
    let mut site = Site::started(60_000, &[]);
    let task = site.task(0, "until [ -e go ]; do sleep 0.02; done");
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_running(&task);
    let record = site.record(&task);
    assert!(site.terminate());
    assert!(record.shim.is_alive() && record.task.is_alive());
    site.start();
    site.until("it is told again", |heard| {
        heard.hellos.len() == 2 && heard.statuses.len() == 2
    });
    assert_eq!(
        site.scheduler.heard().last(task.id()),
        Some(&Observed::Running)
    );
    fs::write(site.task_folder(&task).join("go"), "").expect("written");
    assert_eq!(site.until_gone(&task), Outcome::exited(0));
    site.finish();
}

#[test]
fn told_so_it_stops_its_tasks_before_it_ends() {
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
