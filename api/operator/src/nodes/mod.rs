//! `Node`: what Kubernetes says of a machine is told to Muster, and what an administrator drains in Muster is cordoned in Kubernetes.
//!
//! Each side's wish stands beside the other's and neither ends the other: Kubernetes' is Muster's notice of the node, which is replaced as a
//! whole; Muster's is an annotation, by which a cordon of our own is known. Who runs where is not decided here.

mod deleted;
mod known;
mod said;

pub use said::{CORDONED, Settings, said};

use self::known::Known;
use crate::error::Error;
use crate::operator::Context;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::Controller;
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use kube::{Resource as _, ResourceExt as _};
use muster_model::node::Notice;
use muster_model::view::NodeView;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at a node: somebody may have drained it in Muster, or its executor may have come.
const LOOK: Duration = Duration::from_secs(5);

/// What every look needs.
pub struct Follower {
    context: Arc<Context>,
    settings: Settings,
    known: Known,
}

/// Runs until the process ends.
pub async fn run(context: Arc<Context>, settings: Settings) {
    let nodes = Api::<Node>::all(context.kubernetes.clone());
    let follower = Arc::new(Follower::new(context, settings));
    let controller = Controller::new(nodes, watcher::Config::default());
    let there = controller.store();
    let following = controller
        .run(reconcile, again, Arc::clone(&follower))
        .for_each(|done| async { crate::operator::told("Node", done) });
    tokio::join!(following, deleted::follow(&follower, there));
}

fn again(node: Arc<Node>, _: &Error, follower: Arc<Follower>) -> Action {
    let uid = node.uid().unwrap_or_default();
    Action::requeue(follower.context.backoff.failed(&uid))
}

/// # Errors
/// When Kubernetes or Muster does not answer; nothing is lost by it.
pub async fn reconcile(node: Arc<Node>, follower: Arc<Follower>) -> Result<Action, Error> {
    let name = in_muster(&node.name_any());
    // Until its executor comes, Muster does not know it.
    if let Some(view) = follower.known(&name).await? {
        let foreign = follower.foreign(&node).await?;
        let notice = said(&node, &follower.settings, &foreign);
        follower.tell(&view, notice).await?;
        follower.cordon(&node, &view).await?;
    }
    let uid = node.uid().unwrap_or_default();
    follower.context.backoff.succeeded(&uid);
    Ok(Action::requeue(LOOK))
}

/// As its executor is called: Muster's names have no dots.
#[must_use]
pub fn in_muster(name: &str) -> String {
    name.replace('.', "-")
}

impl Follower {
    #[must_use]
    pub fn new(context: Arc<Context>, settings: Settings) -> Self {
        Self {
            context,
            settings,
            known: Known::default(),
        }
    }

    async fn known(&self, name: &str) -> Result<Option<NodeView>, Error> {
        let client = self.context.tenants.admin()?;
        self.known.node(&client, name).await
    }

    /// What Kubernetes says, if Muster has heard something else.
    async fn tell(&self, view: &NodeView, notice: Notice) -> Result<(), Error> {
        if view.notice.as_ref() == Some(&notice) {
            return Ok(());
        }
        tracing::info!(node.name = view.name, ?notice, "told");
        let client = self.context.tenants.admin()?;
        let told = client.notice(&view.name, &notice).await;
        self.known.forget().await;
        told.map(|_| ()).map_err(Error::muster(
            "what Kubernetes says of a node was not taken",
        ))
    }

    /// Cordons what an administrator has drained in Muster, once, and ends that cordon with the drain. Whoever uncordons it in Kubernetes
    /// meanwhile is not fought with, and a cordon of somebody else's is left alone.
    async fn cordon(&self, node: &Node, view: &NodeView) -> Result<(), Error> {
        if !self.settings.cordons {
            return Ok(());
        }
        let is_ours = node.annotations().contains_key(CORDONED);
        let is_cordoned = said::is_cordoned(node);
        let patch = match (view.drained, is_ours) {
            (true, false) if !is_cordoned => {
                json!({ "metadata": { "annotations": { CORDONED: "drained" } }, "spec": { "unschedulable": true } })
            }
            (false, true) => {
                json!({ "metadata": { "annotations": { CORDONED: null } }, "spec": { "unschedulable": null } })
            }
            (true, _) | (false, false) => return Ok(()),
        };
        self.patch(node, patch).await
    }

    async fn patch(&self, node: &Node, mut patch: Value) -> Result<(), Error> {
        // Not another of the name, and nothing that has changed meanwhile: who cordons it at the same time is not overruled.
        patch["metadata"]["resourceVersion"] = node.meta().resource_version.clone().into();
        patch["metadata"]["uid"] = node.uid().into();
        let api = Api::<Node>::all(self.context.kubernetes.clone());
        let parameters = PatchParams::default();
        match api
            .patch(&node.name_any(), &parameters, &Patch::Merge(patch))
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(Error::kubernetes("a node was not cordoned or uncordoned")(
                error,
            )),
        }
    }

    /// Pods on the node that hold GPUs and are none of Muster's.
    async fn foreign(&self, node: &Node) -> Result<Vec<Pod>, Error> {
        let Some(resource) = &self.settings.foreign else {
            return Ok(Vec::new());
        };
        let api = Api::<Pod>::all(self.context.kubernetes.clone());
        let here = ListParams::default().fields(&format!("spec.nodeName={}", node.name_any()));
        let mut pods = api
            .list(&here)
            .await
            .map_err(Error::kubernetes("the pods of a node were not listed"))?
            .items;
        pods.retain(|pod| said::is_foreign(pod, resource));
        Ok(pods)
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
