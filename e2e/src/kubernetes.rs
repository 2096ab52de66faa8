//! A real Kubernetes API server with its etcd, on loopback, and kubectl to speak to it: TLS, tokens and RBAC as in earnest, but no nodes
//! and no controllers of Kubernetes' own. `scripts/ensure-kubernetes` says where the programs come from.

mod audit;
mod history;
mod line;
mod operator;

pub use history::{History, Mark, Seen};
pub use line::Line;
pub use operator::Operator;

use crate::cluster::{PATIENCE, free_port, program};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const STEP: Duration = Duration::from_millis(100);
/// Who may do everything.
const ADMIN: &str = "admin-of-the-tests";
/// The service account of the chart's operator, with nothing but what the chart's role gives it.
const OPERATOR: &str = "operator-of-the-tests";
/// The service account of the chart's executors, likewise.
const EXECUTOR: &str = "executor-of-the-tests";
/// Where the chart would be installed.
pub const NAMESPACE: &str = "muster";

/// Stopped when it is dropped.
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
    /// When the programs are not there, or do not come up; the logs are printed.
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

    /// Kills the API server and starts it again, on the same etcd and the same port.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn restart_server(&mut self) {
        self.kill_server();
        self.start_server().await;
    }

    /// Kills the API server. [`Self::restart_server`] brings it back.
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

    /// What kubectl says.
    ///
    /// # Panics
    /// When it fails.
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
    /// When kubectl does not run.
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

    /// Applies what must be taken.
    ///
    /// # Panics
    /// When it is refused.
    pub fn applied(&self, document: &str) {
        let output = self.apply(document, &["apply", "-f", "-"]);
        assert!(output.status.success(), "{}", text(&output));
    }

    /// Applies what the server's own description of itself does not know, as an old one's does not know CEL.
    fn applied_unlooked(&self, document: &str) {
        let output = self.apply(document, &["apply", "--validate=false", "-f", "-"]);
        assert!(output.status.success(), "{}", text(&output));
    }

    /// The definitions that the operator prints, and waits until the server knows them.
    ///
    /// # Panics
    /// When they are refused, or not established.
    pub fn define(&self) {
        let output = Command::new(program("muster-operator"))
            .arg("crds")
            .output()
            .expect("muster-operator runs");
        assert!(output.status.success(), "{}", text(&output));
        self.applied_unlooked(&String::from_utf8(output.stdout).expect("UTF-8"));
        // Until it has looked at them it has no condition to wait for, and a moment after that it serves them.
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

    /// Gives the operator the role that the chart gives it, and no more, and waits until the server knows it: until then it forbids.
    /// Returns what the operator may: API group, resource, verb.
    ///
    /// # Panics
    /// When the chart cannot be rendered, its objects are refused, or what they allow stays forbidden.
    pub fn admit_operator(&self) -> BTreeSet<(String, String, String)> {
        self.admit_operator_with("")
    }

    /// As [`Self::admit_operator`], with further values for the chart.
    ///
    /// # Panics
    /// When the chart cannot be rendered, its objects are refused, or what they allow stays forbidden.
    pub fn admit_operator_with(&self, values: &str) -> BTreeSet<(String, String, String)> {
        let values = format!("operator.enabled=true,{values}");
        self.admit(
            "operator",
            values.trim_end_matches(','),
            &["--all-namespaces"],
        )
    }

    /// As [`Self::admit_operator`], for executors whose tasks are pods.
    ///
    /// # Panics
    /// When the chart cannot be rendered, or its objects are refused.
    pub fn admit_executors(&self) -> BTreeSet<(String, String, String)> {
        self.admit(
            "executor",
            "executor.runtime=pod,executor.data.kind=hostPath",
            &["--namespace", NAMESPACE],
        )
    }

    /// A node of this name, as its kubelet would make it known.
    ///
    /// # Panics
    /// When it is refused.
    pub fn add_node(&self, name: &str) {
        self.applied(&format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}}}"
        ));
    }

    fn admit(
        &self,
        component: &str,
        setting: &str,
        scope: &[&str],
    ) -> BTreeSet<(String, String, String)> {
        let helm = std::env::var_os("MUSTER_HELM")
            .map(PathBuf::from)
            .expect("MUSTER_HELM is not set: it names the folder that scripts/ensure-helm prints");
        let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/muster");
        self.applied(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}"
        ));
        let output = Command::new(helm.join("bin/helm"))
            .args(["template", "muster", chart])
            .args(["--namespace", NAMESPACE, "--set", setting])
            .args(["--show-only", &format!("templates/{component}-role.yaml")])
            .env("HOME", self.folder())
            .output()
            .expect("helm runs");
        assert!(output.status.success(), "{}", text(&output));
        let objects = String::from_utf8(output.stdout).expect("UTF-8");
        self.applied(&objects);
        let allowed: BTreeSet<_> = objects.split("\n---\n").flat_map(allowed).collect();
        let mut waited = Duration::ZERO;
        for right in &allowed {
            while !self.may(component, right, scope) {
                assert!(waited < PATIENCE, "the {component} may not {right:?}");
                std::thread::sleep(STEP);
                waited += STEP;
            }
        }
        allowed
    }

    fn may(
        &self,
        component: &str,
        (group, resource, verb): &(String, String, String),
        scope: &[&str],
    ) -> bool {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let resource = format!("{resource}.{group}");
        let output = self
            .kubectl(&["auth", "can-i", verb, resource.trim_end_matches('.')])
            .args(scope)
            .args([
                "--quiet",
                "--subresource",
                subresource,
                "--as",
                &account(component),
            ])
            .output();
        output.is_ok_and(|output| output.status.success())
    }

    /// Settings to reach the server at this port of loopback as the operator.
    #[must_use]
    pub fn operator_config(&self, port: u16) -> PathBuf {
        self.kubeconfig(port, OPERATOR)
    }

    /// Settings to reach the server as the executors.
    #[must_use]
    pub fn executor_config(&self) -> PathBuf {
        self.kubeconfig(self.port, EXECUTOR)
    }

    /// Settings to reach the server as whoever may do everything, such as a kubelet.
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

    /// The server makes its certificate by itself; what signs the tokens of service accounts it must be given.
    fn write_keys(&self) {
        let keys = self.folder().join("keys");
        std::fs::create_dir(&keys).expect("our own folder");
        let output = Command::new("openssl")
            .args([
                "genpkey",
                "-algorithm",
                "RSA",
                "-pkeyopt",
                "rsa_keygen_bits:2048",
                "-out",
            ])
            .arg(keys.join("accounts.key"))
            .output()
            .expect("openssl runs");
        assert!(output.status.success(), "{}", text(&output));
        let account = account("operator");
        let executors = self::account("executor");
        let tokens = format!(
            "{ADMIN},admin,admin,\"system:masters\"\n{OPERATOR},{account},operator,\"system:serviceaccounts,system:serviceaccounts:{NAMESPACE}\"\n\
             {EXECUTOR},{executors},executor,\"system:serviceaccounts,system:serviceaccounts:{NAMESPACE}\"\n"
        );
        std::fs::write(self.folder().join("tokens.csv"), tokens).expect("our own folder");
        let audit = serde_json::json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "users": [account, executors]}],
        });
        std::fs::write(self.folder().join("audit.yaml"), audit.to_string())
            .expect("our own folder");
    }

    fn start_etcd(&mut self) {
        let clients = format!("http://127.0.0.1:{}", self.etcd_port);
        // Nobody connects to it; 0 would not do, since it is told to itself.
        let peers = format!("http://127.0.0.1:{}", self.peer_port);
        let child = self
            .daemon("etcd")
            .arg("--data-dir")
            .arg(self.folder().join("etcd"))
            .args([
                "--listen-client-urls",
                &clients,
                "--advertise-client-urls",
                &clients,
            ])
            .args([
                "--listen-peer-urls",
                &peers,
                "--initial-advertise-peer-urls",
                &peers,
            ])
            .args(["--initial-cluster", &format!("default={peers}")])
            .spawn();
        self.etcd = Some(child.expect("etcd starts"));
    }

    async fn start_server(&mut self) {
        let folder = self.folder();
        let child = self
            .daemon("kube-apiserver")
            .arg(format!(
                "--etcd-servers=http://127.0.0.1:{}",
                self.etcd_port
            ))
            .arg("--bind-address=127.0.0.1")
            .arg("--advertise-address=127.0.0.1")
            .arg("--endpoint-reconciler-type=none")
            .arg(format!("--secure-port={}", self.port))
            .arg("--service-cluster-ip-range=10.0.0.0/24")
            .arg("--authorization-mode=RBAC")
            .arg("--disable-admission-plugins=ServiceAccount")
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!(
                "--service-account-key-file={}",
                folder.join("keys/accounts.key").display()
            ))
            .arg(format!(
                "--service-account-signing-key-file={}",
                folder.join("keys/accounts.key").display()
            ))
            .arg(format!(
                "--token-auth-file={}",
                folder.join("tokens.csv").display()
            ))
            .arg(format!("--cert-dir={}", folder.join("keys").display()))
            .arg(format!(
                "--audit-policy-file={}",
                folder.join("audit.yaml").display()
            ))
            .arg(format!("--audit-log-path={}", self.audit_log().display()))
            .spawn();
        self.server = Some(child.expect("kube-apiserver starts"));
        let mut waited = Duration::ZERO;
        loop {
            let ready = self.folder().join("keys/apiserver.crt").is_file()
                && self
                    .kubectl(&["get", "--raw", "/readyz"])
                    .output()
                    .is_ok_and(|output| output.status.success());
            if ready {
                return;
            }
            let ended = self
                .server
                .as_mut()
                .is_some_and(|server| server.try_wait().is_ok_and(|status| status.is_some()));
            if ended || waited > PATIENCE {
                self.print_logs();
                panic!("the API server did not come up");
            }
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }

    fn daemon(&self, name: &str) -> Command {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder().join(format!("{name}.log")))
            .expect("a log");
        let mut command = Command::new(self.programs.join(name));
        command
            .current_dir(self.folder())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the same log"))
            .stderr(log);
        command
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

/// As whom a component of the chart is known.
fn account(component: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:muster-{component}")
}

/// What the rules of a role allow, if the document is one.
fn allowed(document: &str) -> Vec<(String, String, String)> {
    let role: Value = serde_norway::from_str(document).expect("YAML");
    let list = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect()
    };
    let mut allowed = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                for verb in list(&rule["verbs"]) {
                    allowed.push((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    allowed
}

/// What a program has said, all of it.
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

/// No two alike, though nobody listens on them yet.
fn free_ports<const N: usize>() -> [u16; N] {
    let mut held = Vec::new();
    std::array::from_fn(|_| {
        let port = free_port();
        held.push(std::net::TcpListener::bind(("127.0.0.1", port)).expect("it is free"));
        port
    })
}

/// SIGKILL, and waits until it is gone.
fn stop(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = child.wait();
    }
}
