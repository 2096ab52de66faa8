//! `Node`: reports the state of Kubernetes' nodes to Muster, and cordons nodes in Kubernetes that
//! an administrator has drained in Muster.
//!
//! The two directions are independent. The state in Kubernetes is Muster's node notice, which is
//! replaced as a whole. A drain in Muster becomes a cordon with an annotation, by which the
//! operator recognises its own cordon. This module does not decide placement.

mod cordon_annotation;
mod deleted;
mod external_pods;
mod external_use;
mod node_cache;
mod node_notice;
mod placeholder;
mod pod_requests;
mod release;
mod tolerated;

pub use external_use::ExternalGpuUse;
pub use node_notice::{NodeSettings, node_notice};
pub use placeholder::{PlaceholderSettings, PlaceholderSettingsError, Placeholders};
pub use release::Release;
pub use tolerated::ToleratedTaint;

use self::external_pods::{ExternalPodCache, NodeExternalUse};
use self::external_use::{counted_resource, counts, external_use};
use self::node_cache::NodeCache;
use crate::clock;
use crate::context::OperatorContext;
use crate::error::{Error, log_retry};
use crate::work_queue::{self, WorkQueue};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::Controller;
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Resource as _, ResourceExt as _};
use muster_model::node::{Closed, Notice};
use muster_model::view::NodeView;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Separator between the name of a machine and of a part of its GPUs, in the names of Muster's
/// nodes.
const BEFORE_PART: &str = "--";

/// Reconcile interval of a node, which may have been drained in Muster or have got an executor.
const LOOK: Duration = Duration::from_secs(5);

/// Shared state of all node reconciliations.
pub struct NodeReconciler {
    context: Arc<OperatorContext>,
    settings: NodeSettings,
    node_cache: NodeCache,
    external_pods: ExternalPodCache,
    /// All nodes of Kubernetes, from the watch.
    nodes: Store<Node>,
}

/// Runs until the process ends.
pub async fn run(
    context: Arc<OperatorContext>,
    settings: NodeSettings,
    placeholders: Option<Placeholders>,
) {
    let nodes = Api::<Node>::all(context.kubernetes.clone());
    let controller =
        Controller::new(nodes, watcher::Config::default()).with_config(work_queue::settings());
    let reconciler = Arc::new(NodeReconciler::new(context, settings, controller.store()));
    let queue = WorkQueue::of(controller.store());
    let following = controller
        .run(
            move |node, reconciler| {
                queue
                    .clone()
                    .run(node, false, |node| reconcile(node, reconciler))
            },
            again,
            Arc::clone(&reconciler),
        )
        .for_each(|done| async { log_retry("Node", done) });
    let standing_in = async {
        if let Some(placeholders) = placeholders {
            placeholders.follow(&reconciler).await;
        }
    };
    tokio::join!(following, deleted::follow(&reconciler), standing_in);
}

fn again(node: Arc<Node>, _: &Error, reconciler: Arc<NodeReconciler>) -> Action {
    let uid = node.uid().unwrap_or_default();
    Action::requeue(reconciler.context.backoff.failed(&uid))
}

/// Reconciles a node once.
///
/// # Errors
/// If Kubernetes or Muster does not answer; the next reconciliation continues.
pub async fn reconcile(node: Arc<Node>, reconciler: Arc<NodeReconciler>) -> Result<Action, Error> {
    let began = clock::monotonic();
    let done = reconciler.reconcile(&node).await;
    reconciler.context.metrics.reconciled("Node", began, &done);
    done
}

/// Returns the name of the node's executor; names in Muster have no dots.
#[must_use]
pub fn in_muster(name: &str) -> String {
    name.replace('.', "-")
}

/// Returns the possible names of Muster's nodes of this machine: the machine itself, and each part
/// of its GPUs with an executor of its own.
fn all_in_muster<'a>(name: &str, parts: &'a [String]) -> impl Iterator<Item = String> + use<'a> {
    let whole = in_muster(name);
    let of_part = {
        let whole = whole.clone();
        move |part: &'a String| format!("{whole}{BEFORE_PART}{part}")
    };
    std::iter::once(whole).chain(parts.iter().map(of_part))
}

/// Returns why a machine takes no tasks if another one has the same name in Muster. Their executors
/// would replace each other, and the state of one would be reported for the other.
fn namesake(name: &str, all: &[String]) -> Option<String> {
    let other = all
        .iter()
        .find(|other: &&String| *other != name && in_muster(other) == in_muster(name))?;
    let mut both = [name, other];
    both.sort_unstable();
    Some(format!(
        "Kubernetes has two nodes that are called {} here, {} and {}; rename one of them",
        in_muster(name),
        both[0],
        both[1]
    ))
}

