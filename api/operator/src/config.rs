//! The operator's settings: flags, or environment variables `MUSTER_OPERATOR_*`; read once, in `main`. How Kubernetes is reached is said
//! where it always is: by the pod's service account, or by `KUBECONFIG`.

use crate::nodes::{self, PlaceholderSettings, Placeholders, SettingsError};
use crate::operator::Scope;
use crate::tenants::AdminToken;
use clap::{Args, Parser, Subcommand};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Parser)]
#[command(
    name = "muster-operator",
    version,
    about = "Muster's operator: custom resources of Kubernetes become jobs"
)]
pub struct Flags {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the custom resource definitions
    Crds,
    /// Follow the objects until told to stop
    Run(Box<Run>),
}

#[derive(Debug, Args)]
pub struct Run {
    /// Muster's REST interface
    #[arg(
        long,
        env = "MUSTER_OPERATOR_SERVER",
        default_value = "http://127.0.0.1:7070"
    )]
    pub server: String,
    /// File with an administrator's token
    #[arg(
        long,
        env = "MUSTER_OPERATOR_TOKEN_FILE",
        required_unless_present = "token"
    )]
    pub token_file: Option<PathBuf>,
    /// An administrator's token, in place of the file
    #[arg(
        long,
        env = "MUSTER_OPERATOR_TOKEN",
        hide_env_values = true,
        conflicts_with = "token_file"
    )]
    pub token: Option<String>,
    /// The tenant of namespaces without the label muster.dev/tenant [default: the one of the namespace's name]
    #[arg(long, env = "MUSTER_OPERATOR_DEFAULT_TENANT", value_parser = tenant)]
    pub default_tenant: Option<String>,
    /// By what this operator's jobs are known among those of other operators that use the same Muster
    #[arg(long, env = "MUSTER_OPERATOR_NAME", default_value = "kubernetes", value_parser = tenant)]
    pub name: String,
    /// Follow the jobs and studies of this namespace; may be given again, or several with commas between them [default: of all]
    #[arg(long = "namespace", env = "MUSTER_OPERATOR_NAMESPACES", value_delimiter = ',', value_parser = tenant)]
    pub namespaces: Vec<String>,
    /// Whether to follow Tenants, which are the cluster's: of several operators only one should
    #[arg(long, env = "MUSTER_OPERATOR_TENANTS", default_value_t = true, action = clap::ArgAction::Set)]
    pub tenants: bool,
    /// Whether to follow the cluster's nodes: what is cordoned or tainted there takes no new tasks
    #[arg(long, env = "MUSTER_OPERATOR_NODES", default_value_t = false, action = clap::ArgAction::Set)]
    pub nodes: bool,
    /// Labels of nodes that say where they stand, the widest first; several with commas between them
    #[arg(
        long = "rack-labels",
        env = "MUSTER_OPERATOR_RACK_LABELS",
        value_delimiter = ',',
        default_value = "topology.kubernetes.io/zone"
    )]
    pub rack_labels: Vec<String>,
    /// Where several executors share a machine, each with one part of its GPUs: the parts' names, which are behind the machine's as NODE--PART
    #[arg(
        long = "node-parts",
        env = "MUSTER_OPERATOR_NODE_PARTS",
        value_delimiter = ',',
        value_parser = tenant
    )]
    pub node_parts: Vec<String>,
    /// Taints that executors tolerate, which therefore close no node: KEY or KEY=VALUE, with :EFFECT or for any; * is every key
    #[arg(
        long = "tolerated",
        env = "MUSTER_OPERATOR_TOLERATED",
        value_delimiter = ','
    )]
    pub tolerated: Vec<nodes::Tolerated>,
    /// Whether kubectl cordon moves a node's tasks away too, as kubectl drain leaves pods of DaemonSets alone
    #[arg(long = "cordon-drains", env = "MUSTER_OPERATOR_CORDON_DRAINS", default_value_t = false, action = clap::ArgAction::Set)]
    pub cordon_drains: bool,
    /// Whether a node that is drained in Muster is cordoned in Kubernetes
    #[arg(long = "cordon-nodes", env = "MUSTER_OPERATOR_CORDON_NODES", default_value_t = false, action = clap::ArgAction::Set)]
    pub cordon_nodes: bool,
    /// Whether GPUs that pods hold which are not Muster's are taken from what nodes of that kind of GPU give out
    #[arg(long = "foreign-pods", env = "MUSTER_OPERATOR_FOREIGN_PODS", default_value_t = false, action = clap::ArgAction::Set)]
    pub foreign_pods: bool,
    /// What Kubernetes counts GPUs as that executors see through the driver: pods of others that hold some close a node, as nobody knows which;
    /// several with commas between them. GPUs that executors only count are told by their resource
    #[arg(
        long = "seen-as",
        env = "MUSTER_OPERATOR_SEEN_AS",
        value_delimiter = ',',
        default_value = "nvidia.com/gpu"
    )]
    pub seen_as: Vec<String>,
    /// The release of the chart whose pods are Muster's own, NAMESPACE/NAME; those of others are foreign [default: all are own]
    #[arg(long = "release", env = "MUSTER_OPERATOR_RELEASE")]
    pub release: Option<nodes::Release>,
    /// File with the pods that stand for nodes which are missing, for autoscalers; needs --nodes [default: there are none]
    #[arg(long = "placeholders", env = "MUSTER_OPERATOR_PLACEHOLDERS")]
    pub placeholders: Option<PathBuf>,
    /// The operator's own pod, with which its placeholders end
    #[arg(
        long = "pod-name",
        env = "MUSTER_OPERATOR_POD_NAME",
        requires = "pod_uid"
    )]
    pub pod_name: Option<String>,
    /// And its uid
    #[arg(
        long = "pod-uid",
        env = "MUSTER_OPERATOR_POD_UID",
        requires = "pod_name"
    )]
    pub pod_uid: Option<String>,
    /// Address for /metrics, which needs no token, and for probes, which only connect
    #[arg(long, env = "MUSTER_OPERATOR_LISTEN", default_value = "127.0.0.1:7072")]
    pub listen: SocketAddr,
}

