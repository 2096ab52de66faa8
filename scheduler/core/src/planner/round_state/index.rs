//! Dense indices of nodes and tenants in a round, by id.

use super::RoundState;
use crate::problem;
use crate::snapshot::ClusterSnapshot;
use muster_model::id::{NodeId, TenantId};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Node indices by id.
pub(crate) struct NodeIndex(HashMap<NodeId, u32, BuildHasherDefault<IdHasher>>);

impl NodeIndex {
    pub(crate) fn of(snapshot: &ClusterSnapshot) -> Self {
        let ids = snapshot.nodes.iter().map(|node| node.id);
        Self(ids.zip(0..).collect())
    }

    pub(crate) fn find(&self, id: NodeId) -> Option<u32> {
        self.0.get(&id).copied()
    }
}

/// Hash of ids. Ids are random, so Fibonacci hashing of their words spreads them well enough. It is
/// the same in every round.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let word = word
                .iter()
                .fold(0, |word, &byte| word << 8 | u64::from(byte));
            self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_usize(&mut self, number: usize) {
        // Length of the id, which is the same for all ids.
        self.0 ^= number as u64;
    }
}

/// Tenant indices by id. A tenant outside of the snapshot has no quota.
pub(super) struct TenantIndex(pub(super) Vec<(TenantId, u32)>);

impl TenantIndex {
    pub(super) fn find(&self, round: &mut RoundState<'_>, id: TenantId) -> u32 {
        if let Ok(at) = self.0.binary_search_by_key(&id, |&(id, _)| id) {
            return self.0[at].1;
        }
        let known = self.0.len();
        if round.problem.tenants.len() == known {
            round.problem.tenants.push(problem::ProblemTenant {
                weight: 1.0,
                gpu_quota: None,
                parent: None,
            });
            round.held.push(0);
        }
        u32::try_from(known).unwrap_or(u32::MAX)
    }
}
