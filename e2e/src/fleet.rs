//! Many Kubernetes machines on this one: a real executor for each, which offers GPUs and runs tasks
//! as pods. One stand-in serves as all kubelets. A real API server, Muster, and the operator with
//! exactly the chart's rights complete it.

use crate::cluster::{PATIENCE, TestCluster, TestClusterOptions, program};
use crate::kubernetes::{Kubernetes, Operator};
use crate::processes::{self, OsProcess};
use crate::usage::UsageByProgram;
use muster_model::node::NodeState;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const STEP: Duration = Duration::from_millis(200);
/// GPUs of each machine.
pub const GPUS: u32 = 8;
const CPU_MILLI: u64 = 64_000;
const MEMORY_BYTES: u64 = 256 << 30;
/// The node that `muster up` starts, which is drained: a machine without GPUs.
const FIRST: (&str, TestClusterOptions) = ("node-1", TestClusterOptions { nodes: 1, slots: 1 });
const VALUES: &str = "operator.nodes.cordon=true,operator.nodes.foreignPods=true";
const FLAGS: [&str; 4] = ["--cordon-nodes", "true", "--foreign-pods", "true"];

/// Ended on drop.
#[derive(Debug)]
pub struct Fleet {
    pub cluster: TestCluster,
    pub operator: Operator,
    /// Port of the scheduler's metrics.
    metrics_port: u16,
    /// Environment of the executor of `muster up`, which all others share.
    told: Vec<(String, String)>,
    executors: BTreeMap<String, Child>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.end_executors();
    }
}

#[allow(clippy::missing_panics_doc, reason = "a failing story panics")]
impl Fleet {
    /// Starts everything and waits until every machine has joined and the operator has reported its
    /// state. Leases and heartbeats have the daemons' defaults.
    pub async fn set(machines: u32) -> Self {
        let metrics_port = port_of_its_own();
        let settings = vec![
            ("MUSTER_SCHEDULER_LEASE_MS", "10000".to_owned()),
            ("MUSTER_SCHEDULER_HEARTBEAT_MS", "2000".to_owned()),
            (
                "MUSTER_SCHEDULER_HEALTH_LISTEN",
                format!("127.0.0.1:{metrics_port}"),
            ),
        ];
        let cluster = TestCluster::start_pods_with(FIRST.1, settings).await;
        cluster.client().drain(FIRST.0).await.expect("drained");
        let kubernetes = &cluster.pods().kubernetes;
        kubernetes.define();
        let names: Vec<String> = (0..machines).map(name).collect();
        kubernetes.applied(&names.iter().map(|name| node(name)).collect::<String>());
        let _ = kubernetes.admit_operator_with(VALUES);
        let operator = Operator::start_with(
            kubernetes.operator_config(kubernetes.port()),
            kubernetes.folder().join("operator.log"),
            cluster.server(),
            &cluster.token().expect("the first user's token"),
            &FLAGS,
        );
        let first = cluster.running("muster-executor").remove(0);
        let told = first.environment.iter();
        let told = told.filter_map(|one| one.split_once('='));
        let told = told.filter(|(name, _)| *name != "MUSTER_EXECUTOR_CPU_SLOTS");
        let told = told.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut fleet = Self {
            metrics_port,
            told: told.collect(),
            executors: BTreeMap::new(),
            cluster,
            operator,
        };
        for name in &names {
            fleet.join(name);
        }
        fleet.until_heard_of(&names).await;
        fleet
    }

    #[must_use]
    pub fn kubernetes(&self) -> &Kubernetes {
        &self.cluster.pods().kubernetes
    }

