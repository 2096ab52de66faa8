//! Compares the desired with the observed state of the node and returns the steps to take.
//!
//! Pure: the same two states give the same steps. A step of an outdated comparison does no harm,
//! because its effect appears on the disk and the next comparison reads it there.

use muster_model::assignment::Peers;
use muster_model::id::TaskId;
use std::collections::{BTreeMap, BTreeSet};

/// The newest assignment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Desired {
    pub generation: u64,
    pub tasks: BTreeMap<TaskId, DesiredTask>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredTask {
    pub gpus: Vec<u32>,
    pub peers: Peers,
    pub stop: bool,
    /// Whether the stop follows a request for a checkpoint.
    pub asks: bool,
}

/// Observed state of the node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeObservation {
    /// Newest generation ever accepted, also before a restart.
    pub generation: u64,
    pub tasks: BTreeMap<TaskId, TaskObservation>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskObservation {
    pub life: TaskStage,
    pub gpus: Vec<u32>,
    /// Suspended as requested, so it uses none of its GPUs.
    pub is_suspended: bool,
    /// Asked for a checkpoint before its stop.
    pub is_asked: bool,
    /// As last written to the task's folder.
    pub peers: Peers,
}

impl TaskObservation {
    fn holds_gpus(&self) -> bool {
        let has_process = matches!(
            self.life,
            TaskStage::Starting | TaskStage::Running | TaskStage::Stopping
        );
        has_process && !self.is_suspended
    }
}

/// Stage of a task's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskStage {
    /// The folder exists; the process was never started.
    Prepared,
    /// The shim is starting. It will start the task or report why it did not.
    Starting,
    Running,
    /// Running and asked to stop.
    Stopping,
    Ended {
        /// The end, all events and the whole log are acknowledged.
        settled: bool,
    },
}

/// One action of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconcileStep {
    /// Start the task's process; happens at most once.
    Launch(TaskId),
    /// Never start the task; report its end.
    Withdraw(TaskId),
    /// Write `peers.json` again.
    WritePeers(TaskId),
    /// SIGTERM, grace, SIGKILL.
    Stop(TaskId),
    /// Ask the program for a checkpoint; the shim then stops the task.
    Ask(TaskId),
    /// The scheduler has all data of the task: stop reporting; the folder may be removed.
    Forget(TaskId),
}

/// Returns the steps towards the desired state. Steps that stop or forget tasks precede launches.
///
/// Without an assignment since the start of the daemon there are no steps: running tasks continue.
/// An assignment with an older generation than an accepted one gives no steps either.
#[must_use]
pub fn steps(desired: Option<&Desired>, observed: &NodeObservation) -> Vec<ReconcileStep> {
    let Some(desired) = desired else {
        return Vec::new();
    };
    if desired.generation < observed.generation {
        return Vec::new();
    }
    let unwanted = observed
        .tasks
        .iter()
        .filter(|(id, _)| !desired.tasks.contains_key(id));
    let mut steps: Vec<ReconcileStep> = unwanted
        .filter_map(|(id, task)| away(*id, task.life))
        .collect();
    let busy = busy_gpus(observed);
    let mut launches = Vec::new();
    for (id, wanted) in &desired.tasks {
        match observed.tasks.get(id) {
            None => launches.push((*id, wanted)),
            Some(task) if task.life == TaskStage::Prepared => launches.push((*id, wanted)),
            Some(task) => steps.extend(keep(*id, wanted, task)),
        }
    }
    steps.extend(
        launches
            .into_iter()
            .filter_map(|(id, wanted)| begin(id, wanted, &busy)),
    );
    steps
}

/// Step for a task that is no longer in the assignment.
fn away(id: TaskId, life: TaskStage) -> Option<ReconcileStep> {
    match life {
        TaskStage::Prepared => Some(ReconcileStep::Withdraw(id)),
        TaskStage::Starting | TaskStage::Running => Some(ReconcileStep::Stop(id)),
        TaskStage::Ended { settled: true } => Some(ReconcileStep::Forget(id)),
        TaskStage::Stopping | TaskStage::Ended { settled: false } => None,
    }
}

