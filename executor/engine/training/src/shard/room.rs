//! Connections to a shard: handshake, the exchange that they address, and the coordinator's
//! changes. [`super::line`] serves the frames of a worker.

use super::copy::Copies;
use super::exchange::Exchange;
use super::frames::receive_pieces;
use super::handover;
use super::lent;
use super::serve::Identity;
use super::words::{Refusal, Seat};
use muster_comm::log;
use muster_comm::wire::hello::{Guest, Hello, MAX_HELLO_BYTES, Welcome, same_secret};
use muster_comm::wire::view::Change;
use muster_comm::wire::{Connection, Header, Kind, WireError};
use muster_compute::clock;
use muster_model::error_chain::chain;
use muster_model::id::TaskId;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Time limit from the acceptance of a connection to the end of its handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// State that all connection threads share.
#[derive(Debug)]
pub(super) struct Room {
    pub identity: Identity,
    /// Exchange of this shard.
    pub exchange: Arc<Exchange>,
    /// Replicas of other shards, and promoted replicas (`heirs`).
    pub copies: Copies,
    pub heirs: Mutex<Vec<Arc<Exchange>>>,
    pub state_per_parameter: u32,
    pub strangers: AtomicUsize,
}

/// Why a connection ended after its handshake.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The workers must use the promoted replica; an answer from here would contain updates that
    /// are not part of the model.
    #[error("this shard lives on elsewhere by the chief's word")]
    Superseded,
}

/// A peer after the handshake.
enum Greeted {
    Worker(Arc<Exchange>, Seat),
    Shard(Arc<Exchange>, TaskId),
    Primary(TaskId),
    Checkpoint(Arc<Exchange>),
}

impl Room {
    pub fn receive_guest(self: &Arc<Self>, come: Result<Connection, WireError>) {
        let greeted = come.and_then(|connection| self.greet(connection));
        self.strangers.fetch_sub(1, Ordering::Relaxed);
        let (mut connection, guest) = match greeted {
            Ok(guest) => guest,
            Err(error) => {
                log::line(format_args!("a connection was closed: {}", chain(&error)));
                return;
            }
        };
        let (name, attended) = match guest {
            Greeted::Worker(exchange, seat) => {
                let attended = self.attend(&mut connection, &exchange, seat);
                exchange.depart(seat, attended.is_ok());
                (format!("worker {}", seat.task), attended)
            }
            Greeted::Shard(exchange, task) => (
                format!("PS shard {task}"),
                receive_pieces(&mut connection, &exchange, task),
            ),
            Greeted::Primary(task) => {
                let recipe = &self.exchange.recipe;
                let kept = self.copies.keep(task, &mut connection, recipe);
                (
                    format!("PS shard {task}, of which there is a copy here"),
                    kept,
                )
            }
            Greeted::Checkpoint(exchange) => (
                "what draws a checkpoint".to_owned(),
                lent::give(&mut connection, &exchange),
            ),
        };
        if let Err(broken) = attended {
            log::line(format_args!("lost {name}: {}", chain(&broken)));
            if let Broken::Refused(Refusal::Adopted(_)) = &broken {
                // In a frame of its own, because the peer must learn that it has been replaced.
                let _ = connection.send(Kind::Adopted, 0, &[], &[]);
            }
            if let Broken::Refused(refusal) = &broken {
                connection.refuse(&refusal.to_string());
            }
        }
    }

    /// Performs the handshake and admits the peer if all checks pass.
    fn greet(&self, mut connection: Connection) -> Result<(Connection, Greeted), WireError> {
        let (header, meta) =
            connection.receive_greeting(clock::now() + HANDSHAKE_LIMIT, MAX_HELLO_BYTES)?;
        if header.kind != Kind::Hello {
            return Err(WireError::Unexpected { got: header.kind });
        }
        let hello: Hello =
            serde_json::from_slice(&meta).map_err(|_| WireError::Malformed("greeting"))?;
        let memory = if same_secret(&hello.secret, &self.identity.secret) {
            // Before the peer gets a seat. It would find the seat taken if it then used TCP
            // instead.
            connection.take_memory()?
        } else {
            None
        };
        let greeted = match self.judge(&hello) {
            Ok(greeted) => greeted,
            Err(reason) => {
                connection.refuse(&reason);
                return Err(WireError::TurnedAway(reason));
            }
        };
        let welcome = serde_json::to_vec(&Welcome {
            state_per_parameter: self.state_per_parameter,
            keeps_known: self.exchange.keeps_known(),
        })
        .expect("a welcome is plain data");
        if let Err(error) = connection.send(Kind::Welcome, 0, &welcome, &[]) {
            if let Greeted::Worker(exchange, seat) = greeted {
                exchange.depart(seat, false);
            }
            return Err(error);
        }
        if let Some(memory) = memory {
            connection.carry(memory);
        }
        Ok((connection, greeted))
    }

