//! Placeholders to create and to delete. Pure.

use super::pod::{PlaceholderPod, name};
use super::settings::PlaceholderSettings;
use std::collections::{BTreeMap, BTreeSet};

/// Creations and deletions of one run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PlaceholderSteps {
    /// Pool and number of each.
    pub make: Vec<(String, u32)>,
    pub end: Vec<PlaceholderPod>,
}

/// Computes the steps. `wanted` is the number of nodes of each pool; `coming` counts nodes that
/// exist and have not joined Muster. A placeholder with a node is deleted, because its requests
/// block capacity for tasks. A placeholder that does not exclude all of `hosts` is replaced,
/// because it could be placed on a node where no capacity is needed.
#[must_use]
pub fn steps(
    settings: &PlaceholderSettings,
    wanted: &BTreeMap<String, u32>,
    coming: &BTreeMap<String, u32>,
    there: &[PlaceholderPod],
    hosts: &BTreeSet<String>,
) -> PlaceholderSteps {
    let mut steps = PlaceholderSteps::default();
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    let mut waiting: BTreeMap<&str, Vec<&PlaceholderPod>> = BTreeMap::new();
    for pod in there {
        taken.insert(&pod.name);
        if pod.is_going {
            continue;
        }
        let is_old = !pod.away.is_superset(hosts);
        let is_done = pod.has_ended || pod.node.is_some();
        if is_old || is_done || !settings.pools.contains_key(&pod.pool) {
            steps.end.push(pod.clone());
        } else {
            waiting.entry(&pod.pool).or_default().push(pod);
        }
    }
    for pool in settings.pools.keys() {
        let wanted = count(wanted, pool).saturating_sub(count(coming, pool)) as usize;
        let mut pods = waiting.remove(pool.as_str()).unwrap_or_default();
        pods.sort_unstable_by_key(|pod| (pod.name.len(), pod.name.clone()));
        // The highest numbers are deleted first; as a rule they were created last.
        steps
            .end
            .extend(pods.iter().skip(wanted).map(|pod| (*pod).clone()));
        let free = (0..).filter(|number| !taken.contains(name(settings, pool, *number).as_str()));
        let missing = wanted.saturating_sub(pods.len());
        let made = free.take(missing).map(|number| (pool.clone(), number));
        steps.make.extend(made);
    }
    // Placeholders with a node are deleted last; earlier, their nodes would become free for the
    // others.
    steps.end.sort_by_key(|pod| pod.node.is_some());
    steps
}

fn count(of: &BTreeMap<String, u32>, pool: &str) -> u32 {
    of.get(pool).copied().unwrap_or_default()
}
