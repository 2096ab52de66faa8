//! Nodes that are gone from Kubernetes while their executors still speak to Muster: a machine that is taken away hears of it last. What runs
//! there moves away, and what does not make it is lost with the executor's lease, as with every node.

use super::{Follower, in_muster};
use crate::error::Error;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::runtime::reflector::Store;
use muster_model::node::{Closed, NodeState, Notice};
use muster_model::view::NodeView;
use std::collections::BTreeSet;
use std::time::Duration;

const LOOK: Duration = Duration::from_secs(5);

/// Runs until the process ends.
pub(super) async fn follow(follower: &Follower, there: Store<Node>) {
    if there.wait_until_ready().await.is_err() {
        return;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        let names = there
            .state()
            .iter()
            .map(|node| in_muster(&node.name_any()))
            .collect();
        crate::operator::told("Node", close(follower, &names).await);
    }
}

/// # Errors
/// When Muster does not answer; nothing is lost by it.
async fn close(follower: &Follower, there: &BTreeSet<String>) -> Result<(), Error> {
    let client = follower.context.tenants.admin()?;
    for view in follower.known.all(&client).await? {
        if is_gone(&view, there) {
            let rack = view.notice.as_ref().and_then(|notice| notice.rack.clone());
            let notice = Notice {
                closed: Closed::ToAll,
                why: "its node was deleted in Kubernetes".to_owned(),
                rack,
            };
            follower.tell(&view, notice).await?;
        }
    }
    Ok(())
}

/// Kubernetes has spoken of it once, and has it no more. Machines that were never Kubernetes' have no notice.
fn is_gone(view: &NodeView, there: &BTreeSet<String>) -> bool {
    view.state == NodeState::Up && view.notice.is_some() && !there.contains(&view.name)
}