/// Returns a notice that is equal for both machines; different notices would replace each other for
/// ever.
fn of_namesakes(why: String, notice: Notice) -> Notice {
    Notice {
        closed: Closed::ToNew,
        why,
        rack: None,
        labels: BTreeMap::new(),
        gpus: None,
        taken: 0,
        ..notice
    }
}

/// Whether the whole machine is drained in Muster: all of its nodes that count ([`counts`]). A
/// cordon affects the whole machine, so pods may use it while one of its parts is in use.
fn is_drained(views: &[NodeView]) -> bool {
    let counts = counts(views);
    let mut there = views.iter().filter(|view| counts(view));
    there.all(|view| view.drained)
}

impl NodeReconciler {
    #[must_use]
    pub fn new(context: Arc<OperatorContext>, settings: NodeSettings, nodes: Store<Node>) -> Self {
        Self {
            context,
            settings,
            nodes,
            node_cache: NodeCache::default(),
            external_pods: ExternalPodCache::default(),
        }
    }

    async fn reconcile(&self, node: &Node) -> Result<Action, Error> {
        // Muster does not know the machine before its first executor has joined.
        let views = self.muster_nodes(&node.name_any()).await?;
        // The two directions are independent, so an error of one does not prevent the other.
        let mut result = Ok(());
        let foreign = self.foreign(node).await?;
        let taken = external_use(node, &views, &foreign, &self.settings.seen_as);
        for (view, taken) in views.iter().zip(&taken) {
            let sent = self.report(node, view, (taken, &foreign)).await;
            result = sent.and(result);
        }
        self.cordon(node, &views).await?;
        result?;
        let uid = node.uid().unwrap_or_default();
        self.context.backoff.succeeded(&uid);
        Ok(Action::requeue(LOOK))
    }

    /// Returns Muster's nodes of this machine.
    async fn muster_nodes(&self, name: &str) -> Result<Vec<NodeView>, Error> {
        let client = self.context.tenants.admin()?;
        let mut views = Vec::new();
        for name in all_in_muster(name, &self.settings.parts) {
            views.extend(self.node_cache.node(&client, &name).await?);
        }
        Ok(views)
    }

    async fn report(
        &self,
        node: &Node,
        view: &NodeView,
        (taken, foreign): (&ExternalGpuUse, &NodeExternalUse),
    ) -> Result<(), Error> {
        let mut notice = node_notice(node, &self.settings, taken, counted_resource(view));
        if let Some(why) = namesake(&node.name_any(), &self.names()) {
            notice = of_namesakes(why, notice);
        }
        if view.notice.as_ref() != Some(&notice) && *taken != ExternalGpuUse::Nothing {
            tracing::info!(
                node.name = view.name,
                ?foreign,
                "pods that are not Muster's are there"
            );
        }
        self.send_notice(view, notice).await
    }

    /// Returns the names of all nodes of Kubernetes.
    fn names(&self) -> Vec<String> {
        let there = self.nodes.state();
        there.iter().map(|node| node.name_any()).collect()
    }

    /// Sends the notice, if it differs from Muster's and that one has no other author, such as
    /// another cluster's operator or an administrator.
    async fn send_notice(&self, view: &NodeView, notice: Notice) -> Result<(), Error> {
        let before = view.notice.as_ref();
        if before == Some(&notice) {
            return Ok(());
        }
        if let Some(before) = before.filter(|before| !before.yields_to(&self.settings.speaker)) {
            tracing::debug!(node.name = view.name, by = ?before.by, "another manager reports the node");
            return Ok(());
        }
        tracing::info!(node.name = view.name, ?notice, "told");
        let client = self.context.tenants.admin()?;
        match client.notice(&view.name, &notice).await {
            Ok(told) => {
                self.node_cache.learn(told).await;
                Ok(())
            }
            Err(error) => {
                self.node_cache.forget().await;
                Err(Error::muster(
                    "what Kubernetes says of a node was not taken",
                )(error))
            }
        }
    }