/// Steps for an assigned task that was started before, by this daemon or a predecessor. The peers
/// are written before the stop, so that the task knows whether the others continue without it.
fn keep(
    id: TaskId,
    wanted: &DesiredTask,
    task: &TaskObservation,
) -> impl Iterator<Item = ReconcileStep> + use<> {
    let (learns, stops) = match task.life {
        TaskStage::Running => (wanted.peers != task.peers, wanted.stop),
        // The shim may not be able to receive a stop yet; then the next poll repeats it.
        TaskStage::Starting => (wanted.peers != task.peers, wanted.stop),
        TaskStage::Prepared | TaskStage::Stopping | TaskStage::Ended { .. } => (false, false),
    };
    let learns = learns.then_some(ReconcileStep::WritePeers(id));
    let stop = match (wanted.asks, task.is_asked) {
        (false, _) => Some(ReconcileStep::Stop(id)),
        (true, false) => Some(ReconcileStep::Ask(id)),
        (true, true) => None,
    };
    learns.into_iter().chain(stop.filter(|_| stops))
}

/// Step for a task that is to start. It waits while another process holds one of its GPUs. The
/// scheduler frees a GPU only after that process has ended; this check also holds if the scheduler
/// is wrong.
fn begin(id: TaskId, wanted: &DesiredTask, busy: &BTreeSet<u32>) -> Option<ReconcileStep> {
    if wanted.stop {
        return Some(ReconcileStep::Withdraw(id));
    }
    let is_free = wanted.gpus.iter().all(|gpu| !busy.contains(gpu));
    is_free.then_some(ReconcileStep::Launch(id))
}

