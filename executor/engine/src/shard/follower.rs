//! A shard's line to the one that keeps its copy: whatever is applied goes there before any worker is answered.
//!
//! A follower that is gone costs nobody anything but the copy: the shard goes on without one until the view is another.

use super::exchange::Exchange;
use super::serve::Identity;
use super::state::State;
use super::tensors::{Factors, Tensors};
use crate::log;
use crate::wire::hello::{Guest, Hello};
use crate::wire::view::{Holder, Shipped, View};
use crate::wire::{Connection, Kind, WireError, greet};
use muster_model::id::TaskId;
use std::sync::Arc;
use std::time::Duration;

/// For the follower to say welcome, and to acknowledge what it was sent.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A shard's line to its follower.
#[derive(Debug)]
pub(super) struct Follower {
    /// The shard's own.
    identity: Identity,
    line: Option<Line>,
    /// One that could not be reached, and under which view.
    lost: Option<(TaskId, u64)>,
}

#[derive(Debug)]
struct Line {
    to: TaskId,
    /// In which the follower has the whole copy.
    layout: u64,
    connection: Connection,
}

impl Follower {
    pub fn of(identity: Identity) -> Self {
        Self {
            identity,
            line: None,
            lost: None,
        }
    }

    /// Sends the sum, or everything where the follower is new; returns once it is safe there, or there is no follower. Whether this
    /// still is the shard that the copy is of.
    fn ship(
        &mut self,
        view: &View,
        to: &Holder,
        of: Shipped,
        sum: &[f32],
        tensors: &Tensors,
    ) -> bool {
        if self.lost == Some((to.task_id, view.number)) {
            return true;
        }
        let sent = match self.line.take() {
            Some(line) if line.to == to.task_id && line.layout == of.layout => {
                go_on(line, &of, sum)
            }
            other => {
                if let Some(mut line) = other {
                    // It may be gone already.
                    let _ = line.connection.send(Kind::Goodbye, 0, &[], &[]);
                }
                self.begin(view, to, of, tensors)
            }
        };
        match sent {
            Ok(line) => self.line = Some(line),
            Err(WireError::Adopted) => {
                log::line(format_args!(
                    "PS shard {} goes on as this one by the chief's word: ends without an answer",
                    to.task_id
                ));
                return false;
            }
            Err(error) => {
                log::line(format_args!(
                    "PS shard {} does not keep the copy of this one any more: {}",
                    to.task_id,
                    log::chain(&error)
                ));
                self.lost = Some((to.task_id, view.number));
            }
        }
        true
    }

    fn begin(
        &self,
        view: &View,
        to: &Holder,
        of: Shipped,
        tensors: &Tensors,
    ) -> Result<Line, WireError> {
        let hello = Hello {
            job_id: self.identity.job_id,
            secret: self.identity.secret.clone(),
            task_id: self.identity.task_id,
            guest: Guest::Primary,
            to: Some(to.task_id),
            says_held: false,
        };
        let (mut connection, _) = greet(&to.address, &hello, ANSWER_LIMIT)?;
        let whole = Shipped {
            pieces: view.pieces(self.identity.task_id).to_vec(),
            ..of
        };
        send(&mut connection, Kind::Copy, &whole, &tensors.parts())?;
        Ok(Line {
            to: to.task_id,
            layout: whole.layout,
            connection,
        })
    }
}

fn go_on(mut line: Line, of: &Shipped, sum: &[f32]) -> Result<Line, WireError> {
    send(&mut line.connection, Kind::Applied, of, &[sum])?;
    Ok(line)
}

fn send(
    connection: &mut Connection,
    kind: Kind,
    shipped: &Shipped,
    payload: &[&[f32]],
) -> Result<(), WireError> {
    let word = serde_json::to_vec(shipped).expect("plain data");
    connection.send(kind, 0, &word, payload)?;
    if !connection.wait_readable(ANSWER_LIMIT)? {
        return Err(WireError::HandshakeTimeout);
    }
    let header = connection.receive()?;
    match header.kind {
        Kind::Ready => Ok(()),
        _ => Err(connection.unexpected(header)),
    }
}

impl Exchange {
    /// Whether another process is this shard by now, so that nobody must be answered any more.
    pub(super) fn is_superseded(&self) -> bool {
        self.lock().superseded
    }

    /// What was just applied goes to whoever keeps the copy, if somebody does.
    pub(super) fn ship(&self, state: &mut State, sum: &[f32], factors: Factors) {
        let (Some(mut follower), Some(view)) = (state.follower.take(), state.view.clone()) else {
            return;
        };
        if let Some(to) = view.follower(self.me, self.host) {
            let Factors { scale, clip, rate } = factors;
            let shipped = Shipped {
                view: view.number,
                layout: view.layout,
                pieces: Vec::new(),
                version: state.version,
                updates: state.updates,
                hold: state.hold,
                clocks: state
                    .members
                    .iter()
                    .map(|member| (member.task, member.clock))
                    .collect(),
                factors: [scale, clip, rate].map(f32::to_bits),
            };
            let tensors = Arc::clone(&state.tensors);
            plain_statistics: false,
            let tensors = tensors.read().expect("no update has panicked");
            if !follower.ship(&view, to, shipped, sum, &tensors) {
                state.superseded = true;
                state.broken = true;
            }
        }
        state.follower = Some(follower);
    }
}
