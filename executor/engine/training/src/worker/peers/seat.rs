//! Role of a worker in the membership, and how it gets the role.

use super::council::{Chair, Remote, roster};
use super::office::{Farewell, Office};
use crate::worker::error::WorkerError;
use crate::worker::train::{Ending, Surroundings};
use muster_comm::fabric::{Coordinator, Credentials, FabricError};
use muster_comm::log;
use muster_comm::wire::WireError;
use muster_compute::clock;
use muster_model::assignment::{Peers, TaskLaunch, TaskReport};
use muster_model::error_chain::chain;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Poll interval of waits for the task set.
const PEERS_EVERY: Duration = Duration::from_millis(20);

/// Time for which the coordinator may refuse connections before it counts as lost.
const JOIN_PATIENCE: Duration = Duration::from_secs(5);

/// Role of a worker in the membership.
pub(super) enum Seat {
    Chief(Arc<Chair>),
    Member(Arc<Remote>),
}

impl Seat {
    pub(super) fn coordinator(&self) -> Arc<dyn Coordinator> {
        match self {
            Self::Chief(chair) => Arc::clone(chair) as Arc<dyn Coordinator>,
            Self::Member(remote) => Arc::clone(remote) as Arc<dyn Coordinator>,
        }
    }

    /// Returns the worker's ending after the last view.
    pub(super) fn ending(&self, around: &Surroundings<'_>) -> Ending {
        let in_order = match self {
            Self::Chief(_) => around.stop.is_set(),
            Self::Member(remote) => match remote.farewell() {
                Some(Farewell::Dismissed) => {
                    log::line("the job continues without this worker");
                    true
                }
                Some(Farewell::Over | Farewell::Stopped) => true,
                Some(Farewell::ChiefLost) | None => around.stop.is_set(),
            },
        };
        if in_order {
            Ending::Interrupted
        } else {
            Ending::PeerLost
        }
    }
}

/// Coordinator: opens the membership server for the known task set.
pub(super) fn preside(
    launch: &TaskLaunch,
    me: Credentials,
    around: &Surroundings<'_>,
) -> Result<Result<Seat, Ending>, WorkerError> {
    let peers = match wait(launch, around, Some) {
        Ok(peers) => peers,
        Err(ending) => return Ok(Err(ending)),
    };
    let office = Office::open(around.listen_host, me, roster(&peers))
        .map_err(FabricError::io("open an office"))?;
    let address = office.address().to_string();
    around.reporter.report(&TaskReport::Listening { address })?;
    let source = Arc::clone(&around.peers);
    let chair = Chair::new(office, source, around.stop.clone(), peers.revision);
    Ok(Ok(Seat::Chief(Arc::new(chair))))
}

/// Other workers: connects to the coordinator's membership server.
pub(super) fn attend(
    launch: &TaskLaunch,
    me: &Credentials,
    silence: Duration,
    around: &Surroundings<'_>,
) -> Result<Result<Seat, Ending>, WorkerError> {
    let began = clock::now();
    loop {
        let chief = wait(launch, around, |peers| {
            let chief = peers.workers.into_iter().next()?;
            Some((chief.task_id, chief.address?))
        });
        let (id, address) = match chief {
            Ok(chief) => chief,
            Err(ending) => return Ok(Err(ending)),
        };
        match Remote::connect(&address, id, me, silence, around.stop.clone()) {
            Ok(remote) => return Ok(Ok(Seat::Member(remote))),
            Err(WireError::Refused(reason)) => {
                let refused = WireError::Refused(reason);
                return Err(FabricError::Greeting(refused).into());
            }
            Err(_) if began.elapsed() < JOIN_PATIENCE => thread::sleep(PEERS_EVERY),
            Err(error) => {
                log::line(format_args!("lost the chief: {}", chain(&error)));
                return Ok(Err(Ending::PeerLost));
            }
        }
    }
}

/// Waits until `pick` returns a value for the task set.
fn wait<T>(
    launch: &TaskLaunch,
    around: &Surroundings<'_>,
    pick: impl Fn(Peers) -> Option<T>,
) -> Result<T, Ending> {
    loop {
        if around.stop.is_set() {
            return Err(Ending::Interrupted);
        }
        let known = (around.peers)().filter(|peers| peers.revision >= launch.revision);
        if let Some(peers) = known {
            if !roster(&peers).contains(&launch.task_id) {
                log::line("the job continues without this worker");
                return Err(Ending::Interrupted);
            }
            if let Some(found) = pick(peers) {
                return Ok(found);
            }
        }
        thread::sleep(PEERS_EVERY);
    }
}
