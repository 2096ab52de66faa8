//! One connection of a shard: who comes in, and what each frame asks of the exchange.

use super::exchange::Exchange;
use super::handover;
use super::serve::Identity;
use super::words::{Answer, Push, Refusal, Seat};
use crate::clock;
use crate::log;
use crate::wire::hello::{
    Guest, Hello, MAX_HELLO_BYTES, PushHead, Welcome, decode_u64, same_secret,
};
use crate::wire::view::{Change, Handover};
use crate::wire::{Connection, Header, Kind, WireError};
use muster_model::id::TaskId;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// From the connection being accepted to its greeting being read.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// What every connection thread sees.
#[derive(Debug)]
pub(super) struct Room {
    pub identity: Identity,
    pub exchange: Exchange,
    pub state_per_parameter: u32,
    pub strangers: AtomicUsize,
}

/// Why a connection of a greeted peer ended before its time.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// A greeted peer.
enum Greeted {
    Worker(Seat),
    Shard(TaskId),
}

impl Room {
    pub fn receive_guest(self: &Arc<Self>, stream: TcpStream) {
        let greeted = Connection::new(stream).and_then(|connection| self.greet(connection));
        self.strangers.fetch_sub(1, Ordering::Relaxed);
        let (mut connection, guest) = match greeted {
            Ok(guest) => guest,
            Err(error) => {
                log::line(format_args!(
                    "a connection was closed: {}",
                    log::chain(&error)
                ));
                return;
            }
        };
        let (name, attended) = match guest {
            Greeted::Worker(seat) => {
                let attended = self.attend(&mut connection, seat);
                self.exchange.depart(seat, attended.is_ok());
                (format!("worker {}", seat.task), attended)
            }
            Greeted::Shard(task) => (
                format!("PS shard {task}"),
                self.receive_pieces(&mut connection, task),
            ),
        };
        if let Err(broken) = attended {
            log::line(format_args!("lost {name}: {}", log::chain(&broken)));
            if let Broken::Refused(refusal) = &broken {
                connection.refuse(&refusal.to_string());
            }
        }
    }

    /// Takes the greeting, and lets the peer in when everything agrees.
    fn greet(&self, mut connection: Connection) -> Result<(Connection, Greeted), WireError> {
        let (header, meta) =
            connection.receive_greeting(clock::now() + HANDSHAKE_LIMIT, MAX_HELLO_BYTES)?;
        if header.kind != Kind::Hello {
            return Err(WireError::Unexpected { got: header.kind });
        }
        let hello: Hello =
            serde_json::from_slice(&meta).map_err(|_| WireError::Malformed("greeting"))?;
        let greeted = match self.judge(&hello) {
            Ok(greeted) => greeted,
            Err(reason) => {
                connection.refuse(&reason);
                return Err(WireError::TurnedAway(reason));
            }
        };
        let welcome = serde_json::to_vec(&Welcome {
            state_per_parameter: self.state_per_parameter,
        })
        .expect("a welcome is plain data");
        if let Err(error) = connection.send(Kind::Welcome, 0, &welcome, &[]) {
            if let Greeted::Worker(seat) = greeted {
                self.exchange.depart(seat, false);
            }
            return Err(error);
        }
        Ok((connection, greeted))
    }

    fn judge(&self, hello: &Hello) -> Result<Greeted, String> {
        // First, and without a word more: who does not know the secret learns nothing about the job.
        if !same_secret(&hello.secret, &self.identity.secret) {
            return Err("the secret is wrong".to_owned());
        }
        if hello.job_id != self.identity.job_id {
            return Err("this shard serves another job".to_owned());
        }
        match hello.guest {
            Guest::Shard => Ok(Greeted::Shard(hello.task_id)),
            worker => self
                .exchange
                .join(hello.task_id, worker == Guest::Chief)
                .map(Greeted::Worker)
                .map_err(|refusal| refusal.to_string()),
        }
    }

    /// Serves one worker until it says goodbye.
    fn attend(self: &Arc<Self>, connection: &mut Connection, seat: Seat) -> Result<(), Broken> {
        let mut buffer: Vec<f32> = Vec::new();
        let mut codes: Vec<u8> = Vec::new();
        // The chief's push whose answer waits for its decision.
        let mut owed: Option<u64> = None;
        loop {
            let header = connection.receive()?;
            match header.kind {
                Kind::Push | Kind::Codes => {
                    let (view, push) = self.receive_push(connection, header, buffer, &mut codes)?;
                    let answer = self.exchange.push(seat, view, header.clock, push)?;
                    let waits = matches!(answer, Answer::Gone { .. }) && self.exchange.is_bsp();
                    owed = waits.then_some(header.clock);
                    buffer = reply(connection, answer)?;
                }
                Kind::Pull => {
                    let answer = self.exchange.pull(seat, header.clock)?;
                    buffer = reply(connection, answer)?;
                }
                Kind::Init => self.receive_init(connection, header, seat)?,
                Kind::Change => {
                    self.receive_change(connection, header, seat)?;
                    if let Some(clock) = owed.take() {
                        let answer = self.exchange.resume(seat, clock);
                        owed = matches!(answer, Answer::Gone { .. }).then_some(clock);
                        buffer = reply(connection, answer)?;
                    }
                }
                Kind::Ask => {
                    let guests = self.exchange.guests(seat)?;
                    send_json(connection, Kind::Guests, 0, &guests)?;
                }
                Kind::Tally => {
                    let tally = self.exchange.tally(seat)?;
                    send_json(connection, Kind::Tally, 0, &tally)?;
                }
                Kind::Snapshot => self.exchange.snapshot(seat, |version, updates, tensors| {
                    connection
                        .send(
                            Kind::SnapshotData,
                            version,
                            &updates.to_le_bytes(),
                            &tensors.parts(),
                        )
                        .map_err(Broken::from)
                })?,
                Kind::Done => self.exchange.finish(seat)?,
                Kind::Goodbye => return Ok(()),
                got => return Err(WireError::Unexpected { got }.into()),
            }
        }
    }

