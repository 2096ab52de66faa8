//! Hierarchical all-reduce: a reduction within each group to its first rank, a ring between these
//! ranks, and a broadcast back. The slow links carry one copy per group.

use super::{AllReduceAlgorithm, AllReduceRun, RankSubset, broadcast_over, tree};
use crate::fabric::FabricError;

pub(super) fn all_reduce(
    sum: &mut AllReduceRun<'_>,
    groups: &[Vec<usize>],
) -> Result<(), FabricError> {
    let rank = sum.mesh.rank();
    let group = groups.iter().find(|group| group.contains(&rank));
    let group = RankSubset::new(group.expect("every rank is in a group"), rank);
    tree::reduce(sum, group)?;
    if group.me() == 0 {
        let leaders: Vec<usize> = groups.iter().map(|group| group[0]).collect();
        sum.over(AllReduceAlgorithm::Ring, RankSubset::new(&leaders, rank))?;
    }
    broadcast_over(sum.mesh, group, 0, sum.output)
}
