//! `muster nodes`, `drain`, `uncordon` and `whoami`.

use super::CliSession;
use super::tenant_limits::open_jobs;
use super::tenants::{in_use, quota};
use crate::clock;
use crate::isolation;
use crate::output::{age, bytes, fields, table};
use clap::{Args, Subcommand};
use muster_model::node::{Closed, DriverSuspend, GpuKind, NodeState};
use muster_model::view::{NewJoinToken, NodeView};
use std::fmt::Write as _;

/// Maximum number of labels of a node in the list.
const LABELS_SHOWN: usize = 8;

#[derive(Debug, Args)]
pub struct NodesArgs {
    #[command(subcommand)]
    verb: Option<NodeVerb>,
}

#[derive(Debug, Subcommand)]
enum NodeVerb {
    /// List nodes and the jobs on each GPU (the default)
    List,
    /// Create a one-time join token for a new or existing node; it is shown only once
    Join {
        /// Name of the node.
        node: String,
        /// Validity in minutes, at most 10080 (a week).
        #[arg(long, default_value_t = 60, value_name = "MINUTES")]
        minutes: u64,
    },
    /// Delete the credential of a node that has lost its data folder, so that it can join again
    Reset {
        /// Name of the node.
        node: String,
    },
    /// Remove a lost node without tasks
    Remove {
        /// Name of the node.
        node: String,
    },
}

#[derive(Debug, Args)]
pub struct NodeVerbArgs {
    /// Name of the node.
    node: String,
}

#[derive(Debug, Args)]
pub struct WhoamiArgs {}

impl NodesArgs {
    /// # Errors
    /// If the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let client = &session.client;
        match self.verb.unwrap_or(NodeVerb::List) {
            NodeVerb::List => Self::list(session).await,
            NodeVerb::Join { node, minutes } => {
                let lifetime_s = Some(minutes.saturating_mul(60));
                let wanted = NewJoinToken { lifetime_s };
                let made = client.create_join_token(&node, wanted).await?;
                session.output.print(&made, |made| made.token.clone())
            }
            NodeVerb::Reset { node } => {
                let node = client.reset_node(&node).await?;
                session.output.print(&node, |node| {
                    format!(
                        "the next executor that joins as {} binds its credential",
                        node.name
                    )
                })
            }
            NodeVerb::Remove { node } => {
                client.remove_node(&node).await?;
                let removed = serde_json::json!({ "removed": node });
                session
                    .output
                    .print(&removed, |_| format!("node {node} removed"))
            }
        }
    }

    async fn list(session: &CliSession) -> anyhow::Result<()> {
        let nodes = session.client.nodes().await?;
        session.output.print(&nodes, |nodes| {
            if nodes.is_empty() {
                return "no nodes have joined".to_owned();
            }
            let mut shown = table(
                [
                    "name", "state", "gpus", "tasks", "kind", "memory", "jobs", "seen",
                ],
                nodes.iter().map(row),
            );
            let has_gpus = nodes.iter().any(|node| !is_of_cpu_slots(node));
            for node in nodes {
                shown.push_str(&labels(node));
                shown.push_str(&gpus(node));
                if has_gpus && is_of_cpu_slots(node) {
                    let _ = write!(
                        shown,
                        "\n{}: CPU slots beside GPUs: only for jobs with cpu in resources.worker.gpu_kinds",
                        node.name
                    );
                }
                shown.push_str(&speed(node));
                if let Some(excluded) = &node.excluded {
                    let since = age(excluded.at, clock::now());
                    let _ = write!(
                        shown,
                        "\n{}: excluded {since} ago: {}",
                        node.name, excluded.why
                    );
                }
                if let Some(DriverSuspend::Unable { why }) = &node.capacity.driver_suspend {
                    let _ = write!(
                        shown,
                        "\n{}: suspended programs keep their memory on the GPUs: {why}",
                        node.name
                    );
                }
                if let Some(notice) = &node.notice {
                    if notice.closed != Closed::Open {
                        let _ = write!(shown, "\n{}: closed: {}", node.name, notice.why);
                    }
                    if notice.taken > 0 {
                        let of = node.gpus.len();
                        let _ = write!(
                            shown,
                            "\n{}: {} of {of} are others'",
                            node.name, notice.taken
                        );
                        if notice.closed == Closed::Open {
                            let _ = write!(shown, ": {}", notice.why);
                        }
                    }
                }
            }
            for line in isolation::lines(nodes) {
                let _ = write!(shown, "\n{line}");
            }
            shown
        })
    }
}

/// Returns the line with the node's measured speed; empty if it does not deviate from its kind.
fn speed(node: &NodeView) -> String {
    let Some(speed) = node.speed else {
        return String::new();
    };
    let jobs = if speed.jobs == 1 { "job" } else { "jobs" };
    format!(
        "\n{}: speed {} % of its kind ({} {jobs} measured)",
        node.name, speed.percent, speed.jobs
    )
}

