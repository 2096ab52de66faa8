//! What the status of a pod says of the task in it. Pure.

use k8s_openapi::api::core::v1::{ContainerState, Pod, PodStatus};
use muster_model::task::Outcome;

/// Reasons for which a container waits that no waiting will mend, or not soon.
const STUCK: [&str; 8] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];
/// Of a pod that ran, and was ended by its node for the node's own sake.
const EVICTED: [&str; 6] = [
    "Evicted",
    "NodeLost",
    "NodeShutdown",
    "Preempting",
    "Shutdown",
    "Terminated",
];

/// What we look at, of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Its container has ended, and with it every process in it.
    pub is_over: bool,
    /// Somebody has asked for its end.
    pub is_deleted: bool,
    /// Why its container does not start, in words, if that is not soon mended.
    pub stuck: Option<String>,
    /// Why it ended, of the pod: set by its node, not by what ran in it.
    pub reason: Option<String>,
    pub message: String,
    /// How its container ended.
    pub ended: Option<Ended>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub reason: String,
    pub code: i32,
    pub message: String,
}

impl Status {
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let phase = status.phase.as_deref().unwrap_or_default();
        let state = state(&status);
        let ended = state.and_then(|state| state.terminated.clone());
        let stuck = state
            .and_then(|state| state.waiting.as_ref())
            .and_then(|waiting| {
                let reason = waiting.reason.as_deref()?;
                let message = waiting.message.as_deref().unwrap_or_default();
                STUCK.contains(&reason).then(|| sentence(reason, message))
            });
        Self {
            is_over: matches!(phase, "Succeeded" | "Failed"),
            is_deleted: pod.metadata.deletion_timestamp.is_some(),
            stuck,
            reason: status.reason.clone().filter(|reason| !reason.is_empty()),
            message: status.message.clone().unwrap_or_default(),
            ended: ended.map(|ended| Ended {
                reason: ended.reason.unwrap_or_default(),
                code: ended.exit_code,
                message: ended.message.unwrap_or_default(),
            }),
        }
    }

    /// How the task ended that left no word of it, its pod being over. `has_run`: the task was seen to run.
    #[must_use]
    pub fn outcome(&self, has_run: bool) -> Outcome {
        self.taken_away(has_run)
            .unwrap_or_else(|| self.own_end(has_run))
    }

    /// Its node, or somebody by way of the API server, has ended it, and not what ran in it.
    fn taken_away(&self, has_run: bool) -> Option<Outcome> {
        if let Some(reason) = &self.reason
            && (has_run || EVICTED.contains(&reason.as_str()))
        {
            return Some(Outcome::Evicted {
                reason: reason.clone(),
                message: self.message.clone(),
            });
        }
        self.is_deleted.then(Outcome::pod_deleted)
    }

    fn own_end(&self, has_run: bool) -> Outcome {
        match &self.ended {
            Some(ended) if ended.reason == "OOMKilled" => Outcome::OutOfMemory,
            Some(_) if has_run => Outcome::NodeLost,
            Some(ended) => {
                let why = sentence(&ended.reason, &ended.message);
                Outcome::LaunchFailed {
                    message: format!("its pod ended with code {}: {why}", ended.code),
                }
            }
            None if has_run => Outcome::NodeLost,
            None => {
                let reason = self.reason.as_deref().unwrap_or("no reason was given");
                Outcome::LaunchFailed {
                    message: format!(
                        "its node refused its pod: {}",
                        sentence(reason, &self.message)
                    ),
                }
            }
        }
    }
}

fn state(status: &PodStatus) -> Option<&ContainerState> {
    status.container_statuses.as_ref()?.first()?.state.as_ref()
}

fn sentence(reason: &str, message: &str) -> String {
    match (reason, message.trim()) {
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn status(status: &Value) -> Status {
        let pod = json!({ "metadata": { "name": "x" }, "status": status });
        Status::of(&serde_json::from_value(pod).expect("a pod"))
    }

    fn container(state: &Value) -> Value {
        json!([{ "name": "task", "image": "a", "imageID": "", "ready": false, "restartCount": 0, "state": state }])
    }

    #[test]
    fn what_a_node_says_becomes_an_outcome_that_names_it() {
        let killed = json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } });
        let killed = status(&json!({ "phase": "Failed", "containerStatuses": container(&killed) }));
        assert!(killed.is_over);
        assert_eq!(killed.outcome(true), Outcome::OutOfMemory);
        assert!(!Outcome::OutOfMemory.is_node_fault());
        let evicted = status(
            &json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory." }),
        );
        let taken = evicted.outcome(true);
        assert!(taken.is_node_fault());
        assert_eq!(
            taken.to_string(),
            "taken off its node by Kubernetes: Evicted: The node was low on resource: memory."
        );
        let refused = status(
            &json!({ "phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu" }),
        );
        // It never ran: who asks for too much pays for it.
        assert_eq!(
            refused.outcome(false).to_string(),
            "could not be started: its node refused its pod: OutOfcpu: Node didn't have enough resource: cpu"
        );
    }

    #[test]
    fn an_image_that_cannot_be_had_is_waited_for_in_vain() {
        let waiting = |reason: &str| {
            let state = json!({ "waiting": { "reason": reason, "message": "Back-off pulling image \"a\"" } });
            status(&json!({ "phase": "Pending", "containerStatuses": container(&state) })).stuck
        };
        assert_eq!(
            waiting("ImagePullBackOff").as_deref(),
            Some("ImagePullBackOff: Back-off pulling image \"a\"")
        );
        assert_eq!(waiting("ContainerCreating"), None);
        let missing = json!({ "terminated": { "exitCode": 128, "reason": "StartError", "message": "no such file" } });
        let missing =
            status(&json!({ "phase": "Failed", "containerStatuses": container(&missing) }));
        assert_eq!(
            missing.outcome(false).to_string(),
            "could not be started: its pod ended with code 128: StartError: no such file"
        );
        assert_eq!(missing.outcome(true), Outcome::NodeLost);
    }
}
