//! Users' own programs as tasks: they start together, receive their rank and peers, and are stopped
//! as any task.

use crate::scheduler::TaskToAssign;
use crate::site::Site;
use muster_model::assignment::{Observed, Peer, Peers, TaskReport};
use muster_model::id::NodeId;
use muster_model::task::{Outcome, Role};
use serde_json::{Value, json};
use std::fs;
use uuid::Uuid;

/// Returns the reports of a task, oldest first.
pub fn told(site: &Site, task: &TaskToAssign) -> Vec<TaskReport> {
    let heard = site.scheduler.heard();
    let lines = heard.events.get(&task.id()).into_iter().flatten();
    lines
        .map(|(_, line)| serde_json::from_str(line).expect("a report"))
        .collect()
}

pub fn address(site: &Site, task: &TaskToAssign) -> Option<String> {
    told(site, task)
        .into_iter()
        .find_map(|report| match report {
            TaskReport::Listening { address } => Some(address),
            _ => None,
        })
}

/// Sends every task the addresses of the others, as the scheduler does, and returns them.
pub fn introduce(site: &Site, tasks: &mut [TaskToAssign]) -> Vec<String> {
    let known = tasks.to_vec();
    site.until_it("all have a port", || {
        known.iter().all(|task| address(site, task).is_some())
    });
    let addresses: Vec<String> = known
        .iter()
        .filter_map(|task| address(site, task))
        .collect();
    let workers = known.iter().zip(&addresses).map(|(task, address)| Peer {
        task_id: task.id(),
        node_id: NodeId(Uuid::from_u128(1)),
        address: Some(address.clone()),
    });
    let peers = Peers {
        revision: 7,
        workers: workers.collect(),
        ps_shards: Vec::new(),
        ..Peers::default()
    };
    for task in tasks.iter_mut() {
        task.peers = peers.clone();
    }
    site.scheduler.assign(2, tasks);
    addresses
}

/// Starts a task with the addresses of its job, and returns it with them.
pub fn start(site: &Site, task: TaskToAssign) -> TaskToAssign {
    let mut tasks = [task];
    site.scheduler.assign(1, &tasks);
    introduce(site, &mut tasks);
    let [task] = tasks;
    task
}

/// Returns a program as the only worker of its job, which does not wait for its own address.
pub fn alone(site: &Site, slot: u32, command: Value) -> TaskToAssign {
    let mut task = site.command(slot, command);
    task.launch.role = Role::Worker { rank: 0 };
    let own = Peer {
        task_id: task.id(),
        node_id: NodeId(Uuid::from_u128(1)),
        address: None,
    };
    task.peers = Peers {
        revision: 7,
        workers: vec![own],
        ..Peers::default()
    };
    task
}

/// Runs a program that prints `end` last, and returns its outcome and its log.
pub fn run(site: &Site, generation: u64, task: TaskToAssign) -> (Outcome, String) {
    let tasks = [task];
    site.scheduler.assign(generation, &tasks);
    let outcome = site.until_gone(&tasks[0]);
    site.until("its log is complete", |heard| {
        let log = heard.log(tasks[0].id());
        !matches!(outcome, Outcome::Exited { code: 0, .. }) || log.ends_with("end\n")
    });
    let log = site.scheduler.heard().log(tasks[0].id());
    (outcome, log)
}

#[test]
fn processes_of_a_job_start_together_and_know_their_peers() {
    let site = Site::started(10_000, &[]);
    let command = json!({
        "argv": ["sh", "-c", "./hello.sh; echo rank=$RANK of $WORLD_SIZE master=$MASTER_ADDR:$MASTER_PORT; cat $MUSTER_HOSTFILE; env"],
        "env": { "LR": "0.1" },
        "files": { "hello.sh": "#!/bin/sh\necho hello from $(basename $PWD)", "sub/x.txt": "x" },
        "check": ["test", "-f", "sub/x.txt"],
    });
    let mut tasks = [site.command(0, command.clone()), site.command(1, command)];
    site.scheduler.assign(1, &tasks);
    let addresses = introduce(&site, &mut tasks);
    for (rank, task) in tasks.iter().enumerate() {
        assert_eq!(site.until_gone(task), Outcome::exited(0));
        site.until_log_has(task, "hello from work");
        let first = &addresses[0];
        site.until_log_has(
            task,
            &format!("rank={rank} of 2 master={first}\n127.0.0.1 slots=2\n"),
        );
        site.until_log_has(task, "LR=0.1");
        let log = site.scheduler.heard().log(task.id());
        assert!(!log.contains("SECRET_OF_THE_DAEMON"), "{log}");
        assert!(
            log.contains("PATH=") && log.contains("OMP_NUM_THREADS="),
            "{log}"
        );
    }
    assert_ne!(addresses[0], addresses[1]);
    site.finish();
}

