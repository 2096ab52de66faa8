//! Number of nodes of each pool that waiting gangs need. Pure.

use super::settings::PlaceholderPool;
use std::collections::BTreeMap;

/// Smallest gang of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gang {
    pub workers: u32,
    pub worker: ResourceAmounts,
    pub ps_shards: u32,
    pub ps_shard: ResourceAmounts,
    /// Whether its tasks must be pods of their own.
    pub pods: bool,
}

/// Requirement of one task, or free capacity of an idle or wanted node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceAmounts {
    pub gpus: u32,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

/// Nodes of one pool: idle nodes first, followed by wanted ones.
#[derive(Debug)]
struct PoolNodes {
    idle: usize,
    left: Vec<ResourceAmounts>,
}

/// Returns the number of additional nodes of each pool that hold all gangs, beside the `idle` ones;
/// at most `most` in total. A gang is assigned to the pool with the lowest cost. A gang that fits
/// into no pool needs nothing, because no node would help it.
#[must_use]
pub fn nodes_needed(
    pools: &BTreeMap<String, PlaceholderPool>,
    idle: &BTreeMap<String, u32>,
    gangs: &[Gang],
    most: u32,
) -> BTreeMap<String, u32> {
    let mut packing = GangPacking::new(pools, idle, most);
    for gang in gangs {
        packing.add(gang);
    }
    packing.nodes_needed()
}

#[derive(Debug)]
struct GangPacking<'a> {
    pools: &'a BTreeMap<String, PlaceholderPool>,
    nodes: BTreeMap<&'a str, PoolNodes>,
    /// Number of nodes that may still be wanted.
    left: u32,
}

impl<'a> GangPacking<'a> {
    fn new(
        pools: &'a BTreeMap<String, PlaceholderPool>,
        idle: &BTreeMap<String, u32>,
        most: u32,
    ) -> Self {
        let nodes = pools.iter().map(|(name, pool)| {
            let idle = idle.get(name).copied().unwrap_or_default() as usize;
            let left = vec![pool.capacity(); idle];
            (name.as_str(), PoolNodes { idle, left })
        });
        Self {
            pools,
            nodes: nodes.collect(),
            left: most,
        }
    }

    /// Packs a gang. Shards may fit on partly used nodes, about which nothing is known here. They
    /// count only if all workers have existing nodes and the gang waits nevertheless.
    fn add(&mut self, gang: &Gang) {
        let Some(pool) = best(self.pools, gang) else {
            return;
        };
        let mut are_there = true;
        for _ in 0..gang.workers {
            match self.place(pool, &gang.worker) {
                Some(is_there) => are_there &= is_there,
                None => return,
            }
        }
        if !are_there {
            return;
        }
        for _ in 0..gang.ps_shards {
            let pools = self.pools.keys().map(String::as_str);
            let first = std::iter::once(pool).chain(pools);
            let mut nodes = first.filter(|name| self.pools[*name].holds_a_shard(gang));
            let Some(of) = nodes.next() else {
                return;
            };
            if self.place(of, &gang.ps_shard).is_none() {
                return;
            }
        }
    }

    /// Places a task on a node of the pool with free capacity, or on an additional node. Returns
    /// whether the node is idle, or `None` if no further node is permitted.
    fn place(&mut self, pool: &'a str, task: &ResourceAmounts) -> Option<bool> {
        let nodes = self.nodes.get_mut(pool)?;
        if let Some(at) = nodes.left.iter_mut().position(|node| node.takes(task)) {
            return Some(at < nodes.idle);
        }
        self.left = self.left.checked_sub(1)?;
        let mut node = self.pools[pool].capacity();
        let fits = node.takes(task);
        debug_assert!(fits, "an empty node of the pool holds the task");
        nodes.left.push(node);
        Some(false)
    }

    fn nodes_needed(self) -> BTreeMap<String, u32> {
        let counted = self.nodes.into_iter().map(|(name, nodes)| {
            let wanted = nodes.left.len() - nodes.idle;
            (name.to_owned(), u32::try_from(wanted).unwrap_or(u32::MAX))
        });
        counted.filter(|(_, count)| *count > 0).collect()
    }
}

/// Returns the pool whose nodes would add the fewest GPUs, and among equal ones the fewest nodes.
/// Returns `None` if no pool can hold one of the gang's shards.
fn best<'a>(pools: &'a BTreeMap<String, PlaceholderPool>, gang: &Gang) -> Option<&'a str> {
    if gang.ps_shards > 0 && !pools.values().any(|pool| pool.holds_a_shard(gang)) {
        return None;
    }
    let fitting = pools.iter().filter_map(|(name, pool)| {
        let each = pool.holds(gang).filter(|each| *each > 0)?;
        let nodes = gang.workers.div_ceil(each);
        Some((
            (u64::from(nodes) * u64::from(pool.gpus), nodes),
            name.as_str(),
        ))
    });
    fitting.min_by_key(|(cost, _)| *cost).map(|(_, pool)| pool)
}

