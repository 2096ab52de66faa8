//! Nodes that were deleted from Kubernetes while their executors are still connected to Muster,
//! because a removed machine is notified last. Their tasks move away; tasks that do not finish in
//! time are lost with the executor's lease, as on any node.

use super::{NodeReconciler, all_in_muster};
use crate::error::Error;
use muster_model::node::{Closed, NodeState, Notice};
use muster_model::view::NodeView;
use std::collections::BTreeSet;
use std::time::Duration;

const LOOK: Duration = Duration::from_secs(5);

/// Runs until the process ends.
pub(super) async fn follow(reconciler: &NodeReconciler) {
    if reconciler.nodes.wait_until_ready().await.is_err() {
        return;
    }
    // Nodes deleted before this operator started have lost their executors. Nodes of other clusters
    // were never seen, even if their operator has the same name.
    let mut seen = BTreeSet::new();
    loop {
        let there: BTreeSet<String> = reconciler
            .names()
            .iter()
            .flat_map(|name| all_in_muster(name, &reconciler.settings.parts))
            .collect();
        seen.extend(there.iter().cloned());
        let gone: BTreeSet<String> = seen.difference(&there).cloned().collect();
        crate::error::log_retry("Node", close(reconciler, &gone).await);
        tokio::time::sleep(LOOK).await;
    }
}

/// Closes the deleted nodes for all tasks.
///
/// # Errors
/// If Muster does not answer; the next run continues.
async fn close(reconciler: &NodeReconciler, gone: &BTreeSet<String>) -> Result<(), Error> {
    if gone.is_empty() {
        return Ok(());
    }
    let client = reconciler.context.tenants.admin()?;
    for view in reconciler.node_cache.all(&client).await? {
        if is_gone(&view, &reconciler.settings.speaker, gone) {
            let rack = view.notice.as_ref().and_then(|notice| notice.rack.clone());
            let notice = Notice {
                closed: Closed::ToAll,
                why: "its node was deleted in Kubernetes".to_owned(),
                rack,
                labels: view
                    .notice
                    .as_ref()
                    .map(|notice| notice.labels.clone())
                    .unwrap_or_default(),
                gpus: view.notice.as_ref().and_then(|notice| notice.gpus.clone()),
                taken: view.notice.as_ref().map_or(0, |notice| notice.taken),
                by: Some(reconciler.settings.speaker.clone()),
            };
            reconciler.send_notice(&view, notice).await?;
        }
    }
    Ok(())
}

/// Whether this operator has reported the node and its cluster has deleted it. A machine outside
/// Kubernetes has no notice or an administrator's, and one of another cluster has a notice of that
/// cluster's operator.
fn is_gone(view: &NodeView, speaker: &str, gone: &BTreeSet<String>) -> bool {
    let notice = view.notice.as_ref();
    let is_ours = notice.is_some_and(|notice| notice.by.as_deref() == Some(speaker));
    view.state == NodeState::Up && is_ours && gone.contains(&view.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(by: Option<&str>) -> NodeView {
        let notice = json!({ "closed": "open", "by": by });
        let capacity = json!({ "gpus": [], "cpu_milli": 0, "memory_bytes": 0 });
        let node = json!({
            "id": "01890000-0000-7000-8000-000000000001", "name": "a", "state": "up", "drained": false, "notice": notice,
            "generation": 1, "capacity": capacity, "last_seen_at": "2026-01-01T00:00:00Z", "gpus": [],
        });
        serde_json::from_value(node).expect("a node")
    }

    #[test]
    fn only_nodes_reported_by_this_operator_count_as_deleted() {
        let (none, gone) = (BTreeSet::new(), BTreeSet::from(["a".to_owned()]));
        assert!(is_gone(&node(Some("here")), "here", &gone));
        // Node of another cluster whose operator has the same name.
        assert!(!is_gone(&node(Some("here")), "here", &none));
        assert!(!is_gone(&node(Some("elsewhere")), "here", &gone));
        assert!(!is_gone(&node(None), "here", &gone));
    }
}
