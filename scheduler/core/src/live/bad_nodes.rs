//! Nodes on which job after job fails: they take no new tasks until an administrator lets them.
//!
//! A job that also fails elsewhere says nothing of a node, a node must stand out among the others, and however bad it looks only a part of
//! the cluster is closed: a program that crashes everywhere must not close it. Jobs that run there stay.

use crate::plan::NodeDecision;
use crate::policy::{BadNodes, Policy};
use crate::snapshot::{Fault, Node, Snapshot};
use muster_model::fault::NodeFault;
use muster_model::id::{JobId, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Errors of one GPU within so long are one: a broken one is told of by several numbers, and by the counters of its memory too.
const SAME_ERROR_MS: i64 = 60_000;
const LONGEST_REST_MS: u64 = 3_600_000;
/// A node stands out with more than so many times the median of the others.
const STANDS_OUT: u32 = 2;

/// Whom to close, the worst first.
pub(crate) fn judge(snapshot: &Snapshot, policy: &BadNodes) -> Vec<NodeDecision> {
    let up: Vec<&Node> = snapshot.nodes.iter().filter(|node| node.up).collect();
    let closed = up.iter().filter(|node| node.excluded).count();
    let room = most(up.len(), policy).saturating_sub(closed);
    if room == 0 || up.iter().all(|node| node.faults.is_empty()) {
        return Vec::new();
    }
    let charges = charges(snapshot, policy);
    let count = |node: &Node| charges.get(&node.id).copied().unwrap_or(0);
    let mut bad: Vec<(u32, &Node)> = up
        .iter()
        .filter(|node| !node.excluded && count(node) >= policy.faults.max(1))
        .filter(|node| {
            let others = up.iter().filter(|other| other.id != node.id);
            let median = median(others.map(|other| count(other)).collect());
            count(node) > STANDS_OUT * median
        })
        .map(|node| (count(node), *node))
        .collect();
    bad.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.name.cmp(&b.1.name)));
    let decided = bad
        .into_iter()
        .take(room)
        .map(|(count, node)| NodeDecision {
            node: node.id,
            why: why(count, node, policy),
        });
    decided.collect()
}

/// Nodes that have not started tasks in time, and rest: they take no new tasks for as long as a start may take, twice as long after each
/// further time, and an hour at most.
pub(crate) fn resting(snapshot: &Snapshot, policy: &Policy) -> BTreeSet<NodeId> {
    let Some(limit) = policy.start_limit else {
        return BTreeSet::new();
    };
    let rests = |node: &&Node| {
        let late = |fault: &&Fault| fault.what == NodeFault::Hang { at_start: true };
        let late = node.faults.iter().filter(late).map(|fault| fault.at_ms);
        let times = u32::try_from(late.clone().count()).unwrap_or(u32::MAX);
        let Some(last_ms) = late.max() else {
            return false;
        };
        let pause_ms = limit
            .process_ms
            .saturating_mul(1 << times.saturating_sub(1).min(32))
            .min(LONGEST_REST_MS);
        snapshot.now_ms < last_ms.saturating_add(i64::try_from(pause_ms).unwrap_or(i64::MAX))
    };
    let nodes = snapshot.nodes.iter().filter(rests);
    nodes.map(|node| node.id).collect()
}

/// Nodes that may be closed at once.
fn most(up: usize, policy: &BadNodes) -> usize {
    (up as f64 * policy.most_share) as usize
}

/// Different jobs that failed on a node and nowhere else, and faults that are the machine's for certain.
fn charges(snapshot: &Snapshot, policy: &BadNodes) -> BTreeMap<NodeId, u32> {
    let window_ms = i64::try_from(policy.window_ms).unwrap_or(i64::MAX);
    let since_ms = snapshot.now_ms.saturating_sub(window_ms);
    let recent = |fault: &&Fault| fault.at_ms >= since_ms;
    let mut places: BTreeMap<JobId, BTreeSet<NodeId>> = BTreeMap::new();
    let mut charges: BTreeMap<NodeId, u32> = BTreeMap::new();
    for node in &snapshot.nodes {
        let mut errors = Vec::new();
        for fault in node.faults.iter().filter(recent) {
            match fault.job {
                Some(job) => drop(places.entry(job).or_default().insert(node.id)),
                None => errors.push((fault.what.gpu(), fault.at_ms)),
            }
        }
        let errors = u32::try_from(told_apart(errors)).unwrap_or(u32::MAX);
        if errors > 0 {
            charges.insert(node.id, errors);
        }
    }
    for nodes in places.values().filter(|nodes| nodes.len() == 1) {
        for node in nodes {
            *charges.entry(*node).or_default() += 1;
        }
    }
    charges
}

/// How many of a node's errors, each with its GPU and its time, are not one with an earlier one. Of what is no GPU's each counts.
fn told_apart(mut errors: Vec<(Option<u32>, i64)>) -> usize {
    errors.sort_unstable();
    let mut last: Option<(u32, i64)> = None;
    errors.retain(|&(gpu, at_ms)| {
        let Some(gpu) = gpu else { return true };
        let is_same = last.is_some_and(|(of, since_ms)| {
            of == gpu && at_ms.saturating_sub(since_ms) < SAME_ERROR_MS
        });
        if !is_same {
            last = Some((gpu, at_ms));
        }
        !is_same
    });
    errors.len()
}

fn median(mut counts: Vec<u32>) -> u32 {
    counts.sort_unstable();
    counts.get(counts.len() / 2).copied().unwrap_or(0)
}

fn why(count: u32, node: &Node, policy: &BadNodes) -> String {
    let newest = node.faults.iter().max_by_key(|fault| fault.at_ms);
    let newest = newest.map_or_else(String::new, |fault| format!("; the last: {}", fault.what));
    let minutes = policy.window_ms / 60_000;
    format!("{count} jobs failed there within {minutes} minutes and nowhere else{newest}")
}
