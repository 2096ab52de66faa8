//! Conversion of a pod's status to the state of its task. Pure.

use super::template::is_of_task;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};
use muster_model::task::Outcome;

/// Waiting reasons of a container that waiting does not remove, or not soon.
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
/// Reasons of a pod that ran and was ended by its node.
const EVICTED: [&str; 6] = [
    "Evicted",
    "NodeLost",
    "NodeShutdown",
    "Preempting",
    "Shutdown",
    "Terminated",
];

/// Kubelet messages of an eviction because the pod itself, and not the node, exceeds a disk limit.
const OVER_LIMIT: [&str; 3] = [
    "Usage of EmptyDir volume",
    "ephemeral local storage usage exceeds",
    "exceeded its local ephemeral storage limit",
];

/// The relevant parts of one pod's status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskPodStatus {
    /// Its container has ended, and with it every process of the pod.
    pub is_over: bool,
    /// Its deletion was requested.
    pub is_deleted: bool,
    /// Reason why its container has not started.
    pub waits: Option<PodWaitReason>,
    /// Reason of the pod's end, set by its node and not by its containers.
    pub reason: Option<String>,
    pub message: String,
    /// End of its container.
    pub ended: Option<PodTermination>,
    /// Name and end of a failed init container.
    pub prelude: Option<(String, PodTermination)>,
}

/// Reason why a container has not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodWaitReason {
    pub why: String,
    /// Waiting does not remove the cause soon.
    pub is_persistent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTermination {
    pub reason: String,
    pub code: i32,
    pub message: String,
}

impl TaskPodStatus {
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let phase = status.phase.as_deref().unwrap_or_default();
        let is_over = matches!(phase, "Succeeded" | "Failed");
        let state = state(pod, &status);
        let ended = state.and_then(ended);
        let has_begun = ended.is_some() || state.is_some_and(|state| state.running.is_some());
        let before = status.init_container_statuses.iter().flatten();
        let prelude = before.filter_map(failed).next();
        Self {
            is_over,
            is_deleted: pod.metadata.deletion_timestamp.is_some(),
            waits: (!is_over && !has_begun).then(|| waits(state, &status)),
            reason: status.reason.clone().filter(|reason| !reason.is_empty()),
            message: status.message.clone().unwrap_or_default(),
            ended,
            prelude,
        }
    }

    /// Returns the outcome of a task without a recorded one, whose pod has ended. `has_run`: the
    /// task was seen running.
    #[must_use]
    pub fn outcome(&self, has_run: bool) -> Outcome {
        self.taken_away(has_run)
            .unwrap_or_else(|| self.own_end(has_run))
    }

    /// Whether the node rejected the pod.
    #[must_use]
    pub fn is_refused(&self, has_run: bool) -> bool {
        self.outcome(has_run).is_refusal()
    }

    /// Returns the outcome if the node or a deletion ended the pod, and not its containers.
    fn taken_away(&self, has_run: bool) -> Option<Outcome> {
        if let Some(reason) = &self.reason
            && (has_run || EVICTED.contains(&reason.as_str()))
        {
            if reason == "Evicted" && OVER_LIMIT.iter().any(|one| self.message.contains(one)) {
                return Some(Outcome::over_limit(self.message.clone()));
            }
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
            None if self.prelude.is_some() => {
                let (name, ended) = self.prelude.as_ref().expect("just looked");
                let why = sentence(&ended.reason, &ended.message);
                Outcome::LaunchFailed {
                    message: format!(
                        "the container {name:?}, which is to end before it starts, ended with code {}: {why}",
                        ended.code
                    ),
                }
            }
            // Another pod came first, or the node has less capacity than assumed. The job is not
            // the cause.
            None => {
                let reason = self.reason.as_deref().unwrap_or("no reason was given");
                Outcome::refused(sentence(reason, &self.message))
            }
        }
    }
}

/// Returns the state of the container that runs the task: a pod may have further containers.
fn state<'a>(pod: &Pod, status: &'a PodStatus) -> Option<&'a ContainerState> {
    let spec = pod.spec.as_ref();
    let own = spec.and_then(|spec| spec.containers.iter().find(|one| is_of_task(one)));
    let mut all = status.container_statuses.iter().flatten();
    let found = match own {
        Some(own) => all.find(|status| status.name == own.name),
        None => all.next(),
    };
    found?.state.as_ref()
}

fn ended(state: &ContainerState) -> Option<PodTermination> {
    let ended = state.terminated.clone()?;
    Some(PodTermination {
        reason: ended.reason.unwrap_or_default(),
        code: ended.exit_code,
        message: ended.message.unwrap_or_default(),
    })
}

fn failed(status: &ContainerStatus) -> Option<(String, PodTermination)> {
    let ended = ended(status.state.as_ref()?)?;
    (ended.code != 0).then(|| (status.name.clone(), ended))
}

