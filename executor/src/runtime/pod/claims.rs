//! Persistent volume claims of a job that are bound at their first use (`WaitForFirstConsumer`).
//!
//! The provisioner creates the volume of such a claim when an annotation of the claim names a node.
//! The Kubernetes scheduler normally writes it. Task pods are bound to a node without that
//! scheduler, so the executor writes the annotation with its own node.

use super::answer::{PodRequestFailure, answered};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

/// Annotation that provisioners wait for.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Field manager of the patch.
const MANAGER: &str = "muster-executor";

/// Writes the annotation on each claim of the job's own volumes that is unbound and has none. A
/// refused request, for instance for lack of rights, is logged only; without its volume the pod
/// does not start, and the kubelet reports that.
///
/// # Errors
/// [`PodRequestFailure::Away`] if the API server does not answer.
pub async fn select_node(pods: &Api<Pod>, pod: &Pod, node: &str) -> Result<(), PodRequestFailure> {
    let Some(namespace) = pods.namespace() else {
        return Ok(());
    };
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(pods.clone().into_client(), namespace);
    for name in own_claims(pod) {
        let claim = match answered(claims.get_opt(name)).await? {
            Ok(Some(claim)) if waits_for_node(&claim) => claim,
            Ok(_) => continue,
            Err(refusal) => {
                tracing::warn!(claim = name, error = refusal.message, "a claim is not read");
                continue;
            }
        };
        let patch = json!({ "metadata": {
            "resourceVersion": claim.metadata.resource_version,
            "annotations": { SELECTED_NODE: node },
        } });
        let parameters = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        if let Err(refusal) =
            answered(claims.patch(name, &parameters, &Patch::Merge(patch))).await?
        {
            tracing::warn!(
                claim = name,
                node,
                error = refusal.message,
                "a claim's node is not set"
            );
        }
    }
    Ok(())
}

/// Returns the claim names of the volumes that the job's document adds to the pod template.
fn own_claims(pod: &Pod) -> impl Iterator<Item = &str> {
    let spec = pod.spec.as_ref();
    let volumes = spec.and_then(|spec| spec.volumes.as_deref());
    let own = volumes
        .unwrap_or_default()
        .iter()
        .filter(|volume| super::job_pod::is_job_volume(&volume.name));
    own.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()))
}

/// Whether the claim is unbound and has no node.
fn waits_for_node(claim: &PersistentVolumeClaim) -> bool {
    let phase = claim
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let annotations = claim.metadata.annotations.as_ref();
    phase.is_none_or(|phase| phase == "Pending")
        && annotations.is_none_or(|known| !known.contains_key(SELECTED_NODE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unbound_claims_without_a_node_get_one() {
        for (phase, node, waits) in [
            ("Pending", None, true),
            ("Pending", Some("gpu-1"), false),
            ("Bound", None, false),
            ("Lost", None, false),
        ] {
            let mut claim = json!({ "metadata": { "name": "data", "annotations": {} }, "status": { "phase": phase } });
            if let Some(node) = node {
                claim["metadata"]["annotations"][SELECTED_NODE] = node.into();
            }
            let claim = serde_json::from_value(claim).expect("a claim");
            assert_eq!(waits_for_node(&claim), waits, "{phase} {node:?}");
        }
    }

    #[test]
    fn claims_of_the_template_are_not_changed() {
        let pod = serde_json::from_value(
            json!({ "metadata": {}, "spec": { "containers": [], "volumes": [
            { "name": "checkpoints", "persistentVolumeClaim": { "claimName": "shared" } },
            { "name": "own-0", "persistentVolumeClaim": { "claimName": "numbers" } },
            { "name": "own-1", "emptyDir": {} },
        ] } }),
        )
        .expect("a pod");
        assert_eq!(own_claims(&pod).collect::<Vec<_>>(), ["numbers"]);
    }
}
