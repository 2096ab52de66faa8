//! Connections to a shard: handshake, the exchange that they address, and the coordinator's
//! changes. [`super::worker_connection`] serves the frames of a worker.

use super::super::exchange::ShardExchange;
use super::super::identity::Identity;
use super::super::messages::{ConnectionId, RequestRefusal, ShardConnectionError};
use super::super::replica::ReplicaStore;
use super::frames::receive_pieces;
use super::handover;
use super::snapshot_reads::serve_reads;
use muster_comm::log;
use muster_comm::wire::metadata::{
    ConnectionPurpose, Hello, MAX_HELLO_BYTES, Welcome, same_secret,
};
use muster_comm::wire::view::ViewChange;
use muster_comm::wire::{Connection, FrameKind, Header, WireError};
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
pub struct ShardAcceptor {
    pub identity: Identity,
    /// Exchange of this shard.
    pub exchange: Arc<ShardExchange>,
    /// Replicas of other shards, and promoted replicas.
    pub copies: ReplicaStore,
    pub promoted_exchanges: Mutex<Vec<Arc<ShardExchange>>>,
    pub state_per_parameter: u32,
    pub strangers: AtomicUsize,
}

/// A peer after the handshake.
enum AcceptedPeer {
    Worker(Arc<ShardExchange>, ConnectionId),
    Shard(Arc<ShardExchange>, TaskId),
    Primary(TaskId),
    Checkpoint(Arc<ShardExchange>),
}

