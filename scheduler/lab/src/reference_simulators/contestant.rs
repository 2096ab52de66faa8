//! Contestant and cluster of a run: a policy with its inputs and its freedom, and groups of nodes.

use super::observation::ObservationSource;
use super::profiles::Profiles;
use muster_core::policies::SchedulingPolicy;
use muster_core::problem::ProblemNode;

/// Policy under test.
pub struct Contestant {
    pub name: String,
    pub share: Box<dyn SchedulingPolicy>,
    pub observation_source: ObservationSource,
    /// The policy chooses the batch size within the application's limits; otherwise the user's is
    /// kept.
    pub adapts_batch: bool,
    /// The policy chooses the number of GPUs; otherwise a job gets the requested number.
    pub is_elastic: bool,
}

/// Nodes in the order of their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    pub groups: Vec<NodeGroup>,
}

/// Equal nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeGroup {
    /// Name of the GPU kind; `None` on a cluster with one kind.
    pub kind: Option<String>,
    pub nodes: u32,
    /// GPUs of each node.
    pub gpus: u32,
}

/// Reason why a run is not possible.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ContestError {
    #[error("the cluster has GPUs of kind \"{kind}\", the profiles know {known}")]
    UnknownKind { kind: String, known: String },
    #[error("job {job} runs \"{application}\", the profiles know {known}")]
    UnknownApplication {
        job: String,
        application: String,
        known: String,
    },
    #[error(
        "job {job} does not say how much it trains: the peers' rules take Pollux' and Sia's workloads"
    )]
    NoTraining { job: String },
    #[error(
        "job {job} runs \"{application}\", which was not measured on GPUs of kind \"{kind}\": leave the kind out of --cluster"
    )]
    NotMeasured {
        job: String,
        application: String,
        kind: String,
    },
    #[error("job {job} asks for {gpus} GPUs, the cluster has {most}")]
    TooLarge { job: String, gpus: u32, most: u32 },
}

impl Cluster {
    /// Number of GPUs.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.groups
            .iter()
            .map(|group| group.nodes * group.gpus)
            .sum()
    }

    /// GPU kinds: name, index in the profiles, number of nodes, and GPUs of the largest node.
    pub(super) fn kinds(
        &self,
        profiles: &Profiles,
    ) -> Result<Vec<(String, u16, u32, u32)>, ContestError> {
        let mut kinds: Vec<(String, u16, u32, u32)> = Vec::new();
        for group in &self.groups {
            let (name, kind) = profiled_kind(group, profiles)?;
            match kinds.iter_mut().find(|known| known.1 == kind) {
                Some((_, _, nodes, gpus)) => {
                    *nodes += group.nodes;
                    *gpus = (*gpus).max(group.gpus);
                }
                None => kinds.push((name, kind, group.nodes, group.gpus)),
            }
        }
        Ok(kinds)
    }

    /// Nodes in the form that policies read.
    pub(super) fn nodes(&self, profiles: &Profiles) -> Result<Vec<ProblemNode>, ContestError> {
        let mut nodes = Vec::new();
        for group in &self.groups {
            let (_, kind) = profiled_kind(group, profiles)?;
            nodes.extend((0..group.nodes).map(|_| ProblemNode {
                kind,
                gpus: group.gpus,
                cpu_milli: 0,
                memory_bytes: 0,
                rack: 0,
                speed_percent: 100,
            }));
        }
        Ok(nodes)
    }
}

/// Name of a group's GPU kind, and its index in the profiles.
fn profiled_kind(group: &NodeGroup, profiles: &Profiles) -> Result<(String, u16), ContestError> {
    let name = group.kind.as_ref().unwrap_or(&profiles.kinds[0]);
    let kind = profiles
        .kind(name)
        .ok_or_else(|| ContestError::UnknownKind {
            kind: name.clone(),
            known: profiles.kinds.join(", "),
        })?;
    Ok((name.clone(), kind))
}
