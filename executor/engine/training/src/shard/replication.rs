//! Replication: the connection of a shard to its replica holder. Every applied
//! update is sent there before any worker is answered.
//!
//! The shard answers no worker while it waits for the acknowledgement, so the holder has little
//! time. A holder that is silent for longer, or gone, is dropped. The shard then continues without
//! a replica, records that in the job's history, and tries again at intervals.

use super::identity::Identity;
use super::tensors::Tensors;
use muster_comm::log;
use muster_comm::wire::metadata::{ConnectionPurpose, Hello};
use muster_comm::wire::view::{ReplicaPosition, ShardAssignment, TaskSetView};
use muster_comm::wire::{Connection, FrameKind, WireError, handshake};
use muster_compute::clock;
use muster_model::error_chain::chain;
use muster_model::id::TaskId;
use std::time::{Duration, Instant};

/// Number of usual steps in which a replica holder must make progress, with a minimum and a
/// maximum.
const STEPS_OF_SILENCE: u32 = 4;
const LEAST_SILENCE: Duration = Duration::from_secs(1);
const MOST_SILENCE: Duration = Duration::from_secs(10);

/// Time after which a dropped replica holder is tried again; a new view also permits it.
const AGAIN: Duration = Duration::from_secs(10);

/// Replication state of a shard.
#[derive(Debug)]
pub(super) struct ReplicaSender {
    /// Identity of the shard.
    identity: Identity,
    link: Option<ReplicaLink>,
    /// Dropped replica holder, with the view and the time of the drop.
    lost: Option<(TaskId, u64, Instant)>,
    again: Duration,
    /// Time of the last update, and the usual interval between updates.
    wanted: Option<Instant>,
    usual: Option<Duration>,
    /// Messages for the job's history that are not taken yet.
    notes: Vec<String>,
}

#[derive(Debug)]
struct ReplicaLink {
    to: TaskId,
    /// Layout of the replica at the holder.
    layout: u64,
    connection: Connection,
}

impl ReplicaSender {
    pub fn of(identity: Identity) -> Self {
        Self {
            identity,
            link: None,
            lost: None,
            again: AGAIN,
            wanted: None,
            usual: None,
            notes: Vec::new(),
        }
    }

    /// Returns how long the replica holder may be silent during the present update.
    fn patience(&mut self) -> Duration {
        let now = clock::now();
        if let Some(before) = self.wanted.replace(now) {
            // A suspension of hours is not the duration of a step.
            let apart = (now - before).min(MOST_SILENCE);
            self.usual = Some(self.usual.map_or(apart, |usual| (usual * 7 + apart) / 8));
        }
        self.usual.map_or(LEAST_SILENCE, |usual| {
            (usual * STEPS_OF_SILENCE).clamp(LEAST_SILENCE, MOST_SILENCE)
        })
    }

    /// Sends the sum, or the whole state to a new replica holder. Returns after the
    /// acknowledgement, or at once without a holder. Returns `false` if this shard has been
    /// replaced.
    pub fn ship(
        &mut self,
        view: &TaskSetView,
        to: &ShardAssignment,
        of: ReplicaPosition,
        sum: &[f32],
        tensors: &Tensors,
    ) -> bool {
        let patience = self.patience();
        if let Some((task, number, since)) = self.lost
            && (task, number) == (to.task_id, view.number)
            && since.elapsed() < self.again
        {
            return true;
        }
        let sent = match self.link.take() {
            Some(link) if link.to == to.task_id && link.layout == of.layout => {
                go_on(link, &of, sum, patience)
            }
            other => {
                if let Some(mut link) = other {
                    // The previous holder may be gone already.
                    let _ = link.connection.send(FrameKind::Goodbye, 0, &[], &[]);
                }
                self.begin(view, to, of, tensors, patience)
            }
        };
        match sent {
            Ok(link) => self.kept(view, link),
            Err(WireError::Adopted) => {
                log::line(format_args!(
                    "PS shard {} was promoted in place of this one: ends without an answer",
                    to.task_id
                ));
                return false;
            }
            Err(error) => self.given_up(view, to.task_id, &error),
        }
        true
    }

    fn kept(&mut self, view: &TaskSetView, link: ReplicaLink) {
        if self.lost.take().is_some() {
            let (own, other) = self.places(view, link.to);
            self.note(format!("{other} keeps a copy of {own} again"));
        }
        self.link = Some(link);
    }

    fn given_up(&mut self, view: &TaskSetView, holder: TaskId, error: &WireError) {
        let error = chain(error);
        let is_news = self.lost.is_none();
        self.lost = Some((holder, view.number, clock::now()));
        let (own, other) = self.places(view, holder);
        let message = format!(
            "{other} keeps no copy of {own} any more ({error}); until one is kept again, the loss of {own} costs the job a restart from \
             its newest checkpoint"
        );
        // The log has every attempt.
        if is_news {
            self.note(message)
        } else {
            log::line(message)
        }
    }

    /// Returns the names of this shard and another one by their indices in the view.
    fn places(&self, view: &TaskSetView, other: TaskId) -> (String, String) {
        (
            shard_name(view, self.identity.task_id),
            shard_name(view, other),
        )
    }

