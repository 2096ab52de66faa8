//! Real Kubernetes API server with etcd on loopback, and kubectl: TLS, tokens and RBAC as in
//! production, without nodes and controllers. `scripts/ensure-kubernetes` installs the programs.

mod api_proxy;
mod audit;
mod history;
mod operator;
mod roles;
mod server;
mod status_delays;
mod testbed;

pub use api_proxy::ApiServerProxy;
pub use history::{History, HistoryPosition, ObjectEvent};
pub use operator::Operator;
pub use status_delays::StatusDelays;
pub use testbed::{KubernetesTestbed, condition, sleeper};

use crate::cluster::{PATIENCE, free_port, program};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const STEP: Duration = Duration::from_millis(100);
/// Token of an administrator.
const ADMIN: &str = "admin-of-the-tests";
/// Token of the service account of the chart's operator, with the chart's role only.
const OPERATOR: &str = "operator-of-the-tests";
/// Token of the service account of the chart's executors, likewise.
const EXECUTOR: &str = "executor-of-the-tests";
/// Namespace of the chart.
pub const NAMESPACE: &str = "muster";

/// Stopped on drop.
#[derive(Debug)]
pub struct Kubernetes {
    programs: PathBuf,
    folder: TempDir,
    etcd_port: u16,
    peer_port: u16,
    port: u16,
    etcd: Option<Child>,
    server: Option<Child>,
}

impl Kubernetes {
    /// Starts both and waits until the server is ready.
    ///
    /// # Panics
    /// If the programs are missing or do not come up; the logs are printed.
    pub async fn start() -> Self {
        let programs = std::env::var_os("MUSTER_KUBERNETES").map(PathBuf::from).expect(
            "MUSTER_KUBERNETES is not set: it names the folder of kube-apiserver, etcd and kubectl; scripts/ensure-kubernetes builds and prints it",
        );
        let folder = tempfile::Builder::new()
            .prefix("muster-kubernetes-")
            .tempdir()
            .expect("a temporary folder");
        let [etcd_port, peer_port, port] = free_ports();
        let mut kubernetes = Self {
            programs,
            folder,
            etcd_port,
            peer_port,
            port,
            etcd: None,
            server: None,
        };
        kubernetes.write_keys();
        kubernetes.start_etcd();
        kubernetes.start_server().await;
        kubernetes
    }

    /// Kills the API server and starts it again on the same etcd and port.
    ///
    /// # Panics
    /// If it does not come up.
    pub async fn restart_server(&mut self) {
        self.kill_server();
        self.start_server().await;
    }

    /// Kills the API server; [`Self::restart_server`] starts it again.
    pub fn kill_server(&mut self) {
        stop(&mut self.server);
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// kubectl as an administrator of the cluster.
    #[must_use]
    pub fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join("kubectl"));
        command
            .env("KUBECONFIG", self.kubeconfig(self.port, ADMIN))
            .env("HOME", self.folder())
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    /// Output of kubectl.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn says(&self, arguments: &[&str]) -> String {
        let output = self.kubectl(arguments).output().expect("kubectl runs");
        assert!(
            output.status.success(),
            "kubectl {arguments:?}: {}",
            text(&output)
        );
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// `kubectl apply` of a document.
    ///
    /// # Panics
    /// If kubectl does not run.
    #[must_use]
    pub fn apply(&self, document: &str, arguments: &[&str]) -> Output {
        let mut child = self
            .kubectl(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl runs");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(document.as_bytes()).expect("kubectl reads");
        drop(input);
        child.wait_with_output().expect("kubectl ends")
    }

    /// Applies a document that must be accepted.
    ///
    /// # Panics
    /// If it is refused.
    pub fn applied(&self, document: &str) {
        let output = self.apply(document, &["apply", "-f", "-"]);
        assert!(output.status.success(), "{}", text(&output));
    }

    /// Applies objects without kubectl's validation, because an old server's schema does not
    /// contain CEL.
    fn applied_unlooked(&self, document: &str) {
        let output = self.apply(document, &["apply", "--validate=false", "-f", "-"]);
        assert!(output.status.success(), "{}", text(&output));
    }

    /// Applies the definitions that the operator prints, and waits until the server serves them.
    ///
    /// # Panics
    /// If they are refused or not established.
    pub fn define(&self) {
        let output = Command::new(program("muster-operator"))
            .arg("crds")
            .output()
            .expect("muster-operator runs");
        assert!(output.status.success(), "{}", text(&output));
        self.applied_unlooked(&String::from_utf8(output.stdout).expect("UTF-8"));
        // A condition exists only after the server's first reconciliation; it serves the kinds
        // shortly after that.
        let mut waited = Duration::ZERO;
        for kind in ["mj", "mstudy", "mt"] {
            let is_served = || {
                let output = self.kubectl(&["get", kind, "--all-namespaces"]).output();
                output.is_ok_and(|output| output.status.success())
            };
            while !is_served() {
                assert!(waited < PATIENCE, "the server does not serve {kind}");
                std::thread::sleep(STEP);
                waited += STEP;
            }
        }
    }

    /// Creates a node with this name, as its kubelet would.
    ///
    /// # Panics
    /// If it is refused.
    pub fn add_node(&self, name: &str) {
        self.applied(&format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}}}"
        ));
    }

    /// Kubeconfig of the operator for the server at this port of loopback.
    #[must_use]
    pub fn operator_config(&self, port: u16) -> PathBuf {
        self.kubeconfig(port, OPERATOR)
    }

    /// Kubeconfig of the executors.
    #[must_use]
    pub fn executor_config(&self) -> PathBuf {
        self.kubeconfig(self.port, EXECUTOR)
    }

    /// Kubeconfig of an administrator, for example for a kubelet.
    #[must_use]
    pub fn admin_config(&self) -> PathBuf {
        self.kubeconfig(self.port, ADMIN)
    }

    fn audit_log(&self) -> PathBuf {
        self.folder().join("audit.log")
    }

    fn kubeconfig(&self, port: u16, token: &str) -> PathBuf {
        let path = self.folder().join(format!("{token}-{port}.kubeconfig"));
        let authority = self.folder().join("keys/apiserver.crt");
        let config = format!(
            "apiVersion: v1
kind: Config
clusters: [{{name: here, cluster: {{server: 'https://127.0.0.1:{port}', certificate-authority: '{}'}}}}]
users: [{{name: me, user: {{token: {token}}}}}]
contexts: [{{name: here, context: {{cluster: here, user: me, namespace: default}}}}]
current-context: here
",
            authority.display()
        );
        std::fs::write(&path, config).expect("our own folder");
        path
    }

    fn print_logs(&self) {
        for name in ["etcd", "kube-apiserver"] {
            print_log(&self.folder().join(format!("{name}.log")));
        }
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        stop(&mut self.server);
        stop(&mut self.etcd);
    }
}

/// Complete output of a program.
#[must_use]
pub fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn print_log(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    eprintln!(
        "==> {} <==\n{}",
        path.display(),
        lines[lines.len().saturating_sub(40)..].join("\n")
    );
}

/// Distinct free ports; no process listens on them yet.
fn free_ports<const N: usize>() -> [u16; N] {
    let mut held = Vec::new();
    std::array::from_fn(|_| {
        let port = free_port();
        held.push(std::net::TcpListener::bind(("127.0.0.1", port)).expect("it is free"));
        port
    })
}

/// Sends SIGKILL and waits for the exit.
fn stop(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = child.wait();
    }
}