#[test]
fn no_process_starts_before_all_have_an_address() {
    let site = Site::started(10_000, &[]);
    let mut task = site.command(0, json!({ "argv": ["echo", "started"] }));
    let missing = Peer {
        task_id: muster_model::id::TaskId(Uuid::from_u128(9)),
        node_id: NodeId(Uuid::from_u128(2)),
        address: None,
    };
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_it("it has a port", || address(&site, &task).is_some());
    let own = Peer {
        task_id: task.id(),
        address: address(&site, &task),
        ..missing.clone()
    };
    task.peers = Peers {
        revision: 7,
        workers: vec![own, missing],
        ps_shards: Vec::new(),
        ..Peers::default()
    };
    site.scheduler.assign(2, std::slice::from_ref(&task));
    site.until_it("it was told of the other", || {
        fs::read_to_string(site.task_folder(&task).join("peers.json"))
            .is_ok_and(|peers| peers.contains("\"revision\":7"))
    });
    assert_eq!(site.scheduler.heard().log(task.id()), "");
    // A stop ends the wait too.
    site.scheduler.assign(3, &[task.stopped()]);
    assert_eq!(site.until_gone(&task), Outcome::stopped());
    assert_eq!(site.scheduler.heard().log(task.id()), "");
    site.finish();
}

fn shell(script: &str) -> Value {
    json!({ "argv": ["sh", "-c", script] })
}

#[test]
fn stopped_program_counts_as_stopped_with_any_exit() {
    let site = Site::started(10_000, &[]);
    let mut tasks = [
        site.command(0, shell("sleep 1000 & echo up; wait")),
        site.command(
            1,
            shell("trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done"),
        ),
        site.command(
            2,
            shell("trap '' TERM; echo up; while :; do sleep 0.01; done"),
        ),
    ];
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    for task in &tasks {
        site.until_log_has(task, "up");
        assert_eq!(
            site.scheduler.heard().last(task.id()),
            Some(&Observed::Running)
        );
        assert!(!site.task_folder(task).join("stopping.json").exists());
    }
    site.scheduler
        .assign(3, &tasks.each_ref().map(TaskToAssign::stopped));
    for (task, killed) in tasks.iter().zip([false, false, true]) {
        assert_eq!(
            site.until_gone(task),
            Outcome::Stopped {
                killed,
                driver: None
            }
        );
        assert!(site.task_folder(task).join("stopping.json").exists());
    }
    site.finish();
}

#[test]
fn document_states_the_time_from_stop_to_kill() {
    let site = Site::started(10_000, &[]);
    let script = "trap '' TERM; echo \"grace $MUSTER_GRACE_MS\"; while :; do sleep 0.01; done";
    let mut tasks = [site.command(0, shell(script))];
    // No test waits for the end of this grace.
    tasks[0].launch.grace_ms = 60_000;
    tasks[0].launch.spec.preemption.grace_s = Some(1);
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    site.until_log_has(&tasks[0], "grace 1000");
    site.scheduler.assign(3, &[tasks[0].stopped()]);
    let killed = Outcome::Stopped {
        killed: true,
        driver: None,
    };
    assert_eq!(site.until_gone(&tasks[0]), killed);
    site.finish();
}

#[test]
fn program_reports_checkpoints_by_http_and_by_lines() {
    let site = Site::started(10_000, &[]);
    let script = "echo 'muster: checkpoint step=12'; python3 -c 'import muster; muster.init().checkpointed(13)' && echo reported";
    let mut tasks = vec![site.command(0, shell(script))];
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    assert_eq!(site.until_gone(&tasks[0]), Outcome::exited(0));
    let steps: Vec<u64> = told(&site, &tasks[0])
        .iter()
        .filter_map(|report| match report {
            TaskReport::CheckpointReported { step, .. } => Some(*step),
            _ => None,
        })
        .collect();
    assert_eq!(steps, [12, 13]);
    site.finish();
}

/// A program with a helper process that SIGTERM would end, as that of a data loader. When the
/// program is asked to stop, it checks that the helper lives.
const WITH_A_HELPER: &str = r#"
import signal, subprocess, sys, time
helper = subprocess.Popen(["sleep", "600"])
def stop(*_):
    time.sleep(0.3)
    print("kept its helper" if helper.poll() is None else "lost its helper", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, stop)
print("up", flush=True)
while True:
    time.sleep(0.02)
"#;

#[test]
fn stop_signals_the_program_and_not_its_helpers() {
    let site = Site::started(10_000, &[]);
    let program = json!({ "argv": ["python3", "-c", WITH_A_HELPER] });
    let mut tasks = [site.command(0, program)];
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    let [task] = tasks;
    site.until_log_has(&task, "up");
    site.scheduler.assign(99, &[task.stopped()]);
    assert_eq!(site.until_gone(&task), Outcome::stopped());
    site.until_log_has(&task, "kept its helper");
    site.finish();
}