impl ShardAcceptor {
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
            AcceptedPeer::Worker(exchange, connection_id) => {
                let attended = self.attend(&mut connection, &exchange, connection_id);
                exchange.depart(connection_id, attended.is_ok());
                (format!("worker {}", connection_id.task), attended)
            }
            AcceptedPeer::Shard(exchange, task) => (
                format!("PS shard {task}"),
                receive_pieces(&mut connection, &exchange, task),
            ),
            AcceptedPeer::Primary(task) => {
                let recipe = &self.exchange.rules.recipe;
                let kept = self.copies.keep(task, &mut connection, recipe);
                (
                    format!("PS shard {task}, of which there is a copy here"),
                    kept,
                )
            }
            AcceptedPeer::Checkpoint(exchange) => (
                "what draws a checkpoint".to_owned(),
                serve_reads(&mut connection, &exchange),
            ),
        };
        if let Err(broken) = attended {
            log::line(format_args!("lost {name}: {}", chain(&broken)));
            if let ShardConnectionError::Refused(RequestRefusal::Adopted(_)) = &broken {
                // In a frame of its own, because the peer must learn that it has been replaced.
                let _ = connection.send(FrameKind::Adopted, 0, &[], &[]);
            }
            if let ShardConnectionError::Refused(refusal) = &broken {
                connection.refuse(&refusal.to_string());
            }
        }
    }

    /// Performs the handshake and admits the peer if all checks pass.
    fn greet(&self, mut connection: Connection) -> Result<(Connection, AcceptedPeer), WireError> {
        let (header, meta) =
            connection.receive_greeting(clock::now() + HANDSHAKE_LIMIT, MAX_HELLO_BYTES)?;
        if header.kind != FrameKind::Hello {
            return Err(WireError::Unexpected { got: header.kind });
        }
        let hello: Hello =
            serde_json::from_slice(&meta).map_err(|_| WireError::Malformed("greeting"))?;
        let memory = if same_secret(&hello.secret, &self.identity.secret) {
            // Before the peer is registered. It would find itself registered if it then used TCP
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
            keeps_known: self.exchange.rules.keeps_known(),
        })
        .expect("a welcome is plain data");
        if let Err(error) = connection.send(FrameKind::Welcome, 0, &welcome, &[]) {
            if let AcceptedPeer::Worker(exchange, connection_id) = greeted {
                exchange.depart(connection_id, false);
            }
            return Err(error);
        }
        if let Some(memory) = memory {
            connection.carry(memory);
        }
        Ok((connection, greeted))
    }

    fn judge(&self, hello: &Hello) -> Result<AcceptedPeer, String> {
        // First and without further information: a peer without the secret learns nothing about the
        // job.
        if !same_secret(&hello.secret, &self.identity.secret) {
            return Err("the secret is wrong".to_owned());
        }
        if hello.job_id != self.identity.job_id {
            return Err("this shard serves another job".to_owned());
        }
        let exchange = self.addressed(hello)?;
        let is_worker = matches!(
            hello.guest,
            ConnectionPurpose::Chief | ConnectionPurpose::Worker
        );
        if is_worker && exchange.rules.is_heard_singly() && !hello.says_held {
            return Err(
                "workers of this job say what they hold back, and one of an older release cannot: let its node's executor be of this one"
                    .to_owned(),
            );
        }
        if is_worker && exchange.rules.recipe.has_plain_statistics() && !hello.plain_statistics {
            return Err(
                "workers of this job do not encode statistics, and one of an older release does: let its node's executor be of this one"
                    .to_owned(),
            );
        }
        match hello.guest {
            ConnectionPurpose::Shard => Ok(AcceptedPeer::Shard(exchange, hello.task_id)),
            ConnectionPurpose::Primary => Ok(AcceptedPeer::Primary(hello.task_id)),
            ConnectionPurpose::Checkpoint if exchange.is_led_by(hello.task_id) => {
                Ok(AcceptedPeer::Checkpoint(exchange))
            }
            ConnectionPurpose::Checkpoint => Err(RequestRefusal::NotChief.to_string()),
            ConnectionPurpose::Chief | ConnectionPurpose::Worker => exchange
                .join(hello.task_id, hello.guest == ConnectionPurpose::Chief)
                .map(|connection_id| AcceptedPeer::Worker(exchange, connection_id))
                .map_err(|refusal| refusal.to_string()),
        }
    }

    /// Returns the exchange that the peer addresses: this shard's, or that of a lost shard with a
    /// replica here. The first worker that asks for a lost shard creates its exchange. All workers
    /// but the coordinator then wait for the promotion.
    fn addressed(&self, hello: &Hello) -> Result<Arc<ShardExchange>, String> {
        let me = self.identity.task_id;
        let to = hello.to.unwrap_or(me);
        if to == me {
            return Ok(Arc::clone(&self.exchange));
        }
        let mut promoted_exchanges = self.promoted_exchanges.lock().expect("not poisoned");
        if let Some(promoted) = promoted_exchanges
            .iter()
            .find(|promoted| promoted.me() == to)
        {
            return Ok(Arc::clone(promoted));
        }
        let is_a_worker = matches!(
            hello.guest,
            ConnectionPurpose::Chief | ConnectionPurpose::Worker
        );
        if !is_a_worker || !self.copies.has(to) {
            return Err(format!("PS shard {to} does not live here"));
        }
        log::line(format_args!("promoted to primary for lost PS shard {to}"));
        let promoted = Arc::new(self.exchange.promoted_exchange(to, &self.identity));
        promoted_exchanges.push(Arc::clone(&promoted));
        Ok(promoted)
    }

    /// Removes promoted replicas that hold nothing and have no connected worker. Also removes
    /// exchanges of lost shards whose workers have left before the coordinator ordered the
    /// promotion.
    pub fn dismiss_promoted(&self) {
        let mut promoted_exchanges = self.promoted_exchanges.lock().expect("not poisoned");
        promoted_exchanges.retain(|promoted| {
            let over = why_over(promoted);
            if let Some(why) = over {
                log::line(format_args!(
                    "PS shard {} does not live here any more: {why}",
                    promoted.me()
                ));
            }
            over.is_none()
        });
    }

    /// Returns the exchanges of this shard and of the promoted replicas.
    pub fn exchanges(&self) -> Vec<Arc<ShardExchange>> {
        let promoted_exchanges = self.promoted_exchanges.lock().expect("not poisoned");
        let own = std::iter::once(&self.exchange);
        own.chain(promoted_exchanges.iter())
            .map(Arc::clone)
            .collect()
    }

    pub fn receive_change(
        self: &Arc<Self>,
        connection: &mut Connection,
        exchange: &Arc<ShardExchange>,
        header: Header,
        connection_id: ConnectionId,
    ) -> Result<(), ShardConnectionError> {
        let change: ViewChange = serde_json::from_slice(&connection.receive_meta(header)?)
            .map_err(|_| WireError::Malformed("view"))?;
        let layout = change.view.layout;
        if exchange.change(connection_id, header.clock, change)? {
            let (acceptor, exchange_there) = (Arc::clone(self), Arc::clone(exchange));
            let spawned = thread::Builder::new()
                .name("move".to_owned())
                .spawn(move || handover::carry_out(&acceptor.identity, &exchange_there, layout));
            if spawned.is_err() {
                exchange.handed_over(false);
            }
        }
        Ok(())
    }

    pub fn receive_adoption(
        &self,
        connection: &mut Connection,
        exchange: &ShardExchange,
        header: Header,
        connection_id: ConnectionId,
    ) -> Result<(), ShardConnectionError> {
        let view = serde_json::from_slice(&connection.receive_meta(header)?)
            .map_err(|_| WireError::Malformed("view"))?;
        let copy = self.copies.take(exchange.me());
        let copy = copy.ok_or(RequestRefusal::Change(
            "there is no copy of that shard here",
        ))?;
        let next = exchange.adopt(connection_id, view, header.clock, copy)?;
        Ok(connection.send(FrameKind::Ready, next, &[], &[])?)
    }
}

/// Returns why this promoted replica is not needed any more; `None` if it is.
fn why_over(promoted: &Arc<ShardExchange>) -> Option<&'static str> {
    let members = promoted.membership(Duration::ZERO);
    // A connection takes the exchange from the locked list and holds it until its end.
    let is_alone = Arc::strong_count(promoted) == 1;
    if members.retired && members.joined == 0 {
        Some("it has handed over all it held")
    } else if is_alone && promoted.is_empty() {
        Some("the chief did not make it one")
    } else {
        None
    }
}
