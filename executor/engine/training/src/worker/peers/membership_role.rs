//! Role of a worker in the membership, and how it gets the role.

use super::membership::{CoordinatorMembership, MembershipClient};
use super::membership_messages::CloseReason;
use super::membership_server::MembershipServer;
use crate::worker::context::{ExitReason, WorkerContext};
use crate::worker::error::WorkerError;
use crate::worker::task_set::{CONNECT_PATIENCE, POLL_EVERY, worker_ids};
use muster_comm::fabric::{Coordinator, Credentials, FabricError};
use muster_comm::log;
use muster_comm::wire::WireError;
use muster_compute::clock;
use muster_model::assignment::{Peers, TaskLaunch, TaskReport};
use muster_model::error_chain::chain;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Role of a worker in the membership.
pub(super) enum MembershipRole {
    Chief(Arc<CoordinatorMembership>),
    Member(Arc<MembershipClient>),
}

impl MembershipRole {
    pub(super) fn coordinator(&self) -> Arc<dyn Coordinator> {
        match self {
            Self::Chief(chair) => Arc::clone(chair) as Arc<dyn Coordinator>,
            Self::Member(remote) => Arc::clone(remote) as Arc<dyn Coordinator>,
        }
    }

    /// Returns the worker's ending after the last view.
    pub(super) fn ending(&self, ctx: &WorkerContext<'_>) -> ExitReason {
        let in_order = match self {
            Self::Chief(_) => ctx.stop.is_set(),
            Self::Member(remote) => match remote.close_reason() {
                Some(CloseReason::Dismissed) => {
                    log::line("the job continues without this worker");
                    true
                }
                Some(CloseReason::Over | CloseReason::Stopped) => true,
                Some(CloseReason::ChiefLost) | None => ctx.stop.is_set(),
            },
        };
        if in_order {
            ExitReason::Interrupted
        } else {
            ExitReason::PeerLost
        }
    }
}

/// Coordinator: opens the membership server for the known task set.
pub(super) fn serve(
    launch: &TaskLaunch,
    me: Credentials,
    ctx: &WorkerContext<'_>,
) -> Result<Result<MembershipRole, ExitReason>, WorkerError> {
    let peers = match wait(launch, ctx, Some) {
        Ok(peers) => peers,
        Err(ending) => return Ok(Err(ending)),
    };
    let server = MembershipServer::open(ctx.listen_host, me, worker_ids(&peers))
        .map_err(FabricError::io("open an office"))?;
    let address = server.address().to_string();
    ctx.reporter.report(&TaskReport::Listening { address })?;
    let source = Arc::clone(&ctx.peers);
    let chair = CoordinatorMembership::new(server, source, ctx.stop.clone(), peers.revision);
    Ok(Ok(MembershipRole::Chief(Arc::new(chair))))
}

/// Other workers: connects to the coordinator's membership server.
pub(super) fn join(
    launch: &TaskLaunch,
    me: &Credentials,
    silence: Duration,
    ctx: &WorkerContext<'_>,
) -> Result<Result<MembershipRole, ExitReason>, WorkerError> {
    let began = clock::now();
    loop {
        let chief = wait(launch, ctx, |peers| {
            let chief = peers.workers.into_iter().next()?;
            Some((chief.task_id, chief.address?))
        });
        let (id, address) = match chief {
            Ok(chief) => chief,
            Err(ending) => return Ok(Err(ending)),
        };
        match MembershipClient::connect(&address, id, me, silence, ctx.stop.clone()) {
            Ok(remote) => return Ok(Ok(MembershipRole::Member(remote))),
            Err(WireError::Refused(reason)) => {
                let refused = WireError::Refused(reason);
                return Err(FabricError::Greeting(refused).into());
            }
            Err(_) if began.elapsed() < CONNECT_PATIENCE => thread::sleep(POLL_EVERY),
            Err(error) => {
                log::line(format_args!("lost the chief: {}", chain(&error)));
                return Ok(Err(ExitReason::PeerLost));
            }
        }
    }
}

/// Waits until `pick` returns a value for the task set.
fn wait<T>(
    launch: &TaskLaunch,
    ctx: &WorkerContext<'_>,
    pick: impl Fn(Peers) -> Option<T>,
) -> Result<T, ExitReason> {
    loop {
        if ctx.stop.is_set() {
            return Err(ExitReason::Interrupted);
        }
        let known = (ctx.peers)().filter(|peers| peers.revision >= launch.revision);
        if let Some(peers) = known {
            if !worker_ids(&peers).contains(&launch.task_id) {
                log::line("the job continues without this worker");
                return Err(ExitReason::Interrupted);
            }
            if let Some(found) = pick(peers) {
                return Ok(found);
            }
        }
        thread::sleep(POLL_EVERY);
    }
}
