//! Which ranks share memory with each other, agreed on by all.

use super::FabricError;
use super::mesh::Mesh;
use super::node::MEMBERS;
use crate::collective::{self, Algorithm};

/// Every rank says whom it shares memory with; a group is formed of ranks that all share with each other. One pair that had to
/// fall back to TCP thus splits a group rather than breaking it, and so does a node with more tasks than a page has room for.
pub(super) fn agree(mesh: &mut Mesh) -> Result<Vec<Vec<usize>>, FabricError> {
    let (rank, n) = (mesh.rank(), mesh.size());
    let mut mine = vec![0.0; n * n];
    for peer in 0..n {
        mine[rank * n + peer] = f32::from(u8::from(mesh.is_shared_memory(peer)));
    }
    let mut all = vec![0.0; n * n];
    collective::all_reduce(mesh, Algorithm::Tree, &[], &mine, &mut all)?;
    Ok(groups(n, MEMBERS, |a, b| all[a * n + b] > 0.0))
}

/// Of `n` ranks, groups of at most so many.
fn groups(n: usize, most: usize, shared: impl Fn(usize, usize) -> bool) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for rank in 0..n {
        let fits = |group: &Vec<usize>| {
            let mut members = group.iter();
            group.len() < most
                && members.all(|&member| shared(rank, member) && shared(member, rank))
        };
        match groups.iter_mut().find(|group| fits(group)) {
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
    fn groups_share_completely_and_hold_everyone_once() {
        assert_eq!(groups(3, 9, |_, _| false), [[0], [1], [2]]);
        assert_eq!(groups(4, 9, |a, b| a % 2 == b % 2), [[0, 2], [1, 3]]);
        // 1 and 2 fell back to TCP between each other.
        let broken = |a: usize, b: usize| a + b != 3 || a == 0 || b == 0;
        assert_eq!(groups(4, 9, broken), [vec![0, 1, 3], vec![2]]);
        // More tasks than fit.
        assert_eq!(groups(5, 2, |_, _| true), [vec![0, 1], vec![2, 3], vec![4]]);
    }
}
