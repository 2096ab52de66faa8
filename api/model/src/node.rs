//! A node: a machine with an executor, its capacity and whether tasks may be placed there.

use crate::compute_capability::ComputeCapability;
use crate::id::NodeId;
use crate::spec::{NodeConstraints, NodeTraits, UnmetConstraint};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use time::OffsetDateTime;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    /// Unique. A node that returns under its name is the same node.
    pub name: String,
    pub state: NodeState,
    /// Drained by an administrator: takes no new task, and its tasks move away.
    pub drained: bool,
    /// Takes no new tasks: too many jobs failed there, or the node excludes itself.
    pub excluded: Option<Excluded>,
    /// Report of the cluster manager about the machine.
    pub notice: Option<Notice>,
    pub capacity: Capacity,
    /// Version of the node's assignment. The node refuses an older one.
    pub generation: u64,
    #[serde(with = "time::serde::rfc3339")]
    pub last_seen_at: OffsetDateTime,
    /// Measured speed relative to the node's GPU kind; `None` if it is not known to deviate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<NodeSpeed>,
}

/// Measured speed of a node relative to the typical node of its GPU kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NodeSpeed {
    /// Speed in percent of the typical node of the kind, 50 to 200. It compares jobs of the same
    /// families on this node and on others.
    pub percent: u16,
    /// Number of jobs that were measured on the node.
    pub jobs: u32,
}

impl NodeSpeed {
    /// Speed of a node that is not known to deviate.
    pub const TYPICAL_PERCENT: u16 = 100;
    /// Smallest deviation that counts, in percent.
    pub const LEAST_DEVIATION_PERCENT: u16 = 2;
    /// Largest speed of a node that is used after the others, in percent.
    pub const SLOW_PERCENT: u16 = 90;
}

/// Why a node takes no new tasks although it is not drained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Excluded {
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    pub why: String,
    /// Whether the node excludes itself, for example because its disk is full. It then takes tasks
    /// again by itself, and uncordoning has no effect.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_itself: bool,
}

/// Report of a cluster manager such as Kubernetes about the machine. A notice is always complete
/// and replaces the earlier one. It is independent of an administrator's drain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Notice {
    pub closed: Closed,
    /// Why the node is closed, or what holds some of its GPUs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Rack of the node. It precedes the executor's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Labels of the machine in its cluster. They precede the executor's labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// GPUs according to the machine's labels. They count if the executor has not read the GPUs
    /// itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Labelled>,
    /// Number of GPUs that pods outside Muster hold. Which GPUs is unknown: they are only counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub taken: u32,
    /// Sender of the notice. Only the same sender may replace it. Absent: an administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// GPUs according to the cluster's labels, all of one kind: the product, or a MIG profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Labelled {
    /// Product name, such as `NVIDIA-H100-80GB-HBM3-MIG-1g.10gb`.
    pub model: String,
    /// Memory of one GPU; 0 is unknown.
    pub memory_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<ComputeCapability>,
}

impl Notice {
    /// Maximum length of `gpus.model` in characters.
    pub const MODEL_MAX: usize = 253;
    /// Maximum length of `why` in characters.
    pub const WHY_MAX: usize = 500;
    /// Maximum length of `rack` in characters.
    pub const RACK_MAX: usize = 253;