fn busy_gpus(observed: &NodeObservation) -> BTreeSet<u32> {
    observed
        .tasks
        .values()
        .filter(|task| task.holds_gpus())
        .flat_map(|task| task.gpus.iter().copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::TaskStage::{Ended, Prepared, Running, Starting, Stopping};
    use super::*;
    use uuid::Uuid;

    const SETTLED: TaskStage = Ended { settled: true };
    const UNSETTLED: TaskStage = Ended { settled: false };

    fn id(number: u128) -> TaskId {
        TaskId(Uuid::from_u128(number))
    }

    #[test]
    fn program_is_asked_once_and_a_plain_stop_ends_the_wait() {
        for (asks, is_asked, expected) in [
            (true, false, Some(ReconcileStep::Ask(id(1)))),
            (true, true, None),
            (false, true, Some(ReconcileStep::Stop(id(1)))),
        ] {
            let wanted = DesiredTask {
                gpus: Vec::new(),
                peers: Peers::default(),
                stop: true,
                asks,
            };
            let task = TaskObservation {
                life: Running,
                is_suspended: false,
                is_asked,
                gpus: Vec::new(),
                peers: Peers::default(),
            };
            let steps: Vec<_> = keep(id(1), &wanted, &task).collect();
            assert_eq!(steps, Vec::from_iter(expected), "{asks} {is_asked}");
        }
    }

    /// Cases of one task: the wish (`None` if missing, otherwise whether to stop), the observation,
    /// the step.
    #[test]
    fn steps_of_one_task() {
        let (launch, withdraw, stop) = (
            ReconcileStep::Launch(id(1)),
            ReconcileStep::Withdraw(id(1)),
            ReconcileStep::Stop(id(1)),
        );
        let table = [
            ("launch", Some(false), None, Some(launch)),
            (
                "launch what a killed daemon only prepared",
                Some(false),
                Some(Prepared),
                Some(launch),
            ),
            ("its shim is on the way", Some(false), Some(Starting), None),
            (
                "adopt: it runs, by whomever it was started",
                Some(false),
                Some(Running),
                None,
            ),
            (
                "a stop cannot be withdrawn",
                Some(false),
                Some(Stopping),
                None,
            ),
            (
                "ended, the scheduler has not seen it",
                Some(false),
                Some(UNSETTLED),
                None,
            ),
            (
                "ended: it is never started twice",
                Some(false),
                Some(SETTLED),
                None,
            ),
            (
                "withdraw what never started",
                Some(true),
                None,
                Some(withdraw),
            ),
            (
                "withdraw what was prepared",
                Some(true),
                Some(Prepared),
                Some(withdraw),
            ),
            (
                "stop what is on the way",
                Some(true),
                Some(Starting),
                Some(stop),
            ),
            ("stop", Some(true), Some(Running), Some(stop)),
            ("stop once", Some(true), Some(Stopping), None),
            (
                "stopped and kept until missing",
                Some(true),
                Some(SETTLED),
                None,
            ),
            ("missing: withdraw", None, Some(Prepared), Some(withdraw)),
            (
                "missing: stop what is on the way",
                None,
                Some(Starting),
                Some(stop),
            ),
            ("missing: stop", None, Some(Running), Some(stop)),
            ("missing: it is stopping", None, Some(Stopping), None),
            (
                "missing: keep until acknowledged",
                None,
                Some(UNSETTLED),
                None,
            ),
            (
                "missing: forget",
                None,
                Some(SETTLED),
                Some(ReconcileStep::Forget(id(1))),
            ),
            ("nothing", None, None, None),
        ];
        for (what, wanted, life, expected) in table {
            let mut desired = Desired {
                generation: 5,
                ..Desired::default()
            };
            if let Some(stop) = wanted {
                desired.tasks.insert(
                    id(1),
                    DesiredTask {
                        gpus: vec![0],
                        peers: Peers::default(),
                        stop,
                        asks: false,
                    },
                );
            }
            let mut observed = NodeObservation {
                generation: 5,
                ..NodeObservation::default()
            };
            if let Some(life) = life {
                observed.tasks.insert(
                    id(1),
                    TaskObservation {
                        life,
                        is_suspended: false,
                        is_asked: false,
                        gpus: vec![0],
                        peers: Peers::default(),
                    },
                );
            }
            assert_eq!(
                steps(Some(&desired), &observed),
                Vec::from_iter(expected),
                "{what}"
            );
            let newer = NodeObservation {
                generation: 6,
                ..observed.clone()
            };
            assert_eq!(
                steps(Some(&desired), &newer),
                [],
                "{what}, by an older generation"
            );
            assert_eq!(steps(None, &observed), [], "{what}, before any assignment");
        }
    }

    #[test]
    fn changed_peers_are_written_unless_the_task_has_ended() {
        let peers = Peers {
            revision: 1,
            ..Peers::default()
        };
        let (learns, stops) = (ReconcileStep::WritePeers(id(1)), ReconcileStep::Stop(id(1)));
        let old = Peers::default();
        for (life, old, stop, expected) in [
            (Running, old.clone(), false, vec![learns]),
            (Starting, old.clone(), false, vec![learns]),
            (Running, peers.clone(), false, vec![]),
            (UNSETTLED, old.clone(), false, vec![]),
            // The task must know first that the others continue without it.
            (Running, old, true, vec![learns, stops]),
        ] {
            let wanted = DesiredTask {
                gpus: vec![],
                peers: peers.clone(),
                stop,
                asks: false,
            };
            let desired = Desired {
                generation: 1,
                tasks: BTreeMap::from([(id(1), wanted)]),
            };
            let task = TaskObservation {
                life,
                is_suspended: false,
                is_asked: false,
                gpus: vec![],
                peers: old,
            };
            let observed = NodeObservation {
                generation: 1,
                tasks: BTreeMap::from([(id(1), task)]),
            };
            assert_eq!(steps(Some(&desired), &observed), expected, "{life:?}");
        }
    }

    #[test]
    fn launch_waits_for_a_held_gpu() {
        let wanted = DesiredTask {
            gpus: vec![1, 2],
            peers: Peers::default(),
            stop: false,
            asks: false,
        };
        let desired = Desired {
            generation: 1,
            tasks: BTreeMap::from([(id(2), wanted)]),
        };
        for (life, is_suspended, expected) in [
            (Running, false, vec![ReconcileStep::Stop(id(1))]),
            (
                Running,
                true,
                vec![ReconcileStep::Stop(id(1)), ReconcileStep::Launch(id(2))],
            ),
            (Stopping, false, vec![]),
            (Starting, false, vec![ReconcileStep::Stop(id(1))]),
            (UNSETTLED, false, vec![ReconcileStep::Launch(id(2))]),
            (
                SETTLED,
                false,
                vec![ReconcileStep::Forget(id(1)), ReconcileStep::Launch(id(2))],
            ),
        ] {
            let task = TaskObservation {
                life,
                is_suspended,
                is_asked: false,
                gpus: vec![2],
                peers: Peers::default(),
            };
            let observed = NodeObservation {
                generation: 1,
                tasks: BTreeMap::from([(id(1), task)]),
            };
            assert_eq!(steps(Some(&desired), &observed), expected, "{life:?}");
        }
    }
}
