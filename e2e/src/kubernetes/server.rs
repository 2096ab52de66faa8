//! etcd and the API server as processes, with their keys and tokens.

use super::roles::account;
use super::{ADMIN, EXECUTOR, Kubernetes, NAMESPACE, OPERATOR, STEP, text};
use crate::cluster::PATIENCE;
use std::process::{Command, Stdio};
use std::time::Duration;

impl Kubernetes {
    /// Writes the keys that sign tokens of service accounts. The server creates its certificate by
    /// itself.
    pub(super) fn write_keys(&self) {
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
        let operator = account("operator");
        let executors = account("executor");
        let tokens = format!(
            "{ADMIN},admin,admin,\"system:masters\"\n{OPERATOR},{operator},operator,\"system:serviceaccounts,system:serviceaccounts:{NAMESPACE}\"\n\
             {EXECUTOR},{executors},executor,\"system:serviceaccounts,system:serviceaccounts:{NAMESPACE}\"\n"
        );
        std::fs::write(self.folder().join("tokens.csv"), tokens).expect("our own folder");
        let audit = serde_json::json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "users": [operator, executors]}],
        });
        std::fs::write(self.folder().join("audit.yaml"), audit.to_string())
            .expect("our own folder");
    }

    pub(super) fn start_etcd(&mut self) {
        let clients = format!("http://127.0.0.1:{}", self.etcd_port);
        // No peer connects to it. Port 0 is not possible, because etcd also advertises the address
        // to itself.
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

    pub(super) async fn start_server(&mut self) {
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
}