    fn receive_push(
        &self,
        connection: &mut Connection,
        header: Header,
        mut gradients: Vec<f32>,
        codes: &mut Vec<u8>,
    ) -> Result<(u64, Push), Broken> {
        let head = PushHead::decode(&connection.receive_meta(header)?)?;
        let (parameters, squeeze) = self.exchange.await_view(head.view)?;
        gradients.resize(parameters, 0.0);
        match (header.kind, squeeze) {
            (Kind::Codes, Some(squeeze)) => {
                connection.receive_bytes(header, squeeze.max_push_bytes(), codes)?;
                squeeze
                    .decode_push(codes, &mut gradients)
                    .map_err(|_| WireError::Malformed("encoded push"))?;
            }
            (Kind::Push, None) => connection.receive_payload(header, &mut [&mut gradients])?,
            (got, _) => return Err(WireError::Unexpected { got }.into()),
        }
        let stats = head.stats;
        Ok((head.view, Push { gradients, stats }))
    }

    fn receive_init(
        &self,
        connection: &mut Connection,
        header: Header,
        seat: Seat,
    ) -> Result<(), Broken> {
        let updates = decode_u64(&connection.receive_meta(header)?)?;
        self.exchange.init(seat, header.clock, updates, |parts| {
            connection
                .receive_payload(header, parts)
                .map_err(Broken::from)
        })?;
        Ok(connection.send(Kind::Ready, header.clock, &[], &[])?)
    }

    fn receive_change(
        self: &Arc<Self>,
        connection: &mut Connection,
        header: Header,
        seat: Seat,
    ) -> Result<(), Broken> {
        let change: Change = serde_json::from_slice(&connection.receive_meta(header)?)
            .map_err(|_| WireError::Malformed("view"))?;
        let layout = change.view.layout;
        if self.exchange.change(seat, header.clock, change)? {
            let room = Arc::clone(self);
            let spawned = thread::Builder::new()
                .name("move".to_owned())
                .spawn(move || handover::carry_out(&room, layout));
            if spawned.is_err() {
                self.exchange.handed_over(false);
            }
        }
        Ok(())
    }

    /// Takes what another shard hands over.
    fn receive_pieces(&self, connection: &mut Connection, sender: TaskId) -> Result<(), Broken> {
        let header = connection.receive()?;
        if header.kind != Kind::Handover {
            return Err(WireError::Unexpected { got: header.kind }.into());
        }
        let handover: Handover = serde_json::from_slice(&connection.receive_meta(header)?)
            .map_err(|_| WireError::Malformed("word of a handover"))?;
        self.exchange.receive(sender, handover, |parts| {
            connection
                .receive_payload(header, parts)
                .map_err(Broken::from)
        })?;
        Ok(connection.send(Kind::Ready, 0, &[], &[])?)
    }
}

fn send_json(
    connection: &mut Connection,
    kind: Kind,
    clock: u64,
    value: &impl serde::Serialize,
) -> Result<(), WireError> {
    let text = serde_json::to_vec(value).expect("plain data");
    connection.send(kind, clock, &text, &[])
}

/// Sends the answer; the buffer comes back for the next push.
fn reply(connection: &mut Connection, answer: Answer) -> Result<Vec<f32>, WireError> {
    match answer {
        Answer::Parameters {
            view,
            clock,
            stats,
            tensors,
            deltas,
            buffer,
            copied,
        } => {
            if let Some(view) = view {
                send_json(connection, Kind::View, clock, &*view)?;
            }
            let meta = stats.encode();
            if let Some(deltas) = deltas {
                connection.send_bytes(Kind::Deltas, clock, &meta, &deltas)?;
            } else if copied {
                connection.send(Kind::Parameters, clock, &meta, &[&buffer])?;
            } else {
                let tensors = tensors.read().expect("no update has panicked");
                connection.send(Kind::Parameters, clock, &meta, &[tensors.known()])?;
            }
            Ok(buffer)
        }
        Answer::Moved { view, buffer } => {
            send_json(connection, Kind::Moved, 0, &*view)?;
            Ok(buffer)
        }
        Answer::Gone { departed, buffer } => {
            send_json(connection, Kind::Gone, 0, &departed)?;
            Ok(buffer)
        }
        Answer::Interrupted {
            version,
            lost,
            buffer,
        } => {
            connection.send(Kind::Interrupted, version, &[u8::from(lost)], &[])?;
            Ok(buffer)
        }
        Answer::Finished => {
            connection.send(Kind::Finished, 0, &[], &[])?;
            Ok(Vec::new())
        }
    }
}
