//! How many nodes of which pool what waits would need. Pure.

use super::settings::Pool;
use std::collections::BTreeMap;

/// The smallest gang of a job: so many workers, each of which needs this of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gang {
    pub workers: u32,
    pub gpus: u32,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

/// What is left of a node that is thought of, or that stands idle.
#[derive(Debug, Clone, Copy)]
struct Left {
    gpus: u32,
    cpu_milli: u64,
    memory_bytes: u64,
}

/// The nodes of each pool that hold all gangs together, beside those that have joined and stand `idle`; `most` at most. A gang goes to the pool of
/// which it needs the least; one that no pool can hold needs nothing, since no node would help it. PS shards are not reckoned with: they need no
/// GPUs.
#[must_use]
pub fn wanted(
    pools: &BTreeMap<String, Pool>,
    idle: &BTreeMap<String, u32>,
    gangs: &[Gang],
    most: u32,
) -> BTreeMap<String, u32> {
    let mut nodes: BTreeMap<&str, Vec<Left>> = BTreeMap::new();
    for (name, pool) in pools {
        let idle = idle.get(name).copied().unwrap_or_default();
        nodes.insert(name, vec![Left::of(pool); idle as usize]);
    }
    let mut wanted: BTreeMap<String, u32> = BTreeMap::new();
    let mut left = most;
    for gang in gangs {
        let Some((name, pool)) = best(pools, gang) else {
            continue;
        };
        let nodes = nodes.entry(name).or_default();
        for _ in 0..gang.workers {
            if nodes.iter_mut().any(|node| node.takes(gang)) {
                continue;
            }
            if left == 0 {
                break;
            }
            left -= 1;
            *wanted.entry(name.to_owned()).or_default() += 1;
            let mut node = Left::of(pool);
            let fits = node.takes(gang);
            debug_assert!(fits, "an empty node of the pool holds one worker");
            nodes.push(node);
        }
    }
    wanted
}

/// The pool whose nodes would stand for the fewest GPUs; of those the one that needs the fewest nodes.
fn best<'a>(pools: &'a BTreeMap<String, Pool>, gang: &Gang) -> Option<(&'a str, &'a Pool)> {
    let fitting = pools.iter().filter_map(|(name, pool)| {
        let each = pool.holds(gang).filter(|each| *each > 0)?;
        let nodes = gang.workers.div_ceil(each);
        Some((
            (u64::from(nodes) * u64::from(pool.gpus), nodes),
            (name.as_str(), pool),
        ))
    });
    fitting.min_by_key(|(cost, _)| *cost).map(|(_, pool)| pool)
}

impl Pool {
    /// How many workers of the gang an empty node holds; `None` where one task cannot have so many of its GPUs.
    fn holds(&self, gang: &Gang) -> Option<u32> {
        if self.parts && gang.gpus > 1 {
            return None;
        }
        let mut node = Left::of(self);
        let most = self.gpus / gang.gpus.max(1);
        Some((0..most).take_while(|_| node.takes(gang)).count() as u32)
    }
}

impl Left {
    fn of(pool: &Pool) -> Self {
        Self {
            gpus: pool.gpus,
            cpu_milli: pool.cpu_milli,
            memory_bytes: pool.memory_bytes,
        }
    }

    /// Takes one worker in, if there is room.
    fn takes(&mut self, gang: &Gang) -> bool {
        let rest = (
            self.gpus.checked_sub(gang.gpus),
            self.cpu_milli.checked_sub(gang.cpu_milli),
            self.memory_bytes.checked_sub(gang.memory_bytes),
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

    fn pool(gpus: u32, parts: bool) -> Pool {
        Pool {
            gpus,
            parts,
            part: String::new(),
            cpu_milli: 64_000,
            memory_bytes: 512 << 30,
            pod: k8s_openapi::api::core::v1::Pod::default(),
        }
    }

    fn pools(given: &[(&str, Pool)]) -> BTreeMap<String, Pool> {
        let given = given.iter();
        given
            .map(|(name, pool)| ((*name).to_owned(), pool.clone()))
            .collect()
    }

    fn gang(workers: u32, gpus: u32) -> Gang {
        Gang {
            workers,
            gpus,
            cpu_milli: 1_000,
            memory_bytes: 1 << 30,
        }
    }

    fn nodes(given: &[(&str, Pool)], gangs: &[Gang], most: u32) -> Vec<(String, u32)> {
        beside(given, &[], gangs, most)
    }

    fn beside(
        given: &[(&str, Pool)],
        idle: &[(&str, u32)],
        gangs: &[Gang],
        most: u32,
    ) -> Vec<(String, u32)> {
        let idle = idle.iter();
        let idle = idle
            .map(|(pool, count)| ((*pool).to_owned(), *count))
            .collect();
        wanted(&pools(given), &idle, gangs, most)
            .into_iter()
            .collect()
    }

    #[test]
    fn gangs_share_nodes_and_go_where_the_least_is_needed() {
        let both = [("large", pool(8, false)), ("small", pool(1, false))];
        let large = |count| vec![("large".to_owned(), count)];
        assert_eq!(nodes(&both, &[gang(1, 1)], 10), [("small".to_owned(), 1)]);
        assert_eq!(nodes(&both, &[gang(1, 8)], 10), large(1));
        // As many GPUs on one node as on sixteen.
        assert_eq!(nodes(&both, &[gang(16, 1)], 10), large(2));
        let two = [gang(1, 4), gang(1, 3), gang(1, 4)];
        assert_eq!(nodes(&both[..1], &two, 10), large(2));
        let mut hungry = gang(2, 1);
        hungry.memory_bytes = 300 << 30;
        assert_eq!(nodes(&both[..1], &[hungry], 10), large(2));
        assert_eq!(nodes(&both, &[], 10), []);
    }

    #[test]
    fn there_are_no_more_than_may_be_and_none_for_what_no_node_holds() {
        let one = [("large", pool(8, false)), ("parts", pool(7, true))];
        assert_eq!(nodes(&one, &[gang(100, 8)], 3), [("large".to_owned(), 3)]);
        assert_eq!(nodes(&one, &[gang(1, 9)], 3), []);
        // A process sees one part of a GPU and no more.
        assert_eq!(nodes(&one[1..], &[gang(1, 2)], 3), []);
        assert_eq!(
            nodes(&one[1..], &[gang(8, 1)], 3),
            [("parts".to_owned(), 2)]
        );
        let mut hungry = gang(1, 1);
        hungry.cpu_milli = 65_000;
        assert_eq!(nodes(&one, &[hungry], 3), []);
    }

    #[test]
    fn nodes_that_have_joined_and_stand_idle_are_not_asked_for_again() {
        let both = [("large", pool(8, false)), ("small", pool(1, false))];
        let large = |count| vec![("large".to_owned(), count)];
        let wide = [gang(8, 8)];
        assert_eq!(beside(&both, &[("large", 1)], &wide, 10), large(7));
        assert_eq!(beside(&both, &[("large", 7)], &wide, 10), large(1));
        assert_eq!(beside(&both, &[("large", 8)], &wide, 10), []);
        // Those of another pool do not help it, and what one gang is about to have is not there for the next.
        assert_eq!(beside(&both, &[("small", 9)], &wide, 10), large(8));
        let two = [gang(2, 8), gang(2, 8)];
        assert_eq!(beside(&both, &[("large", 3)], &two, 10), large(1));
        // They are none of those that may be asked for at once.
        assert_eq!(beside(&both, &[("large", 5)], &wide, 2), large(2));
    }
}