/// Returns the reason for which the task's container or an init container waits.
fn waits(state: Option<&ContainerState>, status: &PodStatus) -> PodWaitReason {
    let before = status.init_container_statuses.iter().flatten();
    let states = before.filter_map(|status| status.state.as_ref());
    let reasons = states.chain(state).filter_map(|state| {
        let waiting = state.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        let message = waiting.message.as_deref().unwrap_or_default();
        Some(PodWaitReason {
            why: sentence(reason, message),
            is_persistent: STUCK.contains(&reason),
        })
    });
    let mut worst = PodWaitReason {
        why: "its node has said nothing of it".to_owned(),
        is_persistent: false,
    };
    for next in reasons {
        if next.is_persistent || !worst.is_persistent {
            worst = next;
        }
    }
    worst
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

    fn status(status: &Value) -> TaskPodStatus {
        let pod = json!({ "metadata": { "name": "x" }, "status": status });
        TaskPodStatus::of(&serde_json::from_value(pod).expect("a pod"))
    }

    fn container(state: &Value) -> Value {
        json!([named("task", state)])
    }

    fn named(name: &str, state: &Value) -> Value {
        json!({ "name": name, "image": "a", "imageID": "", "ready": false, "restartCount": 0, "state": state })
    }

    #[test]
    fn reason_of_the_node_becomes_the_outcome() {
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
            "evicted by Kubernetes: Evicted: The node was low on resource: memory."
        );
        let refused = status(
            &json!({ "phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu" }),
        );
        // It never ran and did not cause this: another pod may have been placed there first.
        assert!(refused.outcome(false).is_node_fault());
        assert!(
            refused.is_refused(false) && !refused.is_refused(true) && !evicted.is_refused(false)
        );
        assert_eq!(
            refused.outcome(false).to_string(),
            "refused by its node: OutOfcpu: Node didn't have enough resource: cpu"
        );
    }

    #[test]
    fn pod_over_its_own_disk_limit_is_charged() {
        for message in [
            "Usage of EmptyDir volume \"own-0\" exceeds the limit \"1Gi\". ",
            "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. ",
            "Container task exceeded its local ephemeral storage limit \"1Gi\". ",
        ] {
            let evicted =
                status(&json!({ "phase": "Failed", "reason": "Evicted", "message": message }));
            let outcome = evicted.outcome(true);
            assert!(!outcome.is_node_fault() && !outcome.is_clean(), "{message}");
            assert_eq!(
                outcome.to_string(),
                format!("ended for more of the disk than it was given: {message}")
            );
        }
    }

    #[test]
    fn missing_image_counts_as_stuck() {
        for (reason, is_persistent) in [("ImagePullBackOff", true), ("ContainerCreating", false)] {
            let state = json!({ "waiting": { "reason": reason, "message": "Back-off pulling image \"a\"" } });
            let pending = json!({ "phase": "Pending", "containerStatuses": container(&state) });
            let why = format!("{reason}: Back-off pulling image \"a\"");
            let expected = PodWaitReason { why, is_persistent };
            assert_eq!(status(&pending).waits, Some(expected));
        }
        let running = json!({ "phase": "Running", "containerStatuses": container(&json!({ "running": {} })) });
        assert_eq!(status(&running).waits, None);
        let missing = json!({ "terminated": { "exitCode": 128, "reason": "StartError", "message": "no such file" } });
        let missing =
            status(&json!({ "phase": "Failed", "containerStatuses": container(&missing) }));
        assert_eq!(
            missing.outcome(false).to_string(),
            "could not be started: its pod ended with code 128: StartError: no such file"
        );
        assert_eq!(missing.outcome(true), Outcome::NodeLost);
    }

    /// Status of a pod with another container before the task's.
    fn meshed(status: &Value) -> TaskPodStatus {
        let own = json!({ "name": "task", "env": [{ "name": "MUSTER_TASK_HOST" }] });
        let spec = json!({ "containers": [{ "name": "proxy" }, own] });
        let pod = json!({ "metadata": { "name": "x" }, "spec": spec, "status": status });
        TaskPodStatus::of(&serde_json::from_value(pod).expect("a pod"))
    }

    /// Service meshes add containers, and templates may contain init containers.
    #[test]
    fn status_is_of_the_task_container_or_a_failed_init_container() {
        let killed = json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } });
        let fine = json!({ "terminated": { "exitCode": 0, "reason": "Completed" } });
        let beside = meshed(&json!({
            "phase": "Failed",
            "containerStatuses": [named("proxy", &killed), named("task", &fine)],
        }));
        assert_eq!(beside.outcome(true), Outcome::NodeLost);
        let creating = json!({ "waiting": { "reason": "PodInitializing" } });
        let missing = json!({ "waiting": { "reason": "ErrImagePull", "message": "none" } });
        let before = meshed(&json!({
            "phase": "Pending",
            "initContainerStatuses": [named("fetch", &missing)],
            "containerStatuses": [named("task", &creating)],
        }));
        assert_eq!(
            before.waits,
            Some(PodWaitReason {
                why: "ErrImagePull: none".to_owned(),
                is_persistent: true
            })
        );
        let wrong =
            json!({ "terminated": { "exitCode": 3, "reason": "Error", "message": "no such set" } });
        let failed = meshed(&json!({
            "phase": "Failed",
            "initContainerStatuses": [named("fetch", &wrong)],
            "containerStatuses": [named("task", &creating)],
        }));
        assert_eq!(
            failed.outcome(false).to_string(),
            "could not be started: the container \"fetch\", which is to end before it starts, ended with code 3: Error: no such set"
        );
    }
}
