//! A node: a machine with an executor, what it offers and whether work may go there.

use crate::id::NodeId;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    /// Unique; a node that comes back under its name is the same node.
    pub name: String,
    pub state: NodeState,
    /// Drained by an administrator: takes no new task, and its tasks move away.
    pub drained: bool,
    /// Closed for new tasks, because too many failed there or by its own word.
    pub excluded: Option<Excluded>,
    /// What the cluster that the machine belongs to says of it.
    pub notice: Option<Notice>,
    pub capacity: Capacity,
    /// Version of what the node was told to run; it refuses an older one.
    pub generation: u64,
    #[serde(with = "time::serde::rfc3339")]
    pub last_seen_at: OffsetDateTime,
}

/// Why a node takes no new tasks although nobody has drained it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Excluded {
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    pub why: String,
    /// The node itself says so, as for a full disk. It takes tasks again by itself; uncordoning does not change it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_itself: bool,
}

/// What the cluster that the machine belongs to, such as Kubernetes, says of it: always all that it says, so that whoever brings the news
/// need not know the news before. An administrator's drain and this stand beside each other, and neither ends the other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Notice {
    pub closed: Closed,
    /// Why it is closed, or whose GPUs some of them are, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Where it stands; counts before what its executor says of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// What its labels say of its GPUs; counts where its executor has not looked at them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Labelled>,
    /// So many of its GPUs somebody outside of Muster has; which, nobody knows, as they are only counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub taken: u32,
    /// Who says so: only that speaker says something else later. Whoever says nothing here is an administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// GPUs as the cluster's labels have them, all of one kind: the product, or a profile into which it is divided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Labelled {
    /// Such as `NVIDIA-H100-80GB-HBM3-MIG-1g.10gb`.
    pub model: String,
    /// Of one of them; 0 is not known.
    pub memory_bytes: u64,
}

impl Notice {
    /// Characters of `gpus.model`.
    pub const MODEL_MAX: usize = 253;
    /// Characters of `why`.
    pub const WHY_MAX: usize = 500;
    /// Characters of `rack`.
    pub const RACK_MAX: usize = 253;

    /// Whether `speaker` may say something else: it is its own, or there is nothing to be lost.
    #[must_use]
    pub fn yields_to(&self, speaker: &str) -> bool {
        match &self.by {
            Some(by) => by == speaker,
            None => {
                let is_bare = self.rack.is_none() && self.gpus.is_none() && self.taken == 0;
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

/// To whom a node is closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Closed {
    /// To nobody.
    #[default]
    Open,
    /// It takes no new task; what runs there goes on.
    ToNew,
    /// It takes no new task, and its tasks move away.
    ToAll,
}

impl Capacity {
    /// Whether its tasks are known to be pods.
    #[must_use]
    pub fn has_pods(&self) -> bool {
        self.pods == Some(true)
    }
}

impl Node {
    /// Its tasks are to move away.
    #[must_use]
    pub fn is_to_be_empty(&self) -> bool {
        self.drained || self.closed() == Closed::ToAll
    }

    /// It takes no new task by its cluster's wish.
    #[must_use]
    pub fn is_cordoned(&self) -> bool {
        self.closed() != Closed::Open
    }

    /// It takes no new task by its own word.
    #[must_use]
    pub fn is_unfit(&self) -> bool {
        self.excluded.as_ref().is_some_and(|why| why.by_itself)
    }

    /// Where it stands.
    #[must_use]
    pub fn rack(&self) -> Option<&str> {
        let said = self
            .notice
            .as_ref()
            .and_then(|notice| notice.rack.as_deref());
        said.or(self.capacity.rack.as_deref())
    }

    /// What it offers, by the best that is known of it: an executor that only counts GPUs tells no memory, and labels do.
    #[must_use]
    pub fn gpus(&self) -> Vec<Gpu> {
        let mut gpus = self.capacity.gpus.clone();
        let labelled = self.notice.as_ref().and_then(|notice| notice.gpus.as_ref());
        if let Some(labelled) = labelled {
            for gpu in gpus.iter_mut().filter(|gpu| gpu.memory_bytes == 0) {
                gpu.model.clone_from(&labelled.model);
                gpu.memory_bytes = labelled.memory_bytes;
            }
        }
        gpus
    }

    /// How many of its GPUs somebody outside of Muster has.
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

/// What a node offers to tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Capacity {
    /// GPUs, or CPU slots that stand for them; index is the position.
    pub gpus: Vec<Gpu>,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Nodes with the same name here are nearer to each other than to others; `None`: nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Whether a user's program leaves its GPUs when it is suspended; `None`: there are none, or its executor is too old to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_suspend: Option<DriverSuspend>,
    /// Whether its tasks are pods of their own, which can have what a job's `pod` says; `None`: its executor is too old to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<bool>,
}

/// Whether the GPUs' driver moves the memory of a program that knows nothing of it to the host, and back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum DriverSuspend {
    /// As far as one can see before it is tried.
    Able {
        /// The version of CUDA that the driver is for.
        cuda: String,
    },
    /// Programs that are suspended keep their memory on the GPUs.
    Unable { why: String },
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Gpu {
    pub index: u32,
    pub kind: GpuKind,
    /// Product name as the driver tells it (`NVIDIA H200`), or `cpu`.
    pub model: String,
    pub memory_bytes: u64,
}

/// Whether what is called so is a part of a GPU, a MIG instance. A process sees one of these and no more, so a task gets no second one. By the
/// name that NVIDIA's feature discovery gives it (`NVIDIA-H100-80GB-HBM3-MIG-1g.10gb`), the driver's (`NVIDIA H100 80GB HBM3 MIG 1g.10gb`) or
/// the device plugin's resource (`nvidia.com/mig-1g.10gb`).
#[must_use]
pub fn is_part(model: &str) -> bool {
    model.starts_with("nvidia.com/mig-") || model.split([' ', '-']).any(|word| word == "MIG")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum GpuKind {
    Cuda,
    /// A share of the CPU that stands for a GPU on machines without one.
    CpuSlot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum NodeState {
    /// Has a session, or had one less than its lease ago.
    Up,
    /// Its lease has run out: it has stopped its tasks itself, and they count as lost.
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
                driver_suspend: None,
                pods: None,
            },
            generation: 0,
            last_seen_at: OffsetDateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn parts_of_gpus_are_known_by_all_of_their_names() {
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

    #[test]
    fn labels_count_where_the_executor_has_not_looked() {
        let labelled = Labelled {
            model: "H100-MIG-1g.10gb".to_owned(),
            memory_bytes: 10 << 30,
        };
        let of = |node: &Node| {
            let gpu = node.gpus().remove(0);
            (gpu.model, gpu.memory_bytes)
        };
        let counted = "nvidia.com/mig-1g.10gb".to_owned();
        assert_eq!(of(&node(0, None)), (counted.clone(), 0));
        let named = (labelled.model.clone(), labelled.memory_bytes);
        assert_eq!(of(&node(0, Some(labelled.clone()))), named);
        assert_eq!(of(&node(7, Some(labelled))), (counted, 7));
    }
}