    fn judge(&self, hello: &Hello) -> Result<Greeted, String> {
        // First and without further information: a peer without the secret learns nothing about the
        // job.
        if !same_secret(&hello.secret, &self.identity.secret) {
            return Err("the secret is wrong".to_owned());
        }
        if hello.job_id != self.identity.job_id {
            return Err("this shard serves another job".to_owned());
        }
        let exchange = self.addressed(hello)?;
        let is_worker = matches!(hello.guest, Guest::Chief | Guest::Worker);
        if is_worker && exchange.is_heard_singly() && !hello.says_held {
            return Err(
                "workers of this job say what they hold back, and one of an older release cannot: let its node's executor be of this one"
                    .to_owned(),
            );
        }
        if is_worker && exchange.recipe.has_plain_statistics() && !hello.plain_statistics {
            return Err(
                "workers of this job do not encode statistics, and one of an older release does: let its node's executor be of this one"
                    .to_owned(),
            );
        }
        match hello.guest {
            Guest::Shard => Ok(Greeted::Shard(exchange, hello.task_id)),
            Guest::Primary => Ok(Greeted::Primary(hello.task_id)),
            Guest::Checkpoint if exchange.is_led_by(hello.task_id) => {
                Ok(Greeted::Checkpoint(exchange))
            }
            Guest::Checkpoint => Err(Refusal::NotChief.to_string()),
            Guest::Chief | Guest::Worker => exchange
                .join(hello.task_id, hello.guest == Guest::Chief)
                .map(|seat| Greeted::Worker(exchange, seat))
                .map_err(|refusal| refusal.to_string()),
        }
    }

    /// Returns the exchange that the peer addresses: this shard's, or that of a lost shard with a
    /// replica here. The first worker that asks for a lost shard creates its exchange. All workers
    /// but the coordinator then wait for the promotion.
    fn addressed(&self, hello: &Hello) -> Result<Arc<Exchange>, String> {
        let me = self.identity.task_id;
        let to = hello.to.unwrap_or(me);
        if to == me {
            return Ok(Arc::clone(&self.exchange));
        }
        let mut heirs = self.heirs.lock().expect("not poisoned");
        if let Some(heir) = heirs.iter().find(|heir| heir.me == to) {
            return Ok(Arc::clone(heir));
        }
        let is_a_worker = matches!(hello.guest, Guest::Chief | Guest::Worker);
        if !is_a_worker || !self.copies.has(to) {
            return Err(format!("PS shard {to} does not live here"));
        }
        log::line(format_args!("promoted to primary for lost PS shard {to}"));
        let heir = Arc::new(self.exchange.heir_of(to, &self.identity));
        heirs.push(Arc::clone(&heir));
        Ok(heir)
    }

    /// Removes promoted replicas that hold nothing and have no connected worker. Also removes
    /// exchanges of lost shards whose workers have left before the coordinator ordered the
    /// promotion.
    pub fn dismiss_heirs(&self) {
        let why_over = |heir: &Arc<Exchange>| {
            let members = heir.membership(Duration::ZERO);
            // A connection takes the exchange from the locked list and holds it until its end.
            let is_alone = Arc::strong_count(heir) == 1;
            if members.retired && members.joined == 0 {
                Some("it has handed over all it held")
            } else if is_alone && heir.is_empty() {
                Some("the chief did not make it one")
            } else {
                None
            }
        };
        let mut heirs = self.heirs.lock().expect("not poisoned");
        heirs.retain(|heir| {
            let over = why_over(heir);
            if let Some(why) = over {
                log::line(format_args!(
                    "PS shard {} does not live here any more: {why}",
                    heir.me
                ));
            }
            over.is_none()
        });
    }

    /// Returns the exchanges of this shard and of the promoted replicas.
    pub fn exchanges(&self) -> Vec<Arc<Exchange>> {
        let heirs = self.heirs.lock().expect("not poisoned");
        let own = std::iter::once(&self.exchange);
        own.chain(heirs.iter()).map(Arc::clone).collect()
    }

    pub(super) fn receive_change(
        self: &Arc<Self>,
        connection: &mut Connection,
        exchange: &Arc<Exchange>,
        header: Header,
        seat: Seat,
    ) -> Result<(), Broken> {
        let change: Change = serde_json::from_slice(&connection.receive_meta(header)?)
            .map_err(|_| WireError::Malformed("view"))?;
        let layout = change.view.layout;
        if exchange.change(seat, header.clock, change)? {
            let (room, exchange_there) = (Arc::clone(self), Arc::clone(exchange));
            let spawned = thread::Builder::new()
                .name("move".to_owned())
                .spawn(move || handover::carry_out(&room, &exchange_there, layout));
            if spawned.is_err() {
                exchange.handed_over(false);
            }
        }
        Ok(())
    }

    pub(super) fn receive_adoption(
        &self,
        connection: &mut Connection,
        exchange: &Exchange,
        header: Header,
        seat: Seat,
    ) -> Result<(), Broken> {
        let view = serde_json::from_slice(&connection.receive_meta(header)?)
            .map_err(|_| WireError::Malformed("view"))?;
        let copy = self.copies.take(exchange.me);
        let copy = copy.ok_or(Refusal::Change("there is no copy of that shard here"))?;
        let next = exchange.adopt(seat, view, header.clock, copy)?;
        Ok(connection.send(Kind::Ready, next, &[], &[])?)
    }
}
