//! Compares what the node is told with what it sees and says what to do. Pure: the same two views always give the same steps, and carrying
//! out the steps of an older view does no harm, because each is looked at anew once the disk shows its effect.

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
}

/// What the node sees of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Newest generation ever taken on, restarts included.
    pub generation: u64,
    pub tasks: BTreeMap<TaskId, SeenTask>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenTask {
    pub life: SeenLife,
    pub gpus: Vec<u32>,
    /// It stands still and uses none of them, as it was told.
    pub stands_still: bool,
    /// As last written to its folder.
    pub peers: Peers,
}

/// How far a task's process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenLife {
    /// Its folder is there, its process was never started.
    Prepared,
    /// Its shim is on the way and will start it, or say why not.
    Starting,
    Running,
    /// Running, and told by us to stop.
    Stopping,
    Ended {
        /// Its end, all its events and all its log are acknowledged.
        settled: bool,
    },
}

/// One thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Start its process, once and for all.
    Launch(TaskId),
    /// It never starts; its end is reported.
    Withdraw(TaskId),
    /// Write the peers anew.
    WritePeers(TaskId),
    /// SIGTERM, grace, SIGKILL.
    Stop(TaskId),
    /// The scheduler has all of it: no more reports, and its folder may go.
    Forget(TaskId),
}

