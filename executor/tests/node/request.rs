//! Requests for a checkpoint before a stop: the program answers, ends, or does neither.

use crate::command::{introduce, start, told};
use crate::driver;
use crate::scheduler::TaskToAssign;
use crate::site::Site;
use muster_model::assignment::TaskReport;
use muster_model::checkpoint::RequestResult;
use muster_model::spec::{CheckpointOnRequest, RequestSignal};
use muster_model::task::Outcome;
use serde_json::json;
use std::fs;

/// Time-out of requests that end otherwise.
const LONG_S: u32 = 3_600;
/// Waits for the request, then for the end.
const SILENT: &str = "trap 'exit 0' TERM; until [ -e \"$MUSTER_CHECKPOINT_REQUEST\" ]; do sleep 0.01; done; echo asked; while :; do sleep 0.01; done";

/// Returns a worker that runs a shell script and may be asked for a checkpoint.
fn worker(site: &Site, rank: u32, timeout_s: u32, script: &str) -> TaskToAssign {
    python_or_shell(site, rank, timeout_s, &["sh", "-c", script])
}

fn python_or_shell(site: &Site, rank: u32, timeout_s: u32, argv: &[&str]) -> TaskToAssign {
    let mut task = site.command(rank, json!({ "argv": argv }));
    task.launch.spec.preemption.checkpoint_on_request = Some(CheckpointOnRequest {
        signal: None,
        timeout_s,
    });
    task
}

/// Results of requests, with the reported checkpoints before them.
fn results(site: &Site, task: &TaskToAssign) -> (Vec<u64>, Vec<RequestResult>) {
    let (mut steps, mut results) = (Vec::new(), Vec::new());
    for report in told(site, task) {
        match report {
            TaskReport::CheckpointReported { step, .. } => steps.push(step),
            TaskReport::CheckpointRequestEnded { result, .. } => results.push(result),
            _ => {}
        }
    }
    (steps, results)
}

#[test]
fn program_answers_the_signal_and_is_then_stopped() {
    let site = Site::started(10_000, &[]);
    let script = "trap 'echo muster: checkpoint step=12' USR1; trap 'echo told; exit 3' TERM; echo \"up $MUSTER_CHECKPOINT_SIGNAL\"; while :; do sleep 0.01; done";
    let mut task = worker(&site, 0, LONG_S, script);
    let request = &mut task.launch.spec.preemption.checkpoint_on_request;
    request.as_mut().expect("declared").signal = Some(RequestSignal::Usr1);
    let task = start(&site, task);
    site.until_log_has(&task, "up USR1");
    site.scheduler.assign(3, &[task.asked()]);
    assert_eq!(site.until_gone(&task), Outcome::stopped());
    site.until_log_has(&task, "told");
    let log = site.scheduler.heard().log(task.id());
    let places = ["muster: checkpoint step=12", "told"].map(|text| log.find(text));
    assert!(places[0].is_some() && places[0] < places[1], "{log}");
    let expected = (vec![12], vec![RequestResult::Reported { step: 12 }]);
    assert_eq!(results(&site, &task), expected);
    site.finish();
}

#[test]
fn report_before_the_request_is_no_answer_and_time_out_stops() {
    let site = Site::started(10_000, &[]);
    let script = format!("echo muster: checkpoint step=3; {SILENT}");
    let task = start(&site, worker(&site, 0, 1, &script));
    site.until_it("the report is kept", || results(&site, &task).0 == [3]);
    site.scheduler.assign(3, &[task.asked()]);
    assert_eq!(site.until_gone(&task), Outcome::stopped());
    site.until_log_has(&task, "asked");
    let expected = (vec![3], vec![RequestResult::TimedOut]);
    assert_eq!(results(&site, &task), expected);
    let waited_ms = told(&site, &task)
        .into_iter()
        .find_map(|report| match report {
            TaskReport::CheckpointRequestEnded { waited_ms, .. } => Some(waited_ms),
            _ => None,
        });
    assert!(waited_ms.is_some_and(|ms| ms >= 1_000), "{waited_ms:?}");
    site.finish();
}

#[test]
fn stop_without_a_request_ends_the_wait() {
    let site = Site::started(10_000, &[]);
    let task = start(&site, worker(&site, 0, LONG_S, SILENT));
    site.scheduler.assign(3, &[task.asked()]);
    site.until_log_has(&task, "asked");
    site.scheduler.assign(4, &[task.stopped()]);
    assert_eq!(site.until_gone(&task), Outcome::stopped());
    assert_eq!(results(&site, &task), (vec![], vec![]));
    site.finish();
}