    /// Whether `speaker` may replace this notice: it sent it, or the notice has no sender and no
    /// content.
    #[must_use]
    pub fn yields_to(&self, speaker: &str) -> bool {
        match &self.by {
            Some(by) => by == speaker,
            None => {
                let is_bare = self.rack.is_none()
                    && self.labels.is_empty()
                    && self.gpus.is_none()
                    && self.taken == 0;
                self.closed == Closed::Open && is_bare
            }
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// How far a node is closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Closed {
    /// Takes tasks.
    #[default]
    Open,
    /// Takes no new task; running tasks continue.
    ToNew,
    /// Takes no new task, and its tasks move away.
    ToAll,
}

impl Capacity {
    /// Whether the node's tasks are known to be pods.
    #[must_use]
    pub fn has_pods(&self) -> bool {
        self.pods == Some(true)
    }

    /// Whether tasks of the node can run in images, as pods or as processes.
    #[must_use]
    pub fn runs_images(&self) -> bool {
        self.has_pods() || self.images == Some(ImageSupport::Able)
    }
}

impl Node {
    /// Whether the node's tasks must move away.
    #[must_use]
    pub fn is_to_be_empty(&self) -> bool {
        self.drained || self.closed() == Closed::ToAll
    }

    /// Whether the cluster manager closed the node for new tasks.
    #[must_use]
    pub fn is_cordoned(&self) -> bool {
        self.closed() != Closed::Open
    }

    /// Whether the node excludes itself from new tasks.
    #[must_use]
    pub fn is_unfit(&self) -> bool {
        self.excluded.as_ref().is_some_and(|why| why.by_itself)
    }

    /// Returns the node's rack.
    #[must_use]
    pub fn rack(&self) -> Option<&str> {
        let said = self
            .notice
            .as_ref()
            .and_then(|notice| notice.rack.as_deref());
        said.or(self.capacity.rack.as_deref())
    }

    /// Returns the node's labels. Those of the cluster manager precede the executor's.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        let mut all = self.capacity.labels.clone();
        if let Some(notice) = &self.notice {
            all.extend(notice.labels.clone());
        }
        all
    }

    /// Returns the first constraint of a job that the node does not meet. `best` is the best class
    /// of GPUs in the cluster.
    #[must_use]
    pub fn unmet(&self, constraints: &NodeConstraints, best: GpuClass) -> Option<UnmetConstraint> {
        let gpus = self.gpus();
        let traits = NodeTraits {
            name: &self.name,
            gpu_model: gpus.first().map_or("", |gpu| &gpu.model),
            class: self.gpu_class(),
            gpu_memory_bytes: gpus.iter().map(|gpu| gpu.memory_bytes).min().unwrap_or(0),
            compute_capability: least_capability(&gpus),
            labels: &self.labels(),
        };
        constraints.unmet(&traits, best)
    }

    /// Returns the class of the node's GPUs; `None` without any.
    #[must_use]
    pub fn gpu_class(&self) -> Option<GpuClass> {
        let gpus = self.gpus();
        let first = gpus.first()?;
        Some(match first.kind {
            GpuKind::CpuSlot => GpuClass::CpuSlot,
            GpuKind::Cuda if is_part(&first.model) => GpuClass::Part,
            GpuKind::Cuda => GpuClass::Gpu,
        })
    }

    /// Returns the node's GPUs. Where the executor only counts GPUs and reports no memory, model,
    /// memory and compute capability come from the labels.
    #[must_use]
    pub fn gpus(&self) -> Vec<Gpu> {
        let mut gpus = self.capacity.gpus.clone();
        let labelled = self.notice.as_ref().and_then(|notice| notice.gpus.as_ref());
        if let Some(labelled) = labelled {
            for gpu in gpus.iter_mut().filter(|gpu| gpu.memory_bytes == 0) {
                gpu.model.clone_from(&labelled.model);
                gpu.memory_bytes = labelled.memory_bytes;
                gpu.compute_capability = labelled.compute_capability;
            }
        }
        gpus
    }

    /// Returns the number of GPUs that pods outside Muster hold.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.notice.as_ref().map_or(0, |notice| notice.taken)
    }

    fn closed(&self) -> Closed {
        self.notice
            .as_ref()
            .map_or(Closed::Open, |notice| notice.closed)
    }
}

/// Capacity of a node for tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Capacity {
    /// GPUs, or CPU slots in place of them; the index is the position.
    pub gpus: Vec<Gpu>,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Nodes of the same rack are nearer to each other than to others. Null: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Labels of the executor's configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Whether a user's program leaves its GPUs when it is suspended. Null: the node has no GPUs,
    /// or its executor is too old to report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_suspend: Option<DriverSuspend>,
    /// Whether tasks run as pods, as `pod` of a job's document requires. Null: the executor is too
    /// old to report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<bool>,
    /// What separates process tasks of different tenants on the node. Null: its tasks are pods, or
    /// its executor is too old to report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<TaskIsolation>,
    /// Whether process tasks of the node can run in images. Null: its tasks are pods, or its
    /// executor is too old to report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<ImageSupport>,
}

/// Whether process tasks of a node can run in images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum ImageSupport {
    /// The executor pulls images and starts tasks in them.
    Able,
    Unable {
        why: String,
    },
}

/// What separates process tasks of different tenants on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum TaskIsolation {
    /// Each tenant has a Unix user of its own.
    TenantUsers {
        /// Why tasks share `/tmp` and see the processes of other tenants. Null: they have a `/tmp`
        /// of their own and see only their tenant's processes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shared_view: Option<String>,
    },
    /// All tenants share one Unix user, which is not the executor's.
    SharedUser,
    /// The tasks of all tenants run as the executor's user.
    ExecutorUser,
}

/// Whether the GPU driver can move the memory of an unmodified program to the host and back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum DriverSuspend {
    /// The driver should be able to, as far as this is known before the first attempt.
    Able {
        /// CUDA version of the driver.
        cuda: String,
    },
    /// Suspended programs keep their memory on the GPUs.
    Unable { why: String },
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Gpu {
    pub index: u32,
    pub kind: GpuKind,
    /// Product name that the driver reports (`NVIDIA H200`). For CPU slots the name that the
    /// executor's configuration gives them, by default `cpu`.
    pub model: String,
    pub memory_bytes: u64,
    /// Null: a CPU slot, or the executor is too old to report it or only counts its GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<ComputeCapability>,
}

