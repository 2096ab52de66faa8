//! Agreement of all ranks on the groups that share memory.

use super::FabricError;
use super::mesh::Mesh;
use super::node::MEMBERS;
use crate::collective::{self, AllReduceAlgorithm};

/// Every rank announces the ranks with which it shares memory. A group consists of ranks that all
/// share memory with each other. A pair that fell back to TCP thus splits a group and does not
/// break it. A node with more tasks than a page can hold is also split.
pub(super) fn agree(mesh: &mut Mesh) -> Result<Vec<Vec<usize>>, FabricError> {
    let (rank, n) = (mesh.rank(), mesh.size());
    let mut mine = vec![0.0; n * n];
    for peer in 0..n {
        mine[rank * n + peer] = f32::from(u8::from(mesh.is_shared_memory(peer)));
    }
    let mut all = vec![0.0; n * n];
    collective::all_reduce(mesh, AllReduceAlgorithm::Tree, &[], &mine, &mut all)?;
    Ok(groups(n, MEMBERS, |a, b| all[a * n + b] > 0.0))
}

/// Groups of at most `most` ranks out of `n`.
fn groups(n: usize, most: usize, shared: impl Fn(usize, usize) -> bool) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for rank in 0..n {
        let group = groups.iter_mut().find(|group| {
            let mut members = group.iter();
            group.len() < most
                && members.all(|&member| shared(rank, member) && shared(member, rank))
        });
        match group {
            Some(group) => group.push(rank),
            None => groups.push(vec![rank]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_share_memory_and_contain_each_rank_once() {
        assert_eq!(groups(3, 9, |_, _| false), [[0], [1], [2]]);
        assert_eq!(groups(4, 9, |a, b| a % 2 == b % 2), [[0, 2], [1, 3]]);
        // 1 and 2 use TCP between each other.
        assert_eq!(
            groups(4, 9, |a: usize, b: usize| a + b != 3 || a == 0 || b == 0),
            [vec![0, 1, 3], vec![2]]
        );
        // More tasks than fit into one group.
        assert_eq!(groups(5, 2, |_, _| true), [vec![0, 1], vec![2, 3], vec![4]]);
    }
}