/// Whether the node offers CPU slots in place of GPUs.
fn is_of_cpu_slots(node: &NodeView) -> bool {
    let mut gpus = node.gpus.iter();
    !node.gpus.is_empty() && gpus.all(|gpu| gpu.kind == GpuKind::CpuSlot)
}

/// Returns the line with the node's labels; empty without labels.
fn labels(node: &NodeView) -> String {
    let noticed = node.notice.iter().flat_map(|notice| &notice.labels);
    let mut labels = node.capacity.labels.clone();
    labels.extend(noticed.map(|(key, value)| (key.clone(), value.clone())));
    if labels.is_empty() {
        return String::new();
    }
    let shown = labels.iter().take(LABELS_SHOWN);
    let shown: Vec<String> = shown.map(|(key, value)| format!("{key}={value}")).collect();
    let more = labels.len().saturating_sub(LABELS_SHOWN);
    let more = if more > 0 {
        format!(" and {more} more (-o json shows them)")
    } else {
        String::new()
    };
    format!("\n{}: labels {}{more}", node.name, shown.join(", "))
}

impl NodeVerbArgs {
    /// # Errors
    /// If the server refuses.
    pub async fn run(self, session: &CliSession, drain: bool) -> anyhow::Result<()> {
        let node = if drain {
            session.client.drain(&self.node).await?
        } else {
            session.client.uncordon(&self.node).await?
        };
        session.output.print(&node, |node| {
            let closed = node
                .notice
                .as_ref()
                .filter(|notice| notice.closed != Closed::Open);
            let unfit = node.excluded.as_ref().filter(|why| why.by_itself);
            match closed {
                _ if drain => format!("node {} drains: its work moves away", node.name),
                None if unfit.is_some() => format!(
                    "node {} stays closed: {}",
                    node.name,
                    unfit.map_or("", |unfit| &unfit.why)
                ),
                Some(notice) => format!("node {} stays closed: {}", node.name, notice.why),
                None => format!("node {} takes work again", node.name),
            }
        })
    }
}

impl WhoamiArgs {
    /// # Errors
    /// If the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let me = session.client.me().await?;
        session.output.print(&me, |me| {
            fields(&[
                ("user", me.user.clone()),
                ("tenant", me.tenant.clone()),
                ("access", me.access.as_str().to_owned()),
                ("quota", quota(me.gpu_quota)),
                ("in use", in_use(me.gpus_in_use, me.jobs_in_use)),
                ("open jobs", open_jobs(&me.limits, &me.used)),
            ])
        })
    }
}

/// Returns a line with memory and compute capability of the node's GPUs; empty for CPU slots.
fn gpus(node: &NodeView) -> String {
    let Some(gpu) = node.gpus.first().filter(|_| !is_of_cpu_slots(node)) else {
        return String::new();
    };
    let capability = gpu.compute_capability.map_or_else(
        || "compute capability unknown".to_owned(),
        |capability| format!("compute capability {capability}"),
    );
    let memory = match gpu.memory_bytes {
        0 => "memory unknown".to_owned(),
        there => format!("{} each", bytes(there)),
    };
    format!("\n{}: GPUs: {memory}, {capability}", node.name)
}

/// Returns whether the node is up, or why it takes no new tasks.
#[must_use]
pub fn state_of(node: &NodeView) -> &'static str {
    let closed = node.notice.as_ref().map(|notice| notice.closed);
    match (node.state, node.drained, &node.excluded, closed) {
        (NodeState::Lost, ..) => "lost",
        (NodeState::Up, true, ..) | (NodeState::Up, _, _, Some(Closed::ToAll)) => "drained",
        (NodeState::Up, false, Some(_), _) => "excluded",
        (NodeState::Up, false, None, Some(Closed::ToNew)) => "cordoned",
        (NodeState::Up, false, None, Some(Closed::Open) | None) => "up",
    }
}

fn row(node: &NodeView) -> [String; 8] {
    let held = node.gpus.iter().filter(|gpu| gpu.job.is_some()).count();
    let mut jobs: Vec<String> = node
        .gpus
        .iter()
        .flat_map(|gpu| gpu.job.iter().chain(&gpu.guest))
        .map(|job| {
            job.name
                .clone()
                .unwrap_or_else(|| "(another tenant's)".to_owned())
        })
        .collect();
    jobs.dedup();
    [
        node.name.clone(),
        state_of(node).to_owned(),
        format!("{held}/{}", node.gpus.len()),
        // Tasks without GPUs are only counted.
        node.tasks
            .map_or_else(|| "-".to_owned(), |tasks| tasks.to_string()),
        node.gpus
            .first()
            .map_or_else(|| "-".to_owned(), |gpu| gpu.model.clone()),
        bytes(node.capacity.memory_bytes),
        if jobs.is_empty() {
            "-".to_owned()
        } else {
            jobs.join(",")
        },
        format!("{} ago", age(node.last_seen_at, clock::now())),
    ]
}