    /// Returns messages for the job's history since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn note(&mut self, message: String) {
        log::line(&message);
        self.notes.push(message);
    }

    fn begin(
        &self,
        view: &TaskSetView,
        to: &ShardAssignment,
        of: ReplicaPosition,
        tensors: &Tensors,
        patience: Duration,
    ) -> Result<ReplicaLink, WireError> {
        let hello = Hello {
            job_id: self.identity.job_id,
            secret: self.identity.secret.clone(),
            task_id: self.identity.task_id,
            guest: ConnectionPurpose::Primary,
            to: Some(to.task_id),
            says_held: false,
            plain_statistics: false,
        };
        let (mut connection, _) = handshake(&to.address, &hello, patience)?;
        let whole = ReplicaPosition {
            pieces: view.pieces(self.identity.task_id).to_vec(),
            ..of
        };
        let parts = tensors.parts();
        send(&mut connection, FrameKind::Copy, &whole, &parts, patience)?;
        Ok(ReplicaLink {
            to: to.task_id,
            layout: whole.layout,
            connection,
        })
    }
}

/// Returns the name of a shard by its index in the view, or by its id outside of the view.
fn shard_name(view: &TaskSetView, task: TaskId) -> String {
    let index = view.shard_index(task);
    index.map_or_else(|| format!("PS shard {task}"), |at| format!("PS shard {at}"))
}

fn go_on(
    mut link: ReplicaLink,
    of: &ReplicaPosition,
    sum: &[f32],
    patience: Duration,
) -> Result<ReplicaLink, WireError> {
    send(
        &mut link.connection,
        FrameKind::Applied,
        of,
        &[sum],
        patience,
    )?;
    Ok(link)
}

fn send(
    connection: &mut Connection,
    kind: FrameKind,
    shipped: &ReplicaPosition,
    payload: &[&[f32]],
    patience: Duration,
) -> Result<(), WireError> {
    // The transfer of a large state takes long without an answer. It is alive as long as the holder
    // takes bytes.
    connection.give_up_sending(patience)?;
    let word = serde_json::to_vec(shipped).expect("plain data");
    connection.send(kind, 0, &word, payload)?;
    if !connection.wait_readable(patience)? {
        return Err(WireError::Silent(patience));
    }
    let header = connection.receive()?;
    match header.kind {
        FrameKind::Ready => Ok(()),
        _ => Err(connection.unexpected(header)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::recipe::Recipe;
    use muster_comm::assign::ParameterPiece;
    use muster_comm::wire::metadata::{MAX_HELLO_BYTES, Welcome};
    use muster_compute::optimizer::{OptimizerConfig, UpdateRule};
    use muster_model::id::JobId;
    use std::net::TcpListener;
    use std::thread;
    use uuid::Uuid;

    const LEN: usize = 1000;

    /// Starts a replica holder that accepts one connection after the other. On each it answers the
    /// given number of messages, then stays silent with the connection open.
    fn replica_holder(answers: &'static [usize]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let mut lines = Vec::new();
            for &answers in answers {
                let mut link = Connection::new(listener.accept().unwrap().0).unwrap();
                let soon = clock::now() + Duration::from_secs(60);
                link.receive_greeting(soon, MAX_HELLO_BYTES).unwrap();
                let welcome = serde_json::to_vec(&Welcome {
                    state_per_parameter: 0,
                    keeps_known: false,
                });
                link.send(FrameKind::Welcome, 0, &welcome.unwrap(), &[])
                    .unwrap();
                for _ in 0..answers {
                    let header = link.receive().unwrap();
                    link.receive_meta(header).unwrap();
                    link.receive_bytes(header, 4 * LEN, &mut Vec::new())
                        .unwrap();
                    link.send(FrameKind::Ready, 0, &[], &[]).unwrap();
                }
                lines.push(link);
            }
            thread::park();
        });
        address
    }

    fn task(number: u128) -> TaskId {
        TaskId(Uuid::from_u128(number))
    }

    fn holder(number: u128, address: &str, pieces: Vec<ParameterPiece>) -> ShardAssignment {
        ShardAssignment {
            task_id: task(number),
            address: address.to_owned(),
            pieces,
        }
    }

    /// A holder that runs but sends nothing, such as a stopped one, is dropped soon. The job's
    /// history records it, and the holder is tried again.
    #[test]
    fn silent_replica_holder_is_dropped_and_tried_again() {
        let whole = ParameterPiece {
            offset: 0,
            len: LEN,
        };
        let view = TaskSetView {
            number: 1,
            revision: 1,
            layout: 1,
            workers: Vec::new(),
            shards: vec![
                holder(1, "", vec![whole]),
                holder(2, &replica_holder(&[2, 1]), Vec::new()),
            ],
            before: Vec::new(),
        };
        let plain = OptimizerConfig::new(UpdateRule::Sgd {
            lr: 0.1,
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
        });
        let tensors = Recipe::weights(plain, LEN, 1).tensors(&[whole], false);
        let mut own = ReplicaSender::of(Identity {
            job_id: JobId(Uuid::nil()),
            task_id: task(1),
            secret: "s".to_owned(),
        });
        let ship = |own: &mut ReplicaSender, updates| {
            let of = ReplicaPosition {
                view: 1,
                layout: 1,
                pieces: Vec::new(),
                version: updates,
                updates,
                clocks: Vec::new(),
                hold: 0,
                factors: [0; 3],
            };
            assert!(own.ship(&view, &view.shards[1], of, &[0.5; LEN], &tensors));
            std::mem::take(&mut own.notes)
        };
        assert_eq!(ship(&mut own, 1), [""; 0]);
        assert_eq!(ship(&mut own, 2), [""; 0]);
        assert_eq!(own.patience(), LEAST_SILENCE, "steps were quick");
        let told = ship(&mut own, 3);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("PS shard 1 keeps no copy of PS shard 0 any more"),
            "{told:?}"
        );
        assert_eq!(ship(&mut own, 4), [""; 0], "left alone for a while");
        own.again = Duration::ZERO;
        let told = ship(&mut own, 5);
        assert_eq!(told, ["PS shard 1 keeps a copy of PS shard 0 again"]);
    }
}
