//! Which placeholders are made and which are ended. Pure.

use super::pod::{There, name};
use super::settings::Settings;
use std::collections::{BTreeMap, BTreeSet};

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Pool and number of each.
    pub make: Vec<(String, u32)>,
    pub end: Vec<There>,
}

/// `wanted` nodes of each pool; `coming` are those that have come up and that Muster does not know yet. A placeholder for which a node was
/// found has done what it was there for: whatever it holds of that node, tasks are to have. One that does not keep away from all of `hosts` yet gives
/// way to another that does, or it would go where no room is wanted.
#[must_use]
pub fn steps(
    settings: &Settings,
    wanted: &BTreeMap<String, u32>,
    coming: &BTreeMap<String, u32>,
    there: &[There],
    hosts: &BTreeSet<String>,
) -> Steps {
    let mut steps = Steps::default();
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    let mut waiting: BTreeMap<&str, Vec<&There>> = BTreeMap::new();
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
        let count = |of: &BTreeMap<String, u32>| of.get(pool).copied().unwrap_or_default();
        let wanted = count(wanted).saturating_sub(count(coming)) as usize;
        let mut pods = waiting.remove(pool.as_str()).unwrap_or_default();
        pods.sort_unstable_by_key(|pod| (pod.name.len(), pod.name.clone()));
        // Those that were made last have waited least.
        steps
            .end
            .extend(pods.iter().skip(wanted).map(|pod| (*pod).clone()));
        let free = (0..).filter(|number| !taken.contains(name(settings, pool, *number).as_str()));
        let missing = wanted.saturating_sub(pods.len());
        let made = free.take(missing).map(|number| (pool.clone(), number));
        steps.make.extend(made);
    }
    // A node that one of them has found is free for the others as soon as that one has ended.
    steps.end.sort_by_key(|pod| pod.node.is_some());
    steps
}