    /// Output of kubectl.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.kubernetes().says(arguments)
    }

    /// Starts the machine's executor, as its DaemonSet does.
    pub fn join(&mut self, name: &str) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.cluster.data().join(format!("{name}.log")));
        let child = Command::new(program("muster-executor"))
            .env_clear()
            .envs(self.told.iter().cloned())
            .env("MUSTER_EXECUTOR_NODE_NAME", name)
            .env("MUSTER_EXECUTOR_DATA_DIR", self.folder(name))
            .env("MUSTER_EXECUTOR_POD_GPU_RESOURCE", "nvidia.com/gpu")
            .env("MUSTER_EXECUTOR_POD_GPUS", GPUS.to_string())
            .env("MUSTER_EXECUTOR_CPU_MILLI", CPU_MILLI.to_string())
            .env("MUSTER_EXECUTOR_MEMORY_BYTES", MEMORY_BYTES.to_string())
            // Pods of its tasks stay, as when a DaemonSet replaces an executor.
            .env("MUSTER_EXECUTOR_STOP_TASKS_ON_EXIT", "false")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("our own folder"))
            .spawn()
            .expect("muster-executor starts");
        self.executors.insert(name.to_owned(), child);
    }

    /// Kills the machine's executor; its tasks continue.
    pub fn kill_executor(&mut self, name: &str) {
        if let Some(mut executor) = self.executors.remove(name) {
            let _ = executor.kill();
            let _ = executor.wait();
        }
    }

    /// Simulates a power loss: executor and tasks vanish without a report.
    pub fn lose(&mut self, name: &str) {
        self.kill_executor(name);
        let folder = self.folder(name);
        for process in processes::of(&folder) {
            process.signal(Signal::KILL);
        }
    }

    /// Deletes the machine's object as a cloud provider does, and then the pods on it as its
    /// garbage collector does.
    pub fn delete(&self, name: &str) {
        let _ = self.kubectl(&["delete", "node", name]);
        let of_it = format!("--field-selector=spec.nodeName={name}");
        let _ = self.kubectl(&[
            "delete",
            "pods",
            "--all-namespaces",
            &of_it,
            "--force",
            "--grace-period=0",
        ]);
    }

    /// Adds a machine with this name.
    pub fn add(&self, name: &str) {
        self.kubernetes().applied(&node(name));
    }

    /// Waits until the nodes are up and have their state from Kubernetes.
    async fn until_heard_of(&self, names: &[String]) {
        let mut waited = Duration::ZERO;
        loop {
            let nodes = self.cluster.client().nodes().await.unwrap_or_default();
            let is_there = |name: &&String| {
                let node = nodes.iter().find(|node| node.name == **name);
                node.is_some_and(|node| node.state == NodeState::Up && node.notice.is_some())
            };
            let there = names.iter().filter(is_there).count();
            if there == names.len() {
                return;
            }
            if waited > PATIENCE {
                self.operator.print_log();
                panic!("{there} of {} machines have come", names.len());
            }
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }

    /// Resources that all daemons have used so far.
    #[must_use]
    pub fn usage(&self) -> UsageByProgram {
        let mut all = processes::of(self.kubernetes().folder());
        all.extend(self.cluster.processes());
        let mut daemons: BTreeMap<i32, OsProcess> = all
            .into_iter()
            .filter(is_daemon)
            .map(|process| (process.pid, process))
            .collect();
        let postgres = daemons.values().find(|one| one.program == "postgres");
        for mut backend in postgres.map_or_else(Vec::new, |one| processes::children(one.pid)) {
            "postgres".clone_into(&mut backend.program);
            daemons.insert(backend.pid, backend);
        }
        UsageByProgram::of(&daemons.into_values().collect::<Vec<_>>())
    }

    /// Durations of the scheduler's rounds, from its metrics.
    #[must_use]
    pub fn rounds(&self) -> String {
        let text = self.scheduler_metrics();
        let mut told = String::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let of_rounds = line.starts_with("muster_scheduler_round_seconds")
                || line.starts_with("muster_scheduler_rounds_total");
            if of_rounds {
                writeln!(told, "  {line}").expect("a string takes all");
            }
        }
        told
    }

    /// Value of a counter of the scheduler.
    #[must_use]
    pub fn counted(&self, counter: &str) -> u64 {
        let text = self.scheduler_metrics();
        let value = text.lines().find_map(|line| line.strip_prefix(counter));
        value
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or_else(|| panic!("no {counter} in {text}"))
    }

    fn scheduler_metrics(&self) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.metrics_port)).expect("a port");
        let asked = b"GET /metrics HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n";
        stream.write_all(asked).expect("it listens");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text
    }

    fn folder(&self, name: &str) -> PathBuf {
        // With a unique ending, because the name of a machine can be a prefix of another one.
        self.cluster
            .data()
            .join("nodes")
            .join(name)
            .join("executor")
    }

    /// Stops the executors that `muster up` does not manage, and then the rest orderly.
    pub fn down(&mut self) {
        self.operator.kill();
        self.end_executors();
        self.cluster.down();
    }

    fn end_executors(&mut self) {
        for executor in self.executors.values_mut() {
            let _ = executor.kill();
        }
        for (_, mut executor) in std::mem::take(&mut self.executors) {
            let _ = executor.wait();
        }
    }
}

/// Free port outside the range of other parts of a story, because it is used long after it was
/// chosen.
fn port_of_its_own() -> u16 {
    let mut ports = 8_000..10_000;
    ports
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

/// Name of the machine with this number.
fn name(number: u32) -> String {
    format!("gpu-{number:03}")
}

/// Node object, as its kubelet would create it.
fn node(name: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: Node
metadata: {{ name: {name} }}
status:
  capacity: {{ nvidia.com/gpu: '{GPUS}' }}
  allocatable: {{ nvidia.com/gpu: '{GPUS}' }}
"
    )
}

/// Whether it is a daemon of Muster, Kubernetes or Postgres. Shims and tasks are none.
fn is_daemon(process: &OsProcess) -> bool {
    let is_ours = process.program.starts_with("muster-") && process.program != "muster-task";
    let is_shim = process.arguments.get(1).is_some_and(|word| word == "shim");
    (is_ours && !is_shim)
        || ["etcd", "kube-apiserver", "postgres"].contains(&process.program.as_str())
}