/// What brings the node nearer to what is desired, in the order to do it: what ends comes before what starts. Without an assignment (none
/// since the daemon started) there is nothing to do: tasks found running are simply kept. An assignment older than one taken on before
/// changes nothing.
#[must_use]
pub fn steps(desired: Option<&Desired>, seen: &Seen) -> Vec<Step> {
    let Some(desired) = desired else {
        return Vec::new();
    };
    if desired.generation < seen.generation {
        return Vec::new();
    }
    let unwanted = seen
        .tasks
        .iter()
        .filter(|(id, _)| !desired.tasks.contains_key(id));
    let mut steps: Vec<Step> = unwanted
        .filter_map(|(id, task)| away(*id, task.life))
        .collect();
    let busy = busy_gpus(seen);
    let mut launches = Vec::new();
    for (id, wanted) in &desired.tasks {
        match seen.tasks.get(id) {
            None => launches.push((*id, wanted)),
            Some(task) if task.life == SeenLife::Prepared => launches.push((*id, wanted)),
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

/// A task that is no longer in the assignment.
fn away(id: TaskId, life: SeenLife) -> Option<Step> {
    match life {
        SeenLife::Prepared => Some(Step::Withdraw(id)),
        SeenLife::Starting | SeenLife::Running => Some(Step::Stop(id)),
        SeenLife::Ended { settled: true } => Some(Step::Forget(id)),
        SeenLife::Stopping | SeenLife::Ended { settled: false } => None,
    }
}

/// A task in the assignment that was started before, by this daemon or an earlier one. It learns of its peers before it is told to stop,
/// so that it knows whether the others go on without it.
fn keep(id: TaskId, wanted: &DesiredTask, task: &SeenTask) -> impl Iterator<Item = Step> + use<> {
    let (learns, stops) = match task.life {
        SeenLife::Running => (wanted.peers != task.peers, wanted.stop),
        // There may be nobody to tell yet: then it is told again at the next look.
        SeenLife::Starting => (wanted.peers != task.peers, wanted.stop),
        SeenLife::Prepared | SeenLife::Stopping | SeenLife::Ended { .. } => (false, false),
    };
    let learns = learns.then_some(Step::WritePeers(id));
    learns.into_iter().chain(stops.then_some(Step::Stop(id)))
}

/// A task to start. It waits while another process still holds one of its GPUs: the scheduler frees none before that process is reported
/// gone, and this holds even if it should be wrong.
fn begin(id: TaskId, wanted: &DesiredTask, busy: &BTreeSet<u32>) -> Option<Step> {
    if wanted.stop {
        return Some(Step::Withdraw(id));
    }
    let is_free = wanted.gpus.iter().all(|gpu| !busy.contains(gpu));
    is_free.then_some(Step::Launch(id))
}

fn busy_gpus(seen: &Seen) -> BTreeSet<u32> {
    let holds = |task: &&SeenTask| {
        let has_process = matches!(
            task.life,
            SeenLife::Starting | SeenLife::Running | SeenLife::Stopping
        );
        has_process && !task.stands_still
    };
    seen.tasks
        .values()
        .filter(holds)
        .flat_map(|task| task.gpus.iter().copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::SeenLife::{Ended, Prepared, Running, Starting, Stopping};
    use super::*;
    use uuid::Uuid;

    const SETTLED: SeenLife = Ended { settled: true };
    const UNSETTLED: SeenLife = Ended { settled: false };

    fn id(number: u128) -> TaskId {
        TaskId(Uuid::from_u128(number))
    }

    /// One task: how it is wanted (`None`: missing, else whether to stop), how it is seen, and the step.
    #[test]
    fn one_task() {
        let (launch, withdraw, stop) = (
            Step::Launch(id(1)),
            Step::Withdraw(id(1)),
            Step::Stop(id(1)),
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
                "it was told to stop; there is no way back",
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
                Some(Step::Forget(id(1))),
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
                    },
                );
            }
            let mut seen = Seen {
                generation: 5,
                ..Seen::default()
            };
            if let Some(life) = life {
                seen.tasks.insert(
                    id(1),
                    SeenTask {
                        life,
                        stands_still: false,
                        gpus: vec![0],
                        peers: Peers::default(),
                    },
                );
            }
            assert_eq!(
                steps(Some(&desired), &seen),
                Vec::from_iter(expected),
                "{what}"
            );
            let newer = Seen {
                generation: 6,
                ..seen.clone()
            };
            assert_eq!(
                steps(Some(&desired), &newer),
                [],
                "{what}, by an older generation"
            );
            assert_eq!(steps(None, &seen), [], "{what}, before any assignment");
        }
    }

    #[test]
    fn peers_are_written_when_they_changed_and_never_to_an_ended_task() {
        let peers = Peers {
            revision: 1,
            ..Peers::default()
        };
        let (learns, stops) = (Step::WritePeers(id(1)), Step::Stop(id(1)));
        let old = Peers::default();
        for (life, old, stop, expected) in [
            (Running, old.clone(), false, vec![learns]),
            (Starting, old.clone(), false, vec![learns]),
            (Running, peers.clone(), false, vec![]),
            (UNSETTLED, old.clone(), false, vec![]),
            // It has to know first that the others go on without it.
            (Running, old, true, vec![learns, stops]),
        ] {
            let wanted = DesiredTask {
                gpus: vec![],
                peers: peers.clone(),
                stop,
            };
            let desired = Desired {
                generation: 1,
                tasks: BTreeMap::from([(id(1), wanted)]),
            };
            let task = SeenTask {
                life,
                stands_still: false,
                gpus: vec![],
                peers: old,
            };
            let seen = Seen {
                generation: 1,
                tasks: BTreeMap::from([(id(1), task)]),
            };
            assert_eq!(steps(Some(&desired), &seen), expected, "{life:?}");
        }
    }

    #[test]
    fn a_gpu_that_is_still_held_is_waited_for() {
        let wanted = DesiredTask {
            gpus: vec![1, 2],
            peers: Peers::default(),
            stop: false,
        };
        let desired = Desired {
            generation: 1,
            tasks: BTreeMap::from([(id(2), wanted)]),
        };
        for (life, stands_still, expected) in [
            (Running, false, vec![Step::Stop(id(1))]),
            (Running, true, vec![Step::Stop(id(1)), Step::Launch(id(2))]),
            (Stopping, false, vec![]),
            (Starting, false, vec![Step::Stop(id(1))]),
            (UNSETTLED, false, vec![Step::Launch(id(2))]),
            (
                SETTLED,
                false,
                vec![Step::Forget(id(1)), Step::Launch(id(2))],
            ),
        ] {
            let task = SeenTask {
                life,
                stands_still,
                gpus: vec![2],
                peers: Peers::default(),
            };
            let seen = Seen {
                generation: 1,
                tasks: BTreeMap::from([(id(1), task)]),
            };
            assert_eq!(steps(Some(&desired), &seen), expected, "{life:?}");
        }
    }
}
