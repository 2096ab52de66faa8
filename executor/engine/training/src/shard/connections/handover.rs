//! A shard's part of a move: it copies the pieces that stay and sends the others to their new
//! holders.

use super::super::exchange::ShardExchange;
use super::super::identity::Identity;
use super::super::state::PieceMove;
use muster_comm::log;
use muster_comm::wire::metadata::{ConnectionPurpose, Hello};
use muster_comm::wire::view::{Handover, ShardAssignment};
use muster_comm::wire::{FrameKind, WireError, handshake};
use muster_model::error_chain::chain;
use muster_model::id::TaskId;
use std::thread;
use std::time::Duration;

/// Time limit for the handshake with the other shard.
const WELCOME_LIMIT: Duration = Duration::from_secs(10);

/// Waits for the move to `layout` to begin and carries it out.
pub fn carry_out(identity: &Identity, exchange: &ShardExchange, layout: u64) {
    let me = exchange.me();
    let Some(of) = exchange.await_move(layout) else {
        return;
    };
    // Sends and copies in parallel.
    let well = thread::scope(|scope| {
        let sending = of
            .view
            .shards
            .iter()
            .filter(|holder| holder.task_id != me)
            .map(|holder| scope.spawn(|| bring(identity, me, &of, holder)))
            .collect::<Vec<_>>();
        exchange.kept(&of, of.keep(me));
        sending
            .into_iter()
            .all(|thread| thread.join().expect("a sender does not panic"))
    });
    exchange.handed_over(well);
}

fn bring(identity: &Identity, me: TaskId, of: &PieceMove, to: &ShardAssignment) -> bool {
    let brought = of.give(me, &to.pieces, |parts| send(identity, me, of, to, parts));
    match brought {
        None | Some(Ok(())) => true,
        Some(Err(error)) => {
            log::line(format_args!(
                "could not hand over to PS shard {}: {}",
                to.task_id,
                chain(&error)
            ));
            false
        }
    }
}

fn send(
    identity: &Identity,
    me: TaskId,
    of: &PieceMove,
    to: &ShardAssignment,
    parts: &[&[f32]],
) -> Result<(), WireError> {
    let hello = Hello {
        job_id: identity.job_id,
        secret: identity.secret.clone(),
        task_id: me,
        guest: ConnectionPurpose::Shard,
        says_held: false,
        plain_statistics: false,
        to: Some(to.task_id),
    };
    let (mut connection, _) = handshake(&to.address, &hello, WELCOME_LIMIT)?;
    let word = serde_json::to_vec(&Handover {
        layout: of.view.layout,
        updates: of.updates,
    })
    .expect("plain data");
    connection.send(FrameKind::Handover, 0, &word, parts)?;
    let header = connection.receive()?;
    match header.kind {
        FrameKind::Ready => Ok(()),
        _ => Err(connection.unexpected(header)),
    }
}
