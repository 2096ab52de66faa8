//! Programs that return to GPUs on which other programs have memory, with the stand-in of the
//! driver's library.

use crate::command::address;
use crate::driver::{
    ASKED, at_work, calls, notes, states, tell, turn, until_continued, until_suspended, users,
};
use crate::scheduler::TaskToAssign;
use crate::site::Site;
use muster_model::assignment::{Observed, Peer, Peers};
use muster_model::id::NodeId;
use muster_model::task::Outcome;
use serde_json::json;
use std::fs;
use std::thread;
use std::time::Duration;
use uuid::Uuid;

/// Memory of the stand-in's GPU.
const WHOLE: u64 = 16 << 30;

#[test]
fn stopped_program_returns_only_if_there_is_room() {
    for (other_gb, killed) in [(4_u64, false), (15, true)] {
        let site = Site::with_gpu(&["--driver-patience-ms", "1500"]);
        let mut task = at_work(&site);
        turn(&site, &mut task, 1);
        until_suspended(&site, &task, 1);
        assert_eq!(states(&site), ["2", "2"]);
        // Another job has its slice.
        tell(&site, "other", &(other_gb << 30).to_string());
        site.scheduler.assign(99, &[task.stopped()]);
        assert_eq!(
            site.until_gone(&task),
            Outcome::Stopped {
                killed,
                driver: None
            }
        );
        let restored = calls(&site).contains(&"restore".to_owned());
        assert_eq!(restored, !killed);
        assert_eq!(notes(&site, &task).len(), usize::from(killed));
        assert!(!site.processes().is_empty(), "the daemon lives");
        let observed = site.scheduler.heard().last(task.id()).cloned();
        assert!(matches!(observed, Some(Observed::Gone { .. })));
        site.finish();
    }
}

#[test]
fn program_without_room_on_its_gpus_waits() {
    let site = Site::with_gpu(&["--driver-patience-ms", "1500"]);
    let mut task = at_work(&site);
    turn(&site, &mut task, 1);
    until_suspended(&site, &task, 1);
    // Another job's memory stays on the GPU when that job is suspended.
    tell(&site, "other", &WHOLE.to_string());
    turn(&site, &mut task, 2);
    site.until_it("it says that it waits", || !notes(&site, &task).is_empty());
    // The slice may pass before there is room.
    turn(&site, &mut task, 3);
    until_suspended(&site, &task, 3);
    assert_eq!(states(&site), ["2", "2"]);
    turn(&site, &mut task, 4);
    tell(&site, "other", "0");
    until_continued(&site, &task, 4);
    let said = notes(&site, &task);
    assert!(said[0].contains("waits for room on its GPUs"), "{said:?}");
    assert_eq!(said.len(), 1, "once for each turn at most: {said:?}");
    // A task that is asked to stop while it waits has no more than its grace.
    turn(&site, &mut task, 5);
    until_suspended(&site, &task, 5);
    tell(&site, "other", &WHOLE.to_string());
    turn(&site, &mut task, 6);
    site.until_it("it says so anew", || notes(&site, &task).len() == 2);
    site.scheduler.assign(99, &[task.stopped()]);
    assert_eq!(site.until_gone(&task), Outcome::killed_late());
    site.finish();
}

/// One process with two gigabytes on the GPU, which prints that it keeps its work when asked to
/// stop.
const BIG: &str = r#"
trap 'until [ "$(cat $STAND_IN/state.$$ 2>/dev/null || echo 0)" = 0 ]; do sleep 0.01; done; echo saved; exit 3' TERM
echo 2147483648 > $STAND_IN/uses.$$
echo up
while :; do sleep 0.01; done
"#;

/// Returns two tasks that use the GPU alternately.
fn two_big(site: &Site) -> [TaskToAssign; 2] {
    [(); 2].map(|()| {
        let mut task = site.command(0, json!({ "argv": ["sh", "-c", BIG] }));
        (task.launch.gpus, task.launch.grace_ms) = (vec![0], 60_000);
        task
    })
}

/// Sends the last of these tasks a task set with itself only, and waits until it uses the GPU.
fn until_up(site: &Site, tasks: &mut [TaskToAssign], generation: u64) {
    site.scheduler.assign(generation, tasks);
    let number = tasks.len();
    let task = tasks.last_mut().expect("there is one");
    site.until_it("it has a port", || address(site, task).is_some());
    let own = Peer {
        task_id: task.id(),
        node_id: NodeId(Uuid::from_u128(1)),
        address: address(site, task),
    };
    task.peers = Peers {
        revision: 7,
        workers: vec![own],
        ..Peers::default()
    };
    site.scheduler.assign(generation + 1, tasks);
    site.until_log_has(&tasks[number - 1], "up");
    assert_eq!(users(site).len(), number, "it is on the GPU");
}

#[test]
fn simultaneous_returns_do_not_use_the_same_room() {
    let site = Site::with_gpu(ASKED);
    let mut tasks = two_big(&site);
    for number in 1..=2 {
        let generation = 10 * number as u64;
        until_up(&site, &mut tasks[..number], generation);
        tasks[number - 1].peers.turn = 1;
        site.scheduler.assign(generation + 2, &tasks[..number]);
        until_suspended(&site, &tasks[number - 1], 1);
        assert_eq!(notes(&site, &tasks[number - 1]), Vec::<String>::new());
    }
    // There is room for one of them and the part that must stay free.
    tell(&site, "other", &(WHOLE - (38 << 30) / 10).to_string());
    tell(&site, "slow.restore", "");
    let stopped = tasks.each_ref().map(TaskToAssign::stopped);
    site.scheduler.assign(99, &stopped);
    site.until_it("one comes back", || {
        calls(&site).contains(&"restore".to_owned())
    });
    // Time in which the other task could wrongly return too.
    thread::sleep(Duration::from_millis(700));
    fs::remove_file(site.stand_in().join("slow.restore")).expect("there");
    for task in &tasks {
        let outcome = site.until_gone(task);
        let notes = notes(&site, task);
        assert_eq!(outcome, Outcome::stopped(), "{notes:?}");
        site.until_log_has(task, "saved");
    }
    site.finish();
}

#[test]
fn driver_is_not_used_again_for_a_job_that_it_lost() {
    let site = Site::with_gpu(ASKED);
    let mut tasks = two_big(&site);
    until_up(&site, &mut tasks[..1], 1);
    tell(&site, "fail.restore", "");
    for (turn, generation) in [(1, 3), (2, 4)] {
        tasks[0].peers.turn = turn;
        site.scheduler.assign(generation, &tasks[..1]);
        if turn == 1 {
            until_suspended(&site, &tasks[0], turn);
        }
    }
    let lost = site.until_gone(&tasks[0]);
    assert!(lost.is_node_fault(), "{lost:?}");
    fs::remove_file(site.stand_in().join("fail.restore")).expect("there");
    tell(&site, "calls", "");
    until_up(&site, &mut tasks, 5);
    tasks[1].peers.turn = 1;
    site.scheduler.assign(7, &tasks);
    until_suspended(&site, &tasks[1], 1);
    assert_eq!(calls(&site), Vec::<String>::new());
    site.scheduler
        .assign(99, &tasks.each_ref().map(TaskToAssign::stopped));
    let outcome = site.until_gone(&tasks[1]);
    assert_eq!(outcome, Outcome::stopped());
    site.finish();
}