/// Returns the lowest compute capability of a node's GPUs; `None` if that of one is unknown.
#[must_use]
pub fn least_capability(gpus: &[Gpu]) -> Option<ComputeCapability> {
    let all: Option<Vec<ComputeCapability>> =
        gpus.iter().map(|gpu| gpu.compute_capability).collect();
    all?.into_iter().min()
}

/// Classes of GPUs, ascending. A job that names no GPU kinds runs only on the best class that the
/// cluster has: CPU slots stand for GPUs only in a cluster without GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum GpuClass {
    /// Share of the CPU in place of a GPU.
    CpuSlot,
    /// Part of a GPU (MIG instance).
    Part,
    /// Whole GPU.
    Gpu,
}

/// Whether a model name is that of a GPU part (MIG instance). A process sees only one GPU part, so
/// a task gets no second one. Recognises the names of NVIDIA's feature discovery
/// (`NVIDIA-H100-80GB-HBM3-MIG-1g.10gb`), of the driver (`NVIDIA H100 80GB HBM3 MIG 1g.10gb`) and
/// of the device plugin's resource (`nvidia.com/mig-1g.10gb`).
#[must_use]
pub fn is_part(model: &str) -> bool {
    model.starts_with("nvidia.com/mig-") || model.split([' ', '-']).any(|word| word == "MIG")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum GpuKind {
    Cuda,
    /// Share of the CPU in place of a GPU, on machines without GPUs.
    CpuSlot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum NodeState {
    /// Has a session, or had one within its lease.
    Up,
    /// Its lease, grace period and clock margin have expired: it has stopped its tasks itself, and
    /// they count as lost.
    Lost,
}

impl NodeState {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Lost => "lost",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(memory_bytes: u64, gpus: Option<Labelled>) -> Node {
        let gpu = Gpu {
            index: 0,
            kind: GpuKind::Cuda,
            model: "nvidia.com/mig-1g.10gb".to_owned(),
            memory_bytes,
            compute_capability: None,
        };
        Node {
            id: NodeId(uuid::Uuid::nil()),
            name: "a".to_owned(),
            state: NodeState::Up,
            drained: false,
            excluded: None,
            notice: Some(Notice {
                gpus,
                ..Notice::default()
            }),
            capacity: Capacity {
                gpus: vec![gpu],
                cpu_milli: 0,
                memory_bytes: 0,
                rack: None,
                labels: BTreeMap::new(),
                driver_suspend: None,
                pods: None,
                isolation: None,
                images: None,
            },
            generation: 0,
            last_seen_at: OffsetDateTime::UNIX_EPOCH,
            speed: None,
        }
    }

    #[test]
    fn gpu_part_is_recognised_by_each_of_its_names() {
        for part in [
            "nvidia.com/mig-1g.10gb",
            "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
            "NVIDIA A100-SXM4-40GB MIG 2g.10gb",
        ] {
            assert!(is_part(part), "{part}");
        }
        for whole in ["nvidia.com/gpu", "NVIDIA H200", "cpu", "Tesla-MIGHTY", ""] {
            assert!(!is_part(whole), "{whole}");
        }
    }

    fn first_gpu(node: &Node) -> (String, u64) {
        let gpu = node.gpus().remove(0);
        (gpu.model, gpu.memory_bytes)
    }

    #[test]
    fn labels_count_without_gpu_data_of_the_executor() {
        let labelled = Labelled {
            model: "H100-MIG-1g.10gb".to_owned(),
            memory_bytes: 10 << 30,
            compute_capability: ComputeCapability::new(9, 0),
        };
        let counted = "nvidia.com/mig-1g.10gb".to_owned();
        assert_eq!(first_gpu(&node(0, None)), (counted.clone(), 0));
        let named = (labelled.model.clone(), labelled.memory_bytes);
        let by_labels = node(0, Some(labelled.clone()));
        assert_eq!(first_gpu(&by_labels), named);
        let capability = least_capability(&by_labels.gpus());
        assert_eq!(capability, labelled.compute_capability);
        assert_eq!(first_gpu(&node(7, Some(labelled))), (counted, 7));
    }

    #[test]
    fn labels_of_the_cluster_precede_those_of_the_executor() {
        let mut node = node(0, None);
        let label = |value: &str| BTreeMap::from([("site".to_owned(), value.to_owned())]);
        node.capacity.labels = label("executor");
        assert_eq!(node.labels(), label("executor"));
        node.notice.get_or_insert_default().labels = label("cluster");
        assert_eq!(node.labels(), label("cluster"));
    }
}