/// Writes a checkpoint when it is asked, and exits with code 0 before any stop.
const EXITS: &str = r#"
import sys, time, muster
job = muster.init()
print("up", flush=True)
while not job.should_checkpoint():
    time.sleep(0.02)
print("stop" if job.should_stop() else "request", flush=True)
if len(sys.argv) > 1:
    job.checkpointed(int(sys.argv[1]))
"#;

#[test]
fn program_may_exit_after_its_checkpoint() {
    let site = Site::started(10_000, &[]);
    let answers = ["python3", "-c", EXITS, "7"];
    let answers = start(&site, python_or_shell(&site, 0, LONG_S, &answers));
    site.until_log_has(&answers, "up");
    site.scheduler.assign(3, &[answers.asked()]);
    assert_eq!(site.until_gone(&answers), Outcome::stopped());
    site.until_log_has(&answers, "request");
    let expected = (vec![7], vec![RequestResult::Reported { step: 7 }]);
    assert_eq!(results(&site, &answers), expected);
    site.finish();
}

#[test]
fn end_without_a_checkpoint_is_no_failure() {
    let site = Site::started(10_000, &[]);
    let script = "until [ -e \"$MUSTER_CHECKPOINT_REQUEST\" ]; do sleep 0.01; done; exit 9";
    let task = start(&site, worker(&site, 0, LONG_S, script));
    site.until_running(&task);
    site.scheduler.assign(3, &[task.asked()]);
    assert_eq!(site.until_gone(&task), Outcome::stopped());
    assert_eq!(results(&site, &task), (vec![], vec![RequestResult::Ended]));
    site.finish();
}

#[test]
fn answer_stops_the_program_while_no_daemon_runs() {
    let mut site = Site::started(60_000, &[]);
    let script = "trap 'exit 0' TERM; until [ -e \"$MUSTER_CHECKPOINT_REQUEST\" ]; do sleep 0.01; done; echo asked; until [ -e go ]; do sleep 0.01; done; echo muster: checkpoint step=5; while :; do sleep 0.01; done";
    let task = start(&site, worker(&site, 0, LONG_S, script));
    site.scheduler.assign(3, &[task.asked()]);
    site.until_log_has(&task, "asked");
    let request = site.task_folder(&task).join("checkpoint-request.json");
    let asked = fs::read(&request).expect("asked");
    site.kill();
    site.start();
    site.until_running_in_second_session(&[&task]);
    site.kill();
    let record = site.record(&task);
    fs::write(site.task_folder(&task).join("work/go"), "").expect("our own folder");
    site.until_it("the shim stops it", || !record.shim.is_alive());
    assert_eq!(fs::read(&request).expect("asked"), asked, "asked once");
    site.start();
    assert_eq!(site.until_gone(&task), Outcome::stopped());
    let expected = (vec![5], vec![RequestResult::Reported { step: 5 }]);
    assert_eq!(results(&site, &task), expected);
    site.finish();
}

#[test]
fn other_ranks_wait_for_the_scheduler() {
    let site = Site::started(10_000, &[]);
    let script = "trap 'exit 0' TERM; until [ -e \"$MUSTER_CHECKPOINT_REQUEST\" ]; do sleep 0.01; done; echo muster: checkpoint step=4; while :; do sleep 0.01; done";
    let mut tasks = [
        worker(&site, 0, LONG_S, SILENT),
        worker(&site, 1, LONG_S, script),
    ];
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    site.scheduler
        .assign(3, &tasks.each_ref().map(TaskToAssign::asked));
    site.until_it("rank 1 has answered", || results(&site, &tasks[1]).0 == [4]);
    site.until_log_has(&tasks[0], "asked");
    for task in &tasks {
        assert!(site.record(task).task.is_alive());
    }
    site.scheduler
        .assign(4, &tasks.each_ref().map(TaskToAssign::stopped));
    for task in &tasks {
        assert_eq!(site.until_gone(task), Outcome::stopped());
        assert_eq!(results(&site, task).1, []);
    }
    site.finish();
}

#[test]
fn suspended_program_is_stopped_at_once() {
    let site = Site::started(10_000, &[]);
    let mut task = start(&site, worker(&site, 0, LONG_S, SILENT));
    site.until_running(&task);
    driver::turn(&site, &mut task, 1);
    driver::until_suspended(&site, &task, 1);
    site.scheduler.assign(99, &[task.asked()]);
    assert_eq!(site.until_gone(&task), Outcome::stopped());
    assert_eq!(results(&site, &task), (vec![], vec![]));
    site.finish();
}