impl PlaceholderPool {
    /// Returns the number of the gang's workers that an empty node holds. Returns `None` if a task
    /// cannot have that number of GPUs there, or must be a pod and would not be one.
    fn holds(&self, gang: &Gang) -> Option<u32> {
        let is_apart = self.parts && gang.worker.gpus > 1;
        if is_apart || !self.runs(gang) {
            return None;
        }
        let mut node = self.capacity();
        let most = match gang.worker.gpus {
            // CPU and memory bound workers without GPUs.
            0 => gang.workers,
            gpus => self.gpus / gpus,
        };
        Some((0..most).take_while(|_| node.takes(&gang.worker)).count() as u32)
    }

    /// Whether an empty node holds one of its shards.
    fn holds_a_shard(&self, gang: &Gang) -> bool {
        self.runs(gang) && self.capacity().holds(&gang.ps_shard)
    }

    /// Whether tasks run in the pool in the form that the gang requires.
    fn runs(&self, gang: &Gang) -> bool {
        self.pods || !gang.pods
    }

    /// Capacity of an empty node.
    fn capacity(&self) -> ResourceAmounts {
        ResourceAmounts {
            gpus: self.gpus,
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
        }
    }
}

impl ResourceAmounts {
    fn holds(mut self, task: &Self) -> bool {
        self.takes(task)
    }

