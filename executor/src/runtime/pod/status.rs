//! What the status of a pod says of the task in it. Pure.

use super::template::is_of_task;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};
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

/// What kubelets say of a pod that they evict because it, and not the node, has used more of the disk than it may.
const OVER_LIMIT: [&str; 3] = [
    "Usage of EmptyDir volume",
    "ephemeral local storage usage exceeds",
    "exceeded its local ephemeral storage limit",
];

/// What we look at, of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Its container has ended, and with it every process in it.
    pub is_over: bool,
    /// Somebody has asked for its end.
    pub is_deleted: bool,
    /// Why its container has not started.
    pub waits: Option<Waits>,
    /// Why it ended, of the pod: set by its node, not by what ran in it.
    pub reason: Option<String>,
    pub message: String,
    /// How its container ended.
    pub ended: Option<Ended>,
    /// How a container ended that had to succeed before it, and did not: its name too.
    pub prelude: Option<(String, Ended)>,
}

/// What a container that has not started waits for, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    pub why: String,
    /// That is not soon mended.
    pub in_vain: bool,
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

    /// How the task ended that left no word of it, its pod being over. `has_run`: the task was seen to run.
    #[must_use]
    pub fn outcome(&self, has_run: bool) -> Outcome {
        self.taken_away(has_run)
            .unwrap_or_else(|| self.own_end(has_run))
    }

    /// Whether it is over because its node would not begin with it.
    #[must_use]
    pub fn is_refused(&self, has_run: bool) -> bool {
        self.outcome(has_run).is_refusal()
    }

    /// Its node, or somebody by way of the API server, has ended it, and not what ran in it.
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
            // Somebody else's pod came first, or the node has less than it was taken for: the job did not do that.
            None => {
                let reason = self.reason.as_deref().unwrap_or("no reason was given");
                Outcome::refused(sentence(reason, &self.message))
            }
        }
    }
}

/// Of the container that runs the task: others may have been put beside it.
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

fn ended(state: &ContainerState) -> Option<Ended> {
    let ended = state.terminated.clone()?;
    Some(Ended {
        reason: ended.reason.unwrap_or_default(),
        code: ended.exit_code,
        message: ended.message.unwrap_or_default(),
    })
}

fn failed(status: &ContainerStatus) -> Option<(String, Ended)> {
    let ended = ended(status.state.as_ref()?)?;
    (ended.code != 0).then(|| (status.name.clone(), ended))
}

/// What the task's container waits for, or one that is to end before it starts.
fn waits(state: Option<&ContainerState>, status: &PodStatus) -> Waits {
    let before = status.init_container_statuses.iter().flatten();
    let states = before.filter_map(|status| status.state.as_ref());
    let reasons = states.chain(state).filter_map(|state| {
        let waiting = state.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        let message = waiting.message.as_deref().unwrap_or_default();
        Some(Waits {
            why: sentence(reason, message),
            in_vain: STUCK.contains(&reason),
        })
    });
    let mut worst = Waits {
        why: "its node has said nothing of it".to_owned(),
        in_vain: false,
    };
    for next in reasons {
        if next.in_vain || !worst.in_vain {
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
        // It never ran, and did nothing for that: somebody else's pod may have been there first.
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
    fn who_fills_more_of_the_disk_than_it_was_given_did_that_itself() {
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
    fn an_image_that_cannot_be_had_is_waited_for_in_vain() {
        let waiting = |reason: &str| {
            let state = json!({ "waiting": { "reason": reason, "message": "Back-off pulling image \"a\"" } });
            let waits =
                status(&json!({ "phase": "Pending", "containerStatuses": container(&state) }))
                    .waits;
            let Waits { why, in_vain } = waits.expect("it has not begun");
            (why, in_vain)
        };
        let words = |reason: &str| format!("{reason}: Back-off pulling image \"a\"");
        assert_eq!(
            waiting("ImagePullBackOff"),
            (words("ImagePullBackOff"), true)
        );
        assert_eq!(
            waiting("ContainerCreating"),
            (words("ContainerCreating"), false)
        );
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
    /// Meshes put containers beside the task's, templates put some before it.
    #[test]
    fn only_the_tasks_own_container_speaks_for_it_and_those_before_it_may_fail_it() {
        let of = |name: &str, state: &Value| json!({ "name": name, "image": "a", "imageID": "", "ready": false, "restartCount": 0, "state": state });
        let pod = |status: Value| {
            let own = json!({ "name": "task", "env": [{ "name": "MUSTER_TASK_HOST" }] });
            let spec = json!({ "containers": [{ "name": "proxy" }, own] });
            let pod = json!({ "metadata": { "name": "x" }, "spec": spec, "status": status });
            Status::of(&serde_json::from_value(pod).expect("a pod"))
        };
        let killed = json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } });
        let fine = json!({ "terminated": { "exitCode": 0, "reason": "Completed" } });
        let beside = pod(json!({
            "phase": "Failed",
            "containerStatuses": [of("proxy", &killed), of("task", &fine)],
        }));
        assert_eq!(beside.outcome(true), Outcome::NodeLost);
        let creating = json!({ "waiting": { "reason": "PodInitializing" } });
        let missing = json!({ "waiting": { "reason": "ErrImagePull", "message": "none" } });
        let before = pod(json!({
            "phase": "Pending",
            "initContainerStatuses": [of("fetch", &missing)],
            "containerStatuses": [of("task", &creating)],
        }));
        assert_eq!(
            before.waits,
            Some(Waits {
                why: "ErrImagePull: none".to_owned(),
                in_vain: true
            })
        );
        let wrong =
            json!({ "terminated": { "exitCode": 3, "reason": "Error", "message": "no such set" } });
        let failed = pod(json!({
            "phase": "Failed",
            "initContainerStatuses": [of("fetch", &wrong)],
            "containerStatuses": [of("task", &creating)],
        }));
        assert_eq!(
            failed.outcome(false).to_string(),
            "could not be started: the container \"fetch\", which is to end before it starts, ended with code 3: Error: no such set"
        );
    }
}