    /// Cordons a machine that an administrator has drained in Muster, and ends that cordon with the
    /// drain.
    async fn cordon(&self, node: &Node, views: &[NodeView]) -> Result<(), Error> {
        if !self.settings.cordons || views.is_empty() {
            return Ok(());
        }
        match cordon_annotation::cordon_patch(node, &self.settings.speaker, is_drained(views)) {
            Some(patch) => self.patch(node, patch).await,
            None => Ok(()),
        }
    }

    async fn patch(&self, node: &Node, mut patch: Value) -> Result<(), Error> {
        // The uid excludes another node with the same name, and the version excludes a concurrent
        // change, so that a cordon at the same time is not overridden.
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

    /// Returns the resources that pods outside Muster hold on the node.
    async fn foreign(&self, node: &Node) -> Result<NodeExternalUse, Error> {
        if !self.settings.foreign_pods {
            return Ok(NodeExternalUse::default());
        }
        let own = self.settings.release.as_ref();
        self.external_pods
            .on(&self.context, &node.name_any(), own)
            .await
    }
}

impl std::fmt::Debug for NodeReconciler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeReconciler")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::external_use::counted_resource;
    use super::{all_in_muster, is_drained, namesake, of_namesakes};
    use muster_model::node::{Labelled, NodeState, Notice};
    use muster_model::view::NodeView;
    use serde_json::{Value, json};

    #[test]
    fn node_names_that_differ_only_in_dots_are_reported() {
        let all = ["gpu.1", "gpu-1", "gpu-2"].map(str::to_owned);
        for name in ["gpu.1", "gpu-1"] {
            let why = namesake(name, &all).expect("there is another");
            assert!(why.contains("called gpu-1 here, gpu-1 and gpu.1"), "{why}");
        }
        assert_eq!(namesake("gpu-2", &all), None);
    }

    fn shared_notice(rack: &str, why: &str) -> Notice {
        let notice = Notice {
            why: why.to_owned(),
            rack: Some(rack.to_owned()),
            gpus: Some(Labelled {
                model: rack.to_owned(),
                memory_bytes: 1,
                compute_capability: None,
            }),
            taken: 1,
            by: Some("here".to_owned()),
            ..Notice::default()
        };
        of_namesakes("two of a name".to_owned(), notice)
    }

    #[test]
    fn nodes_with_one_name_get_equal_notices() {
        assert_eq!(shared_notice("a", "taken"), shared_notice("b", ""));
        assert_eq!(shared_notice("a", "").by.as_deref(), Some("here"));
    }

    fn view(drained: bool, gpu: Value) -> NodeView {
        serde_json::from_value(json!({
            "id": "01890000-0000-7000-8000-000000000001", "name": "a", "state": "up", "drained": drained, "notice": null,
            "generation": 1, "last_seen_at": "2026-01-01T00:00:00Z",
            "capacity": { "gpus": [gpu], "cpu_milli": 1, "memory_bytes": 1 }, "gpus": [],
        }))
        .expect("a node")
    }

    fn mig_gpu(memory_bytes: u64) -> Value {
        json!({ "index": 0, "kind": "cuda", "model": "nvidia.com/mig-1g.10gb", "memory_bytes": memory_bytes })
    }

    #[test]
    fn labels_are_reported_for_counted_gpus_only() {
        assert_eq!(
            counted_resource(&view(false, mig_gpu(0))),
            Some("nvidia.com/mig-1g.10gb")
        );
        assert_eq!(counted_resource(&view(false, mig_gpu(7))), None);
    }

    fn part(drained: bool) -> NodeView {
        let gpu = json!({ "index": 0, "kind": "cuda", "model": "x", "memory_bytes": 0 });
        view(drained, gpu)
    }

    fn lost_part(drained: bool) -> NodeView {
        let mut view = part(drained);
        view.state = NodeState::Lost;
        view
    }

    #[test]
    fn machine_is_cordoned_once_all_parts_are_drained() {
        assert!(is_drained(&[part(true), part(true)]));
        assert!(!is_drained(&[part(true), part(false)]));
        assert!(
            is_drained(&[part(true), lost_part(false)]),
            "it is not there"
        );
        assert!(!is_drained(&[part(false), lost_part(true)]));
        assert!(is_drained(&[lost_part(true)]), "its executor may come back");
        assert!(!is_drained(&[lost_part(true), lost_part(false)]));
        let parts = ["1g", "3g"].map(str::to_owned);
        let names: Vec<String> = all_in_muster("gpu-7.example", &parts).collect();
        assert_eq!(
            names,
            ["gpu-7-example", "gpu-7-example--1g", "gpu-7-example--3g"]
        );
    }
}