impl Run {
    /// Which objects it follows.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope {
            namespaces: self.namespaces.clone(),
            tenants: self.tenants,
            nodes: self.nodes.then(|| nodes::Settings {
                speaker: self.name.clone(),
                rack_labels: self.rack_labels.clone(),
                parts: self.node_parts.clone(),
                tolerated: self.tolerated.clone(),
                cordon_drains: self.cordon_drains,
                cordons: self.cordon_nodes,
                foreign_pods: self.foreign_pods,
                seen_as: self.seen_as.clone(),
                release: self.release.clone(),
            }),
        }
    }

    /// What stands for nodes that are missing, if anything does.
    ///
    /// # Errors
    /// When the file is not what it should be, or nodes are not followed.
    pub fn placeholders(&self) -> Result<Option<Placeholders>, SettingsError> {
        let Some(path) = &self.placeholders else {
            return Ok(None);
        };
        if !self.nodes {
            return Err(SettingsError::WithoutNodes);
        }
        let settings = PlaceholderSettings::read(path)?;
        let owner = self.pod_name.clone().zip(self.pod_uid.clone());
        let owner = owner.map(|(name, uid)| OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name,
            uid,
            ..OwnerReference::default()
        });
        Ok(Some(Placeholders::new(settings, owner)))
    }

    /// The token, or where it lies.
    #[must_use]
    pub fn admin_token(&self) -> AdminToken {
        match (&self.token, &self.token_file) {
            (Some(token), _) => AdminToken::Given(token.clone()),
            (None, Some(path)) => AdminToken::File(path.clone()),
            (None, None) => unreachable!("one of them is required"),
        }
    }
}

fn tenant(text: &str) -> Result<String, &'static str> {
    if muster_model::spec::is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err(
            "expected 1 to 63 characters of a-z, 0-9 and '-', beginning and ending with a letter or digit",
        )
    }
}