    /// Subtracts the task from the capacity, if it fits.
    fn takes(&mut self, task: &Self) -> bool {
        let rest = (
            self.gpus.checked_sub(task.gpus),
            self.cpu_milli.checked_sub(task.cpu_milli),
            self.memory_bytes.checked_sub(task.memory_bytes),
        );
        let (Some(gpus), Some(cpu_milli), Some(memory_bytes)) = rest else {
            return false;
        };
        *self = Self {
            gpus,
            cpu_milli,
            memory_bytes,
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(gpus: u32, parts: bool) -> PlaceholderPool {
        PlaceholderPool {
            gpus,
            parts,
            pods: false,
            part: String::new(),
            cpu_milli: 64_000,
            memory_bytes: 512 << 30,
            pod: k8s_openapi::api::core::v1::Pod::default(),
        }
    }

    fn pools(given: &[(&str, PlaceholderPool)]) -> BTreeMap<String, PlaceholderPool> {
        let given = given.iter();
        given
            .map(|(name, pool)| ((*name).to_owned(), pool.clone()))
            .collect()
    }

    fn gang(workers: u32, gpus: u32) -> Gang {
        Gang {
            workers,
            worker: ResourceAmounts {
                gpus,
                cpu_milli: 1_000,
                memory_bytes: 1 << 30,
            },
            ps_shards: 1,
            ps_shard: shard(1 << 20),
            pods: false,
        }
    }

    fn shard(memory_bytes: u64) -> ResourceAmounts {
        ResourceAmounts {
            gpus: 0,
            cpu_milli: 100,
            memory_bytes,
        }
    }

    fn nodes(given: &[(&str, PlaceholderPool)], gangs: &[Gang], most: u32) -> Vec<(String, u32)> {
        beside(given, &[], gangs, most)
    }

    fn beside(
        given: &[(&str, PlaceholderPool)],
        idle: &[(&str, u32)],
        gangs: &[Gang],
        most: u32,
    ) -> Vec<(String, u32)> {
        let idle = idle.iter();
        let idle = idle
            .map(|(pool, count)| ((*pool).to_owned(), *count))
            .collect();
        nodes_needed(&pools(given), &idle, gangs, most)
            .into_iter()
            .collect()
    }

    fn only(pool: &str, count: u32) -> Vec<(String, u32)> {
        vec![(pool.to_owned(), count)]
    }

    #[test]
    fn gangs_share_nodes_and_use_the_cheapest_pool() {
        let both = [("large", pool(8, false)), ("small", pool(1, false))];
        assert_eq!(nodes(&both, &[gang(1, 1)], 10), [("small".to_owned(), 1)]);
        assert_eq!(nodes(&both, &[gang(1, 8)], 10), only("large", 1));
        // The same number of GPUs on one node as on sixteen.
        assert_eq!(nodes(&both, &[gang(16, 1)], 10), only("large", 2));
        let two = [gang(1, 4), gang(1, 3), gang(1, 4)];
        assert_eq!(nodes(&both[..1], &two, 10), only("large", 2));
        let mut hungry = gang(2, 1);
        hungry.worker.memory_bytes = 300 << 30;
        assert_eq!(nodes(&both[..1], &[hungry], 10), only("large", 2));
        assert_eq!(nodes(&both, &[], 10), []);
    }

    #[test]
    fn gang_without_gpus_is_packed_by_cpu_and_memory() {
        let both = [("large", pool(8, false)), ("small", pool(1, false))];
        // 64 workers of one core fit on a node of 64 cores, however few GPUs it has.
        assert_eq!(nodes(&both, &[gang(100, 0)], 10), only("small", 2));
        let mut hungry = gang(3, 0);
        hungry.worker.memory_bytes = 300 << 30;
        assert_eq!(nodes(&both[..1], &[hungry], 10), only("large", 3));
        hungry.worker.memory_bytes = 600 << 30;
        assert_eq!(nodes(&both, &[hungry], 10), []);
    }

    #[test]
    fn wanted_nodes_are_limited_and_exclude_impossible_gangs() {
        let one = [("large", pool(8, false)), ("parts", pool(7, true))];
        assert_eq!(nodes(&one, &[gang(100, 8)], 3), [("large".to_owned(), 3)]);
        assert_eq!(nodes(&one, &[gang(1, 9)], 3), []);
        // A process can use only one part of a GPU.
        assert_eq!(nodes(&one[1..], &[gang(1, 2)], 3), []);
        assert_eq!(
            nodes(&one[1..], &[gang(8, 1)], 3),
            [("parts".to_owned(), 2)]
        );
        let mut hungry = gang(1, 1);
        hungry.worker.cpu_milli = 65_000;
        assert_eq!(nodes(&one, &[hungry], 3), []);
    }

    #[test]
    fn idle_nodes_are_not_requested_again() {
        let both = [("large", pool(8, false)), ("small", pool(1, false))];
        let wide = [gang(8, 8)];
        assert_eq!(beside(&both, &[("large", 1)], &wide, 10), only("large", 7));
        assert_eq!(beside(&both, &[("large", 7)], &wide, 10), only("large", 1));
        assert_eq!(beside(&both, &[("large", 8)], &wide, 10), []);
        // Idle nodes of another pool do not count, and a node serves one gang only.
        assert_eq!(beside(&both, &[("small", 9)], &wide, 10), only("large", 8));
        let two = [gang(2, 8), gang(2, 8)];
        assert_eq!(beside(&both, &[("large", 3)], &two, 10), only("large", 1));
        // Idle nodes do not count towards the maximum.
        assert_eq!(beside(&both, &[("large", 5)], &wide, 2), only("large", 2));
    }

    #[test]
    fn gang_with_an_impossible_shard_needs_no_nodes() {
        let both = [("large", pool(8, false)), ("parts", pool(7, true))];
        let mut gang = gang(1, 1);
        gang.ps_shard = shard(600 << 30);
        assert_eq!(nodes(&both, &[gang], 3), []);
        gang.ps_shards = 0;
        assert_eq!(nodes(&both, &[gang], 3), [("parts".to_owned(), 1)]);
    }

    /// Nodes that cannot run the gang would be added, stay idle, be removed, and be added again.
    #[test]
    fn gang_of_pods_needs_pools_with_pods_only() {
        let processes = ("processes", pool(1, false));
        let mut gang = gang(1, 1);
        assert_eq!(
            nodes(std::slice::from_ref(&processes), &[gang], 3),
            [("processes".to_owned(), 1)]
        );
        gang.pods = true;
        assert_eq!(nodes(std::slice::from_ref(&processes), &[gang], 3), []);
        // This pool is chosen although its nodes have more GPUs and none of them exists.
        let of_pods = PlaceholderPool {
            pods: true,
            ..pool(8, false)
        };
        let both = [processes, ("pods", of_pods)];
        assert_eq!(nodes(&both, &[gang], 3), [("pods".to_owned(), 1)]);
        // Its shards do not fit on nodes of other pools either.
        gang.ps_shard = shard(300 << 30);
        assert_eq!(
            beside(&both, &[("pods", 1)], &[gang], 3),
            [],
            "beside the worker"
        );
        gang.ps_shards = 2;
        assert_eq!(
            beside(&both, &[("pods", 1)], &[gang], 3),
            [("pods".to_owned(), 1)]
        );
        let mut roomy = pool(1, false);
        roomy.memory_bytes = 900 << 30;
        gang.ps_shard = shard(600 << 30);
        assert_eq!(
            nodes(&[("processes", roomy), both[1].clone()], &[gang], 3),
            []
        );
    }

    #[test]
    fn shards_need_nodes_after_their_workers_have_them() {
        let mut small = pool(1, false);
        small.memory_bytes = 4 << 30;
        let both = [("large", pool(8, false)), ("small", small)];
        let mut gang = gang(2, 1);
        gang.ps_shards = 3;
        gang.ps_shard = shard(2 << 30);
        assert_eq!(nodes(&both, &[gang], 9), only("small", 2));
        assert_eq!(beside(&both, &[("small", 1)], &[gang], 9), only("small", 1));
        // Two of the shards fit beside the workers.
        assert_eq!(beside(&both, &[("small", 2)], &[gang], 9), only("small", 1));
        assert_eq!(beside(&both, &[("small", 3)], &[gang], 9), []);
        // Another pool serves the shards if the workers' pool has no suitable nodes.
        gang.ps_shard = shard(300 << 30);
        let large = [("large".to_owned(), 3)];
        assert_eq!(beside(&both, &[("small", 2)], &[gang], 9), large);
        assert_eq!(beside(&both, &[("small", 2)], &[gang], 1)[0].1, 1);
    }
}
