//! Settings of the operator: flags, or environment variables `MUSTER_OPERATOR_*`, read once in
//! `main`. The address of Kubernetes comes from the pod's service account or from `KUBECONFIG`.

use crate::controllers::Scope;
use crate::nodes::{self, PlaceholderSettings, PlaceholderSettingsError, Placeholders};
use crate::tenants::AdminToken;
use clap::{Args, Parser, Subcommand};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Parser)]
#[command(
    name = "muster-operator",
    version = muster_model::version!(),
    about = "Muster's operator: custom resources of Kubernetes become jobs"
)]
pub struct OperatorArgs {
    #[command(subcommand)]
    pub command: OperatorCommand,
}

#[derive(Debug, Subcommand)]
pub enum OperatorCommand {
    /// Print the custom resource definitions
    Crds,
    /// Reconcile the objects until SIGTERM or SIGINT
    Run(Box<OperatorRunArgs>),
}

#[derive(Debug, Args)]
pub struct OperatorRunArgs {
    /// Address of Muster's REST interface
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
    /// An administrator's token, instead of a file
    #[arg(
        long,
        env = "MUSTER_OPERATOR_TOKEN",
        hide_env_values = true,
        conflicts_with = "token_file"
    )]
    pub token: Option<String>,
    /// Tenant of namespaces without the label muster.dev/tenant [default: the tenant with the
    /// namespace's name]
    #[arg(long, env = "MUSTER_OPERATOR_DEFAULT_TENANT", value_parser = tenant)]
    pub default_tenant: Option<String>,
    /// Name that marks this operator's jobs, to distinguish them from those of other operators with
    /// the same Muster
    #[arg(long, env = "MUSTER_OPERATOR_NAME", default_value = "kubernetes", value_parser = tenant)]
    pub name: String,
    /// Namespace whose jobs and studies are reconciled; repeat the flag or separate several with
    /// commas [default: all namespaces]
    #[arg(long = "namespace", env = "MUSTER_OPERATOR_NAMESPACES", value_delimiter = ',', value_parser = tenant)]
    pub namespaces: Vec<String>,
    /// Whether to reconcile Tenants, which are cluster-scoped; only one of several operators should
    /// do it
    #[arg(long, env = "MUSTER_OPERATOR_TENANTS", default_value_t = true, action = clap::ArgAction::Set)]
    pub tenants: bool,
    /// Whether to follow the cluster's nodes: nodes that are cordoned or tainted receive no new
    /// tasks
    #[arg(long, env = "MUSTER_OPERATOR_NODES", default_value_t = false, action = clap::ArgAction::Set)]
    pub nodes: bool,
    /// Node labels that state a node's location, the widest first; separate several with commas
    #[arg(
        long = "rack-labels",
        env = "MUSTER_OPERATOR_RACK_LABELS",
        value_delimiter = ',',
        default_value = "topology.kubernetes.io/zone"
    )]
    pub rack_labels: Vec<String>,
    /// Names of the parts of machines with several executors, each with one part of the GPUs; the
    /// nodes are called NODE--PART in Muster; separate several with commas
    #[arg(
        long = "node-parts",
        env = "MUSTER_OPERATOR_NODE_PARTS",
        value_delimiter = ',',
        value_parser = tenant
    )]
    pub node_parts: Vec<String>,
    /// Taints that executors tolerate and that therefore close no node: KEY or KEY=VALUE, each with
    /// an optional :EFFECT; * matches every key; separate several with commas
    #[arg(
        long = "tolerated",
        env = "MUSTER_OPERATOR_TOLERATED",
        value_delimiter = ','
    )]
    pub tolerated: Vec<nodes::ToleratedTaint>,
    /// Whether kubectl cordon also moves a node's tasks away; kubectl drain does not, because it
    /// leaves pods of DaemonSets alone
    #[arg(long = "cordon-drains", env = "MUSTER_OPERATOR_CORDON_DRAINS", default_value_t = false, action = clap::ArgAction::Set)]
    pub cordon_drains: bool,
    /// Whether nodes that are drained in Muster are cordoned in Kubernetes
    #[arg(long = "cordon-nodes", env = "MUSTER_OPERATOR_CORDON_NODES", default_value_t = false, action = clap::ArgAction::Set)]
    pub cordon_nodes: bool,
    /// Whether GPUs held by pods outside Muster are subtracted from the capacity of the node with
    /// that kind of GPU
    #[arg(long = "foreign-pods", env = "MUSTER_OPERATOR_FOREIGN_PODS", default_value_t = false, action = clap::ArgAction::Set)]
    pub foreign_pods: bool,
    /// Extended resources for GPUs that executors detect through the driver. A pod outside Muster
    /// that holds one closes the node to new tasks, because Kubernetes does not say which GPU it
    /// uses. Separate several with commas. GPUs that executors only count are identified by their
    /// own resource
    #[arg(
        long = "seen-as",
        env = "MUSTER_OPERATOR_SEEN_AS",
        value_delimiter = ',',
        default_value = "nvidia.com/gpu"
    )]
    pub seen_as: Vec<String>,
    /// Release of the chart whose pods belong to Muster, as NAMESPACE/NAME; pods of other releases
    /// are foreign [default: pods of every release belong to Muster]
    #[arg(long = "release", env = "MUSTER_OPERATOR_RELEASE")]
    pub release: Option<nodes::Release>,
    /// File with the settings of placeholder pods, which make autoscalers add missing nodes;
    /// requires --nodes [default: no placeholders]
    #[arg(long = "placeholders", env = "MUSTER_OPERATOR_PLACEHOLDERS")]
    pub placeholders: Option<PathBuf>,
    /// Name of the operator's own pod; its placeholders are deleted together with it
    #[arg(
        long = "pod-name",
        env = "MUSTER_OPERATOR_POD_NAME",
        requires = "pod_uid"
    )]
    pub pod_name: Option<String>,
    /// Uid of the operator's own pod
    #[arg(
        long = "pod-uid",
        env = "MUSTER_OPERATOR_POD_UID",
        requires = "pod_name"
    )]
    pub pod_uid: Option<String>,
    /// Address for /metrics, without a token, and for TCP probes
    #[arg(long, env = "MUSTER_OPERATOR_LISTEN", default_value = "127.0.0.1:7072")]
    pub listen: SocketAddr,
}

impl OperatorRunArgs {
    /// Returns the objects to follow.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope {
            namespaces: self.namespaces.clone(),
            tenants: self.tenants,
            nodes: self.nodes.then(|| nodes::NodeSettings {
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

    /// Returns the settings of placeholders, if there are any.
    ///
    /// # Errors
    /// If the file is invalid, or nodes are not followed.
    pub fn placeholders(&self) -> Result<Option<Placeholders>, PlaceholderSettingsError> {
        let Some(path) = &self.placeholders else {
            return Ok(None);
        };
        if !self.nodes {
            return Err(PlaceholderSettingsError::WithoutNodes);
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

    /// Returns the token or its file.
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
