//! How a worker finds the shards of its job and joins them.

use super::super::context::{ExitReason, WorkerContext};
use super::super::exchange::WorkerStepError;
use super::super::shards::{ShardAddress, Shards};
use super::super::task_set::{CONNECT_PATIENCE, POLL_EVERY, worker_ids};
use muster_comm::log;
use muster_comm::wire::WireError;
use muster_comm::wire::metadata::Hello;
use muster_compute::clock;
use muster_compute::model::Network;
use muster_model::assignment::Peers;
use std::thread;

/// Waits for a task set newer than `revision` with the addresses of all its shards, and joins them.
pub(super) fn connect(
    me: &Hello,
    revision: u64,
    network: &Network,
    copied: bool,
    ctx: &WorkerContext<'_>,
) -> Result<Result<(Shards, Peers), ExitReason>, WorkerStepError> {
    let (parameters, targets) = (network.parameter_count(), network.targets() as u64);
    let mut began = clock::now();
    loop {
        if ctx.stop.is_set() {
            return Ok(Err(ExitReason::Interrupted));
        }
        let known = (ctx.peers)()
            .filter(|peers| peers.revision > revision || revision == 0)
            .and_then(|peers| Some((addresses(&peers)?, peers)));
        let Some((addresses, peers)) = known else {
            thread::sleep(POLL_EVERY);
            began = clock::now();
            continue;
        };
        if !worker_ids(&peers).contains(&me.task_id) {
            log::line("not in the job's task set any more: leaves");
            return Ok(Err(ExitReason::Interrupted));
        }
        match Shards::join_near(&addresses, parameters, me, Some(ctx.sockets)) {
            Ok(shards) => {
                log::line(format_args!(
                    "shares memory with {} of {} PS shards",
                    shards.near(),
                    addresses.len()
                ));
                return Ok(Ok((
                    shards.with_targets(targets).with_copies(copied),
                    peers,
                )));
            }
            Err(_) if ctx.stop.is_set() => return Ok(Err(ExitReason::Interrupted)),
            Err((_, WireError::Io { .. })) if began.elapsed() < CONNECT_PATIENCE => {
                thread::sleep(POLL_EVERY);
            }
            Err(failure) => return Err(failure.into()),
        }
    }
}

/// Returns the shards' addresses, once all are known.
pub(super) fn addresses(peers: &Peers) -> Option<Vec<ShardAddress>> {
    let all: Vec<ShardAddress> = peers
        .ps_shards
        .iter()
        .map(|peer| Some((peer.task_id, peer.address.clone()?)))
        .collect::<Option<_>>()?;
    (!all.is_empty()).then_some(all)
}