#[test]
fn failed_start_names_the_field_of_the_document() {
    let site = Site::started(10_000, &[]);
    let missing = json!({ "argv": ["no-such-program"] });
    let unchecked = json!({ "argv": ["true"], "check": ["sh", "-c", "echo no torch; exit 3"] });
    let homeless = json!({ "argv": ["true"], "working_dir": "/no/such/folder" });
    let mut tasks: Vec<TaskToAssign> = [missing, unchecked, homeless]
        .into_iter()
        .zip(0..)
        .map(|(command, rank)| site.command(rank, command))
        .collect();
    // It fails before it reserves a port.
    site.scheduler.assign(1, &tasks);
    site.until_blamed(&tasks[2], "command.working_dir");
    tasks.pop();
    introduce(&site, &mut tasks);
    for (task, blamed) in tasks.iter().zip(["command.argv[0]", "command.check"]) {
        site.until_blamed(task, blamed);
        let gone = site.until_gone(task);
        let said = gone.to_string();
        assert!(
            said.contains("exited with code 1, saying \"muster-task: "),
            "{said}"
        );
        assert!(said.contains(blamed), "{said}");
    }
    site.until_blamed(&tasks[1], "saying \"no torch\"");
    site.until_log_has(&tasks[1], "no torch");
    site.finish();
}

#[test]
fn python_package_can_be_imported_by_every_program() {
    let site = Site::started(10_000, &[]);
    let script = "cat \"${PYTHONPATH##*:}/muster/__init__.py\" && ls \"${PYTHONPATH##*:}/muster\"";
    let mut tasks = vec![site.command(0, json!({ "argv": ["sh", "-c", script] }))];
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    assert_eq!(site.until_gone(&tasks[0]), Outcome::exited(0));
    for text in ["import", "_context.py"] {
        site.until_log_has(&tasks[0], text);
    }
    site.finish();
}

#[test]
fn failure_quotes_the_programs_last_line() {
    let site = Site::started(10_000, &[]);
    let script = "echo begins; echo 'ValueError: no such thing'; echo; exit 7";
    let failing = json!({ "argv": ["sh", "-c", script] });
    let fine = json!({ "argv": ["sh", "-c", "echo all is well"] });
    let mut tasks: Vec<TaskToAssign> = [failing, fine]
        .into_iter()
        .zip(0..)
        .map(|(command, rank)| site.command(rank, command))
        .collect();
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    let quoted = Outcome::exited(7).saying(Some("ValueError: no such thing".to_owned()));
    assert_eq!(site.until_gone(&tasks[0]), quoted);
    assert_eq!(site.until_gone(&tasks[1]), Outcome::exited(0));
    site.finish();
}

impl Site {
    /// Waits until the task has failed with a message that names this field and what the node
    /// lacks.
    fn until_blamed(&self, task: &TaskToAssign, blamed: &str) {
        self.until_it(blamed, || {
            told(self, task).iter().any(|report| match report {
                TaskReport::Failed {
                    message,
                    retryable: true,
                    lacks: Some(_),
                } => message.contains(blamed),
                _ => false,
            })
        });
    }
}

/// Logs thirty values by HTTP and exits at once.
const HASTY: &str = r#"
import json, os, urllib.request
url = os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-metric"
head = {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"], "Content-Type": "application/json"}
for step in range(30):
    metric = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": "f1", "value": step, "timestamp": 0, "step": step}
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(metric).encode(), head)).read()
os._exit(0)
"#;

#[test]
fn metrics_logged_just_before_the_end_are_reported() {
    let site = Site::started(10_000, &[]);
    let mut tasks = [site.command(0, json!({ "argv": ["python3", "-c", HASTY] }))];
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
    let values = told(&site, &tasks[0])
        .into_iter()
        .filter_map(|report| match report {
            TaskReport::Metrics { points } => Some(points),
            _ => None,
        });
    let newest = values.flatten().map(|point| point.step).max();
    assert_eq!(newest, Some(29));
    site.finish();
}

/// Replaces the launch in its own folder before its first request, and prints the job of its run.
const FORGER: &str = r#"
import json, os, pathlib, urllib.request
file = pathlib.Path(os.environ["MUSTER_TASK_DIR"]) / "task.json"
launch = json.loads(file.read_text())
launch["job_id"] = "01890000-0000-7000-8000-00000000beef"
file.unlink()
file.write_text(json.dumps(launch))
url = os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/get?run_id=" + os.environ["MLFLOW_RUN_ID"]
head = {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]}
run = json.load(urllib.request.urlopen(urllib.request.Request(url, headers=head)))
print("run of", run["run"]["info"]["run_id"], flush=True)
"#;

#[test]
fn replaced_launch_changes_no_request() {
    let site = Site::started(10_000, &[]);
    let mut tasks = [site.command(0, json!({ "argv": ["python3", "-c", FORGER] }))];
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    let job = tasks[0].launch.job_id.0.simple();
    site.until_log_has(&tasks[0], &format!("run of {job}"));
    site.until_gone(&tasks[0]);
    site.finish();
}
