//! Excludes nodes on which jobs fail repeatedly. They take no new tasks until an administrator
//! reopens them.
//!
//! A job that also fails elsewhere does not count against a node. A node must stand out among the
//! others. Only a part of the cluster may be excluded, so that a program that crashes everywhere
//! does not close it. Jobs that run there stay.

use crate::plan::NodeDecision;
use crate::policy::{BadNodes, Policy, StartLimit};
use crate::snapshot::{ClusterSnapshot, SnapshotNode};
use muster_model::fault::NodeFault;
use muster_model::id::{JobId, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Errors of one GPU within this time count as one. A broken GPU is reported by several error
/// numbers and by the counters of its memory.
const SAME_ERROR_MS: i64 = 60_000;
const LONGEST_REST_MS: u64 = 3_600_000;
/// A node stands out if its count exceeds this multiple of the median of the other nodes.
const STANDS_OUT: u32 = 2;

/// Nodes to exclude, worst first.
pub(crate) fn to_exclude(snapshot: &ClusterSnapshot, policy: &BadNodes) -> Vec<NodeDecision> {
    let up: Vec<&SnapshotNode> = snapshot.nodes.iter().filter(|node| node.up).collect();
    let closed = up.iter().filter(|node| node.excluded).count();
    let room = most(up.len(), policy).saturating_sub(closed);
    if room == 0 || up.iter().all(|node| node.faults.is_empty()) {
        return Vec::new();
    }
    let charges = charges(snapshot, policy);
    let counted: Vec<(u32, &SnapshotNode)> = up
        .iter()
        .map(|node| (charges.get(&node.id).copied().unwrap_or(0), *node))
        .collect();
    let mut bad: Vec<(u32, &SnapshotNode)> = counted
        .iter()
        .copied()
        .filter(|(count, node)| !node.excluded && *count >= policy.faults.max(1))
        .filter(|(count, node)| {
            let others = counted.iter().filter(|(_, other)| other.id != node.id);
            *count > STANDS_OUT * median(others.map(|(count, _)| *count).collect())
        })
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

/// Nodes that did not start tasks in time and take no new tasks for a while.
pub(crate) fn resting(snapshot: &ClusterSnapshot, policy: &Policy) -> BTreeSet<NodeId> {
    let Some(limit) = policy.start_limit else {
        return BTreeSet::new();
    };
    let nodes = snapshot.nodes.iter();
    let resting = nodes.filter(|node| snapshot.now_ms < rests_until_ms(node, limit));
    resting.map(|node| node.id).collect()
}

/// End of the rest of a node after late starts: the start limit of processes after the last one.
/// That time doubles with each further fault, up to an hour. Unix ms; `i64::MIN` without a late
/// start.
fn rests_until_ms(node: &SnapshotNode, limit: StartLimit) -> i64 {
    let late: Vec<i64> = node
        .faults
        .iter()
        .filter(|fault| fault.what == NodeFault::Hang { at_start: true })
        .map(|fault| fault.at_ms)
        .collect();
    let Some(last_ms) = late.iter().max() else {
        return i64::MIN;
    };
    let further = u32::try_from(late.len() - 1).unwrap_or(u32::MAX);
    let pause_ms = limit
        .process_ms
        .saturating_mul(1 << further.min(32))
        .min(LONGEST_REST_MS);
    last_ms.saturating_add(i64::try_from(pause_ms).unwrap_or(i64::MAX))
}

/// Maximum number of nodes that may be excluded at one time.
fn most(up: usize, policy: &BadNodes) -> usize {
    (up as f64 * policy.most_share) as usize
}

/// Counts per node: different jobs that failed there and nowhere else, plus errors of the machine
/// itself.
fn charges(snapshot: &ClusterSnapshot, policy: &BadNodes) -> BTreeMap<NodeId, u32> {
    let window_ms = i64::try_from(policy.window_ms).unwrap_or(i64::MAX);
    let since_ms = snapshot.now_ms.saturating_sub(window_ms);
    let mut places: BTreeMap<JobId, BTreeSet<NodeId>> = BTreeMap::new();
    let mut charges: BTreeMap<NodeId, u32> = BTreeMap::new();
    for node in &snapshot.nodes {
        let mut errors = Vec::new();
        for fault in node.faults.iter().filter(|fault| fault.at_ms >= since_ms) {
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

/// Number of distinct errors of a node, given with GPU and time. Errors without a GPU each count.
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

fn why(count: u32, node: &SnapshotNode, policy: &BadNodes) -> String {
    let newest = node.faults.iter().max_by_key(|fault| fault.at_ms);
    let newest = newest.map_or_else(String::new, |fault| format!("; the last: {}", fault.what));
    let minutes = policy.window_ms / 60_000;
    let jobs = node.faults.iter().any(|fault| fault.job.is_some());
    let machine = node.faults.iter().any(|fault| fault.job.is_none());
    let what = match (jobs, machine) {
        (true, false) => "jobs failed there",
        (false, _) => "errors of its hardware",
        (true, true) => "failed jobs and errors of its hardware",
    };
    format!("{count} {what} within {minutes} minutes, and on no other node{newest}")
}
